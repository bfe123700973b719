//! The health of a device: two checks in a row that fail, or that pass, change what it counts as.

use std::fs;

use serde_json::{Value, json};

use super::{WAITS, let_go, moves, plan, resource, rig, run, shown, told, wait_for, wait_state};
use crate::http::Door;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::sse::Stream;
use crate::waiting::{agents, close, hold, outcome, release, state, text, wait};

/// What a check does that finds its device ill.
const ILL: &str = "echo it is silent; say end; exit 7";

/// A board that is checked every second, and has these hooks.
fn checked(hooks: &str) -> Lab {
    rig(&[resource("board", hooks, "health_interval = \"1s\"", "")], "")
}

fn checks(lab: &Lab) -> usize {
    run(lab, "board").iter().filter(|line| *line == "health end").count()
}

/// Waits for more checks.
#[track_caller]
fn wait_checks(lab: &Lab, more: usize) {
    let target = checks(lab) + more;
    wait_for(lab, "board", "health", "end", target);
}

/// What the holder is told when it renews.
#[track_caller]
fn notices(door: &Door, lease: &str) -> Vec<Value> {
    let renewed = door.post(&format!("/v1/leases/{lease}/renew"), &json!({})).expect(200).body;
    renewed["notices"].as_array().expect("there are always some, if none").clone()
}

#[test]
fn a_device_that_fails_one_check_now_and_then_is_as_good_as_any() {
    let lab = checked("health");
    let [ci] = agents(&lab, ["ci"]);
    // Every other check fails.
    let flaps = "if [ -f odd ]; then rm odd; else touch odd; say end; exit 1; fi";
    plan(&lab, "board", "health", flaps);
    wait_checks(&lab, 3);
    assert_eq!((shown(&ci, "board")["state"].take(), moves(&lab, "board")), (json!("available"), Vec::new()));
    let lease = hold(&ci, "board");
    wait_checks(&lab, 4);
    assert_eq!(notices(&ci, &lease), [] as [Value; 0]);
    assert_eq!(told(&lab, "board"), ["available -> leased: lease granted"]);
    assert!(log_of_free(&lab).iter().all(|line| line == "- -"), "a check of a free device is of no lease");
}

/// The lease and the fence of the checks before the first lease.
fn log_of_free(lab: &Lab) -> Vec<String> {
    let lines = super::log(lab);
    assert!(lines.iter().any(|line| line.lease != "-"), "a check of a leased device is of its lease");
    let free = lines.into_iter().take_while(|line| line.lease == "-");
    free.map(|line| format!("{} {}", line.lease, line.fence)).collect()
}

#[test]
fn a_free_device_that_fails_two_checks_is_in_quarantine_and_whoever_asks_for_it_is_told_so() {
    let lab = checked("health");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "health", ILL);
    let seen = wait_state(&lab, "board", "quarantined");
    assert_eq!(seen["reason"], "health exited with 7; it is tried again by itself");
    assert!(checks(&lab) == 2, "{:?}", run(&lab, "board"));
    let moved = moves(&lab, "board");
    assert_eq!(told(&lab, "board"), ["available -> quarantined: health exited with 7"]);
    assert_eq!(moved[0]["output"], "it is silent\n");
    let waiting = wait(&ci, json!({ "resourceId": "board" }));
    assert_eq!(waiting["waitingFor"], "quarantined");
    assert!(close(&waiting["until"], &seen["until"]), "{waiting} and {seen}");
    let_go(&lab, "board", "health");
    lab.door("host").post("/v1/resources/board/clear", &json!({})).expect(200);
    let granted = outcome(&ci, &waiting);
    assert_eq!(granted["state"], "granted");
    // Its checks go on.
    wait_checks(&lab, 2);
    assert_eq!(notices(&ci, &text(&granted["lease"]["id"])), [] as [Value; 0]);
}

