//! A node that is killed, or told to end, in each phase of a lease; no hook outlives it, and none is forgotten.

use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::{Value, json};

use super::{
    CLINGS, FAILS, WAITS, board, let_go, plan, resource, restart, rig, run, shown, told, wait_for, wait_state,
};
use crate::exec::wait_gone;
use crate::patience::BOUND;
use crate::waiting::{acquire, agents, events, hold, outcome, release, request, state, wait};

fn pid(line: &super::Line) -> Pid {
    Pid::from_raw(line.pid).unwrap()
}

#[test]
fn a_claim_does_not_survive_the_node_but_the_device_is_reset_and_the_ticket_restores_the_place() {
    for body in [json!({ "resourceId": "board" }), json!({ "select": "platform=linux" })] {
        let mut lab = board();
        let [ci, eager] = agents(&lab, ["ci", "eager"]);
        plan(&lab, "board", "prepare", CLINGS);
        plan(&lab, "board", "reset", WAITS);
        let claims = wait(&ci, body.clone());
        let ticket = state(&ci, &claims)["ticket"].clone();
        assert!(ticket.is_string(), "{claims}");
        let hook = wait_for(&lab, "board", "prepare", "begin", 1);
        restart(&mut lab);
        wait_gone(&[pid(&hook)], BOUND);
        let_go(&lab, "board", "prepare");
        let failed = state(&ci, &claims);
        assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("failed"), &json!("NODE_RESTARTED")));
        ci.get(&format!("/v1/leases/{}", hook.lease)).refused("UNKNOWN_LEASE", 404);
        // The claim's fence is that of the reset.
        let reset = wait_for(&lab, "board", "reset", "begin", 1);
        assert_eq!((&reset.lease, &reset.fence), (&hook.lease, &hook.fence));
        assert_eq!(shown(&ci, "board")["state"], "resetting");
        let other = wait(&eager, body.clone());
        let mut again = body.clone();
        again["ticket"] = ticket;
        let again = wait(&ci, again);
        assert_eq!((&again["position"], &again["waitingFor"]), (&json!(1), &json!("resetting")));
        let_go(&lab, "board", "reset");
        let lease = outcome(&ci, &again)["lease"].take();
        assert_eq!(lease["holderId"], "ci");
        let fences = [hook.fence.parse::<u64>().unwrap(), lease["fence"].as_u64().unwrap()];
        assert!(fences[0] < fences[1], "{fences:?}");
        assert_eq!(state(&eager, &other)["state"], "waiting");
        let moves = told(&lab, "board");
        let expected = [
            "available -> preparing: made ready for a lease",
            "preparing -> resetting: the node was restarted while it was made ready",
            "resetting -> available: reset",
        ];
        assert_eq!(moves[..3], expected, "{moves:?}");
    }
}

#[test]
fn a_claim_of_an_acquire_does_not_survive_the_node_either_and_its_device_cools() {
    let mut lab = rig(&[resource("board", "prepare reset", "", "lock_delay = \"2s\"")], "");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", CLINGS);
    let door = ci.clone();
    let asking = std::thread::spawn(move || {
        let call = crate::http::Call::json("/v1/resources/board/leases", "{}");
        door.try_send(&call).map(|answer| answer.status)
    });
    let hook = wait_for(&lab, "board", "prepare", "begin", 1);
    restart(&mut lab);
    wait_gone(&[pid(&hook)], BOUND);
    asking.join().unwrap().expect_err("it has not been answered");
    let_go(&lab, "board", "prepare");
    wait_state(&lab, "board", "cooling");
    wait_state(&lab, "board", "available");
    // Its requester is free.
    let again = wait(&ci, json!({ "resourceId": "board" }));
    assert_eq!(outcome(&ci, &again)["state"], "granted");
    assert_eq!(run(&lab, "board"), ["prepare begin", "reset begin", "reset end", "prepare begin", "prepare end"]);
}

