//! Who is next: one order for every kind of waiter, and what a resource that is shared does to it (SPEC §2 Order).

use serde_json::{Value, json};

use super::{
    acquire, agents, cancel, event_about, hold, holders, host, join, joins_at, names, outcome, release, request, state,
    text, time, wait,
};
use crate::http::Door;
use crate::patience::{BOUND, eventually};

/// Takes a share of the bench; the id of the lease.
#[track_caller]
fn share(door: &Door) -> String {
    text(&acquire(door, "bench", json!({ "mode": "shared" })).expect(201).body["lease"]["id"])
}

/// The lease of a request that is granted.
#[track_caller]
fn granted(door: &Door, request: &Value) -> String {
    let seen = outcome(door, request);
    assert_eq!(seen["state"], "granted", "{seen}");
    text(&seen["lease"]["id"])
}

#[test]
fn waiters_by_selector_by_name_and_in_the_waiting_room_stand_in_one_order() {
    let lab = host("");
    let [holder, a, b, c, d, e] = agents(&lab, ["holder", "a", "b", "c", "d", "e"]);
    let lease = hold(&holder, "pixel-a");
    let by_selector = |door: &Door, priority: i32| wait(door, json!({ "select": "os=15", "priority": priority }));
    let by_name = |door: &Door, priority: i32| wait(door, json!({ "resourceId": "pixel-a", "priority": priority }));
    let a_waits = by_selector(&a, 0);
    let b_waits = by_name(&b, 0);
    join(&c, "pixel-a", json!({})).expect(202);
    let d_waits = by_selector(&d, 0);
    let e_waits = by_name(&e, 3);
    assert_eq!(release(&holder, &lease), "e", "the highest priority first");
    assert_eq!(release(&e, &granted(&e, &e_waits)), "a", "then whoever came first");
    assert_eq!(release(&a, &granted(&a, &a_waits)), "b");
    // The unattended one is admitted, and without a grace whoever the node grants by itself is served behind it.
    assert_eq!(release(&b, &granted(&b, &b_waits)), "c");
    let lease = granted(&d, &d_waits);
    joins_at(1, &c, "pixel-a");
    assert_eq!(release(&d, &lease), "c");
    assert_eq!(join(&c, "pixel-a", json!({})).expect(201).body["lease"]["holderId"], "c");
}

