//! A lab whose certificates were made without a running gateway.

use serde_json::Value;

use super::{FILE, Machine, invite, shown, wait_connection};
use crate::lab::Lab;

fn lab_with_pki() -> Lab {
    let text = "[pki]\nca = \"pki/ca.crt\"\ncert = \"pki/{node}/node.crt\"\nkey = \"pki/{node}/node.key\"\n";
    Lab::new(&format!("{FILE}\n{text}"))
}

#[test]
fn a_lab_runs_with_the_files_of_pki_init_and_issue() {
    let mut lab = lab_with_pki();
    let said = lab.berth(&["pki", "init", "--lab", "test"]).ok();
    assert!(said.contains("the authority of lab test in pki is made"), "{said}");
    for (role, name) in [("gateway", "gateway"), ("worker", "rack-1")] {
        let said = lab.berth(&["pki", "issue", role, name, "--lab", "test"]).ok();
        assert!(said.contains(&format!("pki/{name}/node.crt")) && said.contains("are made"), "{said}");
    }
    lab.start("gateway");
    lab.start("rack-1");
    wait_connection(&lab, "rack-1", "connected");
    lab.berth(&["lease", "acquire", "pixel"]).ok();

    // The gateway has no CA key, so it invites nobody, and says what to do.
    let said = lab.berth(&["worker", "invite", "rack-3"]).failed(2);
    assert!(said.contains("has no CA key") && said.contains("`berth pki issue worker NAME`"), "{said}");
    assert!(shown(&lab, "rack-3").is_none());
    lab.kill_9("gateway");
    lab.set("BERTH_PKI__CA_KEY", "pki/ca.key");
    lab.start("gateway");
    lab.wait_ready("gateway");
    let mut machine = Machine::new();
    machine.join(&invite(&lab, "rack-3"), &[]).ok();
    machine.up("rack-3", "bench");
    wait_connection(&lab, "rack-3", "connected");
}

#[test]
fn files_that_are_there_stay_as_they_are_and_those_of_another_lab_are_refused() {
    let lab = lab_with_pki();
    let said = lab.berth(&["pki", "issue", "worker", "rack-1", "--lab", "test"]).failed(2);
    assert!(said.contains("pki has no authority; make one with `berth pki init --lab test --dir pki`"), "{said}");
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_str(&lab.berth(&[&["--json", "pki"], arguments].concat()).ok()).unwrap()
    };
    let made = json(&["init", "--lab", "test"]);
    assert_eq!((&made["made"], made["fingerprint"].as_str().map(str::len)), (&true.into(), Some(64)));
    let again = json(&["init", "--lab", "test"]);
    assert_eq!((&again["made"], &again["fingerprint"]), (&false.into(), &made["fingerprint"]));
    let issued = json(&["issue", "worker", "rack-1", "--lab", "test"]);
    let certificate = std::fs::read(lab.path(issued["cert"].as_str().unwrap())).unwrap();
    assert_eq!(json(&["issue", "worker", "rack-1", "--lab", "test"])["made"], false);
    assert_eq!(std::fs::read(lab.path(issued["cert"].as_str().unwrap())).unwrap(), certificate);
    for arguments in [&["init", "--lab", "other"][..], &["issue", "worker", "rack-2", "--lab", "other"]] {
        let said = lab.berth(&[&["pki"], arguments].concat()).failed(2);
        assert!(said.contains("ca.crt: is not the CA of lab other"), "{said}");
    }
    let said = lab.berth(&["pki", "issue", "gateway", "rack-1", "--lab", "test"]).failed(2);
    assert!(said.contains("is the certificate of berth://test/worker/rack-1"), "{said}");
    lab.berth(&["pki", "issue", "admin", "x", "--lab", "test"]).failed(2);
}
