//! What both roles answer. A host and a gateway implement [`Coordinator`]; the front doors know only this.
//!
//! Every answer is one of the shapes in [`views`], every question one of those in [`ask`], and every "no" a
//! [`Refusal`]. What is about bookings and holds is in [`calendar`], about tools at devices in [`exec`], what operators do
//! with workers in [`workers`].

mod access;
pub mod answers;
pub mod ask;
pub mod calendar;
pub mod exec;
mod gateway;
mod host;
mod log;
pub mod reload;
pub mod views;
pub mod workers;

use std::time::Duration;

use async_trait::async_trait;

use self::answers::{Acquired, Events, Left, Renewed};
use self::ask::EventQuery;
use self::calendar::Calendars;
use self::exec::Execs;
pub use self::gateway::GatewayService;
pub use self::host::HostService;
use self::views::{LeaseView, Readiness, Released, RequestView, ResourceView, StatusView, WaitingRoomView, WorkerView};
use self::workers::WorkerOperations;
use crate::model::{Ask, Caller, Fence, LeaseId, Refusal, RenewAsk, RequestId, Requester, ResourceAddress, Selector};

/// The operations of a node. Every wait in here is bounded.
#[async_trait]
pub trait Coordinator: Calendars + Execs + WorkerOperations {
    /// Leases a named resource now, or stands in its waiting room, or refuses (SPEC §2, door 1).
    async fn acquire(&self, caller: &Caller, ask: Ask) -> Result<Acquired, Refusal>;

    /// Asks for a lease (SPEC §2, door 2). Answers as soon as the request is granted or refused, at the latest
    /// after `bound`; then the request is still waiting and is asked about with [`Self::lease_request`].
    async fn request(&self, caller: &Caller, ask: Ask, bound: Duration) -> Result<RequestView, Refusal>;

    /// Ends a request that waits.
    async fn cancel(&self, caller: &Caller, id: &RequestId) -> Result<(), Refusal>;

    /// One lease request; waits up to `wait` for it to settle. Asking keeps it alive (SPEC §2 Abandoned).
    async fn lease_request(&self, caller: &Caller, id: &RequestId, wait: Duration) -> Result<RequestView, Refusal>;

    /// The open lease requests that the caller may see.
    async fn lease_requests(&self, caller: &Caller) -> Result<Vec<RequestView>, Refusal>;

    /// The active leases that the caller may see.
    async fn leases(&self, caller: &Caller) -> Result<Vec<LeaseView>, Refusal>;

    /// One active lease.
    async fn lease(&self, caller: &Caller, id: &LeaseId) -> Result<LeaseView, Refusal>;

    /// Moves a lease's deadline to now plus its width, or plus the one that is asked for, which becomes the new width.
    async fn renew(&self, caller: &Caller, id: &LeaseId, ask: RenewAsk) -> Result<Renewed, Refusal>;

    /// Ends a lease.
    async fn release(&self, caller: &Caller, id: &LeaseId, fence: Option<Fence>) -> Result<Released, Refusal>;

    /// The resources that match, all of them without a selector.
    async fn resources(&self, caller: &Caller, select: Option<&Selector>) -> Result<Vec<ResourceView>, Refusal>;

    /// One resource.
    async fn resource(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal>;

    /// Takes a resource out, or brings it back; for admins.
    async fn drain(&self, caller: &Caller, address: &ResourceAddress, drained: bool) -> Result<ResourceView, Refusal>;

    /// Brings a device in quarantine back: an operator says that it is as it should be; for admins.
    async fn clear(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal>;

    /// Who waits for a resource by its name; for admins.
    async fn waiting_room(&self, caller: &Caller, address: &ResourceAddress) -> Result<WaitingRoomView, Refusal>;

    /// Takes an unattended waiter of the caller's own out of a waiting room.
    async fn leave(&self, caller: &Caller, requester: Requester, address: &ResourceAddress) -> Result<Left, Refusal>;

    /// The events that the caller may read; where there is none yet, waits up to `wait` for one.
    async fn events(&self, caller: &Caller, query: &EventQuery, wait: Duration) -> Result<Events, Refusal>;

    /// The workers of the lab.
    async fn workers(&self, caller: &Caller) -> Result<Vec<WorkerView>, Refusal>;

    /// Counts, for people.
    async fn status(&self, caller: &Caller) -> Result<StatusView, Refusal>;

    /// Whether the node admits requests, and if not, why.
    async fn readiness(&self) -> Readiness;
}

/// How long an actor of this process has for an answer that depends on its own disk at most.
const ACTOR_BOUND: Duration = Duration::from_secs(15);

/// Asks an actor of this process, bounded.
///
/// # Errors
/// None when no answer came: the actor is gone, or has too much to do; nobody knows whether it was done.
async fn ask_actor<M: ractor::Message, T: ractor::Message>(
    actor: &ractor::ActorRef<M>,
    bound: Duration,
    build: impl FnOnce(ractor::RpcReplyPort<T>) -> M,
) -> Option<T> {
    let (reply, answer) = ractor::concurrency::oneshot();
    actor.cast(build(reply.into())).ok()?;
    tokio::time::timeout(bound, answer).await.ok()?.ok()
}

/// The refusal of a call that got no answer.
fn unanswered() -> Refusal {
    Refusal::internal("no answer came in time, and nobody knows whether it was done; ask again under the same key")
}
