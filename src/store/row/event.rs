//! Events as rows.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Unreadable, column, instant, parsed, parsed_option};
use crate::model::{Event, EventId, EventKind};
use crate::store::EventRecord;

/// What [`read`] reads.
pub(in crate::store) const COLUMNS: &str = "seq, id, at, event, owner, NULL AS worker, payload";

/// The first rows that one pruning looks at, and so the most that it deletes.
const PRUNED_MAX: i64 = 10_000;

/// Reads a row of [`COLUMNS`]; none when it is an event of a later version.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<Option<EventRecord>, Unreadable> {
    let seq: u64 = column(row, "seq")?;
    let Ok(kind) = column::<String>(row, "event")?.parse::<EventKind>() else { return Ok(None) };
    let read = || -> Result<EventRecord, Unreadable> {
        let payload: String = column(row, "payload")?;
        Ok(EventRecord {
            id: parsed(row, "id")?,
            seq,
            at: instant(row, "at")?,
            kind,
            owner: parsed_option(row, "owner")?,
            worker: parsed_option(row, "worker")?,
            payload: serde_json::from_str(&payload).map_err(|error| format!("payload: {error}"))?,
        })
    };
    read().map(Some).map_err(|why| format!("{seq}: {why}"))
}

/// Lets the numbers of a log that has none yet begin at `first`, and tells the latest that has been given out.
pub(in crate::store) fn begin(connection: &Connection, first: u64) -> rusqlite::Result<u64> {
    connection.execute(
        "INSERT INTO sqlite_sequence (name, seq) \
         SELECT 'event', ?1 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'event')",
        [first.saturating_sub(1)],
    )?;
    connection.query_row("SELECT seq FROM sqlite_sequence WHERE name = 'event'", [], |row| row.get(0))
}

/// Appends an event and tells its number.
pub(in crate::store) fn append(connection: &Connection, event: &Event, at: Timestamp) -> rusqlite::Result<u64> {
    // Whoever came through a gateway is no principal of this node, whatever the name.
    let owner = event.owner.as_ref().filter(|owner| owner.via.is_none());
    let seq = connection
        .prepare_cached("INSERT INTO event (id, at, event, owner, lease_id, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .insert(params![
            EventId::generate().as_str(),
            at.as_microsecond(),
            event.kind.as_str(),
            owner.map(|owner| owner.principal.as_str()),
            event.lease.as_ref().map(|lease| lease.as_str()),
            serde_json::to_string(&event.payload).expect("a payload is plain data"),
        ])?;
    Ok(u64::try_from(seq).unwrap_or(0))
}

/// The number of the oldest event and when it happened.
pub(in crate::store) fn oldest(connection: &Connection) -> rusqlite::Result<Option<(u64, i64)>> {
    connection
        .prepare_cached("SELECT seq, at FROM event ORDER BY seq LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Deletes the events from before `before` and those up to number `upto`, as far as the oldest are of these.
pub(in crate::store) fn prune(connection: &Connection, before: Timestamp, upto: u64) -> rusqlite::Result<usize> {
    // The oldest are looked at and no others: a search of the whole log would hold every writer up.
    connection
        .prepare_cached(
            "DELETE FROM event WHERE seq IN (SELECT seq FROM (SELECT seq, at FROM event ORDER BY seq LIMIT ?3) \
             WHERE at < ?1 OR seq <= ?2)",
        )?
        .execute(params![before.as_microsecond(), i64::try_from(upto).unwrap_or(i64::MAX), PRUNED_MAX])
}
