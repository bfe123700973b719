//! Holds (SPEC §6). A token comes in a body or in a header and goes out in one answer; nothing else repeats it.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};

use super::answer::{Answer, json, ok};
use super::body::Body;
use super::bookings::located;
use super::headers::{Stated, header};
use super::path::Id;
use super::router::Front;
use crate::model::{Caller, HoldId, Refusal, ResourceAddress};
use crate::service::calendar::ask::{ConfirmBody, HoldBody};
use crate::trust::HoldToken;

/// The header that carries a token where there is no body.
const TOKEN: &str = "Berth-Hold-Token";

/// `POST /v1/resources/{id}/holds`: 201 with the hold and its token.
pub(super) async fn create(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
    Stated(headers): Stated,
    Body(body): Body<HoldBody>,
) -> Answer {
    let made = front.app.coordinator.hold(&caller, resource, body, headers).await?;
    Ok(located(json(StatusCode::CREATED, &made), &format!("/v1/holds/{}", made.hold.id)))
}

/// `GET /v1/resources/{id}/holds`.
pub(super) async fn list(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
) -> Answer {
    Ok(ok(&front.app.coordinator.holds(&caller, resource).await?))
}

/// `GET /v1/holds/{id}`.
pub(super) async fn show(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<HoldId>,
) -> Answer {
    Ok(ok(&front.app.coordinator.one_hold(&caller, id).await?))
}

/// `POST /v1/holds/{id}/confirm`: the hold becomes a booking.
pub(super) async fn confirm(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<HoldId>,
    Body(body): Body<ConfirmBody>,
) -> Answer {
    Ok(ok(&front.app.coordinator.confirm(&caller, id, body).await?))
}

/// `DELETE /v1/holds/{id}`: gives it back, with the token in `Berth-Hold-Token`; an admin needs none.
pub(super) async fn release(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<HoldId>,
    headers: HeaderMap,
) -> Answer {
    Ok(ok(&front.app.coordinator.release_hold(&caller, id, token(&headers)?).await?))
}

/// `POST /v1/holds/pause`. The coordinator says who may.
pub(super) async fn pause_all(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(ok(&front.app.coordinator.pause_holds(&caller, None, true).await?))
}

/// `POST /v1/holds/resume`.
pub(super) async fn resume_all(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(ok(&front.app.coordinator.pause_holds(&caller, None, false).await?))
}

/// `POST /v1/resources/{id}/holds/pause`.
pub(super) async fn pause(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
) -> Answer {
    Ok(ok(&front.app.coordinator.pause_holds(&caller, Some(resource), true).await?))
}

/// `POST /v1/resources/{id}/holds/resume`.
pub(super) async fn resume(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
) -> Answer {
    Ok(ok(&front.app.coordinator.pause_holds(&caller, Some(resource), false).await?))
}

/// The token that the caller shows, whatever it looks like: one that is none is a wrong one.
fn token(headers: &HeaderMap) -> Result<Option<HoldToken>, Refusal> {
    let text: Option<String> = header(headers, TOKEN)?;
    Ok(text.map(HoldToken::shown))
}
