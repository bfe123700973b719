//! What each change of a calendar writes.

use rusqlite::Connection;

use crate::admission::calendar::{BookingMove, CalendarChange, HoldMove};
use crate::clock::Now;
use crate::model::ResourceId;
use crate::store::row::{booking, hold, node, resource};

/// Why no new holds are made, when an operator says so.
const BY_ADMIN: &str = "admin";

/// Writes one change of the calendar of `resource`. Without one it is about the whole node.
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
        CalendarChange::HoldsPaused(paused) => match resource {
            Some(_) => resource::pause_holds(connection, resource, *paused),
            None => node::pause_holds(connection, paused.then_some(BY_ADMIN)),
        },
    }
}
