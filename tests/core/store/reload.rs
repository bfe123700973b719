//! What was committed is what the next start finds.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::time::Duration;

use berth::admission::resource::{
    Around, Change, Command, Decision, EndReason, Otherwise, Place, Rejection, ResourceState, Rivals, apply, decide,
};
use berth::admission::{Attendance, Joined, Rank, Speaker, Waiter, WaitingRules};
use berth::clock::Now;
use berth::model::{
    Authority, Caller, LeaseId, LeftOut, Mode, Priority, RequestId, Requester, ResourceSpec, WaitPolicy,
};
use berth::store::{EventFilter, Loaded, StoredOutcome, StoredRequest, StoredResource, StoredWaiter};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{Database, Open, answer, bare, granted, within_bound};
use crate::sample;

const RESOURCES: [&str; 3] = ["board", "pixel-8-a", "bench"];

/// What a worker does with one of its resources, this many ms after the step before.
#[derive(Debug, Clone)]
struct Step {
    resource: usize,
    after_ms: u64,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Ask { who: usize, how: How, shared: bool, chosen: bool, priority: i8, note: Option<String>, key: Option<u8> },
    Renew { ttl_ms: Option<u64> },
    Release,
    Leave { who: usize },
    Withdraw { first: bool, why: Rejection },
    Drain(bool),
    Wake,
}

#[derive(Debug, Clone, Copy)]
enum How {
    Fail,
    Join,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let how = prop_oneof![Just(How::Fail), Just(How::Join), Just(How::Wait)];
    let note = prop::option::of("[ -~äß€]{0,40}");
    let key = prop::option::of(any::<u8>());
    let ask = (0..4usize, how, any::<bool>(), any::<bool>(), -2i8..3, note, key).prop_map(
        |(who, how, shared, chosen, priority, note, key)| What::Ask { who, how, shared, chosen, priority, note, key },
    );
    let why = prop_oneof![
        Just(Rejection::Timeout),
        Just(Rejection::Cancelled),
        Just(Rejection::Abandoned),
        Just(Rejection::DaemonRestarted),
    ];
    let what = prop_oneof![
        8 => ask,
        2 => prop::option::of(1u64..20_000).prop_map(|ttl_ms| What::Renew { ttl_ms }),
        4 => Just(What::Release),
        1 => (0..4usize).prop_map(|who| What::Leave { who }),
        2 => (any::<bool>(), why).prop_map(|(first, why)| What::Withdraw { first, why }),
        1 => any::<bool>().prop_map(What::Drain),
        1 => Just(What::Wake),
    ];
    let step = (0..RESOURCES.len(), 0u64..4_000, what);
    prop::collection::vec(step.prop_map(|(resource, after_ms, what)| Step { resource, after_ms, what }), 1..60)
}

fn rules() -> WaitingRules {
    WaitingRules {
        waiter_ttl: Duration::from_secs(15),
        admission_grace: Duration::from_millis(2_500),
        ..WaitingRules::default()
    }
}

fn requester(who: usize) -> Requester {
    sample::text(["ci/job-1", "ci/job-2", "gw:gateway:ci/job-1", "ops"][who])
}

/// What memory holds beside the state of each resource.
#[derive(Default)]
struct Memory {
    resources: BTreeMap<usize, ResourceState>,
    /// Those of which something was ever stored.
    touched: BTreeMap<usize, ()>,
    deadlines: HashMap<LeaseId, Timestamp>,
    requests: BTreeMap<RequestId, StoredRequest>,
}

impl Memory {
    fn step(&mut self, number: usize, Step { resource, what, .. }: Step, now: Now) -> Vec<Change> {
        let state = self.resources.entry(resource).or_default();
        let id = sample::text(RESOURCES[resource]);
        let spec = ResourceSpec { max_shared: NonZeroU32::new(3).unwrap(), ..ResourceSpec::bare(id) };
        let around = Around {
            spec: &spec,
            rules: &rules(),
            max_total: None,
            calendar: &Default::default(),
            holds_paused: false,
            fresh: None,
            unsettled: &std::collections::BTreeSet::new(),
            driver: &Default::default(),
            rivals: Rivals::default(),
            node: &Default::default(),
            now,
        };
        let Decision { changes, .. } = decide(state, &around, command(number, what, resource, state, now));
        for change in &changes {
            self.note(resource, change, now);
        }
        let state = self.resources.entry(resource).or_default();
        changes.iter().cloned().for_each(|change| apply(state, change));
        changes
    }

