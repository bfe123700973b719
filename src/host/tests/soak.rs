//! Requesters that do what comes to their minds, over a few resources, while actors die and commits fail. Each knows
//! what it was told, and what it was told must be true.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::super::message::{Asked, DeskMessage, Grant, Leftovers, RequestNow};
use super::lab::{HOUR, Lab, acquires, joins, ranked, resource, shared, waits, waits_for};
use super::seeds::{Random, Seed, seeds};
use crate::admission::{RequestState, Rules};
use crate::model::time::later;
use crate::model::{Ask, Code, Fence, LeaseRecord, Mode, RequestId, ResourceId, ResourceSpec, WaitPolicy};

const REQUESTERS: u64 = 10;
const STEPS: usize = 12;

/// What requesters were told and may believe.
#[derive(Default)]
struct Told {
    /// Who holds what, and until when.
    holders: BTreeMap<ResourceId, Vec<(LeaseRecord, Timestamp)>>,
    fences: HashSet<(ResourceId, Fence)>,
    grants: usize,
}

struct World {
    lab: Lab,
    told: Mutex<Told>,
    faulty: std::sync::atomic::AtomicBool,
    /// True where the lab file changes meanwhile.
    edited: bool,
}

impl World {
    fn faults(&self) -> bool {
        self.faulty.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Somebody hears of a new lease.
    fn granted(&self, lease: &LeaseRecord) {
        let now = self.lab.clock.now().wall;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let new = told.fences.insert((lease.resource_id.clone(), lease.fence));
        assert!(new, "a fence comes twice: {lease:?}");
        told.grants += 1;
        let seats = if lease.resource_id.as_str() == "c" { 2 } else { 1 };
        let holders = told.holders.entry(lease.resource_id.clone()).or_default();
        holders.retain(|(_, until)| *until > now);
        let beside = |other: &LeaseRecord| lease.mode == Mode::Shared && other.mode == Mode::Shared;
        assert!(holders.iter().all(|(other, _)| beside(other)), "two holders: {lease:?} and {holders:?}");
        assert!(holders.len() < seats, "too many holders: {lease:?} and {holders:?}");
        holders.push((lease.clone(), later(lease.granted_at, lease.ttl)));
    }

    /// Somebody gives a lease back, from this moment on.
    fn gives_back(&self, lease: &LeaseRecord) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let holders = told.holders.entry(lease.resource_id.clone()).or_default();
        holders.retain(|(other, _)| other.fence != lease.fence);
    }

    async fn request(&self, id: &RequestId) -> Option<RequestNow> {
        super::lab::reply(self.lab.send(|reply| DeskMessage::Peek(id.clone(), reply))).await
    }

    /// The lease that a request got, when its answer was lost.
    async fn look_up(&self, requester: &str) -> Option<Grant> {
        let leases = super::lab::reply(self.lab.send(DeskMessage::Leases)).await;
        leases.into_iter().find(|grant| grant.lease.holder.to_string() == requester)
    }
}

struct Someone {
    world: Arc<World>,
    name: String,
    random: Random,
}

impl Someone {
    async fn lives(mut self) {
        for _ in 0..STEPS {
            self.pause().await;
            if let Some(lease) = self.gets_a_lease().await {
                self.world.granted(&lease);
                self.uses(lease).await;
            }
        }
    }

    async fn pause(&mut self) {
        self.random.turns().await;
        if self.random.one_in(2) {
            let span = self.random.ms(0, 40);
            tokio::time::sleep(span).await;
        }
    }

