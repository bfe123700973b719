//! The gateway's picture of one worker: a function of its latest snapshot and the deltas after it, and of the answers
//! that are known to be later than both.

use std::collections::{BTreeMap, HashMap};

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
    /// Leases that an answer has ended, with its number: an older report does not bring them back.
    ended: HashMap<(LeaseId, Fence), u64>,
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
    /// The number of the change that this is from.
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
}

impl View {
    /// The life of the worker that this is from.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
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
        self.ended.clear();
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

    /// The worker has said that it holds this lease, without a change of its own: what is later still counts.
    pub fn shown(&mut self, resource: &ResourceId, held: Held) {
        if let Some(seen) = self.resources.get_mut(resource) {
            seen.fence = seen.fence.max(held.lease.fence);
            seen.held.retain(|other| other.lease.id != held.lease.id);
            seen.held.push(held);
        }
    }

    /// An answer has shown a lease, ahead of the report with the same number.
    pub fn answered(&mut self, number: u64, resource: &ResourceId, held: Held) {
        let Some(seen) = self.resources.get_mut(resource).filter(|seen| seen.number <= number) else { return };
        seen.number = number;
        seen.fence = seen.fence.max(held.lease.fence);
        seen.held.retain(|other| other.lease.id != held.lease.id);
        seen.held.push(held);
    }

    /// An answer has ended a lease, ahead of the report with the same number.
    pub fn ended(&mut self, number: u64, lease: &LeaseRecord) {
        if number > self.number {
            self.ended.insert((lease.id.clone(), lease.fence), number);
        }
        if let Some(seen) = self.resources.get_mut(&lease.resource_id) {
            seen.number = seen.number.max(number);
            seen.held.retain(|held| held.lease.id != lease.id || held.lease.fence != lease.fence);
        }
    }

    fn seen(&self, report: ResourceReport, number: u64, now: RunTime) -> Seen {
        let ResourceReport { id, labels, max_shared, fence, grantable, leases } = report;
        let held = |row: LeaseRow| {
            let (lease, left) = row.into_lease(&id);
            Held { lease, deadline: now + left }
        };
        let over = |held: &Held| {
            let ended = self.ended.get(&(held.lease.id.clone(), held.lease.fence));
            ended.is_some_and(|ended| *ended > number)
        };
        let held = leases.into_iter().map(held).filter(|held| !over(held)).collect();
        Seen { labels, max_shared, fence, grantable, held, number }
    }

    fn reached(&mut self, number: u64) {
        self.number = self.number.max(number);
        let reached = self.number;
        self.ended.retain(|_, ended| *ended > reached);
    }
}
