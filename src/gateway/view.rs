//! The gateway's picture of one worker: a function of its latest snapshot and the deltas after it, and of the answers
//! that are known to be later than both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::limits::DELTAS_QUEUED_MAX;
use crate::model::{
    DeviceState, Fence, Labels, LeaseId, LeaseRecord, Mode, RequestId, Requester, ResourceId, Selector,
};
use crate::wire::digest;
use crate::wire::report::{LeaseRow, ResourceReport};
use crate::wire::requests::WaitingRow;

/// What one worker has reported.
#[derive(Debug, Default)]
pub struct View {
    incarnation: u64,
    number: u64,
    resources: BTreeMap<ResourceId, Seen>,
    /// Those with a seat that is free for anybody.
    free: BTreeSet<ResourceId>,
    /// What answers have told ahead of the reports: an older report does not undo it.
    told: BTreeMap<LeaseId, Told>,
    /// Requests of this gateway's that wait there, with what each comes to.
    waiting: HashMap<RequestId, Waits>,
    /// Those that have waited there and do not any more, by the number of the change: a snapshot that was cut before does
    /// not bring them back. The latest [`DELTAS_QUEUED_MAX`].
    gone: BTreeMap<u64, RequestId>,
    /// The same for resources.
    gone_resources: BTreeMap<u64, ResourceId>,
}

/// A request that waits at the worker.
#[derive(Debug, Clone, Copy)]
struct Waits {
    /// The number of the change that has told of it.
    number: u64,
    /// What it comes to.
    digest: u64,
}

/// What the latest answer has told of a lease. A worker has one lease of an id, so whatever an older report shows under
/// that id is over or out of date.
#[derive(Debug)]
struct Told {
    /// The number of the report that has it too, or of one after that.
    number: u64,
    resource: ResourceId,
    fence: Fence,
    /// The lease; none when it has ended.
    held: Option<Held>,
}

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
    /// Its leases, with deadlines on this gateway's run time.
    pub held: Vec<Held>,
    /// What the report came to.
    digest: u64,
    /// The number of the report that this is from.
    number: u64,
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
            labels,
            max_shared,
            fence,
            grantable,
            drained,
            queue_length,
            reserved,
            next_window,
            device,
            environment,
            identity: _,
            leases,
        } = report;
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
        let device = device.map(|device| SeenDevice {
            state: device.state,
            reason: device.reason,
            until: device.ends_in_ms.map(|ms| now + Duration::from_millis(ms)),
        });
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
            held,
            digest,
            number: 0,
        }
    }

    /// What the resource is doing.
    pub fn device(&self) -> DeviceState {
        match (self.drained, self.held.is_empty()) {
            (true, _) => DeviceState::Drained,
            (false, true) => self.device.as_ref().map_or(DeviceState::Available, |device| device.state),
            (false, false) => DeviceState::Leased,
        }
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
        self.grantable && !self.drained && self.device.is_none() && seat
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
    fn show(&mut self, resource: &ResourceId, lease: &LeaseId, told: &Told) {
        self.held.retain(|held| held.lease.id != *lease);
        if let Some(held) = told.held.as_ref().filter(|_| told.resource == *resource) {
            self.fence = self.fence.max(told.fence);
            self.held.push(held.clone());
        }
    }
}

impl View {
    /// The life of the worker that this is from.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The number of the latest change that this contains.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The resources.
    pub fn resources(&self) -> &BTreeMap<ResourceId, Seen> {
        &self.resources
    }

    /// The resources with a seat that is free.
    pub fn free(&self) -> impl Iterator<Item = (&ResourceId, &Seen)> {
        self.free.iter().filter_map(|id| self.resources.get_key_value(id))
    }

    /// The worker has started anew: its numbers begin again, so all that is known of it is older than anything it says
    /// from now on.
    pub fn begin_incarnation(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        self.number = 0;
        self.told.clear();
        self.gone.clear();
        self.gone_resources.clear();
        self.waiting.values_mut().for_each(|waits| waits.number = 0);
        self.resources.values_mut().for_each(|seen| seen.number = 0);
    }

    /// True when these are the resources that are known, with the same labels.
    pub fn has_the_resources(&self, reports: &[ResourceReport]) -> bool {
        let known = |report: &ResourceReport| {
            let known = self.resources.get(&report.id);
            known.is_some_and(|seen| seen.labels == report.labels && seen.grantable == report.grantable)
        };
        reports.len() == self.resources.len() && reports.iter().all(known)
    }

