//! What a worker answers to its own clients.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::watch;

use super::access::request_for;
use super::answers::{Acquired, Events, Left, Pending, Renewed};
use super::ask::EventQuery;
use super::views::{
    GatewayConnection, GatewayView, LeaseBrief, LeaseView, NodeView, Readiness, Released, RequestState as State,
    RequestView, ResourceCounts, ResourceView, StatusView, WaiterView, WaitingRoomView, WorkerView,
};
use super::{ACTOR_BOUND, Coordinator, ask_actor, log, unanswered};
use crate::admission::RequestState;
use crate::admission::cancel::was_cancelled;
use crate::admission::ticket::TicketKey;
use crate::clock::Clock;
use crate::host::exec::ExecDoor;
use crate::host::message::{
    Asked, DeskMessage, Grant, Origin, PendingNow, ReleasedNow, RequestNow, ResourceNow, Said, Until, WaiterNow,
};
use crate::host::uplink::{Linked, Standing};
use crate::limits::ACQUIRE_BOUND;
use crate::model::{
    Ask, Authority, Caller, Code, Fence, LeaseId, NodeName, NodeRole, Refusal, RenewAsk, RequestId, Requester,
    ResourceAddress, Role, Selector, Target, Ttl,
};
use crate::store::EventLog;

/// A worker's desk, as the front doors see it.
#[derive(Debug)]
pub struct HostService {
    desk: ActorRef<DeskMessage>,
    events: EventLog,
    tickets: Arc<TicketKey>,
    pub(super) name: NodeName,
    clock: Clock,
    started_at: Timestamp,
    gateway: Option<watch::Receiver<Standing>>,
    pub(super) execs: ExecDoor,
}

impl HostService {
    /// The service of the worker `name`.
    pub fn new(
        desk: ActorRef<DeskMessage>,
        events: EventLog,
        tickets: Arc<TicketKey>,
        name: NodeName,
        clock: Clock,
        execs: ExecDoor,
    ) -> Self {
        let started_at = clock.now().wall;
        Self { desk, events, tickets, name, clock, started_at, gateway: None, execs }
    }

    /// The same with how it stands with its gateway; none for a worker without one.
    pub fn with_gateway(self, gateway: Option<watch::Receiver<Standing>>) -> Self {
        Self { gateway, ..self }
    }

    fn gateway_view(&self) -> Option<GatewayView> {
        let Standing { gateway: name, address, connection, since, reason } = self.gateway.as_ref()?.borrow().clone();
        let connection = match connection {
            Linked::Connected => GatewayConnection::Connected,
            Linked::Disconnected => GatewayConnection::Disconnected,
            Linked::Incompatible => GatewayConnection::Incompatible,
            Linked::Refused => GatewayConnection::Refused,
        };
        Some(GatewayView { name, address, connection, since, reason })
    }

    pub(super) async fn read<T: ractor::Message>(
        &self,
        build: impl FnOnce(RpcReplyPort<T>) -> DeskMessage,
    ) -> Result<T, Refusal> {
        ask_actor(&self.desk, ACTOR_BOUND, build).await.ok_or_else(unanswered)
    }

    pub(super) async fn change<T: ractor::Message>(
        &self,
        build: impl FnOnce(RpcReplyPort<Said<T>>) -> DeskMessage,
    ) -> Result<T, Refusal> {
        self.read(build).await?.result
    }

    fn lease_view(&self, grant: &Grant) -> LeaseView {
        let view = LeaseView::new(&grant.lease, grant.deadline, &grant.labels, self.clock.now());
        LeaseView { expires_at: grant.expires_at, environment: grant.environment.clone(), ..view }
    }

