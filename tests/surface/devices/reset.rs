//! What comes after a lease: a reset that takes its time, and one that fails.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{FAILS, WAITS, board, let_go, moves, plan, resource, rig, run, shown, told, wait_for, wait_state};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::sse::Stream;
use crate::waiting::{acquire, agents, close, hold, outcome, principal, release, state, text, time, wait};

#[test]
fn a_release_is_answered_before_the_reset_and_whoever_waits_is_told_of_that_and_served_after_it() {
    let lab = rig(&[resource("board", "prepare reset", "reset_timeout = \"40s\"", "")], "");
    let [holder, next, other] = agents(&lab, ["holder", "next", "other"]);
    let lease = hold(&holder, "board");
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    assert_eq!(waiting["waitingFor"], "leased");
    plan(&lab, "board", "reset", WAITS);
    let (began, wall) = (Instant::now(), Timestamp::now());
    assert_eq!(release(&holder, &lease), Value::Null);
    assert!(began.elapsed() < Duration::from_secs(5), "it does not wait for the reset");
    wait_for(&lab, "board", "reset", "begin", 1);
    let now = state(&next, &waiting);
    assert_eq!((&now["waitingFor"], &now["state"]), (&json!("resetting"), &json!("waiting")));
    // Nobody knows how long it takes, but for its timeout.
    let left = time(&now["until"]).duration_since(wall).as_secs();
    assert!((30..=41).contains(&left), "until {}", now["until"]);
    let seen = shown(&other, "board");
    assert_eq!(
        (&seen["state"], &seen["reason"]),
        (&json!("resetting"), &json!(format!("brought back after lease {lease}")))
    );
    // The holder is free, and has nothing of the device any more.
    let refused = acquire(&holder, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert!(refused.message().starts_with("board is resetting"), "{}", refused.message());
    holder.get(&format!("/v1/leases/{lease}")).refused("UNKNOWN_LEASE", 404);
    let_go(&lab, "board", "reset");
    let granted = outcome(&next, &waiting)["lease"].take();
    assert_eq!(granted["holderId"], "next");
    let expected = ["prepare begin", "prepare end", "reset begin", "reset end", "prepare begin", "prepare end"];
    assert_eq!(run(&lab, "board"), expected);
    // The next time it is known how long one takes.
    let waiting = wait(&other, json!({ "select": "platform=linux" }));
    plan(&lab, "board", "reset", WAITS);
    release(&next, &text(&granted["id"]));
    wait_for(&lab, "board", "reset", "begin", 2);
    let now = state(&other, &waiting);
    assert_eq!(now["waitingFor"], "resetting");
    // When it takes longer than that, nobody knows again.
    if !now["until"].is_null() {
        assert!(time(&now["until"]).duration_since(Timestamp::now()).as_secs() < 30, "until {}", now["until"]);
    }
    let_go(&lab, "board", "reset");
    assert_eq!(outcome(&other, &waiting)["state"], "granted");
}

#[test]
fn a_lease_that_runs_out_is_followed_by_a_reset_as_well() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    acquire(&ci, "board", json!({ "ttlMs": 1_000 })).expect(201);
    wait_for(&lab, "board", "reset", "end", 1);
    wait_state(&lab, "board", "available");
    assert_eq!(told(&lab, "board")[2..], ["leased -> resetting: lease expired", "resetting -> available: reset"]);
}

#[test]
fn a_device_whose_reset_fails_is_in_quarantine_until_an_operator_clears_it() {
    let lab = board();
    let [holder, next, third] = agents(&lab, ["holder", "next", "third"]);
    let viewer = principal(&lab, "viewer", "viewer");
    plan(&lab, "board", "reset", FAILS);
    let lease = hold(&holder, "board");
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    let wall = Timestamp::now();
    release(&holder, &lease);
    let seen = wait_state(&lab, "board", "quarantined");
    assert_eq!(seen["reason"], "reset exited with 3; it is tried again by itself");
    let failed = moves(&lab, "board").pop().unwrap();
    assert_eq!((&failed["from"], &failed["to"]), (&json!("resetting"), &json!("quarantined")));
    assert_eq!((&failed["reason"], &failed["output"]), (&json!("reset exited with 3"), &json!("no such device\n")));
    // The first retry comes after 30 s.
    let now = state(&next, &waiting);
    assert_eq!(now["waitingFor"], "quarantined");
    assert!(close(&now["until"], &seen["until"]), "{now} and {seen}");
    let left = time(&now["until"]).duration_since(wall).as_secs();
    assert!((29..=45).contains(&left), "until {}", now["until"]);
    let refused = acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    assert!(refused.message().starts_with("board is quarantined"), "{}", refused.message());
    for door in [&third, &viewer] {
        door.post("/v1/resources/board/clear", &json!({})).refused("INSUFFICIENT_PERMISSIONS", 403);
    }
    assert_eq!(shown(&third, "board")["state"], "quarantined");
    let said = lab.berth(&["resource", "show", "board"]).ok();
    assert!(said.contains("reset exited with 3") && said.contains("no such device"), "{said}");
    let_go(&lab, "board", "reset");
    lab.berth(&["resource", "clear", "board"]).ok();
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    assert_eq!(told(&lab, "board")[4], "quarantined -> available: cleared by an operator");
    assert_eq!(
        run(&lab, "board")[2..],
        ["reset begin", "reset end", "prepare begin", "prepare end"],
        "it is not run again"
    );
    // One that is not in quarantine is cleared as well.
    let cleared = lab.door("host").post("/v1/resources/board/clear", &json!({})).expect(200);
    assert_eq!(cleared.body["resource"]["state"], "leased");
}

