//! Workers, for operators. The coordinator says who may.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Answer, json, ok};
use super::path::Id;
use super::query::Params;
use super::router::Front;
use crate::model::{Caller, NodeName};
use crate::service::answers::Workers;
use crate::service::workers::OneWorker;

/// `GET /v1/workers`.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(ok(&Workers { workers: front.app.coordinator.workers(&caller).await? }))
}

/// `POST /v1/workers/{name}/invitation`: 201 with the line. It is in this answer and nowhere else.
pub(super) async fn invite(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(worker): Id<NodeName>,
) -> Answer {
    Ok(json(StatusCode::CREATED, &front.app.coordinator.invite(&caller, &worker).await?))
}

/// `POST /v1/workers/{name}/drain`: takes the whole worker out.
pub(super) async fn drain(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(worker): Id<NodeName>,
) -> Answer {
    Ok(ok(&OneWorker { worker: front.app.coordinator.drain_worker(&caller, &worker, true).await? }))
}

/// `DELETE /v1/workers/{name}/drain`: brings it back.
pub(super) async fn undrain(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(worker): Id<NodeName>,
) -> Answer {
    Ok(ok(&OneWorker { worker: front.app.coordinator.drain_worker(&caller, &worker, false).await? }))
}

/// `DELETE /v1/workers/{name}?revoke=`: takes it off the roster.
pub(super) async fn remove(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(worker): Id<NodeName>,
    params: Params,
) -> Answer {
    let revoke: bool = params.get("revoke")?.unwrap_or(false);
    Ok(ok(&front.app.coordinator.remove_worker(&caller, &worker, revoke).await?))
}
