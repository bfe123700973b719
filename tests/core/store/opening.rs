//! What a start finds: a new file, an older one, a newer one, a broken one.

use std::time::Duration;

use berth::admission::resource::{Change, EndReason};
use berth::model::{EventKind, Fence, Mode};
use berth::store::StoredOutcome::Granted;
use berth::store::{EventFilter, Loaded, OpenError, SCHEMA_VERSION};

use super::{Database, calendar, granted, leases, released};
use crate::sample;

/// A file that schema version 1 has written: two leases, their requests, and a resource that is idle.
const VERSION_1: &str = include_str!("../fixtures/version_1.sql");

/// The same of schema version 2; one of the leases has an id that its requester chose.
const VERSION_2: &str = include_str!("../fixtures/version_2.sql");

/// The same of schema version 3; one more resource is drained, waited for and kept for somebody, and two events are told.
const VERSION_3: &str = include_str!("../fixtures/version_3.sql");

/// The same of schema version 4, whose holds are paused.
const VERSION_4: &str = include_str!("../fixtures/version_4.sql");

fn written_by(version: &str) -> Database {
    let database = Database::new();
    database.foreign().execute_batch(version).unwrap();
    database
}

/// What is the same in the first two.
fn assert_migrated(loaded: &Loaded) {
    let resources: Vec<_> = loaded.resources.iter().map(|resource| resource.id.as_str()).collect();
    assert_eq!(resources, ["bench-1", "board-1", "pixel-8-a"]);
    assert_eq!(leases(loaded), ["lse_0d7e6c1a-8a3e-4a57-9d0e-6f1f2d9b1c11", "ad-7f3a"]);
    for resource in &loaded.resources {
        assert!(!resource.drained && resource.waiters.is_empty() && resource.reserved.is_empty(), "{}", resource.id);
    }
    let (lease, expires_at) = &loaded.resources[2].leases[0];
    assert_eq!(lease.fence, Fence(1_767_225_600_001));
    assert_eq!(lease.mode, Mode::Exclusive);
    assert_eq!(lease.holder.to_string(), "gw:gateway:ci/job-17");
    assert_eq!(lease.idempotency_key, Some(sample::text("k-1")));
    assert_eq!(*expires_at, sample::wall(900_000));

    let [over, keyed, shared] = loaded.requests.as_slice() else { panic!("{:?}", loaded.requests) };
    // The lease lasted from a second before the beginning to the beginning, and why it ended was not written down.
    assert_eq!(over.created_at.as_second(), sample::wall(0).as_second() - 1);
    assert!(matches!(over.outcome, Granted { ended: Some((at, None)), .. } if at == sample::wall(0)), "{over:?}");
    assert_eq!((&keyed.key, keyed.created_at), (&Some(sample::text("k-1")), sample::wall(0)));
    let as_granted = Granted { lease: lease.clone(), expires_at: *expires_at, ended: None };
    assert_eq!(keyed.outcome, as_granted);
    assert_eq!((&shared.key, shared.created_at), (&None, sample::wall(500)));
    assert!(matches!(shared.outcome, Granted { ended: None, .. }), "{shared:?}");
    assert!(loaded.requests.iter().all(|request| request.place.is_none()));
}

#[tokio::test]
async fn a_file_of_the_first_version_loads_its_leases_as_not_chosen_by_their_requester() {
    let database = written_by(VERSION_1);
    let open = database.open();
    assert_migrated(&open.loaded);
    for (lease, _) in open.loaded.resources.iter().flat_map(|resource| &resource.leases) {
        assert!(!lease.id_chosen_by_requester, "{}", lease.id);
    }
    for request in &open.loaded.requests {
        let Granted { lease, .. } = &request.outcome else { panic!("{request:?}") };
        assert!(!lease.id_chosen_by_requester, "{}", request.id);
    }

    // From now on it is a file of today.
    open.commit(vec![granted(&sample::lease("mine", "board-1", 1_767_225_600_500))]).await.unwrap();
    let open = database.reopened(open).await;
    let mine = open
        .loaded
        .resources
        .iter()
        .flat_map(|resource| &resource.leases)
        .find(|(lease, _)| lease.id.as_str() == "mine");
    assert!(mine.unwrap().0.id_chosen_by_requester);
    let version: i64 = database.foreign().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, SCHEMA_VERSION);
}

