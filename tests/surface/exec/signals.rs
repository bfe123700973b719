//! Signals that `berth exec` is sent.

use rustix::process::Signal;

use super::{exec, lab, leases, pids, shell, wait_gone, wait_said};
use crate::patience::{BOUND, eventually};

/// Says which signals it gets.
const TELLS: &str = "for s in HUP INT QUIT TERM USR1 USR2 WINCH; do trap \"echo got $s\" $s; done; echo pid $$; echo up; \
                     while :; do sleep 0.05; done";

#[test]
fn signals_are_passed_on_and_a_second_sigterm_orphans_nobody() {
    let mut lab = lab();
    let command = exec(&lab, &[], &["sh", "-c", TELLS]);
    lab.run("exec", command);
    let said = wait_said(&lab, "exec", "up\n");
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::TERM, "TERM"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::TERM, "TERM"),
    ] {
        let heard = || lab.said("exec").matches(&format!("got {name}\n")).count();
        let before = heard();
        lab.signal("exec", signal);
        eventually(&format!("{name} reaches the command"), BOUND, || (heard() > before).then_some(()));
    }
    assert_eq!(leases(&lab.door("gateway")).len(), 1);
    let command = pids(&said);
    rustix::process::kill_process(command[0], Signal::KILL).unwrap();
    assert_eq!(lab.wait_end("exec").code(), Some(137));
    wait_gone(&command, BOUND);
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
}

#[test]
fn a_signal_that_ends_the_command_ends_it_as_a_shell_reports() {
    for (signal, exit) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
        let mut lab = lab();
        let command = exec(&lab, &[], &["sh", "-c", "echo up; exec sleep 300"]);
        lab.run("exec", command);
        wait_said(&lab, "exec", "up\n");
        lab.signal("exec", signal);
        assert_eq!(lab.wait_end("exec").code(), Some(exit));
        assert_eq!(leases(&lab.door("gateway")), [""; 0]);
    }
}

#[test]
fn a_signal_that_it_was_started_to_ignore_stays_ignored() {
    let mut lab = lab();
    let berth = exec(&lab, &[], &["sh", "-c", "kill -HUP $$; kill -HUP $PPID; sleep 0.3; echo alive"]);
    let script = shell("trap '' HUP; exec \"$@\"", &berth);
    lab.run("exec", script);
    assert_eq!(lab.wait_end("exec").code(), Some(0));
    assert!(lab.said("exec").contains("alive\n"), "{}", lab.said("exec"));
}

#[test]
fn whoever_is_told_to_end_while_it_waits_takes_its_request_back() {
    for (signal, exit) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let mut lab = lab();
        lab.berth(&["--requester", "other", "lease", "--resource", "pixel-a", "--lease-id", "theirs"]).ok();
        let command = exec(&lab, &["--requester", "me"], &["echo", "run"]);
        lab.run("exec", command);
        wait_said(&lab, "exec", "position 1");
        lab.signal("exec", signal);
        assert_eq!(lab.wait_end("exec").code(), Some(exit));
        let said = lab.said("exec");
        assert!(said.contains("cancelled lease request") && !said.contains("run\n"), "{said}");
        lab.berth(&["--requester", "other", "lease", "release", "theirs"]).ok();
        assert_eq!(leases(&lab.door("gateway")), [""; 0]);
    }
}

#[test]
fn it_waits_for_its_turn_and_then_runs() {
    let mut lab = lab();
    lab.berth(&["--requester", "other", "lease", "--resource", "pixel-a", "--lease-id", "theirs"]).ok();
    let command = exec(&lab, &["--requester", "me", "--lease-id", "mine"], &["echo", "run"]);
    lab.run("exec", command);
    wait_said(&lab, "exec", "position 1");
    lab.berth(&["--requester", "other", "lease", "release", "theirs"]).ok();
    assert_eq!(lab.wait_end("exec").code(), Some(0));
    let said = lab.said("exec");
    assert!(said.contains("leased mine pixel-a until") && said.starts_with("run\n"), "{said}");
    lab.berth(&["lease", "--resource", "pixel-a"]).ok();
    let said = lab.finish(exec(&lab, &["--requester", "me", "--no-wait"], &["echo", "run"]));
    assert!(said.err.starts_with("error NO_CAPACITY"), "{said:?}");
    said.failed(11);
}
