//! A prepare that fails: another device, once, or `DEVICE_FAILED`; and what the hook has said.

use serde_json::{Value, json};

use super::{FAILS, board, let_go, moves, plan, resource, rig, run, shown, told, wait_for, wait_state};
use crate::lab::Lab;
use crate::said::Said;
use crate::waiting::{acquire, agents, events, outcome, principal, release, request, state, text};

/// Two of a kind.
fn twins() -> Lab {
    rig(&[resource("left", "prepare reset", "", ""), resource("right", "prepare reset", "", "")], "")
}

fn prepares(lab: &Lab, resource: &str) -> usize {
    run(lab, resource).iter().filter(|line| *line == "prepare begin").count()
}

/// The failure of a request that is over.
#[track_caller]
fn failure(request: &Value) -> Value {
    assert_eq!(request["state"], "failed", "{request}");
    request["error"].clone()
}

#[test]
fn a_request_whose_device_cannot_be_prepared_goes_to_another_match_and_the_first_is_reset() {
    for body in [json!({ "select": "platform=linux" }), json!({ "select": "platform=linux", "noWait": true })] {
        let lab = twins();
        let [ci] = agents(&lab, ["ci"]);
        plan(&lab, "left", "prepare", FAILS);
        let made = request(&ci, body).expect(201).body["request"].take();
        let granted = if made["state"] == "waiting" { outcome(&ci, &made) } else { made };
        assert_eq!((&granted["state"], &granted["lease"]["resourceId"]), (&json!("granted"), &json!("right")));
        wait_state(&lab, "left", "available");
        assert_eq!(run(&lab, "left"), ["prepare begin", "prepare end", "reset begin", "reset end"]);
        assert_eq!(run(&lab, "right"), ["prepare begin", "prepare end"]);
        assert_eq!(events(&lab.door("host"), "lease.rejected"), [] as [Value; 0]);
        assert_eq!(events(&lab.door("host"), "lease.requested").len(), 1);
    }
}

#[test]
fn a_request_that_two_devices_have_failed_is_over_and_its_key_remembers_that() {
    let lab = rig(&["left", "middle", "right"].map(|id| resource(id, "prepare reset", "", "")), "");
    let [ci] = agents(&lab, ["ci"]);
    for id in ["left", "middle", "right"] {
        plan(&lab, id, "prepare", FAILS);
    }
    let body = json!({ "select": "platform=linux", "idempotencyKey": "once" });
    let made = request(&ci, body.clone()).expect(201).body["request"].take();
    let failed = outcome(&ci, &made);
    assert_eq!(failure(&failed)["code"], "DEVICE_FAILED");
    assert_eq!([prepares(&lab, "left"), prepares(&lab, "middle"), prepares(&lab, "right")], [1, 1, 0]);
    // The same key is the same outcome, and no third device is tried, also after a restart.
    let mut lab = lab;
    for _ in 0..2 {
        let again = request(&ci, body.clone()).refused("DEVICE_FAILED", 502);
        assert_eq!(again.details()["requestId"], made["id"]);
        assert_eq!(failure(&state(&ci, &made))["code"], "DEVICE_FAILED");
        super::restart(&mut lab);
    }
    assert_eq!(prepares(&lab, "right"), 0);
    let rejected = events(&lab.door("host"), "lease.rejected");
    assert_eq!(rejected.len(), 1, "{rejected:?}");
    let payload = &rejected[0]["payload"];
    assert_eq!((&payload["reason"], &payload["code"]), (&json!("device-failed"), &json!("DEVICE_FAILED")));
    // Its requester is free, and a new key is a new try.
    for id in ["left", "middle", "right"] {
        let_go(&lab, id, "prepare");
    }
    let made = request(&ci, json!({ "select": "platform=linux", "noWait": true })).expect(201);
    assert_eq!(made.body["request"]["state"], "granted");
}

#[test]
fn where_there_is_no_other_match_the_request_fails_at_every_door_with_words_that_say_what_to_do() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", FAILS);
    let words = "board could not be made ready for the lease: its prepare exited with 3; ask again under a new key, or for \
                 another (`berth resource show board` has more)";
    let doors: [fn(&crate::http::Door) -> crate::http::Answer; 4] = [
        |door| acquire(door, "board", json!({})),
        |door| acquire(door, "board", json!({ "onConflict": "join-waiting-room" })),
        |door| request(door, json!({ "resourceId": "board", "noWait": true })),
        |door| request(door, json!({ "select": "platform=linux", "noWait": true })),
    ];
    for (count, door) in (1..).zip(doors) {
        let refused = door(&ci).refused("DEVICE_FAILED", 502);
        assert_eq!((refused.message(), &refused.details()["resourceId"]), (words, &json!("board")));
        wait_state(&lab, "board", "available");
        assert_eq!(prepares(&lab, "board"), count);
    }
    for body in [json!({ "resourceId": "board" }), json!({ "select": "platform=linux" })] {
        let made = request(&ci, body).expect(201).body["request"].take();
        assert_eq!(failure(&outcome(&ci, &made))["message"], words);
        wait_state(&lab, "board", "available");
    }
    for arguments in [&["lease", "--resource", "board"][..], &["lease", "acquire", "board"]] {
        let said = lab.berth(arguments).failed(12);
        assert!(said.contains(&format!("error DEVICE_FAILED: {words}")), "{said}");
        wait_state(&lab, "board", "available");
    }
    assert_eq!(events(&lab.door("host"), "lease.granted"), [] as [Value; 0]);
    assert_eq!(moves(&lab, "board").len(), 3 * 8);
}

