//! The shapes of what a start finds on disk.

use std::time::Duration;

use jiff::Timestamp;

use super::Violation;
use crate::admission::Joined;
use crate::admission::resource::{EndReason, OfLease, Place};
use crate::model::{
    Booking, DeviceIdentity, Fence, Fingerprint, Hold, HookFailure, HookKind, IdempotencyKey, LeaseRecord, Mode, Note,
    Priority, Refusal, RequestId, Requester, ResourceId,
};

/// Everything a node needs to know to go on where it was.
#[derive(Debug)]
pub struct Loaded {
    /// Grows with every start of the node: at least one more than the last, and not behind the Unix time in ms.
    pub incarnation: u64,
    /// Resources that were ever leased, waited for, reserved, drained, booked or held, or whose holds were paused.
    pub resources: Vec<StoredResource>,
    /// Requests, in the order in which they or their leases ended; open ones, and those whose lease is active, come
    /// last.
    pub requests: Vec<StoredRequest>,
    /// Why no new holds are made on the whole node, a reason on each line; none when they are made.
    pub holds_paused: Option<String>,
    /// True when an operator has taken the whole worker out.
    pub drained: bool,
    /// What must not be and is there nevertheless.
    pub violations: Vec<Violation>,
}

/// One resource, as it stands on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResource {
    /// Which.
    pub id: ResourceId,
    /// The fence of its latest grant; 0 when it was never leased.
    pub fence: Fence,
    /// Since when nobody holds it.
    pub idle_since: Option<Timestamp>,
    /// True when an operator has taken it out.
    pub drained: bool,
    /// Its active leases, each with its deadline as wall time.
    pub leases: Vec<(LeaseRecord, Timestamp)>,
    /// Its unattended waiters, in the order in which they joined.
    pub waiters: Vec<StoredWaiter>,
    /// For whom it is kept, whether alone, and how long; that counts anew.
    pub reserved: Vec<(Requester, Mode, Duration)>,
    /// Its bookings that are remembered, in the order of their windows.
    pub bookings: Vec<Booking>,
    /// Its holds that are remembered, in the order of their windows, each with its deadline as wall time.
    pub holds: Vec<(Hold, Timestamp)>,
    /// True when an operator has stopped new holds on it.
    pub holds_paused: bool,
    /// What is done to its device.
    pub device: StoredDevice,
}

/// A device, as it stands on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredDevice {
    /// What is done to it.
    pub work: StoredWork,
    /// The fence of its latest claim; 0 where there was none.
    pub claimed: Fence,
    /// Until when it is left alone, wall time, and how long that was to be.
    pub cooling: Option<(Timestamp, Duration)>,
    /// The hook that failed last.
    pub failure: Option<HookFailure>,
    /// What tells it from every other.
    pub identity: Option<DeviceIdentity>,
}

/// What is done to a device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StoredWork {
    /// Nothing.
    #[default]
    None,
    /// It was made ready for this lease, which does not exist.
    Preparing(OfLease),
    /// It is brought back after this lease.
    Resetting(OfLease),
    /// It has failed.
    Quarantined {
        /// After this lease, if there was one.
        of: Option<OfLease>,
        /// What has failed.
        fault: HookKind,
        /// Why.
        why: String,
        /// How often it was tried again.
        tries: u32,
    },
}

impl StoredResource {
    /// One of which nothing is stored.
    pub(super) fn empty(id: ResourceId) -> Self {
        Self {
            id,
            fence: Fence::default(),
            idle_since: None,
            drained: false,
            leases: Vec::new(),
            waiters: Vec::new(),
            reserved: Vec::new(),
            bookings: Vec::new(),
            holds: Vec::new(),
            holds_paused: false,
            device: StoredDevice::default(),
        }
    }
}

/// An unattended waiter, as it outlives the node: with its place, but without the lease id that it may have claimed
/// (SPEC §8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredWaiter {
    /// Who.
    pub holder: Requester,
    /// Alone or shared.
    pub mode: Mode,
    /// Its priority.
    pub priority: Priority,
    /// Its place in the order of joining. `at_us` is 0: it was a time of a run that is over; [`Self::joined_at`] says
    /// when it was.
    pub joined: Joined,
    /// When it joined, wall time.
    pub joined_at: Timestamp,
    /// The width of the lease that it wants.
    pub ttl: Duration,
    /// Free text for the lease.
    pub note: Option<Note>,
}

/// A lease request that may still be asked about.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRequest {
    /// Which.
    pub id: RequestId,
    /// Who asked.
    pub requester: Requester,
    /// Under which key, if that stands for the outcome.
    pub key: Option<IdempotencyKey>,
    /// For what.
    pub fingerprint: Fingerprint,
    /// When it came in; one that never waited came in when it was granted.
    pub created_at: Timestamp,
    /// What became of it.
    pub outcome: StoredOutcome,
    /// Where it stands in line: while it is open, and after a restart until its ticket has been used.
    pub place: Option<Place>,
}

/// What became of a request.
#[expect(clippy::large_enum_variant, reason = "most requests are granted, and each is read once and taken apart")]
#[derive(Debug, Clone, PartialEq)]
pub enum StoredOutcome {
    /// It waits.
    Open,
    /// It got a lease.
    Granted {
        /// The lease as it was granted.
        lease: LeaseRecord,
        /// Its deadline as it was granted, wall time.
        expires_at: Timestamp,
        /// When the lease ended, and why; none while it is active. A Berth of before the first event log did not write
        /// down why.
        ended: Option<(Timestamp, Option<EndReason>)>,
    },
    /// It got nothing.
    Failed {
        /// Why.
        refusal: Refusal,
        /// True when it was cancelled.
        cancelled: bool,
        /// When, wall time.
        at: Timestamp,
    },
}
