//! One resource: grant, renew, release, expire.

use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Now, RunTime};
use crate::model::time::{remaining, rfc3339};
use crate::model::{Authority, Code, DeviceState, Door, Fence, LeaseId, LeaseRecord, Mode, Refusal, ResourceSpec};

/// A lease and its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The lease.
    pub lease: LeaseRecord,
    /// When it ends, on run time.
    pub deadline: RunTime,
}

/// What is true of one resource. It moves only by [`apply`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceState {
    /// Its leases: none, one exclusive, or some shared.
    pub held: Vec<Held>,
    /// The fence of the latest grant.
    pub fence: Fence,
    /// Since when nobody holds it; none before its first lease. The longest idle is granted first.
    pub idle_since: Option<Timestamp>,
}

impl ResourceState {
    /// What the resource is doing.
    pub fn device(&self) -> DeviceState {
        if self.held.is_empty() { DeviceState::Available } else { DeviceState::Leased }
    }

    /// The earliest instant at which time alone changes something.
    pub fn wake_at(&self) -> Option<RunTime> {
        self.held.iter().map(|held| held.deadline).min()
    }

    /// True when a lease of `mode` could be granted beside what is held.
    pub fn admits(&self, spec: &ResourceSpec, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.held.is_empty(),
            Mode::Shared => {
                self.held.len() < spec.max_shared.get() as usize
                    && self.held.iter().all(|held| held.lease.mode == Mode::Shared)
            }
        }
    }

    fn find(&self, lease: &LeaseId) -> Option<&Held> {
        self.held.iter().find(|held| held.lease.id == *lease)
    }
}

/// What is asked of a resource.
#[derive(Debug, Clone)]
pub enum Command {
    /// Grant this lease now, or refuse.
    Acquire {
        /// The lease as it would be; `fence`, `granted_at` and `renewed_at` are filled in by the grant.
        lease: Box<LeaseRecord>,
        /// Decides the words of a refusal.
        door: Door,
    },
    /// Move a lease's deadline.
    Renew {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant; another is refused.
        fence: Option<Fence>,
        /// A new width.
        ttl: Option<Duration>,
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
    /// Time has passed.
    Wake,
    /// The wall clock has been set: the deadlines on disk, which are wall time, are to say again what this run knows.
    Rewrite,
}

/// A fact. A list of these is what one transaction writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A lease exists.
    Granted {
        /// The lease.
        lease: LeaseRecord,
        /// When it ends, on run time.
        deadline: RunTime,
        /// The same as wall time, for the disk.
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
}

/// Why a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Its holder released it.
    Released,
    /// Its deadline passed.
    Expired,
}

impl EndReason {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EndReason::Released => "released",
            EndReason::Expired => "expired",
        }
    }
}

/// The answer to a command, to be given once its changes are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The lease was granted.
    Granted(Held),
    /// The lease was renewed.
    Renewed(Held),
    /// The lease was released.
    Released(LeaseRecord),
    /// No.
    Refused(Refusal),
    /// Nobody asked.
    Nothing,
}

/// What a command leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// To be made durable, then applied, in this order.
    pub changes: Vec<Change>,
    /// To be told after that.
    pub reply: Reply,
}

/// Decides a command. What has expired by `now` is settled first, so no command ever sees a lease past its deadline.
pub fn decide(state: &ResourceState, spec: &ResourceSpec, command: Command, now: Now) -> Decision {
    let mut changes: Vec<Change> = (state.held.iter())
        .filter(|held| held.deadline <= now.run)
        .map(|held| Change::Ended { lease: held.lease.clone(), reason: EndReason::Expired, at: now.wall })
        .collect();
    let settled;
    let state = if changes.is_empty() {
        state
    } else {
        let mut after = state.clone();
        changes.iter().cloned().for_each(|change| apply(&mut after, change));
        settled = after;
        &settled
    };
    let reply = match command {
        Command::Acquire { lease, door } => acquire(state, spec, *lease, door, now, &mut changes),
        Command::Renew { lease, fence, ttl, authority } => {
            renew(state, &lease, fence, ttl, &authority, now, &mut changes)
        }
        Command::Release { lease, fence, authority } => release(state, &lease, fence, &authority, now, &mut changes),
        Command::Wake => Reply::Nothing,
        Command::Rewrite => {
            let same = |held: &Held| Change::Renewed {
                lease: held.lease.clone(),
                deadline: held.deadline,
                expires_at: now.wall_at(held.deadline),
            };
            changes.extend(state.held.iter().map(same));
            Reply::Nothing
        }
    };
    Decision { changes, reply }
}

