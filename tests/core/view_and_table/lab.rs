//! Two workers and a gateway, with what is between them, and what must be true of them.

use std::collections::{BTreeMap, BTreeSet};

use berth::gateway::table::Route;
use berth::model::{Fence, LeaseId, LeaseRecord, NodeName};

use super::front::{Front, Then};
use super::worker::{Answer, Delta, RESOURCES, What, Who, Worker, is_ours};
use super::{Step, WORKERS};
use crate::sample;

/// What an answer has told: its number, the grant, and the lease if it was still there.
type Told = (u64, Fence, Option<LeaseRecord>);

/// Two workers, a gateway, and what is between them.
pub struct Lab {
    front: Front,
    pub workers: Vec<Worker>,
    /// For each worker: has a snapshot come over this link?
    reported: [bool; 2],
    /// For each worker: what has been heard over this link.
    heard: [Vec<Delta>; 2],
    /// For each worker: the number up to which everything has been heard.
    reached: [u64; 2],
    /// For each worker and lease: the latest answer that was heard of it.
    told: [BTreeMap<LeaseId, Told>; 2],
    /// For each name and worker: the latest grant that was routed.
    routed: BTreeMap<(LeaseId, NodeName), Fence>,
}

impl Lab {
    pub fn new() -> Self {
        let mut workers = WORKERS.map(Worker::new);
        workers.iter_mut().for_each(Worker::subscribe);
        Self::of(Front::new(), workers.into())
    }

    pub fn of(front: Front, workers: Vec<Worker>) -> Self {
        Self {
            front,
            workers,
            reported: [false; 2],
            heard: Default::default(),
            reached: [0; 2],
            told: Default::default(),
            routed: BTreeMap::new(),
        }
    }

    pub fn step(&mut self, number: usize, at: usize, step: Step) {
        let worker = &mut self.workers[at];
        match step {
            Step::Grant { resource, shared, name, who } => {
                let chosen: Option<LeaseId> = name.map(|name| sample::text(["mine", "yours"][name]));
                let request = sample::request(number);
                let may_ask = self.reported[at] && chosen.as_ref().is_none_or(|id| self.front.may_ask_for(id));
                let who = if who == Who::Sent && !may_ask { Who::Former } else { who };
                let id = chosen.clone().unwrap_or_else(|| sample::text(&format!("lse_{number}")));
                worker.grant(resource, shared, id, chosen.is_some(), who, request.clone());
                if who == Who::Sent && worker.leases.iter().any(|lease| lease.request_id == request) {
                    self.front.out.insert(request, chosen);
                }
            }
            Step::Renew { index, ttl_ms, called } => {
                let (index, routed) = self.pick(at, index);
                self.workers[at].renew(index, ttl_ms, called && routed);
            }
            Step::End { index, called } => {
                let (index, routed) = self.pick(at, index);
                self.workers[at].end(index, called && routed);
            }
            Step::Relink { anew } => {
                worker.relink(anew);
                (self.reported[at], self.heard[at]) = (false, Vec::new());
                if anew {
                    (self.reached[at], self.told[at]) = (0, BTreeMap::new());
                }
            }
            Step::Resync => worker.subscribe(),
            Step::HearSnapshot => drop(self.hear_snapshot(at)),
            Step::HearDelta => drop(self.hear_delta(at, 1)),
            Step::HearDeltaTwice => drop(self.hear_delta(at, 2)),
            Step::HearOldDelta(index) => {
                let old = index.checked_rem(self.heard[at].len()).map(|index| self.heard[at][index].clone());
                if let Some(old) = old.filter(|_| self.reported[at]) {
                    self.hear(at, |front, worker| front.delta(worker, old));
                }
            }
            Step::HearAnswer(index) => drop(self.hear_answer(at, index)),
            Step::Settle => self.settle(at),
        }
    }

    /// One of a worker's leases, and whether the gateway could name it in a call.
    fn pick(&self, at: usize, index: usize) -> (usize, bool) {
        let worker = &self.workers[at];
        let index = index.checked_rem(worker.leases.len()).unwrap_or(0);
        let routed = |lease| self.front.route_of(&worker.name, lease).is_some();
        (index, self.reported[at] && worker.leases.get(index).is_some_and(routed))
    }

    /// Every request that is out here loses its answer and is asked about.
    fn settle(&mut self, at: usize) {
        if !self.reported[at] {
            return;
        }
        let worker = &mut self.workers[at];
        let lost = |answer: &Answer| matches!(answer.what, What::Granted(_));
        worker.answers.retain(|answer| !lost(answer));
        for request in self.front.out.keys() {
            worker.settle(request);
        }
    }

    pub fn hear_snapshot(&mut self, at: usize) -> bool {
        let Some(snapshot) = self.workers[at].snapshots.pop_front() else { return false };
        self.reported[at] = true;
        self.reached[at] = self.reached[at].max(snapshot.number);
        self.hear(at, |front, worker| front.snapshot(worker, snapshot));
        true
    }

    fn hear_delta(&mut self, at: usize, times: usize) -> bool {
        let worker = &mut self.workers[at];
        // After a gap, which a snapshot on its way will close, a delta waits for that snapshot. What comes in order does
        // not, and may overtake one.
        if !self.reported[at] || worker.deltas.front().is_none_or(|delta| delta.number > self.reached[at] + 1) {
            return false;
        }
        let delta = worker.deltas.pop_front().unwrap();
        self.reached[at] = self.reached[at].max(delta.number);
        self.heard[at].push(delta.clone());
        for _ in 0..times {
            self.hear(at, |front, worker| front.delta(worker, delta.clone()));
        }
        true
    }

