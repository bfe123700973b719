//! Leases as rows.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use crate::model::LeaseRecord;

pub(super) const LEASE_COLUMNS: &str = "id, request_id, resource_id, mode, holder, granted_at, renewed_at, ttl_ms, \
     fence, note, idempotency_key, fingerprint, id_chosen_by_requester, expires_at";

/// A row that does not read back, in words.
pub(super) type Unreadable = String;

/// Reads a row of [`LEASE_COLUMNS`]: the lease and its deadline as wall time.
pub(super) fn read_lease(row: &Row<'_>) -> Result<(LeaseRecord, Timestamp), Unreadable> {
    let id: String = column(row, "id")?;
    let read = || -> Result<(LeaseRecord, Timestamp), Unreadable> {
        let lease = LeaseRecord {
            id: parsed(id.clone())?,
            request_id: parsed(column(row, "request_id")?)?,
            resource_id: parsed(column(row, "resource_id")?)?,
            mode: match column::<String>(row, "mode")?.as_str() {
                "exclusive" => crate::model::Mode::Exclusive,
                _ => crate::model::Mode::Shared,
            },
            holder: parsed(column(row, "holder")?)?,
            granted_at: instant(column(row, "granted_at")?)?,
            renewed_at: instant(column(row, "renewed_at")?)?,
            ttl: std::time::Duration::from_millis(column(row, "ttl_ms")?),
            fence: crate::model::Fence(column(row, "fence")?),
            note: column::<Option<String>>(row, "note")?.map(parsed).transpose()?,
            id_chosen_by_requester: column(row, "id_chosen_by_requester")?,
            idempotency_key: column::<Option<String>>(row, "idempotency_key")?.map(parsed).transpose()?,
            fingerprint: parsed(column(row, "fingerprint")?)?,
        };
        Ok((lease, instant(column(row, "expires_at")?)?))
    };
    read().map_err(|why| format!("{id}: {why}"))
}

/// Inserts a lease, raises its resource's fence, and remembers its request. A gateway's request may come again, with
/// its next attempt, after the lease of an earlier one has ended.
pub(super) fn insert_lease(
    connection: &Connection,
    lease: &LeaseRecord,
    expires_at: Timestamp,
) -> rusqlite::Result<()> {
    let expires_at = expires_at.as_microsecond();
    connection
        .prepare_cached("INSERT INTO resource (id, fence) VALUES (?1, 0) ON CONFLICT DO NOTHING")?
        .execute([lease.resource_id.as_str()])?;
    connection
        .prepare_cached(
            "INSERT INTO lease (id, request_id, resource_id, mode, holder, granted_at, renewed_at, ttl_ms, fence, note, \
             idempotency_key, fingerprint, id_chosen_by_requester, expires_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute(params![
            lease.id.as_str(),
            lease.request_id.as_str(),
            lease.resource_id.as_str(),
            lease.mode.as_str(),
            lease.holder.to_string(),
            lease.granted_at.as_microsecond(),
            lease.renewed_at.as_microsecond(),
            crate::model::time::whole_ms(lease.ttl),
            lease.fence.0,
            lease.note.as_ref().map(|note| note.as_str()),
            lease.idempotency_key.as_ref().map(|key| key.as_str()),
            lease.fingerprint.to_string(),
            lease.id_chosen_by_requester,
            expires_at,
        ])?;
    connection
        .prepare_cached("UPDATE resource SET fence = ?2, idle_since = NULL WHERE id = ?1")?
        .execute(params![lease.resource_id.as_str(), lease.fence.0])?;
    connection
        .prepare_cached(
            "INSERT INTO request (id, requester, idempotency_key, fingerprint, result, expires_at, settled_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
             ON CONFLICT (id) DO UPDATE SET result = excluded.result, expires_at = excluded.expires_at, \
             settled_at = excluded.settled_at, ended_at = NULL",
        )?
        .execute(params![
            lease.request_id.as_str(),
            lease.holder.to_string(),
            lease.idempotency_key.as_ref().map(|key| key.as_str()),
            lease.fingerprint.to_string(),
            serde_json::to_string(lease).expect("a lease is plain data"),
            expires_at,
            lease.granted_at.as_microsecond(),
        ])?;
    Ok(())
}

/// Writes a renewed lease's width and deadline.
pub(super) fn update_lease(
    connection: &Connection,
    lease: &LeaseRecord,
    expires_at: Timestamp,
) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached("UPDATE lease SET renewed_at = ?2, ttl_ms = ?3, expires_at = ?4 WHERE id = ?1 AND fence = ?5")?
        .execute(params![
            lease.id.as_str(),
            lease.renewed_at.as_microsecond(),
            crate::model::time::whole_ms(lease.ttl),
            expires_at.as_microsecond(),
            lease.fence.0,
        ])?;
    exactly_one(changed)
}

/// Removes an ended lease and starts the retention of its request.
pub(super) fn delete_lease(connection: &Connection, lease: &LeaseRecord, at: Timestamp) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached("DELETE FROM lease WHERE id = ?1 AND fence = ?2")?
        .execute(params![lease.id.as_str(), lease.fence.0])?;
    exactly_one(changed)?;
    connection
        .prepare_cached(
            "UPDATE resource SET idle_since = ?2 \
             WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM lease WHERE resource_id = ?1)",
        )?
        .execute(params![lease.resource_id.as_str(), at.as_microsecond()])?;
    connection
        .prepare_cached("UPDATE request SET ended_at = ?2 WHERE id = ?1")?
        .execute(params![lease.request_id.as_str(), at.as_microsecond()])?;
    Ok(())
}

/// A change of a lease that is not there, or of another grant of it, is refused: the actor that asked is stale.
fn exactly_one(changed: usize) -> rusqlite::Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

pub(super) fn column<T: rusqlite::types::FromSql>(row: &Row<'_>, name: &str) -> Result<T, Unreadable> {
    row.get(name).map_err(|error| format!("{name}: {error}"))
}

pub(super) fn parsed<T: TryFrom<String>>(text: String) -> Result<T, Unreadable>
where
    T::Error: std::fmt::Display,
{
    T::try_from(text).map_err(|error| error.to_string())
}

pub(super) fn instant(microseconds: i64) -> Result<Timestamp, Unreadable> {
    Timestamp::from_microsecond(microseconds).map_err(|error| error.to_string())
}
