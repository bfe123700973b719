//! A gateway's history, on disk: its own events and those that its workers have relayed (SPEC §9, §10). One SQLite
//! database, one writer, and no answer that waits for it.
//!
//! What is appended is durable after the next group, at most a second later where the disk goes on. A group that cannot be
//! written is tried again, from 100 ms doubling to 5 s, and meanwhile what comes waits in its order: nothing is lost
//! silently. When the queue is full the gateway is told so and ends, because its disk is dead.
//!
//! An event is stored once by its id, so a group whose commit has an unknown outcome is simply written again, and so is a
//! page that a worker sends twice. Of one lease request the gateway's own `lease.requested` is stored once and its end,
//! `request.granted` or `lease.rejected`, once.

mod row;
mod writer;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use self::writer::JournalWriter;
use super::commit::{Prune, StoreEnd};
use super::{EventLog, OpenError};
use crate::clock::Now;
use crate::limits::{JOURNAL_GROUP_MAX, JOURNAL_QUEUE_MAX};
use crate::model::{Event, EventId, EventKind, LeaseId, NodeName, Principal, RequestId, Requester};

/// At most one group in this time: the disk is shared with workers of the same machine.
const PACE: Duration = Duration::from_millis(20);
/// The pause after the first group that could not be written, and the longest.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_LONGEST: Duration = Duration::from_secs(5);

/// A handle to append with. When the last one is dropped the writer ends after what is queued.
#[derive(Debug, Clone)]
pub struct Journal {
    jobs: mpsc::Sender<Job>,
}

/// A journal that has been opened.
#[derive(Debug)]
pub struct OpenedJournal {
    /// To append with.
    pub journal: Journal,
    /// To read with.
    pub events: EventLog,
    /// How far each worker's log is stored.
    pub relays: Relays,
    /// What former runs have left.
    pub past: Past,
    /// Resolves when the writer is gone.
    pub end: StoreEnd,
}

/// What former runs of a gateway have left in its journal.
#[derive(Debug)]
pub struct Past {
    /// Which run of the gateway this one is: one more than the last, and at least the Unix time in ms.
    pub incarnation: u64,
    /// The lease requests whose end is not told.
    pub open: Vec<OpenRequest>,
    /// When the latest of the gateway's own events happened; none in a new journal.
    pub last_own: Option<Timestamp>,
}

/// A lease request whose end is not told.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenRequest {
    /// Which.
    pub id: RequestId,
    /// Whose.
    pub requester: Requester,
    /// What it asks for, as its events say it.
    pub spec: Map<String, Value>,
    /// Where it was sent last, if it was.
    pub worker: Option<NodeName>,
}

/// An event of a worker's, in the gateway's names.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayedEvent {
    /// Its name, the same in the worker's log.
    pub id: EventId,
    /// Its number there; at most `i64::MAX`.
    pub seq: u64,
    /// When it happened, as the worker says.
    pub at: Timestamp,
    /// What kind of thing.
    pub kind: EventKind,
    /// The principal of this gateway's that it is about.
    pub owner: Option<Principal>,
    /// The lease that it is about.
    pub lease: Option<LeaseId>,
    /// The facts.
    pub payload: Map<String, Value>,
}

/// A piece of a worker's log.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayedPage {
    /// Whose.
    pub worker: NodeName,
    /// The number up to which this piece goes, also where the last events are of no interest here.
    pub upto: u64,
    /// What is to be stored of it.
    pub events: Vec<RelayedEvent>,
}

/// The journal takes no more: its queue is full, or its writer is gone. The node ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the history cannot be written: {JOURNAL_QUEUE_MAX} events wait for the disk, or its writer is gone")]
pub struct JournalFull;

/// How far each worker's log is stored; what it says is on disk.
#[derive(Debug, Clone, Default)]
pub struct Relays(Arc<Mutex<HashMap<NodeName, u64>>>);