#[test]
fn a_hook_that_cannot_be_started_or_is_killed_says_so() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", "kill -9 $$");
    let refused = acquire(&ci, "board", json!({})).refused("DEVICE_FAILED", 502);
    assert!(refused.message().contains("its prepare was killed by signal 9 (SIGKILL)"), "{}", refused.message());
    wait_state(&lab, "board", "available");
    std::fs::rename(lab.path("hook.sh"), lab.path("elsewhere.sh")).unwrap();
    let refused = acquire(&ci, "board", json!({})).refused("DEVICE_FAILED", 502);
    assert!(refused.message().contains("its prepare could not be started"), "{}", refused.message());
    // Its reset cannot be started either.
    let seen = wait_state(&lab, "board", "quarantined");
    assert!(text(&seen["reason"]).starts_with("reset could not be started"), "{seen}");
}

#[test]
fn the_end_of_what_a_failed_hook_has_written_is_in_the_event_and_in_berth_resource_show() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let viewer = principal(&lab, "viewer", "viewer");
    plan(
        &lab,
        "board",
        "prepare",
        "echo the begin; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo wiping >&2; printf '\\033[1mthe end\\n'; exit 4",
    );
    acquire(&ci, "board", json!({})).refused("DEVICE_FAILED", 502);
    wait_state(&lab, "board", "available");
    let output = text(&shown(&viewer, "board")["failure"]["output"]);
    assert_eq!(output.len(), 2_048, "bounded");
    assert!(output.starts_with("xxx") && output.ends_with("x\nwiping\n[1mthe end\n"), "{output}");
    let failed = moves(&lab, "board").into_iter().find(|it| it["from"] == "preparing").unwrap();
    assert_eq!((&failed["reason"], &failed["output"]), (&json!("prepare exited with 4"), &json!(output)));
    let sheet = lab.berth(&["resource", "show", "board"]).ok();
    for words in ["last failure", "prepare exited with 4", "its output", "wiping", "[1mthe end"] {
        assert!(sheet.contains(words), "{sheet} lacks {words}");
    }
    // The next one that succeeds is no failure.
    let_go(&lab, "board", "prepare");
    let lease = acquire(&ci, "board", json!({})).expect(201).body["lease"].take();
    assert_eq!(shown(&viewer, "board").get("failure"), None);
    release(&ci, &text(&lease["id"]));
    let Said { out, .. } = lab.berth(&["resource", "show", "board"]);
    assert!(!out.contains("failure"), "{out}");
}

#[test]
fn a_device_that_cannot_be_prepared_is_reset_before_the_next_waiter_gets_it() {
    let lab = board();
    let [first, second] = agents(&lab, ["first", "second"]);
    plan(&lab, "board", "prepare", &format!("{}; {FAILS}", super::WAITS));
    let failing = crate::waiting::wait(&first, json!({ "resourceId": "board" }));
    wait_for(&lab, "board", "prepare", "begin", 1);
    let waiting = crate::waiting::wait(&second, json!({ "resourceId": "board" }));
    assert_eq!((&waiting["waitingFor"], &waiting["position"]), (&json!("preparing"), &json!(1)));
    let_go(&lab, "board", "prepare");
    assert_eq!(failure(&outcome(&first, &failing))["code"], "DEVICE_FAILED");
    assert_eq!(outcome(&second, &waiting)["state"], "granted");
    let expected = ["prepare begin", "prepare end", "reset begin", "reset end", "prepare begin", "prepare end"];
    assert_eq!(run(&lab, "board"), expected);
    let moves = told(&lab, "board");
    assert_eq!(moves[1], "preparing -> resetting: prepare exited with 3");
}

#[test]
fn a_driver_that_the_lab_file_changes_after_a_failed_prepare_is_that_of_the_next_lease() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", FAILS);
    acquire(&ci, "board", json!({})).refused("DEVICE_FAILED", 502);
    wait_state(&lab, "board", "available");
    super::script(&lab, "better.sh", "#!/bin/sh\nexec ./hook.sh health\n");
    let file = std::fs::read_to_string(lab.file()).unwrap();
    let better = file.replace("prepare = [\"./hook.sh\", \"prepare\"]", "prepare = [\"./better.sh\"]");
    assert_ne!(file, better);
    std::fs::write(lab.file(), better).unwrap();
    lab.berth(&["config", "reload"]).ok();
    acquire(&ci, "board", json!({})).expect(201);
    wait_for(&lab, "board", "health", "end", 1);
    assert_eq!(prepares(&lab, "board"), 1);
}