#[test]
fn an_attended_waiter_is_never_overtaken_by_one_who_comes_when_the_resource_is_free() {
    let lab = host("");
    let [holder, waiter, late] = agents(&lab, ["holder", "waiter", "late"]);
    let lease = hold(&holder, "board");
    let waiting = wait(&waiter, json!({ "select": "platform=linux" }));
    let storm = std::thread::spawn({
        let late = late.clone();
        move || {
            for _ in 0..50 {
                acquire(&late, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
            }
        }
    });
    assert_eq!(release(&holder, &lease), "waiter");
    storm.join().expect("every try is refused");
    assert_eq!(holders(&lab, "board"), ["waiter"]);
    release(&waiter, &granted(&waiter, &waiting));
    hold(&late, "board");
}

#[test]
fn a_request_by_selector_takes_the_match_that_frees_first() {
    let lab = host("");
    let [one, other, waiter, named] = agents(&lab, ["one", "other", "waiter", "named"]);
    hold(&one, "pixel-a");
    let lease = hold(&other, "pixel-b");
    let by_selector = wait(&waiter, json!({ "select": "platform=android" }));
    let by_name = wait(&named, json!({ "resourceId": "pixel-a" }));
    assert_eq!((&by_selector["position"], &by_name["position"]), (&json!(1), &json!(1)), "each in its own queue");
    assert_eq!(release(&other, &lease), "waiter");
    assert_eq!(outcome(&waiter, &by_selector)["lease"]["resourceId"], "pixel-b");
    assert_eq!(state(&named, &by_name)["state"], "waiting");
}

#[test]
fn as_many_share_a_resource_as_may_and_the_next_one_waits_for_a_seat() {
    let lab = host("");
    let [a, b, c, d] = agents(&lab, ["a", "b", "c", "d"]);
    let first = share(&a);
    share(&b);
    let waiting = wait(&c, json!({ "resourceId": "bench", "mode": "shared" }));
    assert_eq!(join(&d, "bench", json!({ "mode": "shared" })).expect(202).body["waitingPosition"], 2);
    assert_eq!(release(&a, &first), "c");
    assert_eq!(outcome(&c, &waiting)["lease"]["mode"], "shared");
    assert_eq!(holders(&lab, "bench"), ["b", "c"]);
    assert_eq!(names(&lab, "bench"), ["d"]);
}

#[test]
fn a_waiter_that_wants_it_alone_is_not_overtaken_by_later_ones_that_would_share() {
    let lab = host("");
    // Whoever wants the bench alone names it, or has it found by its labels.
    for target in [json!({ "resourceId": "bench" }), json!({ "select": "platform=bench" })] {
        let tag = if target.get("select").is_some() { "s" } else { "n" };
        let [a, b, alone, late] =
            ["a", "b", "alone", "late"].map(|name| super::principal(&lab, &format!("{name}-{tag}"), "agent"));
        let (first, second) = (share(&a), share(&b));
        let alone_waits = wait(&alone, target);
        let mut body = json!({ "mode": "shared" });
        assert_eq!(release(&a, &first), Value::Null, "one seat is free, and nobody takes it");
        acquire(&late, "bench", body.clone()).refused("RESOURCE_UNAVAILABLE", 409);
        body["resourceId"] = json!("bench");
        let late_waits = wait(&late, body);
        assert_eq!(holders(&lab, "bench"), [format!("b-{tag}")]);
        assert_eq!(release(&b, &second), format!("alone-{tag}"));
        let lease = granted(&alone, &alone_waits);
        assert_eq!(state(&late, &late_waits)["state"], "waiting");
        assert_eq!(release(&alone, &lease), format!("late-{tag}"));
        release(&late, &granted(&late, &late_waits));
    }
}

#[test]
fn whoever_stands_in_the_waiting_room_behind_one_that_wants_it_alone_is_admitted_when_that_one_is_gone() {
    for gives_up in [true, false] {
        let lab = host("");
        let [a, b, alone, stander] = agents(&lab, ["a", "b", "alone", "stander"]);
        let (first, second) = (share(&a), share(&b));
        let alone_waits = wait(&alone, json!({ "select": "platform=bench" }));
        join(&stander, "bench", json!({ "mode": "shared" })).expect(202);
        assert_eq!(release(&a, &first), Value::Null, "one seat is free, and nobody takes it");
        assert_eq!(names(&lab, "bench"), ["stander"]);
        if gives_up {
            cancel(&alone, &alone_waits).expect(204);
        } else {
            assert_eq!(release(&b, &second), "alone");
            assert_eq!(release(&alone, &granted(&alone, &alone_waits)), "stander");
        }
        event_about(&lab, "waiter.admitted", "stander");
        join(&stander, "bench", json!({ "mode": "shared" })).expect(201);
    }
}

#[test]
fn with_a_waiter_that_wanted_it_alone_gone_those_who_share_go_on() {
    let lab = host("");
    let [a, alone, late] = agents(&lab, ["a", "alone", "late"]);
    share(&a);
    let alone_waits = wait(&alone, json!({ "resourceId": "bench" }));
    let late_waits = wait(&late, json!({ "resourceId": "bench", "mode": "shared" }));
    cancel(&alone, &alone_waits).expect(204);
    granted(&late, &late_waits);
    assert_eq!(holders(&lab, "bench"), ["a", "late"]);
}

#[test]
fn no_more_may_wait_than_limits_waiters_says_and_whoever_waits_already_may_ask_again() {
    let lab = host("[limits]\nwaiters = 2");
    let [holder, a, b, c] = agents(&lab, ["holder", "a", "b", "c"]);
    hold(&holder, "board");
    joins_at(1, &a, "board");
    let waiting = wait(&b, json!({ "select": "platform=linux" }));
    for told in [
        request(&c, json!({ "resourceId": "board" })),
        request(&c, json!({ "select": "platform=linux", "idempotencyKey": "k" })),
        join(&c, "board", json!({})),
    ] {
        let told = told.refused("QUEUE_FULL", 503);
        let again: u64 = told.header("retry-after").expect("a time").parse().expect("in seconds");
        assert!(again >= 1 && told.message().contains("limits.waiters"), "{}", told.body);
    }
    joins_at(1, &a, "board");
    assert_eq!(request(&c, json!({ "resourceId": "pixel-a" })).expect(201).body["request"]["state"], "granted");
    assert_eq!(lab.berth(&["status"]).exit, 0);
    cancel(&b, &waiting).expect(204);
    release(&c, &text(&lab.door("host").get("/v1/resources/pixel-a").body["resource"]["leases"][0]["id"]));
    wait(&c, json!({ "select": "platform=linux", "idempotencyKey": "k" }));
}

#[test]
fn with_priority_aging_whoever_has_waited_long_is_before_a_newcomer_of_higher_priority() {
    let lab = host("[waiting_room]\npriority_aging = \"1s\"");
    let [holder, patient, newcomer, urgent] = agents(&lab, ["holder", "patient", "newcomer", "urgent"]);
    let lease = hold(&holder, "board");
    let waiting = wait(&patient, json!({ "resourceId": "board" }));
    let later = time(&waiting["createdAt"]) + jiff::SignedDuration::from_millis(1_200);
    eventually("it has waited for more than a second", BOUND, || (jiff::Timestamp::now() > later).then_some(()));
    // A whole interval is worth one of priority.
    assert_eq!(wait(&newcomer, json!({ "resourceId": "board", "priority": 1 }))["position"], 2);
    assert_eq!(wait(&urgent, json!({ "resourceId": "board", "priority": 900 }))["position"], 1);
    assert_eq!(names(&lab, "board"), ["urgent", "patient", "newcomer"]);
    assert_eq!(release(&holder, &lease), "urgent");
}
