//! What is true of every calendar and of every refusal, whatever came before.

use std::time::Duration;

use berth::admission::calendar::{Calendar, CalendarCommand, ClaimOf, hold_conflict};
use berth::clock::Now;
use berth::model::time::rfc3339;
use berth::model::{BookingFilter, BookingStatus, Code, Cursor, HoldStatus, Refusal, Window};
use jiff::Timestamp;

use super::diary::{Diary, QUARTER};
use super::model::{Model, cross, span};
use super::steps::{HOLDERS, NOTES};
use crate::sample;

/// I9: no two active holds, scheduled bookings, or bookings whose lease is not over, overlap.
pub fn nothing_overlaps(calendar: &Calendar) {
    let bookings = calendar.bookings().filter(|it| it.status == BookingStatus::Scheduled || it.claims);
    let holds = calendar.holds().filter(|held| held.hold.status == HoldStatus::Active);
    let taken: Vec<Window> = bookings.map(|it| it.window).chain(holds.map(|held| held.hold.window)).collect();
    for (index, one) in taken.iter().enumerate() {
        let other = taken[index + 1..].iter().find(|other| cross(span(*one), span(**other)));
        assert_eq!(other, None, "I9: crosses {one:?}");
    }
}

/// The calendar says of its claims, holds and leases what looking through all of them says, and is the same as one
/// that is loaded anew, in another order.
pub fn every_index_agrees(calendar: &Calendar, model: &Model) {
    let mut anew = Calendar::default();
    anew.holds_paused = model.paused;
    for (hold, deadline) in model.holds.iter().rev() {
        let expires_at = calendar.hold(&hold.id).expect("the model's holds are there").expires_at;
        let (hold, deadline) = (hold.clone().into(), *deadline);
        anew.put_hold(berth::admission::calendar::HeldSlot { hold, deadline, expires_at });
    }
    model.bookings.iter().rev().for_each(|it| anew.put_booking(it.clone().into()));
    assert_eq!(*calendar, anew);

    let claims = model.claims();
    let instant = |us: i128| Timestamp::from_microsecond(us as i64).unwrap();
    let edges = claims.iter().flat_map(|((from, to), ..)| [from - 1, *from, from + 1, to - 1, *to]);
    for at in edges.clone() {
        let there = claims.iter().find(|((from, to), ..)| *from <= at && at < *to);
        let found = calendar.claim_at(instant(at));
        assert_eq!(found.map(|claim| &claim.holder), there.map(|(_, holder, _)| holder), "at {}", instant(at));
        for width in [1, QUARTER.as_micros() as i128, 5 * QUARTER.as_micros() as i128] {
            let crossing = claims.iter().filter(|(window, ..)| cross(*window, (at, at + width)));
            let window = Window::new(instant(at), instant(at + width)).unwrap();
            let found = calendar.claims_over(window).map(|(from, claim)| {
                let id = match &claim.of {
                    ClaimOf::Booking(id) => Some(id.clone()),
                    ClaimOf::Hold(_) => None,
                };
                let window = (from.as_microsecond().into(), claim.ends_at.as_microsecond().into());
                (window, claim.holder.clone(), id)
            });
            assert_eq!(found.collect::<Vec<_>>(), crossing.cloned().collect::<Vec<_>>());
        }
    }
    let active = || model.holds.iter().filter(|(hold, _)| hold.status == HoldStatus::Active);
    assert_eq!(calendar.next_deadline(), active().map(|(_, deadline)| *deadline).min());
    for (hold, holder, key) in active().filter_map(|(it, _)| Some((it, &it.holder, it.key.as_ref()?))) {
        assert_eq!(calendar.hold_under(holder, key).map(|held| &held.hold.id), Some(&hold.id));
    }
    let fulfilled = model.bookings.iter().filter(|it| it.claims && it.lease_id.is_some()).count();
    assert_eq!(calendar.fulfilled_by(&sample::text("lse_1")).len(), fulfilled);
    assert!(calendar.fulfilled_by(&sample::text("lse_2")).is_empty());
    assert_eq!(calendar.is_empty(), model.bookings.is_empty() && model.holds.is_empty());
}