    /// What a change leaves on disk beside what the state says.
    fn note(&mut self, resource: usize, change: &Change, now: Now) {
        match change {
            Change::Requested { proposal, place: Some(place), .. } => {
                let request = StoredRequest {
                    id: proposal.request.clone(),
                    requester: proposal.holder.clone(),
                    key: proposal.key.clone(),
                    fingerprint: proposal.fingerprint,
                    created_at: now.wall,
                    outcome: StoredOutcome::Open,
                    place: Some(place.clone()),
                };
                self.requests.insert(proposal.request.clone(), request);
            }
            Change::Granted { lease, expires_at, .. } => {
                self.touched.insert(resource, ());
                self.deadlines.insert(lease.id.clone(), *expires_at);
                let request = self.requests.entry(lease.request_id.clone()).or_insert_with(|| StoredRequest {
                    id: lease.request_id.clone(),
                    requester: lease.holder.clone(),
                    key: lease.idempotency_key.clone(),
                    fingerprint: lease.fingerprint,
                    created_at: lease.granted_at,
                    outcome: StoredOutcome::Open,
                    place: None,
                });
                request.place = None;
                request.outcome = StoredOutcome::Granted { lease: lease.clone(), expires_at: *expires_at, ended: None };
            }
            Change::Renewed { lease, expires_at, .. } => {
                self.deadlines.insert(lease.id.clone(), *expires_at);
            }
            Change::Ended { lease, reason, at } => {
                let request = self.requests.get_mut(&lease.request_id).unwrap();
                let StoredOutcome::Granted { ended, .. } = &mut request.outcome else { panic!("{request:?}") };
                *ended = Some((*at, Some(*reason)));
            }
            Change::Rejected { proposal, reason, refusal, waited: true, at } => {
                let request = self.requests.get_mut(&proposal.request).unwrap();
                let cancelled = *reason == Rejection::Cancelled;
                request.outcome = StoredOutcome::Failed { refusal: refusal.clone(), cancelled, at: *at };
                request.key = request.key.take().filter(|_| reason.is_remembered());
                request.place = request.place.take().filter(|_| *reason == Rejection::DaemonRestarted);
            }
            Change::Joined { waiter, .. } if !waiter.is_attended() => drop(self.touched.insert(resource, ())),
            Change::Reserved(_) | Change::Drained { .. } => drop(self.touched.insert(resource, ())),
            _ => {}
        }
    }

    /// What is to be found on disk.
    fn stored(&self) -> Vec<StoredResource> {
        let lease = |held: &berth::admission::resource::Held| (held.lease.clone(), self.deadlines[&held.lease.id]);
        let stored = self.touched.keys().map(|index| {
            let state = &self.resources[index];
            StoredResource {
                fence: state.fence,
                idle_since: state.idle_since,
                drained: state.drained,
                leases: state.held.iter().map(lease).collect(),
                waiters: state.queue.iter().filter(|waiter| !waiter.is_attended()).map(stored_waiter).collect(),
                reserved: state.reserved.iter().map(|kept| (kept.holder.clone(), kept.mode, kept.width)).collect(),
                ..bare(RESOURCES[*index])
            }
        });
        let mut stored: Vec<_> = stored.map(sorted).collect();
        stored.sort_by(|a, b| a.id.cmp(&b.id));
        stored
    }

    fn settled_last(&self) -> Vec<StoredRequest> {
        let mut requests: Vec<_> = self.requests.values().cloned().collect();
        requests.sort_by_key(|request| {
            let ended = match &request.outcome {
                StoredOutcome::Open => None,
                StoredOutcome::Granted { ended, .. } => ended.map(|(at, _)| at),
                StoredOutcome::Failed { at, .. } => Some(*at),
            };
            (ended.is_none(), ended, request.id.clone())
        });
        requests
    }
}

fn command(number: usize, what: What, resource: usize, state: &ResourceState, now: Now) -> Command {
    let lease = state.held.last().map_or(sample::text("nothing"), |held| held.lease.id.clone());
    let authority = Authority::Client(Caller::admin());
    match what {
        What::Ask { who, how, shared, chosen, priority, note, key } => {
            let mut ask = sample::ask(sample::request(number), "ops", RESOURCES[resource]);
            ask.requester = requester(who);
            ask.mode = if shared { Mode::Shared } else { Mode::Exclusive };
            ask.ttl = Duration::from_millis(5_000 + number as u64);
            ask.priority = Priority::try_from(f64::from(priority) / 3.0).unwrap();
            ask.note = note.map(|note| sample::text(&note));
            ask.lease_id = chosen.then(|| sample::text(&format!("mine-{number}")));
            ask.key = key.map(|key| sample::text(&format!("k{key}")));
            let joined = Joined { run: 7, at_us: Joined::micros(now.run), arrival: number as u64 };
            let waiter = Waiter {
                rank: Rank::new(ask.priority, joined, None),
                proposal: ask.proposal(ask.fingerprint()),
                joined_at: now.wall,
                attendance: match how {
                    How::Wait => Attendance::Attended,
                    How::Fail | How::Join => Attendance::Unattended { last_seen: now.run },
                },
                returns: None,
                restored: false,
                not_on: None,
            };
            let otherwise = match how {
                How::Fail => Otherwise::Refuse(WaitPolicy::Fail),
                How::Join => Otherwise::Join,
                How::Wait => Otherwise::Wait(WaitPolicy::Wait { timeout: None }),
            };
            let (left_out, speaker) = (LeftOut::default(), Speaker::Requester);
            Command::Ask { waiter: Box::new(waiter), otherwise, left_out, speaker }
        }
        What::Renew { ttl_ms } => {
            let ttl = ttl_ms.map(Duration::from_millis);
            Command::Renew { lease, fence: None, ttl, allow_shorter: false, authority }
        }
        What::Release => Command::Release { lease, fence: None, authority },
        What::Leave { who } => Command::Leave { holder: requester(who) },
        What::Withdraw { first, why } => {
            let mut attended = state.queue.iter().filter(|waiter| waiter.is_attended());
            let chosen = if first { attended.next() } else { attended.next_back() };
            let request = chosen.map_or(sample::request(999), |waiter| waiter.proposal.request.clone());
            Command::Withdraw { request, why }
        }
        What::Drain(drained) => Command::Drain(drained),
        What::Wake => Command::Wake,
    }
}

