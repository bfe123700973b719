//! `berth exec` as the only thing on a terminal.

use std::fs::File;

use super::pty::Pty;
use super::{exec, lab, leases, pids, shell, wait_gone};
use crate::patience::{BOUND, eventually};

const CTRL_C: &str = "\x03";
const CTRL_BACKSLASH: &str = "\x1c";
const CTRL_Z: &str = "\x1a";

#[test]
fn ctrl_c_and_ctrl_backslash_reach_the_command_and_the_lease_is_given_back() {
    let lab = lab();
    let script =
        "trap 'echo caught QUIT' QUIT; trap 'echo caught INT; exit 5' INT; echo up; while :; do sleep 0.05; done";
    let mut pty = Pty::run(&exec(&lab, &[], &["sh", "-c", script]));
    pty.wait_shown("up");
    pty.type_in(CTRL_BACKSLASH);
    pty.wait_shown("caught QUIT");
    pty.type_in(CTRL_C);
    assert_eq!(pty.wait_end().code(), Some(5));
    pty.wait_shown("caught INT");
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);

    let mut pty = Pty::run(&exec(&lab, &[], &["sh", "-c", "echo up; exec sleep 300"]));
    pty.wait_shown("up");
    pty.type_in(CTRL_C);
    assert_eq!(pty.wait_end().code(), Some(130));
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
}

#[test]
fn a_command_reads_what_is_typed() {
    let lab = lab();
    let mut pty = Pty::run(&exec(&lab, &[], &["sh", "-c", "read first; read second; echo got $second $first"]));
    pty.type_in("early\n");
    pty.type_in("late\n");
    pty.wait_shown("got late early");
    assert_eq!(pty.wait_end().code(), Some(0));
}

#[test]
fn one_whose_output_goes_elsewhere_gets_the_terminal_when_it_reads() {
    let lab = lab();
    let out = File::create(lab.path("out")).unwrap();
    let mut pty =
        Pty::run_into(&exec(&lab, &[], &["sh", "-c", "read line; echo got $line; exec sleep 300"]), Some(out));
    pty.type_in("something\n");
    eventually("it is read", BOUND, || {
        (std::fs::read_to_string(lab.path("out")).unwrap() == "got something\n").then_some(())
    });
    pty.type_in(CTRL_C);
    assert_eq!(pty.wait_end().code(), Some(130));
    // And one that never reads gets Ctrl-C by way of berth.
    let out = File::create(lab.path("out")).unwrap();
    let mut pty = Pty::run_into(&exec(&lab, &[], &["sh", "-c", "echo up; exec sleep 300"]), Some(out));
    eventually("it runs", BOUND, || (std::fs::read_to_string(lab.path("out")).unwrap() == "up\n").then_some(()));
    pty.type_in(CTRL_C);
    assert_eq!(pty.wait_end().code(), Some(130));
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
}

#[test]
fn ctrl_z_does_nothing_where_nobody_could_bring_the_command_back() {
    let lab = lab();
    let mut pty = Pty::run(&exec(&lab, &[], &["sh", "-c", "echo up; read line; echo got $line"]));
    pty.wait_shown("up");
    pty.type_in(CTRL_Z);
    pty.type_in("something\n");
    pty.wait_shown("got something");
    assert_eq!(pty.wait_end().code(), Some(0));
}

#[test]
fn the_script_around_it_has_the_terminal_again_afterwards() {
    let lab = lab();
    let berth = exec(&lab, &[], &["sh", "-c", "read line; echo inner $line"]);
    let script = shell("\"$@\"; read line; echo outer $line", &berth);
    let mut pty = Pty::run(&script);
    pty.type_in("one\n");
    pty.wait_shown("inner one");
    pty.type_in("two\n");
    pty.wait_shown("outer two");
    assert_eq!(pty.wait_end().code(), Some(0));
}

#[test]
fn a_terminal_that_is_closed_ends_the_command_and_the_lease() {
    let lab = lab();
    let pty = Pty::run(&exec(&lab, &[], &["sh", "-c", "echo pid $$; echo up; exec sleep 300"]));
    pty.wait_shown("up");
    let command = pids(&pty.screen());
    let mut session = pty.hang_up();
    wait_gone(&command, BOUND);
    assert_eq!(session.wait_end().code(), Some(129));
    let door = lab.door("gateway");
    eventually("no lease is left", BOUND, || leases(&door).is_empty().then_some(()));
}

#[test]
fn ctrl_c_takes_back_a_request_that_waits() {
    let lab = lab();
    lab.berth(&["--requester", "other", "lease", "--resource", "pixel-a"]).ok();
    let mut pty = Pty::run(&exec(&lab, &["--requester", "me"], &["echo", "run"]));
    pty.wait_shown("position 1");
    pty.type_in(CTRL_C);
    assert_eq!(pty.wait_end().code(), Some(130));
    pty.wait_shown("cancelled lease request");
}