/// A list has what its filter shows, in the order of the windows, whole or page by page.
pub fn lists_are_whole(calendar: &Calendar, model: &Model, now: Now) {
    let mut all = model.bookings.clone();
    all.sort_by_key(|it| (it.window.starts_at(), it.id.clone()));
    let around = |quarters: i64| {
        Timestamp::from_microsecond(now.wall.as_microsecond() + quarters * QUARTER.as_micros() as i64).unwrap()
    };
    let filters = [
        BookingFilter::default(),
        BookingFilter { from: Some(now.wall), ..Default::default() },
        BookingFilter { from: Some(around(-4)), to: Some(around(8)), ..Default::default() },
        BookingFilter { status: Some(BookingStatus::Cancelled), to: Some(around(2)), ..Default::default() },
        BookingFilter { owner: Some(sample::text("zelda/day-shift")), ..Default::default() },
    ];
    for filter in filters {
        let wanted: Vec<_> = all
            .iter()
            .filter(|it| filter.from.is_none_or(|from| it.window.ends_at() > from))
            .filter(|it| filter.to.is_none_or(|to| it.window.starts_at() < to))
            .filter(|it| filter.status.is_none_or(|status| it.status == status))
            .filter(|it| filter.owner.is_none() || it.holder.via.is_none() && it.holder.principal.as_str() == "zelda")
            .cloned()
            .collect();
        let shown: Vec<_> = calendar.list(&filter).map(|it| it.as_ref().clone()).collect();
        assert_eq!(shown, wanted, "{filter:?}");
        let mut paged = Vec::new();
        let mut page = filter.clone();
        while let [first, rest @ ..] = calendar.list(&page).take(2).collect::<Vec<_>>().as_slice() {
            let last = *rest.last().unwrap_or(first);
            paged.extend([first].into_iter().chain(rest).map(|it| it.as_ref().clone()));
            page.after = Some(Cursor::behind(last).to_string().parse().unwrap());
        }
        assert_eq!(paged, wanted, "page by page: {filter:?}");
    }
}

/// A refusal says nothing of anybody else: no holder, no note, no hold that was not named, no expiry; and every loser
/// of a slot hears the same.
pub fn a_refusal_gives_nothing_away(refusal: &Refusal, command: &CalendarCommand, diary: &Diary, now: Now) {
    let words = serde_json::to_string(refusal).unwrap();
    for private in HOLDERS.iter().chain(&NOTES) {
        assert!(!words.contains(private), "{private} in {words}");
    }
    let named = format!("{command:?}");
    for held in diary.calendar.holds() {
        let id = held.hold.id.as_str();
        assert!(!words.contains(id) || named.contains(id), "{id} in {words}");
        // What ends within this microsecond looks like now, which may be said.
        if held.hold.status == HoldStatus::Active && held.deadline.left(now.run) >= Duration::from_micros(1) {
            assert!(!words.contains(&rfc3339(now.wall_at(held.deadline))), "an expiry in {words}");
        }
    }
    let conflict = refusal.details.as_ref().and_then(|details| details.get("bookingId"));
    for booking in diary.calendar.bookings().filter(|it| refusal.code != Code::HoldExpired || it.claims) {
        let id = booking.id.as_str();
        let is_named = named.contains(id) || conflict.is_some_and(|conflict| conflict == id);
        assert!(!words.contains(id) || is_named, "{id} in {words}");
    }
    match refusal.code {
        Code::HoldConflict => assert_eq!(*refusal, hold_conflict()),
        Code::SlotHeld => {
            let message = "a part of that window of technician-1 is held; choose another, or ask again in some minutes";
            assert_eq!(*refusal, Refusal::new(Code::SlotHeld, message));
        }
        Code::BookingConflict => {
            let details = refusal.details.as_ref().unwrap();
            assert_eq!(details.keys().collect::<Vec<_>>(), ["bookingId"]);
        }
        _ => {}
    }
}
