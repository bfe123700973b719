//! What each change of a calendar writes.

use rusqlite::Connection;

use crate::admission::calendar::{BookingMove, CalendarChange, HoldMove};
use crate::clock::Now;
use crate::model::ResourceId;
use crate::store::row::{booking, hold, resource};

/// Writes one change of the calendar of `resource`.
pub(super) fn write(
    connection: &Connection,
    change: &CalendarChange,
    resource: Option<&ResourceId>,
    now: Now,
) -> rusqlite::Result<()> {
    match change {
        CalendarChange::Booking { booking, what } => match what {
            BookingMove::Created => booking::insert(connection, booking),
            BookingMove::Rescheduled(_)
            | BookingMove::Cancelled { .. }
            | BookingMove::Fulfilled
            | BookingMove::Missed(_)
            | BookingMove::Freed => booking::update(connection, booking),
        },
        CalendarChange::Hold { hold, what, expires_at, .. } => match what {
            HoldMove::Created => hold::insert(connection, hold, *expires_at),
            HoldMove::Reissued
            | HoldMove::Confirmed
            | HoldMove::Released { .. }
            | HoldMove::Expired
            | HoldMove::Rewritten => hold::update(connection, hold, *expires_at),
        },
        CalendarChange::Forgotten { bookings, holds } => {
            bookings.iter().try_for_each(|id| booking::forget(connection, resource, id, now.wall))?;
            holds.iter().try_for_each(|id| hold::forget(connection, resource, id))
        }
        CalendarChange::HoldsPaused(paused) => resource::pause_holds(connection, resource, *paused),
    }
}
