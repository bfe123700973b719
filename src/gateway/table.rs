//! The routing table: which worker holds which lease of this gateway's. A cache, rebuilt from the workers' reports.
//!
//! A lease has the name that its requester chose, bare, or else `<worker>.<the worker's name>` (SPEC §9 Names). An
//! entry is never overwritten by another worker's lease of the same name: the first stays.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::model::{LeaseId, LeaseRecord, NodeName, ResourceId};

/// Routes by the gateway's lease ids.
#[derive(Debug)]
pub struct Table {
    gateway: NodeName,
    routes: HashMap<LeaseId, Route>,
    /// The names of the routes to each resource.
    on: HashMap<(NodeName, ResourceId), HashSet<LeaseId>>,
}

/// One lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The worker that holds it.
    pub worker: NodeName,
    /// The lease as that worker names it, with its deadline on this gateway's run time.
    pub held: Held,
    /// The number of the worker's change that this is from.
    pub number: u64,
    /// When it ends at the latest, with every renewal that may have reached its worker.
    pub latest: RunTime,
    /// False when its worker has been away for so long that it no longer holds its requester and its id.
    pub counted: bool,
    /// In how many of its worker's snapshots in a row it has been missing.
    misses: u8,
}

/// What entering a lease led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entered {
    /// It is a new entry of this name.
    New(LeaseId),
    /// It was there, and is up to date now.
    Known(LeaseId),
    /// Another worker has an entry of this name, which stays.
    Taken(LeaseId, NodeName),
    /// A later lease of the same worker has this name, and stays.
    Older(LeaseId),
    /// It is not this gateway's.
    Foreign,
}

/// What a snapshot says of the entries of its worker that are not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Missing for the second time: dropped.
    pub dropped: Vec<(LeaseId, LeaseRecord)>,
    /// True when some are missing for the first time: another snapshot is to be asked for.
    pub ask_again: bool,
}

/// An entry missing from this many complete snapshots in a row is dropped.
const MISSES_MAX: u8 = 2;

impl Table {
    /// An empty table of `gateway`.
    pub fn new(gateway: NodeName) -> Self {
        Self { gateway, routes: HashMap::new(), on: HashMap::new() }
    }

    /// The route of a lease.
    pub fn resolve(&self, id: &LeaseId) -> Option<&Route> {
        self.routes.get(id)
    }

    /// Every route.
    pub fn iter(&self) -> impl Iterator<Item = (&LeaseId, &Route)> {
        self.routes.iter()
    }

    /// True when the lease was asked for by this gateway.
    pub fn is_ours(&self, lease: &LeaseRecord) -> bool {
        lease.holder.via.as_ref() == Some(&self.gateway)
    }

    /// This gateway's name of a worker's lease. A flag alone makes no name bare: the id must have the shape that a
    /// requester could have chosen.
    pub fn name(&self, worker: &NodeName, lease: &LeaseRecord) -> LeaseId {
        let chosen = lease.id_chosen_by_requester.then(|| lease.id.as_chosen()).flatten();
        match chosen {
            Some(chosen) => chosen.into(),
            None => LeaseId::through(worker, &lease.id),
        }
    }

    /// Enters a lease that `worker` reports or has just granted.
    pub fn enter(&mut self, worker: &NodeName, held: &Held, number: u64) -> Entered {
        if !self.is_ours(&held.lease) {
            return Entered::Foreign;
        }
        let entered = self.enter_as(self.name(worker, &held.lease), worker, held, number);
        if matches!(entered, Entered::New(_))
            && held.lease.id_chosen_by_requester
            && held.lease.id.as_chosen().is_none()
        {
            tracing::warn!(%worker, lease = %held.lease.id, "is flagged as chosen, but no requester can choose it; prefixed");
        }
        entered
    }

