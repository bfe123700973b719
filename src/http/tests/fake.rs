//! A coordinator whose answers follow from the question.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::link::exec::{CallerLine, ToolLine, line};
use crate::model::NoticeKind;
use crate::model::{
    Ask, Caller, Code, DeviceState, EventId, EventKind, ExecAsk, Fence, Labels, LeaseId, Mode, NodeName, NodeRole,
    Refusal, RenewAsk, RequestId, Requester, ResourceAddress, Role, Selector, Target, Ttl, WaitPolicy, WaitingFor,
};
use crate::service::Coordinator;
use crate::service::answers::{Acquired, Events, Left, Notice, Pending, Renewed};
use crate::service::ask::EventQuery;
use crate::service::exec::Execs;
use crate::service::views::{
    Connection, EventView, LeaseView, NodeView, Readiness, Released, RequestState, RequestView, ResourceCounts,
    ResourceView, StatusView, WaiterView, WaitingRoomView, WorkerView,
};
use crate::service::workers::{InvitationMade, WorkerOperations, WorkerRemoved};
use crate::wire::calendar::{CalendarAnswer, CalendarCall};

pub(super) const REQUEST: &str = "req_0198f3a0-0000-7000-8000-000000000000";
/// A request that can no more be cancelled.
pub(super) const GRANTED: &str = "req_0198f3a0-0000-7000-8000-000000000001";

/// Knows every resource but `gone`, every lease but `gone`, and writes down what it was asked.
#[derive(Default)]
pub(super) struct Fake {
    pub asked: Mutex<Vec<String>>,
    pub ready: bool,
    /// Set off when a long poll has begun.
    pub polled: Notify,
    /// Lets `workers` answer.
    pub release: Notify,
    /// What `lease_request` answers, one after the other; without any it is as [`Fake::lease_request`] says.
    pub states: Mutex<VecDeque<RequestView>>,
    /// What `lease` refuses with, whatever it is asked about.
    pub lost: Mutex<Option<Refusal>>,
    /// The event log.
    pub log: Mutex<Vec<EventView>>,
    /// Set off when the log has grown.
    pub grown: Notify,
    /// What was asked of the calendars: the worker that was named, and the call.
    pub calendar: Mutex<Vec<(Option<NodeName>, CalendarCall)>>,
    /// The tools' ends of what was started, one after the other.
    pub tools: Mutex<VecDeque<CallerLine>>,
    /// Set off when a tool was started.
    pub started: Notify,
    /// What the calendars answer, one after the other.
    pub booked: Mutex<VecDeque<Result<CalendarAnswer, Refusal>>>,
}

impl Fake {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    pub fn last(&self) -> String {
        self.asked.lock().unwrap().last().cloned().unwrap_or_default()
    }

    /// Adds an event about a lease to the log; the first is number 1.
    pub fn happens(&self, kind: EventKind, payload: Value) {
        let mut log = self.log.lock().unwrap();
        let seq = log.len() as u64 + 1;
        log.push(EventView {
            id: EventId::generate(),
            seq,
            timestamp: Timestamp::UNIX_EPOCH,
            event: kind,
            payload: payload.as_object().unwrap().clone(),
            node: "rack-1".parse().unwrap(),
            worker_id: None,
        });
        self.grown.notify_waiters();
    }

    fn page(&self, query: &EventQuery) -> Events {
        let log = self.log.lock().unwrap();
        let fits = |event: &&EventView| {
            event.seq > query.after
                && query.event.is_none_or(|kind| kind == event.event)
                && query.lease.as_ref().is_none_or(|id| event.payload.get("leaseId") == Some(&json!(id)))
        };
        let events: Vec<EventView> = log.iter().filter(fits).take(query.limit).cloned().collect();
        let last_seq = events.last().or(log.last()).map_or(0, |event| event.seq);
        Events { events, last_seq }
    }
}