    fn hear_answer(&mut self, at: usize, index: usize) -> bool {
        let answers = &mut self.workers[at].answers;
        let Some(index) = index.checked_rem(answers.len()) else { return false };
        let answer = answers.swap_remove(index);
        let (lease, there) = match &answer.what {
            What::Granted(lease) | What::Renewed(lease) => (lease, true),
            What::Released(lease) => (lease, false),
        };
        // The answer of a dispatch that a report has settled is not listened to.
        let ignored = matches!(answer.what, What::Granted(_)) && !self.front.out.contains_key(&lease.request_id);
        let news = (answer.number, lease.fence, there.then(|| lease.clone()));
        let known = self.told[at].entry(lease.id.clone()).or_insert((0, lease.fence, None));
        *known = if known.0 < news.0 && !ignored { news } else { known.clone() };
        self.hear(at, |front, worker| front.answer(worker, answer));
        true
    }

    /// Lets the gateway hear something of a worker. No route of another worker is touched by it.
    fn hear(&mut self, at: usize, what: impl FnOnce(&mut Front, &NodeName) -> Then) {
        let name = self.workers[at].name.clone();
        let before = self.routes_of_others(&name);
        let Then { resync, release } = what(&mut self.front, &name);
        assert_eq!(self.routes_of_others(&name), before, "heard of {name}");
        self.assert_answers_stand(at);
        self.assert_no_former_lease_comes_back();
        let worker = &mut self.workers[at];
        release.iter().for_each(|lease| worker.release(lease));
        if resync {
            worker.subscribe();
        }
    }

    /// What an answer has told is not undone by a report that is older.
    fn assert_answers_stand(&self, at: usize) {
        let Some(view) = self.front.views.get(&self.workers[at].name) else { return };
        let shown: Vec<_> = view.resources().values().flat_map(|seen| &seen.held).map(|held| &held.lease).collect();
        for (id, (number, fence, lease)) in self.told[at].iter().filter(|(_, told)| told.0 > view.number()) {
            let shown = shown.iter().find(|lease| lease.id == *id && lease.fence == *fence);
            assert_eq!(shown.copied(), lease.as_ref(), "{id}, told by the answer of {number}, at {}", view.number());
        }
    }

    /// A name is never routed to a former lease of its worker again. These workers count their fences over all resources.
    fn assert_no_former_lease_comes_back(&mut self) {
        for (name, route) in self.front.table.iter() {
            let fence = route.held.lease.fence;
            let latest = self.routed.entry((name.clone(), route.worker.clone())).or_insert(fence);
            assert!(*latest <= fence, "{name} was routed to {latest} and is routed to {fence}");
            *latest = fence;
        }
    }

    fn routes_of_others(&self, worker: &NodeName) -> BTreeMap<LeaseId, Route> {
        let others = self.front.table.iter().filter(|(_, route)| route.worker != *worker);
        others.map(|(id, route)| (id.clone(), route.clone())).collect()
    }

    /// Everything that is on its way arrives.
    pub fn settle_down(&mut self) {
        for at in 0..WORKERS.len() {
            while self.hear_snapshot(at) || self.hear_delta(at, 1) || self.hear_answer(at, 0) {}
        }
    }

    /// The routes that there are.
    pub fn routes(&self) -> BTreeMap<LeaseId, (NodeName, LeaseRecord)> {
        let route = |(id, route): (&LeaseId, &Route)| (id.clone(), (route.worker.clone(), route.held.lease.clone()));
        self.front.table.iter().map(route).collect()
    }

    /// The routes that there should be, by a look at the truth: the leases of this gateway's under their names.
    pub fn expected(&self) -> BTreeMap<LeaseId, Vec<(NodeName, LeaseRecord)>> {
        let mut expected: BTreeMap<LeaseId, Vec<_>> = BTreeMap::new();
        for worker in &self.workers {
            for lease in worker.leases.iter().filter(|lease| is_ours(lease)) {
                let name = if lease.id_chosen_by_requester {
                    lease.id.clone()
                } else {
                    sample::text(&format!("{}.{}", worker.name, lease.id))
                };
                expected.entry(name).or_default().push((worker.name.clone(), lease.clone()));
            }
        }
        expected
    }

    pub fn assert_table(&self) {
        let (mut routes, expected) = (self.routes(), self.expected());
        for (name, holders) in expected {
            let second = |(worker, lease): &(NodeName, LeaseRecord)| {
                self.front.second.contains(&(worker.clone(), lease.id.clone(), lease.fence))
            };
            match routes.remove(&name) {
                Some(route) => assert!(holders.contains(&route), "{name} is {route:?}, not {holders:?}"),
                None => assert!(holders.iter().all(second), "{name} has no route to {holders:?}"),
            }
        }
        assert!(routes.is_empty(), "routes to what is not there: {routes:?}");
    }

    pub fn assert_views(&self) {
        for worker in &self.workers {
            let view = &self.front.views[&worker.name];
            for resource in RESOURCES {
                let seen = &view.resources()[&sample::text(resource)];
                let shown: BTreeSet<_> =
                    seen.held.iter().map(|held| (&held.lease.id, held.lease.fence, held.lease.ttl)).collect();
                let there = worker.leases.iter().filter(|lease| lease.resource_id.as_str() == resource);
                let there: BTreeSet<_> = there.map(|lease| (&lease.id, lease.fence, lease.ttl)).collect();
                assert_eq!(shown, there, "{resource} on {}", worker.name);
            }
        }
    }
}