    /// The same under a name that does not depend on what the worker says.
    pub fn enter_as(&mut self, id: LeaseId, worker: &NodeName, held: &Held, number: u64) -> Entered {
        let latest = held.deadline;
        let route = Route { worker: worker.clone(), held: held.clone(), number, latest, counted: true, misses: 0 };
        if self.routes.get(&id).is_some_and(|known| known.worker != *worker && !known.counted) {
            // Its worker has been away for too long to keep the name.
            self.remove(&id);
        }
        match self.routes.get_mut(&id) {
            None => {
                self.note(&id, &route);
                self.routes.insert(id.clone(), route);
                Entered::New(id)
            }
            Some(known) if known.worker != *worker => Entered::Taken(id, known.worker.clone()),
            Some(known) => {
                let same_grant = known.held.lease.fence == held.lease.fence;
                if !same_grant && number < known.number {
                    return Entered::Older(id);
                }
                known.misses = 0;
                if same_grant {
                    let back = !std::mem::replace(&mut known.counted, true);
                    if number >= known.number {
                        *known = route;
                    }
                    return if back { Entered::New(id) } else { Entered::Known(id) };
                }
                // A later grant of the same id, maybe of another resource.
                self.remove(&id);
                self.note(&id, &route);
                self.routes.insert(id.clone(), route);
                Entered::New(id)
            }
        }
    }

    /// A renewal may have reached the worker of a lease: it may last until then.
    pub fn may_last(&mut self, id: &LeaseId, until: RunTime) {
        if let Some(route) = self.routes.get_mut(id) {
            route.latest = route.latest.max(until);
        }
    }

    /// Lets those leases of `worker` go that are over since `grace` at the latest: they stay routed, but hold neither their
    /// requester nor their name any more.
    pub fn uncount(&mut self, worker: &NodeName, now: RunTime, grace: Duration) -> Vec<(LeaseId, LeaseRecord)> {
        let over = |route: &Route| route.worker == *worker && route.counted && now > route.latest + grace;
        let mut gone = Vec::new();
        for (id, route) in self.routes.iter_mut().filter(|(_, route)| over(route)) {
            route.counted = false;
            gone.push((id.clone(), route.held.lease.clone()));
        }
        gone
    }

    /// True when a lease of `worker` still holds its requester and its name.
    pub fn counts(&self, worker: &NodeName) -> bool {
        self.routes.values().any(|route| route.worker == *worker && route.counted)
    }

    /// Takes out every entry of `worker`.
    pub fn forget(&mut self, worker: &NodeName) -> Vec<(LeaseId, LeaseRecord)> {
        let gone = self.routes.iter().filter(|(_, route)| route.worker == *worker).map(|(id, _)| id.clone());
        let gone: Vec<LeaseId> = gone.collect();
        gone.into_iter().filter_map(|id| Some((id.clone(), self.remove(&id)?.held.lease))).collect()
    }

    /// Takes an entry out.
    pub fn remove(&mut self, id: &LeaseId) -> Option<Route> {
        let route = self.routes.remove(id)?;
        let place = (route.worker.clone(), route.held.lease.resource_id.clone());
        if let Some(names) = self.on.get_mut(&place) {
            names.remove(id);
            if names.is_empty() {
                self.on.remove(&place);
            }
        }
        Some(route)
    }

    fn note(&mut self, id: &LeaseId, route: &Route) {
        let place = (route.worker.clone(), route.held.lease.resource_id.clone());
        self.on.entry(place).or_default().insert(id.clone());
    }

    /// Takes out the entries on one resource of `worker` that a change numbered `number` no longer shows.
    pub fn drop_ended(
        &mut self,
        worker: &NodeName,
        resource: &ResourceId,
        shown: &[Held],
        number: u64,
    ) -> Vec<(LeaseId, LeaseRecord)> {
        let gone = |id: &&LeaseId| {
            let there = |route: &Route| shown.iter().any(|held| same(&held.lease, &route.held.lease));
            self.routes.get(*id).is_some_and(|route| route.number <= number && !there(route))
        };
        let names = self.on.get(&(worker.clone(), resource.clone()));
        let gone: Vec<LeaseId> = names.into_iter().flatten().filter(gone).cloned().collect();
        gone.into_iter().filter_map(|id| Some((id.clone(), self.remove(&id)?.held.lease))).collect()
    }

