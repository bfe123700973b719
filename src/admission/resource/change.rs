//! Facts: what a transaction writes and what [`apply`] makes true.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Held, Reservation, ResourceState};
use crate::admission::calendar::{self, CalendarChange};
use crate::admission::{Joined, Waiter};
use crate::clock::RunTime;
use crate::model::{
    Code, DeviceState, LeaseRecord, Mode, Note, Priority, Proposal, Refusal, RequestId, Requester, Target, WaitPolicy,
};

/// A fact. A list of these is what one transaction writes.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A lease request passed the checks. With a place it is going to wait, and is stored.
    Requested {
        /// What it is to get.
        proposal: Proposal,
        /// How long it is ready to wait.
        wait: WaitPolicy,
        /// Where it stands.
        place: Option<Place>,
        /// The request of an earlier run whose place in line it has taken over.
        returns: Option<RequestId>,
    },
    /// A lease request waits.
    Queued {
        /// Which.
        request: RequestId,
        /// Whose.
        requester: Requester,
        /// Where, 1-based.
        position: usize,
    },
    /// Somebody stands in the waiting room.
    Joined {
        /// Who.
        waiter: Waiter,
        /// Where, 1-based.
        position: usize,
    },
    /// An unattended waiter asked again and has another rank, width or note; it stands for its latest ask.
    Moved {
        /// The entry that it was.
        former: RequestId,
        /// The entry that it is.
        waiter: Waiter,
    },
    /// An unattended waiter asked again. Nothing on disk.
    Seen {
        /// Which.
        request: RequestId,
        /// When.
        at: RunTime,
    },
    /// Somebody stands in the waiting room no more.
    Left {
        /// Who.
        waiter: Box<Waiter>,
        /// Why.
        why: Departure,
        /// When, wall time.
        at: Timestamp,
    },
    /// A lease exists. If its request waited here, it waits no more.
    Granted {
        /// The lease.
        lease: LeaseRecord,
        /// When it ends, on run time.
        deadline: RunTime,
        /// The latest that any renewal may reach.
        last_end: Option<RunTime>,
        /// The deadline as wall time, for the disk.
        expires_at: Timestamp,
    },
    /// A lease ends later, or sooner, than it would have.
    Renewed {
        /// The lease, with its new width and time of renewal.
        lease: LeaseRecord,
        /// When it ends now, on run time.
        deadline: RunTime,
        /// The same as wall time, for the disk.
        expires_at: Timestamp,
        /// False when only the disk was behind, and nobody has renewed it.
        told: bool,
    },
    /// A lease is over.
    Ended {
        /// The lease.
        lease: LeaseRecord,
        /// Why.
        reason: EndReason,
        /// When, wall time.
        at: Timestamp,
    },
    /// A lease request got nothing.
    Rejected {
        /// What it was to get.
        proposal: Proposal,
        /// Why.
        reason: Rejection,
        /// In words.
        refusal: Refusal,
        /// True when it waited, so that it is stored and its end is remembered.
        waited: bool,
        /// When, wall time.
        at: Timestamp,
    },
    /// A request of the gateway was not taken here.
    Declined {
        /// What it was to get.
        proposal: Proposal,
        /// Why.
        code: Code,
    },
    /// The resource is kept for somebody.
    Reserved(Reservation),
    /// It is kept no more.
    Unreserved {
        /// For whom it was.
        holder: Requester,
    },
    /// An operator has taken the resource out, or has brought it back.
    Drained {
        /// Which of the two.
        drained: bool,
        /// What it was.
        from: DeviceState,
        /// What it is.
        to: DeviceState,
        /// When, wall time.
        at: Timestamp,
    },
    /// Something has changed in its calendar.
    Calendar(CalendarChange),
    /// No new holds are made on the whole node, and why; or they are made again.
    NodeHoldsPaused(Option<String>),
    /// An operator has taken the whole worker out, or has brought it back.
    NodeDrained(bool),
    /// The database refused something that the rules had let through.
    Violated {
        /// What it said.
        detail: String,
    },
}

impl Change {
    /// False for what lives in memory only.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Change::Seen { .. })
    }
}

/// Where a lease request stands, as it outlives the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// What it waits for.
    pub target: Target,
    /// Alone or shared.
    pub mode: Mode,
    /// Its priority.
    pub priority: Priority,
    /// The width that it asked for.
    #[serde(with = "crate::model::time::millis")]
    pub ttl: Duration,
    /// Its note.
    pub note: Option<Note>,
    /// When it joined, in the order of joining.
    pub joined: Joined,
    /// When it joined, wall time.
    #[serde(with = "crate::model::time::instant")]
    pub joined_at: Timestamp,
}

