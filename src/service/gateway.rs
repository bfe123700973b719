//! What a gateway answers to its clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::Mutex;

use super::access::{lease_for, request_for};
use super::answers::{Acquired, Events, Left, Pending, Renewed};
use super::ask::EventQuery;
use super::views::{
    Connection, LeaseBrief, LeaseView, NodeView, Readiness, Released, RequestState as State, RequestView,
    ResourceCounts, ResourceView, StatusView, WaiterView, WaitingRoomView, WorkerCounts, WorkerView,
};
use super::{ACTOR_BOUND, Coordinator, ask_actor, log, unanswered};
use crate::admission::RequestState;
use crate::admission::cancel::was_cancelled;
use crate::admission::resource::Held;
use crate::admission::ticket::TicketKey;
use crate::clock::{Clock, Now};
use crate::gateway::calendar::pause::PauseFile;
use crate::gateway::message::{
    Asked, FirstGrant, FleetLease, FleetResource, FrontMessage, Joined, RebuildNow, ReleasedThere, RoomSaid, WorkerNow,
};
use crate::gateway::registrar::Registrar;
use crate::gateway::waiting::{Proof, RequestNow};
use crate::limits::{ACQUIRE_BOUND, NO_WAIT_ANSWER_BOUND, WAITERS_MAX};
use crate::model::{
    Ask, Caller, Code, Fence, LeaseId, NodeName, NodeRole, Refusal, RenewAsk, RequestId, Requester, ResourceAddress,
    Role, Selector, WaitPolicy, WaitingFor,
};
use crate::store::EventLog;
use crate::wire::requests::Place;
use crate::wire::room::RoomAsk;

/// A gateway's front, as the front doors see it.
#[derive(Debug)]
pub struct GatewayService {
    pub(super) front: ActorRef<FrontMessage>,
    pub(super) name: NodeName,
    /// What happened here and at the workers.
    events: EventLog,
    clock: Clock,
    started_at: Timestamp,
    /// Written by one at a time.
    pub(super) holds: Arc<Mutex<PauseFile>>,
    /// Signs places in line.
    tickets: Arc<TicketKey>,
    pub(super) registrar: Arc<Registrar>,
}

impl GatewayService {
    /// The service of the gateway `name`. In `holds` it keeps whether new holds are stopped; `tickets` signs places in
    /// line.
    pub fn new(
        front: ActorRef<FrontMessage>,
        events: EventLog,
        name: NodeName,
        clock: Clock,
        holds: PauseFile,
        tickets: Arc<TicketKey>,
        registrar: Arc<Registrar>,
    ) -> Self {
        let started_at = clock.now().wall;
        Self { front, name, events, clock, started_at, holds: Arc::new(Mutex::new(holds)), tickets, registrar }
    }

    pub(super) async fn ask<T: ractor::Message>(
        &self,
        build: impl FnOnce(RpcReplyPort<T>) -> FrontMessage,
    ) -> Result<T, Refusal> {
        ask_actor(&self.front, ACTOR_BOUND, build).await.ok_or_else(unanswered)
    }

    fn lease_view(&self, lease: &FleetLease) -> LeaseView {
        let view = LeaseView::new(&lease.lease, lease.deadline, &lease.labels, self.clock.now());
        LeaseView { environment: lease.environment.clone(), ..view.through(&lease.worker, lease.id.clone()) }
    }

