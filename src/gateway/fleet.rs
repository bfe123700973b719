//! The open lease requests of the fleet: which wait for a place, which are out at a worker, which are in doubt. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use crate::clock::RunTime;
use crate::model::{Ask, NodeName, Priority, RequestId, Target};

/// Every request that is not settled.
#[derive(Debug, Default)]
pub struct Fleet {
    requests: HashMap<RequestId, Open>,
    /// Those that wait for a place, in their order.
    waiting: BTreeMap<Rank, RequestId>,
    arrivals: u64,
}

/// One open request.
#[derive(Debug)]
pub struct Open {
    /// What is asked for.
    pub ask: Ask,
    /// Where it stands.
    pub stage: Stage,
    /// How often it has been dispatched.
    pub attempts: u32,
    /// Workers that have refused it.
    pub skipped: HashSet<NodeName>,
    /// Since when it has waited for a worker that is away, without a break.
    pub away_since: Option<RunTime>,
    /// Since when it has waited.
    pub since: RunTime,
    arrival: u64,
}

/// Where an open request stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a place.
    Waiting,
    /// It is out at a worker.
    Dispatched {
        /// Where.
        worker: NodeName,
        /// Which dispatch it is.
        attempt: u32,
    },
    /// It was out when the link was lost: only that worker can say what became of it.
    InDoubt {
        /// Where it was.
        worker: NodeName,
        /// Which dispatch it was.
        attempt: u32,
        /// Since when.
        since: RunTime,
        /// True while the worker is being asked.
        asked: bool,
    },
}

/// Higher priority first, then arrival.
type Rank = (Reverse<Ordered>, u64);

#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordered(Priority);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        f64::from(self.0).total_cmp(&f64::from(other.0))
    }
}

impl Fleet {
    /// Lets a request in; it waits for a place.
    pub fn add(&mut self, ask: Ask, now: RunTime) {
        self.arrivals += 1;
        let open = Open {
            stage: Stage::Waiting,
            attempts: 0,
            skipped: HashSet::new(),
            away_since: None,
            since: now,
            arrival: self.arrivals,
            ask,
        };
        self.waiting.insert(rank(&open), open.ask.id.clone());
        self.requests.insert(open.ask.id.clone(), open);
    }

    /// A request.
    pub fn get(&self, id: &RequestId) -> Option<&Open> {
        self.requests.get(id)
    }

    /// A request, to note what does not change its place.
    pub fn get_mut(&mut self, id: &RequestId) -> Option<&mut Open> {
        self.requests.get_mut(id)
    }

    /// Every request.
    pub fn iter(&self) -> impl Iterator<Item = (&RequestId, &Open)> {
        self.requests.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Those that wait for a place, in their order.
    pub fn in_order(&self) -> Vec<RequestId> {
        self.waiting.values().cloned().collect()
    }

    /// Sends a request out: the number of the attempt.
    pub fn dispatch(&mut self, id: &RequestId, worker: NodeName) -> Option<u32> {
        let open = self.requests.get_mut(id)?;
        self.waiting.remove(&rank(open));
        open.attempts += 1;
        open.away_since = None;
        open.stage = Stage::Dispatched { worker, attempt: open.attempts };
        Some(open.attempts)
    }

    /// Nobody knows what became of the dispatch.
    pub fn doubt(&mut self, id: &RequestId, now: RunTime) {
        if let Some(open) = self.requests.get_mut(id)
            && let Stage::Dispatched { worker, attempt } = &open.stage
        {
            open.stage = Stage::InDoubt { worker: worker.clone(), attempt: *attempt, since: now, asked: false };
        }
    }

    /// A worker is here anew: what it refused before is asked of it again.
    pub fn forget_refusals(&mut self, worker: &NodeName) {
        for open in self.requests.values_mut() {
            open.skipped.remove(worker);
        }
    }

    /// A request is out at a worker again, which has had it all the time.
    pub fn resume(&mut self, ask: Ask, worker: NodeName, attempt: u32, since: RunTime) {
        let id = ask.id.clone();
        self.rejoin(ask, attempt, since);
        if let Some(open) = self.requests.get_mut(&id) {
            self.waiting.remove(&rank(open));
            open.stage = Stage::Dispatched { worker, attempt };
        }
    }

    /// A request that waited at a worker waits for a place again.
    pub fn rejoin(&mut self, ask: Ask, attempts: u32, since: RunTime) {
        let id = ask.id.clone();
        self.add(ask, since);
        if let Some(open) = self.requests.get_mut(&id) {
            open.attempts = attempts;
        }
    }

    /// The request is back in its place among those that wait.
    pub fn requeue(&mut self, id: &RequestId) {
        if let Some(open) = self.requests.get_mut(id) {
            open.stage = Stage::Waiting;
            self.waiting.insert(rank(open), id.clone());
        }
    }

    /// The request is settled.
    pub fn remove(&mut self, id: &RequestId) -> Option<Open> {
        let open = self.requests.remove(id)?;
        self.waiting.remove(&rank(&open));
        Some(open)
    }

    /// How many requests by selector are out at each worker. What is in doubt may have taken a resource.
    pub fn outstanding(&self) -> HashMap<NodeName, usize> {
        let mut counts = HashMap::new();
        for open in self.requests.values().filter(|open| matches!(open.ask.target, Target::Select(_))) {
            if let Stage::Dispatched { worker, .. } | Stage::InDoubt { worker, .. } = &open.stage {
                *counts.entry(worker.clone()).or_default() += 1;
            }
        }
        counts
    }
}

fn rank(open: &Open) -> Rank {
    (Reverse(Ordered(open.ask.priority)), open.arrival)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Door, Mode, WaitPolicy};

    fn ask(priority: f64) -> Ask {
        Ask {
            id: RequestId::generate(),
            door: Door::Request,
            requester: "ci".parse().unwrap(),
            target: Target::Select("platform".parse().unwrap()),
            mode: Mode::Exclusive,
            ttl: Duration::from_secs(60),
            priority: priority.try_into().unwrap(),
            lease_id: None,
            wait: WaitPolicy::Wait { timeout: None },
            note: None,
            key: None,
            ticket: None,
            allow_shorter: false,
            by_admin: false,
            left_out: Default::default(),
        }
    }

    #[test]
    fn higher_priority_goes_first_then_arrival_and_a_requeued_request_has_its_old_place() {
        let mut fleet = Fleet::default();
        let asks: Vec<Ask> = [0.0, 5.0, 0.0, -1.5].into_iter().map(ask).collect();
        asks.iter().cloned().for_each(|ask| fleet.add(ask, RunTime::default()));
        let order: Vec<RequestId> = [1, 0, 2, 3].into_iter().map(|index: usize| asks[index].id.clone()).collect();
        assert_eq!(fleet.in_order(), order);
        let worker: NodeName = "rack-1".parse().unwrap();
        assert_eq!(fleet.dispatch(&asks[0].id, worker.clone()), Some(1));
        assert_eq!(fleet.outstanding()[&worker], 1);
        assert_eq!(fleet.in_order().len(), 3);
        fleet.doubt(&asks[0].id, RunTime::default());
        assert_eq!(fleet.outstanding()[&worker], 1, "what is in doubt may have taken a resource");
        fleet.requeue(&asks[0].id);
        assert_eq!(fleet.in_order(), order);
        assert_eq!(fleet.dispatch(&asks[0].id, worker), Some(2), "the next attempt has the next number");
        fleet.remove(&asks[0].id);
        assert_eq!(fleet.len(), 3);
    }
}
