//! What is said to the front, and what it answers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::mpsc;

use super::follow::Arrival;
use super::given_up::GivenUp;
use super::rejections::Rejection;
use super::relayed::Claimed;
use super::returning::Waited;
use super::roster::Enrolled;
use super::session::{CallId, LinkId, Outcome, SessionMessage};
use super::view::Seen;
use super::waiting::RequestNow;
use crate::admission::Rules;
use crate::clock::RunTime;
use crate::model::{
    Ask, Caller, Fence, Labels, LeaseId, LeaseRecord, NodeName, Notice, Refusal, RenewAsk, RequestId, Requester,
    ResourceAddress, ResourceId,
};
use crate::wire::calendar::{CalendarAnswer, CalendarCall};
use crate::wire::hello::Hello;
use crate::wire::report::{Changed, Digest, ResourceReport};
use crate::wire::requests::{Place, SettledRow, WaitingRow};
use crate::wire::room::{RoomAsk, WaiterRow};

/// A lease with where it is and what its holder is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetLease {
    /// The gateway's name of it.
    pub id: LeaseId,
    /// The worker that holds it.
    pub worker: NodeName,
    /// The lease as the worker names it.
    pub lease: LeaseRecord,
    /// When it ends, on this gateway's run time.
    pub deadline: RunTime,
    /// The labels of its resource.
    pub labels: Labels,
    /// What its holder needs to reach the device.
    pub environment: BTreeMap<String, String>,
}

/// A lease that was renewed.
#[derive(Debug, Clone, PartialEq)]
pub struct RenewedThere {
    /// It.
    pub lease: FleetLease,
    /// What happened to the device since it was renewed last.
    pub notices: Vec<Notice>,
}

/// A lease that was released.
#[derive(Debug, Clone, PartialEq)]
pub struct ReleasedThere {
    /// It.
    pub lease: FleetLease,
    /// The holder that was taken first from those who wait.
    pub admitted: Option<Requester>,
}

/// What came of asking to stand in a waiting room.
#[derive(Debug, Clone, PartialEq)]
pub enum Joined {
    /// The lease.
    Granted(Box<FleetLease>),
    /// It stands there.
    Pending(Place),
}

/// What a worker says of a waiting room or of draining, in this gateway's names.
#[derive(Debug, Clone)]
pub enum RoomSaid {
    /// Some of those who wait, in their order.
    Waiters {
        /// They.
        waiters: Vec<WaiterRow>,
        /// True when there are more behind them.
        more: bool,
    },
    /// Whether it stood there.
    Left(bool),
    /// The resource as it now is.
    Resource(Box<FleetResource>),
}

/// A lease as it was granted, for the book of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstGrant {
    /// The lease.
    pub lease: FleetLease,
    /// When it was to end, wall time.
    pub expires_at: Timestamp,
}

/// The first answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Asked {
    /// It got this lease.
    Granted(Box<FleetLease>),
    /// It waits under this id, or its key stands for the request of this id, which is to be looked at.
    Known(RequestId),
}

/// A resource of the lab.
#[derive(Debug, Clone)]
pub struct FleetResource {
    /// Its worker.
    pub worker: NodeName,
    /// Its id there.
    pub id: ResourceId,
    /// What was last heard of it.
    pub seen: Seen,
    /// False while its worker is not connected.
    pub reachable: bool,
}

/// The roster, in the order of the names.
#[derive(Debug, Clone, Default)]
pub struct Presence {
    /// Those that can be asked something now.
    pub here: Vec<NodeName>,
    /// Those that are not connected, or have not reported yet.
    pub away: Vec<NodeName>,
}

/// A worker of the roster.
#[derive(Debug, Clone)]
pub struct WorkerNow {
    /// Its name.
    pub name: NodeName,
    /// True while its link is up.
    pub connected: bool,
    /// True once it has reported since this gateway started.
    pub known: bool,
    /// What it said when it was last refused for its protocol versions.
    pub incompatible: bool,
    /// When it was last heard.
    pub last_seen: Option<Timestamp>,
    /// What it last said of itself.
    pub hello: Option<Hello>,
    /// How many resources it has.
    pub resources: usize,
    /// How many leases it has.
    pub leases: usize,
    /// True when the whole worker is out.
    pub drained: bool,
    /// How many wait for its resources by name.
    pub queue_length: usize,
}

