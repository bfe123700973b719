//! The desk: the one actor through which everything on this node goes.
//!
//! It serializes the checks of SPEC §2. It never waits: it reserves in the ledger, hands the command to a resource's
//! actor, and learns the end by a message that carries what has changed. Only then is the caller answered. Only the
//! desk sends to resources, one command at a time to each, so only it starts and retires them, and what it knows of a
//! resource while it asks is what the resource will decide on.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, RpcReplyPort, SupervisionEvent};
use tokio::task::JoinHandle;

use super::attempts::Attempts;
use super::calendar_index::CalendarIndex;
use super::directory::Directory;
#[cfg(test)]
use super::directory::{Entry, Life};
use super::drift::Drift;
use super::elsewhere::Elsewhere;
use super::execs::Execs;
use super::gateway_link::GatewayLink;
use super::jobs::Jobs;
use super::message::{Asked, DeskMessage, FirstGrant, Grant, OpId, Origin, PendingNow, RequestNow, Said, Until};
use super::monitor::Monitor;
pub(super) use super::op::{Note, Op, OpKind};
use super::open::OpenRequest;
use super::reload::Reload;
use super::reporter::Reporter;
#[cfg(test)]
use super::resource::ResourceMessage;
use super::restart::Restarted;
use super::returning::Returning;
use super::schedule::Schedule;
#[cfg(test)]
use super::tick::RESIDENCY;
use crate::admission::resource::Command;
use crate::admission::{Ledger, LiveRules, Pool, Requests, Rules};
use crate::clock::{Clock, RunTime};
use crate::driver::Hands;
use crate::driver::adb;
use crate::model::{Ask, Event, EventKind, LeaseId, LeaseRecord, NodeName, RequestId, ResourceId};
use crate::store::Store;

/// The actor; what it is comes with [`DeskArguments`].
#[derive(Debug)]
pub struct Desk;

/// What the desk is started with.
#[derive(Debug)]
pub struct DeskArguments {
    /// The node's own name, which may precede a resource's id.
    pub name: NodeName,
    /// Where changes become durable.
    pub store: Store,
    /// Where the time comes from.
    pub clock: Clock,
    /// The operator's numbers.
    pub live_rules: Arc<LiveRules>,
    /// What the last run left.
    pub restarted: Restarted,
    /// Does what is to be done on the devices.
    pub hands: Arc<dyn Hands>,
    /// Looks for what must not be.
    pub(super) monitor: Monitor,
}

/// The desk's state; its parts each keep one thing.
pub struct DeskState {
    pub(super) name: NodeName,
    pub(super) myself: ActorRef<DeskMessage>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) rules: Arc<Rules>,
    /// The same for those who ask the desk nothing.
    pub(super) live_rules: Arc<LiveRules>,
    /// The lab file that is being taken up.
    pub(super) reload: Option<Reload>,
    pub(super) incarnation: u64,
    pub(super) ledger: Ledger,
    pub(super) requests: Requests<FirstGrant>,
    /// The requests that are not settled.
    pub(super) open: HashMap<RequestId, OpenRequest>,
    pub(super) watchers: HashMap<RequestId, Vec<Watcher>>,
    /// Asks of an unattended waiter that come after one that is out.
    pub(super) behind: HashMap<RequestId, Behind>,
    /// Those who wait by selector.
    pub(super) pool: Pool,
    pub(super) returning: Returning,
    /// Ended leases that are remembered, by their ids.
    pub(super) ended: HashMap<LeaseId, RequestId>,
    pub(super) directory: Directory,
    pub(super) schedule: Schedule<ResourceId>,
    /// What runs on the devices.
    pub(super) jobs: Jobs,
    /// Sees the devices that come and go; none where none can.
    pub(super) watcher: Option<adb::Watcher>,
    pub(super) link: GatewayLink,
    /// What other workers have leased.
    pub(super) elsewhere: Elsewhere,
    /// When the next window of each resource begins or ends, on wall time.
    pub(super) edges: Schedule<ResourceId, Timestamp>,
    /// Where the bookings and holds are.
    pub(super) index: CalendarIndex,
    pub(super) monitor: Monitor,
    /// When a hand-over that came to nothing is tried again.
    pub(super) retries: Schedule<ResourceId>,
    /// When each open request is to be looked at.
    pub(super) attention: Schedule<RequestId>,
    pub(super) reporter: Reporter,
    pub(super) attempts: Attempts,
    /// Tools that run at devices.
    pub(super) execs: Execs,
    pub(super) ops: HashMap<OpId, Op>,
    /// Batches of the desk's own that are out.
    pub(super) notes: HashMap<OpId, Note>,
    /// Resources that may have something to do next.
    pub(super) to_pump: BTreeSet<ResourceId>,
    /// Resources that became free while the node was down.
    freed_at_start: Vec<ResourceId>,
    pub(super) arrivals: u64,
    next_op: OpId,
    pub(super) timer: Option<(RunTime, Timer)>,
    pub(super) drift: Drift,
    pub(super) stopping: bool,
    pub(super) retire_at: RunTime,
    pub(super) prune_at: RunTime,
}

