//! How a command has ended whose answer was lost with an actor, by what the disk holds.

use super::{Calendar, CalendarCommand, CalendarReply};
use crate::model::{BookingStatus, HoldStatus, Role, SlotLength, Window};

/// The answer that `command` would have had, if it is done; `before` is what was known when it was given. It may not even
/// have been looked at, so whoever may not have the answer gets none.
pub fn outcome(command: &CalendarCommand, before: &Calendar, after: &Calendar) -> Option<CalendarReply> {
    match command {
        CalendarCommand::Book { windows, .. } => {
            let booked: Option<Vec<_>> = windows.iter().map(|(id, _)| after.booking(id).cloned()).collect();
            booked.map(CalendarReply::Booked)
        }
        CalendarCommand::Reschedule { booking, to, asker } => {
            let (was, is) = (before.booking(booking)?, after.booking(booking)?);
            let starts_at = to.starts_at.unwrap_or(was.window.starts_at());
            let ends_at = match to.length.unwrap_or(SlotLength::Lasting(was.window.width())) {
                SlotLength::Lasting(width) => starts_at.checked_add(width).ok()?,
                SlotLength::Until(ends_at) => ends_at,
            };
            let moved = Window::new(starts_at, ends_at) == Some(is.window);
            (moved && asker.may_change(&is.holder)).then(|| CalendarReply::Booking(is.clone()))
        }
        CalendarCommand::Cancel { booking, following, asker } => {
            let (was, is) = (before.booking(booking)?, after.booking(booking)?);
            let others = || after.bookings().filter(|it| it.id != *booking && it.series == is.series);
            let behind = || others().filter(|it| *following && it.series.is_some() && it.window > is.window);
            let is_new = |id| before.booking(id).is_some_and(|was| was.status == BookingStatus::Scheduled);
            let gone = behind().filter(|it| it.status == BookingStatus::Cancelled && is_new(&it.id));
            let gone: Vec<_> = gone.cloned().collect();
            let cancelled = is.status == BookingStatus::Cancelled;
            let left = behind().any(|it| it.status == BookingStatus::Scheduled);
            // It happens all at once; where nothing has, there may have been nothing to do.
            let done = !gone.is_empty() || (cancelled && (was.status != is.status || !left));
            (done && asker.may_change(&is.holder)).then(|| CalendarReply::Cancelled(is.clone(), gone))
        }
        CalendarCommand::Hold { id, holder, key, token, .. } => {
            let reissued = || after.hold_under(holder, key.as_ref()?).filter(|held| held.hold.token == *token);
            after.hold(id).or_else(reissued).cloned().map(CalendarReply::Hold)
        }
        CalendarCommand::Confirm { hold, token, .. } => {
            let confirmed = after.hold(hold).filter(|held| held.hold.status == HoldStatus::Confirmed);
            let held = confirmed.filter(|held| held.hold.token == *token)?;
            after.booking(held.hold.booking.as_ref()?).cloned().map(CalendarReply::Booking)
        }
        CalendarCommand::Release { hold, token, asker } => {
            let released = after.hold(hold).filter(|held| held.hold.status == HoldStatus::Released);
            let may = |shown| token.map_or(asker.role == Role::Admin, |token| token == shown);
            let held = released.filter(|held| may(held.hold.token))?;
            Some(CalendarReply::Hold(held.clone()))
        }
        CalendarCommand::PauseHolds(paused) => (after.holds_paused == *paused).then_some(CalendarReply::Done),
        // What is remembered for too long is looked for again.
        CalendarCommand::Forget { .. } => Some(CalendarReply::Done),
    }
}