#[tokio::test]
async fn a_file_of_the_second_version_still_knows_whose_lease_id_was_chosen() {
    let database = written_by(VERSION_2);
    let open = database.open();
    assert_migrated(&open.loaded);
    let chosen = open.loaded.resources.iter().flat_map(|resource| &resource.leases);
    let chosen: Vec<_> = chosen.map(|(lease, _)| lease.id_chosen_by_requester).collect();
    assert_eq!(chosen, [false, true]);
}

#[tokio::test]
async fn a_file_of_the_third_version_keeps_what_it_has_and_has_an_empty_calendar() {
    let database = written_by(VERSION_3);
    let open = database.open();
    let loaded = &open.loaded;
    assert_eq!((loaded.holds_paused.as_deref(), loaded.violations.as_slice()), (None, &[][..]));
    assert_eq!(leases(loaded), ["lse_0d7e6c1a-8a3e-4a57-9d0e-6f1f2d9b1c11", "ad-7f3a"]);
    assert!(loaded.resources.iter().flat_map(|resource| &resource.leases).all(|(lease, _)| lease.asked_ttl.is_none()));
    for resource in &loaded.resources {
        assert!(resource.bookings.is_empty() && resource.holds.is_empty() && !resource.holds_paused, "{}", resource.id);
        assert_eq!(resource.drained, resource.id.as_str() == "rack-2");
    }
    let rack = &loaded.resources[3];
    assert_eq!(rack.waiters.iter().map(|waiter| waiter.holder.to_string()).collect::<Vec<_>>(), ["ops"]);
    assert_eq!(rack.reserved, [(sample::text("ci/job-18"), Mode::Shared, Duration::from_secs(30))]);
    assert_eq!(loaded.requests.len(), 3);

    // From now on it is a file of today.
    let booking = calendar::booking(1, calendar::window(10, 20));
    open.commit_at(0, Some(calendar::BENCH), vec![calendar::booked(&booking)]).await.unwrap();
    let all = EventFilter { private: true, ..EventFilter::default() };
    let told = open.events.read(0, 10, &all).await.unwrap();
    let told: Vec<_> = told.iter().map(|event| (event.seq - 1_767_225_600_000, event.kind)).collect();
    assert_eq!(told, [(1, EventKind::LeaseGranted), (2, EventKind::WaiterJoined), (3, EventKind::BookingCreated)]);
    let loaded = database.reopened(open).await.loaded;
    let bench = loaded.resources.iter().find(|resource| resource.id.as_str() == calendar::BENCH).unwrap();
    assert_eq!((bench.bookings.as_slice(), bench.leases.len()), (&[booking][..], 1));
}

#[tokio::test]
async fn a_file_of_the_fourth_version_is_of_a_worker_that_is_not_drained_and_keeps_a_drain_from_now_on() {
    let database = written_by(VERSION_4);
    let mut open = database.open();
    assert_eq!((open.loaded.drained, open.loaded.holds_paused.as_deref()), (false, Some("admin")));
    assert_eq!(open.loaded.resources.iter().filter(|resource| resource.drained).count(), 1);
    for drained in [true, true, false] {
        open.commit_at(0, None, vec![Change::NodeDrained(drained)]).await.unwrap();
        open = database.reopened(open).await;
        assert_eq!(open.loaded.drained, drained);
        assert_eq!(open.loaded.resources.iter().filter(|resource| resource.drained).count(), 1, "their own stays");
    }
}

