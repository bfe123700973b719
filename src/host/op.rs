//! What is under way at the desk: commands that resources have been given, and batches of the desk's own.

use std::collections::BTreeSet;

use jiff::Timestamp;
use ractor::RpcReplyPort;

use super::asked::LeaveReply;
use super::calendar::CalendarOp;
use super::execs::Permit;
use super::message::{Asked, Grant, PendingNow, ReleasedNow, ResourceNow, Said};
use super::open::Parked;
use crate::admission::resource::Rejection;
use crate::admission::{Speaker, Waiter};
use crate::model::{Authority, LeaseId, LeaseRecord, Mode, Refusal, RequestId, Requester, ResourceId};
use crate::wire::calendar::CalendarAnswer;
use crate::wire::report::ResourceReport;

/// A command that a resource has been given.
pub(super) struct Op {
    pub(super) resource: ResourceId,
    pub(super) kind: OpKind,
}

pub(super) enum OpKind {
    Ask {
        /// Who asks; where it goes on if this resource declines.
        waiter: Box<Waiter>,
        speaker: Speaker,
    },
    Offer {
        request: RequestId,
        mode: Mode,
        parked: Option<Parked>,
    },
    Withdraw {
        request: RequestId,
        why: Rejection,
    },
    Leave {
        holder: Requester,
        reply: LeaveReply,
    },
    /// A gateway asks about an unattended waiter.
    See {
        request: RequestId,
        reply: RpcReplyPort<Said<PendingNow>>,
    },
    Drain {
        drained: bool,
        reply: RpcReplyPort<Said<(ResourceNow, ResourceReport)>>,
    },
    Clear {
        reply: RpcReplyPort<Said<(ResourceNow, ResourceReport)>>,
    },
    /// A job has ended.
    Worked,
    /// The driver has seen the device, or does not see it any more.
    Sighted,
    /// With the time of the last renewal before this one.
    Renew {
        lease: LeaseId,
        renewed_at: Timestamp,
        authority: Authority,
        reply: RpcReplyPort<Said<Grant>>,
    },
    Release {
        lease: Box<LeaseRecord>,
        authority: Authority,
        reply: RpcReplyPort<Said<ReleasedNow>>,
    },
    /// If it may admit an unattended waiter, with the least reservation.
    Serve {
        parked: Option<Parked>,
        /// True when it is to admit an unattended waiter too.
        admits: bool,
    },
    Wake,
    /// Those who wait for one that is going.
    Dismiss,
    /// With up to when the resource had been told of the edges of its windows before.
    Edge {
        since: Timestamp,
    },
    Rewrite,
    Calendar(Box<CalendarOp>),
}

/// A batch of the desk's own.
pub(super) enum Note {
    /// The request waits in the pool.
    Joined { request: RequestId },
    /// The request has left the pool.
    Withdrawn { request: RequestId, why: Rejection, refusal: Refusal },
    /// The event of a refusal: whoever asked hears it whether the event is written or not.
    Refused { request: RequestId, refusal: Refusal },
    /// The same for one who did not pass the checks.
    Rejected { reply: RpcReplyPort<Said<Asked>>, refusal: Refusal },
    /// New holds are stopped, or made again.
    HoldsPaused { pauses: BTreeSet<String>, replies: Vec<RpcReplyPort<Said<CalendarAnswer>>> },
    /// The whole worker is out, or is back.
    NodeDrained,
    /// A tool is to run.
    Exec { permit: Box<Permit>, reply: RpcReplyPort<Said<Permit>> },
    /// Nobody waits for it.
    Said,
}
