//! What a worker answers to its own clients.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use ractor::{ActorRef, RpcReplyPort};

use super::access::{lease_for, request_for};
use super::views::{
    LeaseBrief, LeaseView, NodeView, Readiness, Released, RequestState as State, RequestView, ResourceCounts,
    ResourceView, StatusView, WorkerView,
};
use super::{ACTOR_BOUND, Coordinator, ask_actor, unanswered};
use crate::admission::resource::unknown_lease;
use crate::admission::{Request, RequestState};
use crate::clock::Clock;
use crate::host::message::{DeskMessage, FirstGrant, Grant, Origin, ResourceNow, Said};
use crate::model::{
    Ask, Authority, Caller, Code, Fence, LeaseId, NodeName, NodeRole, Refusal, RequestId, ResourceAddress, Selector,
    Ttl,
};

/// A worker's desk, as the front doors see it.
#[derive(Debug)]
pub struct HostService {
    desk: ActorRef<DeskMessage>,
    name: NodeName,
    clock: Clock,
    started_at: Timestamp,
}

impl HostService {
    /// The service of the worker `name`.
    pub fn new(desk: ActorRef<DeskMessage>, name: NodeName, clock: Clock) -> Self {
        let started_at = clock.now().wall;
        Self { desk, name, clock, started_at }
    }

    async fn read<T: ractor::Message>(&self, build: impl FnOnce(RpcReplyPort<T>) -> DeskMessage) -> Result<T, Refusal> {
        ask_actor(&self.desk, ACTOR_BOUND, build).await.ok_or_else(unanswered)
    }

    async fn change<T: ractor::Message>(
        &self,
        build: impl FnOnce(RpcReplyPort<Said<T>>) -> DeskMessage,
    ) -> Result<T, Refusal> {
        self.read(build).await?.result
    }

    fn lease_view(&self, grant: &Grant) -> LeaseView {
        let view = LeaseView::new(&grant.lease, grant.deadline, &grant.labels, self.clock.now());
        LeaseView { expires_at: grant.expires_at, ..view }
    }

    fn request_view(&self, id: RequestId, request: Request<FirstGrant>) -> RequestView {
        let now = self.clock.now();
        let (state, lease, error) = match request.state {
            RequestState::Open => (State::Waiting, None, None),
            RequestState::Granted(first) => {
                let deadline = now.run_at(first.expires_at, first.lease.ttl);
                let mut view = LeaseView::new(&first.lease, deadline, &first.labels, now);
                view.expires_at = first.expires_at;
                (State::Granted, Some(view), None)
            }
            RequestState::Failed(refusal) => (State::Failed, None, Some(refusal)),
        };
        RequestView { id, state, created_at: request.created_at, lease, error }
    }

    fn resource_view(&self, resource: &ResourceNow, caller: &Caller) -> ResourceView {
        let (spec, state) = (&resource.spec, &resource.state);
        let brief = |held: &crate::admission::resource::Held| {
            let view = LeaseView::new(&held.lease, held.deadline, &spec.labels, self.clock.now());
            LeaseBrief::new(&view, caller)
        };
        ResourceView {
            id: spec.id.clone(),
            labels: spec.labels.clone(),
            state: state.device(),
            fence: state.fence,
            max_shared: spec.max_shared.get(),
            worker: None,
            reachable: None,
            leases: state.held.iter().map(brief).collect(),
        }
    }
}

#[async_trait]
impl Coordinator for HostService {
    async fn acquire(&self, _caller: &Caller, ask: Ask) -> Result<LeaseView, Refusal> {
        let grant = self.change(|reply| DeskMessage::Request { ask, origin: Origin::Client, reply }).await?;
        Ok(self.lease_view(&grant))
    }

    async fn request(&self, caller: &Caller, ask: Ask, bound: Duration) -> Result<RequestView, Refusal> {
        let id = ask.id.clone();
        let build = |reply| DeskMessage::Request { ask, origin: Origin::Client, reply };
        match ask_actor::<_, Said<Grant>>(&self.desk, bound, build).await {
            // A replay has the id of the first request.
            Some(said) => {
                let first = said.result?.lease.request_id;
                self.lease_request(caller, &first, Duration::ZERO).await
            }
            // Not settled yet; a replay has an id of its own, and ends as the first does.
            None => self.lease_request(caller, &id, Duration::ZERO).await,
        }
    }

