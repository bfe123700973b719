//! Bookings, by example: each sentence of SPEC §5 that the calendar alone answers for.

use std::time::Duration;

use berth::admission::calendar::{CalendarChange, CalendarCommand, CalendarReply};
use berth::model::{Asker, Booking, BookingStatus, Code, Rebooking, Refusal, Role, Slot, SlotLength, Window};

use super::diary::{Diary, admin, agent, at, book, booking, hold, instant, series, slot};
use crate::sample;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A diary in which Zelda has 10:00 to 11:00.
fn booked() -> Diary {
    let mut diary = Diary::default();
    diary.tell(book(1, "zelda", slot("10:00:00", "11:00:00")), at("08:00:00")).unwrap();
    diary
}

fn reschedule(number: usize, to: Slot, asker: Asker) -> CalendarCommand {
    let to = Rebooking { starts_at: Some(to.starts_at), length: Some(to.length) };
    CalendarCommand::Reschedule { booking: booking(number), to, asker }
}

fn cancel(number: usize, following: bool, asker: Asker) -> CalendarCommand {
    CalendarCommand::Cancel { booking: booking(number), following, asker }
}

fn state(diary: &Diary, number: usize) -> (BookingStatus, Window) {
    let it: &Booking = diary.calendar.booking(&booking(number)).unwrap();
    (it.status, it.window)
}

fn window(from: &str, to: &str) -> Window {
    Window::new(instant(from), instant(to)).unwrap()
}

fn field(refusal: Refusal) -> String {
    assert_eq!(refusal.code, Code::BadRequest, "{refusal:?}");
    refusal.details.unwrap()["field"].as_str().unwrap().to_owned()
}

#[test]
fn a_booking_is_scheduled_and_stays_so_when_its_window_has_passed() {
    let diary = booked();
    assert_eq!(state(&diary, 1), (BookingStatus::Scheduled, window("10:00:00", "11:00:00")));
    assert!(diary.calendar.expired(at("12:00:00")).is_empty());
    assert_eq!(diary.calendar.next_edge(Default::default(), None, instant("09:00:00")), None);
}

#[test]
fn back_to_back_is_no_overlap() {
    let mut diary = booked();
    for (number, from, to) in [(2, "09:00:00", "10:00:00"), (3, "11:00:00", "12:00:00")] {
        diary.tell(book(number, "quentin", slot(from, to)), at("08:00:00")).unwrap();
    }
}

#[test]
fn a_booking_that_crosses_another_names_the_earliest_it_crosses_and_nothing_else_of_it() {
    let mut diary = booked();
    diary.tell(book(2, "zelda", slot("11:00:00", "12:00:00")), at("08:00:00")).unwrap();
    for crossing in [
        slot("10:59:59.999999", "11:30:00"),
        slot("09:00:00", "10:00:00.000001"),
        slot("10:15:00", "10:30:00"),
        slot("09:00:00", "13:00:00"),
        slot("10:00:00", "11:00:00"),
    ] {
        let refusal = diary.tell(book(3, "quentin", crossing), at("08:00:00")).unwrap_err();
        assert_eq!(refusal.code, Code::BookingConflict);
        let details = serde_json::json!({ "bookingId": booking(1).as_str() });
        assert_eq!(serde_json::to_value(&refusal.details).unwrap(), details);
        assert!(!refusal.message.contains("zelda"));
    }
    assert_eq!(diary.calendar.bookings().count(), 2);
}

#[test]
fn what_is_no_window_is_refused_naming_the_field() {
    let mut diary = Diary::default();
    let now = at("08:00:00");
    let lasting = |from: &str, width| Slot { starts_at: instant(from), length: SlotLength::Lasting(width) };
    let ahead = |span: Duration| now.wall.checked_add(span).unwrap();
    let (most, horizon) = (diary.rules.max_duration, diary.rules.horizon);
    let us = Duration::from_micros(1);
    for (wrong, of) in [
        (slot("07:59:59.999999", "09:00:00"), "startsAt"),
        (slot("09:00:00", "09:00:00"), "endsAt"),
        (slot("09:00:00", "08:30:00"), "endsAt"),
        (lasting("09:00:00", Duration::ZERO), "durationMs"),
        (lasting("09:00:00", most + us), "durationMs"),
        (lasting("09:00:00", Duration::MAX), "durationMs"),
        (Slot { starts_at: ahead(horizon - us), length: SlotLength::Lasting(us + us) }, "durationMs"),
        (Slot { starts_at: ahead(horizon + us), length: SlotLength::Lasting(us) }, "startsAt"),
    ] {
        let refusal = diary.tell(book(1, "zelda", wrong), now).unwrap_err();
        assert_eq!(field(refusal), of, "{wrong:?}");
    }
    for (number, right) in [
        (1, slot("08:00:00", "09:00:00")),
        (2, lasting("09:00:00", most)),
        (3, Slot { starts_at: ahead(horizon - us), length: SlotLength::Lasting(us) }),
    ] {
        diary.tell(book(number, "zelda", right), now).unwrap();
    }
}

