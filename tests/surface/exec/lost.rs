//! A lease that is lost under its command.

use std::time::{Duration, Instant};

use super::{exec, lab, pids, wait_gone, wait_said};
use crate::patience::BOUND;

#[test]
fn a_lost_lease_ends_the_command_with_sigterm_and_berth_with_14() {
    let mut lab = lab();
    let script = "trap 'echo got TERM; exit 0' TERM; echo pid $$; sleep 300 & echo pid $!; echo up; wait";
    let command = exec(&lab, &["--ttl", "3s", "--lease-id", "mine"], &["sh", "-c", script]);
    lab.run("exec", command);
    let said = wait_said(&lab, "exec", "up\n");
    assert_eq!(lab.door("gateway").delete("/v1/leases/mine").status, 200);
    assert_eq!(lab.wait_end("exec").code(), Some(14));
    wait_gone(&pids(&said), BOUND);
    let said = lab.said("exec");
    assert!(said.contains("got TERM") && said.contains("error LEASE_LOST: lease mine is lost: "), "{said}");
}

#[test]
fn what_ignores_sigterm_is_killed_after_ten_seconds_with_all_it_has_started() {
    let mut lab = lab();
    // The command itself goes at once; what it has started does not.
    let script = "sh -c 'trap \"\" TERM; echo pid $$; echo up; while :; do sleep 1; done' & echo pid $$; wait";
    let command = exec(&lab, &["--ttl", "3s", "--lease-id", "mine"], &["sh", "-c", script]);
    lab.run("exec", command);
    let said = wait_said(&lab, "exec", "up\n");
    lab.door("gateway").delete("/v1/leases/mine");
    wait_said(&lab, "exec", "ending the command");
    let begun = Instant::now();
    assert_eq!(lab.wait_end("exec").code(), Some(14));
    let took = begun.elapsed();
    assert!((Duration::from_secs(9)..Duration::from_secs(15)).contains(&took), "{took:?}");
    wait_gone(&pids(&said), BOUND);
}

#[test]
fn a_lease_whose_deadline_passes_while_its_node_is_dead_is_lost() {
    let mut lab = lab();
    let command = exec(&lab, &["--ttl", "2s"], &["sh", "-c", "echo pid $$; echo up; exec sleep 300"]);
    lab.run("exec", command);
    let said = wait_said(&lab, "exec", "up\n");
    lab.kill_9("all");
    assert_eq!(lab.wait_end("exec").code(), Some(14));
    wait_gone(&pids(&said), BOUND);
    assert!(lab.said("exec").contains("its deadline has passed and no renew was answered"), "{}", lab.said("exec"));
}

#[test]
fn a_node_that_comes_back_in_time_costs_no_lease() {
    let mut lab = lab();
    let script = "echo up; while ! test -e done; do sleep 0.05; done; exit 6";
    let command = exec(&lab, &["--ttl", "6s"], &["sh", "-c", script]);
    lab.run("exec", command);
    wait_said(&lab, "exec", "up\n");
    lab.kill_9("all");
    wait_said(&lab, "exec", "is not renewed yet");
    lab.start_all();
    wait_said(&lab, "exec", "is renewed again");
    std::fs::write(lab.path("done"), "").unwrap();
    assert_eq!(lab.wait_end("exec").code(), Some(6));
}
