//! A gateway's events as rows, and the lease requests whose end is not told.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{OpenRequest, RelayedEvent, RelayedPage};
use crate::model::{Event, EventId, EventKind, NodeName};
use crate::store::ReadError;
use crate::store::row::{column, parsed, parsed_option};

/// What the event log reads here.
pub(super) const COLUMNS: &str = "seq, id, at, event, owner, worker, payload";

/// The first rows that one pruning looks at, and so the most that it deletes.
const PRUNED_MAX: i64 = 10_000;

/// Appends one of the gateway's own events; none when it is stored, or when its request has been told of already.
pub(super) fn append_own(
    connection: &Connection,
    id: &EventId,
    event: &Event,
    at: Timestamp,
    if_untold: bool,
) -> rusqlite::Result<Option<u64>> {
    let field = |name: &str| event.payload.get(name).and_then(serde_json::Value::as_str);
    let request = field("requestId");
    let told_once = match event.kind {
        EventKind::LeaseRequested => Some("event = 'lease.requested'"),
        EventKind::RequestGranted | EventKind::LeaseRejected => Some("event IN ('request.granted', 'lease.rejected')"),
        _ => None,
    };
    if let (Some(request), Some(kinds)) = (request, told_once) {
        let told = connection
            .prepare_cached(&format!("SELECT id FROM event WHERE request_id = ?1 AND {kinds} LIMIT 1"))?
            .query_row([request], |row| row.get::<_, String>(0))
            .optional()?;
        if let Some(told) = told {
            if told != id.as_str() && !if_untold {
                tracing::error!(%request, event = %event.kind, %told, "a lease request is told of twice; the first stays");
            }
            return Ok(None);
        }
    }
    let inserted = connection
        .prepare_cached(
            "INSERT INTO event (id, at, stored_at, event, owner, lease_id, request_id, payload) \
             VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            id.as_str(),
            at.as_microsecond(),
            event.kind.as_str(),
            event.owner.as_ref().map(|owner| owner.principal.as_str()),
            event.lease.as_ref().map(|lease| lease.as_str()),
            request,
            serde_json::to_string(&event.payload).expect("a payload is plain data"),
        ])?;
    let seq = (inserted > 0).then(|| u64::try_from(connection.last_insert_rowid()).unwrap_or(0));
    match (event.kind, request) {
        (EventKind::LeaseRequested, Some(request)) => {
            let spec = event.payload.get("requestSpec").unwrap_or(&serde_json::Value::Null).to_string();
            connection
                .prepare_cached("INSERT OR IGNORE INTO open_request (request_id, requester, spec) VALUES (?1, ?2, ?3)")?
                .execute(params![request, field("requester"), spec])?;
        }
        (EventKind::RequestDispatched, Some(request)) => {
            connection
                .prepare_cached("UPDATE open_request SET worker = ?2 WHERE request_id = ?1")?
                .execute(params![request, field("worker")])?;
        }
        (EventKind::RequestGranted | EventKind::LeaseRejected, Some(request)) => {
            connection.prepare_cached("DELETE FROM open_request WHERE request_id = ?1")?.execute([request])?;
        }
        _ => {}
    }
    Ok(seq)
}

/// Stores a piece of a worker's log: what is there already stays as it is. The number of the last that is new.
pub(super) fn append_page(connection: &Connection, page: &RelayedPage, at: Timestamp) -> rusqlite::Result<Option<u64>> {
    let mut newest = None;
    for event in &page.events {
        newest = append_relayed(connection, &page.worker, event, at)?.or(newest);
    }
    // Not the greater of the two: a worker that has lost its disk begins a new log.
    connection
        .prepare_cached("INSERT OR REPLACE INTO relayed (worker, seq) VALUES (?1, ?2)")?
        .execute(params![page.worker.as_str(), page.upto])?;
    Ok(newest)
}

fn append_relayed(
    connection: &Connection,
    worker: &NodeName,
    event: &RelayedEvent,
    stored_at: Timestamp,
) -> rusqlite::Result<Option<u64>> {
    let inserted = connection
        .prepare_cached(
            "INSERT INTO event (id, at, stored_at, event, owner, lease_id, worker, worker_seq, payload) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            event.id.as_str(),
            event.at.as_microsecond(),
            stored_at.as_microsecond(),
            event.kind.as_str(),
            event.owner.as_ref().map(crate::model::Principal::as_str),
            event.lease.as_ref().map(|lease| lease.as_str()),
            worker.as_str(),
            event.seq,
            serde_json::to_string(&event.payload).expect("a payload is plain data"),
        ])?;
    Ok((inserted > 0).then(|| u64::try_from(connection.last_insert_rowid()).unwrap_or(0)))
}

/// The number of the oldest event and when it was stored.
pub(super) fn oldest(connection: &Connection) -> rusqlite::Result<Option<(u64, i64)>> {
    connection
        .prepare_cached("SELECT seq, stored_at FROM event ORDER BY seq LIMIT 1")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Deletes what was stored before `before` and what stands up to number `upto`, as far as the oldest are of these. A
/// worker's own times do not count: they are claims.
pub(super) fn prune(connection: &Connection, before: Timestamp, upto: u64) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "DELETE FROM event WHERE seq IN (SELECT seq FROM (SELECT seq, stored_at FROM event ORDER BY seq LIMIT ?3) \
             WHERE stored_at < ?1 OR seq <= ?2)",
        )?
        .execute(params![before.as_microsecond(), i64::try_from(upto).unwrap_or(i64::MAX), PRUNED_MAX])
}

/// When the latest of the gateway's own events happened.
pub(super) fn last_own(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection
        .query_row("SELECT at FROM event WHERE worker IS NULL ORDER BY seq DESC LIMIT 1", [], |row| row.get(0))
        .optional()
}

/// The lease requests whose end is not told, in the order of their making.
pub(super) fn open_requests(connection: &Connection) -> Result<Vec<OpenRequest>, ReadError> {
    let mut statement = connection.prepare("SELECT * FROM open_request ORDER BY request_id")?;
    let mut rows = statement.query([])?;
    let mut open = Vec::new();
    while let Some(row) = rows.next()? {
        let read = || -> Result<OpenRequest, String> {
            let spec: String = column(row, "spec")?;
            Ok(OpenRequest {
                id: parsed(row, "request_id")?,
                requester: parsed(row, "requester")?,
                spec: serde_json::from_str(&spec).map_err(|error| format!("spec: {error}"))?,
                worker: parsed_option(row, "worker")?,
            })
        };
        open.push(read().map_err(ReadError::Row)?);
    }
    Ok(open)
}

/// How far each worker's log is stored.
pub(super) fn relayed(connection: &Connection) -> Result<Vec<(NodeName, u64)>, ReadError> {
    let mut statement = connection.prepare("SELECT * FROM relayed")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let read = || -> Result<(NodeName, u64), String> { Ok((parsed(row, "worker")?, column(row, "seq")?)) };
        all.push(read().map_err(ReadError::Row)?);
    }
    Ok(all)
}
