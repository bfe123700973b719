//! Bookings (SPEC §5).

use axum::Extension;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

use super::answer::{Answer, json, ok};
use super::body::Body;
use super::headers::Stated;
use super::path::Id;
use super::query::Params;
use super::router::Front;
use crate::model::{BookingId, Caller, Refusal, ResourceAddress};
use crate::service::calendar::ask::{BookBody, BookingQuery, Moment, RescheduleBody};
use crate::service::calendar::views::Booked;

/// `POST /v1/resources/{id}/bookings`: 201 with the booking, or with all of a series.
pub(super) async fn create(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
    Stated(headers): Stated,
    Body(body): Body<BookBody>,
) -> Answer {
    let booked = front.app.coordinator.book(&caller, resource, body, headers).await?;
    let response = json(StatusCode::CREATED, &booked);
    Ok(match &booked {
        Booked::One { booking } => located(response, &format!("/v1/bookings/{}", booking.id)),
        Booked::Series { .. } => response,
    })
}

/// `GET /v1/resources/{id}/bookings`.
pub(super) async fn of_resource(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
    params: Params,
) -> Answer {
    Ok(ok(&front.app.coordinator.bookings(&caller, Some(resource), asked(&params)?).await?))
}

/// `GET /v1/bookings`: over all resources; an agent's are its own.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>, params: Params) -> Answer {
    Ok(ok(&front.app.coordinator.bookings(&caller, None, asked(&params)?).await?))
}

/// `GET /v1/bookings/{id}`.
pub(super) async fn show(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<BookingId>,
) -> Answer {
    Ok(ok(&front.app.coordinator.booking(&caller, id).await?))
}

/// `PATCH /v1/bookings/{id}`: another window, in one step.
pub(super) async fn reschedule(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<BookingId>,
    Body(body): Body<RescheduleBody>,
) -> Answer {
    Ok(ok(&front.app.coordinator.reschedule(&caller, id, body).await?))
}

/// `DELETE /v1/bookings/{id}?following=`: gives it up, and with `following` the rest of its series.
pub(super) async fn cancel(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<BookingId>,
    params: Params,
) -> Answer {
    let following = params.get("following")?.unwrap_or(false);
    Ok(ok(&front.app.coordinator.cancel_booking(&caller, id, following).await?))
}

fn asked(params: &Params) -> Result<BookingQuery, Refusal> {
    Ok(BookingQuery {
        from: params.get("from")?.map(|Moment(at)| at),
        to: params.get("to")?.map(|Moment(at)| at),
        status: params.get("status")?,
        mine: params.get("mine")?.unwrap_or(false),
        after: params.get("after")?,
        limit: params.get("limit")?,
    })
}

/// Says where the thing that was made is.
pub(super) fn located(mut response: Response, path: &str) -> Response {
    if let Ok(location) = HeaderValue::try_from(path) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}
