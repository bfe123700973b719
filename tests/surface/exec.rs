//! `berth exec`: a command that runs for as long as it holds a lease (SPEC §7).

mod bound;
mod crowd;
mod jobs;
mod lost;
mod passes;
mod pty;
mod signals;
mod terminal;

use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};

/// A fleet in one process.
fn lab() -> Lab {
    Lab::joined(FLEET, "gateway")
}

/// `berth exec --resource pixel-a OPTIONS -- COMMAND`.
fn exec(lab: &Lab, options: &[&str], command: &[&str]) -> Command {
    let mut berth = lab.command();
    berth.args(["exec", "--resource", "pixel-a"]).args(options).arg("--").args(command);
    berth
}

/// Another program in the place and with the environment of `berth`.
fn beside(program: &str, berth: &Command) -> Command {
    let mut other = Command::new(program);
    for (name, value) in berth.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other.current_dir(berth.get_current_dir().expect("the lab runs it in a directory of its own"));
    other
}

/// A shell that runs `script`, in which `"$@"` is `berth` with its arguments.
fn shell(script: &str, berth: &Command) -> Command {
    let mut sh = beside("sh", berth);
    sh.args(["-c", script, "sh"]).arg(berth.get_program()).args(berth.get_args());
    sh
}

/// Waits until a process has said this.
#[track_caller]
fn wait_said(lab: &Lab, name: &str, text: &str) -> String {
    eventually(&format!("{name} says {text:?}"), BOUND, || Some(lab.said(name)).filter(|said| said.contains(text)))
}

/// The ids of the leases that there are.
fn leases(door: &Door) -> Vec<String> {
    let leases = door.get("/v1/leases").body["leases"].as_array().cloned().unwrap_or_default();
    leases.iter().map(|lease| lease["id"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The numbers of processes in lines such as `pid 42`.
fn pids(said: &str) -> Vec<Pid> {
    let numbers = said.lines().filter_map(|line| line.trim().strip_prefix("pid ")?.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

/// Waits until processes are gone.
#[track_caller]
pub fn wait_gone(pids: &[Pid], bound: Duration) {
    assert!(!pids.is_empty(), "somebody is waited for");
    eventually(&format!("{pids:?} are gone"), bound, || {
        pids.iter().all(|pid| test_kill_process(*pid).is_err() || is_zombie(*pid)).then_some(())
    });
}

/// An orphan's body lies there until the first process of the machine, or of the container, comes by.
fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}
