//! `waiting_room.admission_grace`: what is free is kept for whoever was admitted, so that nobody slips in (SPEC §3).

use serde_json::{Value, json};

use super::{
    acquire, agents, close, event_about, events, hold, holders, host, join, joins_at, outcome, release, request, state,
    text, time, wait,
};
use crate::patience::{BOUND, eventually};

#[test]
fn an_admitted_waiter_has_the_resource_kept_for_it_and_others_hear_until_when() {
    let lab = host("[waiting_room]\nadmission_grace = \"1m\"");
    let [holder, admitted, behind, third] = agents(&lab, ["holder", "admitted", "behind", "third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &admitted, "board");
    joins_at(2, &behind, "board");
    assert_eq!(release(&holder, &lease), "admitted");
    let until = event_about(&lab, "waiter.admitted", "admitted")["reservedUntil"].take();
    let told = acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert!(close(&told.details()["availableAt"], &until), "{} but until {until}", told.body);
    assert!(!told.body.to_string().contains("admitted"), "{}", told.body);
    request(&third, json!({ "select": "platform=linux", "noWait": true })).refused("NO_CAPACITY", 503);
    let waiting = wait(&third, json!({ "resourceId": "board", "priority": 9 }));
    assert_eq!((&waiting["waitingFor"], &waiting["position"]), (&json!("reserved"), &json!(1)));
    assert!(close(&waiting["until"], &until), "{waiting}");
    joins_at(2, &behind, "board");
    let shown = lab.door("host").get("/v1/resources/board").body["resource"].take();
    assert!(text(&shown["reason"]).starts_with("reserved for who is next, until "), "{shown}");
    assert_eq!(join(&admitted, "board", json!({})).expect(201).body["lease"]["holderId"], "admitted");
    assert_eq!(state(&third, &waiting)["waitingFor"], "leased");
    assert_eq!(events(&lab.door("host"), "waiter.admitted").len(), 1);
}

#[test]
fn an_admission_that_is_not_claimed_within_the_grace_passes_to_the_next() {
    let lab = host("[waiting_room]\nadmission_grace = \"1s\"");
    let [holder, absent, next, third] = agents(&lab, ["holder", "absent", "next", "third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &absent, "board");
    joins_at(2, &next, "board");
    assert_eq!(release(&holder, &lease), "absent");
    let told = event_about(&lab, "waiter.admitted", "next");
    acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert_eq!(join(&next, "board", json!({})).expect(201).body["lease"]["holderId"], "next");
    let first = event_about(&lab, "waiter.admitted", "absent");
    let between = time(&told["reservedUntil"]).duration_since(time(&first["reservedUntil"]));
    assert!(between >= jiff::SignedDuration::from_millis(900), "{between}");
    joins_at(1, &absent, "board");
}

#[test]
fn with_nobody_left_to_be_admitted_the_resource_is_free_for_all() {
    let lab = host("[waiting_room]\nadmission_grace = \"1s\"");
    let [holder, absent, third] = agents(&lab, ["holder", "absent", "third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &absent, "board");
    assert_eq!(release(&holder, &lease), "absent");
    eventually("the grace is over", BOUND, || {
        let told = acquire(&third, "board", json!({}));
        let taken = told.status == 201;
        if !taken {
            told.refused("RESOURCE_UNAVAILABLE", 409);
        }
        taken.then_some(())
    });
}

#[test]
fn a_request_behind_an_admitted_waiter_is_granted_when_that_does_not_come() {
    let lab = host("[waiting_room]\nadmission_grace = \"1s\"");
    let [holder, absent, waiter] = agents(&lab, ["holder", "absent", "waiter"]);
    let lease = hold(&holder, "board");
    joins_at(1, &absent, "board");
    let waiting = wait(&waiter, json!({ "resourceId": "board" }));
    assert_eq!(release(&holder, &lease), "absent");
    assert_eq!(state(&waiter, &waiting)["waitingFor"], "reserved");
    assert_eq!(outcome(&waiter, &waiting)["state"], "granted");
}

#[test]
fn whoever_leaves_gives_up_what_is_kept_for_it_too() {
    let lab = host("[waiting_room]\nadmission_grace = \"1m\"");
    let [holder, admitted, next] = agents(&lab, ["holder", "admitted", "next"]);
    let lease = hold(&holder, "board");
    joins_at(1, &admitted, "board");
    joins_at(2, &next, "board");
    assert_eq!(release(&holder, &lease), "admitted");
    let left = admitted.delete("/v1/resources/board/waiting-room/me").expect(200).body;
    assert_eq!(left, json!({ "left": true }));
    event_about(&lab, "waiter.admitted", "next");
    join(&next, "board", json!({})).expect(201);
    assert_eq!(holders(&lab, "board"), ["next"]);
}

#[test]
fn what_is_kept_for_an_admitted_waiter_is_kept_through_a_restart() {
    let mut lab = host("[waiting_room]\nadmission_grace = \"1m\"");
    let [holder, admitted, third] = agents(&lab, ["holder", "admitted", "third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &admitted, "board");
    assert_eq!(release(&holder, &lease), "admitted");
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    let told = acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert_ne!(told.details()["availableAt"], Value::Null, "{}", told.body);
    assert_eq!(join(&admitted, "board", json!({})).expect(201).body["lease"]["holderId"], "admitted");
}