/// Asks with who waits for their answer, in their order.
type Behind = VecDeque<(Ask, Origin, RpcReplyPort<Said<Asked>>)>;

pub(super) type Timer = JoinHandle<Result<(), MessagingErr<DeskMessage>>>;

/// Who waits for a request.
pub(super) enum Watcher {
    /// Whoever asked for the lease.
    Caller(RpcReplyPort<Said<Asked>>),
    /// A gateway: where its request waits, it hears the place at once.
    Gateway(RpcReplyPort<Said<Asked>>),
    /// A gateway that wants to know whether it waits.
    Looker(RpcReplyPort<Said<PendingNow>>),
    Settler(RpcReplyPort<Said<Option<Grant>>>),
    Reader(Until, RpcReplyPort<Option<RequestNow>>),
}

impl Watcher {
    /// True when nobody listens any more.
    pub(super) fn has_gone(&self) -> bool {
        match self {
            Watcher::Caller(reply) | Watcher::Gateway(reply) => reply.is_closed(),
            Watcher::Looker(reply) => reply.is_closed(),
            Watcher::Settler(reply) => reply.is_closed(),
            Watcher::Reader(_, reply) => reply.is_closed(),
        }
    }
}

impl Actor for Desk {
    type Msg = DeskMessage;
    type State = DeskState;
    type Arguments = DeskArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<DeskMessage>,
        arguments: DeskArguments,
    ) -> Result<DeskState, ActorProcessingErr> {
        let Restarted {
            incarnation,
            ledger,
            requests,
            returning,
            ended,
            directory,
            schedule,
            link,
            edges,
            index,
            drift,
            freed,
        } = arguments.restarted;
        myself.cast(DeskMessage::Open)?;
        let mut state = DeskState {
            name: arguments.name,
            myself,
            store: arguments.store,
            clock: arguments.clock,
            rules: arguments.live_rules.now(),
            live_rules: arguments.live_rules,
            reload: None,
            incarnation,
            ledger,
            requests,
            open: HashMap::new(),
            watchers: HashMap::new(),
            behind: HashMap::new(),
            pool: Pool::default(),
            returning,
            ended,
            directory,
            schedule,
            jobs: Jobs::new(arguments.hands),
            watcher: None,
            link,
            elsewhere: Elsewhere::default(),
            edges,
            index,
            monitor: arguments.monitor,
            retries: Schedule::default(),
            attention: Schedule::default(),
            reporter: Reporter::new(incarnation),
            attempts: Attempts::default(),
            execs: Execs::default(),
            ops: HashMap::new(),
            notes: HashMap::new(),
            to_pump: BTreeSet::new(),
            freed_at_start: freed,
            arrivals: 0,
            next_op: 1,
            timer: None,
            drift,
            stopping: false,
            retire_at: RunTime::default(),
            prune_at: RunTime::default(),
        };
        state.arm_timer();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<DeskMessage>,
        message: DeskMessage,
        state: &mut DeskState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Request { ask, origin, reply } => state.request(*ask, origin, reply),
            DeskMessage::Cancel { request, authority, reply } => state.cancel(&request, &authority, reply),
            DeskMessage::Look { request, gateway, reply } => state.look(&request, &gateway, reply),
            DeskMessage::Settle { request, attempt, gateway, reply } => {
                state.settle_attempt(request, attempt, &gateway, reply);
            }
            DeskMessage::Leave { requester, address, reply } => state.leave_at(&address, requester, reply),
            DeskMessage::Drain { address, drained, reply } => match state.resolve(&address) {
                Ok(resource) => state.send(&resource, OpKind::Drain { drained, reply }, Command::Drain(drained)),
                Err(refusal) => state.say(reply, Err(refusal)),
            },
            DeskMessage::Clear { address, reply } => match state.resolve(&address) {
                Ok(resource) => state.clear(&resource, reply),
                Err(refusal) => state.say(reply, Err(refusal)),
            },
            DeskMessage::JobEnded(resource, task, outcome) => state.job_ended(&resource, &task, outcome),
            DeskMessage::Sighted(resource, sighting) => state.sighted(&resource, sighting),
            DeskMessage::Idle(reply) => state.when_idle(reply),
            DeskMessage::StopJobs(reply) => state.stop_jobs(reply),
            DeskMessage::Renew { lease, fence, ttl, allow_shorter, authority, reply } => {
                let (of, by) = (lease.clone(), authority.clone());
                let command = Command::Renew { lease: of, fence, ttl, allow_shorter, authority: by };
                match state.find_lease(&lease) {
                    Some(Grant { lease: LeaseRecord { resource_id, renewed_at, .. }, .. }) => {
                        state.send(&resource_id, OpKind::Renew { lease, renewed_at, authority, reply }, command);
                    }
                    None => state.say(reply, Err(state.no_such_lease(&lease, &authority))),
                }
            }
            DeskMessage::Release { lease, fence, authority, reply } => {
                let command = Command::Release { lease: lease.clone(), fence, authority: authority.clone() };
                match state.find_lease(&lease) {
                    Some(Grant { lease, .. }) => {
                        let resource = lease.resource_id.clone();
                        let lease = Box::new(lease);
                        state.send(&resource, OpKind::Release { lease, authority, reply }, command);
                    }
                    None => state.say(reply, Err(state.no_such_lease(&lease, &authority))),
                }
            }
            DeskMessage::Calendar(call, reply) => state.calendar(*call, reply),
            DeskMessage::Exec(request, reply) => state.exec(*request, reply),
            DeskMessage::ExecEnded(run, end) => state.exec_ended(&run, &end),
            DeskMessage::ToolGone(resource) => state.tool_gone(&resource),
            DeskMessage::Link(now) => state.link(now),
            DeskMessage::Elsewhere(leased, reply) => {
                state.leased_elsewhere(leased);
                state.say(reply, Ok(()));
            }
            DeskMessage::DrainWorker(drained, reply) => state.drain_worker(drained, reply),
            DeskMessage::Check(reply) => state.check(reply),
            DeskMessage::Checked(found) => state.checked(found),
            DeskMessage::Complaints(reply) => drop(reply.send(state.monitor.complaints())),
            DeskMessage::Settled(settled) => state.settled(*settled),
            DeskMessage::Reload { resources, rules, reply } => state.reload(resources, *rules, reply),
            DeskMessage::Fetched(rows) => state.fetched(rows),
            DeskMessage::Noted(op, outcome) => state.noted(op, outcome),
            // A database that cannot be read leaves nothing to go on with: the process starts again from it.
            DeskMessage::Reopened(resource, rows) => state.reopened(resource, (*rows)?),
            DeskMessage::Open => state.open_admission(),
            DeskMessage::Stop => state.stop(),
            DeskMessage::Tick => state.tick(),
            DeskMessage::Watch(id, until, reply) => state.watch(&id, until, reply),
            DeskMessage::Peek(id, reply) => {
                state.asked_about(&id);
                let _ = reply.send(state.request_now(&id));
            }
            DeskMessage::Subscribe(gateway, reply) => state.subscribe(gateway, reply),
            DeskMessage::Digest => state.reporter.say_digest(),
            #[cfg(test)]
            DeskMessage::PanicResource(id) => {
                if let Some(Entry { life: Life::Active(actor), .. }) = state.directory.get(&id) {
                    // One that is dead already is dead enough.
                    let _ = actor.cast(ResourceMessage::Panic);
                }
            }
            #[cfg(test)]
            DeskMessage::RetireIdle => state.retire(state.clock.now().run + RESIDENCY),
            #[cfg(test)]
            DeskMessage::Actors(reply) => {
                let active = state.directory.iter().filter(|entry| matches!(entry.life, Life::Active(_)));
                let _ = reply.send(active.count());
            }
            #[cfg(test)]
            DeskMessage::Leftovers(reply) => drop(reply.send(state.leftovers())),
            #[cfg(test)]
            DeskMessage::Calendars(reply) => {
                let calendars: Vec<_> = state.directory.iter().map(|entry| entry.state.calendar.clone()).collect();
                let agrees = state.index.is_of(&calendars);
                let _ = reply.send((calendars, agrees));
            }
            read => state.read(read),
        }
        state.pump_all().await;
        state.arm_timer();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<DeskMessage>,
        event: SupervisionEvent,
        state: &mut DeskState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, error) = event
            && let Some(resource) = state.directory.resource_of_actor(actor.get_id()).cloned()
        {
            tracing::error!(%resource, %error, "a resource's actor died; it is started anew from the database");
            state.close(resource);
        }
        Ok(())
    }
}

