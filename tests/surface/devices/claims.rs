//! What else may happen to those who have a claim on a device while it is prepared.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{WAITS, board, let_go, plan, resource, restart, rig, run, shown, told, wait_for, wait_state};
use crate::bookings::{booked, comes_to, path, soon};
use crate::waiting::{acquire, agents, event_about, events, hold, join, outcome, release, request, state, text, wait};

const BOOKED: &str = "[bookings]\nmode = \"enforced\"\nauto_acquire = true";

#[test]
fn who_would_share_a_device_that_is_prepared_for_another_is_served_with_it() {
    for body in [json!({ "resourceId": "board", "mode": "shared" }), json!({ "select": "os", "mode": "shared" })] {
        let lab = rig(&[resource("board", "prepare reset", "", "max_shared = 2")], "");
        let [first, second, third] = agents(&lab, ["first", "second", "third"]);
        plan(&lab, "board", "prepare", WAITS);
        let [one, two, three] = [&first, &second, &third].map(|door| wait(door, body.clone()));
        wait_for(&lab, "board", "prepare", "begin", 1);
        assert_eq!((&state(&second, &two)["waitingFor"], &two["position"]), (&json!("preparing"), &json!(1)));
        let_go(&lab, "board", "prepare");
        let leases = [outcome(&first, &one), outcome(&second, &two)].map(|it| text(&it["lease"]["id"]));
        assert_eq!(state(&third, &three)["waitingFor"], "leased");
        release(&first, &leases[0]);
        assert_eq!(outcome(&third, &three)["state"], "granted");
        assert_eq!(run(&lab, "board"), ["prepare begin", "prepare end"], "for the first of them");
    }
}

#[test]
fn the_same_key_is_the_same_lease_also_while_its_device_is_prepared() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", WAITS);
    let body = json!({ "idempotencyKey": "once" });
    let asking = [0, 1].map(|_| {
        let (door, body) = (ci.clone(), body.clone());
        thread::spawn(move || text(&acquire(&door, "board", body).expect(201).body["lease"]["id"]))
    });
    wait_for(&lab, "board", "prepare", "begin", 1);
    let_go(&lab, "board", "prepare");
    let [one, two] = asking.map(|asked| asked.join().expect("it is answered"));
    assert_eq!(one, two);
    let made = request(&ci, json!({ "resourceId": "board", "idempotencyKey": "once" })).expect(201);
    assert_eq!(made.body["request"]["lease"]["id"], json!(one));
    assert_eq!(run(&lab, "board"), ["prepare begin", "prepare end"]);
}

#[test]
fn an_acquire_is_not_given_up_because_nobody_asks_about_it_and_a_request_is() {
    let lab = rig(&[resource("board", "prepare reset", "", "")], "[waiting_room]\nwaiter_ttl = \"1s\"");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", "sleep 2.5");
    let lease = hold(&ci, "board");
    release(&ci, &lease);
    wait_state(&lab, "board", "available");
    let made = request(&ci, json!({ "resourceId": "board", "noWait": true })).expect(201).body["request"].take();
    release(&ci, &text(&made["lease"]["id"]));
    wait_state(&lab, "board", "available");
    wait(&ci, json!({ "resourceId": "board" }));
    let rejected = event_about(&lab, "lease.rejected", "ci");
    assert_eq!(rejected["reason"], "abandoned", "{rejected}");
    wait_state(&lab, "board", "available");
    assert_eq!(run(&lab, "board")[8..], ["prepare begin", "reset begin", "reset end"]);
}

