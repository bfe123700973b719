//! What was committed is what the next start finds.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::Duration;

use berth::admission::resource::{Change, Command, Decision, ResourceState, apply, decide};
use berth::model::{Authority, Caller, Door, LeaseId, LeaseRecord, Mode, ResourceSpec};
use berth::store::{StoredRequest, StoredResource};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{Database, Open, answer, granted, released, within_bound};
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
    Acquire { shared: bool, chosen: bool, note: Option<String>, key: Option<u8> },
    Renew { ttl_ms: Option<u64> },
    Release,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let what = prop_oneof![
        3 => (any::<bool>(), any::<bool>(), prop::option::of("[ -~äß€]{0,40}"), prop::option::of(any::<u8>()))
            .prop_map(|(shared, chosen, note, key)| What::Acquire { shared, chosen, note, key }),
        2 => prop::option::of(1u64..20_000).prop_map(|ttl_ms| What::Renew { ttl_ms }),
        2 => Just(What::Release),
    ];
    let step = (0..RESOURCES.len(), 0u64..4_000, what);
    prop::collection::vec(step.prop_map(|(resource, after_ms, what)| Step { resource, after_ms, what }), 1..40)
}

/// What memory holds beside the state of each resource.
#[derive(Default)]
struct Memory {
    resources: HashMap<usize, ResourceState>,
    deadlines: HashMap<LeaseId, Timestamp>,
    requests: Vec<StoredRequest>,
}

impl Memory {
    fn step(&mut self, number: usize, step: Step, now: berth::clock::Now) -> Vec<Change> {
        let state = self.resources.entry(step.resource).or_default();
        let lease = state.held.last().map_or(sample::text("nothing"), |held| held.lease.id.clone());
        let authority = Authority::Client(Caller::admin());
        let command = match step.what {
            What::Acquire { shared, chosen, note, key } => {
                let id = if chosen { format!("mine-{number}") } else { format!("lse_{number}") };
                let lease = LeaseRecord {
                    mode: if shared { Mode::Shared } else { Mode::Exclusive },
                    ttl: Duration::from_millis(5_000 + number as u64),
                    note: note.map(|note| sample::text(&note)),
                    id_chosen_by_requester: chosen,
                    idempotency_key: key.map(|key| sample::text(&format!("k{key}"))),
                    ..sample::lease(&id, RESOURCES[step.resource], 0)
                };
                Command::Acquire { lease: Box::new(lease), door: Door::Acquire }
            }
            What::Renew { ttl_ms } => {
                Command::Renew { lease, fence: None, ttl: ttl_ms.map(Duration::from_millis), authority }
            }
            What::Release => Command::Release { lease, fence: None, authority },
        };
        let id = sample::text(RESOURCES[step.resource]);
        let spec = ResourceSpec { id, labels: Default::default(), max_shared: NonZeroU32::new(3).unwrap() };
        let Decision { changes, .. } = decide(state, &spec, command, now);
        for change in changes.iter().cloned() {
            match &change {
                Change::Granted { lease, expires_at, .. } => {
                    self.deadlines.insert(lease.id.clone(), *expires_at);
                    self.requests.push(StoredRequest {
                        id: lease.request_id.clone(),
                        requester: lease.holder.clone(),
                        key: lease.idempotency_key.clone(),
                        fingerprint: lease.fingerprint,
                        lease: lease.clone(),
                        expires_at: *expires_at,
                        ended_at: None,
                    });
                }
                Change::Renewed { lease, expires_at, .. } => {
                    self.deadlines.insert(lease.id.clone(), *expires_at);
                }
                Change::Ended { lease, at, .. } => {
                    let request = self.requests.iter_mut().find(|request| request.id == lease.request_id);
                    request.unwrap().ended_at = Some(*at);
                }
            }
            apply(state, change);
        }
        changes
    }

    /// What is to be found on disk: a resource has a row from its first grant on.
    fn stored(&self) -> Vec<StoredResource> {
        let leased = self.resources.iter().filter(|(_, state)| state.fence.0 > 0);
        let lease = |held: &berth::admission::resource::Held| (held.lease.clone(), self.deadlines[&held.lease.id]);
        let stored = leased.map(|(index, state)| StoredResource {
            id: sample::text(RESOURCES[*index]),
            fence: state.fence,
            idle_since: state.idle_since,
            leases: by_fence(state.held.iter().map(lease).collect()),
        });
        let mut stored: Vec<_> = stored.collect();
        stored.sort_by(|a, b| a.id.cmp(&b.id));
        stored
    }
}

fn by_fence(mut leases: Vec<(LeaseRecord, Timestamp)>) -> Vec<(LeaseRecord, Timestamp)> {
    leases.sort_by_key(|(lease, _)| lease.fence);
    leases
}

async fn played(database: &Database, steps: Vec<Step>) -> Memory {
    let open: Open = database.open();
    let mut memory = Memory::default();
    let mut ms = 0;
    let mut answers = Vec::new();
    for (number, step) in steps.into_iter().enumerate() {
        ms += step.after_ms;
        let changes = memory.step(number, step, sample::at(ms));
        if !changes.is_empty() {
            answers.push(open.queue(changes));
        }
    }
    for waiting in answers {
        answer(waiting).await.unwrap();
    }
    open.close().await;
    memory
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 32, ..Config::default() })]

    #[test]
    fn a_start_finds_the_leases_fences_deadlines_and_requests_as_they_were(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let database = Database::new();
            let memory = played(&database, steps).await;
            let loaded = database.open().loaded;
            let sorted = |resource: StoredResource| StoredResource { leases: by_fence(resource.leases), ..resource };
            let found: Vec<_> = loaded.resources.into_iter().map(sorted).collect();
            prop_assert_eq!(found, memory.stored());
            let by_end =
                |request: &StoredRequest| (request.ended_at.is_none(), request.ended_at, request.id.clone());
            let mut expected = memory.requests;
            expected.sort_by_key(by_end);
            prop_assert_eq!(loaded.requests, expected);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_settled_request_is_forgotten_on_disk_but_never_one_whose_lease_is_active() {
    let database = Database::new();
    let open = database.open();
    let (over, active) = (sample::lease("over", "board", 1), sample::lease("active", "phone", 1));
    open.commit(vec![granted(&over), released(&over)]).await.unwrap();
    open.commit(vec![granted(&active)]).await.unwrap();
    open.store.forget(vec![over.request_id.clone(), active.request_id.clone()]);
    open.close().await;
    let requests = database.open().loaded.requests;
    assert_eq!(requests.iter().map(|request| &request.id).collect::<Vec<_>>(), [&active.request_id]);
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
    within_bound(found.close()).await;
}

/// A gateway's next attempt, after the lease of the one before was released as nobody's.
#[tokio::test]
async fn a_request_that_is_granted_again_after_its_lease_ended_is_one_request_with_the_later_lease() {
    let database = Database::new();
    let open = database.open();
    let first = sample::lease("first", "board", 1);
    let second = LeaseRecord { request_id: first.request_id.clone(), ..sample::lease("second", "board", 2) };
    open.commit(vec![granted(&first), released(&first)]).await.unwrap();
    open.commit(vec![granted(&second)]).await.unwrap();
    open.close().await;
    let requests = database.open().loaded.requests;
    assert_eq!(requests.len(), 1);
    assert_eq!((&requests[0].lease, requests[0].ended_at), (&second, None));
}
