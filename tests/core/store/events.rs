//! The event log: written with what it tells of, read beside the writer, pruned from its old end.

use berth::admission::resource::{Change, EndReason, Rejection};
use berth::model::{Code, Event, EventKind, Refusal, WaitPolicy};
use berth::store::{CommitError, EVENTS_READ_MAX, EventFilter, EventRecord};
use jiff::Timestamp;
use serde_json::json;

use super::{Database, Open, answer, granted, released, unattended, waiter, within_bound};
use crate::sample;

/// What an admin reads.
const ALL: EventFilter = EventFilter { owner: None, private: true, kind: None, lease: None };

impl Open {
    async fn read(&self, after: u64, filter: &EventFilter) -> Vec<EventRecord> {
        self.events.read(after, EVENTS_READ_MAX, filter).await.unwrap()
    }

    async fn told(&self, filter: &EventFilter) -> Vec<(EventKind, String)> {
        let events = self.read(0, filter).await;
        let whose =
            |event: &EventRecord| event.payload.get("requester").map_or("", |it| it.as_str().unwrap()).to_owned();
        events.iter().map(|event| (event.kind, whose(event))).collect()
    }

    fn newest(&self) -> u64 {
        *self.events.newest().borrow()
    }

    /// Commits so many events, all of them `ms` after the beginning.
    async fn tell(&self, count: usize, ms: u64) {
        let events = (0..count).map(|number| detail(&format!("{number} at {ms}"))).collect();
        answer(self.queue_batch(None, 0, vec![], events, sample::at(ms))).await.unwrap();
    }

    /// Prunes and waits until it is done.
    async fn prune(&self, before: Timestamp, count_max: u64) {
        self.store.prune_events(before, count_max);
        // The next group comes after it; a batch without content leaves nothing behind.
        answer(self.queue_batch(None, 0, vec![], vec![], sample::at(0))).await.unwrap();
        answer(self.queue_batch(None, 0, vec![], vec![], sample::at(0))).await.unwrap();
    }
}

fn detail(detail: &str) -> Event {
    Event::new(EventKind::InvariantViolated).with("detail", detail)
}

fn begin_ms() -> u64 {
    sample::wall(0).as_millisecond() as u64
}

fn seqs(events: &[EventRecord]) -> Vec<u64> {
    events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn a_batch_tells_what_its_changes_tell_and_then_what_else_happened() {
    let database = Database::new();
    let open = database.open();
    let proposal = waiter(1, "ci/job-17", "board").proposal;
    let lease = proposal.granted(&sample::text("board"), berth::model::Fence(7), sample::wall(0));
    let requested = Change::Requested { proposal, wait: WaitPolicy::NoWait, place: None, returns: None };
    let silent = Change::Renewed {
        lease: lease.clone(),
        deadline: sample::run(60_000),
        expires_at: sample::wall(60_000),
        told: false,
    };
    let changes = vec![requested, granted(&lease), silent, released(&lease)];
    answer(open.queue_batch(Some("board"), 1, changes, vec![detail("last")], sample::at(2_500))).await.unwrap();
    let open = database.reopened(open).await;
    let events = open.read(0, &ALL).await;
    let first = begin_ms();
    assert_eq!(seqs(&events), [first, first + 1, first + 2, first + 3], "a new log begins at the Unix time in ms");
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    use EventKind::{InvariantViolated, LeaseGranted, LeaseReleased, LeaseRequested};
    assert_eq!(kinds, [LeaseRequested, LeaseGranted, LeaseReleased, InvariantViolated]);
    assert!(events.iter().all(|event| event.at == sample::wall(2_500)));
    let granted = json!({
        "leaseId": lease.id.as_str(),
        "resourceId": "board",
        "requester": "ci/job-17",
        "requestId": lease.request_id.as_str(),
        "fence": 7,
    });
    assert_eq!(json!(events[1].payload), granted);
    let ids: std::collections::BTreeSet<_> = events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids.len(), events.len());
}

