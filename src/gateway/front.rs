//! The front: the one actor in which a gateway's checks, its queue and its routing table live.
//!
//! One mailbox, so "check, reserve, queue" is one step. It never waits for a worker: it asks a
//! [session](super::session) by a message and gets what came of it by another.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};

use super::calendar::pause::Told;
use super::elsewhere::Elsewhere;
use super::fleet::Fleet;
use super::given_up::{GivenUp, GivenUpDisk, GivenUpFile};
use super::history::History;
use super::identities::Identities;
use super::identity::ToldElsewhere;
use super::in_doubt::Orphans;
use super::message::{Asked, FirstGrant, FleetLease, FrontMessage, Joined, ReleasedThere, RenewedThere, RoomSaid};
use super::rejections::Rejections;
use super::resyncs::Resyncs;
use super::returning::Returning;
use super::roster::{Enrolled, enrol};
use super::run_file::{Run, RunFile, RunMark};
use super::session::{CallId, LinkId, SessionMessage};
use super::table::Table;
use super::view::View;
use super::waiting::RequestNow;
use crate::admission::ticket::TicketKey;
use crate::admission::{LeaseRules, Ledger, Requests, WaitingRules};
use crate::clock::{Clock, RunTime};
use crate::limits::CALLS_IN_FLIGHT_MAX;
use crate::model::{Ask, Fence, LeaseId, NodeName, Refusal, RequestId, ResourceId};
use crate::wire::calendar::CalendarAnswer;
use crate::wire::call::Call;
use crate::wire::hello::Hello;
use crate::wire::requests::Place;

/// How often deadlines of open requests are looked at.
const TICK: Duration = Duration::from_millis(250);
/// Of the calls that a worker may have unanswered, dispatches leave this many to the others.
const CALLS_RESERVED: usize = 256;

/// The actor; what it is comes with [`FrontArguments`].
#[derive(Debug)]
pub struct Front;

/// What the front is started with.
#[derive(Debug)]
pub struct FrontArguments {
    /// This gateway's name.
    pub name: NodeName,
    /// Every worker there is to be.
    pub roster: Vec<Enrolled>,
    /// The operator's numbers.
    pub rules: LeaseRules,
    /// How long the rebuild waits for a worker that does not report.
    pub rebuild_wait: Duration,
    /// How long a request waits for a worker that is away.
    pub absence_grace: Duration,
    /// How long waiters wait, and in which order.
    pub waiting: WaitingRules,
    /// Waiters of this gateway.
    pub waiters_max: usize,
    /// Signs places in line.
    pub tickets: Arc<TicketKey>,
    /// Which life of the gateway this is, after which one.
    pub run: Run,
    /// Where that is kept.
    pub run_file: RunFile,
    /// Attempts that earlier lives have given up.
    pub given_up: BTreeSet<GivenUp>,
    /// Where they are kept.
    pub given_up_file: GivenUpFile,
    /// Whether new holds are stopped, as it is on disk; none if an admin has never said.
    pub holds_paused: Option<bool>,
    /// What it tells, and what it has to tell yet.
    pub history: History,
    /// Where the time comes from.
    pub clock: Clock,
}

/// The front's state; its parts each keep one thing.
pub struct FrontState {
    pub(super) around: FrontArguments,
    pub(super) myself: ActorRef<FrontMessage>,
    pub(super) started: RunTime,
    pub(super) rebuilt: bool,
    /// Requests that came in during the rebuild, unchecked, in their order.
    pub(super) held_back: Vec<Ask>,
    pub(super) ledger: Ledger,
    pub(super) requests: Requests<FirstGrant>,
    pub(super) watchers: HashMap<RequestId, Vec<Watcher>>,
    pub(super) fleet: Fleet,
    /// Those that wait at workers.
    pub(super) elsewhere: Elsewhere,
    pub(super) table: Table,
    pub(super) workers: BTreeMap<NodeName, Worker>,
    pub(super) orphans: Orphans,
    pub(super) returning: Returning,
    pub(super) mark: RunMark,
    pub(super) given_up: GivenUpDisk,
    /// When the queue is to be gone through again because of the time.
    pub(super) pump_at: Option<RunTime>,
    /// True when the queue is to be gone through before the next message.
    pub(super) pump_due: bool,
    /// Selectors by which somebody waits for a worker that is away.
    pub(super) away_groups: HashSet<String>,
    /// Requests that end as another does, which came first under their key.
    pub(super) mirrors: HashMap<RequestId, RequestId>,
    pub(super) rejections: Rejections,
    /// Who reports which device.
    pub(super) identities: Identities,
    /// True while a worker holds something back that is leased elsewhere, or may.
    pub(super) elsewhere_told: bool,
    /// True when who has what leased may have changed.
    pub(super) identities_due: bool,
    /// How many sessions there have been.
    pub(super) sessions: u64,
    /// What workers have been asked and when.
    pub(super) calls: HashMap<CallId, (CallKind, RunTime)>,
    next_call: CallId,
    ticking: bool,
    /// When those are looked at next that are away.
    pub(super) absent_at: RunTime,
    pub(super) stopping: bool,
}