/// A snapshot that has come whole.
#[derive(Debug)]
pub struct WholeSnapshot {
    /// Which life of the worker.
    pub incarnation: u64,
    /// The number of the last change it contains.
    pub number: u64,
    /// The resources.
    pub resources: Vec<ResourceReport>,
    /// Requests of this gateway's that wait there.
    pub waiting: Vec<WaitingRow>,
    /// Those that are settled.
    pub settled: Vec<SettledRow>,
}

/// Where the rebuild of the routing table stands.
#[derive(Debug, Clone)]
pub struct RebuildNow {
    /// True when requests are admitted.
    pub done: bool,
    /// Roster workers that have not reported since this gateway started.
    pub unheard: Vec<NodeName>,
    /// How many workers the roster has.
    pub roster: usize,
}

/// Where a tool of a lease runs.
#[derive(Debug)]
pub struct ExecRoute {
    /// The worker that has the lease.
    pub worker: NodeName,
    /// The worker's own name of it.
    pub lease: LeaseId,
    /// Has the link to it.
    pub session: ActorRef<SessionMessage>,
}

/// The front's protocol.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "read, handed on and dropped: few at a time, and most are the large one")]
pub enum FrontMessage {
    /// Lease something; answered once it is settled or known to wait.
    Request(Ask, RpcReplyPort<Result<Asked, Refusal>>),
    /// End a request that waits.
    Cancel {
        /// Which.
        request: RequestId,
        /// On whose word.
        caller: Caller,
        /// Answered at once.
        reply: RpcReplyPort<Result<(), Refusal>>,
    },
    /// Move a lease's deadline.
    Renew {
        /// Which.
        id: LeaseId,
        /// On whose word.
        caller: Caller,
        /// What is asked for.
        ask: RenewAsk,
        /// Answered once its worker has answered.
        reply: RpcReplyPort<Result<RenewedThere, Refusal>>,
    },
    /// End a lease.
    Release {
        /// Which.
        id: LeaseId,
        /// On whose word.
        caller: Caller,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// Answered once its worker has answered.
        reply: RpcReplyPort<Result<ReleasedThere, Refusal>>,
    },
    /// Where does a tool of this lease run? Answered at once; for the lease's owner alone.
    Exec {
        /// Which.
        id: LeaseId,
        /// On whose word.
        caller: Caller,
        /// `UNKNOWN_LEASE`, `INSUFFICIENT_PERMISSIONS`, `STOPPING`, `WORKER_UNREACHABLE`.
        reply: RpcReplyPort<Result<ExecRoute, Refusal>>,
    },
    /// Take a named resource if it is free, else stand in its waiting room.
    Join(Ask, RpcReplyPort<Result<Joined, Refusal>>),
    /// Where a request stands that waits at a worker; none when it does not. Asking keeps it alive there.
    PlaceThere(RequestId, RpcReplyPort<Option<Place>>),
    /// Something about a waiting room, or draining.
    Room {
        /// Of which resource.
        address: ResourceAddress,
        /// What; with the bare id of the resource.
        ask: RoomAsk,
        /// Answered once its worker has answered.
        reply: RpcReplyPort<Result<RoomSaid, Refusal>>,
    },
    /// Something about bookings and holds.
    Calendar {
        /// The worker that it is for; none where the call names a resource by its bare id, a booking or a hold.
        worker: Option<NodeName>,
        /// What is asked, in this gateway's names.
        call: Box<CalendarCall>,
        /// Answered once its worker has answered, in this gateway's names.
        reply: RpcReplyPort<Result<CalendarAnswer, Refusal>>,
    },
    /// It is on disk whether new holds are stopped on the whole lab.
    PauseHolds {
        /// Whether they are.
        paused: bool,
        /// Answered once every worker that is here is being told.
        reply: RpcReplyPort<()>,
    },
    /// Which workers can be asked something now.
    Presence(RpcReplyPort<Presence>),
    /// A request, as soon as it is settled.
    Watch(RequestId, RpcReplyPort<Option<RequestNow>>),
    /// A request as it is now; somebody asks about it.
    Look(RequestId, RpcReplyPort<Option<RequestNow>>),
    /// The open requests.
    OpenRequests(RpcReplyPort<Vec<(RequestId, RequestNow)>>),
    /// The leases that this gateway routes.
    Routed(RpcReplyPort<Vec<FleetLease>>),
    /// Every lease of the lab, those of the workers' own clients included.
    AllLeases(RpcReplyPort<Vec<FleetLease>>),
    /// One routed lease.
    Lease(LeaseId, RpcReplyPort<Result<FleetLease, Refusal>>),
    /// The resources of the lab.
    Resources(RpcReplyPort<Vec<FleetResource>>),
    /// One resource.
    Resource(ResourceAddress, RpcReplyPort<Result<FleetResource, Refusal>>),
    /// The roster.
    Workers(RpcReplyPort<Vec<WorkerNow>>),
    /// Where the rebuild stands.
    Rebuild(RpcReplyPort<RebuildNow>),
    /// Whether a worker's link is up.
    IsLinked(NodeName, RpcReplyPort<bool>),
    /// A worker has joined, and that is on disk.
    Enrolled(Enrolled),
    /// A worker is out or back, and that is on disk.
    Drained {
        /// Which.
        worker: NodeName,
        /// Which of the two.
        drained: bool,
    },
    /// From a session: the worker has been told last whether it is out, or will be with its next link.
    #[doc(hidden)]
    ToldDrained(NodeName),
    /// A worker is off the roster, and that is on disk.
    Removed {
        /// Which.
        worker: NodeName,
        /// True when its key is revoked.
        revoked: bool,
    },
    /// A peer was not let in.
    Rejected(Rejection),
    /// The lab file has been read anew: these numbers count from now on.
    Reload(Box<Rules>, RpcReplyPort<()>),
    /// Take no more requests; leases are renewed and released as before.
    Stop,
    /// From a session: a link is up.
    #[doc(hidden)]
    Up { worker: NodeName, link: LinkId, hello: Hello },
    /// From a session: a worker was refused for its protocol versions.
    #[doc(hidden)]
    Incompatible { worker: NodeName, hello: Hello },
    /// From a session: a whole snapshot.
    #[doc(hidden)]
    Snapshot { worker: NodeName, link: LinkId, snapshot: WholeSnapshot, arrival: Arrival },
    /// From a session: one change.
    #[doc(hidden)]
    Delta { worker: NodeName, link: LinkId, number: u64, change: Changed, arrival: Arrival },
    /// From a session: some changes are missing.
    #[doc(hidden)]
    Gap { worker: NodeName, link: LinkId },
    /// From a session: what the worker's state comes to.
    #[doc(hidden)]
    Digest { worker: NodeName, link: LinkId, digest: Digest, arrival: Arrival },
    /// From a session: some of the worker's own events; who is told once they are stored.
    #[doc(hidden)]
    Events { worker: NodeName, page: Claimed, taken: mpsc::Sender<u64> },
    /// From a session: what became of a call.
    #[doc(hidden)]
    Answered { worker: NodeName, incarnation: u64, id: CallId, outcome: Outcome },
    /// From a session: a link is down.
    #[doc(hidden)]
    Down { worker: NodeName, link: LinkId, why: String },
    /// From the disk: what is waited for is written, or is not.
    #[doc(hidden)]
    WaitedWritten(Waited, std::io::Result<()>),
    /// From the disk: which attempts are given up is written, or is not.
    #[doc(hidden)]
    GivenUpWritten(BTreeSet<GivenUp>, std::io::Result<()>),
    /// From the timer.
    #[doc(hidden)]
    Tick,
    /// From the listener: who is to be told that this worker has knocked?
    #[doc(hidden)]
    SessionOf(NodeName, RpcReplyPort<Option<ActorRef<SessionMessage>>>),
}
