//! The device of a resource: what is done to it around a lease, and what is known of it (SPEC §7).
//!
//! - Where the driver has a `prepare`, a grant begins as a [`Claim`]: the resource is taken, and there is no lease yet.
//!   When the hook has succeeded the lease is granted, and its time begins; else the claim is over and the device reset.
//! - When the last holder has gone the device is [reset](Reset), and left alone for the lock delay where the lease was not
//!   released.
//! - A reset or a health check that fails puts it into [quarantine](Quarantine): it is tried again three times, then waits for
//!   an operator.
//!
//! A hook is told apart by its [`Task`]: the fence of the grant that it belongs to and how often it was tried. How one ends
//! that is not the one to be done now, changes nothing.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::ResourceState;
use crate::admission::Waiter;
use crate::clock::RunTime;
use crate::model::{
    BookingId, DeviceIdentity, DeviceState, Fence, HookFailure, HookKind, LeaseId, Proposal, RequestId, Requester,
    ResourceSpec,
};

/// So many checks in a row make a healthy device an ill one, and the other way round.
pub const HEALTH_DEBOUNCE: u32 = 2;
/// How often a device in quarantine is tried before an operator has to say something.
pub const RETRIES_MAX: u32 = 3;
const RETRY_FIRST: Duration = Duration::from_secs(30);
const RETRY_LONGEST: Duration = Duration::from_secs(5 * 60);

/// How long a device in quarantine is left alone after it was tried so often.
pub fn retry_after(tries: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << tries.min(10)).min(RETRY_LONGEST)
}

/// What is true of the device beside its leases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    /// What is done to it, or is to be done.
    pub work: Work,
    /// Until when it is left alone.
    pub cooling: Option<Cooling>,
    /// Why it is not there; not on disk.
    pub absent: Option<Arc<str>>,
    /// How its checks went; not on disk.
    pub health: Health,
    /// The hook that failed last, for people, until one of its kind succeeds.
    pub failure: Option<Arc<HookFailure>>,
    /// The fence of the latest claim, which its lease will have. It is spent also where there will be none.
    pub fence: Fence,
    /// What tells it from every other, as its driver saw it last.
    pub identity: Option<DeviceIdentity>,
    /// How long the last reset took; not on disk.
    pub reset_took: Option<Duration>,
}

/// What is done to a device. But for the first, it is granted to nobody meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Work {
    /// Nothing.
    #[default]
    None,
    /// It is made ready.
    Preparing(Box<Claim>),
    /// It is brought back to what it was before the lease.
    Resetting(Reset),
    /// It has failed.
    Quarantined(Quarantine),
}

/// A lease that is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// For whose lease.
    pub of: OfLease,
    /// Who gets it.
    pub claimant: Claimant,
    /// Since when, wall time.
    pub at: Timestamp,
}

impl Claim {
    /// Its request; none for a claim of a former life.
    pub fn request(&self) -> Option<&RequestId> {
        match &self.claimant {
            Claimant::Waiter { waiter, .. } => Some(&waiter.proposal.request),
            Claimant::Booking { proposal, .. } => Some(&proposal.request),
            Claimant::Nobody => None,
        }
    }
}

/// Who gets the lease of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimant {
    /// One who has asked.
    Waiter {
        /// Who.
        waiter: Box<Waiter>,
        /// True when its request is on disk, so that its end is to be.
        stored: bool,
    },
    /// The holder of a booking.
    Booking {
        /// Which.
        booking: BookingId,
        /// What the holder gets.
        proposal: Box<Proposal>,
        /// True when that is what a request has asked for that waits, whose end is to be told.
        waited: bool,
    },
    /// Nobody: the claim was found on disk, and is to be dropped.
    Nobody,
}

/// A lease that a hook belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfLease {
    /// Its id.
    pub lease: LeaseId,
    /// Whose it is.
    pub holder: Requester,
    /// Its fence.
    pub fence: Fence,
}

/// A device on its way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reset {
    /// After which lease.
    pub of: OfLease,
    /// Since when, on run time; a start counts anew.
    pub since: RunTime,
}

/// A device that has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// The last lease before it; none where there was none.
    pub of: Option<OfLease>,
    /// What has failed, and is tried again: `reset` or `health`.
    pub fault: HookKind,
    /// Why, in words.
    pub why: Arc<str>,
    /// How often it was tried again.
    pub tries: u32,
    /// What comes next.
    pub next: Retry,
}

/// What comes next for a device in quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// It is tried again then.
    At(RunTime),
    /// It is being tried.
    Now,
    /// Nothing, until an operator says so.
    Never,
}

impl Retry {
    /// What comes after so many tries.
    pub fn after(tries: u32, now: RunTime) -> Self {
        if tries < RETRIES_MAX { Retry::At(now + retry_after(tries)) } else { Retry::Never }
    }
}

/// A device that is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooling {
    /// Until when, on run time.
    pub until: RunTime,
    /// How long that was to be.
    pub width: Duration,
    /// The same instant as wall time, for the disk.
    pub ends_at: Timestamp,
}

/// How the checks of a device went.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health {
    /// How many in a row have failed.
    pub failures: u32,
    /// How many in a row have passed since.
    pub passes: u32,
    /// Why it counts as ill.
    pub ill: Option<Arc<str>>,
}

/// A hook that is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Which.
    pub hook: HookKind,
    /// The fence of the grant that it belongs to.
    pub fence: Fence,
    /// How often it was tried before, in quarantine.
    pub tries: Option<u32>,
}

