//! What goes through untouched: the environment, the streams, the exit code.

use std::fs::{self, File};
use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use super::{exec, lab, leases, pids, wait_said};

#[test]
fn a_command_finds_its_lease_in_the_environment_and_nothing_else_is_said() {
    let lab = lab();
    let script = "echo $BERTH_RESOURCE $BERTH_LEASE $BERTH_HOLDER $BERTH_FENCE; test $BERTH_FENCE -gt 1";
    let said = lab.finish(exec(&lab, &["--lease-id", "mine"], &["sh", "-c", script]));
    assert_eq!((said.exit, said.err.as_str()), (0, ""), "{said:?}");
    assert!(said.out.starts_with("pixel-a mine admin 1"), "{said:?}");
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
}

#[test]
fn the_exit_code_is_the_commands_own() {
    let lab = lab();
    for (script, exit) in [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        let said = lab.finish(exec(&lab, &[], &["sh", "-c", script]));
        assert_eq!((said.exit, said.out.as_str(), said.err.as_str()), (exit, "", ""), "{script}");
    }
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
}

#[test]
fn a_command_that_cannot_be_started_says_why_and_leaves_no_lease() {
    let lab = lab();
    let said = lab.finish(exec(&lab, &[], &["no-such-program"]));
    assert!(said.err.starts_with("error COMMAND_NOT_FOUND: no-such-program cannot be run: No such file"), "{said:?}");
    said.failed(127);
    let file = lab.file();
    let said = lab.finish(exec(&lab, &["--json"], &[file.to_str().unwrap()]));
    assert!(said.err.starts_with(r#"{"error":{"code":"COMMAND_NOT_EXECUTABLE","message":"#), "{said:?}");
    said.failed(126);
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
}

#[test]
fn ten_megabytes_go_through_byte_for_byte() {
    let lab = lab();
    let bytes: Vec<u8> = (0..10_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(lab.path("sent"), &bytes).unwrap();
    let mut command = exec(&lab, &[], &["cat"]);
    let (sent, got) = (File::open(lab.path("sent")).unwrap(), File::create(lab.path("got")).unwrap());
    // Through a pipe, as from another program.
    let mut source = std::process::Command::new("cat").stdin(sent).stdout(Stdio::piped()).spawn().unwrap();
    command.stdin(source.stdout.take().unwrap()).stdout(got);
    let status = command.status().unwrap();
    source.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(fs::read(lab.path("got")).unwrap() == bytes, "every byte, and no other");
}

#[test]
fn the_lease_is_over_while_what_the_command_left_behind_still_runs() {
    let mut lab = lab();
    let command = exec(&lab, &[], &["sh", "-c", "sleep 300 & echo pid $!; exit 4"]);
    lab.run("exec", command);
    let said = wait_said(&lab, "exec", "pid ");
    assert_eq!(lab.wait_end("exec").code(), Some(4));
    assert_eq!(leases(&lab.door("gateway")), [""; 0]);
    // It runs still, as it would have without a lease.
    kill_process(pids(&said)[0], Signal::KILL).expect("it is there");
}

#[test]
fn an_old_key_runs_nothing_under_a_lease_that_is_over() {
    let lab = lab();
    let run = || lab.finish(exec(&lab, &["--idempotency-key", "once", "--lease-id", "mine"], &["echo", "run"]));
    assert_eq!(run().ok(), "run\n");
    let said = run();
    assert!(said.err.contains("error LEASE_LOST: lease mine is lost: "), "{said:?}");
    said.failed(14);
}
