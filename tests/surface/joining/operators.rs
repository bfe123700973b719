//! What operators do with workers that are there.

use serde_json::json;

use super::{Machine, invite, lab, shown, wait_connection};
use crate::http::Door;
use crate::patience::{BOUND, eventually};

#[test]
fn a_revoked_worker_s_link_ends_at_once_and_its_certificate_is_refused_ever_after() {
    let mut lab = lab();
    let mut machine = Machine::new();
    machine.join(&invite(&lab, "rack-3"), &[]).ok();
    machine.up("rack-3", "bench");
    wait_connection(&lab, "rack-3", "connected");
    lab.berth(&["lease", "acquire", "bench", "--lease-id", "mine"]).ok();
    let said = lab.berth(&["worker", "remove", "rack-3"]).failed(2);
    assert!(said.starts_with("error WORKER_CONNECTED: worker rack-3 is connected; stop it first"), "{said}");
    let said = lab.berth(&["worker", "remove", "rack-3", "--revoke"]).ok();
    assert!(said.starts_with("Worker rack-3 removed; its key is never accepted again"), "{said}");
    assert!(shown(&lab, "rack-3").is_none());
    let said = lab.berth(&["lease", "renew", "mine"]).failed(12);
    assert!(said.starts_with("error UNKNOWN_LEASE: "), "nothing is routed to it: {said}");
    // Both sides say why.
    for (place, part) in [(&machine.own, "the key of worker rack-3 is revoked"), (&lab, "revoked-key")] {
        let name = if part == "revoked-key" { "gateway" } else { "rack-3" };
        eventually(&format!("{name} says {part}"), BOUND, || place.said(name).contains(part).then_some(()));
    }
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    assert!(shown(&lab, "rack-3").is_none(), "also after a restart");
    machine.own.kill_9("rack-3");

    // The machine may come back under its name with another key.
    let line = invite(&lab, "rack-3");
    // As after an answer that was lost: the key of that try is still there, and is tried again.
    let node = machine.state("rack-3");
    std::fs::copy(node.join("node.key"), node.join("join.key")).unwrap();
    let said = machine.join(&line, &[]).failed(2);
    assert!(said.contains("the key of this machine is revoked; run `berth join --new-key`"), "{said}");
    machine.join(&line, &["--new-key"]).ok();
    machine.up("rack-3", "bench");
    wait_connection(&lab, "rack-3", "connected");
}

#[test]
fn a_worker_that_is_gone_is_removed_and_one_that_the_lab_file_names_comes_back_with_the_next_start() {
    let mut lab = lab();
    lab.start("rack-1");
    wait_connection(&lab, "rack-1", "connected");
    lab.terminate("rack-1");
    eventually("it is away", BOUND, || shown(&lab, "rack-1").filter(|it| it["connection"] == "disconnected"));
    let said = lab.berth(&["worker", "remove", "rack-1"]).ok();
    assert!(said.contains("the lab file still names it, so it is back at the next start"), "{said}");
    let said = lab.berth(&["worker", "remove", "rack-1"]).failed(12);
    assert!(said.starts_with("error UNKNOWN_WORKER: no worker rack-1 is on the roster"), "{said}");
    lab.start("rack-1");
    let told = "worker rack-1 is not on the gateway's roster";
    eventually("it is told", BOUND, || lab.said("rack-1").contains(told).then_some(()));
    assert!(shown(&lab, "rack-1").is_none());
    lab.kill_9("gateway");
    lab.start("gateway");
    wait_connection(&lab, "rack-1", "connected");
}

#[test]
fn a_drained_worker_gets_nothing_new_by_selector_also_over_a_restart() {
    let mut lab = lab();
    lab.start("rack-1");
    wait_connection(&lab, "rack-1", "connected");
    assert_eq!(lab.berth(&["worker", "drain", "rack-1"]).ok(), "drained rack-1\n");
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    wait_connection(&lab, "rack-1", "connected");
    assert_eq!(shown(&lab, "rack-1").unwrap()["drained"], true);
    assert!(lab.berth(&["worker", "list"]).ok().contains("connected, drained"));
    let said = lab.berth(&["lease", "--platform", "android", "--no-wait"]).failed(11);
    assert!(said.starts_with("error NO_CAPACITY: "), "{said}");
    assert_eq!(lab.berth(&["worker", "undrain", "rack-1"]).ok(), "rack-1 is back\n");
    lab.berth(&["lease", "--platform", "android"]).ok();
    let said = lab.berth(&["worker", "drain", "rack-9"]).failed(12);
    assert!(said.starts_with("error UNKNOWN_WORKER: "), "{said}");
}

#[test]
fn only_an_admin_of_the_gateway_s_keeps_the_roster() {
    let mut lab = lab();
    lab.start("rack-1");
    wait_connection(&lab, "rack-1", "connected");
    let made = lab.door("gateway").post("/v1/tokens", &json!({"name": "ci", "role": "agent"})).expect(201);
    let agent = Door::tcp(lab.port("gateway")).with_token(made.body["secret"].as_str().unwrap());
    let routes = [
        ("POST", "/v1/workers/rack-1/drain"),
        ("DELETE", "/v1/workers/rack-1/drain"),
        ("DELETE", "/v1/workers/rack-1?revoke=true"),
        ("POST", "/v1/workers/rack-9/invitation"),
    ];
    for (method, path) in routes {
        let call = crate::http::Call { method, path, ..Default::default() };
        agent.send(&call).refused("INSUFFICIENT_PERMISSIONS", 403);
        lab.door("rack-1").send(&call).refused("UNSUPPORTED_ON_WORKER", 501);
    }
    let admin = lab.door("gateway");
    for (method, path) in [
        ("POST", "/v1/workers/rack-9/drain"),
        ("DELETE", "/v1/workers/rack-9/drain"),
        ("DELETE", "/v1/workers/rack-9"),
        ("DELETE", "/v1/workers/rack-9?revoke=true"),
    ] {
        admin.send(&crate::http::Call { method, path, ..Default::default() }).refused("UNKNOWN_WORKER", 404);
    }
    let connected = crate::http::Call { method: "DELETE", path: "/v1/workers/rack-1", ..Default::default() };
    admin.send(&connected).refused("WORKER_CONNECTED", 409);
    let made = admin.post("/v1/workers/rack-9/invitation", &json!({})).expect(201).body;
    assert!(made["invitation"].as_str().unwrap().starts_with("berth-join:1:test/rack-9,gateway,"), "{made}");
    assert!(made["expiresAt"].as_str().unwrap().ends_with('Z'), "{made}");
    admin.post("/v1/workers/Rack_9/invitation", &json!({})).expect(400);
}
