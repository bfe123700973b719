//! The one connection that writes, and what happens when a write fails.
//!
//! A group of batches is one transaction, each batch in a savepoint of its own, so that a constraint stops its own
//! batch alone. A full disk may roll back the whole transaction behind our back, savepoints included: then the
//! group starts again without the batch that met it. A COMMIT that fails has an *unknown* outcome, because frames
//! whose flush failed may come back at the next open. So the connection is closed, the database reopened and
//! checkpointed, and the group's number looked up: it is there or it is not. If even that fails the writer gives
//! up without answering, and the node exits.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, params};
use tokio::sync::{Mutex, watch};

use super::commit::{Job, Prune};
use super::connection::{Reader, connect};
use super::migrations::{SCHEMA_VERSION, migrate, version};
use super::row::{event, request};
use super::{Batch, CommitError, EventLog, Invariants, Loaded, OpenError, change, load};
use crate::admission::history::event_of;
use crate::clock::Now;
use crate::model::{RequestId, ResourceId};

#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    last_group: i64,
    /// For each resource, the first activation whose batches are still taken.
    open_from: HashMap<ResourceId, u64>,
    /// What the event log is read on, and what invariants are looked for on; closed before the database is opened anew.
    reader: Arc<Mutex<Reader>>,
    checker: Arc<Mutex<Reader>>,
    /// The number of the newest event that is durable.
    newest: watch::Sender<u64>,
}

/// What one transaction is to make durable.
#[derive(Default)]
struct Group {
    batches: Vec<Batch>,
    forgotten: Vec<RequestId>,
    prune: Option<Prune>,
}

/// How a transaction went.
enum Outcome {
    /// Each batch's own result; the group as a whole is durable.
    Committed(Vec<Result<(), CommitError>>),
    /// Nothing is durable.
    Failed(CommitError),
}

impl Writer {
    /// Opens, checkpoints and migrates the database, and counts the start.
    pub(super) fn open(path: &Path, now: Now) -> Result<(Self, EventLog, Invariants, Loaded), OpenError> {
        let failed = |source| OpenError::Sqlite { path: path.into(), source };
        let mut connection = connect(path)?;
        let found = version(&connection).map_err(failed)?;
        if found > SCHEMA_VERSION {
            return Err(OpenError::TooNew { path: path.into(), found, known: SCHEMA_VERSION });
        }
        migrate(&mut connection).map_err(failed)?;
        #[cfg(feature = "fault-double-grant")]
        super::migrations::without_the_last_guard(&connection).map_err(failed)?;
        let (last, last_group): (u64, i64) = connection
            .query_row("SELECT incarnation, last_group FROM node", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        let unix_ms = u64::try_from(now.wall.as_millisecond()).unwrap_or(0);
        let incarnation = (last + 1).max(unix_ms);
        connection.execute("UPDATE node SET incarnation = ?1", [incarnation]).map_err(failed)?;
        let newest = event::begin(&connection, unix_ms).map_err(failed)?;
        let loaded = load::everything(&connection, path, incarnation)?;
        let reader = Arc::new(Mutex::new(Reader::open(path).map_err(failed)?));
        let checker = Arc::new(Mutex::new(Reader::open(path).map_err(failed)?));
        let (newest, seen) = watch::channel(newest);
        let events = EventLog::new(reader.clone(), seen, event::COLUMNS);
        let invariants = Invariants::new(checker.clone());
        let writer =
            Self { path: path.into(), connection, last_group, open_from: HashMap::new(), reader, checker, newest };
        Ok((writer, events, invariants, loaded))
    }

    /// Carries out a group of jobs and answers them. An error means that the outcome of a commit stays unknown:
    /// nobody has been answered, and the node must exit.
    pub(super) fn run(&mut self, jobs: Vec<Job>) -> Result<(), OpenError> {
        let mut group = Group::default();
        let mut prune = None;
        let (mut afterwards, mut reads) = (Vec::new(), Vec::new());
        for job in jobs {
            match job {
                Job::Commit(batch) if self.is_closed(&batch) => batch.answer(Err(CommitError::Closed)),
                Job::Commit(batch) => group.batches.push(batch),
                Job::Read { resources, done } => reads.push((resources, done)),
                Job::Forget(requests) => group.forgotten.extend(requests),
                Job::Prune(latest) => prune = Some(latest),
                Job::Close { resource, activation, request, done } => {
                    self.open_from.insert(resource.clone(), activation + 1);
                    afterwards.push((resource, request, done));
                }
            }
        }
        if !(group.batches.is_empty() && group.forgotten.is_empty()) {
            match self.write(&group)? {
                Outcome::Committed(results) => {
                    group.batches.into_iter().zip(results).for_each(|(batch, result)| batch.answer(result));
                }
                Outcome::Failed(error) => {
                    group.batches.into_iter().for_each(|batch| batch.answer(Err(error.clone())));
                }
            }
        }
        for (resource, request, done) in afterwards {
            done(load::resource(&self.connection, &self.path, &resource, request.as_ref()));
        }
        for (resources, done) in reads {
            let rows = resources.into_iter().map(|id| load::resource_if_stored(&self.connection, &self.path, id));
            done(rows.collect());
        }
        // In a transaction of its own, after the answers: nobody is to wait for it or to fail with it.
        let prune = prune.filter(|prune| self.has_old_events(prune));
        if prune.is_some()
            && let Outcome::Failed(error) = self.write(&Group { prune, ..Group::default() })?
        {
            tracing::warn!(%error, "no events were pruned");
        }
        Ok(())
    }

    /// True when the oldest event is one to be deleted. A log that cannot be read is left alone.
    fn has_old_events(&self, prune: &Prune) -> bool {
        let upto = self.newest.borrow().saturating_sub(prune.count_max);
        let is_old = |(seq, at): (u64, i64)| at < prune.before.as_microsecond() || seq <= upto;
        event::oldest(&self.connection).is_ok_and(|oldest| oldest.is_some_and(is_old))
    }

    fn is_closed(&self, batch: &Batch) -> bool {
        let open_from = batch.resource.as_ref().and_then(|resource| self.open_from.get(resource));
        open_from.is_some_and(|first| batch.activation < *first)
    }

    fn write(&mut self, work: &Group) -> Result<Outcome, OpenError> {
        let mut results: Vec<Option<CommitError>> = vec![None; work.batches.len()];
        // Each turn of this loop settles one more batch as failed, so it ends.
        loop {
            if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
                return Ok(Outcome::Failed(refusal(&error)));
            }
            let mut rolled_back = false;
            let mut newest = None;
            for (batch, result) in work.batches.iter().zip(&mut results).filter(|(_, result)| result.is_none()) {
                match self.write_batch(batch) {
                    Ok(event) => newest = event.or(newest),
                    Err(error) => {
                        *result = Some(refusal(&error));
                        // A full disk rolls the transaction back by itself; a savepoint that cannot be left takes it
                        // along.
                        let left = self.connection.is_autocommit()
                            || self.connection.execute_batch("ROLLBACK TO batch; RELEASE batch").is_ok();
                        if self.connection.is_autocommit() || !left {
                            rolled_back = true;
                            break;
                        }
                    }
                }
            }
            if rolled_back {
                if !self.connection.is_autocommit() {
                    self.connection.execute_batch("ROLLBACK").map_err(|source| self.unusable(source))?;
                }
                continue;
            }
            let group = self.last_group + 1;
            if let Err(error) = self.finish(work, group) {
                if !self.connection.is_autocommit() {
                    self.connection.execute_batch("ROLLBACK").map_err(|source| self.unusable(source))?;
                }
                return Ok(Outcome::Failed(refusal(&error)));
            }
            if let Err(error) = self.connection.execute_batch("COMMIT") {
                tracing::error!(%error, group, "a commit failed; the database is reopened to learn its outcome");
                if !self.found_after_reopening(group)? {
                    return Ok(Outcome::Failed(CommitError::Disk(error.to_string())));
                }
            }
            self.last_group = group;
            if let Some(newest) = newest {
                self.newest.send_replace(newest);
            }
            return Ok(Outcome::Committed(results.into_iter().map(|failed| failed.map_or(Ok(()), Err)).collect()));
        }
    }

