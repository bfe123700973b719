//! Waiting tickets: the place in line, restored once after a restart, and what is kept for those who come back
//! (SPEC §2 Waiting ticket).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{acquire, agents, cancel, hold, host, join, joins_at, outcome, release, request, state, text, wait};
use crate::http::Door;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

fn restart(lab: &mut Lab) {
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
}

/// The same request again, with a ticket.
#[track_caller]
fn back(door: &Door, mut body: Value, ticket: &Value) -> Value {
    body["ticket"] = ticket.clone();
    wait(door, body)
}

fn for_board() -> Value {
    json!({ "resourceId": "board" })
}

#[test]
fn two_that_come_back_in_the_other_order_are_served_in_the_old_one() {
    for body in [for_board(), json!({ "select": "platform=linux" })] {
        let mut lab = host("");
        let [holder, first, second, late] = agents(&lab, ["holder", "first", "second", "late"]);
        let lease = hold(&holder, "board");
        let (before_first, before_second) = (wait(&first, body.clone()), wait(&second, body.clone()));
        restart(&mut lab);
        let late = wait(&late, body.clone());
        assert_eq!(late["position"], 1);
        let second_again = back(&second, body.clone(), &before_second["ticket"]);
        assert_eq!(second_again["position"], 1, "places of an earlier run come before later ones");
        let first_again = back(&first, body.clone(), &before_first["ticket"]);
        assert_eq!((&first_again["position"], &state(&second, &second_again)["position"]), (&json!(1), &json!(2)));
        assert_ne!(first_again["id"], before_first["id"]);
        assert_eq!(release(&holder, &lease), "first");
        let lease = text(&outcome(&first, &first_again)["lease"]["id"]);
        assert_eq!(release(&first, &lease), "second");
        let lease = text(&outcome(&second, &second_again)["lease"]["id"]);
        assert_eq!(release(&second, &lease), "late");
    }
}

#[test]
fn a_place_that_was_restored_is_restored_again_after_the_next_restart() {
    let mut lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    let lease = hold(&holder, "board");
    let mut first_waits = wait(&first, for_board());
    let mut second_waits = wait(&second, for_board());
    for _ in 0..2 {
        restart(&mut lab);
        second_waits = back(&second, for_board(), &second_waits["ticket"]);
        first_waits = back(&first, for_board(), &first_waits["ticket"]);
        assert_eq!(state(&second, &second_waits)["position"], 2);
    }
    assert_eq!(release(&holder, &lease), "first");
}

#[test]
fn a_ticket_counts_once() {
    let mut lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    hold(&holder, "board");
    let (before_first, before_second) = (wait(&first, for_board()), wait(&second, for_board()));
    restart(&mut lab);
    back(&second, for_board(), &before_second["ticket"]);
    let again = back(&first, for_board(), &before_first["ticket"]);
    assert_eq!(again["position"], 1);
    cancel(&first, &again).expect(204);
    assert_eq!(back(&first, for_board(), &before_first["ticket"])["position"], 2, "it is spent");
}

#[test]
fn a_ticket_of_this_run_or_of_a_request_that_has_ended_is_ignored() {
    let mut lab = host("");
    let [holder, unwanted, second] = agents(&lab, ["holder", "unwanted", "second"]);
    hold(&holder, "board");
    let first = wait(&unwanted, for_board());
    cancel(&unwanted, &first).expect(204);
    wait(&second, for_board());
    let again = back(&unwanted, for_board(), &first["ticket"]);
    assert_eq!(again["position"], 2, "a place is restored in a later run only");
    cancel(&unwanted, &again).expect(204);
    restart(&mut lab);
    wait(&second, for_board());
    for ended in [&first, &again] {
        let told = back(&unwanted, for_board(), &ended["ticket"]);
        assert_eq!(told["position"], 2, "it was cancelled: {told}");
        cancel(&unwanted, &told).expect(204);
    }
}

