//! Who sees what of a booking, and who may change it.

use serde_json::{Value, json};

use super::{HOUR, ahead, book, booked, listed, path, shown, window};
use crate::http::Call;
use crate::waiting::{agents, events, host, principal};

/// What everybody may see of a booking.
fn bare(booking: &Value) -> Value {
    let mut bare = booking.clone();
    let fields = bare.as_object_mut().expect("an object");
    for key in ["holderId", "note", "leaseId", "seriesId"] {
        fields.remove(key);
    }
    bare
}

#[test]
fn everybody_sees_when_a_booking_is_and_only_its_holder_an_admin_and_a_viewer_whose() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let (viewer, admin) = (principal(&lab, "wall", "viewer"), lab.door("host"));
    let mut body = window(ahead(7_200), HOUR);
    (body["note"], body["requester"]) = (json!("night run"), json!("job-1"));
    let booking = book(&ci, "board", &body).expect(201).body["booking"].take();
    assert_eq!((&booking["holderId"], &booking["note"]), (&json!("ci/job-1"), &json!("night run")));
    for door in [&ci, &viewer, &admin] {
        assert_eq!(shown(door, &booking), booking);
        assert_eq!(json!(listed(door, "board", "")), json!([booking]));
    }
    assert_eq!(shown(&other, &booking), bare(&booking));
    assert_eq!(listed(&other, "board", ""), [bare(&booking)]);
    // Over all resources an agent's list is its own.
    let all = |door: &crate::http::Door| door.get("/v1/bookings").expect(200).body["bookings"].take();
    assert_eq!(all(&other), json!([]));
    for door in [&ci, &viewer, &admin] {
        assert_eq!(all(door), json!([booking]));
    }
}

#[test]
fn a_foreign_booking_is_changed_by_an_admin_only_and_a_viewer_changes_none() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let viewer = principal(&lab, "wall", "viewer");
    let booking = booked(&ci, "board", ahead(7_200), HOUR);
    let hour_more = json!({ "durationMs": 2 * HOUR });
    for door in [&other, &viewer] {
        for told in [
            door.delete(&path(&booking)),
            door.delete(&format!("{}?following=true", path(&booking))),
            door.patch(&path(&booking), &hour_more),
        ] {
            let told = told.refused("INSUFFICIENT_PERMISSIONS", 403);
            assert!(!told.body.to_string().contains("\"ci"), "{}", told.body);
        }
    }
    book(&viewer, "bench", &window(ahead(7_200), HOUR)).refused("INSUFFICIENT_PERMISSIONS", 403);
    assert_eq!(shown(&ci, &booking), booking);
    let admin = lab.door("host");
    let moved = admin.patch(&path(&booking), &hour_more).expect(200).body["booking"].take();
    assert_eq!(moved["holderId"], "ci", "an admin moves it for its holder");
    // Permissions compare principals: whoever holds the token may act for any of its requesters.
    let path = path(&booking);
    let call = Call { method: "DELETE", path: &path, ..Call::default() }.header("Berth-Requester", "job-9");
    assert_eq!(ci.send(&call).expect(200).body["booking"]["status"], "cancelled");
}

#[test]
fn without_a_token_nobody_books_or_looks() {
    let lab = host("");
    let stranger = crate::http::Door::tcp(lab.port("host"));
    let booking = booked(&lab.door("host"), "board", ahead(7_200), HOUR);
    for told in [
        book(&stranger, "board", &window(ahead(60), HOUR)),
        stranger.get("/v1/bookings"),
        stranger.get("/v1/resources/board/bookings"),
        stranger.get(&path(&booking)),
        stranger.delete(&path(&booking)),
        stranger.patch(&path(&booking), &json!({ "durationMs": 1 })),
    ] {
        told.refused("UNAUTHENTICATED", 401);
    }
}

#[test]
fn the_log_tells_of_each_booking_with_its_window_and_each_reader_sees_its_own() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let viewer = principal(&lab, "wall", "viewer");
    let booking = booked(&ci, "board", ahead(7_200), HOUR);
    ci.patch(&path(&booking), &json!({ "durationMs": HOUR / 2 })).expect(200);
    ci.delete(&path(&booking)).expect(200);
    for kind in ["booking.created", "booking.rescheduled", "booking.cancelled"] {
        let admin = lab.door("host");
        for (door, count) in [(&admin, 1), (&viewer, 1), (&ci, 1), (&other, 0)] {
            assert_eq!(events(door, kind).len(), count, "{kind}");
        }
        let payload = events(&ci, kind)[0]["payload"].clone();
        assert_eq!((&payload["bookingId"], &payload["requester"]), (&booking["id"], &json!("ci")), "{payload}");
        assert_eq!((&payload["resourceId"], &payload["startsAt"]), (&json!("board"), &booking["startsAt"]));
    }
    let moved = events(&ci, "booking.rescheduled")[0]["payload"].clone();
    assert_eq!(moved["from"], json!({ "startsAt": booking["startsAt"], "endsAt": booking["endsAt"] }));
}