fn lease(id: &str, holder: Requester) -> LeaseView {
    LeaseView {
        id: id.parse().unwrap(),
        request_id: REQUEST.parse().unwrap(),
        resource_id: "pixel".parse().unwrap(),
        mode: Mode::Exclusive,
        owner_id: holder.owner(),
        holder_id: holder,
        granted_at: Timestamp::UNIX_EPOCH,
        renewed_at: Timestamp::UNIX_EPOCH,
        ttl_ms: 1000,
        asked_ttl_ms: None,
        expires_at: Timestamp::UNIX_EPOCH,
        expires_in_ms: 1000,
        id_chosen_by_requester: false,
        fence: Fence(7),
        note: None,
        labels: Labels::new(),
        environment: BTreeMap::new(),
        worker: None,
    }
}

/// One that waits.
pub(super) fn waiting(position: usize) -> RequestView {
    RequestView {
        position: Some(position),
        waiting_for: Some(WaitingFor::Leased),
        until: Some(Timestamp::UNIX_EPOCH),
        ticket: Some("tkt.1".parse().unwrap()),
        ..request(RequestState::Waiting)
    }
}

pub(super) fn request(state: RequestState) -> RequestView {
    let error = Refusal::new(Code::NoCapacity, "all are held").with("availableAt", "soon");
    RequestView {
        id: REQUEST.parse().unwrap(),
        state,
        created_at: Timestamp::UNIX_EPOCH,
        position: None,
        waiting_for: None,
        until: None,
        ticket: None,
        lease: (state == RequestState::Granted).then(|| lease("lse_1", "ci".parse().unwrap())),
        error: (state == RequestState::Failed).then(|| error.retry_after(Duration::from_secs(9))),
    }
}

fn resource(id: &str) -> ResourceView {
    ResourceView {
        id: id.parse().unwrap(),
        labels: Labels::new(),
        state: DeviceState::Available,
        reason: None,
        until: None,
        failure: None,
        fence: Fence(0),
        max_shared: 1,
        queue_length: 0,
        worker: None,
        reachable: None,
        leases: Vec::new(),
    }
}

fn admins_only(caller: &Caller) -> Result<(), Refusal> {
    match caller.role {
        Role::Admin => Ok(()),
        _ => Err(Refusal::new(Code::InsufficientPermissions, "only an admin may")),
    }
}

fn known(id: &LeaseId) -> Result<(), Refusal> {
    match id.as_str() {
        "gone" => Err(Refusal::new(Code::UnknownLease, "no active lease gone").with("leaseId", "gone")),
        _ => Ok(()),
    }
}

#[async_trait]
impl Execs for Fake {
    async fn exec(&self, caller: &Caller, lease: &LeaseId, ask: ExecAsk) -> Result<ToolLine, Refusal> {
        let ExecAsk { tool, args, fence } = ask;
        self.note(format!("exec {lease} {tool} {:?} {fence:?} as {}", args.as_slice(), caller.principal));
        known(lease)?;
        if tool.as_str() == "rm" {
            return Err(Refusal::bad_field("tool", "rm is not allowed").with("allowed", vec!["adb"]));
        }
        let (tool, caller) = line();
        self.tools.lock().unwrap().push_back(caller);
        self.started.notify_one();
        Ok(tool)
    }
}

#[async_trait]
impl WorkerOperations for Fake {
    async fn invite(&self, caller: &Caller, worker: &NodeName) -> Result<InvitationMade, Refusal> {
        self.note(format!("invite {worker}"));
        admins_only(caller)?;
        Ok(InvitationMade { invitation: format!("berth-join:{worker}"), expires_at: Timestamp::UNIX_EPOCH })
    }

    async fn drain_worker(&self, caller: &Caller, worker: &NodeName, drained: bool) -> Result<WorkerView, Refusal> {
        self.note(format!("drain worker {worker} {drained}"));
        admins_only(caller)?;
        Ok(WorkerView {
            name: worker.clone(),
            label: None,
            connection: Connection::Disconnected,
            known: false,
            drained,
            last_seen_at: None,
            version: None,
            protocol: None,
            resources: 0,
            leases: 0,
            queue_length: 0,
        })
    }