#[tokio::test]
async fn what_did_not_happen_is_not_told() {
    let database = Database::new();
    let open = database.open();
    let stale = sample::lease("stale", "board", 3);
    open.commit(vec![granted(&sample::lease("mine", "board", 4))]).await.unwrap();
    let newest = open.newest();
    // The first change of the batch could be written; the second is stopped.
    let rejected = Change::Rejected {
        proposal: waiter(1, "ci", "board").proposal,
        reason: Rejection::NoWait,
        refusal: Refusal::new(Code::NoCapacity, "no"),
        waited: false,
        at: sample::wall(0),
    };
    let stopped =
        open.queue_batch(Some("board"), 1, vec![rejected, released(&stale)], vec![detail("x")], sample::at(0));
    let other = open.queue(vec![granted(&sample::lease("other", "phone", 1))]);
    assert!(matches!(answer(stopped).await, Err(CommitError::Constraint(_))));
    answer(other).await.unwrap();
    let events = open.read(newest, &ALL).await;
    assert_eq!(seqs(&events), [newest + 1], "and takes no number");
    assert_eq!(events[0].payload["leaseId"], "other");
    assert_eq!(open.newest(), newest + 1);
}

#[tokio::test]
async fn whoever_waits_for_the_newest_finds_it() {
    let database = Database::new();
    let open = database.open();
    assert_eq!(open.newest(), begin_ms() - 1, "the log is empty");
    let mut newest = open.events.newest();
    let follower = {
        let events = open.events.clone();
        tokio::spawn(async move {
            let mut seen = *newest.borrow();
            let mut found = Vec::new();
            while found.len() < 60 && newest.changed().await.is_ok() {
                let upto = *newest.borrow_and_update();
                let more = events.read(seen, EVENTS_READ_MAX, &ALL).await.unwrap();
                // A commit can be read before its number is told, so that this may bring nothing more.
                seen = more.last().map_or(seen, |last| last.seq);
                assert!(seen >= upto);
                found.extend(more);
            }
            found
        })
    };
    for ms in 0..30 {
        open.tell(2, ms).await;
    }
    let found = within_bound(follower).await.unwrap();
    assert_eq!(seqs(&found), (begin_ms()..begin_ms() + 60).collect::<Vec<_>>());
    let newest = open.events.newest();
    let open = database.reopened(open).await;
    assert_eq!(open.newest(), begin_ms() + 59);
    assert!(newest.has_changed().is_err(), "the writer has ended");
}

#[tokio::test]
async fn a_group_without_events_does_not_wake_those_who_follow() {
    let database = Database::new();
    let open = database.open();
    let newest = open.events.newest();
    open.commit_at(0, None, vec![]).await.unwrap();
    assert!(!newest.has_changed().unwrap());
}

/// Two principals with the same name, one of them the gateway's, and one lease of each.
async fn furnished(database: &Database) -> Open {
    let open = database.open();
    for (number, holder) in ["ci/job-1", "gw:gateway:ci", "ops"].into_iter().enumerate() {
        let board = format!("board-{number}");
        let waits = unattended(waiter(number, holder, &board));
        let lease = berth::model::LeaseRecord {
            holder: sample::text(holder),
            ..sample::lease(&format!("l{number}"), &board, 1)
        };
        open.commit_at(0, Some(&board), vec![Change::Joined { waiter: waits, position: 1 }]).await.unwrap();
        open.commit(vec![granted(&lease)]).await.unwrap();
        let expired = Change::Ended { lease, reason: EndReason::Expired, at: sample::wall(60_000) };
        open.commit(vec![expired]).await.unwrap();
    }
    open
}

#[tokio::test]
async fn a_reader_finds_what_it_may_read_and_asks_for() {
    use EventKind::{LeaseExpired, LeaseGranted, WaiterJoined};
    let database = Database::new();
    let open = furnished(&database).await;
    let of = |holders: &[&str], kinds: &[EventKind]| -> Vec<(EventKind, String)> {
        holders.iter().flat_map(|holder| kinds.iter().map(|&kind| (kind, (*holder).to_owned()))).collect()
    };
    let all = ["ci/job-1", "gw:gateway:ci", "ops"];
    assert_eq!(open.told(&ALL).await, of(&all, &[WaiterJoined, LeaseGranted, LeaseExpired]), "an admin");

    let viewer = EventFilter::default();
    assert_eq!(open.told(&viewer).await, of(&all, &[LeaseGranted, LeaseExpired]), "a viewer");

    let agent = EventFilter { owner: Some(sample::text("ci")), ..viewer.clone() };
    let own = of(&["ci/job-1"], &[WaiterJoined, LeaseGranted, LeaseExpired]);
    assert_eq!(open.told(&agent).await, own, "an agent: its own of every kind, and none of the gateway's ci");
    let stranger = EventFilter { owner: Some(sample::text("nobody")), private: true, ..viewer.clone() };
    assert_eq!(open.told(&stranger).await, []);

    let kind = EventFilter { kind: Some(LeaseExpired), ..viewer.clone() };
    assert_eq!(open.told(&kind).await, of(&all, &[LeaseExpired]));
    let hidden = EventFilter { kind: Some(WaiterJoined), ..viewer.clone() };
    assert_eq!(open.told(&hidden).await, [], "a viewer that names it");
    let named = EventFilter { kind: Some(WaiterJoined), ..agent.clone() };
    assert_eq!(open.told(&named).await, of(&["ci/job-1"], &[WaiterJoined]));

    let lease = EventFilter { lease: Some(sample::text("l1")), ..viewer.clone() };
    assert_eq!(open.told(&lease).await, of(&["gw:gateway:ci"], &[LeaseGranted, LeaseExpired]));
    let both = EventFilter { lease: Some(sample::text("l2")), kind: Some(LeaseGranted), ..agent };
    assert_eq!(open.told(&both).await, [], "another's lease");
}

