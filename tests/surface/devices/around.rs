//! A lease with hooks around it, as long as all goes well: the doors, the states, and what the hooks find.

use std::fs;
use std::thread;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{WAITS, board, let_go, log, plan, resource, rig, run, shown, told, wait_for, wait_state};
use crate::bookings::{after, booked, comes_to, soon};
use crate::waiting::{
    acquire, agents, events, hold, join, joins_at, names, outcome, principal, release, request, state,
};
use crate::waiting::{text, time, wait};

#[test]
fn a_device_goes_from_its_prepare_to_its_reset_and_each_move_is_told_with_a_reason() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let granted = acquire(&ci, "board", json!({ "requester": "job-7" })).expect(201).body["lease"].take();
    let [id, fence] = [text(&granted["id"]), granted["fence"].to_string()];
    assert_eq!(wait_state(&lab, "board", "leased")["fence"], granted["fence"]);
    assert_eq!(granted["environment"], json!({}), "a board needs none");
    release(&ci, &id);
    wait_state(&lab, "board", "available");
    let moves = [
        "available -> preparing: made ready for a lease",
        "preparing -> leased: lease granted",
        "leased -> resetting: lease released",
        "resetting -> available: reset",
    ];
    assert_eq!(told(&lab, "board"), moves);
    assert_eq!(run(&lab, "board"), ["prepare begin", "prepare end", "reset begin", "reset end"]);
    assert!(log(&lab).iter().all(|line| (&line.lease, &line.fence) == (&id, &fence)), "{:?}", log(&lab));
}

#[test]
fn a_hook_finds_the_resource_the_lease_and_the_labels_and_runs_beside_the_lab_file() {
    let mut lab = board();
    // What the node itself was started for is nothing to its hooks.
    lab.set("BERTH_LEASE", "lse_of_the_node");
    lab.set("BERTH_LABEL_COLOUR", "red");
    lab.terminate("host");
    lab.start("host");
    lab.wait_ready("host");
    for hook in ["prepare", "reset"] {
        plan(
            &lab,
            "board",
            hook,
            &format!("env | grep ^BERTH_ | grep -v ^BERTH_LOG= | sort > {hook}.env; pwd > {hook}.pwd"),
        );
    }
    let [ci] = agents(&lab, ["ci"]);
    let lease = acquire(&ci, "board", json!({ "requester": "job-7" })).expect(201).body["lease"].take();
    release(&ci, &text(&lease["id"]));
    wait_for(&lab, "board", "reset", "end", 1);
    let expected = format!(
        "BERTH_FENCE={}\nBERTH_HOLDER=ci/job-7\nBERTH_LABEL_OS=14\nBERTH_LABEL_PLATFORM=linux\nBERTH_LEASE={}\n\
         BERTH_RESOURCE=board\n",
        lease["fence"],
        text(&lease["id"])
    );
    let directory = fs::canonicalize(lab.path(".")).unwrap();
    for hook in ["prepare", "reset"] {
        assert_eq!(fs::read_to_string(lab.path(&format!("{hook}.env"))).unwrap(), expected, "{hook}");
        assert_eq!(fs::read_to_string(lab.path(&format!("{hook}.pwd"))).unwrap().trim(), directory.to_str().unwrap());
    }
}

