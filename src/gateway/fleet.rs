//! The open lease requests of the fleet: which wait for a place, which are out at a worker, which are in doubt. Pure.
//!
//! Whoever asks by selector waits in one queue of the whole fleet, in the order of SPEC §2; that is the pool of a host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::returning::Restored;
use super::skips::{News, Skips, Why};
use crate::admission::resource::Rejection;
use crate::admission::schedule::Schedule;
use crate::admission::{Attendance, Joined, Pool, Rank, Waiter};
use crate::clock::{Now, RunTime};
use crate::model::{Ask, NodeName, Refusal, RequestId, ResourceId, Target, WaitPolicy};

/// Every request that is not settled.
#[derive(Debug)]
pub struct Fleet {
    run: u64,
    aging: Option<Duration>,
    requests: HashMap<RequestId, Open>,
    /// Those by selector that wait for a place.
    pool: Pool,
    /// Those by name that wait for a place, in their order.
    named: BTreeMap<Rank, RequestId>,
    /// Those of the pool that are never to wait, and only stand there until a worker has answered.
    impatient: BTreeSet<RequestId>,
    /// How many by selector are out at each worker.
    out: HashMap<NodeName, usize>,
    /// Workers at which fewer are out than before.
    answered: BTreeSet<NodeName>,
    /// Those that skip each worker, or have.
    skipping: HashMap<NodeName, BTreeSet<RequestId>>,
    /// Those that are in doubt.
    doubts: BTreeSet<RequestId>,
    /// When each is to be looked at again.
    attention: Schedule<RequestId>,
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
    /// When the last dispatch was sent.
    pub sent_at: Option<RunTime>,
    /// Workers that have refused it.
    pub skips: Skips,
    /// Since when it has waited for a worker that is away, without a break.
    pub away_since: Option<RunTime>,
    /// Since when it has waited; its timeout counts from here.
    pub since: RunTime,
    /// When it joined, wall time.
    pub joined_at: Timestamp,
    /// Its place.
    pub rank: Rank,
    /// The request of an earlier run whose place it has taken over.
    pub returns: Option<RequestId>,
    /// True once it is known to wait.
    pub waits: bool,
    /// When it was last asked about.
    pub asked_at: RunTime,
    /// Why it is to end as soon as it is known what became of the attempt that is out.
    pub withdrawing: Option<Rejection>,
    /// The device that could not be made ready for it; a second one ends it.
    pub failed: Option<Failed>,
}

/// A device that could not be made ready for a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// Its worker.
    pub worker: NodeName,
    /// Which, where the worker said so.
    pub resource: Option<ResourceId>,
    /// What the request hears if there is no other.
    pub refusal: Refusal,
}

impl Failed {
    /// True when it is this device.
    pub fn is(&self, worker: &NodeName, resource: &ResourceId) -> bool {
        self.worker == *worker && self.resource.as_ref() == Some(resource)
    }
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

/// How long things may last.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long nobody may have asked about a request.
    pub waiter_ttl: Duration,
    /// How long a request waits for a worker that is away.
    pub absence_grace: Duration,
}

impl Open {
    /// When its timeout passes.
    pub fn give_up_at(&self) -> Option<RunTime> {
        match self.ask.wait {
            WaitPolicy::Wait { timeout: Some(timeout) } => Some(self.since + timeout),
            _ => None,
        }
    }

    /// True when it asks by selector.
    pub fn by_selector(&self) -> bool {
        matches!(self.ask.target, Target::Select(_))
    }

    /// True when this device could not be made ready for it.
    pub fn has_failed_on(&self, worker: &NodeName, resource: &ResourceId) -> bool {
        self.failed.as_ref().is_some_and(|failed| failed.is(worker, resource))
    }

    /// Its place in line.
    pub fn waiter(&self) -> Waiter {
        Waiter {
            rank: self.rank,
            proposal: self.ask.proposal(self.ask.fingerprint()),
            joined_at: self.joined_at,
            attendance: Attendance::Attended,
            returns: self.returns.clone(),
            restored: false,
            not_on: None,
        }
    }

