//! Machines join the lab, are taken out, and are shown the door.

mod invitations;
mod operators;
mod pki;

use std::fs::{self, File};
use std::path::PathBuf;

use serde_json::Value;

use crate::http::Call;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::said::Said;

/// A gateway that does not wait for its one worker.
const FILE: &str = r#"
[lab]
name = "test"

[gateway]
api = "127.0.0.1:<gateway>"
link = "127.0.0.1:<link>"
rebuild_wait = "1s"
absence_grace = "1s"

[[worker]]
name = "rack-1"
api = "127.0.0.1:<rack-1>"

[[worker.resource]]
id = "pixel"
labels = { platform = "android" }
"#;

/// A lab whose gateway runs.
fn lab() -> Lab {
    let mut lab = Lab::new(FILE);
    lab.start("gateway");
    lab.wait_ready("gateway");
    lab
}

/// The line with which a machine can join as `name`.
#[track_caller]
fn invite(lab: &Lab, name: &str) -> String {
    let said = lab.berth(&["worker", "invite", name]);
    assert!(said.err.contains("it is a secret"), "{said:?}");
    let line = said.ok().trim_end().to_owned();
    assert!(line.starts_with("berth-join:1:test/"), "stdout is the line and nothing else: {line}");
    line
}

/// Another machine: it has nothing of the lab's.
struct Machine {
    own: Lab,
}

impl Machine {
    fn new() -> Self {
        let own = Lab::new("");
        fs::remove_file(own.file()).unwrap();
        Self { own }
    }

    /// `berth join` with the line in a file.
    #[track_caller]
    fn join(&self, line: &str, more: &[&str]) -> Said {
        fs::write(self.own.path("invitation"), format!("{line}\n")).unwrap();
        self.own.berth(&[&["join", "invitation"], more].concat())
    }

    /// `berth join` with the line on its standard input.
    #[track_caller]
    fn join_from_stdin(&self, line: &str) -> Said {
        let path = self.own.path("piped");
        fs::write(&path, format!("{line}\n")).unwrap();
        let mut command = self.own.command();
        command.arg("join");
        self.own.finish_fed(command, File::open(path).unwrap().into())
    }

    /// The directory of its node.
    fn state(&self, name: &str) -> PathBuf {
        self.own.state(name)
    }

    /// Says in its lab file that it has one resource, and starts it.
    fn up(&mut self, name: &str, resource: &str) {
        let mut text = fs::read_to_string(self.own.file()).unwrap();
        if !text.contains(&format!("\nid = {resource:?}")) {
            text.push_str(&format!("\n[[worker.resource]]\nid = {resource:?}\nlabels = {{ platform = \"linux\" }}\n"));
            fs::write(self.own.file(), text).unwrap();
        }
        self.own.start(name);
    }
}

/// What the gateway shows of a worker.
fn shown(lab: &Lab, name: &str) -> Option<Value> {
    let list = lab.socket("gateway").get("/v1/workers").expect(200).body;
    list["workers"].as_array().unwrap().iter().find(|worker| worker["name"] == name).cloned()
}

#[track_caller]
fn wait_connection(lab: &Lab, name: &str, connection: &str) {
    eventually(&format!("{name} is {connection}"), BOUND, || {
        // A gateway that is just starting has no socket yet.
        let call = Call { method: "GET", path: "/v1/healthz", ..Call::default() };
        lab.socket("gateway").try_send(&call).ok()?;
        shown(lab, name).filter(|worker| worker["connection"] == connection && worker["known"] == true)
    });
}

#[test]
fn an_invited_machine_joins_runs_and_its_devices_are_leased_through_the_gateway() {
    let lab = lab();
    let line = invite(&lab, "rack-3");
    assert!(shown(&lab, "rack-3").is_none(), "an invited machine is no worker yet");
    let mut machine = Machine::new();
    let said = machine.join_from_stdin(&line).ok();
    for part in ["this machine is worker rack-3 of lab test", "wrote lab.toml", "up --config lab.toml --node rack-3"] {
        assert!(said.contains(part), "{said}\n  lacks {part}");
    }
    // Everybody on the machine may read the lab file, and nobody else the key.
    assert!(!fs::read_to_string(machine.own.file()).unwrap().contains("bji_"));
    assert!(shown(&lab, "rack-3").is_some_and(|worker| worker["connection"] == "disconnected"));
    machine.up("rack-3", "bench");
    wait_connection(&lab, "rack-3", "connected");
    let said = lab.berth(&["lease", "acquire", "bench", "--lease-id", "mine"]).ok();
    assert!(said.starts_with("leased mine bench"), "{said}");
    // It is on the roster for good.
    let mut lab = lab;
    lab.kill_9("gateway");
    lab.start("gateway");
    wait_connection(&lab, "rack-3", "connected");
    lab.berth(&["lease", "renew", "mine"]).ok();
    let said = lab.berth(&["worker", "invite", "rack-3"]).failed(2);
    assert!(said.starts_with("error BAD_REQUEST: name: worker rack-3 has a key already"), "{said}");
}

#[test]
fn joining_again_is_safe_and_a_lab_file_that_is_there_stays_as_it_is() {
    let lab = lab();
    let line = invite(&lab, "rack-3");
    let machine = Machine::new();
    fs::write(machine.own.file(), "# mine\n").unwrap();
    let said = machine.join(&line, &[]).ok();
    assert!(said.contains("lab.toml is there already and stays as it is"), "{said}");
    assert_eq!(fs::read_to_string(machine.own.file()).unwrap(), "# mine\n");
    let key = fs::read(machine.state("rack-3").join("node.key")).unwrap();
    let said = machine.join(&line, &["--config", "another.toml"]).ok();
    assert!(said.contains("wrote another.toml"), "{said}");
    assert_eq!(fs::read(machine.state("rack-3").join("node.key")).unwrap(), key, "the machine has one key");
    let answer: Value =
        serde_json::from_str(&machine.join(&line, &["--json", "--config", "another.toml"]).ok()).unwrap();
    assert_eq!((&answer["worker"], &answer["configWritten"]), (&"rack-3".into(), &false.into()));
    use std::os::unix::fs::PermissionsExt;
    let mode = |name: &str| fs::metadata(machine.state("rack-3").join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("node.key"), 0o600);
    assert!(!machine.state("rack-3").join("join.key").exists());
}

#[test]
fn a_gateway_that_is_killed_before_it_answers_loses_nothing() {
    let mut lab = lab();
    let line = invite(&lab, "rack-3");
    let mut machine = Machine::new();
    fs::write(machine.own.path("invitation"), &line).unwrap();
    let mut joining = machine.own.command();
    joining.args(["join", "invitation"]);
    machine.own.run("join", joining);
    let roster = lab.state("gateway").join("roster.json");
    eventually("the invitation is spent", BOUND, || {
        fs::read_to_string(&roster).unwrap().contains("spentBy").then_some(())
    });
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    // Whether the answer got there or not, the machine has the same key and is let in with it.
    machine.own.wait_end("join");
    machine.join(&line, &[]).ok();
    // And once more for certain without its answer: the key is there, the certificate is not.
    let state = machine.state("rack-3");
    fs::rename(state.join("node.key"), state.join("join.key")).unwrap();
    fs::remove_file(state.join("node.crt")).unwrap();
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    machine.join(&line, &[]).ok();
    machine.up("rack-3", "bench");
    wait_connection(&lab, "rack-3", "connected");
}
