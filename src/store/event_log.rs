//! The event log, as it is read: beside the writer, on a connection of its own.
//!
//! A reader sees what is committed and holds nobody up. Whoever follows the log waits on [`EventLog::newest`], which
//! moves after each commit that wrote events, and then reads on.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::types::Value as Column;
use rusqlite::{Connection, params_from_iter};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, watch};

use super::connection::Reader;
use super::error::ReadError;
use super::row::event;
use crate::model::{EventId, EventKind, LeaseId, NodeName, Principal};

/// The most events that one reading brings.
pub const EVENTS_READ_MAX: usize = 1_000;

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    /// Its name, the same wherever it is told.
    pub id: EventId,
    /// Its number in this log; it grows and never repeats.
    pub seq: u64,
    /// When it happened, wall time.
    pub at: Timestamp,
    /// What kind of thing.
    pub kind: EventKind,
    /// The principal of this node that may read it as its own.
    pub owner: Option<Principal>,
    /// The worker that has relayed it; none for an event of the node itself.
    pub worker: Option<NodeName>,
    /// The facts.
    pub payload: Map<String, Value>,
}

/// Which events are wanted. The default is all that anybody may read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only what is about this principal of this node; of that, everything.
    pub owner: Option<Principal>,
    /// Also what only an admin may read of others, the waiting rooms and holds ([`EventKind::is_private`]).
    pub private: bool,
    /// Only this kind.
    pub kind: Option<EventKind>,
    /// Only what is about this lease.
    pub lease: Option<LeaseId>,
}

impl EventFilter {
    /// The rows behind number `after` that are wanted, in their order; those of kinds that this version does not know
    /// included.
    fn select(&self, columns: &str, after: u64) -> (String, Vec<Column>) {
        let mut select = format!("SELECT {columns} FROM event WHERE seq > ?");
        let mut values = vec![Column::Integer(i64::try_from(after).unwrap_or(i64::MAX))];
        let mut only = |column: &str, word: Option<&str>| {
            if let Some(word) = word {
                select += &format!(" AND {column} = ?");
                values.push(Column::Text(word.to_owned()));
            }
        };
        only("owner", self.owner.as_ref().map(Principal::as_str));
        only("event", self.kind.map(EventKind::as_str));
        only("lease_id", self.lease.as_ref().map(LeaseId::as_str));
        (select + " ORDER BY seq", values)
    }

    fn shows(&self, kind: EventKind) -> bool {
        self.private || self.owner.is_some() || !kind.is_private()
    }
}

/// A handle to read the event log with.
#[derive(Debug, Clone)]
pub struct EventLog {
    /// One reading at a time, so that readers never take up the threads that the writer needs.
    reader: Arc<Mutex<Reader>>,
    newest: watch::Receiver<u64>,
    columns: &'static str,
}

impl EventLog {
    /// `columns` are those that [`event::read`] wants, as this database has them.
    pub(super) fn new(reader: Arc<Mutex<Reader>>, newest: watch::Receiver<u64>, columns: &'static str) -> Self {
        Self { reader, newest, columns }
    }

    /// The number of the newest event; of an empty log, the number before its first. It moves after the commit, so
    /// whoever sees it finds the event, and it closes when the writer has ended.
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.clone()
    }

    /// The events behind number `after` that `filter` wants, oldest first, at most `limit` and at most
    /// [`EVENTS_READ_MAX`].
    ///
    /// Fewer than that means that there are no more. Whoever follows the log then goes on behind the number that
    /// [`newest`](Self::newest) had *before* this reading: else what the filter leaves out is looked at again each
    /// time.
    pub async fn read(&self, after: u64, limit: usize, filter: &EventFilter) -> Result<Vec<EventRecord>, ReadError> {
        let (filter, columns, limit) = (filter.clone(), self.columns, limit.min(EVENTS_READ_MAX));
        let mut reader = self.reader.clone().lock_owned().await;
        let reading = tokio::task::spawn_blocking(move || read(reader.connection()?, columns, after, limit, &filter));
        reading.await.map_err(|_| ReadError::Stopped)?
    }
}

fn read(
    connection: &Connection,
    columns: &str,
    after: u64,
    limit: usize,
    filter: &EventFilter,
) -> Result<Vec<EventRecord>, ReadError> {
    let (select, values) = filter.select(columns, after);
    let mut statement = connection.prepare_cached(&select)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next()?
    {
        let record = event::read(row).map_err(ReadError::Row)?;
        found.extend(record.filter(|record| filter.shows(record.kind)));
    }
    Ok(found)
}