    /// The worker that it is out at, and the number of the attempt, whether it is in doubt or not.
    pub fn out_at(&self) -> Option<(&NodeName, u32)> {
        match &self.stage {
            Stage::Waiting => None,
            Stage::Dispatched { worker, attempt } | Stage::InDoubt { worker, attempt, .. } => Some((worker, *attempt)),
        }
    }
}

impl Fleet {
    /// Nobody waits in the life `run` of the gateway. With `aging`, a rank grows by one in each such span.
    pub fn new(run: u64, aging: Option<Duration>) -> Self {
        Self {
            run,
            aging,
            requests: HashMap::new(),
            pool: Pool::default(),
            named: BTreeMap::new(),
            impatient: BTreeSet::new(),
            out: HashMap::new(),
            answered: BTreeSet::new(),
            skipping: HashMap::new(),
            doubts: BTreeSet::new(),
            attention: Schedule::default(),
            arrivals: 0,
        }
    }

    /// Lets a request in; it waits for a place, at the one that a ticket has restored if there is one.
    pub fn add(&mut self, ask: Ask, now: Now, restored: Option<Restored>) {
        self.arrivals += 1;
        let here = Joined { run: self.run, at_us: Joined::micros(now.run), arrival: self.arrivals };
        let (joined, joined_at, returns) = match restored {
            Some(Restored { request, joined, joined_at }) => (joined, joined_at, Some(request)),
            None => (here, now.wall, None),
        };
        let open = Open {
            stage: Stage::Waiting,
            attempts: 0,
            sent_at: None,
            skips: Skips::default(),
            away_since: None,
            since: now.run,
            joined_at,
            rank: Rank::new(ask.priority, joined, self.aging),
            returns,
            waits: false,
            asked_at: now.run,
            withdrawing: None,
            failed: None,
            ask,
        };
        let id = open.ask.id.clone();
        self.requests.insert(id.clone(), open);
        self.join(&id);
    }

    /// A request.
    pub fn get(&self, id: &RequestId) -> Option<&Open> {
        self.requests.get(id)
    }

    /// A request, to note what does not change its place.
    pub fn get_mut(&mut self, id: &RequestId) -> Option<&mut Open> {
        self.requests.get_mut(id)
    }

