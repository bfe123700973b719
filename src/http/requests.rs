//! Lease requests: the second door of SPEC §2.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;

use super::answer::{Answer, json, ok};
use super::body::Body;
use super::headers::Stated;
use super::path::Id;
use super::query::Params;
use super::router::Front;
use crate::limits;
use crate::model::{Caller, Refusal, RequestId};
use crate::service::answers::{OneRequest, Requests};
use crate::service::ask::RequestBody;
use crate::service::views::{RequestState, RequestView};

/// `POST /v1/lease-requests`. A request that has failed by the time of the answer is the HTTP error of its refusal; the
/// key of one that was cancelled makes nothing new.
pub(super) async fn ask(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Stated(headers): Stated,
    Body(body): Body<RequestBody>,
) -> Answer {
    let bound = if body.no_wait { limits::NO_WAIT_ANSWER_BOUND } else { limits::REQUEST_ANSWER_BOUND };
    let ask = body.into_ask(&caller, headers, &front.app.rules.now().lease)?;
    let request = front.app.coordinator.request(&caller, ask, bound).await?;
    if request.state == RequestState::Failed {
        return Err(request.error.unwrap_or_else(|| Refusal::internal("the request failed")).into());
    }
    if request.state == RequestState::Cancelled {
        return Ok(ok(&OneRequest { request: shown(request) }));
    }
    let location = HeaderValue::try_from(format!("/v1/lease-requests/{}", request.id));
    let mut response = json(StatusCode::CREATED, &OneRequest { request: shown(request) });
    if let Ok(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// `GET /v1/lease-requests`: the open ones.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    let requests = front.app.coordinator.lease_requests(&caller).await?;
    Ok(ok(&Requests { requests: requests.into_iter().map(shown).collect() }))
}

/// `GET /v1/lease-requests/{id}?wait=<s>`. A node that stops answers its long polls at once with what is.
pub(super) async fn show(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<RequestId>,
    params: Params,
) -> Answer {
    let wait = Duration::from_secs(params.get("wait")?.unwrap_or(0));
    if wait > limits::LONG_POLL_MAX {
        let most = limits::LONG_POLL_MAX.as_secs();
        return Err(Refusal::bad_field("wait", format!("at most {most} seconds; ask again after that")).into());
    }
    let coordinator = &front.app.coordinator;
    let request = tokio::select! {
        biased;
        request = coordinator.lease_request(&caller, &id, wait) => request?,
        () = front.stopping.cancelled() => coordinator.lease_request(&caller, &id, Duration::ZERO).await?,
    };
    Ok(ok(&OneRequest { request: shown(request) }))
}

/// `DELETE /v1/lease-requests/{id}`: ends one that waits.
pub(super) async fn cancel(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<RequestId>,
) -> Answer {
    front.app.coordinator.cancel(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// The header `Retry-After` belongs to an answer; inside a stored request it means nothing.
pub(super) fn shown(mut request: RequestView) -> RequestView {
    if let Some(error) = &mut request.error {
        error.retry_after = None;
    }
    request
}
