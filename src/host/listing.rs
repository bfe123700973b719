//! Lists of bookings and holds, looked through beside the desk.

use std::sync::Arc;

use crate::admission::calendar::{Calendar, HeldSlot};
use crate::clock::Now;
use crate::limits::BOOKINGS_PAGE_MAX;
use crate::model::{Asker, Booking, BookingFilter, Cursor};
use crate::wire::calendar::{CalendarAnswer, HoldSeen};

/// A page of the bookings of some calendars, in the order of their windows.
pub(super) fn bookings(calendars: &[Calendar], filter: &BookingFilter, limit: usize) -> CalendarAnswer {
    let limit = limit.clamp(1, BOOKINGS_PAGE_MAX);
    let mut page: Vec<Arc<Booking>> = Vec::new();
    for calendar in calendars {
        page.extend(calendar.list(filter).take(limit + 1).cloned());
        if page.len() > 16 * limit {
            page.sort_by_key(|booking| Cursor::behind(booking));
            page.truncate(limit + 1);
        }
    }
    page.sort_by_key(|booking| Cursor::behind(booking));
    let more = page.len() > limit;
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|booking| Cursor::behind(booking));
    CalendarAnswer::Bookings { bookings: page, next }
}

/// The holds that the asker may see: the active ones first, then the latest of those that are over.
pub(super) fn holds(calendars: &[Calendar], asker: &Asker, now: Now) -> CalendarAnswer {
    let all = calendars.iter().flat_map(Calendar::holds);
    let mut own: Vec<_> = all.filter(|held| asker.may_see_hold_of(&held.hold.holder)).collect();
    own.sort_by_key(|held| (held.hold.settled_at.is_some(), std::cmp::Reverse(held.hold.created_at)));
    own.truncate(BOOKINGS_PAGE_MAX);
    CalendarAnswer::Holds(own.into_iter().map(|held| seen(held, now)).collect())
}

/// A hold as it is shown.
pub(super) fn seen(held: &HeldSlot, now: Now) -> HoldSeen {
    HoldSeen::new(&held.hold, held.ends(now))
}