    /// Counts the entries of `worker` that its snapshot cut at `number` does not show. Another worker's report never
    /// counts or resets.
    pub fn count_missing(&mut self, worker: &NodeName, number: u64, shown: impl Fn(&LeaseRecord) -> bool) -> Missing {
        let mut gone = Vec::new();
        let mut ask_again = false;
        for (id, route) in &mut self.routes {
            if route.worker != *worker || route.number > number || shown(&route.held.lease) {
                continue;
            }
            route.misses += 1;
            if route.misses >= MISSES_MAX {
                gone.push(id.clone());
            } else {
                ask_again = true;
            }
        }
        let dropped = gone.into_iter().filter_map(|id| Some((id.clone(), self.remove(&id)?.held.lease))).collect();
        Missing { dropped, ask_again }
    }

    /// A worker has started anew: its numbers begin again, so what is known of it is older than anything it says now.
    pub fn forget_numbers(&mut self, worker: &NodeName) {
        for route in self.routes.values_mut().filter(|route| route.worker == *worker) {
            route.number = 0;
        }
    }
}

/// True when both are one grant.
fn same(a: &LeaseRecord, b: &LeaseRecord) -> bool {
    a.id == b.id && a.fence == b.fence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fence, Fingerprint, Mode, RequestId, Target};

    fn lease(id: &str, chosen: bool, holder: &str) -> Held {
        let target = Target::Resource("board".parse().unwrap());
        Held {
            lease: LeaseRecord {
                id: id.parse().unwrap(),
                request_id: RequestId::generate(),
                resource_id: "board".parse().unwrap(),
                mode: Mode::Exclusive,
                holder: holder.parse().unwrap(),
                granted_at: jiff::Timestamp::UNIX_EPOCH,
                renewed_at: jiff::Timestamp::UNIX_EPOCH,
                ttl: Duration::from_secs(60),
                fence: Fence(7),
                note: None,
                id_chosen_by_requester: chosen,
                idempotency_key: None,
                fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
                asked_ttl: None,
            },
            deadline: RunTime(Duration::from_secs(60)),
            last_end: None,
        }
    }

    fn table() -> (Table, NodeName, NodeName) {
        (Table::new("gateway".parse().unwrap()), "rack-1".parse().unwrap(), "rack-2".parse().unwrap())
    }

    #[test]
    fn a_chosen_id_is_bare_and_any_other_is_prefixed() {
        let (mut table, rack, _) = table();
        let bare = table.enter(&rack, &lease("ad-7f3a", true, "gw:gateway:ci"), 1);
        assert_eq!(bare, Entered::New("ad-7f3a".parse().unwrap()));
        let generated = table.enter(&rack, &lease("lse_1", false, "gw:gateway:ci"), 2);
        assert_eq!(generated, Entered::New("rack-1.lse_1".parse().unwrap()));
        let lying = table.enter(&rack, &lease("w1.x", true, "gw:gateway:ci"), 3);
        assert_eq!(lying, Entered::New("rack-1.w1.x".parse().unwrap()));
    }

    #[test]
    fn leases_of_local_clients_and_of_other_gateways_are_not_entered() {
        let (mut table, rack, _) = table();
        assert_eq!(table.enter(&rack, &lease("a", true, "ci"), 1), Entered::Foreign);
        assert_eq!(table.enter(&rack, &lease("a", true, "gw:other:ci"), 1), Entered::Foreign);
    }

    #[test]
    fn the_first_of_two_workers_with_one_bare_id_stays_routed() {
        let (mut table, first, second) = table();
        table.enter(&first, &lease("mine", true, "gw:gateway:ci"), 1);
        let taken = table.enter(&second, &lease("mine", true, "gw:gateway:ci"), 1);
        assert_eq!(taken, Entered::Taken("mine".parse().unwrap(), first.clone()));
        assert_eq!(table.resolve(&"mine".parse().unwrap()).unwrap().worker, first);
    }

    #[test]
    fn an_older_report_does_not_bring_a_former_lease_of_the_same_name_back() {
        let (mut table, rack, _) = table();
        let former = lease("mine", true, "gw:gateway:ci");
        let mut later = lease("mine", true, "gw:gateway:ci");
        later.lease.fence = Fence(8);
        later.lease.resource_id = "phone".parse().unwrap();
        assert_eq!(table.enter(&rack, &later, 3), Entered::New("mine".parse().unwrap()), "its answer was quicker");
        assert_eq!(table.enter(&rack, &former, 1), Entered::Older("mine".parse().unwrap()));
        assert_eq!(table.resolve(&"mine".parse().unwrap()).unwrap().held, later);
    }

    #[test]
    fn an_entry_goes_after_two_snapshots_in_a_row_of_its_own_worker_without_it() {
        let (mut table, own, other) = table();
        let id: LeaseId = "mine".parse().unwrap();
        let held = lease("mine", true, "gw:gateway:ci");
        table.enter(&own, &held, 5);
        assert_eq!(
            table.count_missing(&own, 4, |_| false),
            Missing { dropped: vec![], ask_again: false },
            "cut before"
        );
        assert!(table.count_missing(&own, 5, |_| false).ask_again);
        assert_eq!(table.enter(&other, &held, 9), Entered::Taken(id.clone(), own.clone()), "does not reset");
        assert!(!table.count_missing(&other, 9, |_| false).ask_again, "does not count");
        let missing = table.count_missing(&own, 6, |_| false);
        assert_eq!(missing.dropped, [(id.clone(), held.lease.clone())]);
        table.enter(&own, &held, 7);
        assert!(table.count_missing(&own, 8, |_| false).ask_again);
        assert_eq!(table.enter(&own, &held, 9), Entered::Known(id), "its own worker resets");
        assert!(table.count_missing(&own, 9, |_| false).ask_again);
    }

    #[test]
    fn a_second_worker_reporting_the_same_bare_id_does_not_reset_the_first_entry_s_missing_count() {
        let (mut table, first, second) = table();
        let held = lease("mine", true, "gw:gateway:ci");
        table.enter(&first, &held, 5);
        assert!(table.count_missing(&first, 5, |_| false).ask_again);
        for number in [6, 7] {
            assert!(matches!(table.enter(&second, &held, number), Entered::Taken(..)));
            let shows_it = table.count_missing(&second, number, |_| true);
            assert_eq!(shows_it, Missing { dropped: vec![], ask_again: false });
        }
        let missing = table.count_missing(&first, 6, |_| false);
        assert_eq!(missing.dropped, [("mine".parse().unwrap(), held.lease)], "for the second time in a row");
    }

    #[test]
    fn a_lease_of_a_worker_that_is_away_counts_until_its_last_deadline_and_the_grace_are_over() {
        let (mut table, away, here) = table();
        let (id, grace) = ("mine".parse::<LeaseId>().unwrap(), Duration::from_secs(120));
        let held = lease("mine", true, "gw:gateway:ci");
        table.enter(&away, &held, 5);
        table.may_last(&id, RunTime(Duration::from_secs(100)));
        let at = |seconds| RunTime(Duration::from_secs(seconds));
        assert!(table.uncount(&away, at(220), grace).is_empty());
        assert!(table.uncount(&here, at(999), grace).is_empty(), "another worker's");
        assert_eq!(table.uncount(&away, at(221), grace), [(id.clone(), held.lease.clone())]);
        assert!(table.uncount(&away, at(999), grace).is_empty(), "once");
        assert!(!table.counts(&away));
        assert_eq!(table.resolve(&id).unwrap().worker, away, "it stays routed");
        assert_eq!(table.enter(&away, &held, 6), Entered::New(id.clone()), "and counts again when its worker is back");
        table.uncount(&away, at(999), grace);
        assert_eq!(table.enter(&here, &held, 1), Entered::New(id.clone()), "the name is free meanwhile");
        assert_eq!(table.enter(&away, &held, 7), Entered::Taken(id, here));
    }

    #[test]
    fn a_change_without_the_lease_ends_it_unless_it_is_older_than_the_grant() {
        let (mut table, rack, _) = table();
        let held = lease("mine", true, "gw:gateway:ci");
        let board = held.lease.resource_id.clone();
        table.enter(&rack, &held, 5);
        assert!(table.drop_ended(&rack, &board, &[], 4).is_empty());
        assert!(table.drop_ended(&rack, &board, std::slice::from_ref(&held), 6).is_empty());
        assert_eq!(table.drop_ended(&rack, &board, &[], 6).len(), 1);
    }
}
