//! I11: the routing table is a function of what the workers report and grant. Random lives of two workers, heard in
//! every order in which links can deliver them, end in the same table as one look at the truth.

mod front;
mod worker;

use std::collections::{BTreeMap, BTreeSet};

use berth::gateway::table::Route;
use berth::model::{Fence, LeaseId, LeaseRecord, NodeName};
use proptest::prelude::*;
use proptest::test_runner::Config;

use self::front::{Front, Then};
use self::worker::{Delta, RESOURCES, Who, Worker, is_ours};
use crate::sample;

const WORKERS: [&str; 2] = ["rack-1", "rack-2"];

/// Something that happens at a worker, or something on its way that arrives.
#[derive(Debug, Clone)]
enum Step {
    Grant {
        resource: usize,
        shared: bool,
        name: Option<usize>,
        who: Who,
    },
    Renew {
        index: usize,
        ttl_ms: u64,
        called: bool,
    },
    End {
        index: usize,
        called: bool,
    },
    /// The link is lost; `anew`: because the worker was killed.
    Relink {
        anew: bool,
    },
    Resync,
    HearSnapshot,
    HearDelta,
    HearDeltaTwice,
    /// A delta that was heard before, once more.
    HearOldDelta(usize),
    HearAnswer(usize),
    /// The answer of a dispatch is lost, and the worker is asked what became of it.
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let who = prop_oneof![
        4 => Just(Who::Sent),
        2 => Just(Who::Former),
        1 => any::<bool>().prop_map(Who::Stranger),
    ];
    let grant = (0..RESOURCES.len(), prop::bool::weighted(0.7), prop::option::of(0..2usize), who)
        .prop_map(|(resource, shared, name, who)| Step::Grant { resource, shared, name, who });
    let step = prop_oneof![
        6 => grant,
        3 => (any::<usize>(), 1u64..100_000, any::<bool>())
            .prop_map(|(index, ttl_ms, called)| Step::Renew { index, ttl_ms, called }),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(index, called)| Step::End { index, called }),
        1 => prop::bool::weighted(0.3).prop_map(|anew| Step::Relink { anew }),
        1 => Just(Step::Resync),
        3 => Just(Step::HearSnapshot),
        6 => Just(Step::HearDelta),
        1 => Just(Step::HearDeltaTwice),
        2 => any::<usize>().prop_map(Step::HearOldDelta),
        5 => any::<usize>().prop_map(Step::HearAnswer),
        2 => Just(Step::Settle),
    ];
    prop::collection::vec((0..WORKERS.len(), step), 1..120)
}

/// The number of an answer, its grant, and the lease if it was still there.
type Told = (u64, Fence, Option<LeaseRecord>);

/// Two workers, a gateway, and what is between them.
struct Lab {
    front: Front,
    workers: Vec<Worker>,
    /// For each worker: has a snapshot come over this link?
    reported: [bool; 2],
    /// For each worker: what has been heard over this link.
    heard: [Vec<Delta>; 2],
    /// For each worker: the number up to which everything has been heard.
    reached: [u64; 2],
    /// For each worker and lease: the number of the latest answer that was heard, its grant, and the lease if it was still
    /// there.
    told: [BTreeMap<LeaseId, Told>; 2],
}

impl Lab {
    fn new() -> Self {
        let mut workers = WORKERS.map(Worker::new);
        workers.iter_mut().for_each(Worker::subscribe);
        Self::of(Front::new(), workers.into())
    }

    fn of(front: Front, workers: Vec<Worker>) -> Self {
        Self {
            front,
            workers,
            reported: [false; 2],
            heard: Default::default(),
            reached: [0; 2],
            told: Default::default(),
        }
    }

    fn step(&mut self, number: usize, at: usize, step: Step) {
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
        let lost = |answer: &worker::Answer| matches!(answer.what, worker::What::Granted(_));
        worker.answers.retain(|answer| !lost(answer));
        for request in self.front.out.keys() {
            worker.settle(request);
        }
    }

    fn hear_snapshot(&mut self, at: usize) -> bool {
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
            worker::What::Granted(lease) | worker::What::Renewed(lease) => (lease, true),
            worker::What::Released(lease) => (lease, false),
        };
        // The answer of a dispatch that a report has settled is not listened to.
        let ignored =
            matches!(answer.what, worker::What::Granted(_)) && !self.front.out.contains_key(&lease.request_id);
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

    fn routes_of_others(&self, worker: &NodeName) -> BTreeMap<LeaseId, Route> {
        let others = self.front.table.iter().filter(|(_, route)| route.worker != *worker);
        others.map(|(id, route)| (id.clone(), route.clone())).collect()
    }

    /// Everything that is on its way arrives.
    fn settle_down(&mut self) {
        for at in 0..WORKERS.len() {
            while self.hear_snapshot(at) || self.hear_delta(at, 1) || self.hear_answer(at, 0) {}
        }
    }

    /// The routes that there are.
    fn routes(&self) -> BTreeMap<LeaseId, (NodeName, LeaseRecord)> {
        let route = |(id, route): (&LeaseId, &Route)| (id.clone(), (route.worker.clone(), route.held.lease.clone()));
        self.front.table.iter().map(route).collect()
    }

    /// The routes that there should be, by a look at the truth: the leases of this gateway's under their names.
    fn expected(&self) -> BTreeMap<LeaseId, Vec<(NodeName, LeaseRecord)>> {
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

    fn assert_table(&self) {
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

    fn assert_views(&self) {
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

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 512, ..Config::default() })]

    #[test]
    fn the_table_is_a_function_of_what_the_workers_say(steps in steps()) {
        let mut lab = Lab::new();
        for (number, (at, step)) in steps.into_iter().enumerate() {
            lab.step(number, at, step);
        }
        lab.settle_down();
        lab.assert_views();
        lab.assert_table();

        // A gateway that starts now comes to the same, whoever it hears first.
        for order in [[0, 1], [1, 0]] {
            let mut anew = Lab::of(Front::new(), lab.workers);
            anew.workers.iter_mut().for_each(|worker| worker.relink(false));
            for at in order {
                anew.hear_snapshot(at);
            }
            anew.assert_views();
            anew.assert_table();
            let names = |lab: &Lab| lab.expected().into_keys().collect::<Vec<_>>();
            prop_assert_eq!(anew.routes().into_keys().collect::<Vec<_>>(), names(&anew), "every name has a route");
            lab = anew;
        }
    }
}
