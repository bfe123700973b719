//! A resource that an operator takes out: what is leased stays, nothing new is granted at any door (SPEC §7).

use serde_json::{Value, json};

use super::{
    acquire, agents, events, hold, holders, host, join, joins_at, names, outcome, principal, release, request, state,
    wait,
};
use crate::http::{Answer, Call, Door};

fn drain(door: &Door, resource: &str) -> Answer {
    door.post_text(&format!("/v1/resources/{resource}/drain"), "")
}

fn undrain(door: &Door, resource: &str) -> Answer {
    door.send(&Call { method: "DELETE", path: &format!("/v1/resources/{resource}/drain"), ..Call::default() })
}

#[test]
fn a_drained_resource_keeps_its_lease_and_grants_nothing_at_any_door_until_it_is_undrained() {
    let lab = host("");
    let admin = lab.door("host");
    let [holder, a, b, c] = agents(&lab, ["holder", "a", "b", "c"]);
    let lease = hold(&holder, "board");
    let by_name = wait(&a, json!({ "resourceId": "board" }));
    let drained = drain(&admin, "board").expect(200).body["resource"].take();
    assert_eq!((&drained["id"], &drained["state"]), (&json!("board"), &json!("drained")));
    assert_eq!(drained["leases"][0]["holderId"], "holder");
    holder.post_text(&format!("/v1/leases/{lease}/renew"), "").expect(200);
    assert_eq!(release(&holder, &lease), Value::Null, "nobody is next");
    let shown = admin.get("/v1/resources/board").expect(200).body["resource"].take();
    assert_eq!((&shown["state"], &shown["reason"]), (&json!("drained"), &json!("drained by an operator")));
    for told in [
        acquire(&c, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409),
        request(&c, json!({ "resourceId": "board", "noWait": true })).refused("NO_CAPACITY", 503),
        request(&c, json!({ "select": "platform=linux", "noWait": true })).refused("NO_CAPACITY", 503),
    ] {
        assert_eq!(told.details().get("availableAt"), None, "nobody knows: {}", told.body);
    }
    assert_eq!(state(&a, &by_name)["waitingFor"], "drained");
    assert_eq!(state(&a, &by_name).get("until"), None);
    let by_selector = wait(&b, json!({ "select": "platform=linux" }));
    assert_eq!(by_selector["waitingFor"], "drained");
    joins_at(2, &c, "board");
    assert_eq!(
        (holders(&lab, "board"), admin.get("/v1/status").body["resources"]["drained"].take()),
        (vec![], json!(1))
    );

    let undrained = undrain(&admin, "board").expect(200).body["resource"].take();
    assert_eq!(undrained["id"], "board");
    let granted = outcome(&a, &by_name)["lease"].take();
    assert_eq!(granted["holderId"], "a");
    assert_eq!(release(&a, granted["id"].as_str().unwrap()), "b", "then as if nothing had been");
}

#[test]
fn a_drain_is_for_admins_and_is_told_once() {
    let lab = host("");
    let admin = lab.door("host");
    let [agent] = agents(&lab, ["ci"]);
    let viewer = principal(&lab, "wall", "viewer");
    for door in [&agent, &viewer] {
        drain(door, "board").refused("INSUFFICIENT_PERMISSIONS", 403);
        undrain(door, "board").refused("INSUFFICIENT_PERMISSIONS", 403);
    }
    drain(&admin, "toaster").refused("UNKNOWN_RESOURCE", 404);
    for _ in 0..2 {
        assert_eq!(drain(&admin, "board").expect(200).body["resource"]["state"], "drained");
    }
    for _ in 0..2 {
        assert_eq!(undrain(&admin, "board").expect(200).body["resource"]["state"], "available");
    }
    let told: Vec<Value> =
        events(&admin, "resource.state-changed").into_iter().map(|event| event["payload"].clone()).collect();
    let changed =
        |from: &str, to: &str, reason: &str| json!({ "resourceId": "board", "from": from, "to": to, "reason": reason });
    assert_eq!(told, [changed("available", "drained", "drain"), changed("drained", "available", "undrain")]);
    hold(&agent, "board");
}

#[test]
fn a_selector_finds_another_match_while_one_is_drained() {
    let lab = host("");
    let [a, b] = agents(&lab, ["a", "b"]);
    drain(&lab.door("host"), "pixel-a").expect(200);
    let made = request(&a, json!({ "select": "platform=android" })).expect(201).body["request"].take();
    assert_eq!(made["lease"]["resourceId"], "pixel-b");
    let waiting = wait(&b, json!({ "select": "platform=android" }));
    assert_eq!(waiting["waitingFor"], "leased", "that is what can end by itself");
    assert_eq!(release(&a, made["lease"]["id"].as_str().unwrap()), "b");
}

#[test]
fn a_drained_resource_is_still_drained_after_a_restart_and_its_waiters_are_served_when_it_is_undrained() {
    let mut lab = host("");
    let admin = lab.door("host");
    let [holder, waiter, third] = agents(&lab, ["holder", "waiter", "third"]);
    let lease = hold(&holder, "board");
    joins_at(1, &waiter, "board");
    drain(&admin, "board").expect(200);
    assert_eq!(release(&holder, &lease), Value::Null);
    for _ in 0..2 {
        lab.kill_9("host");
        lab.start("host");
        lab.wait_ready("host");
        assert_eq!(admin.get("/v1/resources/board").body["resource"]["state"], "drained");
        acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
        joins_at(1, &waiter, "board");
    }
    undrain(&admin, "board").expect(200);
    assert_eq!(names(&lab, "board"), Vec::<String>::new(), "the waiter is admitted");
    assert_eq!(join(&waiter, "board", json!({})).expect(201).body["lease"]["holderId"], "waiter");
}