    async fn lease_request(&self, caller: &Caller, id: &RequestId, wait: Duration) -> Result<RequestView, Refusal> {
        let mut found = self.read(|reply| DeskMessage::Peek(id.clone(), reply)).await?;
        if !wait.is_zero() && matches!(&found, Some(request) if matches!(request.state, RequestState::Open)) {
            let watched = ask_actor(&self.desk, wait, |reply| DeskMessage::Watch(id.clone(), reply)).await;
            found = watched.unwrap_or(found);
        }
        Ok(self.request_view(id.clone(), request_for(caller, id, found)?))
    }

    async fn lease_requests(&self, caller: &Caller) -> Result<Vec<RequestView>, Refusal> {
        let open = self.read(DeskMessage::OpenRequests).await?;
        let visible = open.into_iter().filter(|(_, request)| caller.may_read(&request.requester));
        Ok(visible.map(|(id, request)| self.request_view(id, request)).collect())
    }

    async fn leases(&self, caller: &Caller) -> Result<Vec<LeaseView>, Refusal> {
        let leases = self.read(DeskMessage::Leases).await?;
        let visible = leases.iter().filter(|grant| caller.may_read(&grant.lease.holder));
        Ok(visible.map(|grant| self.lease_view(grant)).collect())
    }

    async fn lease(&self, caller: &Caller, id: &LeaseId) -> Result<LeaseView, Refusal> {
        let found = self.read(|reply| DeskMessage::Lease(id.clone(), reply)).await?;
        let grant = found.ok_or_else(|| unknown_lease(id))?;
        lease_for(caller, id, &grant.lease.holder)?;
        Ok(self.lease_view(&grant))
    }

    async fn renew(
        &self,
        caller: &Caller,
        id: &LeaseId,
        ttl: Option<Ttl>,
        fence: Option<Fence>,
    ) -> Result<LeaseView, Refusal> {
        let (lease, ttl, authority) = (id.clone(), ttl.map(Ttl::duration), Authority::Client(caller.clone()));
        let grant = self.change(|reply| DeskMessage::Renew { lease, fence, ttl, authority, reply }).await?;
        Ok(self.lease_view(&grant))
    }

    async fn release(&self, caller: &Caller, id: &LeaseId, fence: Option<Fence>) -> Result<Released, Refusal> {
        let (lease, authority) = (id.clone(), Authority::Client(caller.clone()));
        let lease = self.change(|reply| DeskMessage::Release { lease, fence, authority, reply }).await?;
        Ok(Released::new(lease.id, lease.resource_id))
    }

    async fn resources(&self, caller: &Caller, select: Option<&Selector>) -> Result<Vec<ResourceView>, Refusal> {
        let found = self.read(|reply| DeskMessage::Resources(select.cloned(), reply)).await?;
        Ok(found.iter().map(|resource| self.resource_view(resource, caller)).collect())
    }

    async fn resource(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        let found = self.read(|reply| DeskMessage::Resource(address.clone(), reply)).await??;
        Ok(self.resource_view(&found, caller))
    }

    async fn workers(&self, _caller: &Caller) -> Result<Vec<WorkerView>, Refusal> {
        Err(Refusal::new(Code::UnsupportedOnWorker, "a worker knows no other workers; ask the gateway"))
    }

    async fn status(&self, _caller: &Caller) -> Result<StatusView, Refusal> {
        let resources = self.read(|reply| DeskMessage::Resources(None, reply)).await?;
        let open = self.read(DeskMessage::OpenRequests).await?;
        let leases = self.read(DeskMessage::Leases).await?;
        Ok(StatusView {
            node: NodeView {
                name: self.name.clone(),
                role: NodeRole::Worker,
                version: env!("CARGO_PKG_VERSION").to_owned(),
                started_at: self.started_at,
                ready: true,
            },
            resources: ResourceCounts::of(resources.iter().map(|resource| resource.state.device())),
            leases: leases.len(),
            waiting: open.len(),
            workers: None,
        })
    }

    async fn readiness(&self) -> Readiness {
        // The desk admits from its first message on: what had expired was settled before it started.
        Readiness { ready: true, reasons: Vec::new(), workers: None }
    }
}
