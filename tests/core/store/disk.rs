//! A disk that is locked, full or broken.
//!
//! A limit on the size of files stands for a full disk: what would grow a file beyond it fails. It holds for a whole
//! process, so such a test runs once more in a process of its own. A disk that writes and then fails to flush is in
//! `flush.rs`.

use berth::limits::STORE_GROUP_MAX;
use berth::model::LeaseRecord;
use berth::store::{CommitError, OpenError};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use super::{Database, Open, alone, answer, block_on, granted, leases, released, within_bound};
use crate::sample;

/// No file of this process grows beyond `bytes` while it lives.
pub(super) struct Full;

impl Full {
    pub(super) fn at(bytes: u64) -> Self {
        // The signal that comes with such a write would end the process; a handler lets the write fail instead.
        let _ignored = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum }).unwrap();
        Self
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
        setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
    }
}

fn lease(number: usize) -> LeaseRecord {
    sample::lease(&format!("l{number}"), &format!("board-{number}"), 1)
}

/// Commits until the log is larger than the database will be, so that a limit on the log leaves the rest alone.
pub(super) async fn filled(open: &Open, count: usize) {
    for number in 0..count {
        open.commit(vec![granted(&lease(number))]).await.unwrap();
    }
}

#[tokio::test]
async fn a_batch_that_meets_a_foreign_lock_has_not_happened_and_the_store_goes_on_when_it_is_gone() {
    let database = Database::new();
    let open = database.open();
    let foreign = database.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = open.commit(vec![granted(&lease(1))]).await;
    assert!(matches!(&refused, Err(CommitError::Disk(why)) if why.contains("locked")), "{refused:?}");
    foreign.execute_batch("ROLLBACK").unwrap();
    open.commit(vec![granted(&lease(2))]).await.unwrap();
    open.close().await;
    assert_eq!(leases(&database.open().loaded), ["l2"]);
}

#[tokio::test]
async fn a_foreign_reader_holds_nobody_up() {
    let database = Database::new();
    let open = database.open();
    let foreign = database.foreign();
    foreign.execute_batch("BEGIN; SELECT * FROM lease").unwrap();
    open.commit(vec![granted(&lease(1))]).await.unwrap();
    let seen: i64 = foreign.query_row("SELECT count(*) FROM lease", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 0, "and sees the file as it was");
}

/// A transaction that is larger than SQLite's cache is written while it runs. When that fails SQLite takes the whole of
/// it back, the savepoints of the others included: they are written again without the one that met it.
#[test]
fn a_batch_that_fills_the_disk_fails_alone_and_the_rest_of_its_group_is_committed() {
    if !alone("disk::a_batch_that_fills_the_disk_fails_alone_and_the_rest_of_its_group_is_committed") {
        return;
    }
    block_on(async {
        let database = Database::new();
        let open = database.open();
        let long = "x".repeat(512);
        let large = (0..3_000).map(|number| {
            let id = format!("large-{number}");
            granted(&LeaseRecord { note: Some(sample::text(&long)), ..sample::lease(&id, &id, 1) })
        });
        let full = Full::at(1 << 20);
        let before = open.queue(vec![granted(&lease(1))]);
        let too_large = open.queue(large.collect());
        let after = open.queue(vec![granted(&lease(2))]);
        let refused = answer(too_large).await;
        assert!(matches!(refused, Err(CommitError::Disk(_))), "{refused:?}");
        answer(before).await.unwrap();
        answer(after).await.unwrap();
        open.commit(vec![released(&lease(1))]).await.unwrap();
        drop(full);
        open.close().await;
        assert_eq!(leases(&database.open().loaded), ["l2"]);
    });
}

#[test]
fn a_commit_that_fails_and_is_not_found_afterwards_has_not_happened_and_the_store_goes_on() {
    if !alone("disk::a_commit_that_fails_and_is_not_found_afterwards_has_not_happened_and_the_store_goes_on") {
        return;
    }
    block_on(async {
        let database = Database::new();
        let open = database.open();
        filled(&open, 40).await;
        let log = std::fs::metadata(database.folder.path().join("berth.db-wal")).unwrap().len();
        let full = Full::at(log);
        let first = open.queue(vec![granted(&lease(101))]);
        let second = open.queue(vec![released(&lease(1))]);
        for refused in [answer(first).await, answer(second).await] {
            assert!(matches!(refused, Err(CommitError::Disk(_))), "{refused:?}");
        }
        // Reopening has folded the log into the database, so there is room again.
        open.commit(vec![granted(&lease(102))]).await.unwrap();
        drop(full);
        open.commit(vec![granted(&lease(103))]).await.unwrap();
        open.close().await;
        let loaded = database.open().loaded;
        let found = leases(&loaded);
        assert_eq!(found.len(), 42);
        for (id, there) in [("l1", true), ("l101", false), ("l102", true), ("l103", true)] {
            assert_eq!(found.contains(&id), there, "{id}");
        }
    });
}

#[test]
fn a_store_that_cannot_learn_what_became_of_a_commit_answers_nobody_and_ends() {
    if !alone("disk::a_store_that_cannot_learn_what_became_of_a_commit_answers_nobody_and_ends") {
        return;
    }
    block_on(async {
        let database = Database::new();
        let open = database.open();
        filled(&open, 3).await;
        let full = Full::at(0);
        let doubtful = open.queue(vec![granted(&lease(101))]);
        within_bound(doubtful).await.expect_err("nobody knows, so nobody is told");
        let ended = within_bound(open.failed.wait()).await;
        assert!(matches!(ended.as_ref().map_err(|error| &**error), Err(OpenError::Sqlite { .. })), "{ended:?}");
        drop(full);
        // What was answered is there at the next start.
        let again = database.open();
        assert_eq!(leases(&again.loaded), ["l0", "l1", "l2"]);
        again.commit(vec![granted(&lease(102))]).await.unwrap();
    });
}

const _: () = assert!(STORE_GROUP_MAX > 3, "three batches are one group");