#[tokio::test]
async fn a_reading_goes_on_behind_the_last_and_has_an_end() {
    let database = Database::new();
    let open = database.open();
    open.tell(EVENTS_READ_MAX + 5, 0).await;
    let read = |after, limit| {
        let events = &open.events;
        async move { seqs(&events.read(after, limit, &ALL).await.unwrap()) }
    };
    let first = begin_ms();
    assert_eq!(read(0, 3).await, [first, first + 1, first + 2]);
    assert_eq!(read(first + 2, 2).await, [first + 3, first + 4]);
    assert!(read(0, 0).await.is_empty());
    assert_eq!(read(0, usize::MAX).await.len(), EVENTS_READ_MAX);
    assert_eq!(read(first + EVENTS_READ_MAX as u64 - 1, usize::MAX).await.len(), 5);
    assert!(read(open.newest(), usize::MAX).await.is_empty());
    assert!(read(u64::MAX, usize::MAX).await.is_empty());
}

#[tokio::test]
async fn an_event_of_a_later_version_is_passed_over_and_does_not_shorten_a_reading() {
    let database = Database::new();
    let open = database.open();
    open.tell(4, 0).await;
    let second = begin_ms() + 1;
    database.foreign().execute("UPDATE event SET event = 'lease.lost' WHERE seq = ?1", [second as i64]).unwrap();
    let events = open.events.read(0, 2, &ALL).await.unwrap();
    assert_eq!(seqs(&events), [second - 1, second + 1]);
}

#[tokio::test]
async fn old_events_are_pruned_and_the_newest_are_kept() {
    let database = Database::new();
    let open = database.open();
    let first = begin_ms();
    open.tell(10, 1_000).await;
    open.tell(10, 2_000).await;
    open.prune(sample::wall(1_000), 100).await;
    assert_eq!(open.read(0, &ALL).await.len(), 20, "nothing is old");
    open.prune(sample::wall(2_000), 100).await;
    assert_eq!(seqs(&open.read(0, &ALL).await), (first + 10..first + 20).collect::<Vec<_>>(), "by age");
    open.prune(sample::wall(0), 4).await;
    assert_eq!(seqs(&open.read(0, &ALL).await), (first + 16..first + 20).collect::<Vec<_>>(), "by number");
}

#[tokio::test]
async fn a_number_is_never_used_again_not_even_when_the_log_has_been_emptied_and_the_clock_was_set_back() {
    let database = Database::new();
    let open = database.open_at(sample::at(60_000)).unwrap();
    open.tell(3, 60_000).await;
    let last = open.newest();
    assert_eq!(last, begin_ms() + 60_002);
    open.prune(sample::wall(90_000), 100).await;
    assert_eq!(open.read(0, &ALL).await, []);
    assert_eq!(open.newest(), last);
    let open = database.reopened(open).await;
    assert_eq!(open.newest(), last);
    open.tell(1, 0).await;
    assert_eq!(seqs(&open.read(0, &ALL).await), [last + 1]);
}

#[tokio::test]
async fn one_pruning_deletes_ten_thousand_at_most() {
    let database = Database::new();
    let open = database.open();
    open.tell(10_003, 0).await;
    open.prune(sample::wall(1), 100).await;
    assert_eq!(open.read(0, &ALL).await.len(), 3);
    open.prune(sample::wall(1), 100).await;
    assert_eq!(open.read(0, &ALL).await, []);
}