    fn request_view(&self, id: RequestId, now: RequestNow) -> RequestView {
        let RequestNow { request, waiting } = now;
        let now = self.clock.now();
        let (state, lease, error) = match request.state {
            RequestState::Open => (State::Waiting, None, None),
            RequestState::Granted(first) => {
                let deadline = now.run_at(first.expires_at, first.lease.ttl);
                let mut view = LeaseView::new(&first.lease, deadline, &first.labels, now);
                view.expires_at = first.expires_at;
                view.environment = first.environment;
                (State::Granted, Some(view), None)
            }
            RequestState::Failed(refusal) => (State::Failed, None, Some(refusal)),
            RequestState::Cancelled => (State::Cancelled, None, None),
        };
        RequestView {
            id,
            state,
            created_at: request.created_at,
            position: waiting.as_ref().map(|waiting| waiting.position),
            waiting_for: waiting.as_ref().map(|waiting| waiting.waiting_for),
            until: waiting.as_ref().and_then(|waiting| waiting.until),
            ticket: waiting.map(|waiting| self.tickets.issue(&waiting.place)),
            lease,
            error,
        }
    }

    fn resource_view(&self, resource: &ResourceNow, caller: &Caller) -> ResourceView {
        let spec = &resource.spec;
        let brief = |held: &crate::admission::resource::Held| {
            let view = LeaseView::new(&held.lease, held.deadline, &spec.labels, self.clock.now());
            LeaseBrief::new(&view, caller)
        };
        ResourceView {
            id: spec.id.clone(),
            labels: spec.labels.clone(),
            state: resource.state,
            reason: resource.reason.clone(),
            until: resource.until,
            failure: resource.failure.clone().filter(|_| caller.role != Role::Agent),
            fence: resource.fence,
            max_shared: spec.max_shared.get(),
            queue_length: resource.queue_length,
            worker: None,
            reachable: None,
            leases: resource.held.iter().map(brief).collect(),
        }
    }

    /// Waits for a request of which only the id is known, at most until `until` or for `bound`.
    async fn watch(&self, id: &RequestId, until: Until, bound: Duration) -> Result<Option<RequestNow>, Refusal> {
        let watched = ask_actor(&self.desk, bound, |reply| DeskMessage::Watch(id.clone(), until, reply)).await;
        match watched {
            Some(now) => Ok(now),
            None => self.read(|reply| DeskMessage::Peek(id.clone(), reply)).await,
        }
    }

    /// The view of a request, if it is there and the caller may read it.
    fn shown(&self, caller: &Caller, id: &RequestId, found: Option<RequestNow>) -> Result<RequestView, Refusal> {
        let waiting = found.as_ref().and_then(|now| now.waiting.clone());
        let request = request_for(caller, id, found.map(|now| now.request))?;
        Ok(self.request_view(id.clone(), RequestNow { request, waiting }))
    }
}

#[async_trait]
impl Coordinator for HostService {
    async fn acquire(&self, caller: &Caller, ask: Ask) -> Result<Acquired, Refusal> {
        let (target, mode) = (ask.target.clone(), ask.mode);
        let build = |reply| DeskMessage::Request { ask: Box::new(ask), origin: Origin::Client, reply };
        let said: Option<Said<Asked>> = ask_actor(&self.desk, ACQUIRE_BOUND, build).await;
        let asked = said.ok_or_else(unanswered)?.result?;
        let active = |lease| Ok(Acquired::Active { lease: Box::new(lease) });
        let id = match asked {
            Asked::Granted(grant) => return active(self.lease_view(&grant)),
            Asked::Pending(PendingNow { resource: resource_id, mode, position: waiting_position, place, .. }) => {
                let ticket = Some(self.tickets.issue(&place));
                return Ok(Acquired::Pending(Pending { resource_id, mode, waiting_position, ticket }));
            }
            Asked::Cancelled(id) => return Err(was_cancelled(&id)),
            // Its key stands for a lease request that is open; it waits as that does.
            Asked::Open(first) => first,
        };
        let found = self.watch(&id, Until::FirstAnswer, ACTOR_BOUND).await?;
        let view = self.shown(caller, &id, found)?;
        match (view.state, view.lease, view.error, view.position, target) {
            (State::Granted, Some(lease), ..) => active(lease),
            (State::Failed, _, Some(refusal), ..) => Err(refusal),
            (State::Cancelled, ..) => Err(was_cancelled(&id)),
            (State::Waiting, .., Some(waiting_position), Target::Resource(address)) => {
                let (resource_id, ticket) = (address.id, view.ticket);
                Ok(Acquired::Pending(Pending { resource_id, mode, waiting_position, ticket }))
            }
            _ => Err(unanswered()),
        }
    }