    fn request_view(&self, id: RequestId, now: RequestNow) -> RequestView {
        let RequestNow { request, waiting } = now;
        let now = self.clock.now();
        let (state, lease, error) = match request.state {
            RequestState::Open => (State::Waiting, None, None),
            RequestState::Granted(FirstGrant { mut lease, expires_at }) => {
                lease.deadline = now.run_at(expires_at, lease.lease.ttl);
                let mut view = self.lease_view(&lease);
                view.expires_at = expires_at;
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
            waiting_for: waiting.as_ref().and_then(|waiting| waiting.waiting_for),
            until: waiting.as_ref().and_then(|waiting| waiting.until),
            ticket: waiting.map(|waiting| match waiting.ticket {
                Proof::Unsigned(stub) => self.tickets.issue(&stub),
                Proof::Signed(ticket) => ticket,
            }),
            lease,
            error,
        }
    }

    /// Asks for a lease now. A worker that says nothing is waited for as long as for any answer; one that says that it makes
    /// the device ready for this request, up to [`ACQUIRE_BOUND`].
    async fn ask_while_prepared<T: ractor::Message>(
        &self,
        id: &RequestId,
        build: impl FnOnce(RpcReplyPort<T>) -> FrontMessage,
    ) -> Option<T> {
        let (reply, mut answer) = ractor::concurrency::oneshot();
        self.front.cast(build(reply.into())).ok()?;
        let began = self.clock.now().run;
        loop {
            // The answer's end is kept all the while: whoever has let go of it is not waiting any more.
            if let Ok(answer) = tokio::time::timeout(NO_WAIT_ANSWER_BOUND, &mut answer).await {
                return answer.ok();
            }
            let now = self.ask(|reply| FrontMessage::Look(id.clone(), reply)).await.ok()??;
            let prepared = now.waiting.is_some_and(|waiting| waiting.waiting_for == Some(WaitingFor::Preparing));
            if !prepared || self.clock.now().run >= began + ACQUIRE_BOUND {
                return None;
            }
        }
    }

    /// Stands in a waiting room, or takes what is free.
    async fn join(&self, ask: Ask) -> Result<Acquired, Refusal> {
        let id = ask.id.clone();
        match self.ask_while_prepared(&id, |reply| FrontMessage::Join(ask, reply)).await {
            Some(joined) => Ok(match joined? {
                Joined::Granted(lease) => Acquired::Active { lease: Box::new(self.lease_view(&lease)) },
                Joined::Pending(Place { resource, mode, position, ticket, .. }) => {
                    let waiting_position = usize::try_from(position).unwrap_or(usize::MAX);
                    Acquired::Pending(Pending { resource_id: resource, mode, waiting_position, ticket: Some(ticket) })
                }
            }),
            None => Err(not_in_time(&id)),
        }
    }

    async fn room(&self, address: &ResourceAddress, ask: RoomAsk) -> Result<RoomSaid, Refusal> {
        let address = address.clone();
        self.ask(|reply| FrontMessage::Room { address, ask, reply }).await?
    }

    /// Everybody in a waiting room, page by page. Who comes or goes meanwhile may be missed or seen twice.
    async fn all_waiters(&self, address: &ResourceAddress) -> Result<Vec<WaiterView>, Refusal> {
        let mut all = Vec::new();
        loop {
            let ask = RoomAsk::Waiters { resource: address.id.clone(), after: all.len() as u64 };
            let RoomSaid::Waiters { waiters, more } = self.room(address, ask).await? else {
                return Err(Refusal::internal("the worker's answer does not fit"));
            };
            let empty = waiters.is_empty();
            all.extend(waiters.into_iter().map(|waiter| WaiterView {
                holder_id: waiter.holder,
                joined_at: waiter.joined_at,
                last_seen: waiter.last_seen,
                mode: waiter.mode,
                priority: waiter.priority,
            }));
            if !more || empty || all.len() > WAITERS_MAX {
                return Ok(all);
            }
        }
    }

    /// The view of a request, if it is there and the caller may read it.
    fn shown(&self, caller: &Caller, id: &RequestId, found: Option<RequestNow>) -> Result<RequestView, Refusal> {
        let waiting = found.as_ref().and_then(|now| now.waiting.clone());
        let request = request_for(caller, id, found.map(|now| now.request))?;
        Ok(self.request_view(id.clone(), RequestNow { request, waiting }))
    }

    /// A resource. The leases of the worker's own clients are shown under the names that the fleet's list gives them.
    fn resource_view(&self, resource: &FleetResource, leases: &ByGrant, caller: &Caller) -> ResourceView {
        let seen = &resource.seen;
        let brief = |held: &Held| {
            let fleet = leases.get(&(resource.worker.clone(), held.lease.id.clone(), held.lease.fence))?;
            let ours = held.lease.holder.via.as_ref() == Some(&self.name);
            let mut brief = LeaseBrief::new(&self.lease_view(fleet), caller);
            if caller.role == Role::Agent && !ours {
                // A worker's own client may have the name of one of this gateway's; it is another all the same.
                brief.holder_id = None;
            }
            Some(brief)
        };
        let until = seen.device.as_ref().and_then(|device| device.until).filter(|_| seen.held.is_empty());
        ResourceView {
            id: resource.id.clone(),
            labels: seen.labels.clone(),
            state: seen.device(),
            reason: seen.reason(),
            until: until.map(|until| self.clock.now().wall_at(until)),
            failure: seen.failure.clone().filter(|_| caller.role != Role::Agent),
            fence: seen.fence,
            max_shared: seen.max_shared,
            queue_length: seen.queue_length,
            worker: Some(resource.worker.clone()),
            reachable: Some(resource.reachable),
            leases: seen.held.iter().filter_map(brief).collect(),
        }
    }
}

#[async_trait]
impl Coordinator for GatewayService {
    async fn acquire(&self, caller: &Caller, ask: Ask) -> Result<Acquired, Refusal> {
        if ask.wait == WaitPolicy::JoinWaitingRoom {
            return self.join(ask).await;
        }
        let id = ask.id.clone();
        let active = |lease| Ok(Acquired::Active { lease: Box::new(lease) });
        match self.ask_while_prepared(&id, |reply| FrontMessage::Request(ask, reply)).await {
            Some(Ok(Asked::Granted(lease))) => active(self.lease_view(&lease)),
            // Its key stands for a request that has been cancelled, or waits.
            Some(Ok(Asked::Known(first))) => {
                let view = self.lease_request(caller, &first, Duration::ZERO).await?;
                match (view.state, view.lease, view.error) {
                    (State::Granted, Some(lease), _) => active(lease),
                    (State::Failed, _, Some(refusal)) => Err(refusal),
                    (State::Cancelled, ..) => Err(was_cancelled(&first)),
                    _ => Err(not_in_time(&id)),
                }
            }
            Some(Err(refusal)) => Err(refusal),
            None => Err(not_in_time(&id)),
        }
    }

