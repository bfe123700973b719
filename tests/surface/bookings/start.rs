//! Bookings whose lease the server makes at the start, where the operator wants that.

use serde_json::{Value, json};

use super::{HOUR, after, booked, comes_to, path, shown, soon, until};
use crate::waiting::{acquire, agents, events, holders, host, outcome, release, text, time, wait};

const SETTINGS: &str = "[bookings]\nmode = \"enforced\"\nauto_acquire = true";

#[test]
fn at_the_start_the_holder_has_the_lease_until_the_end_and_the_booking_is_fulfilled() {
    let lab = host(&format!("[lease]\nmax_ttl = \"1m\"\ndefault_ttl = \"1m\"\n{SETTINGS}"));
    let [ci] = agents(&lab, ["ci"]);
    // It has a lease already: as many as one may have by hand.
    acquire(&ci, "bench", json!({})).expect(201);
    let starts_at = soon(1_000);
    let booking = booked(&ci, "board", starts_at, HOUR);
    let fulfilled = comes_to(&ci, &booking, "fulfilled");
    let lease = ci.get(&format!("/v1/leases/{}", text(&fulfilled["leaseId"]))).expect(200).body["lease"].take();
    assert_eq!((&lease["resourceId"], &lease["holderId"]), (&json!("board"), &json!("ci")));
    let since = time(&lease["grantedAt"]).duration_since(starts_at).as_millis();
    assert!((0..1_000).contains(&since), "granted {since} ms after the start");
    let off = time(&lease["expiresAt"]).duration_since(after(starts_at, HOUR)).as_millis();
    assert!(off.abs() < 1_000, "it ends {off} ms after the window");
    let granted = events(&lab.door("host"), "lease.granted");
    assert!(granted.iter().any(|event| event["payload"]["leaseId"] == lease["id"]));
    assert_eq!(events(&ci, "booking.fulfilled").len(), 1);
}

#[test]
fn a_short_window_is_had_and_is_over_and_the_next_one_is_another_s() {
    let lab = host(SETTINGS);
    let [ci, next] = agents(&lab, ["ci", "next"]);
    let starts_at = soon(800);
    let first = booked(&ci, "board", starts_at, 1_200);
    let second = booked(&next, "board", after(starts_at, 1_200), 1_200);
    let [first, second] = [comes_to(&ci, &first, "fulfilled"), comes_to(&next, &second, "fulfilled")];
    let admin = lab.door("host");
    let granted = |lease: &Value| {
        let all = events(&admin, "lease.granted");
        all.into_iter().find(|event| event["payload"]["leaseId"] == *lease).expect("it was granted")
    };
    let expired = events(&admin, "lease.expired");
    assert_eq!(expired[0]["payload"]["leaseId"], first["leaseId"]);
    assert!(expired[0]["seq"].as_u64() < granted(&second["leaseId"])["seq"].as_u64(), "one after the other");
    assert_eq!(holders(&lab, "board"), ["next"]);
}

#[test]
fn a_lease_that_the_holder_has_already_becomes_the_booking_s_and_lasts_until_its_end() {
    let lab = host(SETTINGS);
    let [ci] = agents(&lab, ["ci"]);
    let lease = acquire(&ci, "board", json!({ "ttlMs": 5_000 })).expect(201).body["lease"].take();
    let starts_at = soon(800);
    let booking = booked(&ci, "board", starts_at, HOUR);
    assert_eq!(comes_to(&ci, &booking, "fulfilled")["leaseId"], lease["id"]);
    let same = ci.get(&format!("/v1/leases/{}", text(&lease["id"]))).expect(200).body["lease"].take();
    assert_eq!(same["fence"], lease["fence"]);
    assert!(time(&same["expiresAt"]).duration_since(after(starts_at, HOUR)).as_millis() > -100, "{same}");
}

#[test]
fn while_another_overruns_the_booker_stands_before_every_priority() {
    let lab = host(&format!("{SETTINGS}\n[lease]\nmax_per_requester = 2"));
    let [ci, overrun, eager] = agents(&lab, ["ci", "overrun", "eager"]);
    let lease = acquire(&overrun, "board", json!({ "ttlMs": HOUR })).expect(201).body["lease"].take();
    let waiting = wait(&eager, json!({ "resourceId": "board", "ttlMs": 1_000, "priority": 1000 }));
    let starts_at = soon(800);
    let booking = booked(&ci, "board", starts_at, HOUR);
    until(after(starts_at, 100));
    assert_eq!(shown(&ci, &booking)["status"], "scheduled");
    release(&overrun, &text(&lease["id"]));
    let fulfilled = comes_to(&ci, &booking, "fulfilled");
    assert_eq!(holders(&lab, "board"), ["ci"]);
    release(&ci, &text(&fulfilled["leaseId"]));
    assert_eq!(outcome(&eager, &waiting)["state"], "granted", "then it is the others' turn");
}

#[test]
fn a_booking_that_another_overruns_to_its_end_is_missed() {
    let lab = host(SETTINGS);
    let [ci, overrun] = agents(&lab, ["ci", "overrun"]);
    let lease = acquire(&overrun, "board", json!({ "ttlMs": HOUR })).expect(201).body["lease"].take();
    let booking = booked(&ci, "board", soon(700), 500);
    comes_to(&ci, &booking, "missed");
    assert_eq!(events(&ci, "booking.missed")[0]["payload"]["reason"], "overrun");
    assert_eq!(holders(&lab, "board"), ["overrun"]);
    release(&overrun, &text(&lease["id"]));
    assert_eq!(holders(&lab, "board"), Vec::<String>::new());
    assert_eq!(shown(&ci, &booking)["status"], "missed");
}

#[test]
fn a_booking_that_is_given_up_in_time_is_not_started() {
    let lab = host(SETTINGS);
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(1_000);
    let booking = booked(&ci, "board", starts_at, HOUR);
    let other = booked(&ci, "bench", starts_at, HOUR);
    ci.delete(&path(&booking)).expect(200);
    comes_to(&ci, &other, "fulfilled");
    until(after(starts_at, 200));
    assert_eq!(holders(&lab, "board"), Vec::<String>::new());
    assert_eq!(shown(&ci, &booking)["status"], "cancelled");
}
