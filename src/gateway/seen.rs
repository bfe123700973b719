//! A resource as the gateway last heard of it, and whether it fits a request.
//!
//! A report is a claim. What a holder is to find in its environment is taken only where it looks like variables
//! ([`bounded`]), an identity only where it has a sensible length; what does not fit is left out.

use std::collections::BTreeMap;
use std::time::Duration;

use super::environment::bounded;
use super::view::Told;
use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::limits::PREPARE_MAX;
use crate::model::{
    DeviceIdentity, DeviceState, Fence, HookFailure, Labels, LeaseId, Mode, NodeName, RequestId, Requester, ResourceId,
    Selector,
};
use crate::wire::digest;
use crate::wire::report::{DeviceReport, LeaseRow, ResourceReport};

/// Labels that a worker may report of one resource; more than a lab file gives it and its driver finds.
const LABELS_MAX: usize = 128;
/// Characters of a reason.
const REASON_CHARS_MAX: usize = 512;
/// Bytes of each part of an identity.
const IDENTITY_BYTES_MAX: usize = 256;

/// A resource as it was last heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What selectors see.
    pub labels: Labels,
    /// How many shared leases may coexist.
    pub max_shared: u32,
    /// The fence of its latest grant.
    pub fence: Fence,
    /// False when it only waits for its leases to end.
    pub grantable: bool,
    /// True when an operator has taken it out.
    pub drained: bool,
    /// How many wait for it by its name.
    pub queue_length: usize,
    /// How many of its seats are kept for those who were admitted.
    pub reserved: u32,
    /// The window that is on or comes next, in which only one may lease it.
    pub window: Option<SeenWindow>,
    /// What keeps its device from being granted, beside its leases.
    pub device: Option<SeenDevice>,
    /// What a holder needs to reach the device.
    pub environment: BTreeMap<String, String>,
    /// What tells the device from every other.
    pub identity: Option<DeviceIdentity>,
    /// The hook that failed last, until one of its kind succeeds.
    pub failure: Option<HookFailure>,
    /// The other worker that has its device leased, as far as this gateway knows.
    pub elsewhere: Option<NodeName>,
    /// How long its device was made ready for its latest lease.
    pub prepared: Duration,
    /// How much of the report was no sensible claim and is left out.
    pub left_out: usize,
    /// Its leases, with deadlines on this gateway's run time.
    pub held: Vec<Held>,
    /// What the report came to.
    pub(super) digest: u64,
    /// The number of the report that this is from.
    pub(super) number: u64,
}

/// Why a device is not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenDevice {
    /// What it would be without leases and drains.
    pub state: DeviceState,
    /// More about that, for people.
    pub reason: Option<String>,
    /// Until when at the most, on this gateway's run time, as far as the worker can tell.
    pub until: Option<RunTime>,
    /// The request of this gateway's that it is made ready for.
    pub request: Option<RequestId>,
}

impl SeenDevice {
    fn of(device: DeviceReport, now: RunTime) -> Self {
        let reason = |text: String| text.chars().filter(|letter| !letter.is_control()).take(REASON_CHARS_MAX).collect();
        Self {
            state: device.state,
            reason: device.reason.map(reason),
            until: device.ends_in_ms.map(|ms| now + Duration::from_millis(ms)),
            request: device.request,
        }
    }
}

/// A window in which only one may lease a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenWindow {
    /// Who, in the worker's words.
    pub holder: Requester,
    /// When it begins, on this gateway's run time.
    pub starts_at: RunTime,
    /// When it ends, on this gateway's run time.
    pub ends_at: RunTime,
}

/// What a lease that is asked for needs of a resource.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// Which resources will do.
    pub selector: &'a Selector,
    /// Alone or shared.
    pub mode: Mode,
    /// How long it lasts.
    pub ttl: Duration,
    /// Whose it would be, in the worker's words.
    pub requester: &'a Requester,
    /// Rather a shorter lease than none.
    pub allow_shorter: bool,
    /// True for an admin, whom no booking stops.
    pub by_admin: bool,
}