#[test]
fn cancel_and_reschedule_are_for_the_holder_or_an_admin() {
    let viewer = Asker { role: Role::Viewer, ..agent("zelda") };
    for stranger in [agent("quentin"), agent("gw:gateway:zelda"), viewer] {
        for command in [cancel(1, false, stranger.clone()), reschedule(1, slot("12:00:00", "13:00:00"), stranger)] {
            let refusal = booked().tell(command, at("08:00:00")).unwrap_err();
            assert_eq!((refusal.code, refusal.details), (Code::InsufficientPermissions, None));
        }
    }
    for own in [agent("zelda"), agent("zelda/night-shift"), admin()] {
        booked().tell(cancel(1, false, own.clone()), at("08:00:00")).unwrap();
        booked().tell(reschedule(1, slot("12:00:00", "13:00:00"), own), at("08:00:00")).unwrap();
    }
    let unknown = booked().tell(cancel(9, false, agent("quentin")), at("08:00:00")).unwrap_err();
    assert_eq!(unknown.code, Code::UnknownBooking);
}

#[test]
fn cancelling_frees_the_window_and_cancelling_twice_answers_the_cancelled_booking() {
    let mut diary = booked();
    let once = diary.tell(cancel(1, false, agent("zelda")), at("08:00:00")).unwrap();
    let (changes, twice) = diary.take(cancel(1, false, agent("zelda")), at("09:00:00")).unwrap();
    assert_eq!((&once, changes), (&twice, vec![]));
    assert_eq!(state(&diary, 1).0, BookingStatus::Cancelled);
    diary.tell(book(2, "quentin", slot("10:00:00", "11:00:00")), at("09:00:00")).unwrap();
}

#[test]
fn a_booking_that_runs_can_be_cancelled_and_one_that_is_over_cannot() {
    let mut diary = booked();
    let over = diary.tell(cancel(1, false, agent("zelda")), at("11:00:00")).unwrap_err();
    assert_eq!(over.code, Code::BadRequest);
    diary.tell(cancel(1, false, agent("zelda")), at("10:59:59.999999")).unwrap();
}

#[test]
fn on_a_conflict_a_rescheduled_booking_keeps_the_window_it_has() {
    let mut diary = booked();
    diary.tell(book(2, "quentin", slot("12:00:00", "13:00:00")), at("08:00:00")).unwrap();
    let refusal = diary.tell(reschedule(1, slot("11:30:00", "12:30:00"), agent("zelda")), at("08:00:00")).unwrap_err();
    assert_eq!(refusal.details.unwrap()["bookingId"], booking(2).as_str());
    assert_eq!(state(&diary, 1), (BookingStatus::Scheduled, window("10:00:00", "11:00:00")));
}

#[test]
fn a_booking_is_rescheduled_into_a_part_of_its_own_window() {
    let mut diary = booked();
    let (changes, _) = diary.take(reschedule(1, slot("10:30:00", "11:30:00"), agent("zelda")), at("08:00:00")).unwrap();
    assert_eq!(changes.len(), 1, "one atomic step");
    assert_eq!(state(&diary, 1).1, window("10:30:00", "11:30:00"));
    diary.tell(book(2, "quentin", slot("10:00:00", "10:30:00")), at("08:00:00")).unwrap();
}

#[test]
fn a_booking_that_runs_is_made_longer_or_shorter_from_where_it_began() {
    let mut diary = booked();
    let until = |time: &str| {
        let to = Rebooking { starts_at: None, length: Some(SlotLength::Until(instant(time))) };
        CalendarCommand::Reschedule { booking: booking(1), to, asker: agent("zelda") }
    };
    diary.tell(until("11:30:00"), at("10:10:00")).unwrap();
    assert_eq!(state(&diary, 1).1, window("10:00:00", "11:30:00"));
    diary.tell(until("10:20:00"), at("10:10:00")).unwrap();
    assert_eq!(field(diary.tell(until("10:10:00"), at("10:10:00")).unwrap_err()), "endsAt");
    let earlier = reschedule(1, slot("10:05:00", "11:00:00"), agent("zelda"));
    assert_eq!(field(diary.tell(earlier, at("10:10:00")).unwrap_err()), "startsAt");
}

#[test]
fn a_past_booking_is_not_rescheduled() {
    let mut diary = booked();
    let refusal = diary.tell(reschedule(1, slot("14:00:00", "15:00:00"), agent("zelda")), at("11:00:00")).unwrap_err();
    assert_eq!(refusal.code, Code::BadRequest);
    assert_eq!(state(&diary, 1).1, window("10:00:00", "11:00:00"));
}

