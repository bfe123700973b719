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
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, params};

use super::commit::Job;
use super::load::{self, Loaded};
use super::migrations::{SCHEMA_VERSION, migrate, version};
use super::row::{delete_lease, insert_lease, update_lease};
use super::{Batch, CommitError, OpenError};
use crate::admission::resource::Change;
use crate::clock::Now;
use crate::model::{RequestId, ResourceId};

/// How long a write waits for a lock that another process holds on the database.
const BUSY_BOUND: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    last_group: i64,
    /// For each resource, the first activation whose batches are still taken.
    open_from: HashMap<ResourceId, u64>,
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
    pub(super) fn open(path: &Path, now: Now) -> Result<(Self, Loaded), OpenError> {
        let failed = |source| OpenError::Sqlite { path: path.into(), source };
        let mut connection = connect(path)?;
        let found = version(&connection).map_err(failed)?;
        if found > SCHEMA_VERSION {
            return Err(OpenError::TooNew { path: path.into(), found, known: SCHEMA_VERSION });
        }
        migrate(&mut connection).map_err(failed)?;
        let (last, last_group): (u64, i64) = connection
            .query_row("SELECT incarnation, last_group FROM node", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        let incarnation = (last + 1).max(u64::try_from(now.wall.as_millisecond()).unwrap_or(0));
        connection.execute("UPDATE node SET incarnation = ?1", [incarnation]).map_err(failed)?;
        let loaded = load::everything(&connection, path, incarnation)?;
        Ok((Self { path: path.into(), connection, last_group, open_from: HashMap::new() }, loaded))
    }

    /// Carries out a group of jobs and answers them. An error means that the outcome of a commit stays unknown:
    /// nobody has been answered, and the node must exit.
    pub(super) fn run(&mut self, jobs: Vec<Job>) -> Result<(), OpenError> {
        let mut batches = Vec::new();
        let mut forgotten = Vec::new();
        let mut afterwards = Vec::new();
        for job in jobs {
            match job {
                Job::Commit(batch) if self.is_closed(&batch) => batch.answer(Err(CommitError::Closed)),
                Job::Commit(batch) => batches.push(batch),
                Job::Forget(requests) => forgotten.extend(requests),
                Job::Close { resource, activation, done } => {
                    self.open_from.insert(resource.clone(), activation + 1);
                    afterwards.push((resource, done));
                }
            }
        }
        if !(batches.is_empty() && forgotten.is_empty()) {
            let changes: Vec<&[Change]> = batches.iter().map(|batch| batch.changes.as_slice()).collect();
            match self.write(&changes, &forgotten)? {
                Outcome::Committed(results) => {
                    batches.into_iter().zip(results).for_each(|(batch, result)| batch.answer(result));
                }
                Outcome::Failed(error) => {
                    batches.into_iter().for_each(|batch| batch.answer(Err(error.clone())));
                }
            }
        }
        for (resource, done) in afterwards {
            done(load::resource(&self.connection, &self.path, &resource));
        }
        Ok(())
    }

    fn is_closed(&self, batch: &Batch) -> bool {
        self.open_from.get(&batch.resource).is_some_and(|first| batch.activation < *first)
    }

    fn write(&mut self, batches: &[&[Change]], forgotten: &[RequestId]) -> Result<Outcome, OpenError> {
        let mut results: Vec<Option<CommitError>> = vec![None; batches.len()];
        // Each turn of this loop settles one more batch as failed, so it ends.
        loop {
            if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
                return Ok(Outcome::Failed(refusal(&error)));
            }
            let mut rolled_back = false;
            for (changes, result) in batches.iter().zip(&mut results).filter(|(_, result)| result.is_none()) {
                if let Err(error) = self.write_batch(changes) {
                    *result = Some(refusal(&error));
                    // A full disk rolls the transaction back by itself; a savepoint that cannot be left takes it along.
                    let left = self.connection.is_autocommit()
                        || self.connection.execute_batch("ROLLBACK TO batch; RELEASE batch").is_ok();
                    if self.connection.is_autocommit() || !left {
                        rolled_back = true;
                        break;
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
            if let Err(error) = self.finish(forgotten, group) {
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
            return Ok(Outcome::Committed(results.into_iter().map(|failed| failed.map_or(Ok(()), Err)).collect()));
        }
    }

    fn write_batch(&self, changes: &[Change]) -> rusqlite::Result<()> {
        self.connection.execute_batch("SAVEPOINT batch")?;
        let written = changes.iter().try_for_each(|change| match change {
            Change::Granted { lease, expires_at, .. } => insert_lease(&self.connection, lease, *expires_at),
            Change::Renewed { lease, expires_at, .. } => update_lease(&self.connection, lease, *expires_at),
            Change::Ended { lease, at, .. } => delete_lease(&self.connection, lease, *at),
        });
        written.and_then(|()| self.connection.execute_batch("RELEASE batch"))
    }

    fn unusable(&self, source: rusqlite::Error) -> OpenError {
        OpenError::Sqlite { path: self.path.clone(), source }
    }

    fn finish(&self, forgotten: &[RequestId], group: i64) -> rusqlite::Result<()> {
        for request in forgotten {
            self.connection
                .prepare_cached("DELETE FROM request WHERE id = ?1 AND ended_at IS NOT NULL")?
                .execute([request.as_str()])?;
        }
        self.connection.prepare_cached("UPDATE node SET last_group = ?1")?.execute(params![group])?;
        Ok(())
    }

    /// Reopens the database and tells whether `group` is in it.
    fn found_after_reopening(&mut self, group: i64) -> Result<bool, OpenError> {
        // The failed handle must be closed before the log is read anew.
        let placeholder = Connection::open_in_memory().map_err(|source| self.unusable(source))?;
        drop(std::mem::replace(&mut self.connection, placeholder));
        self.connection = connect(&self.path)?;
        let last = self.connection.query_row("SELECT last_group FROM node", [], |row| row.get::<_, i64>(0));
        Ok(last.map_err(|source| self.unusable(source))? >= group)
    }
}

/// Opens the database and folds its log into it, so that what is read from here on is what the disk holds.
fn connect(path: &Path) -> Result<Connection, OpenError> {
    let failed = |source| OpenError::Sqlite { path: path.into(), source };
    let open = || -> rusqlite::Result<(Connection, bool)> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_BOUND)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.set_prepared_statement_cache_capacity(64);
        // A reader elsewhere keeps the log from being folded in; SQLite says so in a row, not by an error.
        let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))?;
        Ok((connection, busy != 0))
    };
    match open().map_err(failed)? {
        (connection, false) => Ok(connection),
        (_, true) => Err(OpenError::InUse { path: path.into() }),
    }
}

/// A statement's error as the answer to its batch.
fn refusal(error: &rusqlite::Error) -> CommitError {
    match error {
        rusqlite::Error::StatementChangedRows(_) => CommitError::Constraint("the lease is not as it was".to_owned()),
        rusqlite::Error::SqliteFailure(code, message) if code.code == ErrorCode::ConstraintViolation => {
            CommitError::Constraint(message.clone().unwrap_or_else(|| error.to_string()))
        }
        _ => CommitError::Disk(error.to_string()),
    }
}