impl Device {
    /// True when nothing but leases and operators stand in the way of a grant.
    pub fn is_ready(&self) -> bool {
        self.work == Work::None && self.cooling.is_none() && self.absent.is_none() && self.health.ill.is_none()
    }

    /// What the resource is doing.
    pub(super) fn state(&self, drained: bool, held: bool) -> DeviceState {
        match &self.work {
            _ if drained => DeviceState::Drained,
            _ if held => DeviceState::Leased,
            Work::Preparing(_) => DeviceState::Preparing,
            _ if self.absent.is_some() => DeviceState::Absent,
            Work::Quarantined(_) => DeviceState::Quarantined,
            Work::Resetting(_) => DeviceState::Resetting,
            // It is looked at before it is granted again.
            Work::None if self.health.ill.is_some() => DeviceState::Quarantined,
            Work::None if self.cooling.is_some() => DeviceState::Cooling,
            Work::None => DeviceState::Available,
        }
    }

    /// What the resource would be doing without leases and drains.
    pub fn state_alone(&self) -> DeviceState {
        self.state(false, false)
    }

    /// The claim that is on it.
    pub fn claim(&self) -> Option<&Claim> {
        if let Work::Preparing(claim) = &self.work { Some(claim) } else { None }
    }

    /// Until when it is in the way at the latest, as far as anybody can tell.
    pub(super) fn until(&self, spec: &ResourceSpec) -> Option<RunTime> {
        let cooling = self.cooling.map(|cooling| cooling.until);
        match &self.work {
            Work::Resetting(reset) => {
                let usual = self.reset_took.or(spec.driver.reset.as_ref().map(|hook| hook.timeout));
                cooling.max(Some(reset.since + usual.unwrap_or_default()))
            }
            Work::Quarantined(Quarantine { next: Retry::At(at), .. }) => Some(*at),
            Work::Quarantined(_) | Work::Preparing(_) => None,
            Work::None => cooling,
        }
    }

    /// Why it is in that state, in words.
    pub fn reason(&self) -> Option<String> {
        match &self.work {
            Work::Preparing(_) => Some("made ready for its next lease".to_owned()),
            _ if self.absent.is_some() => self.absent.as_ref().map(|why| why.to_string()),
            Work::Quarantined(quarantine) => {
                let next = match quarantine.next {
                    Retry::Never => "; `berth resource clear` brings it back",
                    Retry::At(_) | Retry::Now => "; it is tried again by itself",
                };
                Some(format!("{}{next}", quarantine.why))
            }
            Work::Resetting(reset) => Some(format!("brought back after lease {}", reset.of.lease)),
            Work::None => self.health.ill.as_ref().map(|why| why.to_string()),
        }
    }

    /// The earliest instant at which time alone changes something.
    pub(super) fn wake_at(&self) -> Option<RunTime> {
        let retry = match &self.work {
            Work::Quarantined(Quarantine { next: Retry::At(at), .. }) => Some(*at),
            // The former life's.
            Work::Preparing(claim) if claim.claimant == Claimant::Nobody => Some(RunTime::default()),
            _ => None,
        };
        self.cooling.map(|cooling| cooling.until).into_iter().chain(retry).min()
    }
}

impl ResourceState {
    /// The hook that is to run on the device now, if one is. A check that comes again and again is not among them.
    pub fn task(&self) -> Option<Task> {
        match &self.device.work {
            Work::Preparing(claim) if claim.claimant != Claimant::Nobody => {
                Some(Task { hook: HookKind::Prepare, fence: claim.of.fence, tries: None })
            }
            _ if self.device.absent.is_some() => None,
            Work::Resetting(reset) => Some(Task { hook: HookKind::Reset, fence: reset.of.fence, tries: None }),
            Work::Quarantined(Quarantine { of, fault, tries, next: Retry::Now, .. }) => {
                let fence = of.as_ref().map_or(self.fence, |of| of.fence);
                Some(Task { hook: *fault, fence, tries: Some(*tries) })
            }
            Work::Preparing(_) | Work::Quarantined(_) | Work::None => None,
        }
    }

    /// The check that comes again and again, where its time has come; none while something else is done to the device.
    pub fn check(&self) -> Option<Task> {
        let may = self.device.work == Work::None && self.device.absent.is_none();
        may.then_some(Task { hook: HookKind::Health, fence: self.fence, tries: None })
    }

    /// For whose lease a task is run; none for a check of a device that nobody holds.
    pub fn of_task(&self, task: &Task) -> Option<OfLease> {
        match &self.device.work {
            Work::Preparing(claim) => Some(claim.of.clone()),
            Work::Resetting(reset) => Some(reset.of.clone()),
            Work::Quarantined(quarantine) => quarantine.of.clone(),
            Work::None => self.held.iter().find(|held| held.lease.fence == task.fence).map(|held| OfLease {
                lease: held.lease.id.clone(),
                holder: held.lease.holder.clone(),
                fence: held.lease.fence,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_in_quarantine_is_tried_after_30_s_doubling_to_5_min_and_then_no_more() {
        let delays = [0, 1, 2, 3, 4, 40].map(|tries| retry_after(tries).as_secs());
        assert_eq!(delays, [30, 60, 120, 240, 300, 300]);
        let now = RunTime(Duration::from_secs(7));
        assert_eq!(Retry::after(0, now), Retry::At(now + Duration::from_secs(30)));
        assert_eq!(Retry::after(2, now), Retry::At(now + Duration::from_secs(120)));
        assert_eq!(Retry::after(RETRIES_MAX, now), Retry::Never);
    }
}