#[test]
fn crossing_a_hold_says_nothing_about_whose() {
    let mut diary = Diary::default();
    let held = |number, holder: &str, slot| CalendarCommand::Hold {
        id: hold(number),
        holder: sample::text(holder),
        slot,
        ttl: None,
        key: None,
        token: berth::model::TokenHash::of("a token"),
    };
    diary.tell(held(1, "quentin", slot("10:00:00", "11:00:00")), at("08:00:00")).unwrap();
    diary.tell(held(2, "zelda", slot("11:00:00", "12:00:00")), at("08:00:00")).unwrap();
    let foreign = diary.tell(book(1, "zelda", slot("10:00:00", "11:00:00")), at("08:00:00")).unwrap_err();
    let own_part = diary.tell(book(1, "zelda", slot("11:00:00", "11:30:00")), at("08:00:00")).unwrap_err();
    assert_eq!((foreign.code, &foreign.details), (Code::SlotHeld, &None));
    assert_eq!(foreign, own_part);
    let (changes, _) = diary.take(book(1, "zelda", slot("11:00:00", "12:00:00")), at("08:00:00")).unwrap();
    let [CalendarChange::Hold { hold: confirmed, .. }, CalendarChange::Booking { .. }] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    assert_eq!(confirmed.booking, Some(booking(1)), "one's own hold on exactly that slot is confirmed by the booking");
}

#[test]
fn a_series_is_booked_whole_or_not_at_all() {
    let mut diary = booked();
    let windows = |first: &str, to: &str| {
        let day = |number: u32| Slot {
            starts_at: slot(first, to).starts_at.checked_add(DAY * number).unwrap(),
            length: SlotLength::Until(instant(to).checked_add(DAY * number).unwrap()),
        };
        (0..3).map(|number| (booking(10 + number as usize), day(number))).collect::<Vec<_>>()
    };
    let with = |windows| CalendarCommand::Book {
        holder: sample::text("quentin"),
        windows,
        series: Some(series(1)),
        note: None,
    };
    let mut late = windows("12:00:00", "13:00:00");
    late.push((booking(13), slot("10:30:00", "10:45:00")));
    let before = diary.calendar.clone();
    let refusal = diary.tell(with(late), at("08:00:00")).unwrap_err();
    assert_eq!(refusal.details.unwrap()["bookingId"], booking(1).as_str());
    assert_eq!(diary.calendar, before);

    let CalendarReply::Booked(all) = diary.tell(with(windows("12:00:00", "13:00:00")), at("08:00:00")).unwrap() else {
        panic!("not booked");
    };
    assert!(all.iter().all(|it| it.series == Some(series(1))));
    assert_eq!(all.len(), 3);
}

#[test]
fn occurrences_that_reach_into_each_other_are_a_bad_request() {
    let mut diary = Diary::default();
    let long = |number: u64| Slot {
        starts_at: instant("12:00:00").checked_add(DAY * number as u32).unwrap(),
        length: SlotLength::Lasting(DAY + Duration::from_micros(number + 1)),
    };
    let windows = vec![(booking(1), long(0)), (booking(2), long(1))];
    let holder = sample::text("zelda");
    let command = CalendarCommand::Book { holder, windows, series: Some(series(1)), note: None };
    assert_eq!(field(diary.tell(command, at("08:00:00")).unwrap_err()), "durationMs");
    assert!(diary.calendar.is_empty());
}

#[test]
fn of_a_series_one_is_cancelled_or_the_rest() {
    let mut diary = Diary::default();
    let day = |number: u32| Slot {
        starts_at: instant("12:00:00").checked_add(DAY * number).unwrap(),
        length: SlotLength::Lasting(Duration::from_secs(60)),
    };
    let windows = (0..5).map(|number| (booking(number as usize), day(number))).collect();
    let holder = sample::text("zelda");
    diary.tell(CalendarCommand::Book { holder, windows, series: Some(series(1)), note: None }, at("08:00:00")).unwrap();
    diary.tell(cancel(1, false, agent("zelda")), at("08:00:00")).unwrap();
    let CalendarReply::Cancelled(this, rest) = diary.tell(cancel(2, true, agent("zelda")), at("08:00:00")).unwrap()
    else {
        panic!("not cancelled");
    };
    assert_eq!((&this.id, rest.iter().map(|it| it.id.clone()).collect()), (&booking(2), vec![booking(3), booking(4)]));
    let left: Vec<_> = diary.calendar.bookings().filter(|it| it.claims).map(|it| it.id.clone()).collect();
    assert_eq!(left, [booking(0)]);
    // From one that is cancelled or over, too.
    let CalendarReply::Cancelled(_, rest) = diary.tell(cancel(1, true, agent("zelda")), at("08:00:00")).unwrap() else {
        panic!("not cancelled");
    };
    assert!(rest.is_empty());
}
