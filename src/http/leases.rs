//! Leases: the first door of SPEC §2, and the life of a lease.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Answer, json, ok};
use super::body::{Body, OptionalBody};
use super::headers::Stated;
use super::path::Id;
use super::query::Params;
use super::router::Front;
use crate::model::{Caller, Fence, LeaseId, ResourceAddress};
use crate::service::answers::{Acquired, Leases, OneLease};
use crate::service::ask::{AcquireBody, RenewBody};

/// `POST /v1/resources/{id}/leases`: 201 with the lease, or 202 with the place in the waiting room.
pub(super) async fn acquire(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
    Stated(headers): Stated,
    Body(body): Body<AcquireBody>,
) -> Answer {
    let ask = body.into_ask(resource, &caller, headers, &front.app.rules.now().lease)?;
    let acquired = front.app.coordinator.acquire(&caller, ask).await?;
    let status = match acquired {
        Acquired::Active { .. } => StatusCode::CREATED,
        Acquired::Pending(_) => StatusCode::ACCEPTED,
    };
    Ok(json(status, &acquired))
}

/// `GET /v1/leases`.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(ok(&Leases { leases: front.app.coordinator.leases(&caller).await? }))
}

/// `GET /v1/leases/{id}`.
pub(super) async fn show(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<LeaseId>,
) -> Answer {
    Ok(ok(&OneLease { lease: front.app.coordinator.lease(&caller, &id).await? }))
}

/// `POST /v1/leases/{id}/renew`; the body may be left out.
pub(super) async fn renew(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<LeaseId>,
    OptionalBody(body): OptionalBody<RenewBody>,
) -> Answer {
    let ask = body.into_ask(&front.app.rules.now().lease)?;
    Ok(ok(&front.app.coordinator.renew(&caller, &id, ask).await?))
}

/// `DELETE /v1/leases/{id}?fence=`.
pub(super) async fn release(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<LeaseId>,
    params: Params,
) -> Answer {
    let fence = params.get("fence")?.map(Fence);
    Ok(ok(&front.app.coordinator.release(&caller, &id, fence).await?))
}
