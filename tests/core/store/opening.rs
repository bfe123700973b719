//! What a start finds: a new file, an older one, a newer one, a broken one.

use berth::model::{Fence, Mode};
use berth::store::{OpenError, SCHEMA_VERSION};

use super::{Database, granted, leases};
use crate::sample;

/// A file that schema version 1 has written: two leases, their requests, and a resource that is idle.
const VERSION_1: &str = include_str!("../fixtures/version_1.sql");

fn version_1() -> Database {
    let database = Database::new();
    database.foreign().execute_batch(VERSION_1).unwrap();
    database
}

#[tokio::test]
async fn a_file_of_the_first_version_loads_its_leases_as_not_chosen_by_their_requester() {
    let database = version_1();
    let open = database.open();
    let resources: Vec<_> = open.loaded.resources.iter().map(|resource| resource.id.as_str()).collect();
    assert_eq!(resources, ["bench-1", "board-1", "pixel-8-a"]);
    assert_eq!(leases(&open.loaded), ["lse_0d7e6c1a-8a3e-4a57-9d0e-6f1f2d9b1c11", "ad-7f3a"]);
    for (lease, _) in open.loaded.resources.iter().flat_map(|resource| &resource.leases) {
        assert!(!lease.id_chosen_by_requester, "{}", lease.id);
    }
    for request in &open.loaded.requests {
        assert!(!request.lease.id_chosen_by_requester, "{}", request.id);
    }
    let (lease, expires_at) = &open.loaded.resources[2].leases[0];
    assert_eq!(lease.fence, Fence(1_767_225_600_001));
    assert_eq!(lease.mode, Mode::Exclusive);
    assert_eq!(lease.holder.to_string(), "gw:gateway:ci/job-17");
    assert_eq!(lease.idempotency_key, Some(sample::text("k-1")));
    assert_eq!(*expires_at, sample::wall(900_000));
    assert_eq!(open.loaded.requests.len(), 3);
    assert_eq!(open.loaded.requests[0].ended_at, Some(sample::wall(0)));

    // From now on it is a file of today.
    open.commit(vec![granted(&sample::lease("mine", "board-1", 1_767_225_600_500))]).await.unwrap();
    open.close().await;
    let open = database.open();
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
async fn a_file_of_a_newer_version_is_refused_by_its_number_and_left_alone() {
    let database = version_1();
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

    let database = version_1();
    database.foreign().execute("UPDATE lease SET holder = 'CI Job' WHERE id = 'ad-7f3a'", []).unwrap();
    let words = database.open_at(sample::at(0)).err().expect("it is refused").to_string();
    for part in ["berth.db", "`lease`", "ad-7f3a", "CI Job"] {
        assert!(words.contains(part), "{part} in {words}");
    }
}
