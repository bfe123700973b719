//! A lab as one person runs it: `berth up`, and the command line beside it.

mod operate;
mod standalone;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::ports::{free_port, is_free};

#[test]
fn the_built_in_lab_runs_as_it_is_and_a_lease_is_taken_and_given_back() {
    let mut lab = Lab::new("");
    let (api, link) = (free_port(), free_port());
    lab.set("BERTH_GATEWAY__API", &format!("127.0.0.1:{api}"));
    lab.set("BERTH_GATEWAY__LINK", &format!("127.0.0.1:{link}"));
    let mut up = lab.command();
    up.arg("up");
    lab.run("all", up);
    assert_eq!(lab.berth(&["wait", "--ready"]).ok(), "ready\n", "it finds the node by itself");
    eventually("the greeting is whole", BOUND, || lab.said("all").contains("ready. Next").then_some(()));
    let said = lab.said("all");
    for part in ["lab demo", "gateway  gateway", &format!("http://127.0.0.1:{api}"), "worker   rack-1", "admin.token"] {
        assert!(said.contains(part), "{said}\n  lacks {part}");
    }
    // The greeting says what to try next; that works as it is written.
    let next = said.lines().find(|line| line.ends_with(" lease --platform android")).expect("what to try");
    let mut words = next.split_whitespace();
    let mut command = lab.command();
    assert_eq!(Path::new(words.next().unwrap()).file_name(), Some("berth".as_ref()));
    command.args(words);
    let leased = lab.finish(command).ok();
    let words: Vec<&str> = leased.split_whitespace().collect();
    let ["leased", lease, _, "until", _] = words[..] else { panic!("{leased}") };
    assert!(lease.starts_with("rack-1.lse_"), "{leased}");
    assert_eq!(lab.berth(&["lease", "release", lease]).ok(), format!("Lease {lease} released\n"));
    let resources: Value = serde_json::from_str(&lab.berth(&["--json", "resource", "list"]).ok()).unwrap();
    assert!(resources["resources"].as_array().is_some_and(|list| list.len() >= 12), "{resources}");
}

#[test]
fn secrets_and_sockets_are_their_owner_s_alone() {
    let lab = Lab::joined(FLEET, "gateway");
    let mode =
        |path: &Path| std::fs::metadata(path).unwrap_or_else(|_| panic!("{path:?}")).permissions().mode() & 0o777;
    let state = lab.path("berth/test");
    assert_eq!((mode(&state), mode(&state.join("ca.key"))), (0o700, 0o600));
    for node in ["gateway", "rack-1", "rack-2"] {
        let dir = lab.state(node);
        assert_eq!(mode(&dir), 0o700, "{node}");
        for file in ["admin.token", "node.key", "berth.sock"] {
            assert_eq!(mode(&dir.join(file)), 0o600, "{node}/{file}");
        }
    }
    let secret = std::fs::read_to_string(lab.state("gateway").join("admin.token")).unwrap();
    assert!(secret.starts_with("bth_"));
    assert!(!lab.said("all").contains(secret.trim()), "the file is named, what is in it is not said");
}

#[test]
fn an_orderly_stop_ends_with_0_and_leases_are_there_at_the_next_start() {
    let mut lab = Lab::joined(FLEET, "gateway");
    for signal in [Signal::TERM, Signal::INT] {
        let door = lab.door("gateway");
        let ask = json!({ "leaseId": "mine", "note": "night run" });
        let lease = door.post("/v1/resources/pixel-a/leases", &ask).expect(201).body["lease"].take();
        lab.signal("all", signal);
        let status = lab.wait_end("all");
        assert_eq!(status.code(), Some(0), "{signal:?}");
        for port in ["gateway", "link", "rack-1", "rack-2"] {
            assert!(is_free(lab.port(port)), "{port} still listens");
        }
        for node in ["gateway", "rack-1", "rack-2"] {
            assert!(!lab.state(node).join("berth.sock").exists(), "{node}");
        }
        let said = lab.berth(&["status"]).failed(1);
        assert!(said.contains("no node runs on this machine; start one with `berth up`"), "{said}");

        lab.start_all();
        lab.wait_ready("gateway");
        let shown = door.get("/v1/leases/mine").expect(200).body["lease"].take();
        for key in ["id", "fence", "resourceId", "holderId", "note", "ttlMs", "grantedAt", "requestId"] {
            assert_eq!(shown[key], lease[key], "{key}");
        }
        lab.berth(&["lease", "renew", "mine"]).ok();
        lab.berth(&["lease", "release", "mine"]).ok();
    }
}

#[test]
fn wait_is_over_when_the_node_is_ready_and_gives_up_after_its_time() {
    let mut lab = Lab::new(FLEET);
    let said = lab.berth(&["wait", "--ready", "--timeout", "1s"]).failed(1);
    assert!(said.contains("not ready within 1s: no node runs on this machine"), "{said}");
    // The gateway alone admits nothing until its workers have reported.
    lab.start("gateway");
    lab.wait_listening("gateway");
    let said = lab.berth(&["wait", "--ready", "--timeout", "1s"]).failed(1);
    assert!(said.contains("waiting for the report of rack-1, rack-2"), "{said}");
    lab.start("rack-1");
    lab.start("rack-2");
    lab.berth(&["wait", "--ready"]).ok();
    lab.berth(&["lease", "--platform", "android"]).ok();
}

#[test]
fn a_node_goes_on_when_nobody_reads_what_it_says() {
    let mut lab = Lab::new(FLEET);
    let mut up = lab.command();
    // As in `berth up | head -1`: the reader has gone before the node has said anything.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    up.arg("up").arg("--config").arg(lab.file());
    lab.run_into("all", up, writer.into());
    lab.wait_ready("gateway");
    lab.berth(&["lease", "--platform", "android"]).ok();
    assert!(lab.terminate("all").success());
}