    async fn request(&self, caller: &Caller, ask: Ask, bound: Duration) -> Result<RequestView, Refusal> {
        let id = ask.id.clone();
        let asked: Option<Result<Asked, Refusal>> =
            ask_actor(&self.front, bound, |reply| FrontMessage::Request(ask, reply)).await;
        // A replay has the id of the first request.
        let id = match asked.transpose()? {
            Some(Asked::Granted(lease)) => lease.lease.request_id,
            Some(Asked::Known(first)) => first,
            None => id,
        };
        self.lease_request(caller, &id, Duration::ZERO).await
    }

    async fn cancel(&self, caller: &Caller, id: &RequestId) -> Result<(), Refusal> {
        let (request, caller) = (id.clone(), caller.clone());
        self.ask(|reply| FrontMessage::Cancel { request, caller, reply }).await?
    }

    async fn lease_request(&self, caller: &Caller, id: &RequestId, wait: Duration) -> Result<RequestView, Refusal> {
        let mut found = self.ask(|reply| FrontMessage::Look(id.clone(), reply)).await?;
        // Nobody waits for what is not theirs to see.
        let view = self.shown(caller, id, found.clone())?;
        if view.state == State::Waiting && !wait.is_zero() {
            let watched = ask_actor(&self.front, wait, |reply| FrontMessage::Watch(id.clone(), reply)).await;
            found = match watched {
                Some(settled) => settled,
                // It may stand elsewhere by now.
                None => self.ask(|reply| FrontMessage::Look(id.clone(), reply)).await?,
            };
        }
        let view = self.shown(caller, id, found)?;
        if view.state != State::Waiting || view.position.is_some() {
            return Ok(view);
        }
        let place = self.ask(|reply| FrontMessage::PlaceThere(id.clone(), reply)).await?;
        Ok(view.at(place, self.clock.now()))
    }

    async fn lease_requests(&self, caller: &Caller) -> Result<Vec<RequestView>, Refusal> {
        let open = self.ask(FrontMessage::OpenRequests).await?;
        let visible = open.into_iter().filter(|(_, now)| caller.may_read(&now.request.requester));
        Ok(visible.map(|(id, now)| self.request_view(id, now)).collect())
    }

