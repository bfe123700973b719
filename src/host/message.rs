//! What is said to the desk, and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use ractor::RpcReplyPort;

use super::execs::{ExecEnd, ExecRequest, ExecRun, Permit};
pub use super::gateway_link::LinkNow;
use super::reporter::Subscription;
use crate::admission::resource::{Change, Held, Reply, Task};
use crate::admission::ticket::Stub;
use crate::admission::{Request, Rules};
use crate::clock::RunTime;
use crate::driver::{Outcome, Sighting};
use crate::model::{
    Ask, Authority, Caller, DeviceState, Fence, HookFailure, Labels, LeaseId, LeaseRecord, Mode, NodeName, Notice,
    Priority, Refusal, RequestId, Requester, ResourceAddress, ResourceId, ResourceSpec, Selector, WaitingFor,
};
use crate::store::{CommitError, OpenError, ReadError, Reopened, StoredResource, Violation};
use crate::wire::calendar::{CalendarAnswer, CalendarCall};
use crate::wire::report::ResourceReport;

/// Names one command that a resource has been given, in this life of the node.
pub(super) type OpId = u64;

/// An answer, and the number of the last change that it knows of.
#[derive(Debug)]
pub struct Said<T> {
    /// The answer.
    pub result: Result<T, Refusal>,
    /// The number of the delta with its effect, or of the last before it.
    pub number: u64,
}

/// A lease with what its holder is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The lease.
    pub lease: LeaseRecord,
    /// When it ends, on this node's run time.
    pub deadline: RunTime,
    /// The same as wall time; for a request that is answered again, what it was told first.
    pub expires_at: Timestamp,
    /// The labels of its resource.
    pub labels: Labels,
    /// What its holder needs to reach the device.
    pub environment: BTreeMap<String, String>,
    /// What happened to the device since it was renewed last; with a renewal only.
    pub notices: Vec<Notice>,
}

/// A lease as it was granted, for the book of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstGrant {
    /// The lease.
    pub lease: LeaseRecord,
    /// When it was to end, wall time.
    pub expires_at: Timestamp,
    /// The labels of its resource.
    pub labels: Labels,
    /// What its holder needs to reach the device.
    pub environment: BTreeMap<String, String>,
}

/// A lease that was released.
#[derive(Debug, Clone, PartialEq)]
pub struct ReleasedNow {
    /// It.
    pub lease: LeaseRecord,
    /// The holder that was taken first from those who wait.
    pub admitted: Option<Requester>,
}

/// What came of asking for a lease, so far.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// The lease.
    Granted(Grant),
    /// This request is open: it waits, or is on its way to a resource.
    Open(RequestId),
    /// It stands in a waiting room: unattended, or as a gateway's.
    Pending(PendingNow),
    /// The key stands for this request, which was cancelled.
    Cancelled(RequestId),
}

/// Where one stands who waits by name: an unattended waiter, or a gateway's request.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingNow {
    /// In whose waiting room.
    pub resource: ResourceId,
    /// Alone or shared.
    pub mode: Mode,
    /// The place, from 1.
    pub position: usize,
    /// Why nothing moves; none for an unattended waiter.
    pub waiting_for: Option<WaitingFor>,
    /// Until when at the latest, where that is known; wall time.
    pub until: Option<Timestamp>,
    /// The same for a later run, to be signed.
    pub place: Stub,
}

/// A lease request as it is now.
#[derive(Debug, Clone)]
pub struct RequestNow {
    /// It.
    pub request: Request<FirstGrant>,
    /// Where it stands, while it waits.
    pub waiting: Option<WaitingNow>,
}

/// Where a lease request stands.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingNow {
    /// The place, from 1.
    pub position: usize,
    /// Why nothing moves.
    pub waiting_for: WaitingFor,
    /// Until when at the latest, where that is known; wall time.
    pub until: Option<Timestamp>,
    /// The same place for a later run, to be signed.
    pub place: Stub,
}

/// One who waits, as an admin is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct WaiterNow {
    /// Who.
    pub holder: Requester,
    /// Since when.
    pub joined_at: Timestamp,
    /// When it last asked, or was asked about.
    pub last_seen: Timestamp,
    /// Alone or shared.
    pub mode: Mode,
    /// Its rank.
    pub priority: Priority,
}

/// When a watcher of a request is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When it is known whether it waits.
    FirstAnswer,
    /// When it has ended.
    Settled,
}

/// Through which door a lease request came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A client of this node.
    Client,
    /// The gateway.
    Gateway {
        /// Which dispatch of the request this is.
        attempt: u32,
        /// What the requester's key stands for at the gateway.
        fingerprint: crate::model::Fingerprint,
        /// The device that could not be made ready for the request before.
        not_on: Option<ResourceId>,
    },
}