impl Seen {
    /// A resource as it has just been reported.
    pub fn of(report: ResourceReport, now: RunTime) -> Self {
        let digest = digest::of_resource(&report);
        let ResourceReport {
            id,
            mut labels,
            max_shared,
            fence,
            grantable,
            drained,
            queue_length,
            reserved,
            next_window,
            device,
            environment,
            identity,
            failure,
            prepared_ms,
            leases,
        } = report;
        let (environment, mut left_out) = bounded(environment);
        while labels.len() > LABELS_MAX {
            labels.pop_last();
            left_out += 1;
        }
        let claimed = identity.is_some();
        let identity = identity.filter(is_sensible);
        left_out += usize::from(claimed && identity.is_none());
        let queue_length = usize::try_from(queue_length).unwrap_or(usize::MAX);
        let held = |row: LeaseRow| {
            let (lease, left) = row.into_lease(&id);
            Held { lease, deadline: now + left, last_end: None }
        };
        let held = leases.into_iter().map(held).collect();
        let window = next_window.map(|window| SeenWindow {
            starts_at: now + Duration::from_millis(window.starts_in_ms),
            ends_at: now + Duration::from_millis(window.ends_in_ms),
            holder: window.holder,
        });
        let device = device.map(|device| SeenDevice::of(device, now));
        Self {
            labels,
            max_shared,
            fence,
            grantable,
            drained,
            queue_length,
            reserved,
            window,
            device,
            environment,
            identity,
            failure: failure.and_then(HookFailure::bounded),
            elsewhere: None,
            prepared: Duration::from_millis(prepared_ms).min(PREPARE_MAX),
            left_out,
            held,
            digest,
            number: 0,
        }
    }

    /// What the resource is doing.
    pub fn device(&self) -> DeviceState {
        match (self.drained, self.held.is_empty()) {
            (true, _) => DeviceState::Drained,
            (false, true) => match (&self.device, &self.elsewhere) {
                (None, Some(_)) => DeviceState::Absent,
                (device, _) => device.as_ref().map_or(DeviceState::Available, |device| device.state),
            },
            (false, false) => DeviceState::Leased,
        }
    }

    /// The request of this gateway's that its device is made ready for.
    pub fn made_ready_for(&self) -> Option<&RequestId> {
        self.device.as_ref().filter(|device| device.state == DeviceState::Preparing)?.request.as_ref()
    }

    /// More about its state, for people.
    pub fn reason(&self) -> Option<String> {
        let said = self.device.as_ref().and_then(|device| device.reason.clone());
        said.or_else(|| self.elsewhere.as_ref().filter(|_| self.held.is_empty()).map(leased_on))
    }

    /// The number of the report that this is from.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// True when a seat for a lease of `mode` is free, and kept for nobody.
    pub fn could_take(&self, mode: Mode) -> bool {
        let taken = self.held.len() + self.reserved as usize;
        let seat = match mode {
            Mode::Exclusive => taken == 0,
            Mode::Shared => {
                self.held.iter().all(|held| held.lease.mode == Mode::Shared) && taken < self.max_shared as usize
            }
        };
        self.grantable && !self.drained && self.device.is_none() && self.elsewhere.is_none() && seat
    }

    /// True when the next window lets a lease like this one be.
    pub fn lets_in(&self, wish: &Wish<'_>, now: RunTime) -> bool {
        let Some(window) = self.window.as_ref().filter(|window| window.ends_at > now) else { return true };
        wish.by_admin
            || window.holder == *wish.requester
            || now + wish.ttl <= window.starts_at
            || wish.allow_shorter && now < window.starts_at
    }

    /// True when nothing stands in the way of a lease like this one.
    pub fn fits(&self, wish: &Wish<'_>, now: RunTime) -> bool {
        wish.selector.matches(&self.labels) && self.could_take(wish.mode) && self.lets_in(wish, now)
    }

    /// True when all that hold it share it.
    pub fn is_shared_now(&self) -> bool {
        !self.drained && !self.held.is_empty() && self.held.iter().all(|held| held.lease.mode == Mode::Shared)
    }

    /// Shows a lease as an answer has told of it.
    pub(super) fn show(&mut self, resource: &ResourceId, lease: &LeaseId, told: &Told) {
        self.held.retain(|held| held.lease.id != *lease);
        if let Some(held) = told.held.as_ref().filter(|_| told.resource == *resource) {
            self.fence = self.fence.max(told.fence);
            self.held.push(held.clone());
        }
    }
}

/// Why a device is not there that another worker has leased.
pub fn leased_on(worker: &NodeName) -> String {
    format!("leased on {worker}")
}

/// True for an identity that a driver may have found.
fn is_sensible(identity: &DeviceIdentity) -> bool {
    let fits = |part: &str| (1..=IDENTITY_BYTES_MAX).contains(&part.len()) && !part.chars().any(char::is_control);
    fits(&identity.driver) && fits(&identity.serial)
}
