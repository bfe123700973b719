//! The store's front: a bounded queue in front of one writer.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, Shared};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::writer::Writer;
use super::{CommitError, EventLog, Invariants, Loaded, OpenError, StoredRequest, StoredResource};
use crate::admission::resource::Change;
use crate::clock::Now;
use crate::limits::{STORE_GROUP_MAX, STORE_QUEUE_MAX};
use crate::model::{Event, RequestId, ResourceId};

/// Changes that become durable together or not at all, with the events that tell of them.
pub struct Batch {
    /// Of which resource; none for those of the desk itself, which are always taken.
    pub resource: Option<ResourceId>,
    /// Which life of that resource's actor sends it; a closed one's batches are refused.
    pub activation: u64,
    /// In this order. Each brings its own event with it, if it leaves one.
    pub changes: Vec<Change>,
    /// What else happened, told after the events of the changes.
    pub events: Vec<Event>,
    /// When this was decided; the time of its events.
    pub now: Now,
    /// Called once, when the outcome is certain; must not block.
    pub done: Box<dyn FnOnce(Result<(), CommitError>) + Send>,
}

impl Batch {
    pub(super) fn answer(self, result: Result<(), CommitError>) {
        if let Err(error) = &result {
            let resource = self.resource.as_ref().map(tracing::field::display);
            tracing::error!(resource, %error, "a batch was not committed");
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
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

/// A resource's rows, and that of a request that was asked for with them.
pub type Reopened = (StoredResource, Option<StoredRequest>);

type LoadDone = Box<dyn FnOnce(Result<Reopened, OpenError>) + Send>;
type ReadDone = Box<dyn FnOnce(Result<Vec<StoredResource>, OpenError>) + Send>;

pub(super) enum Job {
    Commit(Batch),
    Close { resource: ResourceId, activation: u64, request: Option<RequestId>, done: LoadDone },
    Read { resources: Vec<ResourceId>, done: ReadDone },
    Forget(Vec<RequestId>),
    Prune(Prune),
}

/// Which events have been kept long enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prune {
    /// Those from before this.
    pub(super) before: Timestamp,
    /// All but the newest so many.
    pub(super) count_max: u64,
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
    pub(super) fn of(task: JoinHandle<Result<(), OpenError>>) -> Self {
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
    pub fn open(path: &Path, now: Now) -> Result<(Self, EventLog, Invariants, Loaded, StoreEnd), OpenError> {
        let (writer, events, invariants, loaded) = Writer::open(path, now)?;
        let (jobs, queue) = mpsc::channel(STORE_QUEUE_MAX);
        let task = tokio::spawn(write_until_closed(writer, queue));
        Ok((Self { jobs }, events, invariants, loaded, StoreEnd::of(task)))
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

    /// Refuses every later batch of `activation` and of those before it, then reads the resource's rows, and that of a
    /// request whose end they do not tell.
    pub fn close(
        &self,
        resource: ResourceId,
        activation: u64,
        request: Option<RequestId>,
        done: impl FnOnce(Result<Reopened, OpenError>) + Send + 'static,
    ) {
        let job = Job::Close { resource, activation, request, done: Box::new(done) };
        if let Err(refused) = self.jobs.try_send(job) {
            let (mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job)) = refused;
            if let Job::Close { done, .. } = job {
                done(Err(OpenError::Stopped));
            }
        }
    }

    /// Reads the rows of resources that have no actor, behind what is queued. Others wait for that, so it is to be asked for
    /// few at once.
    pub fn read(
        &self,
        resources: Vec<ResourceId>,
        done: impl FnOnce(Result<Vec<StoredResource>, OpenError>) + Send + 'static,
    ) {
        if let Err(refused) = self.jobs.try_send(Job::Read { resources, done: Box::new(done) }) {
            let (mpsc::error::TrySendError::Full(job) | mpsc::error::TrySendError::Closed(job)) = refused;
            if let Job::Read { done, .. } = job {
                done(Err(OpenError::Stopped));
            }
        }
    }

    /// Forgets settled requests whose retention is over, of whatever outcome. Those that do not fit the queue are
    /// forgotten at the next start.
    pub fn forget(&self, requests: Vec<RequestId>) {
        let _ = self.jobs.try_send(Job::Forget(requests));
    }

    /// Deletes the events from before `before`, and all but the newest `count_max`; the oldest first and at most
    /// 10 000, so that nobody waits long behind it. To be called again and again.
    pub fn prune_events(&self, before: Timestamp, count_max: u64) {
        let _ = self.jobs.try_send(Job::Prune(Prune { before, count_max }));
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
