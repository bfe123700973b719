//! Each thing that the first note on bookings shows, by its own name. With the defaults they all still hold.

use serde_json::{Value, json};

use super::{HOUR, after, ahead, book, booked, listed, path, shown, soon, until, window, written};
use crate::lab::Lab;
use crate::waiting::{acquire, agents, events, holders, host, release, text};

#[test]
fn a_booking_reserves_a_future_window_on_the_resource() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = ahead(7_200);
    let told = book(&ci, "board", &window(starts_at, HOUR)).expect(201);
    let booking = &told.body["booking"];
    let id = text(&booking["id"]);
    assert!(id.strip_prefix("book_").is_some_and(|uuid| uuid.len() == 36), "{id}");
    let expected = json!({
        "id": id, "resourceId": "board", "holderId": "ci", "startsAt": written(starts_at),
        "endsAt": written(after(starts_at, HOUR)), "status": "scheduled",
    });
    assert_eq!(*booking, expected);
    assert_eq!(told.header("location"), Some(format!("/v1/bookings/{id}").as_str()));
    assert_eq!(shown(&ci, booking), expected);
    let created = events(&lab.door("host"), "booking.created");
    assert_eq!((created.len(), &created[0]["payload"]["bookingId"]), (1, &json!(id)));
}

#[test]
fn bookings_are_listed() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    assert_eq!(listed(&ci, "board", ""), Vec::<Value>::new());
    let late = booked(&ci, "board", ahead(14_400), HOUR);
    let early = booked(&ci, "board", ahead(7_200), HOUR);
    booked(&ci, "bench", ahead(7_200), HOUR);
    assert_eq!(listed(&ci, "board", ""), [early, late], "in the order of their windows");
}

#[test]
fn a_booking_is_cancelled() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let booking = booked(&ci, "board", ahead(7_200), HOUR);
    let told = ci.delete(&path(&booking)).expect(200).body;
    let mut cancelled = booking.clone();
    cancelled["status"] = json!("cancelled");
    assert_eq!(told, json!({ "booking": cancelled }));
    assert_eq!(ci.delete(&path(&booking)).expect(200).body, told, "twice is as good as once");
    assert_eq!(events(&lab.door("host"), "booking.cancelled").len(), 1);
    booked(&ci, "board", ahead(7_200), HOUR);
}

#[test]
fn an_overlapping_window_is_rejected_naming_the_conflicting_booking_id_and_nothing_else() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let noon = ahead(86_400);
    let mut body = window(noon, HOUR);
    body["note"] = json!("secret plans");
    let first = book(&ci, "board", &body).expect(201).body["booking"].take();
    let second = booked(&ci, "board", after(noon, 2 * HOUR), HOUR);
    for (starts_at, ms, conflicting) in [
        (noon, HOUR, &first),
        (after(noon, HOUR - 1), HOUR, &first),
        (after(noon, -HOUR), HOUR + 1, &first),
        (after(noon, 1), 1, &first),
        // Of several it is the earliest.
        (after(noon, -HOUR), 6 * HOUR, &first),
        (after(noon, HOUR), HOUR + 1, &second),
    ] {
        let told = book(&other, "board", &window(starts_at, ms)).refused("BOOKING_CONFLICT", 409);
        assert_eq!(*told.details(), json!({ "bookingId": conflicting["id"] }));
        assert!(told.message().contains(&text(&conflicting["id"])), "{}", told.body);
        let whole = told.body.to_string();
        assert!(!whole.contains("secret") && !whole.contains("\"ci"), "{whole}");
    }
    // Windows are half-open, and another resource is another calendar.
    booked(&other, "board", after(noon, HOUR), HOUR);
    booked(&other, "board", after(noon, -HOUR), HOUR);
    booked(&other, "bench", noon, HOUR);
}

#[test]
fn cancellation_is_restricted_to_the_booking_holder_or_an_admin() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let admin = lab.door("host");
    for door in [&ci, &admin] {
        let booking = booked(&ci, "board", ahead(7_200), HOUR);
        let told = other.delete(&path(&booking)).refused("INSUFFICIENT_PERMISSIONS", 403);
        assert!(told.message().contains("only its holder or an admin"), "{}", told.body);
        assert_eq!(shown(&ci, &booking)["status"], "scheduled");
        assert_eq!(door.delete(&path(&booking)).expect(200).body["booking"]["status"], "cancelled");
    }
    let reasons = events(&admin, "booking.cancelled").into_iter().map(|event| event["payload"]["reason"].clone());
    assert_eq!(reasons.collect::<Vec<_>>(), [json!("explicit"), json!("admin")]);
}

/// Nothing has become of a booking, and nobody has a lease.
#[track_caller]
fn nothing_happened(lab: &Lab, booking: &Value) {
    let admin = lab.door("host");
    assert_eq!(shown(&admin, booking)["status"], "scheduled");
    for kind in ["lease.granted", "booking.fulfilled", "booking.missed"] {
        assert_eq!(events(&admin, kind), Vec::<Value>::new());
    }
}

#[test]
fn a_booking_does_not_auto_acquire_at_start_time_and_its_holder_calls_acquire_when_the_window_opens() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(1_000);
    let booking = booked(&ci, "board", starts_at, 1_000);
    let later = booked(&ci, "board", after(starts_at, 1_000), HOUR);
    until(after(starts_at, 300));
    nothing_happened(&lab, &booking);
    until(after(starts_at, 1_300));
    nothing_happened(&lab, &booking);
    nothing_happened(&lab, &later);
    let lease = acquire(&ci, "board", json!({})).expect(201).body["lease"].take();
    assert_eq!(lease["holderId"], "ci");
    assert_eq!(shown(&ci, &later)["status"], "scheduled", "nothing sets another status");
}

#[test]
fn a_booking_does_not_block_acquisition_during_its_window() {
    let lab = host("");
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(800);
    let booking = booked(&ci, "board", starts_at, HOUR);
    // Across the start of the window, and in it.
    let lease = acquire(&walk_up, "board", json!({ "ttlMs": 2 * HOUR })).expect(201).body["lease"].take();
    until(starts_at);
    walk_up.post(&format!("/v1/leases/{}/renew", text(&lease["id"])), &json!({})).expect(200);
    release(&walk_up, &text(&lease["id"]));
    acquire(&walk_up, "board", json!({ "ttlMs": 2 * HOUR })).expect(201);
    assert_eq!(holders(&lab, "board"), ["walk-up"]);
    assert_eq!(shown(&ci, &booking)["status"], "scheduled");
}