#[test]
fn a_reset_that_hangs_is_killed_at_its_timeout_and_the_device_is_in_quarantine() {
    let lab = rig(&[resource("board", "prepare reset", "reset_timeout = \"1s\"", "")], "");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "reset", super::CLINGS);
    let lease = hold(&ci, "board");
    release(&ci, &lease);
    let seen = wait_state(&lab, "board", "quarantined");
    assert_eq!(seen["reason"], "reset took longer than 1s and was killed; it is tried again by itself");
    let_go(&lab, "board", "reset");
    lab.door("host").post("/v1/resources/board/clear", &json!({})).expect(200);
    let lease = hold(&ci, "board");
    release(&ci, &lease);
    wait_state(&lab, "board", "available");
}

#[test]
fn a_drain_does_not_stop_a_reset_and_nothing_is_granted_before_the_undrain() {
    let lab = board();
    let admin = lab.door("host");
    let [holder, next] = agents(&lab, ["holder", "next"]);
    let lease = hold(&holder, "board");
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    plan(&lab, "board", "reset", WAITS);
    release(&holder, &lease);
    wait_for(&lab, "board", "reset", "begin", 1);
    admin.post("/v1/resources/board/drain", &json!({})).expect(200);
    assert_eq!(state(&next, &waiting)["waitingFor"], "drained");
    // Undrained, it is where it was.
    let undrained = admin.delete("/v1/resources/board/drain").expect(200);
    assert_eq!(undrained.body["resource"]["state"], "resetting");
    admin.post("/v1/resources/board/drain", &json!({})).expect(200);
    let_go(&lab, "board", "reset");
    wait_for(&lab, "board", "reset", "end", 1);
    assert_eq!(
        (shown(&next, "board")["state"].take(), &state(&next, &waiting)["state"]),
        (json!("drained"), &json!("waiting"))
    );
    admin.delete("/v1/resources/board/drain").expect(200);
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    let moves = told(&lab, "board");
    let expected = [
        "leased -> resetting: lease released",
        "resetting -> drained: drain",
        "drained -> resetting: undrain",
        "resetting -> drained: drain",
        "drained -> available: undrain",
        "available -> preparing: made ready for a lease",
        "preparing -> leased: lease granted",
    ];
    assert_eq!(moves[2..], expected);
}

#[test]
fn whoever_waits_hears_on_its_stream_and_on_the_command_line_what_the_device_is_doing_meanwhile() {
    let mut lab = board();
    let [holder, next] = agents(&lab, ["holder", "next"]);
    let lease = hold(&holder, "board");
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    let mut stream = Stream::open(&next, &format!("/v1/lease-requests/{}/events", text(&waiting["id"])));
    let mut command = lab.command();
    command.args(["lease", "--select", "platform=linux", "--requester", "cli"]);
    lab.run("cli", command);
    let says = |lab: &Lab, words: &str| {
        eventually(words, BOUND, || lab.said("cli").lines().any(|line| line.contains(words)).then_some(()));
    };
    says(&lab, "leased until ");
    assert_eq!(stream.expect("waiting")["waitingFor"], "leased");
    for hook in ["reset", "prepare"] {
        plan(&lab, "board", hook, WAITS);
    }
    release(&holder, &lease);
    let told = stream.expect("waiting");
    assert_eq!(told["waitingFor"], "resetting");
    assert!(told["until"].is_string(), "{told}");
    says(&lab, "resetting until ");
    let_go(&lab, "board", "reset");
    assert_eq!(stream.expect("waiting")["waitingFor"], "preparing");
    says(&lab, "preparing");
    let_go(&lab, "board", "prepare");
    let granted = stream.expect("granted");
    assert_eq!((&granted["lease"]["holderId"], stream.next()), (&json!("next"), None));
    release(&next, &text(&granted["lease"]["id"]));
    assert!(lab.wait_end("cli").success());
    assert!(lab.said("cli").contains("leased lse_"), "{}", lab.said("cli"));
}