/// A resource as the desk shows it.
#[derive(Debug, Clone)]
pub struct ResourceNow {
    /// Its settings.
    pub spec: std::sync::Arc<crate::model::ResourceSpec>,
    /// What it is doing.
    pub state: DeviceState,
    /// More about that, for people.
    pub reason: Option<String>,
    /// Until when that lasts, as far as anybody can tell; wall time.
    pub until: Option<Timestamp>,
    /// The hook that failed last, until one succeeds.
    pub failure: Option<HookFailure>,
    /// The fence of its latest grant.
    pub fence: Fence,
    /// Its leases.
    pub held: Vec<Held>,
    /// How many wait for it by its name.
    pub queue_length: usize,
}

/// A command that a resource has carried out.
#[derive(Debug)]
pub struct Settled {
    /// Whose.
    pub(super) resource: ResourceId,
    /// Which life of its actor.
    pub(super) activation: u64,
    /// Which.
    pub(super) op: OpId,
    /// What came of it.
    pub(super) reply: Reply,
    /// What has changed, in this order.
    pub(super) changes: Vec<Change>,
    /// True when an unattended waiter could have been admitted, but others are to be asked before.
    pub(super) admission_left: bool,
    /// True when it, or the hand-over with it, could not be written: whoever waits is to be served again.
    pub(super) failed: bool,
}

/// What a look at the database has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// Each thing that must not be, in words.
    pub violations: Vec<String>,
    /// True when no new holds are made on this node.
    pub holds_paused: bool,
}

/// What another lab file has come to on a node, each list in the order of the file or of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Resources that it has from now on, or again.
    pub added: Vec<ResourceId>,
    /// Those with other settings.
    pub changed: Vec<ResourceId>,
    /// Those that it has no more, or not when what holds them is over.
    pub gone: Vec<ResourceId>,
}