    /// Takes in a whole snapshot. What an answer has shown of a later number stays, and so do the resources that have come
    /// or gone after its cut.
    pub fn take_snapshot(&mut self, number: u64, reports: Vec<ResourceReport>, now: RunTime) {
        let mut resources = BTreeMap::new();
        self.gone_resources = self.gone_resources.split_off(&(number + 1));
        let gone: HashSet<ResourceId> = self.gone_resources.values().cloned().collect();
        for report in reports.into_iter().filter(|report| !gone.contains(&report.id)) {
            let id = report.id.clone();
            let seen = match self.resources.remove(&id) {
                Some(known) if known.number > number => known,
                _ => self.seen(report, number, now),
            };
            resources.insert(id, seen);
        }
        let since = std::mem::take(&mut self.resources).into_iter().filter(|(_, known)| known.number > number);
        resources.extend(since);
        let free = resources.iter().filter(|(_, seen)| seen.could_take(Mode::Shared));
        self.free = free.map(|(id, _)| id.clone()).collect();
        self.resources = resources;
        self.reached(number);
    }

    /// Takes in one change. False when something later is known of the resource already.
    pub fn take_delta(&mut self, number: u64, report: ResourceReport, now: RunTime) -> bool {
        let id = report.id.clone();
        let news = self.resources.get(&id).is_none_or(|known| known.number <= number);
        if news {
            // It may be there again.
            self.gone_resources.retain(|at, gone| *at > number || *gone != id);
            let seen = self.seen(report, number, now);
            self.resources.insert(id.clone(), seen);
            self.note_room(&id);
        }
        self.reached(number);
        news
    }

    /// Takes in that a resource is there no more. False when something later is known of it already.
    pub fn take_gone(&mut self, number: u64, resource: &ResourceId) -> bool {
        let news = self.resources.get(resource).is_none_or(|known| known.number <= number);
        if news {
            self.resources.remove(resource);
            self.free.remove(resource);
            self.gone_resources.insert(number, resource.clone());
            if self.gone_resources.len() > DELTAS_QUEUED_MAX {
                self.gone_resources.pop_first();
            }
        }
        self.reached(number);
        news
    }

    /// Takes in the waiting requests of a whole snapshot.
    ///
    /// What has come or gone after its cut stays so.
    pub fn take_waiting(&mut self, number: u64, rows: &[WaitingRow]) {
        self.waiting.retain(|_, waits| waits.number > number);
        self.gone = self.gone.split_off(&(number + 1));
        let gone: HashSet<&RequestId> = self.gone.values().collect();
        for row in rows.iter().filter(|row| !gone.contains(&row.request)) {
            let waits = Waits { number, digest: digest::of_waiting(row) };
            self.waiting.entry(row.request.clone()).or_insert(waits);
        }
    }

    /// True when a request waits there, by the reports.
    pub fn waits(&self, request: &RequestId) -> bool {
        self.waiting.contains_key(request)
    }

    /// Takes in that a request waits, or not any more.
    pub fn take_request(&mut self, number: u64, request: &RequestId, row: Option<&WaitingRow>) {
        match row {
            Some(row) => {
                self.waiting.insert(request.clone(), Waits { number, digest: digest::of_waiting(row) });
            }
            None if self.waiting.remove(request).is_some() => {
                self.gone.insert(number, request.clone());
                if self.gone.len() > DELTAS_QUEUED_MAX {
                    self.gone.pop_first();
                }
            }
            None => {}
        }
        self.reached(number);
    }

    /// What the reports come to, as [`wire::digest`](crate::wire::digest) says.
    pub fn digest(&self) -> u64 {
        let resources = self.resources.values().map(|seen| seen.digest);
        resources.chain(self.waiting.values().map(|waits| waits.digest)).fold(0, |sum, one| sum ^ one)
    }

    /// An answer has shown a lease, ahead of the reports up to its number. It says nothing about the other leases of the
    /// resource: those come with the reports. False when something later has said that the lease has ended since.
    pub fn answered(&mut self, number: u64, resource: &ResourceId, held: Held) -> bool {
        let (id, fence) = (held.lease.id.clone(), held.lease.fence);
        if number <= self.number {
            let shown = |seen: &Seen| seen.held.iter().any(|held| held.lease.id == id && held.lease.fence == fence);
            return self.resources.get(resource).is_some_and(shown);
        }
        self.tell(id, Told { number, resource: resource.clone(), fence, held: Some(held) })
    }

    /// An answer has ended a lease, ahead of the reports up to its number.
    pub fn ended(&mut self, number: u64, lease: &LeaseRecord) {
        if number > self.number {
            let told = Told { number, resource: lease.resource_id.clone(), fence: lease.fence, held: None };
            self.tell(lease.id.clone(), told);
        }
    }

