//! The node itself: how it is.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{Answer, json, ok};
use super::router::Front;
use crate::model::Caller;

/// `GET /v1/status`.
pub(super) async fn status(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(json(StatusCode::OK, &front.app.coordinator.status(&caller).await?))
}

/// `GET /v1/doctor`: what the node's database has that must not be. The coordinator says who may ask.
pub(super) async fn doctor(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(ok(&front.app.coordinator.doctor(&caller).await?))
}

/// `GET /v1/healthz`: the process answers.
pub(super) async fn healthz() -> Response {
    ok(&serde_json::json!({ "ok": true }))
}

/// `GET /v1/readyz`: the node admits requests.
pub(super) async fn readyz(State(front): State<Front>) -> Response {
    let readiness = front.app.coordinator.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    json(status, &readiness)
}