/// The desk's protocol.
#[derive(Debug)]
pub enum DeskMessage {
    /// Lease something.
    Request {
        /// What is asked for.
        ask: Box<Ask>,
        /// By whom.
        origin: Origin,
        /// Answered once it is granted, refused, or known to wait.
        reply: RpcReplyPort<Said<Asked>>,
    },
    /// End a request that waits.
    Cancel {
        /// Which.
        request: RequestId,
        /// On whose word; a gateway's is good for its own requesters.
        authority: Authority,
        /// Answered once it is durable.
        reply: RpcReplyPort<Said<()>>,
    },
    /// Where does a request of a gateway's stand that waits by name? Asking keeps it alive.
    Look {
        /// Which.
        request: RequestId,
        /// Whose.
        gateway: NodeName,
        /// `UNKNOWN_LEASE_REQUEST` when it does not wait.
        reply: RpcReplyPort<Said<PendingNow>>,
    },
    /// Leave a waiting room.
    Leave {
        /// Who.
        requester: Requester,
        /// Which.
        address: ResourceAddress,
        /// Whether it stood in it.
        reply: RpcReplyPort<Said<bool>>,
    },
    /// Take a resource out, or bring it back.
    Drain {
        /// Which.
        address: ResourceAddress,
        /// Which of the two.
        drained: bool,
        /// The resource as it then is, and as it is reported.
        reply: RpcReplyPort<Said<(ResourceNow, ResourceReport)>>,
    },
    /// Bring a device in quarantine back: an operator says that it is as it should be.
    Clear {
        /// Which.
        address: ResourceAddress,
        /// The resource as it then is, and as it is reported.
        reply: RpcReplyPort<Said<(ResourceNow, ResourceReport)>>,
    },
    /// The gateway's word: of these resources another worker has leased the device, of no others.
    Elsewhere(BTreeMap<ResourceId, NodeName>, RpcReplyPort<Said<()>>),
    /// From a job: it has ended, or is gone because it was told to stop.
    JobEnded(ResourceId, Task, Outcome),
    /// From a driver: it sees the device of a resource, or does not see it any more.
    Sighted(ResourceId, Sighting),
    /// Does anything still run on the devices? Answered when nothing does.
    Idle(RpcReplyPort<()>),
    /// Stop what runs on the devices. Answered when it is gone; nothing begins any more.
    StopJobs(RpcReplyPort<()>),
    /// Who waits for a resource by its name.
    WaitingRoom(ResourceAddress, RpcReplyPort<Result<(ResourceId, Vec<WaiterNow>), Refusal>>),
    /// A page of the same.
    Waiters {
        /// For which resource.
        resource: ResourceId,
        /// How many at the front are left out.
        after: usize,
        /// How many at the most.
        most: usize,
        /// They, and whether there are more behind them.
        reply: RpcReplyPort<Said<(Vec<WaiterNow>, bool)>>,
    },
    /// What became of a dispatch whose answer was lost?
    Settle {
        /// The gateway's request.
        request: RequestId,
        /// Which gateway asks; the requests of others are none of its own.
        gateway: NodeName,
        /// The attempt.
        attempt: u32,
        /// Answered with the lease it got, or with none: then it never gets one.
        reply: RpcReplyPort<Said<Option<Grant>>>,
    },
    /// Move a lease's deadline.
    Renew {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// A new width.
        ttl: Option<Duration>,
        /// Rather a shorter renewal than none, where a booking is in the way.
        allow_shorter: bool,
        /// On whose word.
        authority: Authority,
        /// Answered once it is durable.
        reply: RpcReplyPort<Said<Grant>>,
    },
    /// End a lease.
    Release {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// On whose word.
        authority: Authority,
        /// Answered once it is durable.
        reply: RpcReplyPort<Said<ReleasedNow>>,
    },
    /// May a tool run at the device of a lease? Answered once it is on disk that it does.
    Exec(Box<ExecRequest>, RpcReplyPort<Said<Permit>>),
    /// A tool has ended.
    ExecEnded(Box<ExecRun>, ExecEnd),
    /// From a tool: nothing of it runs any more at the device of this resource.
    ToolGone(ResourceId),
    /// Something about bookings and holds.
    Calendar(Box<CalendarCall>, RpcReplyPort<Said<CalendarAnswer>>),
    /// From the uplink: how its link is.
    Link(LinkNow),
    /// Take the whole worker out, or bring it back. Answered with which of the two once it is durable, and once nothing
    /// that was decided before can grant any more.
    DrainWorker(bool, RpcReplyPort<Said<bool>>),
    /// The lab file has been read anew. All of it counts from one moment on, or nothing of it.
    Reload {
        /// Its resources.
        resources: Vec<ResourceSpec>,
        /// Its numbers.
        rules: Box<Rules>,
        /// What that came to.
        reply: RpcReplyPort<Result<Reloaded, Refusal>>,
    },
    /// Ask the database now for what must not be.
    Check(RpcReplyPort<Result<Findings, Refusal>>),
    /// What makes the node unfit to be called ready, in words.
    Complaints(RpcReplyPort<Vec<String>>),
    /// A request, as soon as there is an answer.
    Watch(RequestId, Until, RpcReplyPort<Option<RequestNow>>),
    /// A request, as it is now. Asking keeps it alive.
    Peek(RequestId, RpcReplyPort<Option<RequestNow>>),
    /// The open requests.
    OpenRequests(RpcReplyPort<Vec<(RequestId, RequestNow)>>),
    /// How many wait, of both kinds.
    Waiting(RpcReplyPort<usize>),
    /// The active leases.
    Leases(RpcReplyPort<Vec<Grant>>),
    /// One active lease, for a caller.
    Lease(LeaseId, Caller, RpcReplyPort<Result<Grant, Refusal>>),
    /// The resources that match.
    Resources(Option<Selector>, RpcReplyPort<Vec<ResourceNow>>),
    /// One resource.
    Resource(ResourceAddress, RpcReplyPort<Result<ResourceNow, Refusal>>),
    /// Everything that this gateway is told, and every change from now on; the former subscriber gets no more.
    Subscribe(NodeName, RpcReplyPort<Subscription>),
    /// Let the subscriber hear, behind the changes so far, what everything comes to.
    Digest,
    /// Take no more requests; leases are renewed and released as before.
    Stop,
    /// From a resource: a command is done.
    #[doc(hidden)]
    Settled(Box<Settled>),
    /// From the store: the rows of resources that have come with the lab file.
    #[doc(hidden)]
    Fetched(Result<Vec<StoredResource>, OpenError>),
    /// From the store: a batch of the desk's own is done.
    #[doc(hidden)]
    Noted(OpId, Result<(), CommitError>),
    /// From the monitor's look at the database.
    #[doc(hidden)]
    Checked(Result<Vec<Violation>, ReadError>),
    /// From itself, first of all: admission opens.
    #[doc(hidden)]
    Open,
    /// From the store: a dead actor's activation is closed, and this is what is on disk.
    #[doc(hidden)]
    Reopened(ResourceId, Box<Result<Reopened, OpenError>>),
    /// From the timer.
    #[doc(hidden)]
    Tick,
    /// From a test: the resource's actor is to die.
    #[cfg(test)]
    PanicResource(ResourceId),
    /// From a test: retire every actor that has nothing to do.
    #[cfg(test)]
    RetireIdle,
    /// From a test: how many resources have an actor?
    #[cfg(test)]
    Actors(RpcReplyPort<usize>),
    /// From a test: what is there still of requests and commands?
    #[cfg(test)]
    Leftovers(RpcReplyPort<Leftovers>),
    /// From a test: the calendars, and whether the index over them is the one that they have.
    #[cfg(test)]
    Calendars(RpcReplyPort<(Vec<crate::admission::calendar::Calendar>, bool)>),
}

/// What is there of requests and commands; nothing of it outlives them.
#[cfg(test)]
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub(super) ledger: usize,
    pub(super) open: usize,
    pub(super) watchers: usize,
    pub(super) behind: usize,
    pub(super) pool: usize,
    pub(super) rooms: usize,
    pub(super) attention: bool,
    pub(super) commands: usize,
    pub(super) batches: usize,
    /// Of all resources: what they have promised, what waits for them, and what they have not answered.
    pub(super) promised: usize,
    pub(super) waiting: usize,
    pub(super) parked: usize,
    /// Jobs that run on devices.
    pub(super) jobs: usize,
    /// Bookings and holds that principals are counted for as long as they have no answer.
    pub(super) counted: usize,
}
