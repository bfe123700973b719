//! What bookings, holds and leases are called on both sides of the gateway: `<worker>.book_…` here, `book_…` there. Pure.

use std::sync::Arc;

use uuid::Uuid;

use crate::model::{Booking, BookingFilter, Cursor, LeaseId, NodeName, Refusal, ResourceId};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, HoldSeen};

/// A call in `worker`'s names.
pub(super) fn inward(ask: CalendarAsk, worker: &NodeName) -> CalendarAsk {
    match ask {
        CalendarAsk::Reschedule { booking, to } => CalendarAsk::Reschedule { booking: booking.of_worker().1, to },
        CalendarAsk::Cancel { booking, following } => CalendarAsk::Cancel { booking: booking.of_worker().1, following },
        CalendarAsk::Booking(booking) => CalendarAsk::Booking(booking.of_worker().1),
        CalendarAsk::Bookings { resource, filter, limit } => {
            let after = filter.after.as_ref().map(|after| cursor_at(after, worker));
            CalendarAsk::Bookings { resource, filter: BookingFilter { after, ..filter }, limit }
        }
        CalendarAsk::Confirm { hold, token, note } => CalendarAsk::Confirm { hold: hold.of_worker().1, token, note },
        CalendarAsk::Release { hold, token } => CalendarAsk::Release { hold: hold.of_worker().1, token },
        CalendarAsk::OneHold(hold) => CalendarAsk::OneHold(hold.of_worker().1),
        same @ (CalendarAsk::Book { .. }
        | CalendarAsk::Hold { .. }
        | CalendarAsk::Holds(_)
        | CalendarAsk::PauseHolds { .. }) => same,
    }
}

/// Where `worker` reads on behind a cursor of the gateway's. There all bookings are in one order: by their start, then by
/// their name with the worker's in front.
fn cursor_at(after: &Cursor, worker: &NodeName) -> Cursor {
    let (of, bare) = after.id().of_worker();
    let at = |id: &str| Cursor::new(after.starts_at(), id.parse().expect("it has the shape"));
    match of {
        Some(of) if of == *worker => Cursor::new(after.starts_at(), bare),
        // With the dot, because no name with its dot begins another.
        Some(of) if format!("{worker}.") < format!("{of}.") => at("book_ffffffff-ffff-ffff-ffff-ffffffffffff"),
        _ => at("book_00000000-0000-0000-0000-000000000000"),
    }
}

/// An answer in the gateway's names; none when a name in it is not one of a worker's own. `lease` names a lease of the
/// worker's on one of its resources.
pub(super) fn outward(
    answer: CalendarAnswer,
    worker: &NodeName,
    lease: impl Fn(&ResourceId, &LeaseId) -> LeaseId,
) -> Option<CalendarAnswer> {
    let booking = |mut booking: Arc<Booking>| {
        let named = Arc::make_mut(&mut booking);
        named.id = named.id.through(worker)?;
        named.lease_id = named.lease_id.as_ref().map(|id| lease(&named.resource_id, id));
        named.series = through(named.series.take(), |series| series.through(worker))?;
        Some(booking)
    };
    let all = |bookings: Vec<Arc<Booking>>| bookings.into_iter().map(booking).collect::<Option<Vec<_>>>();
    let hold = |hold: HoldSeen| {
        let id = hold.id.through(worker)?;
        let booking = through(hold.booking, |id| id.through(worker))?;
        Some(HoldSeen { id, booking, ..hold })
    };
    Some(match answer {
        CalendarAnswer::Booked { series, bookings } => {
            let series = through(series, |series| series.through(worker))?;
            CalendarAnswer::Booked { series, bookings: all(bookings)? }
        }
        CalendarAnswer::Booking(one) => CalendarAnswer::Booking(booking(one)?),
        CalendarAnswer::Cancelled { booking: one, following } => {
            CalendarAnswer::Cancelled { booking: booking(one)?, following: all(following)? }
        }
        CalendarAnswer::Bookings { bookings, next } => {
            let named = |next: Cursor| Some(Cursor::new(next.starts_at(), next.id().through(worker)?));
            CalendarAnswer::Bookings { bookings: all(bookings)?, next: through(next, named)? }
        }
        CalendarAnswer::Hold(one) => CalendarAnswer::Hold(hold(one)?),
        CalendarAnswer::Holds(holds) => CalendarAnswer::Holds(holds.into_iter().map(hold).collect::<Option<Vec<_>>>()?),
        CalendarAnswer::Paused(paused) => CalendarAnswer::Paused(paused),
    })
}

/// What is there, renamed; none when that cannot be.
fn through<T>(one: Option<T>, name: impl FnOnce(T) -> Option<T>) -> Option<Option<T>> {
    match one {
        Some(one) => name(one).map(Some),
        None => Some(None),
    }
}

/// A refusal in the gateway's names: what it says, and its facts.
pub(in super::super) fn refused(mut refusal: Refusal, worker: &NodeName) -> Refusal {
    refusal.message = renamed(&refusal.message, worker);
    for (_, value) in refusal.details.iter_mut().flatten() {
        if let serde_json::Value::String(text) = value {
            *text = renamed(text, worker);
        }
    }
    refusal
}