    async fn remove_worker(&self, caller: &Caller, worker: &NodeName, revoke: bool) -> Result<WorkerRemoved, Refusal> {
        self.note(format!("remove worker {worker} {revoke}"));
        admins_only(caller)?;
        match worker.as_str() {
            "gone" => Err(Refusal::new(Code::UnknownWorker, "no worker gone")),
            "here" if !revoke => Err(Refusal::new(Code::WorkerConnected, "stop it first")),
            _ => Ok(WorkerRemoved { name: worker.clone(), revoked: revoke, message: "removed".to_owned() }),
        }
    }
}

#[async_trait]
impl Coordinator for Fake {
    async fn acquire(&self, _: &Caller, ask: Ask) -> Result<Acquired, Refusal> {
        let key = ask.key.as_ref().map_or("-", |key| key.as_str());
        self.note(format!("acquire {} for {} ttl {:?} key {key}", ask.target, ask.requester, ask.ttl));
        match ask.target.to_string().as_str() {
            "gone" => Err(Refusal::new(Code::UnknownResource, "no resource gone")),
            "held" if ask.wait == WaitPolicy::JoinWaitingRoom => Ok(Acquired::Pending(Pending {
                resource_id: "held".parse().unwrap(),
                mode: ask.mode,
                waiting_position: 2,
                ticket: ask.ticket,
            })),
            "held" => Err(Refusal::new(Code::ResourceUnavailable, "held is leased").with("availableAt", "soon")),
            _ => {
                let id = ask.lease_id.as_ref().map_or("lse_1", |id| id.as_str());
                Ok(Acquired::Active { lease: Box::new(lease(id, ask.requester)) })
            }
        }
    }

    async fn request(&self, _: &Caller, ask: Ask, bound: Duration) -> Result<RequestView, Refusal> {
        self.note(format!("request {} within {bound:?}", ask.target));
        match &ask.target {
            Target::Select(selector) if selector.to_string() == "os=none" => Ok(request(RequestState::Failed)),
            Target::Select(selector) if selector.to_string() == "os=busy" => Ok(waiting(3)),
            Target::Select(selector) if selector.to_string() == "os=off" => Ok(request(RequestState::Cancelled)),
            _ => Ok(request(RequestState::Granted)),
        }
    }

    async fn cancel(&self, _: &Caller, id: &RequestId) -> Result<(), Refusal> {
        self.note(format!("cancel {id}"));
        match id.as_str() {
            GRANTED => Err(Refusal::new(Code::RequestNotCancellable, "it is granted").with("leaseId", "lse_1")),
            _ => Ok(()),
        }
    }

    async fn lease_request(&self, _: &Caller, id: &RequestId, wait: Duration) -> Result<RequestView, Refusal> {
        self.note(format!("lease_request {id} {wait:?}"));
        self.polled.notify_one();
        if let Some(next) = self.states.lock().unwrap().pop_front() {
            return Ok(next);
        }
        match wait {
            Duration::ZERO => Ok(request(RequestState::Failed)),
            _ => std::future::pending().await,
        }
    }

    async fn lease_requests(&self, _: &Caller) -> Result<Vec<RequestView>, Refusal> {
        Ok(vec![request(RequestState::Waiting)])
    }

    async fn leases(&self, caller: &Caller) -> Result<Vec<LeaseView>, Refusal> {
        Ok(vec![lease("lse_1", Requester::local(caller.principal.clone(), None))])
    }

    async fn lease(&self, caller: &Caller, id: &LeaseId) -> Result<LeaseView, Refusal> {
        if let Some(refusal) = &*self.lost.lock().unwrap() {
            return Err(refusal.clone());
        }
        known(id)?;
        Ok(lease(id.as_str(), Requester::local(caller.principal.clone(), None)))
    }

    async fn renew(&self, caller: &Caller, id: &LeaseId, ask: RenewAsk) -> Result<Renewed, Refusal> {
        let RenewAsk { ttl, fence, allow_shorter } = ask;
        let shorter = if allow_shorter { " or shorter" } else { "" };
        self.note(format!("renew {id} {:?} {fence:?}{shorter}", ttl.map(Ttl::duration)));
        let notices = vec![Notice {
            at: Timestamp::UNIX_EPOCH,
            event: NoticeKind::DeviceUnhealthy,
            message: "it fell".to_owned(),
        }];
        Ok(Renewed { lease: self.lease(caller, id).await?, notices })
    }

