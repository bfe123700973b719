//! `lock_delay`: a device is left alone for a while after a lease that nobody has released.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{resource, restart, rig, run, shown, told, wait_state};
use crate::lab::Lab;
use crate::waiting::{acquire, agents, hold, outcome, release, state, time, wait};

/// One with a delay of some seconds, and with these hooks.
fn delayed(hooks: &str, delay: &str) -> Lab {
    rig(&[resource("board", hooks, "", &format!("lock_delay = \"{delay}\""))], "")
}

#[test]
fn after_a_lease_that_ran_out_a_device_cools_until_a_time_that_is_told_and_then_the_next_is_served() {
    let lab = delayed("prepare", "3s");
    let [ci, next, third] = agents(&lab, ["ci", "next", "third"]);
    let lease = acquire(&ci, "board", json!({ "ttlMs": 1_000 })).expect(201).body["lease"].take();
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    let cooling = wait_state(&lab, "board", "cooling");
    let until = time(&cooling["until"]);
    let after = until.duration_since(time(&lease["expiresAt"])).as_millis();
    assert!((3_000..4_500).contains(&after), "it cools until {after} ms after the deadline");
    let now = state(&next, &waiting);
    assert_eq!(now["waitingFor"], "cooling");
    assert!(time(&now["until"]).duration_since(until).as_millis().abs() < 100, "{} is not {until}", now["until"]);
    let refused = acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert!(refused.message().starts_with("board is cooling until "), "{}", refused.message());
    assert!(time(&refused.details()["availableAt"]).duration_since(until).as_millis().abs() < 100);
    let granted = outcome(&next, &waiting)["lease"].take();
    assert_eq!(granted["holderId"], "next");
    let off = time(&granted["grantedAt"]).duration_since(until).as_millis();
    assert!((-50..3_000).contains(&off), "granted {off} ms after that time");
    let moves = told(&lab, "board");
    assert_eq!(moves[2..4], ["leased -> cooling: lease expired", "cooling -> available: left alone for long enough"]);
}

#[test]
fn after_a_lease_that_was_released_there_is_no_delay() {
    let lab = delayed("reset", "1h");
    let [ci, next] = agents(&lab, ["ci", "next"]);
    for door in [&ci, &lab.door("host")] {
        let lease = hold(&ci, "board");
        let waiting = wait(&next, json!({ "resourceId": "board" }));
        // By its holder, and by an admin.
        assert_eq!(release(door, &lease), Value::Null);
        let granted = outcome(&next, &waiting)["lease"].take();
        release(&next, granted["id"].as_str().unwrap());
        wait_state(&lab, "board", "available");
    }
    assert!(told(&lab, "board").iter().all(|it| !it.contains("cooling")), "{:?}", told(&lab, "board"));
}

#[test]
fn a_device_that_is_reset_and_cools_is_free_when_both_are_over() {
    let lab = delayed("reset", "2s");
    let [ci] = agents(&lab, ["ci"]);
    acquire(&ci, "board", json!({ "ttlMs": 1_000 })).expect(201);
    wait_state(&lab, "board", "available");
    let expected = [
        "available -> leased: lease granted",
        "leased -> resetting: lease expired",
        "resetting -> cooling: reset",
        "cooling -> available: left alone for long enough",
    ];
    assert_eq!(told(&lab, "board"), expected);
    hold(&ci, "board");
}

#[test]
fn a_node_that_is_killed_while_a_device_cools_lets_it_cool_for_the_rest() {
    let mut lab = delayed("reset", "8s");
    let [ci] = agents(&lab, ["ci"]);
    acquire(&ci, "board", json!({ "ttlMs": 1_000 })).expect(201);
    let until = time(&wait_state(&lab, "board", "cooling")["until"]);
    restart(&mut lab);
    let seen = shown(&ci, "board");
    assert_eq!(seen["state"], "cooling", "{seen}");
    assert!(time(&seen["until"]).duration_since(until).as_millis().abs() < 200, "{} is not {until}", seen["until"]);
    wait_state(&lab, "board", "available");
    assert!(Timestamp::now().duration_since(until).as_millis() > -200, "not before {until}");
    assert_eq!(run(&lab, "board"), ["reset begin", "reset end"], "it is not reset again");
}
