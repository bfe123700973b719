//! A node that is killed around the edges of windows: what opened or closed meanwhile is settled before it admits.

use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{HOUR, after, ahead, book, booked, comes_to, listed, no_overlap, path, reader, shown, soon, until, window};
use crate::http::Door;
use crate::lab::Lab;
use crate::waiting::{acquire, agents, events, holders, host, text};

const ALL: &str = "[bookings]\nmode = \"enforced\"\nauto_acquire = true";

fn again(lab: &mut Lab) {
    lab.start("host");
    lab.wait_ready("host");
}

#[test]
fn every_booking_is_there_after_a_kill_as_it_was() {
    let mut lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let mut series = window(ahead(172_800), HOUR);
    let until = TimeZone::UTC.to_datetime(ahead(172_800 + 2 * 86_400)).date();
    series["repeat"] = json!({ "every": "day", "until": until, "tz": "UTC" });
    series["note"] = json!("night run");
    book(&ci, "board", &series).expect(201);
    let given_up = booked(&ci, "board", ahead(7_200), HOUR);
    let moved = booked(&ci, "board", ahead(14_400), HOUR);
    ci.delete(&path(&given_up)).expect(200);
    ci.patch(&path(&moved), &json!({ "durationMs": 2 * HOUR })).expect(200);
    let before = listed(&ci, "board", "");
    assert_eq!(before.len(), 5);
    lab.kill_9("host");
    again(&mut lab);
    assert_eq!(listed(&ci, "board", ""), before);
    // They conflict, and can be changed, as before.
    book(&ci, "board", &window(ahead(14_400 + 3_700), HOUR)).refused("BOOKING_CONFLICT", 409);
    let told = ci.delete(&format!("{}?following=true", path(&before[2]))).expect(200).body;
    assert_eq!(told["following"].as_array().map(Vec::len), Some(2));
    no_overlap(&reader(&lab));
}

#[test]
fn a_window_that_opened_while_the_node_was_down_is_its_holder_s_when_the_node_admits() {
    let mut lab = host(ALL);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(700);
    let booking = booked(&ci, "board", starts_at, HOUR);
    lab.kill_9("host");
    until(starts_at);
    again(&mut lab);
    // The first thing that is asked of it: nobody comes before the booker.
    let told = acquire(&walk_up, "board", json!({}));
    assert!(["RESOURCE_BOOKED", "RESOURCE_UNAVAILABLE"].contains(&told.code()), "{}", told.body);
    let fulfilled = comes_to(&ci, &booking, "fulfilled");
    let lease = ci.get(&format!("/v1/leases/{}", text(&fulfilled["leaseId"]))).expect(200).body["lease"].take();
    let off = crate::waiting::time(&lease["expiresAt"]).duration_since(after(starts_at, HOUR)).as_millis();
    assert!(off.abs() < 1_000, "it ends {off} ms after the window");
    assert_eq!(holders(&lab, "board"), ["ci"]);
}

#[test]
fn a_window_that_closed_while_the_node_was_down_is_settled_and_stops_nobody() {
    let mut lab = host(&format!("{ALL}\n[waiting_room]\nreturn_grace = \"0s\""));
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(1_000);
    let had = booked(&ci, "bench", starts_at, 1_000);
    let later = booked(&ci, "board", after(starts_at, 700), 300);
    let lease = comes_to(&ci, &had, "fulfilled")["leaseId"].take();
    lab.kill_9("host");
    until(after(starts_at, 1_100));
    again(&mut lab);
    assert_eq!(comes_to(&ci, &later, "missed").get("leaseId"), None);
    let missed = events(&ci, "booking.missed");
    assert_eq!((missed.len(), &missed[0]["payload"]["bookingId"]), (1, &later["id"]));
    // The lease of the other ended with its window.
    ci.get(&format!("/v1/leases/{}", text(&lease))).refused("UNKNOWN_LEASE", 404);
    assert_eq!(shown(&ci, &had)["status"], "fulfilled");
    for resource in ["board", "bench"] {
        let body = json!({ "requester": resource });
        acquire(&walk_up, resource, body).expect(201);
    }
}

/// What a booking is and who has the resource, once the node is back from a kill at that moment.
fn killed_at(ms_from_start: i64) -> (Value, Vec<String>) {
    let mut lab = host(ALL);
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(800);
    let booking = booked(&ci, "board", starts_at, HOUR);
    until(after(starts_at, ms_from_start));
    lab.kill_9("host");
    again(&mut lab);
    (comes_to(&ci, &booking, "fulfilled"), leases_for(&lab, &ci, &booking))
}

/// The leases on the board: the events say that it was granted once.
fn leases_for(lab: &Lab, door: &Door, booking: &Value) -> Vec<String> {
    let (granted, fulfilled) = (events(door, "lease.granted"), events(door, "booking.fulfilled"));
    assert_eq!((granted.len(), fulfilled.len()), (1, 1), "{booking}");
    assert_eq!(granted[0]["payload"]["leaseId"], fulfilled[0]["payload"]["leaseId"]);
    holders(lab, "board")
}

#[test]
fn a_node_that_is_killed_about_the_start_of_a_window_grants_its_lease_exactly_once() {
    for ms in [-4, 0, 2, 5, 10, 40] {
        let (booking, holders) = killed_at(ms);
        assert_eq!((&booking["holderId"], holders), (&json!("ci"), vec!["ci".to_owned()]), "{ms} ms from the start");
    }
}
