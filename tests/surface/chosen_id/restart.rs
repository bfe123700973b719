//! What a restart leaves of chosen ids, and what an old state file says of them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;

use serde_json::{Value, json};

use super::for_the_board;
use crate::lab::Lab;
use crate::waiting::{acquire, agents, event_about, hold, host, join, joins_at, release, request, state, wait};

/// Two ways for a node to go.
const ENDS: [fn(&mut Lab); 2] = [|lab| lab.kill_9("host"), |lab| assert!(lab.terminate("host").success())];

#[test]
fn after_a_daemon_restart_an_id_held_only_by_a_waiting_request_is_accepted_again() {
    for end in ENDS {
        let mut lab = host("");
        let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
        acquire(&holder, "board", json!({ "leaseId": "active" })).expect(201);
        let waiting = wait(&first, for_the_board("ad-7f3a"));
        acquire(&second, "pixel-a", json!({ "leaseId": "ad-7f3a" })).refused("LEASE_ID_TAKEN", 409);
        end(&mut lab);
        lab.start("host");
        lab.wait_ready("host");
        assert_eq!(state(&first, &waiting)["error"]["code"], "NODE_RESTARTED");
        assert_eq!(event_about(&lab, "lease.rejected", "first")["reason"], "daemon-restarted");
        let lease = acquire(&second, "pixel-a", json!({ "leaseId": "ad-7f3a" })).expect(201).body["lease"].take();
        assert_eq!((&lease["id"], &lease["idChosenByRequester"]), (&json!("ad-7f3a"), &json!(true)));
        // Its requester is free too; the id of a lease is not.
        request(&first, for_the_board("active")).refused("LEASE_ID_TAKEN", 409);
        hold(&first, "pixel-b");
    }
}

#[test]
fn after_a_daemon_restart_an_unattended_waiter_has_its_place_but_not_the_id_that_it_had_chosen() {
    let mut lab = host("");
    let [holder, waiter, behind, other] = agents(&lab, ["holder", "waiter", "behind", "other"]);
    let lease = hold(&holder, "board");
    join(&waiter, "board", json!({ "leaseId": "ad-7f3a" })).expect(202);
    joins_at(2, &behind, "board");
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    acquire(&other, "pixel-a", json!({ "leaseId": "ad-7f3a" })).expect(201);
    joins_at(1, &waiter, "board");
    assert_eq!(release(&holder, &lease), "waiter");
}

/// A worker's state file of schema version 1, which knew of no chosen ids.
const VERSION_1: &str = include_str!("../../core/fixtures/version_1.sql");

#[test]
fn a_state_file_without_id_chosen_by_requester_loads_every_lease_as_false() {
    let mut lab = Lab::new(
        r#"
[lab]
name = "test"

[[worker]]
name = "host"
api = "127.0.0.1:<host>"

[[worker.resource]]
id = "pixel-8-a"

[[worker.resource]]
id = "bench-1"
max_shared = 2

[[worker.resource]]
id = "board-1"
"#,
    );
    let dir = lab.state("host");
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).unwrap();
    for parent in [lab.path("berth"), lab.path("berth/test")] {
        fs::set_permissions(parent, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
    let file = rusqlite::Connection::open(dir.join("berth.db")).unwrap();
    file.execute_batch(VERSION_1).unwrap();
    let none = file.prepare("SELECT id_chosen_by_requester FROM lease").is_err();
    assert!(none, "the file is of before that field");
    // Its leases were granted just now, so they are active.
    file.execute_batch(
        "CREATE TEMP TABLE shift AS SELECT CAST(1e6 * unixepoch('subsec') AS INTEGER) - MIN(granted_at) AS by FROM lease;
         UPDATE lease SET granted_at = granted_at + by, renewed_at = renewed_at + by, expires_at = expires_at + by
         FROM shift;",
    )
    .unwrap();
    file.close().unwrap();

    lab.start("host");
    lab.wait_ready("host");
    let door = lab.door("host");
    let leases = door.get("/v1/leases").expect(200).body["leases"].take();
    let by_id = |id: &str| leases.as_array().unwrap().iter().find(|lease| lease["id"] == id).unwrap_or(&Value::Null);
    for id in ["ad-7f3a", "lse_0d7e6c1a-8a3e-4a57-9d0e-6f1f2d9b1c11"] {
        assert_eq!(by_id(id)["idChosenByRequester"], false, "{leases}");
        let asked = by_id(id)["requestId"].as_str().unwrap();
        let first = door.get(&format!("/v1/lease-requests/{asked}")).expect(200).body["request"]["lease"].take();
        assert_eq!((&first["id"], &first["idChosenByRequester"]), (&json!(id), &json!(false)));
        let renewed = door.post_text(&format!("/v1/leases/{id}/renew"), "").expect(200).body["lease"].take();
        assert_eq!(renewed["idChosenByRequester"], false);
    }
    // Its id is in use all the same, and from now on the file tells.
    acquire(&door, "board-1", json!({ "leaseId": "ad-7f3a", "requester": "r" })).refused("LEASE_ID_TAKEN", 409);
    let mine = acquire(&door, "board-1", json!({ "leaseId": "mine", "requester": "r" })).expect(201).body;
    assert_eq!(mine["lease"]["idChosenByRequester"], true);
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    let chosen =
        |id: &str| door.get(&format!("/v1/leases/{id}")).expect(200).body["lease"]["idChosenByRequester"].take();
    assert_eq!((chosen("ad-7f3a"), chosen("mine")), (json!(false), json!(true)));
}
