//! Leases as rows.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::{Unreadable, column, exactly_one, instant, mode, parsed, parsed_option};
use crate::model::time::whole_ms;
use crate::model::{Fence, LeaseRecord};

/// What [`read`] reads.
pub(in crate::store) const COLUMNS: &str = "id, request_id, resource_id, mode, holder, granted_at, renewed_at, ttl_ms, \
     fence, note, idempotency_key, fingerprint, id_chosen_by_requester, asked_ttl_ms, expires_at";

/// Reads a row of [`COLUMNS`]: the lease and its deadline as wall time.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<(LeaseRecord, Timestamp), Unreadable> {
    let id: String = column(row, "id")?;
    let read = || -> Result<(LeaseRecord, Timestamp), Unreadable> {
        let lease = LeaseRecord {
            id: parsed(row, "id")?,
            request_id: parsed(row, "request_id")?,
            resource_id: parsed(row, "resource_id")?,
            mode: mode(row)?,
            holder: parsed(row, "holder")?,
            granted_at: instant(row, "granted_at")?,
            renewed_at: instant(row, "renewed_at")?,
            ttl: Duration::from_millis(column(row, "ttl_ms")?),
            fence: Fence(column(row, "fence")?),
            note: parsed_option(row, "note")?,
            id_chosen_by_requester: column(row, "id_chosen_by_requester")?,
            idempotency_key: parsed_option(row, "idempotency_key")?,
            fingerprint: parsed(row, "fingerprint")?,
            asked_ttl: column::<Option<u64>>(row, "asked_ttl_ms")?.map(Duration::from_millis),
        };
        Ok((lease, instant(row, "expires_at")?))
    };
    read().map_err(|why| format!("{id}: {why}"))
}

/// Inserts a lease and raises its resource's fence.
pub(in crate::store) fn insert(
    connection: &Connection,
    lease: &LeaseRecord,
    expires_at: Timestamp,
) -> rusqlite::Result<()> {
    super::resource::insert_if_absent(connection, Some(&lease.resource_id))?;
    connection
        .prepare_cached(
            "INSERT INTO lease (id, request_id, resource_id, mode, holder, granted_at, renewed_at, ttl_ms, fence, note, \
             idempotency_key, fingerprint, id_chosen_by_requester, expires_at, asked_ttl_ms) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
        )?
        .execute(params![
            lease.id.as_str(),
            lease.request_id.as_str(),
            lease.resource_id.as_str(),
            lease.mode.as_str(),
            lease.holder.to_string(),
            lease.granted_at.as_microsecond(),
            lease.renewed_at.as_microsecond(),
            whole_ms(lease.ttl),
            lease.fence.0,
            lease.note.as_ref().map(|note| note.as_str()),
            lease.idempotency_key.as_ref().map(|key| key.as_str()),
            lease.fingerprint.to_string(),
            lease.id_chosen_by_requester,
            expires_at.as_microsecond(),
            lease.asked_ttl.map(whole_ms),
        ])?;
    connection
        .prepare_cached("UPDATE resource SET fence = ?2, idle_since = NULL WHERE id = ?1")?
        .execute(params![lease.resource_id.as_str(), lease.fence.0])?;
    Ok(())
}

/// Writes a renewed lease's widths and deadline.
pub(in crate::store) fn update(
    connection: &Connection,
    lease: &LeaseRecord,
    expires_at: Timestamp,
) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached(
            "UPDATE lease SET renewed_at = ?2, ttl_ms = ?3, expires_at = ?4, asked_ttl_ms = ?6 \
             WHERE id = ?1 AND fence = ?5",
        )?
        .execute(params![
            lease.id.as_str(),
            lease.renewed_at.as_microsecond(),
            whole_ms(lease.ttl),
            expires_at.as_microsecond(),
            lease.fence.0,
            lease.asked_ttl.map(whole_ms),
        ])?;
    exactly_one(changed)
}

/// Removes an ended lease; its resource is idle from then on if it was the last.
pub(in crate::store) fn delete(connection: &Connection, lease: &LeaseRecord, at: Timestamp) -> rusqlite::Result<()> {
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
    Ok(())
}
