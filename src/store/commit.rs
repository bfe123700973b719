//! The store's front: a bounded queue in front of one writer.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::load::{Loaded, StoredResource};
use super::writer::Writer;
use super::{CommitError, OpenError};
use crate::admission::resource::Change;
use crate::clock::Now;
use crate::limits::{STORE_GROUP_MAX, STORE_QUEUE_MAX};
use crate::model::{RequestId, ResourceId};

/// The changes of one resource that become durable together or not at all.
pub struct Batch {
    /// Whose.
    pub resource: ResourceId,
    /// Which life of that resource's actor sends it; a closed one's batches are refused.
    pub activation: u64,
    /// In this order.
    pub changes: Vec<Change>,
    /// Called once, when the outcome is certain; must not block.
    pub done: Box<dyn FnOnce(Result<(), CommitError>) + Send>,
}

impl Batch {
    pub(super) fn answer(self, result: Result<(), CommitError>) {
        if let Err(error) = &result {
            tracing::error!(resource = %self.resource, %error, "a batch was not committed");
        }
        (self.done)(result);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("resource", &self.resource)
            .field("activation", &self.activation)
            .field("changes", &self.changes)
            .finish_non_exhaustive()
    }
}

type LoadDone = Box<dyn FnOnce(Result<StoredResource, OpenError>) + Send>;

pub(super) enum Job {
    Commit(Batch),
    Close { resource: ResourceId, activation: u64, done: LoadDone },
    Forget(Vec<RequestId>),
}

/// A handle to the writer. When the last one is dropped the writer ends after what is queued.
#[derive(Clone, Debug)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
}

/// Resolves when the writer is gone: orderly after the last handle was dropped, or because the outcome of a commit
/// could not be learned. In the second case the node must exit without answering anybody.
#[derive(Debug, Clone)]
pub struct StoreEnd(Shared<BoxFuture<'static, Result<(), Arc<OpenError>>>>);

impl StoreEnd {
    fn of(task: JoinHandle<Result<(), OpenError>>) -> Self {
        let end = async { task.await.unwrap_or(Err(OpenError::Stopped)).map_err(Arc::new) };
        Self(end.boxed().shared())
    }

    /// Waits for the end.
    pub async fn wait(self) -> Result<(), Arc<OpenError>> {
        self.0.await
    }
}

impl Store {
    /// Opens the database at `path`, or makes it, and reads what it holds. Blocks on the disk: for start-up only.
    pub fn open(path: &Path, now: Now) -> Result<(Self, Loaded, StoreEnd), OpenError> {
        let (writer, loaded) = Writer::open(path, now)?;
        let (jobs, queue) = mpsc::channel(STORE_QUEUE_MAX);
        let task = tokio::spawn(write_until_closed(writer, queue));
        Ok((Self { jobs }, loaded, StoreEnd::of(task)))
    }

    /// Queues a batch. Its `done` is called exactly once, here when the queue is full, else by the writer, unless
    /// the outcome stays unknown: then it is dropped uncalled and the node exits.
    pub fn commit(&self, batch: Batch) {
        if let Err(refused) = self.jobs.try_send(Job::Commit(batch)) {
            let (mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job)) = refused;
            if let Job::Commit(batch) = job {
                batch.answer(Err(CommitError::Full));
            }
        }
    }

    /// Refuses every later batch of `activation` and of those before it, then reads the resource's rows.
    pub fn close(
        &self,
        resource: ResourceId,
        activation: u64,
        done: impl FnOnce(Result<StoredResource, OpenError>) + Send + 'static,
    ) {
        let job = Job::Close { resource, activation, done: Box::new(done) };
        if let Err(refused) = self.jobs.try_send(job) {
            let (mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job)) = refused;
            if let Job::Close { done, .. } = job {
                done(Err(OpenError::Stopped));
            }
        }
    }

    /// Forgets settled requests whose retention is over. Those that do not fit the queue are forgotten at the
    /// next start.
    pub fn forget(&self, requests: Vec<RequestId>) {
        let _ = self.jobs.try_send(Job::Forget(requests));
    }
}

/// Takes what is queued, up to a group, and lets the writer carry it out on a thread that may block. There is no
/// artificial delay: a group is what has come in during the last flush.
async fn write_until_closed(mut writer: Writer, mut queue: mpsc::Receiver<Job>) -> Result<(), OpenError> {
    let mut jobs = Vec::new();
    while queue.recv_many(&mut jobs, STORE_GROUP_MAX).await > 0 {
        let group = std::mem::take(&mut jobs);
        let task = tokio::task::spawn_blocking(move || {
            let result = writer.run(group);
            (writer, result)
        });
        let (returned, result) = task.await.map_err(|_| OpenError::Stopped)?;
        writer = returned;
        result?;
    }
    Ok(())
}
