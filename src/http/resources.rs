//! Resources: to look at, and for operators to take out.

use axum::Extension;
use axum::extract::State;

use super::answer::{Answer, ok};
use super::path::Id;
use super::query::Params;
use super::router::Front;
use crate::model::{Caller, ResourceAddress, Selector};
use crate::service::answers::{OneResource, Resources};

/// `GET /v1/resources?select=`.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>, params: Params) -> Answer {
    let select: Option<Selector> = params.get("select")?;
    let resources = front.app.coordinator.resources(&caller, select.as_ref()).await?;
    Ok(ok(&Resources { resources }))
}

/// `GET /v1/resources/{id}`.
pub(super) async fn show(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(address): Id<ResourceAddress>,
) -> Answer {
    let resource = front.app.coordinator.resource(&caller, &address).await?;
    Ok(ok(&OneResource { resource }))
}

/// `POST /v1/resources/{id}/drain`: takes it out. The coordinator says who may.
pub(super) async fn drain(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(address): Id<ResourceAddress>,
) -> Answer {
    let resource = front.app.coordinator.drain(&caller, &address, true).await?;
    Ok(ok(&OneResource { resource }))
}

/// `DELETE /v1/resources/{id}/drain`: brings it back.
pub(super) async fn undrain(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(address): Id<ResourceAddress>,
) -> Answer {
    let resource = front.app.coordinator.drain(&caller, &address, false).await?;
    Ok(ok(&OneResource { resource }))
}

/// `POST /v1/resources/{id}/clear`: brings a device in quarantine back. The coordinator says who may.
pub(super) async fn clear(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(address): Id<ResourceAddress>,
) -> Answer {
    let resource = front.app.coordinator.clear(&caller, &address).await?;
    Ok(ok(&OneResource { resource }))
}
