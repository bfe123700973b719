//! The store, with a real SQLite in a folder of its own for each test.

mod activations;
mod calendar;
mod constraints;
mod disk;
mod events;
mod flush;
mod groups;
mod journal;
mod opening;
mod reload;
mod requests;
mod waiting_rooms;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use berth::admission::resource::{Change, EndReason};
use berth::admission::{Attendance, Joined, Rank, Waiter};
use berth::clock::Now;
use berth::model::{Event, Fence, LeaseRecord};
use berth::store::{Batch, CommitError, EventLog, Invariants, Loaded, OpenError, Store, StoreEnd, StoredResource};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::sample;

/// Longer than anything here takes, the five seconds of a foreign lock included.
const BOUND: Duration = Duration::from_secs(30);

/// The file of one worker.
struct Database {
    folder: TempDir,
}

/// An open store.
struct Open {
    store: Store,
    events: EventLog,
    invariants: Invariants,
    loaded: Loaded,
    failed: StoreEnd,
}

type Answer = oneshot::Receiver<Result<(), CommitError>>;

impl Database {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("berth.db")
    }

    fn open(&self) -> Open {
        self.open_at(sample::at(0)).unwrap()
    }

    fn open_at(&self, now: Now) -> Result<Open, OpenError> {
        Open::at(&self.path(), now)
    }

    /// Ends a store and opens its file again.
    async fn reopened(&self, open: Open) -> Open {
        open.close().await;
        self.open()
    }

    /// Another process's look at the file.
    fn foreign(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }

    /// How many groups have been committed.
    fn groups(&self) -> i64 {
        self.foreign().query_row("SELECT last_group FROM node", [], |row| row.get(0)).unwrap()
    }
}

impl Open {
    fn at(file: &Path, now: Now) -> Result<Self, OpenError> {
        let (store, events, invariants, loaded, failed) = Store::open(file, now)?;
        Ok(Self { store, events, invariants, loaded, failed })
    }

    /// Queues changes of a lease, in the first activation of its resource. What is queued before the next `await` is
    /// one group.
    fn queue(&self, changes: Vec<Change>) -> Answer {
        self.queue_of(1, changes)
    }

    fn queue_of(&self, activation: u64, changes: Vec<Change>) -> Answer {
        let resource = lease_of(&changes[0]).resource_id.clone();
        self.queue_batch(Some(resource.as_str()), activation, changes, vec![], sample::at(0))
    }

    fn queue_batch(
        &self,
        resource: Option<&str>,
        activation: u64,
        changes: Vec<Change>,
        events: Vec<Event>,
        now: Now,
    ) -> Answer {
        let (done, answer) = oneshot::channel();
        let done = Box::new(move |result| drop(done.send(result)));
        let resource = resource.map(sample::text);
        self.store.commit(Batch { resource, activation, changes, events, now, done });
        answer
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        answer(self.queue(changes)).await
    }

    /// Commits changes of `resource`, or of the desk, as decided `ms` after the beginning.
    async fn commit_at(&self, ms: u64, resource: Option<&str>, changes: Vec<Change>) -> Result<(), CommitError> {
        answer(self.queue_batch(resource, 1, changes, vec![], sample::at(ms))).await
    }

    /// Ends the store and waits until its file is closed.
    async fn close(self) {
        drop(self.store);
        within_bound(self.failed.wait()).await.unwrap();
    }
}

async fn answer(answer: Answer) -> Result<(), CommitError> {
    within_bound(answer).await.expect("a batch is answered")
}

async fn within_bound<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.expect("in time")
}

fn lease_of(change: &Change) -> &LeaseRecord {
    match change {
        Change::Granted { lease, .. } | Change::Renewed { lease, .. } | Change::Ended { lease, .. } => lease,
        other => panic!("no lease in {other:?}"),
    }
}

/// The grant of a lease, at the beginning.
fn granted(lease: &LeaseRecord) -> Change {
    let now = sample::at(0);
    let deadline = now.run + lease.ttl;
    Change::Granted { lease: lease.clone(), deadline, last_end: None, expires_at: now.wall_at(deadline) }
}

/// Its release a second later.
fn released(lease: &LeaseRecord) -> Change {
    Change::Ended { lease: lease.clone(), reason: EndReason::Explicit, at: sample::wall(1_000) }
}

/// The same lease under another fence.
fn with_fence(lease: &LeaseRecord, fence: u64) -> LeaseRecord {
    LeaseRecord { fence: Fence(fence), ..lease.clone() }
}

/// Somebody who waits for a resource by its name, attended; `number` tells apart.
fn waiter(number: usize, holder: &str, resource: &str) -> Waiter {
    let ask = sample::ask(sample::request(number), holder, resource);
    let joined = Joined { run: 7, at_us: 1_000 * number as i64, arrival: number as u64 };
    Waiter {
        rank: Rank::new(ask.priority, joined, None),
        proposal: ask.proposal(ask.fingerprint()),
        joined_at: sample::wall(number as u64),
        attendance: Attendance::Attended,
        returns: None,
        restored: false,
        not_on: None,
    }
}

/// The same, unattended.
fn unattended(waiter: Waiter) -> Waiter {
    Waiter { attendance: Attendance::Unattended { last_seen: sample::run(0) }, ..waiter }
}

/// The ids of the leases that a store has found.
fn leases(loaded: &Loaded) -> Vec<&str> {
    loaded.resources.iter().flat_map(|resource| &resource.leases).map(|(lease, _)| lease.id.as_str()).collect()
}

/// A resource of which nothing is stored but its row.
fn bare(id: &str) -> StoredResource {
    StoredResource {
        id: sample::text(id),
        fence: Fence(0),
        idle_since: None,
        drained: false,
        leases: vec![],
        waiters: vec![],
        reserved: vec![],
        bookings: vec![],
        holds: vec![],
        holds_paused: false,
        device: Default::default(),
    }
}

/// Set for a test that runs in a process of its own.
const ALONE: &str = "BERTH_TEST_ALONE";

/// True in a process in which only this test runs; elsewhere it starts one and waits until it has passed.
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let run = own_process(test).output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && said.contains("1 passed"), "{said}\n{wrong}");
    false
}

/// This test binary, running nothing but `test`.
fn own_process(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("store::{test}"), "--nocapture"]).env(ALONE, "1").stdin(Stdio::null());
    command
}

/// Compiles a library of the fixtures that a process can have preloaded, with what links Rust programs too.
fn preloadable(name: &str, folder: &Path) -> PathBuf {
    let library = folder.join(name).with_extension("so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/fixtures").join(name).with_extension("c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("cc is there").success());
    library
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}
