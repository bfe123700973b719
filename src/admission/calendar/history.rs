//! Which event a change of a calendar leaves behind (SPEC §10). None says anything of a token.

use serde_json::json;

use super::{BookingMove, CalendarChange, HoldMove};
use crate::model::time::rfc3339;
use crate::model::{Booking, Event, EventKind, Hold, ResourceId, Window};

/// The event of a change on `resource`, if it leaves one.
pub(in crate::admission) fn event_of(change: &CalendarChange, resource: Option<&ResourceId>) -> Option<Event> {
    match change {
        CalendarChange::Booking { booking, what } => of_booking(booking, *what),
        CalendarChange::Hold { hold, what, expires_at, .. } => match what {
            HoldMove::Created => Some(of_hold(EventKind::HoldCreated, hold).with("expiresAt", rfc3339(*expires_at))),
            HoldMove::Confirmed => {
                let event = of_hold(EventKind::HoldConfirmed, hold);
                Some(match &hold.booking {
                    Some(booking) => event.with("bookingId", booking.as_str()),
                    None => event,
                })
            }
            HoldMove::Released { by_admin } => {
                Some(of_hold(EventKind::HoldReleased, hold).with("reason", by_whom(*by_admin)))
            }
            HoldMove::Expired => Some(of_hold(EventKind::HoldExpired, hold)),
            HoldMove::Reissued | HoldMove::Rewritten => None,
        },
        CalendarChange::HoldsPaused(paused) => {
            let event = match paused {
                true => Event::new(EventKind::HoldsPaused).with("reason", "admin"),
                false => Event::new(EventKind::HoldsResumed),
            };
            Some(match resource {
                Some(id) => event.with("resourceId", id.as_str()),
                None => event,
            })
        }
        CalendarChange::Forgotten { .. } => None,
    }
}

fn of_booking(booking: &Booking, what: BookingMove) -> Option<Event> {
    let about = |kind| {
        let event = Event::new(kind)
            .about(&booking.holder)
            .with("bookingId", booking.id.as_str())
            .with("resourceId", booking.resource_id.as_str());
        within(event, booking.window)
    };
    Some(match what {
        BookingMove::Created => {
            let event = about(EventKind::BookingCreated);
            match &booking.series {
                Some(series) => event.with("seriesId", series.as_str()),
                None => event,
            }
        }
        BookingMove::Rescheduled(from) => about(EventKind::BookingRescheduled)
            .with("from", json!({ "startsAt": rfc3339(from.starts_at()), "endsAt": rfc3339(from.ends_at()) })),
        BookingMove::Cancelled { by_admin } => about(EventKind::BookingCancelled).with("reason", by_whom(by_admin)),
        BookingMove::Fulfilled => {
            let event = about(EventKind::BookingFulfilled);
            match &booking.lease_id {
                Some(lease) => event.of_lease(lease),
                None => event,
            }
        }
        BookingMove::Missed(why) => about(EventKind::BookingMissed).with("reason", why.as_str()),
        BookingMove::Freed => return None,
    })
}

fn of_hold(kind: EventKind, hold: &Hold) -> Event {
    let event = Event::new(kind)
        .about(&hold.holder)
        .with("holdId", hold.id.as_str())
        .with("resourceId", hold.resource_id.as_str());
    within(event, hold.window)
}

fn within(event: Event, window: Window) -> Event {
    event.with("startsAt", rfc3339(window.starts_at())).with("endsAt", rfc3339(window.ends_at()))
}

fn by_whom(by_admin: bool) -> &'static str {
    if by_admin { "admin" } else { "explicit" }
}
