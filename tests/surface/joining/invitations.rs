//! Invitations that do not get a machine in, each with its own answer.

use std::fs;

use super::{Machine, invite, lab};

/// The line with another secret of the same shape.
fn wrong(line: &str) -> String {
    let (rest, secret) = line.rsplit_once("bji_").unwrap();
    let turned: String = secret.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    format!("{rest}bji_{turned}")
}

#[track_caller]
fn refused(machine: &Machine, line: &str, why: &str) {
    let said = machine.join(line, &[]).failed(2);
    assert!(said.starts_with("error BAD_REQUEST: ") && said.contains(why), "{said}\n  lacks {why}");
    assert!(!said.contains("bji_"), "{said}");
    assert!(!machine.own.file().exists(), "nothing is set up");
}

#[test]
fn an_invitation_that_two_machines_have_read_is_the_first_one_s_alone() {
    let lab = lab();
    let line = invite(&lab, "rack-3");
    let (first, second) = (Machine::new(), Machine::new());
    first.join(&line, &[]).ok();
    refused(&second, &line, "the invitation for rack-3 was used by another machine");
    refused(&second, &line, "`berth worker remove rack-3 --revoke`");
    first.join(&line, &["--config", "again.toml"]).ok();
    assert!(!lab.said("gateway").contains(line.rsplit_once("bji_").unwrap().1), "the log has no secret");
    let roster = fs::read_to_string(lab.state("gateway").join("roster.json")).unwrap();
    assert!(!roster.contains("bji_") && roster.contains("spentBy"), "{roster}");
}

#[test]
fn five_wrong_secrets_end_an_invitation_also_over_a_restart() {
    let mut lab = lab();
    let line = invite(&lab, "rack-3");
    let machine = Machine::new();
    for _ in 0..3 {
        refused(&machine, &wrong(&line), "this is not the secret of the invitation for rack-3");
    }
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    for _ in 0..2 {
        refused(&machine, &wrong(&line), "this is not the secret of the invitation for rack-3");
    }
    refused(&machine, &line, "the invitation for rack-3 has ended, after 5 wrong secrets");
    let said = lab.said("gateway");
    assert!(said.contains("a peer was not let in") && said.contains("wrong-secret"), "{said}");
    machine.join(&invite(&lab, "rack-3"), &[]).ok();
}

#[test]
fn a_foreign_invitation_and_one_that_nobody_made_have_their_own_answers() {
    let (lab, other) = (lab(), super::lab());
    let (line, machine) = (invite(&lab, "rack-3"), Machine::new());
    let address = |of: &crate::lab::Lab| format!("127.0.0.1:{}", of.port("link"));
    let elsewhere = line.replace(&address(&lab), &address(&other));
    refused(&machine, &elsewhere, "is not the gateway of this invitation: who answers there is not of the lab");
    refused(&machine, &line.replace(",gateway,", ",another,"), "berth://test/gateway/another was expected");
    refused(&machine, &line.replace("test/rack-3", "test/rack-4"), "this gateway has no invitation for rack-4");
    refused(&machine, &line[..line.len() - 1], "the invitation is damaged");
    refused(&machine, "hello", "this is no invitation");
    refused(&machine, &line.replace(":1:", ":9:"), "of another version of Berth");
    let said = machine.own.berth(&["join", "no-such-file"]).failed(2);
    assert!(said.contains("no-such-file cannot be read"), "{said}");
    let said = lab.berth(&["worker", "invite", "gateway"]).failed(2);
    assert!(said.contains("gateway is the gateway"), "{said}");
    machine.join(&line, &[]).ok();
}

#[test]
fn a_gateway_that_is_not_there_is_said_so_and_nothing_is_lost() {
    let mut lab = lab();
    let line = invite(&lab, "rack-3");
    lab.kill_9("gateway");
    let machine = Machine::new();
    let said = machine.join(&line, &[]).failed(1);
    assert!(said.contains("has not answered") && said.contains("join again with the same invitation"), "{said}");
    lab.start("gateway");
    lab.wait_ready("gateway");
    machine.join(&line, &[]).ok();
}