#[test]
fn the_holder_of_a_device_that_fails_is_told_and_keeps_its_lease_and_is_told_when_it_is_well_again() {
    let lab = checked("health reset");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let lease = hold(&ci, "board");
    let mut stream = Stream::open(&ci, &format!("/v1/leases/{lease}/events"));
    stream.start();
    plan(&lab, "board", "health", ILL);
    let ill = stream.expect("device_unhealthy");
    assert_eq!(ill["reason"], "health exited with 7", "{ill}");
    let seen = shown(&other, "board");
    assert_eq!((&seen["state"], &seen["reason"]), (&json!("leased"), &json!("health exited with 7")));
    let heard = notices(&ci, &lease);
    assert_eq!(
        (heard.len(), &heard[0]["event"], &heard[0]["message"]),
        (1, &json!("device_unhealthy"), &json!("health exited with 7"))
    );
    stream.expect("renewed");
    assert_eq!(notices(&ci, &lease), [] as [Value; 0], "each is told once");
    stream.expect("renewed");
    // It goes on to be ill, and nobody says so again.
    wait_checks(&lab, 2);
    let_go(&lab, "board", "health");
    let well = stream.expect("device_recovered");
    assert_eq!(well["reason"], "its check passes again");
    let heard = notices(&ci, &lease);
    assert_eq!((heard.len(), &heard[0]["event"]), (1, &json!("device_recovered")));
    assert_eq!(shown(&other, "board").get("reason"), None);
    assert_eq!(release(&ci, &lease), Value::Null);
    wait_state(&lab, "board", "available");
    let moves = told(&lab, "board");
    assert!(moves.iter().all(|it| !it.contains("quarantined")), "{moves:?}");
}

#[test]
fn a_device_that_is_ill_when_its_lease_ends_is_checked_before_it_is_granted_again() {
    let lab = checked("health reset");
    let [ci, next] = agents(&lab, ["ci", "next"]);
    let lease = hold(&ci, "board");
    plan(&lab, "board", "health", ILL);
    eventually("it is ill", BOUND, || (!notices(&ci, &lease).is_empty()).then_some(()));
    let waiting = wait(&next, json!({ "resourceId": "board" }));
    plan(&lab, "board", "health", &format!("echo looked > looked; {WAITS}"));
    assert_eq!(release(&ci, &lease), Value::Null);
    // The check that may have been running is over when the reset begins.
    wait_for(&lab, "board", "reset", "end", 1);
    let _ = fs::remove_file(lab.path("looked"));
    let seen = wait_state(&lab, "board", "quarantined");
    assert_eq!(seen["reason"], "health exited with 7; it is tried again by itself");
    assert_eq!(state(&next, &waiting)["waitingFor"], "quarantined");
    let_go(&lab, "board", "health");
    assert_eq!(outcome(&next, &waiting)["state"], "granted");
    let moves = told(&lab, "board");
    let expected = [
        // That the holder was told.
        "leased -> leased: health exited with 7",
        "leased -> resetting: lease released",
        "resetting -> quarantined: reset",
        "quarantined -> available: its check passes again",
        "available -> leased: lease granted",
    ];
    assert_eq!(moves[1..], expected);
}

#[test]
fn exec_and_keep_say_on_stderr_that_the_device_fails_and_that_it_is_well_again() {
    let uses: [&[&str]; 2] = [
        &["exec", "--resource", "board", "--ttl", "2s", "--", "sleep", "1000"],
        &["lease", "--resource", "board", "--ttl", "2s", "--keep"],
    ];
    for arguments in uses {
        let mut lab = checked("health");
        let mut command = lab.command();
        command.args(arguments);
        lab.run("holder", command);
        wait_state(&lab, "board", "leased");
        plan(&lab, "board", "health", ILL);
        let says = |lab: &Lab, words: &str| {
            let err = fs::read_to_string(lab.path("holder.err")).unwrap();
            err.lines().any(|line| line.contains("notice: ") && line.ends_with(words)).then_some(())
        };
        eventually("it says that the device fails", BOUND, || says(&lab, "health exited with 7"));
        let_go(&lab, "board", "health");
        eventually("it says that it is well again", BOUND, || says(&lab, "its check passes again"));
        lab.signal("holder", rustix::process::Signal::TERM);
        lab.wait_end("holder");
        wait_state(&lab, "board", "available");
    }
}

#[test]
fn a_check_that_hangs_has_failed_and_one_that_runs_does_not_keep_a_lease_waiting() {
    let lab = rig(&[resource("board", "health", "health_interval = \"1s\", health_timeout = \"60s\"", "")], "");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "health", super::CLINGS);
    let line = wait_for(&lab, "board", "health", "begin", 1);
    // The grant is another's than the check's: that one is stopped, and its end means nothing.
    let lease = hold(&ci, "board");
    let_go(&lab, "board", "health");
    let pid = rustix::process::Pid::from_raw(line.pid).unwrap();
    crate::exec::wait_gone(&[pid], BOUND);
    wait_checks(&lab, 2);
    assert_eq!(notices(&ci, &lease), [] as [Value; 0]);
    assert_eq!(told(&lab, "board"), ["available -> leased: lease granted"]);
}
