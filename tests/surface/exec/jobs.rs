//! `berth exec` as a job of an interactive shell.

use std::ffi::OsStr;

use super::pty::Pty;
use super::{beside, exec, lab, leases};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

/// A shell with job control on a terminal, in which `$berth` runs `command` under a lease.
fn shell(lab: &Lab, options: &[&str], command: &[&str]) -> Pty {
    let berth = exec(lab, options, command);
    let mut bash = beside("bash", &berth);
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]);
    let mut pty = Pty::run(bash.env("PS1", "ask> ").env_remove("PROMPT_COMMAND"));
    pty.wait_shown("ask> ");
    let quoted = |text: &OsStr| format!("'{}'", text.to_str().unwrap().replace('\'', r"'\''"));
    let line: Vec<String> = std::iter::once(berth.get_program()).chain(berth.get_args()).map(quoted).collect();
    pty.type_in(&format!("job() {{ {}; }}\n", line.join(" ")));
    pty
}

/// Types, and waits until the shell or the command shows something that comes after it.
#[track_caller]
fn after(pty: &mut Pty, keys: &str, shown: &str) {
    let from = pty.screen().len();
    pty.type_in(keys);
    pty.wait_shown_after(from, shown);
}

const READS: &str = "echo 'u'p; while read line; do echo \"got <$line>\"; done";

#[test]
fn ctrl_z_stops_the_job_and_fg_brings_it_back() {
    let lab = lab();
    let mut pty = shell(&lab, &[], &["sh", "-c", READS]);
    after(&mut pty, "job\n", "up\r\n");
    after(&mut pty, "one\n", "got <one>");
    for _ in 0..3 {
        after(&mut pty, "\x1a", "Stopped");
        after(&mut pty, "echo 'a't the shell\n", "at the shell");
        after(&mut pty, "fg\n", "'exec'");
        after(&mut pty, "two\n", "got <two>");
    }
    assert_eq!(leases(&lab.door("gateway")).len(), 1);
    after(&mut pty, "\x03", "ask> ");
    after(&mut pty, "echo ended $?\n", "ended 130");
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
    pty.type_in("exit\n");
    pty.wait_end();
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_and_goes_on_in_the_foreground() {
    let lab = lab();
    let mut pty = shell(&lab, &[], &["sh", "-c", READS]);
    after(&mut pty, "job &\n", "up\r\n");
    after(&mut pty, "sleep 0.5; jobs\n", "Stopped");
    after(&mut pty, "fg\n", "job");
    after(&mut pty, "one\n", "got <one>");
    after(&mut pty, "\x04", "ask> ");
    after(&mut pty, "echo ended $?\n", "ended 0");
    pty.type_in("exit\n");
    pty.wait_end();
}

#[test]
fn a_job_that_slept_past_its_deadline_does_not_go_on_without_a_lease() {
    let lab = lab();
    let script = "trap 'exit 0' TERM; echo 'u'p; i=0; while :; do sleep 0.05; i=$((i+1)); echo $i > count; done";
    let mut pty = shell(&lab, &["--ttl", "1s", "--lease-id", "mine"], &["sh", "-c", script]);
    after(&mut pty, "job\n", "up\r\n");
    let count = || std::fs::read_to_string(lab.path("count")).ok().filter(|count| !count.is_empty());
    eventually("it counts", BOUND, || count().filter(|count| count != "1\n"));
    after(&mut pty, "\x1a", "Stopped");
    let door = lab.door("gateway");
    eventually("the lease expires", BOUND, || leases(&door).is_empty().then_some(()));
    let before = count();
    after(&mut pty, "fg\n", "error LEASE_LOST: lease mine is lost");
    assert_eq!(count(), before, "it has done nothing more");
    after(&mut pty, "echo ended $?\n", "ended 14");
    pty.type_in("exit\n");
    pty.wait_end();
}