    async fn request(&self, caller: &Caller, ask: Ask, bound: Duration) -> Result<RequestView, Refusal> {
        let began = self.clock.now().run;
        let mut id = ask.id.clone();
        let build = |reply| DeskMessage::Request { ask: Box::new(ask), origin: Origin::Client, reply };
        if let Some(said) = ask_actor::<_, Said<Asked>>(&self.desk, bound, build).await {
            // A replay has the id of the first request.
            id = match said.result? {
                Asked::Granted(grant) => grant.lease.request_id,
                Asked::Open(first) | Asked::Cancelled(first) => first,
                Asked::Pending(_) => return Err(unanswered()),
            };
        }
        let left = (began + bound).left(self.clock.now().run);
        // One that the desk has not heard of yet is no unknown one.
        let found = self.watch(&id, Until::FirstAnswer, left).await?.ok_or_else(unanswered)?;
        self.shown(caller, &id, Some(found))
    }

    async fn cancel(&self, caller: &Caller, id: &RequestId) -> Result<(), Refusal> {
        let (request, authority) = (id.clone(), Authority::Client(caller.clone()));
        self.change(|reply| DeskMessage::Cancel { request, authority, reply }).await
    }

    async fn lease_request(&self, caller: &Caller, id: &RequestId, wait: Duration) -> Result<RequestView, Refusal> {
        let mut found = self.read(|reply| DeskMessage::Peek(id.clone(), reply)).await?;
        // Nobody waits for what is not theirs to see.
        self.shown(caller, id, found.clone())?;
        if !wait.is_zero() && matches!(&found, Some(now) if now.request.state == RequestState::Open) {
            found = self.watch(id, Until::Settled, wait).await?;
        }
        self.shown(caller, id, found)
    }

    async fn lease_requests(&self, caller: &Caller) -> Result<Vec<RequestView>, Refusal> {
        let mut open = self.read(DeskMessage::OpenRequests).await?;
        open.retain(|(_, now)| caller.may_read(&now.request.requester));
        open.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(open.into_iter().map(|(id, now)| self.request_view(id, now)).collect())
    }

    async fn leases(&self, caller: &Caller) -> Result<Vec<LeaseView>, Refusal> {
        let leases = self.read(DeskMessage::Leases).await?;
        let visible = leases.iter().filter(|grant| caller.may_read(&grant.lease.holder));
        Ok(visible.map(|grant| self.lease_view(grant)).collect())
    }

    async fn lease(&self, caller: &Caller, id: &LeaseId) -> Result<LeaseView, Refusal> {
        let (lease, caller) = (id.clone(), caller.clone());
        let grant = self.read(|reply| DeskMessage::Lease(lease, caller, reply)).await??;
        Ok(self.lease_view(&grant))
    }

    async fn renew(&self, caller: &Caller, id: &LeaseId, ask: RenewAsk) -> Result<Renewed, Refusal> {
        let RenewAsk { ttl, fence, allow_shorter } = ask;
        let (lease, ttl, authority) = (id.clone(), ttl.map(Ttl::duration), Authority::Client(caller.clone()));
        let build = |reply| DeskMessage::Renew { lease, fence, ttl, allow_shorter, authority, reply };
        let grant = self.change(build).await?;
        // A device without a driver has nothing to tell.
        Ok(Renewed { lease: self.lease_view(&grant), notices: grant.notices })
    }

