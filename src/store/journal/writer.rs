//! The one connection that writes a gateway's history. After any error everything is closed, and the next group opens the
//! database anew: what SQLite then reads is what the disk holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;
use tokio::sync::{Mutex, watch};

use super::{Job, Past, Relays, row};
use crate::clock::Now;
use crate::store::commit::Prune;
use crate::store::connection::{Reader, connect};
use crate::store::migrations::{carry_out, version};
use crate::store::row::event;
use crate::store::{EventLog, OpenError, ReadError};

/// The schema, as numbered steps. A step that has been released never changes.
const STEPS: [&str; 1] = [include_str!("0001_history.sql")];

pub(super) struct JournalWriter {
    path: PathBuf,
    /// None after an error, until the next group.
    connection: Option<Connection>,
    /// What the log is read on; closed before the database is opened anew.
    reader: Arc<Mutex<Reader>>,
    /// The number of the newest event that is durable.
    newest: watch::Sender<u64>,
}

impl JournalWriter {
    /// Opens, checkpoints and migrates the database, and counts the start.
    pub(super) fn open(path: &Path, now: Now) -> Result<(Self, EventLog, Relays, Past), OpenError> {
        let failed = |source| OpenError::Sqlite { path: path.into(), source };
        let unreadable = |table: &'static str| {
            move |error| match error {
                ReadError::Sqlite(source) => OpenError::Sqlite { path: path.into(), source },
                other => OpenError::Row { path: path.into(), table, why: other.to_string() },
            }
        };
        let mut connection = connect(path)?;
        let (found, known) = (version(&connection).map_err(failed)?, STEPS.len() as i64);
        if found > known {
            return Err(OpenError::TooNew { path: path.into(), found, known });
        }
        carry_out(&mut connection, &STEPS).map_err(failed)?;
        let last: u64 = connection.query_row("SELECT incarnation FROM node", [], |row| row.get(0)).map_err(failed)?;
        let unix_ms = u64::try_from(now.wall.as_millisecond()).unwrap_or(0);
        let incarnation = (last + 1).max(unix_ms);
        connection.execute("UPDATE node SET incarnation = ?1", [incarnation]).map_err(failed)?;
        let newest = event::begin(&connection, unix_ms).map_err(failed)?;
        let open = row::open_requests(&connection).map_err(unreadable("open_request"))?;
        let relays = Relays::default();
        for (worker, upto) in row::relayed(&connection).map_err(unreadable("relayed"))? {
            relays.stored(&worker, upto);
        }
        let last_own = row::last_own(&connection).map_err(failed)?;
        let last_own = last_own.and_then(|at| Timestamp::from_microsecond(at).ok());
        let reader = Arc::new(Mutex::new(Reader::open(path).map_err(failed)?));
        let (newest, seen) = watch::channel(newest);
        let events = EventLog::new(reader.clone(), seen, row::COLUMNS);
        let writer = Self { path: path.into(), connection: Some(connection), reader, newest };
        Ok((writer, events, relays, Past { incarnation, open, last_own }))
    }

    /// Writes a group in one transaction. After an error nobody knows whether it is durable; writing it again does no harm.
    pub(super) fn write(&mut self, jobs: &[Job]) -> Result<(), OpenError> {
        let mut reopened = false;
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                // A reading that is under way is waited for, and none may begin before the log is folded in.
                let mut reader = self.reader.blocking_lock();
                reader.close();
                reopened = true;
                connect(&self.path)?
            }
        };
        // What fails leaves the connection closed, and with it the transaction undone.
        let mut newest = self.written(&connection, jobs).map_err(|source| self.unusable(source))?;
        if reopened {
            // A group that failed may have been durable all the same, and nobody has heard of it.
            newest = Some(event::begin(&connection, 0).map_err(|source| self.unusable(source))?);
        }
        self.connection = Some(connection);
        if let Some(newest) = newest {
            self.newest.send_replace(newest);
        }
        Ok(())
    }

    fn written(&self, connection: &Connection, jobs: &[Job]) -> rusqlite::Result<Option<u64>> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let mut newest = None;
        for job in jobs {
            let stored = match job {
                Job::Own { id, at, event, if_untold } => row::append_own(connection, id, event, *at, *if_untold)?,
                Job::Page { page, at, .. } => row::append_page(connection, page, *at)?,
                Job::Prune(prune) => {
                    self.prune(connection, *prune)?;
                    None
                }
            };
            newest = stored.or(newest);
        }
        connection.execute_batch("COMMIT")?;
        Ok(newest)
    }

    fn prune(&self, connection: &Connection, Prune { before, count_max }: Prune) -> rusqlite::Result<()> {
        let upto = self.newest.borrow().saturating_sub(count_max);
        let is_old = |(seq, at): (u64, i64)| at < before.as_microsecond() || seq <= upto;
        if row::oldest(connection)?.is_some_and(is_old) {
            row::prune(connection, before, upto)?;
        }
        Ok(())
    }

    fn unusable(&self, source: rusqlite::Error) -> OpenError {
        OpenError::Sqlite { path: self.path.clone(), source }
    }
}