    /// Writes a batch in a savepoint, and tells the number of its last event.
    fn write_batch(&self, batch: &Batch) -> rusqlite::Result<Option<u64>> {
        let (connection, resource, at) = (&self.connection, batch.resource.as_ref(), batch.now.wall);
        let mut newest = None;
        connection.execute_batch("SAVEPOINT batch")?;
        for change in &batch.changes {
            change::write(connection, change, resource, batch.now)?;
            if let Some(event) = event_of(change, resource, batch.now) {
                newest = Some(event::append(connection, &event, at)?);
            }
        }
        for event in &batch.events {
            newest = Some(event::append(connection, event, at)?);
        }
        connection.execute_batch("RELEASE batch")?;
        Ok(newest)
    }

    fn unusable(&self, source: rusqlite::Error) -> OpenError {
        OpenError::Sqlite { path: self.path.clone(), source }
    }

    fn finish(&self, work: &Group, group: i64) -> rusqlite::Result<()> {
        for request in &work.forgotten {
            request::forget(&self.connection, request)?;
        }
        if let Some(Prune { before, count_max }) = work.prune {
            event::prune(&self.connection, before, self.newest.borrow().saturating_sub(count_max))?;
        }
        self.connection.prepare_cached("UPDATE node SET last_group = ?1")?.execute(params![group])?;
        Ok(())
    }

    /// Reopens the database and tells whether `group` is in it.
    fn found_after_reopening(&mut self, group: i64) -> Result<bool, OpenError> {
        // Every handle must be closed before the log is read anew, and none may be opened meanwhile. A reading that is
        // under way is waited for.
        let (mut reader, mut checker) = (self.reader.blocking_lock(), self.checker.blocking_lock());
        reader.close();
        checker.close();
        let placeholder = Connection::open_in_memory().map_err(|source| self.unusable(source))?;
        drop(std::mem::replace(&mut self.connection, placeholder));
        self.connection = connect(&self.path)?;
        let last = self.connection.query_row("SELECT last_group FROM node", [], |row| row.get::<_, i64>(0));
        Ok(last.map_err(|source| self.unusable(source))? >= group)
    }
}

/// A statement's error as the answer to its batch.
fn refusal(error: &rusqlite::Error) -> CommitError {
    match error {
        rusqlite::Error::StatementChangedRows(_) => {
            CommitError::Constraint("what it changes is not as it was".to_owned())
        }
        rusqlite::Error::SqliteFailure(code, message) if code.code == ErrorCode::ConstraintViolation => {
            CommitError::Constraint(message.clone().unwrap_or_else(|| error.to_string()))
        }
        _ => CommitError::Disk(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
