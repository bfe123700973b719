//! Bookings that stop others, where the operator wants that: in a window only its holder gets a lease, and before it
//! nobody's reaches into it.

use serde_json::{Value, json};

use super::{HOUR, MINUTE, after, ahead, book, booked, comes_to, path, shown, soon, until, window, written};
use crate::http::{Answer, Door};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::{
    HOST, acquire, agents, events, host, joins_at, outcome, principal, release, request, state, text, time, wait,
};

const ENFORCED: &str = "[bookings]\nmode = \"enforced\"";

/// A refusal because of somebody's window; how long a lease could be had, in ms.
#[track_caller]
fn is_booked(told: Answer) -> i64 {
    let told = told.refused("RESOURCE_BOOKED", 409);
    assert_eq!(told.details()["resourceId"], "board");
    assert!(!told.body.to_string().contains("ci"), "nothing about whose: {}", told.body);
    told.details()["availableForMs"].as_i64().unwrap_or_else(|| panic!("{}", told.body))
}

fn renew(door: &Door, lease: &Value, body: Value) -> Answer {
    door.post(&format!("/v1/leases/{}/renew", text(&lease["id"])), &body)
}

#[test]
fn in_the_window_only_its_holder_or_an_admin_gets_a_lease() {
    let lab = host(ENFORCED);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(700);
    let booking = booked(&ci, "board", starts_at, HOUR);
    until(starts_at);
    for body in [json!({}), json!({ "ttlMs": 1 }), json!({ "allowShorter": true })] {
        assert_eq!(is_booked(acquire(&walk_up, "board", body)), 0);
    }
    is_booked(request(&walk_up, json!({ "resourceId": "board", "noWait": true })));
    let admin = lab.door("host");
    release(&admin, &text(&acquire(&admin, "board", json!({})).expect(201).body["lease"]["id"]));
    assert_eq!(shown(&ci, &booking)["status"], "scheduled", "the admin's lease is not its holder's");
    let lease = acquire(&ci, "board", json!({})).expect(201).body["lease"].take();
    let fulfilled = shown(&ci, &booking);
    assert_eq!((&fulfilled["status"], &fulfilled["leaseId"]), (&json!("fulfilled"), &lease["id"]));
    assert_eq!(events(&admin, "booking.fulfilled")[0]["payload"]["leaseId"], lease["id"]);
    // Given back, the rest of the window is everybody's.
    release(&ci, &text(&lease["id"]));
    acquire(&walk_up, "board", json!({})).expect(201);
}

#[test]
fn before_the_window_a_lease_and_every_renewal_ends_by_its_start_or_is_cut_to_fit() {
    let lab = host(ENFORCED);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = ahead(600);
    booked(&ci, "board", starts_at, HOUR);
    let left = is_booked(acquire(&walk_up, "board", json!({ "ttlMs": HOUR })));
    assert!((590_000..=600_000).contains(&left), "{left}");
    let lease = acquire(&walk_up, "board", json!({ "ttlMs": 5 * MINUTE })).expect(201).body["lease"].take();
    assert_eq!(lease.get("askedTtlMs"), None);
    let left = is_booked(renew(&walk_up, &lease, json!({ "ttlMs": HOUR })));
    assert!((590_000..=600_000).contains(&left), "{left}");
    let unchanged = walk_up.get(&format!("/v1/leases/{}", text(&lease["id"]))).expect(200).body["lease"].take();
    assert_eq!((&unchanged["ttlMs"], &unchanged["renewedAt"]), (&lease["ttlMs"], &lease["renewedAt"]));
    renew(&walk_up, &lease, json!({})).expect(200);
    // Cut to fit, and saying so.
    let cut = |lease: &Value| {
        assert_eq!(lease["askedTtlMs"], HOUR, "{lease}");
        let over = time(&lease["expiresAt"]).duration_since(starts_at);
        assert!(!over.is_positive() && over.as_millis() > -100, "{over} behind the start");
    };
    cut(&renew(&walk_up, &lease, json!({ "ttlMs": HOUR, "allowShorter": true })).expect(200).body["lease"]);
    release(&walk_up, &text(&lease["id"]));
    let body = json!({ "ttlMs": HOUR, "allowShorter": true });
    let lease = acquire(&walk_up, "board", body).expect(201).body["lease"].take();
    cut(&lease);
    release(&walk_up, &text(&lease["id"]));
    let by_request = json!({ "resourceId": "board", "ttlMs": HOUR, "allowShorter": true, "noWait": true });
    let lease = request(&walk_up, by_request).expect(201).body["request"]["lease"].take();
    cut(&lease);
    release(&walk_up, &text(&lease["id"]));
    // Its holder's own lease runs on into the window.
    acquire(&ci, "board", json!({ "ttlMs": 2 * HOUR })).expect(201);
}