/// One worker of the roster.
pub(super) struct Worker {
    pub(super) session: ActorRef<SessionMessage>,
    pub(super) link: Option<LinkId>,
    /// True once a snapshot has come over this link.
    pub(super) reported: bool,
    pub(super) view: Option<View>,
    pub(super) incompatible: bool,
    /// True when an operator has taken it out: it gets no new requests by selector.
    pub(super) drained: bool,
    /// How often it has not answered yet whether it is out; until then it may refuse what it is to take again.
    pub(super) drains_out: u32,
    pub(super) hello: Option<Hello>,
    pub(super) last_seen: Option<Timestamp>,
    /// Calls that it has not answered.
    pub(super) calls_out: usize,
    /// What it has been told over this link of new holds.
    pub(super) told: Told,
    /// The same of what is leased elsewhere.
    pub(super) told_elsewhere: ToldElsewhere,
    /// Resources whose reports were no sensible claims, of which that was said.
    pub(super) warned: BTreeSet<ResourceId>,
    /// Since when it has had no link; none while it has one.
    pub(super) away_since: Option<RunTime>,
    /// True when it has been away for so long that what it had reported is forgotten.
    pub(super) forgotten: bool,
    /// When its picture was last asked for anew.
    pub(super) resyncs: Resyncs,
}

impl Worker {
    /// True when requests may be sent to it.
    pub(super) fn takes_requests(&self) -> bool {
        self.link.is_some() && self.reported
    }

    /// True when it is to get requests by selector.
    pub(super) fn serves_fleet(&self) -> bool {
        self.takes_requests() && !self.drained && self.drains_out == 0
    }

    /// True when it has so many calls to answer that the rest of the room is left to renewals and releases.
    pub(super) fn is_busy(&self) -> bool {
        self.calls_out >= CALLS_IN_FLIGHT_MAX - CALLS_RESERVED
    }
}

/// Who waits for a request to settle.
pub(super) enum Watcher {
    /// Hears as soon as it is settled or known to wait.
    Caller(RpcReplyPort<Result<Asked, Refusal>>),
    /// Who wants to stand in a waiting room.
    Joiner(RpcReplyPort<Result<Joined, Refusal>>),
    Reader(RpcReplyPort<Option<RequestNow>>),
    /// Has cancelled it while it was out at a worker.
    Canceller(RpcReplyPort<Result<(), Refusal>>),
    /// A request that was held back during the rebuild and has the same key: it ends as this one does.
    Mirror(RequestId),
}

/// What a call was for.
pub(super) enum CallKind {
    Dispatch {
        request: RequestId,
        attempt: u32,
    },
    Settle {
        request: RequestId,
        attempt: u32,
    },
    /// With the fence that the caller named, and how long the lease may last by it.
    Renew {
        id: LeaseId,
        fence: Option<Fence>,
        width: Duration,
        reply: RpcReplyPort<Result<RenewedThere, Refusal>>,
    },
    /// The lease as it was when its worker was asked: the report of its end may be quicker than the answer.
    Release {
        lease: Box<FleetLease>,
        fence: Option<Fence>,
        reply: RpcReplyPort<Result<ReleasedThere, Refusal>>,
    },
    /// An owner gives up one that waits there.
    Cancel {
        request: RequestId,
        reply: RpcReplyPort<Result<(), Refusal>>,
    },
    /// Nobody is to have what waits there.
    Withdraw {
        request: RequestId,
    },
    /// Where one stands that waits there.
    Look {
        request: RequestId,
        reply: RpcReplyPort<Option<Place>>,
    },
    /// Something about a waiting room, or draining.
    Room(RpcReplyPort<Result<RoomSaid, Refusal>>),
    /// Something about bookings and holds.
    Calendar(RpcReplyPort<Result<CalendarAnswer, Refusal>>),
    /// The worker is told whether new holds are stopped.
    Pause(bool),
    /// The worker is told what is leased elsewhere.
    Elsewhere(BTreeMap<ResourceId, NodeName>),
    /// A lease that nobody is to have is being released.
    Orphan {
        lease: LeaseId,
        fence: Fence,
    },
}