    async fn release(&self, caller: &Caller, id: &LeaseId, fence: Option<Fence>) -> Result<Released, Refusal> {
        let (lease, authority) = (id.clone(), Authority::Client(caller.clone()));
        let ReleasedNow { lease, admitted } =
            self.change(|reply| DeskMessage::Release { lease, fence, authority, reply }).await?;
        Ok(Released::new(lease.id, lease.resource_id, admitted))
    }

    async fn resources(&self, caller: &Caller, select: Option<&Selector>) -> Result<Vec<ResourceView>, Refusal> {
        let found = self.read(|reply| DeskMessage::Resources(select.cloned(), reply)).await?;
        Ok(found.iter().map(|resource| self.resource_view(resource, caller)).collect())
    }

    async fn resource(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        let found = self.read(|reply| DeskMessage::Resource(address.clone(), reply)).await??;
        Ok(self.resource_view(&found, caller))
    }

    async fn drain(&self, caller: &Caller, address: &ResourceAddress, drained: bool) -> Result<ResourceView, Refusal> {
        caller.must_be_admin(if drained { "drain a resource" } else { "undrain a resource" })?;
        let address = address.clone();
        let (found, _) = self.change(|reply| DeskMessage::Drain { address, drained, reply }).await?;
        Ok(self.resource_view(&found, caller))
    }

    async fn clear(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        caller.must_be_admin("clear a resource")?;
        let address = address.clone();
        let (found, _) = self.change(|reply| DeskMessage::Clear { address, reply }).await?;
        Ok(self.resource_view(&found, caller))
    }

    async fn waiting_room(&self, caller: &Caller, address: &ResourceAddress) -> Result<WaitingRoomView, Refusal> {
        caller.must_be_admin("list a waiting room")?;
        let (resource_id, waiters) = self.read(|reply| DeskMessage::WaitingRoom(address.clone(), reply)).await??;
        let show = |waiter: WaiterNow| WaiterView {
            holder_id: waiter.holder,
            joined_at: waiter.joined_at,
            last_seen: waiter.last_seen,
            mode: waiter.mode,
            priority: waiter.priority,
        };
        let waiters: Vec<WaiterView> = waiters.into_iter().map(show).collect();
        Ok(WaitingRoomView { count: waiters.len(), resource_id, waiters })
    }

    async fn leave(&self, _caller: &Caller, requester: Requester, address: &ResourceAddress) -> Result<Left, Refusal> {
        let address = address.clone();
        let left = self.change(|reply| DeskMessage::Leave { requester, address, reply }).await?;
        Ok(Left { left })
    }

    async fn events(&self, caller: &Caller, query: &EventQuery, wait: Duration) -> Result<Events, Refusal> {
        log::events(&self.events, &self.name, caller, query, wait).await
    }

    async fn workers(&self, _caller: &Caller) -> Result<Vec<WorkerView>, Refusal> {
        Err(Refusal::new(Code::UnsupportedOnWorker, "a worker knows no other workers; ask the gateway"))
    }

    async fn status(&self, _caller: &Caller) -> Result<StatusView, Refusal> {
        let resources = self.read(|reply| DeskMessage::Resources(None, reply)).await?;
        let waiting = self.read(DeskMessage::Waiting).await?;
        let leases = self.read(DeskMessage::Leases).await?;
        Ok(StatusView {
            node: NodeView {
                name: self.name.clone(),
                role: NodeRole::Worker,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at: self.started_at,
                ready: self.readiness().await.ready,
            },
            resources: ResourceCounts::of(resources.iter().map(|resource| resource.state)),
            leases: leases.len(),
            waiting,
            gateway: self.gateway_view(),
            workers: None,
        })
    }

    async fn readiness(&self) -> Readiness {
        // The desk admits from its first message on: what had expired was settled before it started.
        let complaints = ask_actor(&self.desk, ACTOR_BOUND, DeskMessage::Complaints).await;
        let reasons = complaints.unwrap_or_else(|| vec!["the node's desk does not answer".to_owned()]);
        Readiness { ready: reasons.is_empty(), reasons, workers: None }
    }
}
