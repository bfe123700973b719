//! Hooks and tools as real processes, under the guard of the real program.
#![cfg(target_os = "linux")]

mod commands;
mod deaths;
mod tools;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use berth::driver::Guard;

/// How long anything may take that is expected here.
const BOUND: Duration = Duration::from_secs(20);

fn guard() -> Guard {
    Guard::new(env!("CARGO_BIN_EXE_berth"))
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A script for the tests' own needs; hooks know no shell.
fn script(text: &str) -> Vec<String> {
    argv(&["sh", "-c", text])
}

fn no_environment() -> BTreeMap<String, String> {
    BTreeMap::new()
}

/// The state of a process as the system shows it, such as `R` or `Z`; none when there is no such process.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a script has written its numbers of processes to a file, one to a line, and a last line `ready`.
async fn processes(file: &Path) -> Vec<u32> {
    eventually("the processes have started", || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let text = text.strip_suffix("ready\n")?;
        Some(text.lines().map(|line| line.trim().parse().unwrap()).collect())
    })
    .await
}

async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let seen = async {
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, seen).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

/// A script that starts a child, a grandchild in a session of its own whose parent is gone, and one that ignores what it
/// can; then says who they are and stays.
fn crowd(file: &Path) -> Vec<String> {
    let file = file.display();
    script(&format!(
        "sleep 1000 & echo $! >> {file}
         (setsid sh -c 'echo $$ >> {file}; exec sleep 1000' &)
         (trap '' TERM INT HUP; setsid setsid sh -c 'echo $$ >> {file}; exec sleep 1000' < /dev/null > /dev/null 2>&1 &)
         while [ $(wc -l < {file}) -lt 3 ]; do sleep 0.01; done
         echo $$ >> {file}
         echo ready >> {file}
         wait"
    ))
}

/// Fails unless every one of them is gone, and not only dead.
fn all_gone(processes: &[u32]) {
    let left: Vec<_> = processes.iter().filter_map(|pid| Some((*pid, state(*pid)?))).collect();
    assert!(left.is_empty(), "these are left: {left:?}");
}

/// Set in a process that runs one test alone.
const ALONE: &str = "BERTH_TEST_ALONE";

/// Runs a test once more in a process of its own, where nothing else opens files, starts processes or takes memory. True in
/// there.
fn alone(test: &str, variables: &[(&str, &str)]) -> bool {
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ALONE, "1").envs(variables.iter().copied());
    let said = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && out.contains("1 passed"), "{out}{err}");
    false
}