/// Makes a fact true.
pub fn apply(state: &mut ResourceState, change: Change) {
    match change {
        Change::Granted { lease, deadline, .. } => {
            state.fence = state.fence.max(lease.fence);
            state.idle_since = None;
            state.held.push(Held { lease, deadline });
        }
        Change::Renewed { lease, deadline, .. } => {
            if let Some(held) = state.held.iter_mut().find(|held| held.lease.id == lease.id) {
                *held = Held { lease, deadline };
            }
        }
        Change::Ended { lease, at, .. } => {
            state.held.retain(|held| held.lease.id != lease.id);
            if state.held.is_empty() {
                state.idle_since = Some(at);
            }
        }
    }
}

fn acquire(
    state: &ResourceState,
    spec: &ResourceSpec,
    mut lease: LeaseRecord,
    door: Door,
    now: Now,
    changes: &mut Vec<Change>,
) -> Reply {
    if !state.admits(spec, lease.mode) {
        return Reply::Refused(held_by_others(state, spec, lease.mode, door, now));
    }
    lease.fence = state.fence.next(now.wall);
    lease.granted_at = now.wall;
    lease.renewed_at = now.wall;
    let deadline = now.run + lease.ttl;
    changes.push(Change::Granted { lease: lease.clone(), deadline, expires_at: now.wall_at(deadline) });
    Reply::Granted(Held { lease, deadline })
}

fn renew(
    state: &ResourceState,
    id: &LeaseId,
    fence: Option<Fence>,
    ttl: Option<Duration>,
    authority: &Authority,
    now: Now,
    changes: &mut Vec<Change>,
) -> Reply {
    let held = match named(state, id, fence, authority, "renew") {
        Ok(held) => held,
        Err(refusal) => return Reply::Refused(refusal),
    };
    let mut lease = held.lease.clone();
    lease.ttl = ttl.unwrap_or(lease.ttl);
    lease.renewed_at = now.wall;
    let deadline = now.run + lease.ttl;
    changes.push(Change::Renewed { lease: lease.clone(), deadline, expires_at: now.wall_at(deadline) });
    Reply::Renewed(Held { lease, deadline })
}

fn release(
    state: &ResourceState,
    id: &LeaseId,
    fence: Option<Fence>,
    authority: &Authority,
    now: Now,
    changes: &mut Vec<Change>,
) -> Reply {
    match named(state, id, fence, authority, "release") {
        Ok(held) => {
            let lease = held.lease.clone();
            changes.push(Change::Ended { lease: lease.clone(), reason: EndReason::Released, at: now.wall });
            Reply::Released(lease)
        }
        Err(refusal) => Reply::Refused(refusal),
    }
}

/// The lease that a caller names, if it is there, theirs, and of the grant they mean.
fn named<'a>(
    state: &'a ResourceState,
    id: &LeaseId,
    fence: Option<Fence>,
    authority: &Authority,
    verb: &str,
) -> Result<&'a Held, Refusal> {
    let held = state.find(id).ok_or_else(|| unknown_lease(id))?;
    if !authority.may_change(&held.lease.holder) {
        return Err(not_yours(id, verb));
    }
    if fence.is_some_and(|fence| fence != held.lease.fence) {
        return Err(Refusal::new(
            Code::UnknownLease,
            format!("lease {id} is of a later grant than the fence you name; the lease you mean has ended"),
        )
        .with("leaseId", id.as_str()));
    }
    Ok(held)
}

/// `UNKNOWN_LEASE` for `id`.
pub fn unknown_lease(id: &LeaseId) -> Refusal {
    Refusal::new(Code::UnknownLease, format!("no active lease {id}; `berth lease list` shows yours"))
        .with("leaseId", id.as_str())
}

/// `INSUFFICIENT_PERMISSIONS` for a lease of somebody else.
pub fn not_yours(id: &LeaseId, verb: &str) -> Refusal {
    Refusal::new(
        Code::InsufficientPermissions,
        format!("lease {id} is not yours; only its owner or an admin may {verb} it"),
    )
}

/// The refusal of a resource that is held, with the time at which a lease of `mode` may fit, and nothing about whose
/// the leases are.
fn held_by_others(state: &ResourceState, spec: &ResourceSpec, mode: Mode, door: Door, now: Now) -> Refusal {
    let beside_shared = mode == Mode::Shared && state.held.iter().all(|held| held.lease.mode == Mode::Shared);
    let deadlines = state.held.iter().map(|held| held.deadline);
    let free = if beside_shared { deadlines.min() } else { deadlines.max() };
    let free = now.wall_at(free.unwrap_or(now.run));
    let code = match door {
        Door::Acquire => Code::ResourceUnavailable,
        Door::Request => Code::NoCapacity,
    };
    let message = format!("{} is leased until {}; ask again then, or ask for another", spec.id, rfc3339(free));
    let refusal = Refusal::new(code, message).with("resourceId", spec.id.as_str()).with("availableAt", rfc3339(free));
    match door {
        Door::Acquire => refusal,
        Door::Request => refusal.retry_after(remaining(now.wall, free)),
    }
}
