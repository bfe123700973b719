//! Leases: the first door of SPEC §2, and the life of a lease.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::{Answer, json, ok};
use super::body::{Body, OptionalBody};
use super::headers::Stated;
use super::path::Id;
use super::query::Params;
use super::router::Front;
use crate::model::{Caller, Fence, LeaseId, ResourceAddress};
use crate::service::answers::{AcquireStatus, Acquired, Leases, OneLease};
use crate::service::ask::{AcquireBody, RenewBody, bounded_ttl};
use crate::service::views::LeaseView;

/// `POST /v1/resources/{id}/leases`.
pub(super) async fn acquire(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(resource): Id<ResourceAddress>,
    Stated(headers): Stated,
    Body(body): Body<AcquireBody>,
) -> Answer {
    let ask = body.into_ask(resource, &caller, headers, &front.app.rules)?;
    let lease = front.app.coordinator.acquire(&caller, ask).await?;
    Ok(json(StatusCode::CREATED, &Acquired { status: AcquireStatus::Active, lease }))
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
    Ok(of(front.app.coordinator.lease(&caller, &id).await?))
}

/// `POST /v1/leases/{id}/renew`; the body may be left out.
pub(super) async fn renew(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<LeaseId>,
    OptionalBody(body): OptionalBody<RenewBody>,
) -> Answer {
    bounded_ttl(body.ttl_ms, &front.app.rules)?;
    Ok(of(front.app.coordinator.renew(&caller, &id, body.ttl_ms, body.fence).await?))
}

/// `DELETE /v1/leases/{id}?fence=`.
pub(super) async fn release(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<LeaseId>,
    params: Params,
) -> Answer {
    let fence = params.get("fence")?.map(Fence);
    Ok(json(StatusCode::OK, &front.app.coordinator.release(&caller, &id, fence).await?))
}

fn of(lease: LeaseView) -> Response {
    ok(&OneLease { lease })
}