/// What stands before the UUID in a name that a worker made.
const MADE: [&str; 4] = ["book_", "hold_", "series_", "lse_"];
/// The length of a UUID as it is written.
const UUID_LENGTH: usize = 36;

/// A text with the worker's name before each name that it made.
pub(in crate::gateway) fn renamed(text: &str, worker: &NodeName) -> String {
    let mut renamed = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let begins = !text[..at].ends_with(|before: char| before.is_ascii_alphanumeric() || before == '.');
        let uuid = MADE.iter().find_map(|made| text[at..].strip_prefix(made)).and_then(|rest| rest.get(..UUID_LENGTH));
        if begins && uuid.is_some_and(|uuid| Uuid::try_parse(uuid).is_ok()) {
            renamed.push_str(worker.as_str());
            renamed.push('.');
        }
        renamed.push(character);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::model::{BookingId, BookingStatus, Code, HoldId, HoldStatus, SeriesId, Window};

    fn rack() -> NodeName {
        "rack-1".parse().unwrap()
    }

    fn booking() -> Arc<Booking> {
        Arc::new(Booking {
            id: BookingId::generate(),
            resource_id: "pixel".parse().unwrap(),
            holder: "gw:gateway:ci".parse().unwrap(),
            window: Window::try_from((0, 60)).unwrap(),
            status: BookingStatus::Fulfilled,
            claims: true,
            note: None,
            lease_id: Some("mine".parse().unwrap()),
            series: Some(SeriesId::generate()),
            created_at: Timestamp::UNIX_EPOCH,
            settled_at: None,
        })
    }

    #[test]
    fn what_a_worker_names_has_its_name_in_front_and_comes_back_without() {
        let made = booking();
        let next = Some(Cursor::behind(&made));
        let page = CalendarAnswer::Bookings { bookings: vec![made.clone()], next };
        let name = |_: &ResourceId, lease: &LeaseId| LeaseId::through(&rack(), lease);
        let Some(CalendarAnswer::Bookings { bookings, next }) = outward(page, &rack(), name) else { panic!() };
        let seen = &bookings[0];
        assert_eq!(seen.id, made.id.through(&rack()).unwrap());
        assert_eq!(seen.lease_id.as_ref().unwrap().as_str(), "rack-1.mine");
        assert_eq!(seen.series, made.series.as_ref().and_then(|series| series.through(&rack())));
        assert_eq!(next, Some(Cursor::behind(seen)));
        assert_eq!(seen.holder, made.holder, "whose it is decides who sees it, so it stays as the worker says it");
        let CalendarAsk::Booking(back) = inward(CalendarAsk::Booking(seen.id.clone()), &rack()) else { panic!() };
        assert_eq!(back, made.id);
        let hold = HoldSeen {
            id: HoldId::generate(),
            resource_id: made.resource_id.clone(),
            holder: made.holder.clone(),
            window: made.window,
            status: HoldStatus::Confirmed,
            expires_at: Timestamp::UNIX_EPOCH,
            booking: Some(made.id.clone()),
        };
        let whole = outward(CalendarAnswer::Hold(hold.clone()), &rack(), name);
        let Some(CalendarAnswer::Hold(seen)) = whole else { panic!() };
        assert_eq!((seen.id.of_worker().1, seen.booking), (hold.id, made.id.through(&rack())));
    }

    #[test]
    fn a_refusal_says_the_names_that_the_caller_can_use() {
        let (taken, hold) = (BookingId::generate(), HoldId::generate());
        let refusal = Refusal::new(Code::BookingConflict, format!("booking {taken} has it; é hold {hold}, book_1"))
            .with("bookingId", taken.as_str())
            .with("count", 5);
        let seen = refused(refusal, &rack());
        assert_eq!(seen.message, format!("booking rack-1.{taken} has it; é hold rack-1.{hold}, book_1"));
        let details = seen.details.clone().unwrap();
        assert_eq!((&details["bookingId"], &details["count"]), (&format!("rack-1.{taken}").into(), &5.into()));
        assert_eq!(refused(seen.clone(), &rack()), seen, "what has a name in front keeps it");
    }

    #[test]
    fn each_worker_reads_on_where_the_common_order_stands() {
        let at = Timestamp::from_second(60).unwrap();
        let id = BookingId::generate();
        let names = ["rack", "rack-1", "rack-2", "a"].map(|name| name.parse::<NodeName>().unwrap());
        for of in &names {
            let after = Cursor::new(at, id.through(of).unwrap());
            for worker in &names {
                let inner = cursor_at(&after, worker);
                assert_eq!(inner.starts_at(), at);
                for other in [BookingId::generate(), id.clone()] {
                    let left = Cursor::new(at, other.through(worker).unwrap()) > after;
                    assert_eq!(Cursor::new(at, other) > inner, left, "{worker} behind one of {of}");
                }
            }
        }
    }
}