#[test]
fn what_is_kept_for_one_of_the_waiting_room_is_prepared_for_that_one() {
    let lab = rig(&[resource("board", "prepare reset", "", "")], "[waiting_room]\nadmission_grace = \"30s\"");
    let [holder, next, other] = agents(&lab, ["holder", "next", "other"]);
    let lease = hold(&holder, "board");
    join(&next, "board", json!({})).expect(202);
    release(&holder, &lease);
    event_about(&lab, "waiter.admitted", "next");
    acquire(&other, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert_eq!(run(&lab, "board").len(), 4, "nothing is prepared yet");
    plan(&lab, "board", "prepare", super::FAILS);
    join(&next, "board", json!({})).refused("DEVICE_FAILED", 502);
    wait_state(&lab, "board", "available");
    let_go(&lab, "board", "prepare");
    // It had its turn.
    hold(&other, "board");
}

#[test]
fn a_booking_whose_device_was_being_prepared_when_the_node_was_killed_has_it_after_a_reset() {
    let mut lab = rig(&[resource("board", "prepare reset", "", "")], BOOKED);
    let [ci, other] = agents(&lab, ["ci", "other"]);
    plan(&lab, "board", "prepare", WAITS);
    let booking = booked(&ci, "board", soon(300), 3_600_000);
    wait_for(&lab, "board", "prepare", "begin", 1);
    plan(&lab, "board", "reset", WAITS);
    restart(&mut lab);
    wait_for(&lab, "board", "reset", "begin", 1);
    acquire(&other, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    let_go(&lab, "board", "reset");
    let_go(&lab, "board", "prepare");
    let fulfilled = comes_to(&ci, &booking, "fulfilled");
    let lease = &shown(&ci, "board")["leases"][0]["id"];
    assert_eq!(&fulfilled["leaseId"], lease);
    assert_eq!(run(&lab, "board")[1..], ["reset begin", "reset end", "prepare begin", "prepare end"]);
}

#[test]
fn a_booking_that_begins_while_the_device_is_reset_has_it_after_that() {
    let lab = rig(&[resource("board", "prepare reset", "", "")], BOOKED);
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let lease = hold(&other, "board");
    plan(&lab, "board", "reset", WAITS);
    release(&other, &lease);
    wait_for(&lab, "board", "reset", "begin", 1);
    let booking = booked(&ci, "board", soon(300), 3_600_000);
    thread::sleep(Duration::from_millis(600));
    assert_eq!(crate::bookings::shown(&ci, &booking)["status"], "scheduled");
    let_go(&lab, "board", "reset");
    comes_to(&ci, &booking, "fulfilled");
    assert_eq!(run(&lab, "board").len(), 6);
}

#[test]
fn a_booking_that_is_cancelled_while_its_device_is_prepared_gets_no_lease_and_the_next_is_served() {
    let lab = rig(&[resource("board", "prepare reset", "", "")], BOOKED);
    let [ci, next] = agents(&lab, ["ci", "next"]);
    plan(&lab, "board", "prepare", WAITS);
    let booking = booked(&ci, "board", soon(300), 3_600_000);
    wait_for(&lab, "board", "prepare", "begin", 1);
    ci.delete(&path(&booking)).expect(200);
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    let_go(&lab, "board", "prepare");
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    assert_eq!(events(&lab.door("host"), "lease.granted").len(), 1);
    assert_eq!(events(&lab.door("host"), "booking.missed"), [] as [Value; 0]);
    assert_eq!(run(&lab, "board").iter().filter(|line| *line == "reset end").count(), 1, "{:?}", told(&lab, "board"));
}

#[test]
fn a_resource_that_goes_from_the_lab_file_while_its_device_is_prepared_goes_after_the_lease_and_its_reset() {
    let lab = rig(&["board", "bench"].map(|id| resource(id, "prepare reset", "", "")), "");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", WAITS);
    let waiting = wait(&ci, json!({ "resourceId": "board" }));
    wait_for(&lab, "board", "prepare", "begin", 1);
    let file = std::fs::read_to_string(lab.file()).unwrap();
    std::fs::write(lab.file(), file.replace(&resource("board", "prepare reset", "", ""), "")).unwrap();
    lab.berth(&["config", "reload"]).ok();
    let_go(&lab, "board", "prepare");
    let over = outcome(&ci, &waiting);
    assert_eq!(over["state"], "granted", "{over}");
    release(&ci, &text(&over["lease"]["id"]));
    wait_for(&lab, "board", "reset", "end", 1);
    crate::patience::eventually("it is gone", crate::patience::BOUND, || {
        (lab.door("host").get("/v1/resources/board").status == 404).then_some(())
    });
}