    async fn gets_a_lease(&mut self) -> Option<LeaseRecord> {
        let by_name = self.random.pick(&["a", "b", "c", "d"]);
        let by_selector = self.random.pick(&["os=1", "os=2", "kind=x", "os>=1"]);
        let target = if self.random.one_in(2) { by_name } else { by_selector };
        let ask = match self.random.below(6) {
            0 => acquires(&self.name, by_name),
            1 => return self.stands_in_line(by_name).await,
            2 => waits_for(&self.name, target, self.random.ms(1, 400)),
            3 => Ask { wait: WaitPolicy::NoWait, ..waits(&self.name, target) },
            _ => waits(&self.name, target),
        };
        let ask = if self.random.one_in(3) { shared(ask) } else { ask };
        let ask = ranked(ask, [0.0, 0.0, 1.0, 2.0][self.random.below(4) as usize]);
        let ttl = if self.random.one_in(8) { self.random.ms(1, 300) } else { HOUR };
        let ask = Ask { ttl, ..ask };
        let id = ask.id.clone();
        match self.world.lab.ask(ask).await {
            Ok(Asked::Granted(grant)) => Some(grant.lease),
            Ok(Asked::Open(open)) => {
                assert_eq!(open, id);
                self.waits_for_it(&id).await
            }
            Ok(other) => panic!("{other:?}"),
            Err(code) => {
                self.may_hear(code);
                None
            }
        }
    }

    /// What one who holds nothing may be refused with.
    fn may_hear(&self, code: Code) {
        let usual = [Code::ResourceUnavailable, Code::NoCapacity, Code::QueueTimeout].contains(&code);
        // Who waited for what has gone may have nothing else until it is written that she waits no more.
        let gone = [Code::UnknownResource, Code::NoMatchingResource, Code::RequesterAlreadyLeased].contains(&code);
        let gone = self.world.edited && gone;
        assert!(usual || gone || (code == Code::Internal && self.world.faults()), "{} was told {code:?}", self.name);
    }

    async fn waits_for_it(&mut self, id: &RequestId) -> Option<LeaseRecord> {
        if self.random.one_in(4) {
            self.pause().await;
            match self.world.lab.cancel(id).await {
                Ok(()) => {
                    let now = self.world.request(id).await.expect("it is remembered");
                    let ended = matches!(now.request.state, RequestState::Cancelled | RequestState::Failed(_));
                    assert!(ended, "a cancelled request is {:?}", now.request.state);
                    return None;
                }
                Err(Code::RequestNotCancellable) => {}
                Err(code) => self.may_hear(code),
            }
        }
        // Longer than everybody else together could need, unless somebody is forgotten.
        let watching = self.world.lab.watch(id);
        let now = tokio::time::timeout(Duration::from_secs(200), watching).await.expect("its turn comes").unwrap();
        match now.expect("it is remembered").request.state {
            RequestState::Granted(first) => Some(first.lease),
            RequestState::Failed(refusal) => {
                self.may_hear(refusal.code);
                None
            }
            RequestState::Cancelled => None,
            RequestState::Open => panic!("it is not settled"),
        }
    }

