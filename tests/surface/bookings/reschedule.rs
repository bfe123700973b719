//! Another window for a booking: one step, and on a conflict the old one stays.

use serde_json::json;

use super::{HOUR, after, ahead, booked, comes_to, no_overlap, path, reader, shown, soon, until, window, written};
use crate::waiting::{acquire, agents, host, text};

#[test]
fn a_booking_gets_another_start_another_length_another_end_or_all_of_it() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let noon = ahead(86_400);
    let booking = booked(&ci, "board", noon, HOUR);
    let at = |hours: i64| written(after(noon, hours * HOUR));
    for (body, starts_at, ends_at) in [
        // What is left out stays: of a window that is moved, its length.
        (json!({ "startsAt": at(5) }), at(5), at(6)),
        (json!({ "durationMs": 2 * HOUR }), at(5), at(7)),
        (json!({ "endsAt": at(6) }), at(5), at(6)),
        (json!({ "startsAt": at(3), "durationMs": 3 * HOUR }), at(3), at(6)),
        (json!({ "startsAt": at(1), "endsAt": at(2) }), at(1), at(2)),
        // Over what it has itself.
        (json!({ "startsAt": at(0), "endsAt": at(3) }), at(0), at(3)),
        (json!({ "startsAt": at(0) }), at(0), at(3)),
    ] {
        let moved = ci.patch(&path(&booking), &body).expect(200).body["booking"].take();
        assert_eq!((&moved["startsAt"], &moved["endsAt"]), (&json!(starts_at), &json!(ends_at)), "{body}");
        assert_eq!((&moved["id"], &moved["status"]), (&booking["id"], &json!("scheduled")));
        assert_eq!(shown(&ci, &booking), moved);
    }
    let claims = no_overlap(&reader(&lab));
    assert_eq!(claims.len(), 1, "its former windows are free: {claims:?}");
    booked(&ci, "board", after(noon, 5 * HOUR), HOUR);
}

#[test]
fn on_a_conflict_the_old_window_stays_and_the_conflicting_booking_is_named() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let noon = ahead(86_400);
    let booking = booked(&ci, "board", noon, HOUR);
    let taken = booked(&other, "board", after(noon, 2 * HOUR), HOUR);
    let at = |hours: i64| written(after(noon, hours * HOUR));
    for body in [json!({ "startsAt": at(2) }), json!({ "durationMs": 2 * HOUR + 1 }), json!({ "endsAt": at(9) })] {
        let told = ci.patch(&path(&booking), &body).refused("BOOKING_CONFLICT", 409);
        assert_eq!(*told.details(), json!({ "bookingId": taken["id"] }), "{body}");
        assert_eq!(shown(&ci, &booking), booking);
    }
    ci.patch(&path(&booking), &json!({ "durationMs": 2 * HOUR })).expect(200);
    other.post("/v1/resources/board/holds", &window(after(noon, 5 * HOUR), HOUR)).expect(201);
    let told = ci.patch(&path(&booking), &json!({ "startsAt": at(4) })).refused("SLOT_HELD", 409);
    assert_eq!(told.body["error"].get("details"), None, "nothing about whose: {}", told.body);
    // Not even one's own hold is taken for it.
    ci.post("/v1/resources/board/holds", &window(after(noon, 7 * HOUR), 2 * HOUR)).expect(201);
    ci.patch(&path(&booking), &json!({ "startsAt": at(7) })).refused("SLOT_HELD", 409);
    no_overlap(&reader(&lab));
}

#[test]
fn another_window_has_the_bounds_of_the_first() {
    let lab = host("[bookings]\nmax_duration = \"2h\"\nhorizon = \"10d\"");
    let [ci] = agents(&lab, ["ci"]);
    let noon = ahead(86_400);
    let booking = booked(&ci, "board", noon, HOUR);
    for (body, field) in [
        (json!({ "startsAt": written(ahead(-60)) }), "startsAt"),
        (json!({ "startsAt": written(ahead(11 * 86_400)) }), "startsAt"),
        (json!({ "durationMs": 2 * HOUR + 1 }), "durationMs"),
        (json!({ "endsAt": written(noon) }), "endsAt"),
        (json!({ "endsAt": written(after(noon, -1)) }), "endsAt"),
    ] {
        let told = ci.patch(&path(&booking), &body).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], field, "{body}: {}", told.body);
    }
    assert_eq!(shown(&ci, &booking), booking);
}

#[test]
fn a_booking_that_is_over_or_given_up_or_had_is_not_rescheduled() {
    let lab = host("[bookings]\nmode = \"enforced\"");
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(700);
    let past = booked(&ci, "board", starts_at, 200);
    let given_up = booked(&ci, "bench", ahead(7_200), HOUR);
    ci.delete(&path(&given_up)).expect(200);
    let had = booked(&ci, "pixel-a", starts_at, HOUR);
    until(after(starts_at, 250));
    let lease = acquire(&ci, "pixel-a", json!({})).expect(201).body["lease"].take();
    assert_eq!(comes_to(&ci, &had, "fulfilled")["leaseId"], lease["id"]);
    for (booking, words) in [(&past, "is over"), (&given_up, "is cancelled"), (&had, "is fulfilled")] {
        for body in [json!({ "startsAt": written(ahead(86_400)) }), json!({ "durationMs": 3 * HOUR })] {
            let told = ci.patch(&path(booking), &body).refused("BAD_REQUEST", 400);
            assert!(told.message().contains(words), "{}", told.body);
        }
    }
    // What is over is not cancelled either, and what is had is released instead.
    let told = ci.delete(&path(&past)).refused("BAD_REQUEST", 400);
    assert!(told.message().contains("is over"), "{}", told.body);
    let told = ci.delete(&path(&had)).refused("BAD_REQUEST", 400);
    assert!(told.message().contains(&text(&lease["id"])), "{}", told.body);
}

#[test]
fn a_booking_that_runs_may_last_longer_or_end_sooner_but_not_in_the_past() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(700);
    let booking = booked(&ci, "board", starts_at, HOUR);
    until(after(starts_at, 20));
    ci.patch(&path(&booking), &json!({ "durationMs": 2 * HOUR })).expect(200);
    let told = ci.patch(&path(&booking), &json!({ "durationMs": 1 })).refused("BAD_REQUEST", 400);
    assert!(told.message().contains("in the past"), "{}", told.body);
    let told = ci.patch(&path(&booking), &json!({ "startsAt": written(after(starts_at, 10)) }));
    assert_eq!(told.refused("BAD_REQUEST", 400).details()["field"], "startsAt");
    let ends_at = written(soon(60_000));
    ci.patch(&path(&booking), &json!({ "endsAt": ends_at })).expect(200);
    assert_eq!(shown(&ci, &booking)["endsAt"], json!(ends_at));
    ci.delete(&path(&booking)).expect(200);
}
