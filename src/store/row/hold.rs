//! Holds as rows, each with its expiry.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::{Unreadable, column, exactly_one, instant, instant_option, parsed, parsed_option, window};
use crate::model::time::whole_ms;
use crate::model::{Hold, HoldId, HoldStatus, ResourceId, TokenHash};

/// Reads a whole row: the hold and its deadline as wall time.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<(Hold, Timestamp), Unreadable> {
    let id: String = column(row, "id")?;
    let read = || -> Result<(Hold, Timestamp), Unreadable> {
        let status: String = column(row, "status")?;
        let hold = Hold {
            id: parsed(row, "id")?,
            resource_id: parsed(row, "resource_id")?,
            holder: parsed(row, "holder")?,
            window: window(row)?,
            status: HoldStatus::parse(&status).ok_or_else(|| format!("status: {status:?}"))?,
            ttl: Duration::from_millis(column(row, "ttl_ms")?),
            key: parsed_option(row, "idempotency_key")?,
            token: TokenHash::from(column::<[u8; 32]>(row, "token_hash")?),
            booking: parsed_option(row, "booking_id")?,
            created_at: instant(row, "created_at")?,
            settled_at: instant_option(row, "settled_at")?,
        };
        Ok((hold, instant(row, "expires_at")?))
    };
    read().map_err(|why| format!("{id}: {why}"))
}

/// Inserts a hold that has been made.
pub(in crate::store) fn insert(connection: &Connection, hold: &Hold, expires_at: Timestamp) -> rusqlite::Result<()> {
    super::resource::insert_if_absent(connection, Some(&hold.resource_id))?;
    connection
        .prepare_cached(
            "INSERT INTO hold (id, resource_id, holder, starts_at, ends_at, status, ttl_ms, expires_at, token_hash, \
             idempotency_key, booking_id, created_at, settled_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            hold.id.as_str(),
            hold.resource_id.as_str(),
            hold.holder.to_string(),
            hold.window.starts_at().as_microsecond(),
            hold.window.ends_at().as_microsecond(),
            hold.status.as_str(),
            whole_ms(hold.ttl),
            expires_at.as_microsecond(),
            hold.token.as_bytes(),
            hold.key.as_ref().map(|key| key.as_str()),
            hold.booking.as_ref().map(|booking| booking.as_str()),
            hold.created_at.as_microsecond(),
            hold.settled_at.map(Timestamp::as_microsecond),
        ])?;
    Ok(())
}

/// Writes what has become of a hold. Only an active one becomes anything.
pub(in crate::store) fn update(connection: &Connection, hold: &Hold, expires_at: Timestamp) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached(
            "UPDATE hold SET status = ?3, expires_at = ?4, token_hash = ?5, booking_id = ?6, settled_at = ?7 \
             WHERE id = ?1 AND resource_id = ?2 AND status = 'active'",
        )?
        .execute(params![
            hold.id.as_str(),
            hold.resource_id.as_str(),
            hold.status.as_str(),
            expires_at.as_microsecond(),
            hold.token.as_bytes(),
            hold.booking.as_ref().map(|booking| booking.as_str()),
            hold.settled_at.map(Timestamp::as_microsecond),
        ])?;
    exactly_one(changed)
}

/// Forgets a hold that is over; another is not as whoever asked believes.
pub(in crate::store) fn forget(
    connection: &Connection,
    resource: Option<&ResourceId>,
    id: &HoldId,
) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached("DELETE FROM hold WHERE id = ?1 AND resource_id = ?2 AND status <> 'active'")?
        .execute(params![id.as_str(), resource.map(ResourceId::as_str)])?;
    exactly_one(changed)
}
