//! What is asked of a resource, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use super::{Held, Rejection, Worked};
use crate::admission::calendar::{CalendarCommand, CalendarReply};
use crate::admission::{Speaker, Waiter};
use crate::model::{
    Authority, DeviceIdentity, Fence, LeaseId, LeaseRecord, LeftOut, Notice, Refusal, RequestId, Requester, WaitPolicy,
};

/// What is asked of a resource.
#[derive(Debug, Clone)]
pub enum Command {
    /// Grant a lease now, or do what the caller said.
    Ask {
        /// Who asks. An unattended one that waits here already is found by its holder.
        waiter: Box<Waiter>,
        /// What to do when it cannot be granted now.
        otherwise: Otherwise,
        /// What the caller did not name; an unattended waiter keeps that as it was.
        left_out: LeftOut,
        /// Who speaks for it.
        speaker: Speaker,
    },
    /// Grant a lease to this one of the pool, which is the first for this resource.
    Offer {
        /// Who.
        waiter: Box<Waiter>,
        /// True when its request is on disk.
        stored: bool,
    },
    /// Take an attended waiter out.
    Withdraw {
        /// Which.
        request: RequestId,
        /// Why.
        why: Rejection,
    },
    /// Take an unattended waiter out.
    Leave {
        /// Who.
        holder: Requester,
    },
    /// The resource is not in the lab file any more: some of those who wait for it by name are taken out, the first ones, and
    /// what is kept for anybody is given up. To be given until nobody waits.
    Dismiss,
    /// Somebody has asked about an unattended waiter, which keeps it alive.
    See {
        /// Which.
        request: RequestId,
    },
    /// Move a lease's deadline.
    Renew {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant; another is refused.
        fence: Option<Fence>,
        /// A new width.
        ttl: Option<Duration>,
        /// Rather a shorter time than none, where a booking is in the way.
        allow_shorter: bool,
        /// On whose word.
        authority: Authority,
    },
    /// End a lease.
    Release {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant; another is refused.
        fence: Option<Fence>,
        /// On whose word.
        authority: Authority,
    },
    /// Take the resource out, or bring it back.
    Drain(bool),
    /// Bring a device in quarantine back: an operator says that it is as it should be.
    Clear,
    /// A hook has ended.
    Worked(Worked),
    /// The driver sees the device, or says why it does not.
    Sighted {
        /// Why it does not.
        absent: Option<Arc<str>>,
        /// What tells it from every other, where it does.
        identity: Option<DeviceIdentity>,
    },
    /// Something about its calendar.
    Calendar(CalendarCommand),
    /// Somebody may be served: the node has begun to admit, or those who could come back have had their time. With a
    /// grace, what became free while the node was down counts as freed now, and is reserved at least so long.
    Serve {
        /// The least reservation of the first admission after a start.
        freed: Option<Duration>,
    },
    /// Time has passed.
    Wake,
    /// A window of the calendar has begun or ended, so the resource may have become free for somebody.
    Edge,
    /// The wall clock has been set: the deadlines on disk, which are wall time, are to say again what this run knows.
    Rewrite,
}

/// What to do with one who cannot be granted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// Refuse.
    Refuse(WaitPolicy),
    /// Let it wait, attended.
    Wait(WaitPolicy),
    /// Let it stand in the waiting room, unattended.
    Join,
    /// Leave no trace: the caller tries elsewhere.
    Decline(WaitPolicy),
}

impl Otherwise {
    pub(super) fn policy(self) -> WaitPolicy {
        match self {
            Otherwise::Refuse(wait) | Otherwise::Wait(wait) | Otherwise::Decline(wait) => wait,
            Otherwise::Join => WaitPolicy::JoinWaitingRoom,
        }
    }
}

/// The answer to a command, to be given once its changes are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The lease was granted.
    Granted(Held),
    /// The device is made ready for the lease.
    Claimed {
        /// True when the request is on disk.
        stored: bool,
    },
    /// A device was made ready: the lease is there, or the request has ended otherwise.
    Prepared(Option<Held>),
    /// A device could not be made ready for this one, who may have another.
    Unprepared {
        /// Who.
        waiter: Box<Waiter>,
        /// True when its request is on disk.
        stored: bool,
        /// What it hears if there is no other.
        refusal: Refusal,
    },
    /// The request waits.
    Waiting,
    /// The unattended waiter stands there, 1-based.
    Pending {
        /// Which entry of the waiting room.
        request: RequestId,
        /// Its place.
        position: usize,
    },
    /// It cannot be granted here and now.
    Declined,
    /// The lease was renewed; and what happened to the device since the last time.
    Renewed(Held, Vec<Notice>),
    /// The lease was released, and this holder was taken first from those who wait.
    Released(LeaseRecord, Option<Requester>),
    /// Whether there was a waiter to take out.
    Left(bool),
    /// No.
    Refused(Refusal),
    /// Those who wait were served; this holder was taken first.
    Served(Option<Requester>),
    /// What came of something about the calendar.
    Calendar(CalendarReply),
    /// It is done.
    Done,
}
