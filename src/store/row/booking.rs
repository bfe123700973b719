//! Bookings as rows.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::{Unreadable, column, exactly_one, instant, instant_option, parsed, parsed_option, window};
use crate::model::{Booking, BookingId, ResourceId};

/// Reads a whole row.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<Booking, Unreadable> {
    let id: String = column(row, "id")?;
    let read = || -> Result<Booking, Unreadable> {
        Ok(Booking {
            id: parsed(row, "id")?,
            resource_id: parsed(row, "resource_id")?,
            holder: parsed(row, "holder")?,
            window: window(row)?,
            status: column::<String>(row, "status")?.parse().map_err(|error| format!("status: {error}"))?,
            claims: column(row, "claims")?,
            note: parsed_option(row, "note")?,
            lease_id: parsed_option(row, "lease_id")?,
            series: parsed_option(row, "series_id")?,
            created_at: instant(row, "created_at")?,
            settled_at: instant_option(row, "settled_at")?,
        })
    };
    read().map_err(|why| format!("{id}: {why}"))
}

/// Inserts a booking that has been made.
pub(in crate::store) fn insert(connection: &Connection, booking: &Booking) -> rusqlite::Result<()> {
    super::resource::insert_if_absent(connection, Some(&booking.resource_id))?;
    connection
        .prepare_cached(
            "INSERT INTO booking (id, resource_id, holder, starts_at, ends_at, status, claims, note, lease_id, series_id, \
             created_at, settled_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            booking.id.as_str(),
            booking.resource_id.as_str(),
            booking.holder.to_string(),
            booking.window.starts_at().as_microsecond(),
            booking.window.ends_at().as_microsecond(),
            booking.status.as_str(),
            booking.claims,
            booking.note.as_ref().map(|note| note.as_str()),
            booking.lease_id.as_ref().map(|lease| lease.as_str()),
            booking.series.as_ref().map(|series| series.as_str()),
            booking.created_at.as_microsecond(),
            booking.settled_at.map(Timestamp::as_microsecond),
        ])?;
    Ok(())
}

/// Writes what has become of a booking. One that was cancelled or missed stays so.
pub(in crate::store) fn update(connection: &Connection, booking: &Booking) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached(
            "UPDATE booking SET starts_at = ?3, ends_at = ?4, status = ?5, claims = ?6, lease_id = ?7, settled_at = ?8 \
             WHERE id = ?1 AND resource_id = ?2 AND status IN ('scheduled', 'fulfilled')",
        )?
        .execute(params![
            booking.id.as_str(),
            booking.resource_id.as_str(),
            booking.window.starts_at().as_microsecond(),
            booking.window.ends_at().as_microsecond(),
            booking.status.as_str(),
            booking.claims,
            booking.lease_id.as_ref().map(|lease| lease.as_str()),
            booking.settled_at.map(Timestamp::as_microsecond),
        ])?;
    exactly_one(changed)
}

/// Forgets a booking that is over ([`Booking::over_at`]); another is not as whoever asked believes.
pub(in crate::store) fn forget(
    connection: &Connection,
    resource: Option<&ResourceId>,
    id: &BookingId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached(
            "DELETE FROM booking WHERE id = ?1 AND resource_id = ?2 \
             AND CASE status WHEN 'cancelled' THEN settled_at ELSE ends_at END <= ?3",
        )?
        .execute(params![id.as_str(), resource.map(ResourceId::as_str), now.as_microsecond()])?;
    exactly_one(changed)
}