impl Relays {
    /// The number of the last of this worker's events that are stored; none when nothing of it is.
    pub fn after(&self, worker: &NodeName) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(worker).copied()
    }

    fn stored(&self, worker: &NodeName, upto: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(worker.clone(), upto);
    }
}

type PageDone = Box<dyn FnOnce(u64) + Send>;

enum Job {
    Own { id: EventId, at: Timestamp, event: Box<Event>, if_untold: bool },
    Page { page: RelayedPage, at: Timestamp, done: PageDone },
    Prune(Prune),
}

impl Journal {
    /// Opens the database at `path`, or makes it, counts the run and reads what is open. Blocks on the disk: for start-up
    /// only.
    ///
    /// # Errors
    /// As of a worker's database.
    pub fn open(path: &Path, now: Now) -> Result<OpenedJournal, OpenError> {
        let (writer, events, relays, past) = JournalWriter::open(path, now)?;
        let (jobs, queue) = mpsc::channel(JOURNAL_QUEUE_MAX);
        let task = tokio::spawn(write_until_closed(writer, queue, relays.clone()));
        Ok(OpenedJournal { journal: Self { jobs }, events, relays, past, end: StoreEnd::of(task) })
    }

    /// Appends one of the gateway's own events, which happened at `at`.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn append(&self, event: Event, at: Timestamp) -> Result<(), JournalFull> {
        self.own(event, at, false)
    }

    /// The same for the end of a lease request that may have been told before: then nothing is stored.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn append_if_untold(&self, event: Event, at: Timestamp) -> Result<(), JournalFull> {
        self.own(event, at, true)
    }

    fn own(&self, event: Event, at: Timestamp, if_untold: bool) -> Result<(), JournalFull> {
        self.queue(Job::Own { id: EventId::generate(), at, event: Box::new(event), if_untold })
    }

    /// Stores a piece of a worker's log that came at `at`. `done` is called with the number up to which it goes once that is
    /// durable.
    ///
    /// # Errors
    /// When it was not taken; `done` is dropped uncalled.
    pub fn relay(
        &self,
        page: RelayedPage,
        at: Timestamp,
        done: impl FnOnce(u64) + Send + 'static,
    ) -> Result<(), JournalFull> {
        self.queue(Job::Page { page, at, done: Box::new(done) })
    }

    /// Deletes what was stored before `before`, and all but the newest `count_max`; the oldest first and at most 10 000. To
    /// be called again and again.
    ///
    /// # Errors
    /// When it was not taken.
    pub fn prune(&self, before: Timestamp, count_max: u64) -> Result<(), JournalFull> {
        self.queue(Job::Prune(Prune { before, count_max }))
    }

    fn queue(&self, job: Job) -> Result<(), JournalFull> {
        self.jobs.try_send(job).map_err(|_| JournalFull)
    }
}

/// Takes what is queued, up to a group, and writes it on a thread that may block, as often as it takes.
async fn write_until_closed(
    mut writer: JournalWriter,
    mut queue: mpsc::Receiver<Job>,
    relays: Relays,
) -> Result<(), OpenError> {
    let mut jobs = Vec::new();
    while queue.recv_many(&mut jobs, JOURNAL_GROUP_MAX).await > 0 {
        let mut pause = AGAIN_FIRST;
        loop {
            let group = std::mem::take(&mut jobs);
            let task = tokio::task::spawn_blocking(move || {
                let result = writer.write(&group);
                (writer, group, result)
            });
            let result;
            (writer, jobs, result) = task.await.map_err(|_| OpenError::Stopped)?;
            let Err(error) = result else { break };
            // Nobody is left who could be told later.
            if queue.is_closed() {
                return Err(error);
            }
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%error, cause, waiting = queue.len() + jobs.len(), "the history is not written; tried again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_LONGEST);
        }
        for job in jobs.drain(..) {
            if let Job::Page { page, done, .. } = job {
                relays.stored(&page.worker, page.upto);
                done(page.upto);
            }
        }
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}
