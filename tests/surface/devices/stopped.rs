//! A prepare that does not come to its end: killed at its timeout, when nobody wants it any more, and with all that it has
//! started.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::json;

use super::{CLINGS, Line, board, let_go, plan, resource, rig, run, told, wait_for, wait_state};
use crate::exec::wait_gone;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::{acquire, agents, cancel, events, hold, outcome, release, text, wait};

/// The hook that clings, and whom it has put into a session of their own.
#[track_caller]
fn clinging(lab: &Lab, line: &Line) -> [Pid; 2] {
    let found = ["clung", "clinging"].map(|name| {
        eventually(name, BOUND, || fs::read_to_string(lab.path(name)).ok()?.trim().parse().ok().and_then(Pid::from_raw))
    });
    assert_eq!(found[0].as_raw_nonzero().get(), line.pid);
    found
}

/// A prepare that clings to its device, on behalf of somebody who waits.
#[track_caller]
fn begun(lab: &Lab) -> [Pid; 2] {
    let line = wait_for(lab, "board", "prepare", "begin", 1);
    let found = clinging(lab, &line);
    let_go(lab, "board", "prepare");
    found
}

#[test]
fn a_prepare_that_hangs_is_killed_at_its_timeout_with_all_that_it_has_started() {
    let lab = rig(&[resource("board", "prepare reset", "prepare_timeout = \"1s\"", "")], "");
    let [ci, next] = agents(&lab, ["ci", "next"]);
    plan(&lab, "board", "prepare", CLINGS);
    let began = Instant::now();
    let failing = wait(&ci, json!({ "resourceId": "board" }));
    let pids = begun(&lab);
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    let failed = outcome(&ci, &failing);
    assert!(began.elapsed() >= Duration::from_secs(1));
    let message = text(&failed["error"]["message"]);
    assert!(message.contains("its prepare took longer than 1s and was killed"), "{message}");
    wait_gone(&pids, Duration::ZERO);
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    assert_eq!(run(&lab, "board"), ["prepare begin", "reset begin", "reset end", "prepare begin", "prepare end"]);
}

#[test]
fn a_request_that_is_cancelled_while_its_device_is_prepared_stops_the_hook_and_the_next_is_served_after_a_reset() {
    let lab = board();
    let [ci, next] = agents(&lab, ["ci", "next"]);
    plan(&lab, "board", "prepare", CLINGS);
    let mine = wait(&ci, json!({ "select": "platform=linux" }));
    let pids = begun(&lab);
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    cancel(&ci, &mine).expect(204);
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    wait_gone(&pids, Duration::ZERO);
    assert_eq!(run(&lab, "board"), ["prepare begin", "reset begin", "reset end", "prepare begin", "prepare end"]);
    assert_eq!(told(&lab, "board")[1], "preparing -> resetting: the request was given up");
    let rejected = events(&ci, "lease.rejected");
    assert_eq!((rejected.len(), &rejected[0]["payload"]["reason"]), (1, &json!("cancelled")));
    assert_eq!(cancel(&ci, &mine).status, 204, "it is over, and may be cancelled again");
}

#[test]
fn ctrl_c_while_the_device_is_prepared_takes_the_request_back_and_stops_the_hook() {
    let mut lab = board();
    plan(&lab, "board", "prepare", CLINGS);
    let mut command = lab.command();
    command.args(["lease", "--resource", "board"]);
    lab.run("cli", command);
    let pids = begun(&lab);
    eventually("it says what it waits for", BOUND, || lab.said("cli").contains("preparing").then_some(()));
    lab.signal("cli", Signal::INT);
    let ended = lab.wait_end("cli");
    assert!(!ended.success(), "{ended}");
    assert!(lab.said("cli").contains("cancelled lease request"), "{}", lab.said("cli"));
    wait_state(&lab, "board", "available");
    wait_gone(&pids, Duration::ZERO);
    assert_eq!(run(&lab, "board"), ["prepare begin", "reset begin", "reset end"]);
    assert_eq!(events(&lab.door("host"), "lease.granted").len(), 0);
}

#[test]
fn a_request_whose_time_is_up_while_its_device_is_prepared_ends_as_one_that_has_waited_too_long() {
    for body in [json!({ "resourceId": "board", "timeoutMs": 700 }), json!({ "select": "os", "timeoutMs": 700 })] {
        let lab = board();
        let [ci] = agents(&lab, ["ci"]);
        plan(&lab, "board", "prepare", CLINGS);
        let mine = wait(&ci, body);
        let pids = begun(&lab);
        let over = outcome(&ci, &mine);
        assert_eq!((&over["state"], &over["error"]["code"]), (&json!("failed"), &json!("QUEUE_TIMEOUT")));
        wait_state(&lab, "board", "available");
        wait_gone(&pids, Duration::ZERO);
        assert_eq!(run(&lab, "board"), ["prepare begin", "reset begin", "reset end"]);
    }
}

#[test]
fn a_hook_that_ends_takes_whatever_it_has_left_running_with_it() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let leaves = "setsid sh -c 'trap \"\" TERM HUP; echo $$ > clinging; exec sleep 1000' &\n\
                  while ! [ -s clinging ]; do sleep 0.02; done; echo $$ > clung";
    plan(&lab, "board", "prepare", leaves);
    let lease = hold(&ci, "board");
    let line = wait_for(&lab, "board", "prepare", "end", 1);
    wait_gone(&clinging(&lab, &line), Duration::ZERO);
    release(&ci, &lease);
    wait_state(&lab, "board", "available");
}

#[test]
fn a_drain_lets_a_prepare_end_and_the_lease_be_granted_and_nothing_after_it() {
    let lab = board();
    let admin = lab.door("host");
    let [ci, next] = agents(&lab, ["ci", "next"]);
    plan(&lab, "board", "prepare", super::WAITS);
    let mine = wait(&ci, json!({ "resourceId": "board" }));
    wait_for(&lab, "board", "prepare", "begin", 1);
    admin.post("/v1/resources/board/drain", &json!({})).expect(200);
    let_go(&lab, "board", "prepare");
    let granted = outcome(&ci, &mine);
    assert_eq!(granted["state"], "granted", "{granted}");
    release(&ci, &text(&granted["lease"]["id"]));
    wait_for(&lab, "board", "reset", "end", 1);
    acquire(&next, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    admin.delete("/v1/resources/board/drain").expect(200);
    hold(&next, "board");
}