#[test]
fn nothing_is_granted_before_the_prepare_has_ended_and_the_ttl_counts_from_there() {
    for body in [json!({ "resourceId": "board" }), json!({ "select": "platform=linux,os>=14" })] {
        let lab = board();
        let [ci, other] = agents(&lab, ["ci", "other"]);
        plan(&lab, "board", "prepare", WAITS);
        let mut asked = body.clone();
        asked["ttlMs"] = json!(7_000);
        let waits = wait(&ci, asked);
        assert_eq!(waits["waitingFor"], "preparing", "{waits}");
        let line = wait_for(&lab, "board", "prepare", "begin", 1);
        let seen = shown(&other, "board");
        assert_eq!((&seen["state"], &seen["leases"]), (&json!("preparing"), &json!([])));
        assert_eq!(seen["reason"], "made ready for its next lease");
        // The requester, its lease and the resource are taken.
        acquire(&ci, "board", json!({})).refused("REQUESTER_ALREADY_LEASED", 409);
        let refused = acquire(&other, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
        assert!(refused.message().starts_with("board is preparing"), "{}", refused.message());
        request(&other, json!({ "select": "platform=linux", "noWait": true })).refused("NO_CAPACITY", 503);
        let admin = lab.door("host");
        admin.get(&format!("/v1/leases/{}", line.lease)).refused("UNKNOWN_LEASE", 404);
        assert_eq!((events(&admin, "lease.granted").len(), events(&admin, "lease.requested").len()), (0, 2));
        assert_eq!(state(&ci, &waits)["waitingFor"], "preparing");
        let ended = Timestamp::now();
        let_go(&lab, "board", "prepare");
        let lease = outcome(&ci, &waits)["lease"].take();
        assert_eq!((&lease["id"], lease["fence"].to_string()), (&json!(line.lease), line.fence));
        let [granted_at, expires_at] = [time(&lease["grantedAt"]), time(&lease["expiresAt"])];
        assert!(granted_at >= ended, "{granted_at} is before {ended}");
        // The two are read from two clocks.
        let width = expires_at.duration_since(granted_at).as_millis();
        assert!((6_990..=7_010).contains(&width), "{width} ms");
        assert_eq!(events(&admin, "lease.granted").len(), 1);
    }
}

#[test]
fn an_acquire_and_a_request_that_does_not_wait_are_answered_when_the_prepare_has_ended() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let asks: [fn(&crate::http::Door) -> Value; 4] = [
        |door| acquire(door, "board", json!({})).expect(201).body["lease"].take(),
        |door| join(door, "board", json!({})).expect(201).body["lease"].take(),
        |door| {
            request(door, json!({ "resourceId": "board", "noWait": true })).expect(201).body["request"]["lease"].take()
        },
        |door| request(door, json!({ "select": "os", "noWait": true })).expect(201).body["request"]["lease"].take(),
    ];
    for (count, ask) in (1..).zip(asks) {
        plan(&lab, "board", "prepare", WAITS);
        let door = ci.clone();
        let asking = thread::spawn(move || ask(&door));
        wait_for(&lab, "board", "prepare", "begin", count);
        assert!(!asking.is_finished());
        let_go(&lab, "board", "prepare");
        let lease = asking.join().expect("it is answered");
        assert_eq!(lease["resourceId"], "board");
        release(&ci, &text(&lease["id"]));
        wait_state(&lab, "board", "available");
    }
}

#[test]
fn one_who_stands_in_the_waiting_room_is_admitted_after_the_reset_and_then_its_device_is_prepared() {
    let lab = board();
    let [holder, next] = agents(&lab, ["holder", "next"]);
    let lease = hold(&holder, "board");
    joins_at(1, &next, "board");
    plan(&lab, "board", "reset", WAITS);
    assert_eq!(release(&holder, &lease), Value::Null, "a reset comes first");
    wait_for(&lab, "board", "reset", "begin", 1);
    joins_at(1, &next, "board");
    let_go(&lab, "board", "reset");
    crate::waiting::event_about(&lab, "waiter.admitted", "next");
    assert_eq!((names(&lab, "board"), run(&lab, "board").len()), (Vec::new(), 4), "nothing is prepared for nobody");
    assert_eq!(join(&next, "board", json!({})).expect(201).body["lease"]["holderId"], "next");
    assert_eq!(run(&lab, "board").len(), 6);
}

