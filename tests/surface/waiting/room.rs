//! The waiting room: each example of the document that asked for it, and SPEC §3.

use serde_json::{Value, json};

use super::{
    HOST, acquire, agents, close, event_about, events, hold, holders, host, join, joins_at, names, principal, release,
    room, text, time,
};
use crate::http::Call;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

#[test]
fn a_contended_acquire_fails_by_default_and_says_when_the_resource_may_be_had() {
    let lab = host("");
    let [holder, other] = agents(&lab, ["docs4-holder", "docs4-other"]);
    let lease = acquire(&holder, "board", json!({ "ttlMs": 600_000 })).expect(201).body["lease"].take();
    for body in [json!({}), json!({ "onConflict": "fail" })] {
        let told = acquire(&other, "board", body).refused("RESOURCE_UNAVAILABLE", 409);
        assert!(close(&told.details()["availableAt"], &lease["expiresAt"]), "{}", told.body);
        for secret in ["docs4-holder", lease["id"].as_str().unwrap()] {
            assert!(!told.body.to_string().contains(secret), "{}", told.body);
        }
    }
    assert_eq!(room(&lab, "board"), json!({ "count": 0, "resourceId": "board", "waiters": [] }), "nobody waits");
}

#[test]
fn joining_the_waiting_room_answers_pending_with_a_place_that_counts_from_1() {
    let lab = host("");
    let [holder, other] = agents(&lab, ["docs4-holder", "docs4-other"]);
    hold(&holder, "board");
    let mut told = join(&other, "board", json!({ "ttlMs": 600_000, "priority": 5 })).expect(202).body;
    let ticket = told.as_object_mut().unwrap().remove("ticket").expect("the place in line, for after a restart");
    assert!(!text(&ticket).is_empty());
    let shape = json!({ "mode": "exclusive", "resourceId": "board", "status": "pending", "waitingPosition": 1 });
    assert_eq!(told, shape);
}