    async fn leases(&self, caller: &Caller) -> Result<Vec<LeaseView>, Refusal> {
        let mut leases = match caller.role {
            // A worker's own clients are no principals of this gateway's, so an agent sees only what is routed.
            Role::Agent => self.ask(FrontMessage::Routed).await?,
            Role::Admin | Role::Viewer => self.ask(FrontMessage::AllLeases).await?,
        };
        leases.retain(|lease| caller.may_read(&lease.lease.holder.bare()));
        leases.sort_by(|a, b| (&a.worker, &a.id).cmp(&(&b.worker, &b.id)));
        Ok(leases.iter().map(|lease| self.lease_view(lease)).collect())
    }

    async fn lease(&self, caller: &Caller, id: &LeaseId) -> Result<LeaseView, Refusal> {
        let lease = self.ask(|reply| FrontMessage::Lease(id.clone(), reply)).await??;
        lease_for(caller, id, &lease.lease.holder.bare())?;
        Ok(self.lease_view(&lease))
    }

    async fn renew(&self, caller: &Caller, id: &LeaseId, ask: RenewAsk) -> Result<Renewed, Refusal> {
        let (id, caller) = (id.clone(), caller.clone());
        let renewed = self.ask(|reply| FrontMessage::Renew { id, caller, ask, reply }).await??;
        Ok(Renewed { lease: self.lease_view(&renewed.lease), notices: renewed.notices })
    }

    async fn release(&self, caller: &Caller, id: &LeaseId, fence: Option<Fence>) -> Result<Released, Refusal> {
        let (id, caller) = (id.clone(), caller.clone());
        let released = self.ask(|reply| FrontMessage::Release { id, caller, fence, reply }).await??;
        let ReleasedThere { lease, admitted } = released;
        Ok(Released::new(lease.id, lease.lease.resource_id, admitted))
    }

    async fn resources(&self, caller: &Caller, select: Option<&Selector>) -> Result<Vec<ResourceView>, Refusal> {
        let mut found = self.ask(FrontMessage::Resources).await?;
        found.retain(|resource| select.is_none_or(|select| select.matches(&resource.seen.labels)));
        let leases = by_grant(self.ask(FrontMessage::AllLeases).await?);
        Ok(found.iter().map(|resource| self.resource_view(resource, &leases, caller)).collect())
    }

    async fn resource(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        let found = self.ask(|reply| FrontMessage::Resource(address.clone(), reply)).await??;
        let leases = by_grant(self.ask(FrontMessage::AllLeases).await?);
        Ok(self.resource_view(&found, &leases, caller))
    }

    async fn drain(&self, caller: &Caller, address: &ResourceAddress, drained: bool) -> Result<ResourceView, Refusal> {
        caller.must_be_admin(if drained { "drain a resource" } else { "undrain a resource" })?;
        match self.room(address, RoomAsk::Drain { resource: address.id.clone(), drained }).await? {
            RoomSaid::Resource(resource) => {
                let leases = by_grant(self.ask(FrontMessage::AllLeases).await?);
                Ok(self.resource_view(&resource, &leases, caller))
            }
            other => Err(does_not_fit(&other)),
        }
    }

    async fn clear(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        caller.must_be_admin("clear a resource")?;
        match self.room(address, RoomAsk::Clear { resource: address.id.clone() }).await? {
            RoomSaid::Resource(resource) => {
                let leases = by_grant(self.ask(FrontMessage::AllLeases).await?);
                Ok(self.resource_view(&resource, &leases, caller))
            }
            other => Err(does_not_fit(&other)),
        }
    }

    async fn waiting_room(&self, caller: &Caller, address: &ResourceAddress) -> Result<WaitingRoomView, Refusal> {
        caller.must_be_admin("list a waiting room")?;
        let waiters = tokio::time::timeout(ACTOR_BOUND, self.all_waiters(address)).await;
        let waiters = waiters.unwrap_or_else(|_| Err(unanswered()))?;
        Ok(WaitingRoomView { count: waiters.len(), resource_id: address.id.clone(), waiters })
    }