fn stored_waiter(waiter: &Waiter) -> StoredWaiter {
    let Place { mode, priority, joined, joined_at, .. } = Place::of(waiter);
    StoredWaiter {
        holder: waiter.proposal.holder.clone(),
        mode,
        priority,
        joined: Joined { at_us: 0, ..joined },
        joined_at,
        ttl: waiter.proposal.ttl,
        note: waiter.proposal.note.clone(),
    }
}

/// Lists whose order means nothing, in one order.
fn sorted(mut resource: StoredResource) -> StoredResource {
    resource.leases.sort_by_key(|(lease, _)| lease.fence);
    resource.waiters.sort_by_key(|waiter| waiter.joined);
    resource.reserved.sort_by_key(|(holder, ..)| holder.clone());
    resource
}

async fn played(database: &Database, steps: Vec<Step>) -> Memory {
    let open: Open = database.open();
    let mut memory = Memory::default();
    let mut ms = 0;
    let mut answers = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        ms += step.after_ms;
        let resource = RESOURCES[step.resource];
        let changes = memory.step(number, step, sample::at(ms));
        if !changes.is_empty() {
            answers.push(open.queue_batch(Some(resource), 1, changes, vec![], sample::at(ms)));
        }
    }
    for waiting in answers {
        answer(waiting).await.unwrap();
    }
    open.close().await;
    memory
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 48, ..Config::default() })]

    #[test]
    fn a_start_finds_leases_fences_deadlines_waiters_reservations_drains_and_requests_as_they_were(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let database = Database::new();
            let memory = played(&database, steps).await;
            let Loaded { resources, requests, .. } = database.open().loaded;
            prop_assert_eq!(resources.into_iter().map(sorted).collect::<Vec<_>>(), memory.stored());
            prop_assert_eq!(requests, memory.settled_last());
            Ok(())
        })?;
    }
}

/// A copy of the file and its log, taken while the store is open, is what a kill at that moment leaves.
#[tokio::test]
async fn what_was_answered_is_there_after_a_kill() {
    let database = Database::new();
    let open = database.open();
    let copy = Database::new();
    for number in 1..=20 {
        let lease = sample::lease(&format!("l{number}"), &format!("board-{number}"), 1);
        open.commit(vec![granted(&lease)]).await.unwrap();
    }
    for file in ["berth.db", "berth.db-wal"] {
        std::fs::copy(database.folder.path().join(file), copy.folder.path().join(file)).unwrap();
    }
    let found = copy.open();
    assert_eq!(found.loaded.resources.iter().map(|resource| resource.leases.len()).sum::<usize>(), 20);
    let told = found.events.read(0, 100, &EventFilter::default()).await.unwrap();
    assert_eq!(told.len(), 20, "and so is what it tells");
    within_bound(found.close()).await;
}

/// Every word of a lease's end reads back.
#[tokio::test]
async fn why_a_lease_ended_is_found_in_the_same_word() {
    let database = Database::new();
    let open = database.open();
    let reasons = [EndReason::Explicit, EndReason::Admin, EndReason::Expired];
    for (number, reason) in reasons.into_iter().enumerate() {
        let lease = sample::lease(&format!("l{number}"), "board", number as u64 + 1);
        let ended = Change::Ended { lease: lease.clone(), reason, at: sample::wall(number as u64) };
        open.commit(vec![granted(&lease), ended]).await.unwrap();
    }
    let requests = database.reopened(open).await.loaded.requests;
    let found = requests.into_iter().map(|request| match request.outcome {
        StoredOutcome::Granted { ended: Some((_, Some(reason))), .. } => reason,
        other => panic!("{other:?}"),
    });
    assert_eq!(found.collect::<Vec<_>>(), reasons);
}
