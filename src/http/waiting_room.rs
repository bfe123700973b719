//! Waiting rooms, seen and left (SPEC §3).

use axum::Extension;
use axum::extract::State;

use super::answer::{Answer, ok};
use super::headers::Stated;
use super::path::Id;
use super::router::Front;
use crate::model::{Caller, ResourceAddress};
use crate::service::ask::requester;

/// `GET /v1/resources/{id}/waiting-room`. The coordinator says who may see it.
pub(super) async fn show(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(address): Id<ResourceAddress>,
) -> Answer {
    Ok(ok(&front.app.coordinator.waiting_room(&caller, &address).await?))
}

/// `DELETE /v1/resources/{id}/waiting-room/me`. The header `Berth-Requester` says whose place it is, as it did when the
/// place was taken.
pub(super) async fn leave(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(address): Id<ResourceAddress>,
    Stated(headers): Stated,
) -> Answer {
    let requester = requester(&caller, None, headers.requester)?;
    Ok(ok(&front.app.coordinator.leave(&caller, requester, &address).await?))
}