    async fn leave(&self, _: &Caller, requester: Requester, address: &ResourceAddress) -> Result<Left, Refusal> {
        let (resource, requester) = (address.id.clone(), requester.through(&self.name));
        match self.room(address, RoomAsk::Leave { resource, requester }).await? {
            RoomSaid::Left(left) => Ok(Left { left }),
            other => Err(does_not_fit(&other)),
        }
    }

    async fn events(&self, caller: &Caller, query: &EventQuery, wait: Duration) -> Result<Events, Refusal> {
        log::events(&self.events, &self.name, caller, query, wait).await
    }

    async fn workers(&self, _caller: &Caller) -> Result<Vec<WorkerView>, Refusal> {
        Ok(self.ask(FrontMessage::Workers).await?.into_iter().map(worker_view).collect())
    }

    async fn status(&self, caller: &Caller) -> Result<StatusView, Refusal> {
        let resources = self.ask(FrontMessage::Resources).await?;
        let open = self.ask(FrontMessage::OpenRequests).await?;
        let leases = self.ask(FrontMessage::AllLeases).await?;
        Ok(StatusView {
            node: NodeView {
                name: self.name.clone(),
                role: NodeRole::Gateway,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at: self.started_at,
                ready: self.readiness().await.ready,
            },
            resources: ResourceCounts::of(resources.iter().map(|resource| resource.seen.device())),
            leases: leases.len(),
            waiting: open.len(),
            gateway: None,
            workers: Some(self.workers(caller).await?),
        })
    }

    async fn readiness(&self) -> Readiness {
        let Ok(RebuildNow { done, unheard, roster }) = self.ask(FrontMessage::Rebuild).await else {
            return Readiness { ready: false, reasons: vec!["the gateway does not answer".to_owned()], workers: None };
        };
        let names: Vec<&str> = unheard.iter().map(NodeName::as_str).collect();
        let reasons = if done { Vec::new() } else { vec![format!("waiting for the report of {}", names.join(", "))] };
        let workers = Some(WorkerCounts { configured: roster, reported: roster - unheard.len() });
        Readiness { ready: done, reasons, workers }
    }
}

/// What an acquire is told whose worker takes too long.
fn not_in_time(id: &RequestId) -> Refusal {
    let message = "the worker has not answered in time; ask again under the same idempotency key, or look with `berth lease list`";
    let refusal = Refusal::new(Code::WorkerUnreachable, message).with("requestId", id.as_str());
    refusal.retry_after(Duration::from_secs(1))
}

fn does_not_fit(said: &RoomSaid) -> Refusal {
    tracing::error!(?said, "an answer does not fit its call");
    Refusal::internal("the worker's answer does not fit")
}

/// Leases by the worker's own name of them.
type ByGrant = HashMap<(NodeName, LeaseId, Fence), FleetLease>;

fn by_grant(leases: Vec<FleetLease>) -> ByGrant {
    let key = |lease: &FleetLease| (lease.worker.clone(), lease.lease.id.clone(), lease.lease.fence);
    leases.into_iter().map(|lease| (key(&lease), lease)).collect()
}

impl RequestView {
    /// With where it stands at the worker where it waits.
    fn at(self, place: Option<Place>, now: Now) -> Self {
        let Some(place) = place.filter(|_| self.state == State::Waiting) else { return self };
        let until = |ms| crate::model::time::later(now.wall, Duration::from_millis(ms));
        Self {
            position: usize::try_from(place.position).ok(),
            waiting_for: place.waiting_for,
            until: place.until_ms.map(until),
            ticket: Some(place.ticket),
            ..self
        }
    }
}

pub(super) fn worker_view(worker: WorkerNow) -> WorkerView {
    let connection = match (worker.connected, worker.incompatible) {
        (true, _) => Connection::Connected,
        (false, true) => Connection::Incompatible,
        (false, false) => Connection::Disconnected,
    };
    WorkerView {
        name: worker.name,
        label: None,
        connection,
        known: worker.known,
        drained: worker.drained,
        last_seen_at: worker.last_seen,
        version: worker.hello.as_ref().map(|hello| hello.version.clone()),
        protocol: worker.hello.as_ref().map(|hello| hello.protocol.to_string()),
        resources: worker.resources,
        leases: worker.leases,
        queue_length: worker.queue_length,
    }
}