    async fn stands_in_line(&mut self, resource: &str) -> Option<LeaseRecord> {
        let patience = self.random.below(6);
        for _ in 0..=patience {
            match self.world.lab.ask(joins(&self.name, resource)).await {
                Ok(Asked::Granted(grant)) => return Some(grant.lease),
                Ok(Asked::Pending(_)) => {}
                Ok(other) => panic!("{other:?}"),
                Err(code) => self.may_hear(code),
            }
            self.pause().await;
        }
        while let Err(code) = self.world.lab.leave(&self.name, resource).await {
            self.may_hear(code);
            if code == Code::UnknownResource {
                // Nobody stands there any more.
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(self.world.look_up(&self.name).await, None, "whoever only stood in line holds nothing");
        None
    }

    async fn uses(&mut self, lease: LeaseRecord) {
        if lease.ttl < HOUR {
            // Its end comes by itself, within a second of the deadline.
            tokio::time::sleep(lease.ttl + Duration::from_secs(1)).await;
            while self.world.faults() && self.world.look_up(&self.name).await.is_some() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            assert_eq!(self.world.look_up(&self.name).await, None);
            return;
        }
        self.pause().await;
        if self.random.one_in(3) {
            match self.world.lab.renew(&lease).await {
                Ok(fence) => assert_eq!(fence, lease.fence),
                Err(code) => self.may_hear(code),
            }
        }
        let there = self.world.look_up(&self.name).await.expect("what was granted is there until it is given back");
        assert_eq!((&there.lease.id, there.lease.fence), (&lease.id, lease.fence));
        self.world.gives_back(&lease);
        loop {
            match self.world.lab.release(&lease).await {
                Ok(_) => return,
                // The answer of the first may have been lost.
                Err(Code::UnknownLease) if self.world.faults() => return,
                Err(code) => self.may_hear(code),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Actors die, and commits fail, for a while.
async fn chaos(world: Arc<World>, mut random: Random) {
    for _ in 0..random.below(20) {
        random.turns().await;
        match random.below(4) {
            0 => tokio::time::sleep(random.ms(0, 60)).await,
            1 => {
                let fault = world.lab.lose_leases("true");
                tokio::time::sleep(random.ms(0, 300)).await;
                drop(fault);
            }
            2 => {
                let fault = world.lab.forbid_leases("NEW.holder IN ('r1', 'r2', 'r3')");
                tokio::time::sleep(random.ms(0, 300)).await;
                drop(fault);
            }
            _ => world.lab.panic(random.pick(&["a", "b", "c", "d"])),
        }
    }
    // What has been told before is still on its way.
    tokio::time::sleep(Duration::from_secs(20)).await;
    world.faulty.store(false, std::sync::atomic::Ordering::Relaxed);
}

/// Resources go from the lab file and come back, for a while.
async fn edits(world: Arc<World>, mut random: Random, all: Vec<ResourceSpec>) {
    for left in (0..random.below(30)).rev() {
        let stays = |_: &&ResourceSpec| left == 0 || !random.one_in(3);
        let resources = all.iter().filter(stays).cloned().collect();
        let rules = Box::new(Rules::clone(&world.lab.host.rules.now()));
        let reload = world.lab.send(|reply| DeskMessage::Reload { resources, rules, reply });
        super::lab::reply(reload).await.unwrap();
        tokio::time::sleep(random.ms(0, 60)).await;
    }
}

async fn soak(seed: u64, with_faults: bool, edited: bool) -> usize {
    let _seed = Seed(seed);
    let mut random = Random::new(seed);
    let resources =
        [resource("a", "os=1", 1), resource("b", "os=1", 1), resource("c", "os=1,kind=x", 2), resource("d", "os=2", 1)];
    let mut rules = Rules::default();
    if random.one_in(3) {
        rules.waiting.admission_grace = Duration::from_millis(30);
    }
    if random.one_in(4) {
        rules.waiting.priority_aging = Some(Duration::from_millis(100));
    }
    let lab = Lab::new(&resources, rules).await;
    let world = Arc::new(World { lab, told: Mutex::default(), faulty: with_faults.into(), edited });
    let mut all: Vec<_> = (0..REQUESTERS)
        .map(|n| {
            let random = Random::new(seed ^ (n + 1) << 32);
            tokio::spawn(Someone { world: world.clone(), name: format!("r{n}"), random }.lives())
        })
        .collect();
    if edited {
        let random = Random::new(seed ^ 0xed17);
        all.push(tokio::spawn(edits(world.clone(), random, resources.to_vec())));
    }
    if with_faults {
        all.push(tokio::spawn(chaos(world.clone(), random)));
    }
    for one in all {
        one.await.unwrap();
    }
    world.lab.pass(Duration::from_secs(20)).await;
    assert_eq!(world.lab.leftovers().await, Leftovers::default());
    assert!(world.lab.leases_on("a").await.is_empty());
    let world = Arc::into_inner(world).expect("nobody else has it any more");
    world.lab.stop().await;
    world.told.into_inner().unwrap().grants
}

#[tokio::test(start_paused = true)]
async fn what_requesters_are_told_is_true_and_everybody_is_served() {
    let mut grants = 0;
    for seed in seeds(15) {
        grants += soak(seed, false, false).await;
    }
    assert!(grants > 0);
}

#[tokio::test(start_paused = true)]
async fn what_requesters_are_told_is_true_and_everybody_is_served_once_actors_and_commits_fail_no_more() {
    for seed in seeds(15) {
        soak(seed, true, false).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_requesters_are_told_is_true_and_everybody_is_served_while_resources_go_and_come_back() {
    for seed in seeds(15) {
        soak(seed, seed % 2 == 0, true).await;
    }
}
