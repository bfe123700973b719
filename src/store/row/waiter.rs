//! Unattended waiters, and the reservations of those who have been admitted, as rows. Of each a requester has at most
//! one on a resource.

use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::resource::insert_if_absent;
use super::{Unreadable, column, instant, mode, parsed, parsed_option};
use crate::admission::resource::Reservation;
use crate::admission::{Joined, Waiter};
use crate::model::time::whole_ms;
use crate::model::{Mode, Priority, Requester, ResourceId};
use crate::store::StoredWaiter;

/// Reads a whole row: the resource, and who waits for it.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<(ResourceId, StoredWaiter), Unreadable> {
    let (resource, holder): (String, String) = (column(row, "resource_id")?, column(row, "holder")?);
    let read = || -> Result<_, Unreadable> {
        let waiter = StoredWaiter {
            holder: parsed(row, "holder")?,
            mode: mode(row)?,
            priority: Priority::try_from(column::<f64>(row, "priority")?).map_err(|error| error.to_string())?,
            joined: Joined { run: column(row, "run")?, at_us: 0, arrival: column(row, "arrival")? },
            joined_at: instant(row, "joined_at")?,
            ttl: Duration::from_millis(column(row, "ttl_ms")?),
            note: parsed_option(row, "note")?,
        };
        Ok((parsed(row, "resource_id")?, waiter))
    };
    read().map_err(|why| format!("{holder} at {resource}: {why}"))
}

/// Writes an unattended waiter; the one that its holder was is replaced.
pub(in crate::store) fn write(
    connection: &Connection,
    resource: Option<&ResourceId>,
    waiter: &Waiter,
) -> rusqlite::Result<()> {
    insert_if_absent(connection, resource)?;
    let (proposal, joined) = (&waiter.proposal, waiter.rank.joined());
    connection
        .prepare_cached(
            "INSERT INTO waiter (resource_id, holder, mode, priority, run, arrival, joined_at, ttl_ms, note) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
             ON CONFLICT (resource_id, holder) DO UPDATE SET mode = excluded.mode, priority = excluded.priority, \
             run = excluded.run, arrival = excluded.arrival, joined_at = excluded.joined_at, \
             ttl_ms = excluded.ttl_ms, note = excluded.note",
        )?
        .execute(params![
            resource.map(ResourceId::as_str),
            proposal.holder.to_string(),
            proposal.mode.as_str(),
            f64::from(proposal.priority),
            joined.run,
            joined.arrival,
            waiter.joined_at.as_microsecond(),
            whole_ms(proposal.ttl),
            proposal.note.as_ref().map(|note| note.as_str()),
        ])?;
    Ok(())
}

/// Takes an unattended waiter out.
pub(in crate::store) fn delete(
    connection: &Connection,
    resource: Option<&ResourceId>,
    holder: &Requester,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM waiter WHERE resource_id = ?1 AND holder = ?2")?
        .execute(params![resource.map(ResourceId::as_str), holder.to_string()])?;
    Ok(())
}

/// Reads a whole row: the resource, for whom it is kept, whether alone, and how long.
pub(in crate::store) fn read_reservation(
    row: &Row<'_>,
) -> Result<(ResourceId, (Requester, Mode, Duration)), Unreadable> {
    let (resource, holder): (String, String) = (column(row, "resource_id")?, column(row, "holder")?);
    let read = || -> Result<_, Unreadable> {
        let width = Duration::from_millis(column(row, "width_ms")?);
        Ok((parsed(row, "resource_id")?, (parsed(row, "holder")?, mode(row)?, width)))
    };
    read().map_err(|why| format!("{holder} at {resource}: {why}"))
}

/// Keeps a resource for somebody; an earlier reservation of theirs is replaced.
pub(in crate::store) fn reserve(
    connection: &Connection,
    resource: Option<&ResourceId>,
    reservation: &Reservation,
) -> rusqlite::Result<()> {
    insert_if_absent(connection, resource)?;
    connection
        .prepare_cached(
            "INSERT INTO reservation (resource_id, holder, mode, width_ms) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (resource_id, holder) DO UPDATE SET mode = excluded.mode, width_ms = excluded.width_ms",
        )?
        .execute(params![
            resource.map(ResourceId::as_str),
            reservation.holder.to_string(),
            reservation.mode.as_str(),
            whole_ms(reservation.width).max(1),
        ])?;
    Ok(())
}

/// Keeps a resource for somebody no more.
pub(in crate::store) fn unreserve(
    connection: &Connection,
    resource: Option<&ResourceId>,
    holder: &Requester,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM reservation WHERE resource_id = ?1 AND holder = ?2")?
        .execute(params![resource.map(ResourceId::as_str), holder.to_string()])?;
    Ok(())
}
