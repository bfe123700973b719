//! Facts: what a transaction writes and what [`apply`] makes true.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::device::{Cooling, Device, Health, Work};
use super::{Held, Reservation, ResourceState};
use crate::admission::calendar::{self, CalendarChange};
use crate::admission::{Joined, Waiter};
use crate::clock::RunTime;
use crate::model::{
    Code, DeviceIdentity, DeviceState, HookFailure, LeaseId, LeaseRecord, Mode, NOTICES_MAX, Note, Notice, Priority,
    Proposal, Refusal, RequestId, Requester, Target, WaitPolicy,
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
    /// Something is done to its device, or known of it.
    Device(DeviceChange),
    /// What it is doing is another thing than before.
    StateChanged {
        /// What it was.
        from: DeviceState,
        /// What it is.
        to: DeviceState,
        /// Why.
        reason: String,
        /// The end of what the hook wrote that has led to it, if one has failed.
        output: Option<String>,
        /// When, wall time.
        at: Timestamp,
    },
    /// A holder is to be told something of its device. In memory; its event is on disk.
    Noticed {
        /// Which lease.
        lease: LeaseId,
        /// Whose.
        holder: Requester,
        /// What.
        notice: Notice,
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

/// A fact of a device: that part of it is like this now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChange {
    /// What is done to it.
    Work {
        /// That.
        work: Work,
        /// When, wall time.
        at: Timestamp,
    },
    /// Until when it is left alone.
    Cooling(Option<Cooling>),
    /// The hook that failed last.
    Failure(Option<Arc<HookFailure>>),
    /// What tells it from every other.
    Identity(Option<DeviceIdentity>),
    /// Why it is not there. Nothing on disk.
    Absent(Option<Arc<str>>),
    /// How its checks went. Nothing on disk.
    Health(Health),
    /// How long its last reset took. Nothing on disk.
    ResetTook(Duration),
}

impl Change {
    /// False for what lives in memory only.
    pub fn is_durable(&self) -> bool {
        use DeviceChange::{Absent, Health, ResetTook};
        !matches!(self, Change::Seen { .. } | Change::Device(Absent(_) | Health(_) | ResetTook(_)))
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
    /// The device could not be made ready for it.
    DeviceFailed,
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
            Rejection::DeviceFailed => "device-failed",
            Rejection::DaemonRestarted => "daemon-restarted",
            Rejection::WorkerFailed => "worker-failed",
        }
    }

    /// True when the key of the request goes on standing for this outcome (SPEC §2, check 2).
    pub fn is_remembered(self) -> bool {
        matches!(self, Rejection::Timeout | Rejection::Cancelled | Rejection::DeviceFailed)
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
        Change::Renewed { lease, deadline, told, .. } => {
            if told {
                state.notices.remove(&lease.id);
            }
            if let Some(held) = state.held.iter_mut().find(|held| held.lease.id == lease.id) {
                held.renew(lease, deadline);
            }
        }
        Change::Ended { lease, at, .. } => {
            state.held.retain(|held| held.lease.id != lease.id);
            state.notices.remove(&lease.id);
            if state.held.is_empty() {
                state.idle_since = Some(at);
                state.set_free(at);
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
            state.free_since = None;
            state.set_free(at);
        }
        Change::Device(DeviceChange::Work { work, at }) => {
            if let Work::Preparing(claim) = &work {
                state.device.fence = state.device.fence.max(claim.of.fence);
                if let Some(request) = claim.request() {
                    state.queue.remove(request);
                }
            } else if state.device.claim().is_some() {
                state.idle_since = Some(at);
            }
            state.device.work = work;
            state.set_free(at);
        }
        Change::Device(change) => apply_to_device(&mut state.device, change),
        Change::StateChanged { at, .. } => state.set_free(at),
        Change::Noticed { lease, notice, .. } => {
            let notices = state.notices.entry(lease).or_default();
            if notices.len() >= NOTICES_MAX {
                notices.remove(0);
            }
            notices.push(notice);
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

/// The same of the device alone.
pub(super) fn apply_to_device(device: &mut Device, change: DeviceChange) {
    match change {
        DeviceChange::Work { work, .. } => {
            if let Work::Preparing(claim) = &work {
                device.fence = device.fence.max(claim.of.fence);
            }
            device.work = work;
        }
        DeviceChange::Cooling(cooling) => device.cooling = cooling,
        DeviceChange::Failure(failure) => device.failure = failure,
        DeviceChange::Identity(identity) => device.identity = identity,
        DeviceChange::Absent(absent) => device.absent = absent,
        DeviceChange::Health(health) => device.health = health,
        DeviceChange::ResetTook(took) => device.reset_took = Some(took),
    }
}
