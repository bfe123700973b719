//! The gateway's picture of one worker: a function of its latest snapshot and the deltas after it, and of the answers
//! that are known to be later than both.

use std::collections::BTreeMap;

use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::model::{DeviceState, Fence, Labels, LeaseId, LeaseRecord, Mode, ResourceId};
use crate::wire::report::{LeaseRow, ResourceReport};

/// What one worker has reported.
#[derive(Debug, Default)]
pub struct View {
    incarnation: u64,
    number: u64,
    resources: BTreeMap<ResourceId, Seen>,
    /// What answers have told ahead of the reports: an older report does not undo it.
    told: BTreeMap<Grant, Told>,
}

/// One grant of one lease.
type Grant = (LeaseId, Fence);

/// What an answer has told of a lease.
#[derive(Debug)]
struct Told {
    /// The number of the report that has it too, or of one after that.
    number: u64,
    resource: ResourceId,
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
    /// Its leases, with deadlines on this gateway's run time.
    pub held: Vec<Held>,
    /// The number of the report that this is from.
    number: u64,
}

impl Seen {
    /// What the resource is doing.
    pub fn device(&self) -> DeviceState {
        if self.held.is_empty() { DeviceState::Available } else { DeviceState::Leased }
    }

    /// True when a lease of `mode` would fit.
    pub fn could_take(&self, mode: Mode) -> bool {
        let seat =
            self.held.iter().all(|held| held.lease.mode == Mode::Shared) && self.held.len() < self.max_shared as usize;
        self.grantable && (self.held.is_empty() || mode == Mode::Shared && seat)
    }

    /// Shows a lease as it is now, or no more. A worker has one lease of an id: a former one is over.
    fn show(&mut self, grant: &Grant, now: Option<Held>) {
        match now {
            None => self.held.retain(|held| !is(held, grant)),
            Some(held) => {
                self.fence = self.fence.max(held.lease.fence);
                self.held.retain(|other| other.lease.id != held.lease.id);
                self.held.push(held);
            }
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

    /// The worker has started anew: its numbers begin again, so all that is known of it is older than anything it says
    /// from now on.
    pub fn begin_incarnation(&mut self, incarnation: u64) {
        self.incarnation = incarnation;
        self.number = 0;
        self.told.clear();
        self.resources.values_mut().for_each(|seen| seen.number = 0);
    }

    /// Takes in a whole snapshot. What an answer has shown of a later number stays.
    pub fn take_snapshot(&mut self, number: u64, reports: Vec<ResourceReport>, now: RunTime) {
        let mut resources = BTreeMap::new();
        for report in reports {
            let id = report.id.clone();
            let seen = match self.resources.remove(&id) {
                Some(known) if known.number > number => known,
                _ => self.seen(report, number, now),
            };
            resources.insert(id, seen);
        }
        self.resources = resources;
        self.reached(number);
    }

    /// Takes in one change. False when something later is known of the resource already.
    pub fn take_delta(&mut self, number: u64, report: ResourceReport, now: RunTime) -> bool {
        let id = report.id.clone();
        let news = self.resources.get(&id).is_none_or(|known| known.number <= number);
        if news {
            let seen = self.seen(report, number, now);
            self.resources.insert(id, seen);
        }
        self.reached(number);
        news
    }

    /// An answer has shown a lease, ahead of the reports up to its number. It says nothing about the other leases of the
    /// resource: those come with the reports. False when something later has said that the lease has ended since.
    pub fn answered(&mut self, number: u64, resource: &ResourceId, held: Held) -> bool {
        let grant = (held.lease.id.clone(), held.lease.fence);
        if number <= self.number {
            return self.resources.get(resource).is_some_and(|seen| seen.held.iter().any(|held| is(held, &grant)));
        }
        if let Some(told) = self.told.get(&grant).filter(|told| told.number > number) {
            return told.held.is_some();
        }
        if let Some(seen) = self.resources.get_mut(resource) {
            seen.show(&grant, Some(held.clone()));
        }
        self.told.insert(grant, Told { number, resource: resource.clone(), held: Some(held) });
        true
    }

    /// An answer has ended a lease, ahead of the reports up to its number.
    pub fn ended(&mut self, number: u64, lease: &LeaseRecord) {
        let grant = (lease.id.clone(), lease.fence);
        if let Some(seen) = self.resources.get_mut(&lease.resource_id) {
            seen.show(&grant, None);
        }
        if number > self.number {
            self.told.insert(grant, Told { number, resource: lease.resource_id.clone(), held: None });
        }
    }

    fn seen(&self, report: ResourceReport, number: u64, now: RunTime) -> Seen {
        let ResourceReport { id, labels, max_shared, fence, grantable, leases } = report;
        let held = |row: LeaseRow| {
            let (lease, left) = row.into_lease(&id);
            Held { lease, deadline: now + left }
        };
        let held = leases.into_iter().map(held).collect();
        let mut seen = Seen { labels, max_shared, fence, grantable, held, number };
        for (grant, told) in self.told.iter().filter(|(_, told)| told.resource == id && told.number > number) {
            seen.show(grant, told.held.clone());
        }
        seen
    }

    fn reached(&mut self, number: u64) {
        self.number = self.number.max(number);
        let reached = self.number;
        self.told.retain(|_, told| told.number > reached);
    }
}

fn is(held: &Held, (id, fence): &Grant) -> bool {
    held.lease.id == *id && held.lease.fence == *fence
}
