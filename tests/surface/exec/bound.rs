//! Whom a command is bound to.

use std::process::Command;

use super::{beside, exec, lab, leases, pids, shell, wait_gone, wait_said};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

const RUNS: &str = "echo pid $$; sleep 300 & echo pid $!; echo up; wait";

#[track_caller]
fn wait_no_lease(lab: &Lab) {
    let door = lab.door("gateway");
    eventually("no lease is left", BOUND, || leases(&door).is_empty().then_some(()));
}

#[test]
fn a_killed_parent_takes_the_command_with_all_it_has_started_and_the_lease_with_it() {
    let mut lab = lab();
    let berth = exec(&lab, &[], &["sh", "-c", RUNS]);
    // Not the last command of the shell, which would become it.
    lab.run("parent", shell("\"$@\"; true", &berth));
    let said = wait_said(&lab, "parent", "up\n");
    assert_eq!(leases(&lab.door("gateway")).len(), 1);
    lab.kill_9("parent");
    wait_gone(&pids(&said), BOUND);
    wait_no_lease(&lab);
    wait_said(&lab, "parent", ", which this is bound to, is gone; Lease ");
}

#[test]
fn a_parent_that_was_gone_before_anybody_watched_counts() {
    let mut lab = lab();
    let berth = exec(&lab, &[], &["echo", "run"]);
    // In a session of its own, and by the time that the command is run the shell is gone.
    let mut session = beside("setsid", &berth);
    let orphan = shell("(sleep 0.3; exec \"$@\") & exit 0", &berth);
    session.arg("--wait").arg(orphan.get_program()).args(orphan.get_args());
    lab.run("parent", session);
    let said = wait_said(&lab, "parent", "is gone; nothing was asked for");
    assert!(!said.contains("run\n"), "{said}");
    wait_no_lease(&lab);
}

#[test]
fn another_process_can_be_watched_instead_of_the_parent() {
    let mut lab = lab();
    let mut other = Command::new("sleep").arg("300").spawn().unwrap();
    let berth = exec(&lab, &["--bind-pid", &other.id().to_string()], &["sh", "-c", RUNS]);
    // Its parent goes first, and that means nothing.
    lab.run("parent", shell("\"$@\"; true", &berth));
    let said = wait_said(&lab, "parent", "up\n");
    lab.kill_9("parent");
    lab.berth(&["lease", "list"]).ok();
    assert_eq!(leases(&lab.door("gateway")).len(), 1);
    other.kill().unwrap();
    wait_gone(&pids(&said), BOUND);
    wait_no_lease(&lab);
    let gone = other.id();
    other.wait().unwrap();
    let said = lab.finish(exec(&lab, &["--bind-pid", &gone.to_string()], &["echo", "run"]));
    assert_eq!(
        said.failed(143),
        format!("error INTERRUPTED: process {gone}, which this is bound to, is gone; nothing was asked for\n")
    );
}

#[test]
fn whoever_waits_for_a_lease_when_its_parent_dies_takes_its_request_back() {
    let mut lab = lab();
    lab.berth(&["--requester", "other", "lease", "--resource", "pixel-a", "--lease-id", "theirs"]).ok();
    let berth = exec(&lab, &["--requester", "me"], &["echo", "run"]);
    lab.run("parent", shell("\"$@\"; true", &berth));
    wait_said(&lab, "parent", "position 1");
    lab.kill_9("parent");
    wait_said(&lab, "parent", "is gone; cancelled lease request");
}
