//! How a command has ended whose answer was lost with an actor, by what the disk holds.

use super::{Calendar, CalendarCommand, CalendarReply};
use crate::model::{BookingStatus, HoldStatus, SlotLength};

/// The answer that `command` would have had, if it is done; `before` is what was known when it was given.
pub fn outcome(command: &CalendarCommand, before: &Calendar, after: &Calendar) -> Option<CalendarReply> {
    match command {
        CalendarCommand::Book { windows, .. } => {
            let booked: Option<Vec<_>> = windows.iter().map(|(id, _)| after.booking(id).cloned()).collect();
            booked.map(CalendarReply::Booked)
        }
        CalendarCommand::Reschedule { booking, to, .. } => {
            let (was, is) = (before.booking(booking)?, after.booking(booking)?);
            let starts_at = to.starts_at.unwrap_or(was.window.starts_at());
            let ends_at = match to.length.unwrap_or(SlotLength::Lasting(was.window.width())) {
                SlotLength::Lasting(width) => starts_at.checked_add(width).ok()?,
                SlotLength::Until(ends_at) => ends_at,
            };
            let moved = is.window.starts_at() == starts_at && is.window.ends_at() == ends_at;
            moved.then(|| CalendarReply::Booking(is.clone()))
        }
        CalendarCommand::Cancel { booking, following, .. } => {
            let is = after.booking(booking)?;
            let gone = after.bookings().filter(|it| it.id != *booking && it.status == BookingStatus::Cancelled);
            let with_it = gone.filter(|it| it.series.is_some() && it.series == is.series);
            let now = with_it.filter(|it| before.booking(&it.id).is_some_and(|was| was.status != it.status));
            let now: Vec<_> = now.cloned().collect();
            // One that is over stays as it was, and only the rest of its series goes.
            let done = is.status == BookingStatus::Cancelled || (*following && !now.is_empty());
            done.then(|| CalendarReply::Cancelled(is.clone(), now))
        }
        CalendarCommand::Hold { id, holder, key, token, .. } => {
            let reissued = || after.hold_under(holder, key.as_ref()?).filter(|held| held.hold.token == *token);
            after.hold(id).or_else(reissued).cloned().map(CalendarReply::Hold)
        }
        CalendarCommand::Confirm { hold, .. } => {
            let held = after.hold(hold).filter(|held| held.hold.status == HoldStatus::Confirmed)?;
            after.booking(held.hold.booking.as_ref()?).cloned().map(CalendarReply::Booking)
        }
        CalendarCommand::Release { hold, .. } => {
            let held = after.hold(hold).filter(|held| held.hold.status == HoldStatus::Released)?;
            Some(CalendarReply::Hold(held.clone()))
        }
        CalendarCommand::PauseHolds(paused) => (after.holds_paused == *paused).then_some(CalendarReply::Done),
        // What is remembered for too long is looked for again.
        CalendarCommand::Forget { .. } => Some(CalendarReply::Done),
    }
}