    /// Those that are in doubt.
    pub fn doubtful(&self) -> impl Iterator<Item = (&RequestId, &Open)> {
        self.doubts.iter().filter_map(|id| self.requests.get_key_value(id))
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

    /// How many wait for a place.
    pub fn waiting(&self) -> usize {
        self.pool.len() + self.named.len()
    }

    /// Those by selector that wait for a place.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Those by selector that are never to wait, and only stand in the queue until a worker has answered.
    pub fn impatient(&self) -> Vec<RequestId> {
        self.impatient.iter().cloned().collect()
    }

    /// Those by name that wait for a place, in their order.
    pub fn named_in_order(&self) -> Vec<RequestId> {
        self.named.values().cloned().collect()
    }

    /// Sends a request out: the number of the attempt.
    pub fn dispatch(&mut self, id: &RequestId, worker: NodeName, now: RunTime) -> Option<u32> {
        self.leave(id);
        let open = self.requests.get_mut(id)?;
        open.attempts += 1;
        open.sent_at = Some(now);
        open.away_since = None;
        if open.by_selector() {
            *self.out.entry(worker.clone()).or_default() += 1;
        }
        open.stage = Stage::Dispatched { worker, attempt: open.attempts };
        Some(open.attempts)
    }

    /// Nobody knows what became of the dispatch.
    pub fn doubt(&mut self, id: &RequestId, now: RunTime) {
        if let Some(open) = self.requests.get_mut(id)
            && let Stage::Dispatched { worker, attempt } = &open.stage
        {
            open.stage = Stage::InDoubt { worker: worker.clone(), attempt: *attempt, since: now, asked: false };
            self.doubts.insert(id.clone());
        }
    }

    /// A request is open again that had left for a worker's waiting room: at its old place, or out at that worker.
    pub fn put_back(&mut self, open: Open) {
        let (id, stage) = (open.ask.id.clone(), open.stage.clone());
        self.requests.insert(id.clone(), open);
        if stage == Stage::Waiting {
            self.join(&id);
        }
    }

    /// The request is back in its place among those that wait.
    pub fn requeue(&mut self, id: &RequestId) {
        self.leave(id);
        self.join(id);
    }

    /// The request is settled.
    pub fn remove(&mut self, id: &RequestId) -> Option<Open> {
        self.leave(id);
        self.attention.set(id, None);
        let open = self.requests.remove(id)?;
        self.skipping.retain(|_, skipping| {
            skipping.remove(id);
            !skipping.is_empty()
        });
        Some(open)
    }

    /// How many requests by selector are out at a worker. What is in doubt may have taken a resource.
    pub fn outstanding(&self, worker: &NodeName) -> usize {
        self.out.get(worker).copied().unwrap_or(0)
    }

    /// Takes out a worker at which fewer are out than when it was last taken out here: what is free there is surer now.
    pub fn take_answered(&mut self) -> Option<NodeName> {
        self.answered.pop_first()
    }

    /// A worker is not to be asked for this request for a while.
    pub fn skip(&mut self, id: &RequestId, worker: &NodeName, why: Why, now: RunTime) {
        if let Some(open) = self.requests.get_mut(id) {
            open.skips.add(worker, why, now);
            self.skipping.entry(worker.clone()).or_default().insert(id.clone());
        }
    }

    /// A report of a worker has come; `fits` says whether it shows a resource that is free for this request. True when
    /// one of those that skip the worker may ask it again.
    pub fn reported(&mut self, worker: &NodeName, number: u64, changed: bool, fits: impl Fn(&Open) -> bool) -> bool {
        let mut again = false;
        for id in self.skipping.get(worker).into_iter().flatten() {
            if let Some(open) = self.requests.get_mut(id) {
                let fits = fits(open);
                again |= open.skips.reported(worker, News { number, fits, changed });
            }
        }
        again
    }

    /// The rank of whoever comes from now on grows by one in each such span.
    pub fn set_aging(&mut self, aging: Option<Duration>) {
        self.aging = aging;
    }

    /// A worker is here anew: what it refused before is asked of it again.
    pub fn reconnected(&mut self, worker: &NodeName) {
        for id in self.skipping.remove(worker).into_iter().flatten() {
            if let Some(open) = self.requests.get_mut(&id) {
                open.skips.reconnected(worker);
            }
        }
    }

    /// Somebody has asked about a request.
    pub fn asked_about(&mut self, id: &RequestId, now: RunTime) {
        if let Some(open) = self.requests.get_mut(id) {
            open.asked_at = now;
        }
    }

    /// Sets when a request is to be looked at next: its timeout, nobody asking about it, a worker that stays away. What is
    /// to end already waits for its worker alone.
    pub fn attend(&mut self, id: &RequestId, bounds: Bounds) {
        let next = |open: &Open| {
            let away = open.away_since.map(|since| since + bounds.absence_grace);
            let times = [open.give_up_at(), away, Some(open.asked_at + bounds.waiter_ttl)];
            times.into_iter().flatten().min()
        };
        let at = self.requests.get(id).filter(|open| open.withdrawing.is_none()).and_then(next);
        self.attention.set(id, at);
    }

    /// Takes out those that are to be looked at now.
    pub fn due(&mut self, now: RunTime) -> Vec<RequestId> {
        self.attention.due(now)
    }

    fn join(&mut self, id: &RequestId) {
        let Some(open) = self.requests.get_mut(id) else { return };
        open.stage = Stage::Waiting;
        if open.by_selector() {
            self.pool.join(open.waiter());
            if open.ask.no_wait() {
                self.impatient.insert(id.clone());
            }
        } else {
            self.named.insert(open.rank, id.clone());
        }
    }

    /// It stands nowhere for a moment.
    fn leave(&mut self, id: &RequestId) {
        self.doubts.remove(id);
        self.impatient.remove(id);
        let Some(open) = self.requests.get(id) else { return };
        match open.out_at() {
            None if open.by_selector() => drop(self.pool.remove(id)),
            None => drop(self.named.remove(&open.rank)),
            Some((worker, _)) if open.by_selector() => {
                let worker = worker.clone();
                if let Some(count) = self.out.get_mut(&worker) {
                    *count -= 1;
                    if *count == 0 {
                        self.out.remove(&worker);
                    }
                }
                self.answered.insert(worker);
            }
            Some(_) => {}
        }
    }
}
