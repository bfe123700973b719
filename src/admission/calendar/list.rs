//! Lists of bookings, page by page.

use std::sync::Arc;

use jiff::Timestamp;

use super::Calendar;
use crate::model::{Booking, BookingFilter, BookingId, Cursor};

impl Calendar {
    /// The bookings that a filter wants, in the order of their windows.
    pub fn list<'a>(&'a self, filter: &'a BookingFilter) -> impl Iterator<Item = &'a Arc<Booking>> {
        // What starts so long before ends before the filter begins.
        let first = filter.from.map(|from| from.checked_sub(self.longest).unwrap_or(Timestamp::MIN));
        let first = filter.after.as_ref().map(|after| after.starts_at()).max(first).unwrap_or(Timestamp::MIN);
        let ordered = self.starting_from(first).take_while(|it| filter.to.is_none_or(|to| it.window.starts_at() < to));
        let behind = |it: &&Arc<Booking>| filter.after.as_ref().is_none_or(|after| Cursor::behind(it) > *after);
        ordered.filter(behind).filter(|it| filter.shows(it))
    }

    /// Every booking whose window starts then or later, in their order.
    pub(super) fn starting_from(&self, first: Timestamp) -> impl Iterator<Item = &Arc<Booking>> {
        // No id sorts before this one.
        let least: BookingId = "book_00000000-0000-0000-0000-000000000000".parse().expect("it has the shape");
        self.bookings.range((first, least)..).map(|(_, booking)| booking)
    }
}