    async fn release(&self, _: &Caller, id: &LeaseId, fence: Option<Fence>) -> Result<Released, Refusal> {
        self.note(format!("release {id} {fence:?}"));
        known(id)?;
        let next = (id.as_str() == "wanted").then(|| "ci/job-2".parse().unwrap());
        Ok(Released::new(id.clone(), "pixel".parse().unwrap(), next))
    }

    async fn resources(&self, _: &Caller, select: Option<&Selector>) -> Result<Vec<ResourceView>, Refusal> {
        self.note(format!("resources {}", select.map_or("all".to_owned(), Selector::to_string)));
        Ok(vec![resource("pixel")])
    }

    async fn resource(&self, _: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        self.note(format!("resource {address}"));
        assert_ne!(address.id.as_str(), "boom", "a resource that makes the handler panic");
        Ok(resource(address.id.as_str()))
    }

    async fn drain(&self, caller: &Caller, address: &ResourceAddress, drained: bool) -> Result<ResourceView, Refusal> {
        self.note(format!("drain {address} {drained}"));
        admins_only(caller)?;
        let state = if drained { DeviceState::Drained } else { DeviceState::Available };
        Ok(ResourceView { state, ..resource(address.id.as_str()) })
    }

    async fn clear(&self, caller: &Caller, address: &ResourceAddress) -> Result<ResourceView, Refusal> {
        self.note(format!("clear {address}"));
        admins_only(caller)?;
        Ok(resource(address.id.as_str()))
    }

    async fn waiting_room(&self, caller: &Caller, address: &ResourceAddress) -> Result<WaitingRoomView, Refusal> {
        admins_only(caller)?;
        let waiter = WaiterView {
            holder_id: "ci/job-1".parse().unwrap(),
            joined_at: Timestamp::UNIX_EPOCH,
            last_seen: Timestamp::UNIX_EPOCH,
            mode: Mode::Shared,
            priority: 2.5.try_into().unwrap(),
        };
        Ok(WaitingRoomView { count: 1, resource_id: address.id.clone(), waiters: vec![waiter] })
    }

    async fn leave(&self, _: &Caller, requester: Requester, address: &ResourceAddress) -> Result<Left, Refusal> {
        self.note(format!("leave {address} as {requester}"));
        Ok(Left { left: address.id.as_str() == "held" })
    }

    async fn events(&self, _: &Caller, query: &EventQuery, wait: Duration) -> Result<Events, Refusal> {
        let EventQuery { after, limit, event, lease } = query;
        let kind = event.map_or("-", EventKind::as_str);
        let id = lease.as_ref().map_or("-", LeaseId::as_str);
        self.note(format!("events after {after} limit {limit} kind {kind} lease {id} within {wait:?}"));
        let happens = self.grown.notified();
        let page = self.page(query);
        if page.events.is_empty() && !wait.is_zero() {
            self.polled.notify_one();
            let _ = tokio::time::timeout(wait, happens).await;
            return Ok(self.page(query));
        }
        Ok(page)
    }

    async fn workers(&self, _: &Caller) -> Result<Vec<WorkerView>, Refusal> {
        self.polled.notify_one();
        self.release.notified().await;
        Ok(Vec::new())
    }

    async fn status(&self, _: &Caller) -> Result<StatusView, Refusal> {
        Ok(StatusView {
            node: NodeView {
                name: "gateway".parse().unwrap(),
                role: NodeRole::Gateway,
                version: "0".to_owned(),
                started_at: Timestamp::UNIX_EPOCH,
                ready: self.ready,
            },
            resources: ResourceCounts::default(),
            leases: 0,
            waiting: 0,
            gateway: None,
            workers: None,
        })
    }

    async fn readiness(&self) -> Readiness {
        let reasons = if self.ready { Vec::new() } else { vec!["rebuilding".to_owned()] };
        Readiness { ready: self.ready, reasons, workers: None }
    }
}