impl Actor for Front {
    type Msg = FrontMessage;
    type State = FrontState;
    type Arguments = FrontArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<FrontMessage>,
        around: FrontArguments,
    ) -> Result<FrontState, ActorProcessingErr> {
        let (mut workers, mut sessions) = (BTreeMap::new(), 0);
        for worker in &around.roster {
            sessions += 1;
            let worker_state = enrol(&myself, &around, sessions, worker).await?;
            workers.insert(worker.name.clone(), worker_state);
        }
        let mut orphans = Orphans::default();
        for GivenUp { request, worker, attempt } in &around.given_up {
            if workers.contains_key(worker) {
                orphans.give_up(request.clone(), worker.clone(), *attempt);
            }
        }
        let Run { number, waited } = around.run.clone();
        let mut state = FrontState {
            started: around.clock.now().run,
            rebuilt: false,
            held_back: Vec::new(),
            ledger: Ledger::new(around.rules.max_per_requester),
            requests: Requests::new(around.rules.request_retention),
            watchers: HashMap::new(),
            fleet: Fleet::new(number, around.waiting.priority_aging),
            elsewhere: Elsewhere::default(),
            table: Table::new(around.name.clone()),
            workers,
            orphans,
            returning: Returning::new(Arc::clone(&around.tickets), number, waited.clone(), around.waiting.return_grace),
            mark: RunMark::new(around.run_file.clone(), waited),
            given_up: GivenUpDisk::new(around.given_up_file.clone(), around.given_up.clone()),
            pump_at: None,
            pump_due: false,
            away_groups: HashSet::new(),
            mirrors: HashMap::new(),
            rejections: Rejections::default(),
            identities: Identities::default(),
            elsewhere_told: false,
            identities_due: false,
            sessions,
            calls: HashMap::new(),
            next_call: 1,
            ticking: false,
            absent_at: RunTime::default(),
            stopping: false,
            myself,
            around,
        };
        state.keep_ticking();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<FrontMessage>,
        message: FrontMessage,
        state: &mut FrontState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            FrontMessage::Request(ask, reply) => state.request(ask, reply),
            FrontMessage::Cancel { request, caller, reply } => state.cancel(&request, &caller, reply),
            FrontMessage::Renew { id, caller, ask, reply } => state.renew(id, &caller, ask, reply),
            FrontMessage::Release { id, caller, fence, reply } => state.release(id, &caller, fence, reply),
            FrontMessage::Exec { id, caller, reply } => drop(reply.send(state.exec_route(&id, &caller))),
            FrontMessage::Join(ask, reply) => state.join(ask, reply),
            FrontMessage::PlaceThere(id, reply) => state.place_there(&id, reply),
            FrontMessage::Room { address, ask, reply } => state.room(&address, ask, reply),
            FrontMessage::Calendar { worker, call, reply } => state.calendar(worker, *call, reply),
            FrontMessage::PauseHolds { paused, reply } => {
                state.pause_holds(paused);
                // A caller that has gone needs no answer.
                let _ = reply.send(());
            }
            FrontMessage::Watch(id, reply) => state.watch(id, reply),
            FrontMessage::Look(id, reply) => {
                state.asked_about(&id);
                let _ = reply.send(state.request_now(&id));
            }
            FrontMessage::WaitedWritten(waited, outcome) => state.waited_written(waited, outcome),
            FrontMessage::GivenUpWritten(rows, outcome) => state.given_up_written(rows, outcome),
            FrontMessage::Up { worker, link, hello } => state.up(&worker, link, hello),
            FrontMessage::Incompatible { worker, hello } => state.incompatible(&worker, hello),
            FrontMessage::Snapshot { worker, link, snapshot, arrival } => {
                state.snapshot(&worker, link, arrival.at, snapshot);
                drop(arrival);
            }
            FrontMessage::Delta { worker, link, number, change, arrival } => {
                state.delta(&worker, link, arrival.at, number, change);
                drop(arrival);
            }
            FrontMessage::Gap { worker, link } => state.gap(&worker, link),
            FrontMessage::Digest { worker, link, digest, arrival } => {
                state.digest(&worker, link, digest);
                drop(arrival);
            }
            FrontMessage::Answered { worker, incarnation, id, outcome } => {
                state.answered(&worker, incarnation, id, outcome);
            }
            FrontMessage::Events { worker, page, taken } => state.relayed(worker, page, taken),
            FrontMessage::Reload(rules, reply) => {
                state.reload(*rules);
                // A caller that has gone needs no answer.
                let _ = reply.send(());
            }
            FrontMessage::Stop => state.stop_admitting(),
            FrontMessage::Enrolled(worker) => state.enrolled(&worker).await?,
            FrontMessage::Drained { worker, drained } => state.drained(&worker, drained),
            FrontMessage::ToldDrained(worker) => state.told_drained(&worker),
            FrontMessage::Removed { worker, revoked } => state.removed(&worker, revoked),
            FrontMessage::Rejected(rejection) => state.rejected(rejection),
            FrontMessage::Down { worker, link, why } => state.down(&worker, link, &why),
            FrontMessage::Tick => {
                state.ticking = false;
                state.tick();
            }
            read => state.read(read),
        }
        state.mind_identities();
        state.pump_if_due();
        state.keep_ticking();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<FrontMessage>,
        event: SupervisionEvent,
        _state: &mut FrontState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(_, error) = event {
            // A session has no truth of its own, and a gateway none on disk: starting anew is the one way back.
            tracing::error!(%error, "a session died; the gateway ends, to start anew");
            myself.stop(Some("a session died".to_owned()));
        }
        Ok(())
    }
}