impl Place {
    /// The place of a waiter.
    pub fn of(waiter: &Waiter) -> Self {
        Self {
            target: waiter.proposal.target.clone(),
            mode: waiter.proposal.mode,
            priority: waiter.proposal.priority,
            ttl: waiter.proposal.ttl,
            note: waiter.proposal.note.clone(),
            joined: waiter.rank.joined(),
            joined_at: waiter.joined_at,
        }
    }
}

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// Its holder released it.
    Explicit,
    /// An admin released it.
    Admin,
    /// Its deadline passed.
    Expired,
}

impl EndReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EndReason::Explicit => "explicit",
            EndReason::Admin => "admin",
            EndReason::Expired => "expired",
        }
    }

    /// The reason of that word.
    pub fn parse(word: &str) -> Option<Self> {
        [EndReason::Explicit, EndReason::Admin, EndReason::Expired].into_iter().find(|reason| reason.as_str() == word)
    }
}

/// Why an unattended waiter stands in the waiting room no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It asked again, and got its lease.
    Granted,
    /// It is the next, and is named; it has to ask again.
    Admitted {
        /// Until when the resource is kept for it, on run time.
        reserved_until: Option<RunTime>,
    },
    /// It did not ask again in time.
    Pruned,
    /// It said so.
    Left,
    /// It asked for something else, and joins anew.
    Replaced,
    /// It was an attended one, and its request was rejected.
    Rejected,
}

/// Why a lease request got nothing (SPEC §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// It waited as long as it said it would.
    Timeout,
    /// It did not want to wait.
    NoWait,
    /// Nothing can ever match.
    NoMatch,
    /// Its requester has as much as it may.
    AlreadyLeased,
    /// Its lease id is taken.
    LeaseIdTaken,
    /// It was cancelled.
    Cancelled,
    /// Nobody asked about it any more.
    Abandoned,
    /// The gateway has taken its dispatch back: the request goes on there, and nothing is left of it here.
    TakenBack,
    /// The node was restarted while it waited.
    DaemonRestarted,
    /// The node could not carry it out.
    WorkerFailed,
}

impl Rejection {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Rejection::Timeout => "timeout",
            Rejection::NoWait => "no-wait",
            Rejection::NoMatch => "no-match",
            Rejection::AlreadyLeased => "already-leased",
            Rejection::LeaseIdTaken => "lease-id-taken",
            Rejection::Cancelled => "cancelled",
            Rejection::Abandoned => "abandoned",
            Rejection::TakenBack => "taken-back",
            Rejection::DaemonRestarted => "daemon-restarted",
            Rejection::WorkerFailed => "worker-failed",
        }
    }

    /// True when the key of the request goes on standing for this outcome (SPEC §2, check 2).
    pub fn is_remembered(self) -> bool {
        matches!(self, Rejection::Timeout | Rejection::Cancelled)
    }
}

/// Makes a fact true.
pub fn apply(state: &mut ResourceState, change: Change) {
    match change {
        Change::Granted { lease, deadline, last_end, .. } => {
            state.fence = state.fence.max(lease.fence);
            (state.idle_since, state.free_since) = (None, None);
            state.queue.remove(&lease.request_id);
            state.held.push(Held { lease, deadline, last_end });
        }
        Change::Renewed { lease, deadline, .. } => {
            if let Some(held) = state.held.iter_mut().find(|held| held.lease.id == lease.id) {
                held.renew(lease, deadline);
            }
        }
        Change::Ended { lease, at, .. } => {
            state.held.retain(|held| held.lease.id != lease.id);
            if state.held.is_empty() {
                state.idle_since = Some(at);
                state.free_since = (!state.drained).then_some(at);
            }
        }
        Change::Joined { waiter, .. } => state.queue.join(waiter),
        Change::Moved { former, waiter } => {
            state.queue.remove(&former);
            state.queue.join(waiter);
        }
        Change::Seen { request, at } => state.queue.see(&request, at),
        Change::Left { waiter, .. } => {
            state.queue.remove(&waiter.proposal.request);
        }
        Change::Reserved(reservation) => {
            state.reserved.retain(|other| other.holder != reservation.holder);
            state.reserved.push(reservation);
        }
        Change::Unreserved { holder } => state.reserved.retain(|reservation| reservation.holder != holder),
        Change::Drained { drained, at, .. } => {
            state.drained = drained;
            state.free_since = (!drained && state.held.is_empty()).then_some(at);
        }
        Change::Calendar(change) => calendar::apply(&mut state.calendar, change),
        Change::Requested { .. }
        | Change::Queued { .. }
        | Change::Rejected { .. }
        | Change::Declined { .. }
        | Change::NodeHoldsPaused(_)
        | Change::NodeDrained(_)
        | Change::Violated { .. } => {}
    }
}