    /// True when the lease that is told of is there; what a later answer has told stays.
    fn tell(&mut self, id: LeaseId, told: Told) -> bool {
        if let Some(later) = self.told.get(&id).filter(|later| later.number > told.number) {
            return later.fence == told.fence && later.held.is_some();
        }
        if let Some(seen) = self.resources.get_mut(&told.resource) {
            seen.show(&told.resource, &id, &told);
            self.note_room(&told.resource);
        }
        let there = told.held.is_some();
        self.told.insert(id, told);
        there
    }

    /// A seat that is free alone is free to share too, so this is where either kind is looked for.
    fn note_room(&mut self, id: &ResourceId) {
        if self.resources.get(id).is_some_and(|seen| seen.could_take(Mode::Shared)) {
            self.free.insert(id.clone());
        } else {
            self.free.remove(id);
        }
    }

    fn seen(&self, report: ResourceReport, number: u64, now: RunTime) -> Seen {
        let id = report.id.clone();
        let mut seen = Seen { number, ..Seen::of(report, now) };
        for (lease, told) in self.told.iter().filter(|(_, told)| told.number > number) {
            seen.show(&id, lease, told);
        }
        seen
    }

    fn reached(&mut self, number: u64) {
        self.number = self.number.max(number);
        let reached = self.number;
        self.told.retain(|_, told| told.number > reached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fingerprint, Target};

    fn row() -> WaitingRow {
        let target = Target::Resource("board".parse().unwrap());
        WaitingRow {
            request: RequestId::generate(),
            requester: "gw:gateway:ci".parse().unwrap(),
            resource: "board".parse().unwrap(),
            mode: Mode::Exclusive,
            attended: true,
            lease_id: None,
            key: None,
            fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
            joined_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn report(id: &str) -> ResourceReport {
        ResourceReport {
            id: id.parse().unwrap(),
            labels: Labels::new(),
            max_shared: 1,
            fence: Fence(0),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            device: None,
            environment: Default::default(),
            identity: None,
            leases: Vec::new(),
        }
    }

    #[test]
    fn a_snapshot_brings_no_resource_back_that_has_gone_after_its_cut_and_takes_none_out_that_has_come() {
        let now = RunTime::default();
        let mut view = View::default();
        let there = |view: &View| view.resources().keys().map(ToString::to_string).collect::<Vec<_>>();
        let older = || vec![report("stays"), report("goes"), report("returns")];
        view.take_snapshot(4, older(), now);
        assert!(view.take_gone(5, &"goes".parse().unwrap()));
        assert!(view.take_gone(6, &"returns".parse().unwrap()));
        assert!(view.take_delta(7, report("returns"), now));
        assert!(view.take_delta(8, report("comes"), now));
        view.take_snapshot(4, older(), now);
        assert_eq!(there(&view), ["comes", "returns", "stays"]);
        assert!(!view.take_gone(7, &"comes".parse().unwrap()), "that is older than what is known of it");
        let all = ["comes", "returns", "stays"].map(report);
        assert_eq!(view.digest(), all.iter().fold(0, |sum, report| sum ^ digest::of_resource(report)));
        assert_eq!(view.free().count(), 3);
        view.take_snapshot(9, vec![report("goes")], now);
        assert_eq!(there(&view), ["goes"], "a later one says all that there is");
    }

    #[test]
    fn a_snapshot_brings_nobody_back_who_has_gone_after_its_cut_and_takes_nobody_out_who_has_come() {
        let (stays, goes, comes) = (row(), row(), row());
        let mut view = View::default();
        view.take_waiting(4, &[stays.clone(), goes.clone()]);
        view.take_request(5, &goes.request, None);
        view.take_request(6, &comes.request, Some(&comes));
        view.take_waiting(4, &[stays.clone(), goes.clone()]);
        let waits = |view: &View| [&stays, &goes, &comes].map(|row| view.waits(&row.request));
        assert_eq!(waits(&view), [true, false, true]);
        assert_eq!(view.digest(), digest::of_waiting(&stays) ^ digest::of_waiting(&comes));
        view.take_waiting(6, std::slice::from_ref(&comes));
        assert_eq!(waits(&view), [false, false, true], "a later one says all that there is");
        view.begin_incarnation(2);
        view.take_waiting(0, std::slice::from_ref(&goes));
        assert_eq!(waits(&view), [false, true, false], "what a former life has told is older");
    }
}