#[test]
fn a_ticket_that_is_forged_or_another_s_or_for_something_else_is_ignored() {
    let mut lab = host("");
    let [holder, owner, thief, present] = agents(&lab, ["holder", "owner", "thief", "present"]);
    hold(&holder, "board");
    hold(&lab.door("host"), "bench");
    let ticket = wait(&owner, for_board())["ticket"].take();
    restart(&mut lab);
    wait(&present, for_board());
    let (stub, tag) = ticket.as_str().unwrap().split_once('.').expect("what it says, and the node's word for it");
    let touched = |text: &str| {
        let other = if text.starts_with('A') { 'B' } else { 'A' };
        format!("{other}{}", &text[1..])
    };
    for forged in [
        format!("{}.{tag}", touched(stub)),
        format!("{stub}.{}", touched(tag)),
        stub.to_owned(),
        format!("{stub}."),
        "x".to_owned(),
    ] {
        let told = back(&owner, for_board(), &json!(forged));
        assert_eq!(told["position"], 2, "{forged}");
        cancel(&owner, &told).expect(204);
    }
    let told = back(&thief, for_board(), &ticket);
    assert_eq!(told["position"], 2, "another's");
    cancel(&thief, &told).expect(204);
    for body in [json!({ "select": "platform=linux" }), json!({ "resourceId": "bench" })] {
        let told = back(&owner, body, &ticket);
        cancel(&owner, &told).expect(204);
    }
    // All that has not spent it.
    assert_eq!(back(&owner, for_board(), &ticket)["position"], 1);
    // What is no ticket by its looks is a wrong field.
    for wrong in [json!(""), json!(7), json!("a b"), Value::Null] {
        let told = request(&thief, json!({ "resourceId": "board", "ticket": wrong })).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], "ticket");
    }
}

#[test]
fn the_priority_of_whoever_comes_back_is_what_it_says_now() {
    let mut lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    let lease = hold(&holder, "board");
    let before_first = wait(&first, json!({ "resourceId": "board", "priority": 5 }));
    let before_second = wait(&second, json!({ "resourceId": "board", "priority": 5 }));
    restart(&mut lab);
    back(&second, json!({ "resourceId": "board", "priority": 5 }), &before_second["ticket"]);
    assert_eq!(back(&first, for_board(), &before_first["ticket"])["position"], 2);
    assert_eq!(release(&holder, &lease), "second");
}

#[test]
fn after_a_restart_what_was_waited_for_goes_to_whoever_comes_back_and_to_no_third_party() {
    for body in [for_board(), json!({ "select": "platform=linux" })] {
        let mut lab = host("[waiting_room]\nreturn_grace = \"1m\"");
        let [holder, waiter, third, stander] = agents(&lab, ["holder", "waiter", "third", "stander"]);
        let lease = hold(&holder, "board");
        let waiting = wait(&waiter, body.clone());
        restart(&mut lab);
        assert_eq!(release(&holder, &lease), Value::Null, "it is kept");
        acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
        let no_wait = json!({ "select": "platform=linux", "noWait": true });
        request(&third, no_wait).refused("NO_CAPACITY", 503);
        let queued = wait(&third, for_board());
        joins_at(2, &stander, "board");
        // What nobody waited for is free.
        hold(&holder, "pixel-a");
        let mut again = body;
        again["ticket"] = waiting["ticket"].clone();
        let told = request(&waiter, again).expect(201).body["request"].take();
        assert_eq!((&told["state"], &told["lease"]["resourceId"]), (&json!("granted"), &json!("board")), "at once");
        assert_eq!(state(&third, &queued)["waitingFor"], "leased");
        assert_eq!(release(&waiter, &text(&told["lease"]["id"])), "third");
    }
}

#[test]
fn when_nobody_comes_back_within_the_return_grace_the_next_is_served() {
    let mut lab = host("[waiting_room]\nreturn_grace = \"2s\"");
    let [holder, gone, next, third] = agents(&lab, ["holder", "gone", "next", "third"]);
    let lease = hold(&holder, "board");
    wait(&gone, for_board());
    lab.kill_9("host");
    let begun = Instant::now();
    lab.start("host");
    lab.wait_ready("host");
    assert_eq!(release(&holder, &lease), Value::Null);
    let waiting = wait(&next, for_board());
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    assert!(begun.elapsed() >= Duration::from_secs(2), "it was kept for {:?} only", begun.elapsed());
    let lease = text(&state(&next, &waiting)["lease"]["id"]);
    release(&next, &lease);
    hold(&third, "board");
}

#[test]
fn after_the_return_grace_an_unattended_waiter_is_admitted_to_what_became_free_meanwhile() {
    let mut lab = host("[waiting_room]\nreturn_grace = \"1s\"");
    let [holder, gone, stander, third] = agents(&lab, ["holder", "gone", "stander", "third"]);
    let lease = hold(&holder, "board");
    wait(&gone, json!({ "resourceId": "board", "priority": 1 }));
    joins_at(2, &stander, "board");
    restart(&mut lab);
    release(&holder, &lease);
    super::event_about(&lab, "waiter.admitted", "stander");
    let taken = eventually("it is free for whoever asks first", BOUND, || {
        let told = acquire(&third, "board", json!({}));
        (told.status == 201).then_some(told)
    });
    assert_eq!(taken.body["lease"]["holderId"], "third");
    assert_eq!(join(&stander, "board", json!({})).expect(202).body["waitingPosition"], 1);
}
