//! The store, with a real SQLite in a folder of its own for each test.

mod activations;
mod constraints;
mod disk;
mod groups;
mod opening;
mod reload;

use std::path::PathBuf;
use std::time::Duration;

use berth::admission::resource::{Change, EndReason};
use berth::clock::Now;
use berth::model::{Fence, LeaseRecord};
use berth::store::{Batch, CommitError, Loaded, OpenError, Store, StoreEnd};
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
        let (store, loaded, failed) = Store::open(&self.path(), now)?;
        Ok(Open { store, loaded, failed })
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
    /// Queues a batch of the first activation of its resource. What is queued before the next `await` is one group.
    fn queue(&self, changes: Vec<Change>) -> Answer {
        self.queue_of(1, changes)
    }

    fn queue_of(&self, activation: u64, changes: Vec<Change>) -> Answer {
        let (done, answer) = oneshot::channel();
        let resource = lease_of(&changes[0]).resource_id.clone();
        let done = Box::new(move |result| drop(done.send(result)));
        self.store.commit(Batch { resource, activation, changes, done });
        answer
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        answer(self.queue(changes)).await
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
    let (Change::Granted { lease, .. } | Change::Renewed { lease, .. } | Change::Ended { lease, .. }) = change;
    lease
}

/// The grant of a lease, at the beginning.
fn granted(lease: &LeaseRecord) -> Change {
    let now = sample::at(0);
    let deadline = now.run + lease.ttl;
    Change::Granted { lease: lease.clone(), deadline, expires_at: now.wall_at(deadline) }
}

/// Its release a second later.
fn released(lease: &LeaseRecord) -> Change {
    Change::Ended { lease: lease.clone(), reason: EndReason::Released, at: sample::wall(1_000) }
}

/// The same lease under another fence.
fn with_fence(lease: &LeaseRecord, fence: u64) -> LeaseRecord {
    LeaseRecord { fence: Fence(fence), ..lease.clone() }
}

/// The ids of the leases that a store has found.
fn leases(loaded: &Loaded) -> Vec<&str> {
    loaded.resources.iter().flat_map(|resource| &resource.leases).map(|(lease, _)| lease.id.as_str()).collect()
}