#[test]
fn a_priority_5_caller_who_joined_second_is_ahead_and_is_the_one_admitted_on_release() {
    let lab = host("");
    let [holder, other, third] = agents(&lab, ["docs4-holder", "docs4-other", "docs4-third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &other, "board");
    let ahead = join(&third, "board", json!({ "priority": 5 })).expect(202);
    assert_eq!(ahead.body["waitingPosition"], 1);
    joins_at(2, &other, "board");
    assert_eq!(names(&lab, "board"), ["docs4-third", "docs4-other"]);
    assert_eq!(release(&holder, &lease), "docs4-third");
}

#[test]
fn of_equal_priority_whoever_joined_first_is_first() {
    let lab = host("");
    let callers = agents(&lab, ["a", "b", "c"]);
    let lease = hold(&lab.door("host"), "board");
    for (index, caller) in callers.iter().enumerate() {
        joins_at(index as u64 + 1, caller, "board");
    }
    // In whatever order they ask again.
    for (index, caller) in callers.iter().enumerate().rev() {
        joins_at(index as u64 + 1, caller, "board");
    }
    assert_eq!(release(&lab.door("host"), &lease), "a");
}

#[test]
fn the_release_answer_names_the_admitted_waiter_and_admission_makes_no_lease() {
    let lab = host("");
    let [holder, other, third] = agents(&lab, ["docs4-holder", "docs4-other", "docs4-third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &third, "board");
    joins_at(2, &other, "board");
    let told = holder.delete(&format!("/v1/leases/{lease}")).expect(200).body;
    assert_eq!(
        told,
        json!({
            "admittedWaiter": "docs4-third",
            "leaseId": lease,
            "message": format!("Lease {lease} released"),
            "resourceId": "board",
        })
    );
    assert_eq!(names(&lab, "board"), ["docs4-other"], "one is taken out of the queue");
    let admin = lab.door("host");
    assert_eq!(admin.get("/v1/leases").expect(200).body, json!({ "leases": [] }));
    assert_eq!(admin.get("/v1/resources/board").body["resource"]["state"], "available");
    assert_eq!(events(&admin, "lease.granted").len(), 1, "the holder's own");
    assert_eq!(event_about(&lab, "waiter.admitted", "docs4-third")["resourceId"], "board");
}

#[test]
fn a_release_that_nobody_waits_for_admits_nobody() {
    let lab = host("");
    let door = lab.door("host");
    let lease = hold(&door, "board");
    let told = door.delete(&format!("/v1/leases/{lease}")).expect(200).body;
    assert_eq!(told["admittedWaiter"], Value::Null);
    assert!(told.as_object().unwrap().contains_key("admittedWaiter"), "{told}");
}

#[test]
fn asking_the_same_again_comes_back_active_once_the_resource_is_free() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    let lease = hold(&holder, "board");
    let ask = || join(&waiter, "board", json!({ "ttlMs": 600_000, "leaseId": "mine", "note": "night run" }));
    ask().expect(202);
    ask().expect(202);
    assert_eq!(release(&holder, &lease), "waiter");
    let told = ask().expect(201).body;
    assert_eq!(told["status"], "active");
    for (field, value) in [
        ("id", json!("mine")),
        ("resourceId", json!("board")),
        ("holderId", json!("waiter")),
        ("mode", json!("exclusive")),
        ("ttlMs", json!(600_000)),
        ("note", json!("night run")),
        ("idChosenByRequester", json!(true)),
    ] {
        assert_eq!(told["lease"][field], value, "{field}");
    }
    assert_eq!(room(&lab, "board")["count"], 0);
    // What it asks for is its own now.
    ask().refused("REQUESTER_ALREADY_LEASED", 409);
}

#[test]
fn asking_again_keeps_the_place_and_the_time_of_joining_and_refreshes_last_seen() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    hold(&holder, "board");
    joins_at(1, &first, "board");
    joins_at(2, &second, "board");
    let before = room(&lab, "board")["waiters"][0].take();
    assert!(close(&before["lastSeen"], &before["joinedAt"]), "{before}");
    let after = eventually("it was seen later than before", BOUND, || {
        joins_at(1, &first, "board");
        let after = room(&lab, "board")["waiters"][0].take();
        (time(&after["lastSeen"]) > time(&before["lastSeen"])).then_some(after)
    });
    for field in ["holderId", "joinedAt", "mode", "priority"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(events(&lab.door("host"), "waiter.joined").len(), 2, "asking again is not joining");
}

#[test]
fn what_an_ask_leaves_out_stays_a_given_priority_moves_the_place_and_another_mode_joins_anew() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    hold(&holder, "bench");
    join(&first, "bench", json!({ "priority": 2 })).expect(202);
    join(&second, "bench", json!({ "priority": 1 })).expect(202);
    joins_at(1, &first, "bench");
    let joined_at = room(&lab, "bench")["waiters"][0]["joinedAt"].take();
    assert_eq!(join(&first, "bench", json!({ "priority": 0.5 })).expect(202).body["waitingPosition"], 2);
    assert_eq!(room(&lab, "bench")["waiters"][1]["joinedAt"], joined_at);
    assert_eq!(
        join(&first, "bench", json!({ "priority": 1 })).expect(202).body["waitingPosition"],
        1,
        "it joined first"
    );
    let anew = join(&first, "bench", json!({ "mode": "shared" })).expect(202);
    assert_eq!((&anew.body["waitingPosition"], &anew.body["mode"]), (&json!(2), &json!("shared")));
    let entry = room(&lab, "bench")["waiters"][1].take();
    assert_eq!((&entry["mode"], &entry["priority"]), (&json!("shared"), &json!(1.0)));
    assert!(time(&entry["joinedAt"]) > time(&joined_at));
    let by_id = join(&second, "bench", json!({ "leaseId": "mine" })).expect(202);
    assert_eq!(by_id.body["waitingPosition"], 2, "another lease id joins anew too");
}

#[test]
fn an_entry_that_is_not_refreshed_within_lease_waiter_ttl_seconds_is_pruned_and_joins_at_the_end_later() {
    let mut lab = Lab::new(HOST);
    lab.set("LEASE_WAITER_TTL_SECONDS", "2");
    lab.start("host");
    lab.wait_ready("host");
    let [holder, silent, alive] = agents(&lab, ["holder", "silent", "alive"]);
    let lease = hold(&holder, "board");
    joins_at(1, &silent, "board");
    joins_at(2, &alive, "board");
    let joined_at = room(&lab, "board")["waiters"][1]["joinedAt"].take();
    eventually("the silent one is pruned", BOUND, || {
        let place = join(&alive, "board", json!({})).expect(202).body["waitingPosition"].take();
        (place == 1).then_some(())
    });
    assert_eq!(event_about(&lab, "waiter.pruned", "silent")["resourceId"], "board");
    assert_eq!(room(&lab, "board")["waiters"][0]["joinedAt"], joined_at, "whoever asks in time stays");
    joins_at(2, &silent, "board");
    joins_at(1, &alive, "board");
    assert_eq!(release(&holder, &lease), "alive");
}

#[test]
fn a_stale_entry_is_passed_over_when_the_resource_frees_and_its_requester_may_have_something_else() {
    let lab = host("[waiting_room]\nwaiter_ttl = \"1s\"");
    let [holder, silent] = agents(&lab, ["holder", "silent"]);
    let lease = hold(&holder, "board");
    joins_at(1, &silent, "board");
    acquire(&silent, "pixel-a", json!({})).refused("REQUESTER_ALREADY_LEASED", 409);
    event_about(&lab, "waiter.pruned", "silent");
    assert_eq!(release(&holder, &lease), Value::Null);
    hold(&silent, "pixel-a");
}

#[test]
fn a_third_party_that_acquires_in_the_gap_wins_and_the_admitted_caller_joins_again_at_the_end() {
    let lab = host("");
    let [holder, admitted, behind, third] = agents(&lab, ["holder", "admitted", "behind", "third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &admitted, "board");
    joins_at(2, &behind, "board");
    assert_eq!(release(&holder, &lease), "admitted");
    let lease = hold(&third, "board");
    joins_at(2, &admitted, "board");
    joins_at(1, &behind, "board");
    assert_eq!(release(&third, &lease), "behind");
    assert_eq!(join(&behind, "board", json!({})).expect(201).body["lease"]["holderId"], "behind");
}

#[test]
fn listing_a_waiting_room_is_for_admins_only_and_has_exactly_this_shape() {
    let lab = host("");
    let [holder, other] = agents(&lab, ["docs4-holder", "docs4-other"]);
    let viewer = principal(&lab, "wall", "viewer");
    hold(&holder, "board");
    joins_at(1, &other, "board");
    for door in [&holder, &other, &viewer] {
        let told = door.get("/v1/resources/board/waiting-room").refused("INSUFFICIENT_PERMISSIONS", 403);
        assert!(told.message().contains("only an admin"), "{}", told.body);
        assert!(!told.body.to_string().contains("docs4-other"), "{}", told.body);
    }
    let listed = room(&lab, "board");
    let waiter = &listed["waiters"][0];
    time(&waiter["joinedAt"]);
    time(&waiter["lastSeen"]);
    let shape = json!({
        "count": 1,
        "resourceId": "board",
        "waiters": [{
            "holderId": "docs4-other",
            "joinedAt": waiter["joinedAt"],
            "lastSeen": waiter["lastSeen"],
            "mode": "exclusive",
            "priority": 0.0,
        }],
    });
    assert_eq!(listed, shape);
    lab.door("host").get("/v1/resources/toaster/waiting-room").refused("UNKNOWN_RESOURCE", 404);
}

#[test]
fn the_end_of_an_expired_lease_admits_the_next_waiter_too() {
    let lab = host("");
    let [holder, waiter, behind] = agents(&lab, ["holder", "waiter", "behind"]);
    acquire(&holder, "board", json!({ "ttlMs": 300 })).expect(201);
    joins_at(1, &waiter, "board");
    joins_at(2, &behind, "board");
    event_about(&lab, "waiter.admitted", "waiter");
    event_about(&lab, "lease.expired", "holder");
    assert_eq!((names(&lab, "board"), holders(&lab, "board")), (vec!["behind".to_owned()], vec![]));
    join(&waiter, "board", json!({})).expect(201);
    assert_eq!(events(&lab.door("host"), "waiter.admitted").len(), 1, "one for each freeing");
}

#[test]
fn whoever_leaves_the_waiting_room_is_asked_no_more_and_may_have_something_else() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    let lease = hold(&holder, "board");
    joins_at(1, &first, "board");
    joins_at(2, &second, "board");
    let leave = || first.delete("/v1/resources/board/waiting-room/me").expect(200).body;
    assert_eq!(leave(), json!({ "left": true }));
    assert_eq!(leave(), json!({ "left": false }));
    first.delete("/v1/resources/toaster/waiting-room/me").refused("UNKNOWN_RESOURCE", 404);
    assert_eq!(event_about(&lab, "waiter.left", "first")["resourceId"], "board");
    hold(&first, "pixel-a");
    assert_eq!(release(&holder, &lease), "second");
}

#[test]
fn a_key_stands_for_the_lease_once_there_is_one_and_for_nothing_while_its_caller_waits() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    let lease = hold(&holder, "board");
    let ask = |id: &str| join(&waiter, "board", json!({ "idempotencyKey": "k", "leaseId": id }));
    ask("one").expect(202);
    ask("one").expect(202);
    // The same key is a new try, also for another attempt.
    ask("other").expect(202);
    release(&holder, &lease);
    let first = ask("other").expect(201).body["lease"].take();
    let again = ask("other").expect(201).body["lease"].take();
    assert_eq!((&again["id"], &again["fence"]), (&json!("other"), &first["fence"]));
    ask("one").refused("IDEMPOTENCY_CONFLICT", 409);
    release(&waiter, "other");
    assert_eq!(ask("other").expect(201).body["lease"]["fence"], first["fence"], "never recomputed");
    assert_eq!(holders(&lab, "board"), Vec::<String>::new());
}

#[test]
fn each_requester_of_one_principal_has_a_place_of_its_own() {
    let lab = host("");
    let [holder, ci] = agents(&lab, ["holder", "ci"]);
    let lease = hold(&holder, "board");
    for (index, name) in ["job-1", "job-2"].into_iter().enumerate() {
        let told = join(&ci, "board", json!({ "requester": name })).expect(202);
        assert_eq!(told.body["waitingPosition"], index + 1);
    }
    assert_eq!(names(&lab, "board"), ["ci/job-1", "ci/job-2"]);
    assert_eq!(ci.delete("/v1/resources/board/waiting-room/me").expect(200).body, json!({ "left": false }));
    let leave = Call { method: "DELETE", path: "/v1/resources/board/waiting-room/me", ..Call::default() };
    let told = ci.send(&leave.header("Berth-Requester", "job-1")).expect(200);
    assert_eq!(told.body, json!({ "left": true }));
    assert_eq!(release(&holder, &lease), "ci/job-2");
    join(&ci, "board", json!({ "requester": "job-2" })).expect(201);
}
