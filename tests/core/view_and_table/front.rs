//! What a gateway does with what it hears, without its actor: its views and its table, and the requests that are out.

use std::collections::{BTreeMap, BTreeSet};

use berth::admission::resource::Held;
use berth::clock::RunTime;
use berth::gateway::table::{Entered, Table};
use berth::gateway::view::View;
use berth::model::{Fence, LeaseId, LeaseRecord, NodeName, RequestId, ResourceId};

use super::worker::{Answer, Delta, Snapshot, What};
use crate::sample;

/// One grant on one worker.
pub type Grant = (NodeName, LeaseId, Fence);

/// What is to be done after something was heard.
#[derive(Debug, Default)]
pub struct Then {
    /// Ask the worker for another snapshot.
    pub resync: bool,
    /// Release these on the worker.
    pub release: Vec<LeaseRecord>,
}

pub struct Front {
    pub table: Table,
    pub views: BTreeMap<NodeName, View>,
    /// Requests whose dispatch has not been answered, with the lease id that they named.
    pub out: BTreeMap<RequestId, Option<LeaseId>>,
    /// Leases that found another worker's lease under their name, and stay without a route.
    pub second: BTreeSet<Grant>,
    orphans: BTreeSet<Grant>,
}

impl Front {
    pub fn new() -> Self {
        Self {
            table: Table::new(sample::text("gateway")),
            views: BTreeMap::new(),
            out: BTreeMap::new(),
            second: BTreeSet::new(),
            orphans: BTreeSet::new(),
        }
    }

    pub fn snapshot(&mut self, worker: &NodeName, snapshot: Snapshot) -> Then {
        let Snapshot { incarnation, number, resources } = snapshot;
        let view = self.views.entry(worker.clone()).or_default();
        if view.incarnation() != incarnation {
            view.begin_incarnation(incarnation);
            self.table.forget_numbers(worker);
        }
        view.take_snapshot(number, resources, RunTime::default());
        let shown: Vec<Held> = view.resources().values().flat_map(|seen| seen.held.clone()).collect();
        let mut then = Then::default();
        for held in &shown {
            self.enter(worker, held, number, &mut then);
        }
        let is_shown = |lease: &LeaseRecord| {
            shown.iter().any(|held| (&held.lease.id, held.lease.fence) == (&lease.id, lease.fence))
        };
        then.resync = self.table.count_missing(worker, number, is_shown).ask_again;
        then
    }

    pub fn delta(&mut self, worker: &NodeName, delta: Delta) -> Then {
        let Delta { number, resource } = delta;
        let id = resource.id.clone();
        let view = self.views.get_mut(worker).expect("a snapshot comes first");
        if !view.take_delta(number, resource, RunTime::default()) {
            return Then::default();
        }
        let shown = view.resources()[&id].held.clone();
        self.table.drop_ended(worker, &id, &shown, number);
        let mut then = Then::default();
        for held in &shown {
            self.enter(worker, held, number, &mut then);
        }
        then
    }

    pub fn answer(&mut self, worker: &NodeName, answer: Answer) -> Then {
        let Answer { number, what } = answer;
        let mut then = Then::default();
        let view = self.views.get_mut(worker).expect("a worker that has not reported is not asked");
        match what {
            What::Granted(lease) => {
                // A report that was quicker has been taken for the answer.
                if self.out.contains_key(&lease.request_id) {
                    let held = held(lease);
                    let resource = held.lease.resource_id.clone();
                    let live = view.answered(number, &resource, held.clone());
                    self.judge(worker, &held, number, &mut then);
                    if !live {
                        self.drop_ended(worker, &resource);
                    }
                }
            }
            What::Renewed(lease) => {
                let held = held(lease);
                if let Some(name) = self.route_of(worker, &held.lease) {
                    self.table.enter_as(name, worker, &held, number);
                }
                let view = self.views.get_mut(worker).expect("it has reported");
                let resource = held.lease.resource_id.clone();
                view.answered(number, &resource, held);
            }
            What::Released(lease) => {
                view.ended(number, &lease);
                if let Some(name) = self.route_of(worker, &lease) {
                    self.table.remove(&name);
                }
            }
        }
        then
    }

    /// The name under which a lease is routed, if it is.
    pub fn route_of(&self, worker: &NodeName, lease: &LeaseRecord) -> Option<LeaseId> {
        let name = self.table.name(worker, lease);
        let route = self.table.resolve(&name)?;
        (route.worker == *worker && route.held.lease.fence == lease.fence).then_some(name)
    }

    /// The check of the ledger: nobody has the id, and nobody has asked for it.
    pub fn may_ask_for(&self, id: &LeaseId) -> bool {
        self.table.resolve(id).is_none() && self.out.values().flatten().all(|asked| asked != id)
    }

    fn drop_ended(&mut self, worker: &NodeName, resource: &ResourceId) {
        let view = &self.views[worker];
        let shown = view.resources().get(resource).map_or(&[][..], |seen| &seen.held);
        self.table.drop_ended(worker, resource, shown, view.number());
    }

    fn enter(&mut self, worker: &NodeName, held: &Held, number: u64, then: &mut Then) {
        let grant = (worker.clone(), held.lease.id.clone(), held.lease.fence);
        if self.orphans.contains(&grant) {
            return;
        }
        if self.out.contains_key(&held.lease.request_id) {
            self.judge(worker, held, number, then);
        } else if let Entered::Taken(..) = self.table.enter(worker, held, number) {
            self.second.insert(grant);
        }
    }

    fn judge(&mut self, worker: &NodeName, held: &Held, number: u64, then: &mut Then) {
        self.out.remove(&held.lease.request_id);
        let name = self.table.name(worker, &held.lease);
        if let Entered::Taken(..) = self.table.enter_as(name, worker, held, number) {
            self.orphans.insert((worker.clone(), held.lease.id.clone(), held.lease.fence));
            then.release.push(held.lease.clone());
        }
    }
}

fn held(lease: LeaseRecord) -> Held {
    Held { deadline: RunTime::default() + lease.ttl, lease, last_end: None }
}