#[test]
fn the_device_of_a_booking_is_prepared_at_its_start_and_its_lease_lasts_until_the_end_of_the_window() {
    let lab =
        rig(&[resource("board", "prepare reset", "", "")], "[bookings]\nmode = \"enforced\"\nauto_acquire = true");
    let [ci] = agents(&lab, ["ci"]);
    plan(&lab, "board", "prepare", WAITS);
    let starts_at = soon(500);
    let booking = booked(&ci, "board", starts_at, 3_600_000);
    let line = wait_for(&lab, "board", "prepare", "begin", 1);
    assert!(Timestamp::now() >= starts_at);
    assert_eq!(crate::bookings::shown(&ci, &booking)["status"], "scheduled");
    assert_eq!(shown(&ci, "board")["state"], "preparing");
    let_go(&lab, "board", "prepare");
    let fulfilled = comes_to(&ci, &booking, "fulfilled");
    let lease = ci.get(&format!("/v1/leases/{}", line.lease)).expect(200).body["lease"].take();
    assert_eq!((&lease["id"], &lease["holderId"]), (&fulfilled["leaseId"], &json!("ci")));
    let off = time(&lease["expiresAt"]).duration_since(after(starts_at, 3_600_000)).as_millis();
    assert!(off.abs() < 1_000, "it ends {off} ms after the window");
}

#[test]
fn a_booking_whose_device_cannot_be_prepared_is_missed_because_of_that_and_others_are_served() {
    let lab =
        rig(&[resource("board", "prepare reset", "", "")], "[bookings]\nmode = \"enforced\"\nauto_acquire = true");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    plan(&lab, "board", "prepare", super::FAILS);
    let booking = booked(&ci, "board", soon(500), 3_600_000);
    comes_to(&ci, &booking, "missed");
    let missed = events(&lab.door("host"), "booking.missed");
    assert_eq!((missed.len(), &missed[0]["payload"]["reason"]), (1, &json!("device-failed")), "{missed:?}");
    let_go(&lab, "board", "prepare");
    wait_state(&lab, "board", "available");
    hold(&other, "board");
    assert_eq!(run(&lab, "board").iter().filter(|line| *line == "prepare begin").count(), 2);
}

#[test]
fn seats_that_are_shared_are_prepared_for_the_first_and_reset_after_the_last() {
    let lab = rig(&[resource("board", "prepare reset", "", "max_shared = 2")], "");
    let [a, b] = agents(&lab, ["a", "b"]);
    let shared = json!({ "mode": "shared" });
    let first = acquire(&a, "board", shared.clone()).expect(201).body["lease"].take();
    let second = acquire(&b, "board", shared).expect(201).body["lease"].take();
    assert!(first["fence"].as_u64() < second["fence"].as_u64());
    release(&a, &text(&first["id"]));
    assert_eq!(shown(&b, "board")["state"], "leased");
    release(&b, &text(&second["id"]));
    wait_state(&lab, "board", "available");
    assert_eq!(run(&lab, "board"), ["prepare begin", "prepare end", "reset begin", "reset end"]);
    let fences: Vec<String> = log(&lab).iter().map(|line| line.fence.clone()).collect();
    let [first, second] = [first["fence"].to_string(), second["fence"].to_string()];
    assert_eq!(fences, [first.clone(), first, second.clone(), second], "the reset is of the last");
}

#[test]
fn everybody_sees_what_a_device_does_and_only_viewers_and_admins_what_its_hook_has_said() {
    let lab = board();
    let [ci] = agents(&lab, ["ci"]);
    let viewer = principal(&lab, "viewer", "viewer");
    plan(&lab, "board", "reset", super::FAILS);
    let lease = hold(&ci, "board");
    release(&ci, &lease);
    wait_state(&lab, "board", "quarantined");
    for door in [&lab.door("host"), &viewer] {
        let failure = shown(door, "board")["failure"].take();
        let expected = json!({ "hook": "reset", "why": "exited with 3", "output": "no such device\n" });
        assert_eq!(failure, expected);
    }
    let seen = shown(&ci, "board");
    assert_eq!((&seen["state"], seen.get("failure")), (&json!("quarantined"), None));
    assert_eq!(seen["reason"], "reset exited with 3; it is tried again by itself");
}