#[test]
fn a_lease_survives_the_node_and_no_hook_runs_until_it_ends() {
    let mut lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let lease = hold(&ci, "board");
    restart(&mut lab);
    assert_eq!(shown(&ci, "board")["state"], "leased");
    assert_eq!(run(&lab, "board"), ["prepare begin", "prepare end"]);
    release(&ci, &lease);
    wait_state(&lab, "board", "available");
    assert_eq!(run(&lab, "board"), ["prepare begin", "prepare end", "reset begin", "reset end"]);
    let reset = wait_for(&lab, "board", "reset", "end", 1);
    assert_eq!(reset.lease, lease);
}

#[test]
fn a_reset_that_the_node_did_not_see_end_is_run_again_before_the_device_is_granted() {
    let mut lab = board();
    let [ci, next] = agents(&lab, ["ci", "next"]);
    let lease = hold(&ci, "board");
    plan(&lab, "board", "reset", CLINGS);
    release(&ci, &lease);
    for count in 1..=2 {
        let hook = wait_for(&lab, "board", "reset", "begin", count);
        assert_eq!(hook.lease, lease);
        restart(&mut lab);
        wait_gone(&[pid(&hook)], BOUND);
        assert_eq!(shown(&ci, "board")["state"], "resetting");
        acquire(&next, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
        request(&next, json!({ "select": "os", "noWait": true })).refused("NO_CAPACITY", 503);
    }
    wait_for(&lab, "board", "reset", "begin", 3);
    plan(&lab, "board", "reset", WAITS);
    restart(&mut lab);
    wait_for(&lab, "board", "reset", "begin", 4);
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    assert_eq!(waiting["waitingFor"], "resetting");
    let_go(&lab, "board", "reset");
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    let begins = "reset begin";
    let expected =
        ["prepare begin", "prepare end", begins, begins, begins, begins, "reset end", "prepare begin", "prepare end"];
    assert_eq!(run(&lab, "board"), expected);
}

#[test]
fn a_device_in_quarantine_stays_there_when_the_node_is_killed() {
    let mut lab = board();
    let [ci, next] = agents(&lab, ["ci", "next"]);
    plan(&lab, "board", "reset", FAILS);
    let lease = hold(&ci, "board");
    release(&ci, &lease);
    let before = wait_state(&lab, "board", "quarantined");
    restart(&mut lab);
    let seen = shown(&lab.door("host"), "board");
    for field in ["state", "reason", "failure"] {
        assert_eq!(seen[field], before[field], "{field}");
    }
    assert!(seen["until"].is_string(), "it is tried again: {seen}");
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    assert_eq!(waiting["waitingFor"], "quarantined");
    let_go(&lab, "board", "reset");
    lab.door("host").post("/v1/resources/board/clear", &json!({})).expect(200);
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
}

#[test]
fn a_node_that_is_told_to_end_lets_a_reset_end() {
    let mut lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let lease = hold(&ci, "board");
    plan(&lab, "board", "reset", "touch begun; sleep 1.5");
    release(&ci, &lease);
    wait_for(&lab, "board", "reset", "begin", 1);
    assert!(lab.terminate("host").success());
    assert_eq!(run(&lab, "board")[2..], ["reset begin", "reset end"]);
    lab.start("host");
    lab.wait_ready("host");
    assert_eq!(shown(&ci, "board")["state"], "available");
    hold(&ci, "board");
    assert_eq!(run(&lab, "board")[4..], ["prepare begin", "prepare end"], "it is not run again");
    assert_eq!(told(&lab, "board")[3], "resetting -> available: reset");
}

#[test]
fn a_node_that_is_told_to_end_waits_for_a_reset_that_hangs_only_so_long_and_runs_it_again_at_its_start() {
    let mut lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let lease = hold(&ci, "board");
    plan(&lab, "board", "reset", CLINGS);
    release(&ci, &lease);
    let hook = wait_for(&lab, "board", "reset", "begin", 1);
    let began = Instant::now();
    assert!(lab.terminate("host").success());
    assert!(began.elapsed() < Duration::from_secs(18), "after {:?}", began.elapsed());
    wait_gone(&[pid(&hook)], Duration::ZERO);
    let_go(&lab, "board", "reset");
    lab.start("host");
    lab.wait_ready("host");
    wait_state(&lab, "board", "available");
    assert_eq!(run(&lab, "board")[2..], ["reset begin", "reset begin", "reset end"]);
}

#[test]
fn a_node_that_is_told_to_end_stops_a_prepare_at_once_and_keeps_its_leases() {
    let mut lab = rig(&[resource("board", "prepare reset", "", ""), resource("bench", "prepare reset", "", "")], "");
    let [ci, holder] = agents(&lab, ["ci", "holder"]);
    let lease = hold(&holder, "bench");
    plan(&lab, "board", "prepare", CLINGS);
    let claims = wait(&ci, json!({ "resourceId": "board" }));
    let hook = wait_for(&lab, "board", "prepare", "begin", 1);
    let began = Instant::now();
    assert!(lab.terminate("host").success());
    assert!(began.elapsed() < Duration::from_secs(8), "after {:?}", began.elapsed());
    wait_gone(&[pid(&hook)], Duration::ZERO);
    let_go(&lab, "board", "prepare");
    lab.start("host");
    lab.wait_ready("host");
    let over = state(&ci, &claims);
    assert_eq!((&over["state"], &over["error"]["code"]), (&json!("failed"), &json!("NODE_RESTARTED")));
    wait_state(&lab, "board", "available");
    assert_eq!(run(&lab, "board"), ["prepare begin", "reset begin", "reset end"]);
    assert_eq!(shown(&holder, "bench")["leases"][0]["id"], json!(lease));
    assert_eq!(events(&lab.door("host"), "lease.granted").len(), 1);
    assert_eq!(release(&holder, &lease), Value::Null);
    // It is kept a while for those who waited for it.
    let again = wait(&ci, json!({ "resourceId": "board" }));
    assert_eq!(outcome(&ci, &again)["state"], "granted");
}

#[test]
fn an_acquire_whose_prepare_is_stopped_with_the_node_is_told_so_at_once_and_its_key_is_free_at_the_next_start() {
    let mut lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let asks: [(&str, Value); 2] = [
        ("/v1/resources/board/leases", json!({ "idempotencyKey": "a" })),
        ("/v1/lease-requests", json!({ "select": "os", "noWait": true, "idempotencyKey": "b" })),
    ];
    for (path, body) in asks {
        plan(&lab, "board", "prepare", CLINGS);
        let (door, asked) = (ci.clone(), body.to_string());
        let asking = std::thread::spawn(move || door.try_send(&crate::http::Call::json(path, &asked)));
        let hook = wait_for(&lab, "board", "prepare", "begin", 1);
        let began = Instant::now();
        assert!(lab.terminate("host").success());
        assert!(began.elapsed() < Duration::from_secs(8), "after {:?}", began.elapsed());
        wait_gone(&[pid(&hook)], Duration::ZERO);
        asking.join().unwrap().expect("it is answered").refused("NODE_RESTARTED", 503);
        let_go(&lab, "board", "prepare");
        lab.start("host");
        lab.wait_ready("host");
        wait_state(&lab, "board", "available");
        let resets = run(&lab, "board").iter().filter(|line| *line == "reset begin").count();
        assert_eq!(resets, 1, "it was reset while the node went down: {:?}", run(&lab, "board"));
        let lease = ci.post(path, &body).expect(201).body;
        let lease = if lease["lease"].is_null() { &lease["request"]["lease"] } else { &lease["lease"] };
        release(&ci, lease["id"].as_str().expect("it is granted now"));
        wait_state(&lab, "board", "available");
        std::fs::remove_file(lab.path("log")).unwrap();
    }
}