impl FrontState {
    /// Asks a worker something; the answer comes as `Answered`.
    pub(super) fn ask(&mut self, worker: &NodeName, kind: CallKind, call: Call, bound: Duration) {
        let id = self.next_call;
        self.next_call += 1;
        self.calls.insert(id, (kind, self.around.clock.now().run));
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.calls_out += 1;
            // A session that is gone takes the whole node with it.
            let _ = worker.session.cast(SessionMessage::Ask { id, call, bound });
        }
    }

    fn tick(&mut self) {
        let now = self.around.clock.now().run;
        self.identities_due = true;
        self.end_rebuild_if_due();
        self.give_up_doubts(now);
        self.give_up_due(now);
        self.end_timed_out_there(now);
        self.end_unclaimed(now);
        self.let_go_of_absent(now);
        if self.returning.stop_if_due(now) {
            tracing::info!("those who waited at the end of the last run have had their time");
            self.pump_due = true;
        }
        let back = self.workers.iter().filter(|(_, worker)| worker.takes_requests());
        for worker in back.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.settle_doubts(&worker);
        }
        self.tell_pauses();
        self.tell_rejections();
        if self.pump_at.is_some_and(|at| now >= at) {
            self.pump_due = true;
        }
        self.mark_waited(now);
        self.keep_given_up();
        self.keep_history(now);
        for dropped in self.requests.prune(now) {
            if let Some(key) = &dropped.key {
                self.ledger.forget(&dropped.requester, key, &dropped.id);
            }
        }
    }

    fn keep_ticking(&mut self) {
        if !self.ticking {
            self.ticking = true;
            self.myself.send_after(TICK, || FrontMessage::Tick);
        }
    }

    /// Ends the rebuild when every roster worker has reported, or has had its time.
    pub(super) fn end_rebuild_if_due(&mut self) {
        let waited = self.around.clock.now().run >= self.started + self.around.rebuild_wait;
        if self.rebuilt || !(waited || self.unheard().is_empty()) {
            return;
        }
        self.rebuilt = true;
        let unheard = self.unheard();
        tracing::info!(
            leases = self.table.iter().count(),
            ?unheard,
            "the routing table is rebuilt; requests are admitted"
        );
        self.tell_started();
        self.returning.begin(self.around.clock.now().run);
        let held_back = std::mem::take(&mut self.held_back);
        let ids: Vec<RequestId> = held_back.iter().map(|ask| ask.id.clone()).collect();
        for ask in held_back {
            self.admit_held_back(ask);
        }
        self.pump();
        // The walk looks at the first of those who ask for the same; the others are to hear that they wait, too.
        for id in ids {
            self.place_now(&id);
        }
    }

    /// Roster workers that have not reported since this gateway started.
    pub(super) fn unheard(&self) -> Vec<NodeName> {
        let unheard = self.workers.iter().filter(|(_, worker)| worker.view.is_none() && !worker.forgotten);
        unheard.map(|(name, _)| name.clone()).collect()
    }

    /// A routed lease as its holder is shown it.
    pub(super) fn fleet_lease(&self, id: &LeaseId) -> Option<FleetLease> {
        let route = self.table.resolve(id)?;
        let seen = self.workers.get(&route.worker)?.view.as_ref()?.resources().get(&route.held.lease.resource_id);
        Some(FleetLease {
            id: id.clone(),
            worker: route.worker.clone(),
            lease: route.held.lease.clone(),
            deadline: route.held.deadline,
            labels: seen.map(|seen| seen.labels.clone()).unwrap_or_default(),
            environment: seen.map(|seen| seen.environment.clone()).unwrap_or_default(),
        })
    }
}