#[test]
fn a_lease_that_runs_into_a_window_when_it_is_booked_stays_and_is_not_renewed_past_its_start() {
    let lab = host(ENFORCED);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let lease = acquire(&walk_up, "board", json!({ "ttlMs": HOUR })).expect(201).body["lease"].take();
    let starts_at = soon(1_500);
    let booking = booked(&ci, "board", starts_at, 2_000);
    is_booked(renew(&walk_up, &lease, json!({})));
    until(after(starts_at, 50));
    assert_eq!(is_booked(renew(&walk_up, &lease, json!({ "ttlMs": 1 }))), 0);
    let stays = walk_up.get(&format!("/v1/leases/{}", text(&lease["id"]))).expect(200).body["lease"].take();
    assert_eq!(stays["ttlMs"], HOUR);
    acquire(&ci, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    // Once the window is over it is renewed as before.
    until(after(starts_at, 2_000));
    renew(&walk_up, &lease, json!({})).expect(200);
    assert_eq!(shown(&ci, &booking)["status"], "scheduled", "nothing says that nobody came");
}

#[test]
fn a_request_that_does_not_fit_before_or_in_a_window_waits_for_its_end_or_takes_another_match() {
    let lab = host(ENFORCED);
    let [ci, waiter, chooser] = agents(&lab, ["ci", "waiter", "chooser"]);
    let starts_at = soon(800);
    booked(&ci, "board", starts_at, 1_500);
    booked(&ci, "pixel-a", starts_at, HOUR);
    let waiting = wait(&waiter, json!({ "resourceId": "board", "ttlMs": HOUR }));
    assert_eq!(waiting["waitingFor"], "booked", "{waiting}");
    let made = request(&chooser, json!({ "select": "platform=android", "ttlMs": HOUR })).expect(201);
    assert_eq!(made.body["request"]["lease"]["resourceId"], "pixel-b");
    let granted = outcome(&waiter, &waiting);
    assert_eq!(granted["state"], "granted", "{granted}");
    let since = time(&granted["lease"]["grantedAt"]).duration_since(after(starts_at, 1_500));
    assert!(!since.is_negative() && since.as_millis() < 1_000, "{since} after the end of the window");
}

#[test]
fn who_stands_in_the_waiting_room_during_a_window_is_admitted_at_its_end() {
    let lab = host(ENFORCED);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(700);
    booked(&ci, "board", starts_at, 1_200);
    until(starts_at);
    joins_at(1, &walk_up, "board");
    let admin = lab.door("host");
    let told = eventually("it is admitted", BOUND, || events(&admin, "waiter.admitted").pop());
    let since = time(&told["timestamp"]).duration_since(after(starts_at, 1_200)).as_millis();
    assert!((0..1_000).contains(&since), "admitted {since} ms after the end");
    acquire(&walk_up, "board", json!({})).expect(201);
}

#[test]
fn a_window_is_its_holder_s_own_not_that_of_others_of_the_same_principal() {
    let lab = host(ENFORCED);
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(700);
    let mut body = window(starts_at, HOUR);
    body["requester"] = json!("job-1");
    let booking = book(&ci, "board", &body).expect(201).body["booking"].take();
    until(starts_at);
    for other in [json!({}), json!({ "requester": "job-2" })] {
        acquire(&ci, "board", other).refused("RESOURCE_BOOKED", 409);
    }
    // A refusal leaves the key of the attempt free.
    let attempt = json!({ "requester": "job-2", "idempotencyKey": "k" });
    acquire(&ci, "board", attempt.clone()).refused("RESOURCE_BOOKED", 409);
    let lease = acquire(&ci, "board", json!({ "requester": "job-1" })).expect(201).body["lease"].take();
    assert_eq!(shown(&ci, &booking)["leaseId"], lease["id"]);
    release(&ci, &text(&lease["id"]));
    acquire(&ci, "board", attempt).expect(201);
}

#[test]
fn a_window_on_a_shared_resource_keeps_both_kinds_of_walk_ups_out() {
    let lab = host(ENFORCED);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(700);
    booked(&ci, "bench", starts_at, HOUR);
    for mode in ["shared", "exclusive"] {
        acquire(&walk_up, "bench", json!({ "mode": mode, "ttlMs": HOUR })).refused("RESOURCE_BOOKED", 409);
    }
    until(starts_at);
    let lease = acquire(&ci, "bench", json!({ "mode": "shared" })).expect(201).body["lease"].take();
    for mode in ["shared", "exclusive"] {
        let told = acquire(&walk_up, "bench", json!({ "mode": mode }));
        assert!(["RESOURCE_BOOKED", "RESOURCE_UNAVAILABLE"].contains(&told.code()), "{}", told.body);
    }
    release(&ci, &text(&lease["id"]));
    acquire(&walk_up, "bench", json!({ "mode": "shared" })).expect(201);
}

#[test]
fn one_resource_may_be_enforced_where_the_others_are_not_and_the_other_way_round() {
    let resource = "[[worker.resource]]\nid = \"desk\"\nbookings = { mode";
    for (settings, stops) in [
        (format!("{resource} = \"enforced\" }}"), ["desk", "board"]),
        (format!("{resource} = \"advisory\" }}\n{ENFORCED}"), ["board", "desk"]),
    ] {
        let lab = Lab::apart(&format!("{HOST}\n{settings}"), &["host"]);
        let [ci] = agents(&lab, ["ci"]);
        let walk_up = principal(&lab, "walk-up", "agent");
        for resource in stops {
            booked(&ci, resource, ahead(60), HOUR);
        }
        let [enforced, advisory] = stops;
        acquire(&walk_up, enforced, json!({ "ttlMs": HOUR })).refused("RESOURCE_BOOKED", 409);
        acquire(&walk_up, advisory, json!({ "ttlMs": HOUR })).expect(201);
    }
}

#[test]
fn an_active_hold_stops_walk_ups_like_a_booking_of_its_holder_until_it_ends() {
    let lab = host(ENFORCED);
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(800);
    let mut body = window(starts_at, HOUR);
    body["ttlMs"] = json!(2_500);
    ci.post("/v1/resources/board/holds", &body).expect(201);
    is_booked(acquire(&walk_up, "board", json!({})));
    until(starts_at);
    assert_eq!(is_booked(acquire(&walk_up, "board", json!({ "ttlMs": 1_000 }))), 0);
    let lease = acquire(&ci, "board", json!({})).expect(201).body["lease"].take();
    release(&ci, &text(&lease["id"]));
    let waiting = wait(&walk_up, json!({ "resourceId": "board" }));
    assert_eq!(outcome(&walk_up, &waiting)["state"], "granted", "the hold's own end lets them in");
    assert_eq!(events(&lab.door("host"), "hold.expired").len(), 1);
}

#[test]
fn a_cancelled_or_moved_window_lets_those_in_who_wait_for_it() {
    let lab = host(ENFORCED);
    let [ci, waiter] = agents(&lab, ["ci", "waiter"]);
    for give_up in [true, false] {
        let booking = booked(&ci, "board", ahead(60), HOUR);
        let waiting = wait(&waiter, json!({ "resourceId": "board", "ttlMs": HOUR }));
        match give_up {
            true => ci.delete(&path(&booking)).expect(200),
            false => {
                let later = json!({ "startsAt": written(ahead(86_400)) });
                ci.patch(&path(&booking), &later).expect(200)
            }
        };
        let granted = eventually("the waiter has it", BOUND, || {
            let now = state(&waiter, &waiting);
            (now["state"] == "granted").then_some(now)
        });
        release(&waiter, &text(&granted["lease"]["id"]));
    }
}

#[test]
fn with_a_bound_on_coming_late_an_unclaimed_booking_is_missed_and_its_window_free() {
    let lab = host("[bookings]\nmode = \"enforced\"\nno_show_after = \"1s\"");
    let [ci, walk_up] = agents(&lab, ["ci", "walk-up"]);
    let starts_at = soon(800);
    let [late, on_time] = ["board", "bench"].map(|resource| booked(&ci, resource, starts_at, HOUR));
    until(starts_at);
    is_booked(acquire(&walk_up, "board", json!({})));
    let lease = acquire(&ci, "bench", json!({})).expect(201).body["lease"].take();
    let missed = comes_to(&ci, &late, "missed");
    assert_eq!(missed.get("leaseId"), None);
    let told = events(&lab.door("host"), "booking.missed");
    assert_eq!((told.len(), &told[0]["payload"]["reason"]), (1, &json!("no-show")));
    let since = time(&told[0]["timestamp"]).duration_since(starts_at).as_millis();
    assert!((1_000..3_000).contains(&since), "missed {since} ms after the start");
    acquire(&walk_up, "board", json!({})).expect(201);
    assert_eq!(shown(&ci, &on_time)["leaseId"], lease["id"]);
    booked(&walk_up, "board", ahead(600), HOUR / 2);
}