#[tokio::test]
async fn an_old_file_goes_on_as_if_it_had_always_been_of_today() {
    for version in [VERSION_1, VERSION_2] {
        let database = written_by(version);
        let open = database.open();
        let held = open.loaded.resources[2].leases[0].0.clone();
        open.commit(vec![released(&held)]).await.unwrap();
        let over = open.loaded.requests[0].id.clone();
        open.store.forget(vec![over.clone()]);
        let filter = EventFilter::default();
        let told = open.events.read(0, 10, &filter).await.unwrap();
        assert_eq!(told.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::LeaseReleased]);
        assert_eq!(told[0].seq, sample::wall(0).as_millisecond() as u64, "its log is new");
        let loaded = database.reopened(open).await.loaded;
        assert!(loaded.requests.iter().all(|request| request.id != over));
        let ended = loaded.requests.iter().find(|request| request.id == held.request_id).unwrap();
        let expected = Some((sample::wall(1_000), Some(EndReason::Explicit)));
        assert!(matches!(ended.outcome, Granted { ended, .. } if ended == expected), "{ended:?}");
    }
}

/// However a file came to be of today, its schema is the same.
#[tokio::test]
async fn an_old_file_has_the_schema_of_a_new_one() {
    let schema = |database: &Database| -> Vec<(String, String)> {
        let foreign = database.foreign();
        let mut select =
            foreign.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
        // SQLite's own dump is indented otherwise.
        let squeezed = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" (", "(");
        let rows = select.query_map([], |row| Ok((row.get(0)?, squeezed(row.get(1)?)))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let new = Database::new();
    new.open().close().await;
    for version in [VERSION_1, VERSION_2, VERSION_3, VERSION_4] {
        let old = written_by(version);
        old.open().close().await;
        assert_eq!(schema(&old), schema(&new));
    }
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_by_its_number_and_left_alone() {
    let database = written_by(VERSION_1);
    let newer = SCHEMA_VERSION + 1;
    database.foreign().pragma_update(None, "user_version", newer).unwrap();
    let error = database.open_at(sample::at(0)).err().expect("it is refused");
    assert!(matches!(error, OpenError::TooNew { found, known: SCHEMA_VERSION, .. } if found == newer));
    let words = error.to_string();
    assert!(words.contains(&format!("schema version {newer}")) && words.contains("berth.db"), "{words}");
    let foreign = database.foreign();
    let incarnation: i64 = foreign.query_row("SELECT incarnation FROM node", [], |row| row.get(0)).unwrap();
    assert_eq!(incarnation, 1_767_225_600_000, "as it was");
    let chosen = foreign.prepare("SELECT id_chosen_by_requester FROM lease");
    assert!(chosen.is_err(), "and no step was taken");
}

#[tokio::test]
async fn every_start_has_a_higher_incarnation_also_when_the_clock_was_set_back() {
    let database = Database::new();
    let begin = sample::wall(0).as_millisecond() as u64;
    let mut former = 0;
    for (after_ms, expected) in
        [(5_000, begin + 5_000), (5_000, begin + 5_001), (0, begin + 5_002), (9_000, begin + 9_000)]
    {
        let open = database.open_at(sample::at(after_ms)).unwrap();
        assert_eq!(open.loaded.incarnation, expected);
        assert!(open.loaded.incarnation > former);
        former = open.loaded.incarnation;
        open.close().await;
    }
}

#[tokio::test]
async fn a_start_that_does_not_read_the_file_says_which_file_and_which_row() {
    let database = Database::new();
    std::fs::write(database.path(), "this is no database, but it is longer than a header of one would be".repeat(9))
        .unwrap();
    let error = database.open_at(sample::at(0)).err().expect("it is refused");
    assert!(matches!(&error, OpenError::Sqlite { .. }) && error.to_string().contains("berth.db"), "{error}");

    let database = written_by(VERSION_1);
    database.foreign().execute("UPDATE lease SET holder = 'CI Job' WHERE id = 'ad-7f3a'", []).unwrap();
    let words = database.open_at(sample::at(0)).err().expect("it is refused").to_string();
    for part in ["berth.db", "`lease`", "ad-7f3a", "CI Job"] {
        assert!(words.contains(part), "{part} in {words}");
    }
}
