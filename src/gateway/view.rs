//! The gateway's picture of one worker: a function of its latest snapshot and the deltas after it, and of the answers
//! that are known to be later than both.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub use super::seen::{Seen, SeenDevice, SeenWindow, Wish};
use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::limits::DELTAS_QUEUED_MAX;
use crate::model::{Fence, LeaseId, LeaseRecord, Mode, NodeName, RequestId, ResourceId};
use crate::wire::digest;
use crate::wire::report::ResourceReport;
use crate::wire::requests::WaitingRow;

/// What one worker has reported.
#[derive(Debug, Default)]
pub struct View {
    incarnation: u64,
    number: u64,
    resources: BTreeMap<ResourceId, Seen>,
    /// Those with a seat that is free for anybody.
    free: BTreeSet<ResourceId>,
    /// Those whose device another worker has leased, and which.
    elsewhere: BTreeMap<ResourceId, NodeName>,
    /// What is made ready for requests of this gateway's.
    preparing: HashMap<RequestId, ResourceId>,
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
pub(super) struct Told {
    /// The number of the report that has it too, or of one after that.
    number: u64,
    pub(super) resource: ResourceId,
    pub(super) fence: Fence,
    /// The lease; none when it has ended.
    pub(super) held: Option<Held>,
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
        let preparing = resources.iter().filter_map(|(id, seen)| Some((seen.made_ready_for()?.clone(), id.clone())));
        self.preparing = preparing.collect();
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
            if let Some(request) = seen.made_ready_for().cloned() {
                self.preparing.insert(request, id.clone());
            }
            let former = self.resources.insert(id.clone(), seen);
            self.note_prepared(&id, former.as_ref());
            self.note_room(&id);
        }
        self.reached(number);
        news
    }

    /// Takes in that a resource is there no more. False when something later is known of it already.
    pub fn take_gone(&mut self, number: u64, resource: &ResourceId) -> bool {
        let news = self.resources.get(resource).is_none_or(|known| known.number <= number);
        if news {
            let former = self.resources.remove(resource);
            self.note_prepared(resource, former.as_ref());
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

    /// The resource that is made ready for a request, by the reports.
    pub fn made_ready_for(&self, request: &RequestId) -> Option<&ResourceId> {
        self.preparing.get(request)
    }

    /// What `former` was made ready for, it is not any more, unless it still is.
    fn note_prepared(&mut self, id: &ResourceId, former: Option<&Seen>) {
        let Some(request) = former.and_then(Seen::made_ready_for) else { return };
        let still = self.resources.get(id).and_then(Seen::made_ready_for) == Some(request);
        if !still && self.preparing.get(request) == Some(id) {
            self.preparing.remove(request);
        }
    }

    /// Those of its resources whose device another worker has leased, and which worker.
    pub fn elsewhere(&self) -> &BTreeMap<ResourceId, NodeName> {
        &self.elsewhere
    }

    /// Sets those of its resources whose device another worker has leased. True when that frees one or takes one out.
    pub fn set_elsewhere(&mut self, elsewhere: BTreeMap<ResourceId, NodeName>) -> bool {
        if self.elsewhere == elsewhere {
            return false;
        }
        let former = std::mem::replace(&mut self.elsewhere, elsewhere);
        let touched: BTreeSet<ResourceId> = former.into_keys().chain(self.elsewhere.keys().cloned()).collect();
        for id in &touched {
            if let Some(seen) = self.resources.get_mut(id) {
                seen.elsewhere = self.elsewhere.get(id).cloned();
                self.note_room(id);
            }
        }
        true
    }

    /// An answer has told what a holder needs to reach a device, ahead of the reports up to its number.
    pub fn answered_environment(&mut self, number: u64, resource: &ResourceId, environment: BTreeMap<String, String>) {
        if let Some(seen) = self.resources.get_mut(resource).filter(|_| number > self.number) {
            seen.environment = environment;
        }
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
        let elsewhere = self.elsewhere.get(&id).cloned();
        let mut seen = Seen { number, elsewhere, ..Seen::of(report, now) };
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
            labels: Default::default(),
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
            failure: None,
            prepared_ms: 0,
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
