//! What was asked and answered, when, and what else a run leaves to be checked.

use std::time::Duration;

use super::nodes::{GATEWAY, REBUILD_WAIT};

/// A moment: so long after the beginning of the run, on the monotonic clock of the test.
pub type At = Duration;

/// One call and its answer.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who called.
    pub client: u32,
    /// Everything about one lease or the try for one, from the first ask to the release.
    pub attempt: u64,
    /// The node that was asked.
    pub door: String,
    /// Before the call was sent.
    pub start: At,
    /// After its answer had come.
    pub end: At,
    pub call: Call,
    pub answer: Answer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// For a lease.
    Ask(Ask),
    /// Where a request stands; this is the ask that made it.
    Poll(Ask),
    /// To move a lease's deadline. The width stays the same.
    Renew(Hold),
    /// To give a lease back.
    Release(Hold),
    /// To leave the waiting room of a resource.
    Leave { requester: String, resource: String },
    /// How a resource is, at the worker that owns it.
    Look { resource: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// With its principal.
    pub requester: String,
    pub key: Option<String>,
    /// None when it is by selector.
    pub resource: Option<String>,
    pub wait: Wait,
    pub priority: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Refuse rather.
    No,
    /// In the waiting room, unattended.
    Room,
    /// As a lease request, attended.
    Attended,
}

/// A lease, as its holder knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hold {
    pub resource: String,
    pub fence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Granted or renewed.
    Leased(Lease),
    /// The attended request of this id waits.
    Waiting { request: String },
    /// An unattended waiter stands in the room.
    Standing,
    /// The lease is over, and this holder was taken first of those who wait.
    Released { next: Option<String> },
    /// The resource's fence, and whether somebody holds it.
    Seen { fence: u64, held: bool },
    /// It is done, and nothing is to be remembered of it.
    Done,
    /// No, or the request has failed. `rebuilding`: the gateway does not know yet.
    Refused { code: String, rebuilding: bool },
    /// Nobody knows whether it was done.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub hold: Hold,
    /// Under the name that the node gave it.
    pub id: String,
    /// By the worker's word.
    pub granted: At,
    pub ttl: Duration,
    /// It lives until this at least, as its holder counts.
    pub expires: At,
}

impl Answer {
    /// A refusal with this code.
    pub fn refused(code: &str) -> Self {
        Answer::Refused { code: code.to_owned(), rebuilding: false }
    }

    /// True for the answer of somebody who knows that the lease has ended.
    pub fn is_gone(&self) -> bool {
        matches!(self, Answer::Refused { code, rebuilding: false } if code == "UNKNOWN_LEASE")
    }

    /// True when the call may have been carried out, and may still be.
    pub fn is_unsure(&self) -> bool {
        match self {
            Answer::Unknown => true,
            // A call that was sent to a worker and got no answer is refused in these words too.
            Answer::Refused { code, .. } => code == "WORKER_UNREACHABLE" || code == "INTERNAL",
            _ => false,
        }
    }
}

/// A line of a worker's own event log, which is written in the transaction of what it tells.
#[derive(Debug, Clone)]
pub struct Logged {
    pub worker: String,
    pub at: At,
    pub hold: Hold,
    /// With the prefix of a gateway, if it came from one.
    pub requester: String,
    pub fact: Fact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    Granted,
    Released,
    Expired,
}

/// Something was done to a node or its link, and undone.
#[derive(Debug, Clone)]
pub struct Fault {
    pub node: String,
    pub what: &'static str,
    pub from: At,
    pub to: At,
}

/// All that a run leaves.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub history: Vec<Entry>,
    /// Of each worker in the order of its log.
    pub log: Vec<Logged>,
    pub faults: Vec<Fault>,
    /// When everything ran and was connected again for good.
    pub healed: At,
    /// Each client, and when it had its last lease and had given it back.
    pub clients: Vec<(u32, Option<At>)>,
    /// The active leases by the gateway's list and by those of all workers, at the same calm moment: before the
    /// gateway is killed once more, and after.
    pub tables: Vec<Tables>,
}

/// What must be one and the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    pub gateway: Vec<String>,
    pub workers: Vec<String>,
}

impl Run {
    /// True when nothing was done to the node from `from` to `to`, nor so shortly before that it is still felt.
    pub fn is_calm(&self, node: &str, from: At, to: At) -> bool {
        let is_felt = |fault: &&Fault| {
            fault.node == node && fault.from < to && fault.to.saturating_add(self.recovery(fault)) > from
        };
        !self.faults.iter().any(|fault| is_felt(&fault))
    }

    /// A link that was cut is up again within 10 s, and what was missed has been reported. A gateway that starts while a
    /// worker is away waits for that one.
    fn recovery(&self, fault: &Fault) -> Duration {
        const LINK: Duration = Duration::from_secs(10);
        let (from, to) = (fault.from, fault.to.saturating_add(LINK));
        let beside =
            |other: &Fault| other.node != fault.node && other.from < to && other.to.saturating_add(LINK) > from;
        let waits = fault.node == GATEWAY && fault.what == "killed" && self.faults.iter().any(beside);
        if waits { REBUILD_WAIT } else { LINK }
    }
}

/// Times that come from a wall clock are off by this at most.
pub const SLACK: Duration = Duration::from_millis(200);