impl DeskState {
    /// A number for the next command or batch.
    pub(super) fn next_op(&mut self) -> OpId {
        let op = self.next_op;
        self.next_op += 1;
        op
    }

    /// Admission opens: what became free while the node was down is handed over.
    fn open_admission(&mut self) {
        let found = self.monitor.found_at_start();
        self.checked(Ok(found));
        let all: Vec<ResourceId> = self.directory.iter().map(|entry| entry.spec.id.clone()).collect();
        for resource in &all {
            self.expect_device(resource);
            self.look_after(resource);
        }
        self.watch_devices();
        for resource in std::mem::take(&mut self.freed_at_start) {
            if let Some(entry) = self.directory.get_mut(&resource) {
                entry.least_grace = super::restart::FIRST_GRACE;
            }
            let command = Command::Serve { freed: Some(super::restart::FIRST_GRACE) };
            self.send(&resource, OpKind::Serve { parked: None, admits: true }, command);
        }
    }

    #[cfg(test)]
    fn leftovers(&self) -> super::message::Leftovers {
        let entries = || self.directory.iter();
        super::message::Leftovers {
            ledger: self.ledger.len(),
            open: self.open.len(),
            watchers: self.watchers.len(),
            behind: self.behind.len(),
            pool: self.pool.len(),
            rooms: self.directory.waiters(),
            attention: self.attention.next().is_some(),
            commands: self.ops.len(),
            batches: self.notes.len(),
            promised: entries().map(|entry| entry.promised.len()).sum(),
            waiting: entries().map(|entry| entry.waiting.len()).sum(),
            jobs: self.jobs.count(),
            parked: entries().filter(|entry| entry.parked.is_some()).count(),
            counted: self.index.asked(),
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.note_event(Event::new(EventKind::NodeStopping));
            self.finish_resets();
            self.stop_execs();
        }
    }
}
