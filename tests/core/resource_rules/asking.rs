//! Asking for a lease, once and again, by example.

use std::time::Duration;

use berth::admission::resource::{Change, Command, Decision, Otherwise, Reply};
use berth::admission::{Attendance, Speaker, Waiter};
use berth::clock::Now;
use berth::model::{Code, LeftOut, Mode, WaitPolicy};

use super::device::{Device, ask, rank, ranked, release, sharing, unattended, waiter};
use crate::sample::{at, request, text};

/// Ruth has it, and these wait, unattended, in this order.
fn with_waiters(waiters: &[&str]) -> Device {
    let mut device = Device::new(2);
    device.grant(waiter(100, "ruth", at(0)), at(0));
    for (number, holder) in waiters.iter().enumerate() {
        let joins = at(1 + number as u64);
        device.wait(unattended(waiter(101 + number, holder, joins), joins), joins);
    }
    device
}

fn asks(waiter: Waiter, otherwise: Otherwise, left_out: LeftOut) -> Command {
    Command::Ask { waiter: Box::new(waiter), otherwise, left_out, speaker: Speaker::Requester }
}

fn entry(device: &Device, holder: &str) -> Waiter {
    device.state.queue.unattended_of(&text(holder)).unwrap().clone()
}

/// Kim asks again at this time.
fn kim(number: usize, now: Now) -> Waiter {
    unattended(waiter(number, "kim", now), now)
}

#[test]
fn asking_again_keeps_place_and_joined_at_and_is_a_sign_of_life() {
    let mut device = with_waiters(&["kim", "omar"]);
    let before = entry(&device, "kim");
    let Decision { changes, reply, .. } = device.take(ask(kim(1, at(9))), at(9));
    assert_eq!(reply, Reply::Pending { request: request(101), position: 1 });
    assert_eq!(changes, [Change::Seen { request: request(101), at: at(9).run }], "nothing on disk");
    let after = entry(&device, "kim");
    assert_eq!(after, Waiter { attendance: Attendance::Unattended { last_seen: at(9).run }, ..before });
}

#[test]
fn whoever_does_not_ask_in_time_is_pruned_and_joins_at_the_end() {
    let mut device = with_waiters(&["kim", "omar"]);
    device.take(ask(unattended(waiter(1, "omar", at(300_000)), at(300_000))), at(300_000));
    let reply = device.ask(kim(2, at(300_001)), at(300_001));
    assert_eq!(reply, Reply::Pending { request: request(2), position: 2 });
    assert_eq!(entry(&device, "kim").joined_at, at(300_001).wall);
}

#[test]
fn another_mode_joins_anew() {
    let mut device = with_waiters(&["kim", "omar"]);
    let reply = device.ask(sharing(kim(1, at(9))), at(9));
    assert_eq!(reply, Reply::Pending { request: request(1), position: 2 });
    assert_eq!(entry(&device, "kim").joined_at, at(9).wall);
}

#[test]
fn an_entry_from_before_a_restart_names_its_lease_id_again_and_keeps_its_place() {
    let mut device = Device::new(1);
    device.grant(waiter(90, "holder", at(0)), at(0));
    let before = Waiter { restored: true, ..kim(1, at(1)) };
    device.wait(before, at(1));
    device.wait(unattended(waiter(2, "omar", at(2)), at(2)), at(2));
    let mut mine = kim(3, at(9));
    (mine.proposal.lease, mine.proposal.id_chosen_by_requester) = (text("mine"), true);
    assert_eq!(device.ask(mine, at(9)), Reply::Pending { request: request(3), position: 1 });
    assert_eq!(entry(&device, "kim").proposal.lease, text("mine"));
    let mut other = kim(4, at(10));
    (other.proposal.lease, other.proposal.id_chosen_by_requester) = (text("other"), true);
    assert_eq!(device.ask(other, at(10)), Reply::Pending { request: request(4), position: 2 }, "once");
}

#[test]
fn another_lease_id_joins_anew() {
    let mut device = with_waiters(&["kim", "omar"]);
    let mut mine = kim(1, at(9));
    (mine.proposal.lease, mine.proposal.id_chosen_by_requester) = (text("mine"), true);
    assert_eq!(device.ask(mine.clone(), at(9)), Reply::Pending { request: request(1), position: 2 });
    mine.proposal.request = request(2);
    assert_eq!(device.ask(mine, at(10)), Reply::Pending { request: request(1), position: 2 }, "now it is the same");
    let unnamed = kim(3, at(11));
    assert_eq!(device.ask(unnamed, at(11)), Reply::Pending { request: request(1), position: 2 });
    assert_eq!(entry(&device, "kim").proposal.lease, text("mine"), "what is left out is kept");
}

#[test]
fn a_given_priority_moves_the_place_and_keeps_joined_at() {
    let mut device = with_waiters(&["kim", "omar", "job"]);
    let joined_at = entry(&device, "omar").joined_at;
    let omar = |number, priority| ranked(unattended(waiter(number, "omar", at(9)), at(9)), priority);
    assert_eq!(device.ask(omar(1, 3), at(9)), Reply::Pending { request: request(1), position: 1 });
    assert_eq!(device.ask(omar(2, -1), at(9)), Reply::Pending { request: request(2), position: 3 });
    assert_eq!(device.ask(omar(3, 0), at(9)), Reply::Pending { request: request(3), position: 2 }, "as if never gone");
    assert_eq!(entry(&device, "omar").joined_at, joined_at);
}

#[test]
fn ttl_and_note_of_the_last_ask_count() {
    let mut device = with_waiters(&["kim"]);
    let mut again = kim(1, at(9));
    (again.proposal.ttl, again.proposal.note) = (Duration::from_secs(7), Some(text("bring the cable")));
    assert_eq!(device.ask(again, at(9)), Reply::Pending { request: request(1), position: 1 });
    let left_out = LeftOut { mode: true, ttl: true, priority: true };
    let last = asks(kim(2, at(10)), Otherwise::Join, left_out);
    assert_eq!(device.take(last, at(10)).reply, Reply::Pending { request: request(1), position: 1 });
    let again = device.ask(kim(3, at(11)), at(11));
    assert_eq!(again, Reply::Pending { request: request(3), position: 1 });
    let entry = entry(&device, "kim");
    assert_eq!(entry.proposal.ttl, Duration::from_secs(600), "it named that one last");
    assert_eq!(entry.proposal.note, Some(text("bring the cable")));
}

#[test]
fn what_asking_again_leaves_out_is_as_it_was() {
    let mut device = with_waiters(&["omar"]);
    device.wait(sharing(ranked(kim(1, at(8)), 2)), at(8));
    let left_out = LeftOut { mode: true, ttl: true, priority: true };
    let mut again = kim(2, at(9));
    again.proposal.ttl = Duration::from_secs(1);
    let decision = device.take(asks(again, Otherwise::Join, left_out), at(9));
    assert_eq!(decision.reply, Reply::Pending { request: request(1), position: 1 });
    let proposal = entry(&device, "kim").proposal;
    assert_eq!((proposal.mode, f64::from(proposal.priority)), (Mode::Shared, 2.0));
    assert_eq!(proposal.ttl, Duration::from_secs(600));
}

#[test]
fn the_lease_of_one_who_waited_is_what_its_last_ask_said() {
    let mut device = with_waiters(&["kim", "omar"]);
    let mut again = kim(1, at(9));
    again.proposal.ttl = Duration::from_secs(7);
    device.take(ask(again.clone()), at(9));
    device.take(Command::Leave { holder: text("omar") }, at(10));
    let ruths = device.state.held[0].clone();
    device.take(release(&ruths), at(10));
    again.proposal.request = request(2);
    let held = device.grant(again, at(11));
    assert_eq!((held.lease.ttl, held.lease.request_id), (Duration::from_secs(7), request(2)));
    assert_eq!(device.waiters(), Vec::<String>::new());
}

#[test]
fn an_acquire_that_does_not_join_again_is_refused_but_keeps_the_place_alive() {
    let mut device = with_waiters(&["kim"]);
    let decision = device.take(asks(kim(1, at(9)), Otherwise::Refuse(WaitPolicy::Fail), LeftOut::default()), at(9));
    assert!(matches!(decision.reply, Reply::Refused(refusal) if refusal.code == Code::ResourceUnavailable));
    assert_eq!(entry(&device, "kim").last_seen(), Some(at(9).run));
}

#[test]
fn a_refused_acquire_stores_nothing_and_a_refused_request_leaves_its_events() {
    let device = with_waiters(&[]);
    let fail = asks(waiter(1, "kim", at(9)), Otherwise::Refuse(WaitPolicy::Fail), LeftOut::default());
    assert_eq!(device.decide(fail, at(9)).changes, []);
    let no_wait = asks(waiter(1, "kim", at(9)), Otherwise::Refuse(WaitPolicy::NoWait), LeftOut::default());
    let changes = device.decide(no_wait, at(9)).changes;
    assert!(matches!(
        changes.as_slice(),
        [Change::Requested { place: None, .. }, Change::Rejected { waited: false, .. }]
    ));
}

#[test]
fn leaving_takes_out_the_unattended_entry_only() {
    let mut device = with_waiters(&["kim"]);
    device.wait(waiter(1, "kim", at(9)), at(9));
    let leave = || Command::Leave { holder: text("kim") };
    assert_eq!(device.take(leave(), at(10)).reply, Reply::Left(true));
    assert_eq!(device.take(leave(), at(10)).reply, Reply::Left(false));
    assert_eq!(device.waiters(), ["kim"], "its lease request goes on waiting");
}

#[test]
fn a_refusal_says_when_to_ask_again() {
    let mut device = Device::new(2);
    let with_ttl = |number, ttl_s| {
        let mut it = sharing(waiter(number, "ruth", at(0)));
        it.proposal.ttl = Duration::from_secs(ttl_s);
        it
    };
    device.grant(with_ttl(1, 90), at(0));
    device.grant(with_ttl(2, 30), at(0));
    assert_eq!(refused_until(&device, Mode::Shared), "2026-01-01T00:00:30.000000Z", "one seat is enough");
    assert_eq!(refused_until(&device, Mode::Exclusive), "2026-01-01T00:01:30.000000Z", "all must have gone");
}

/// When a walk-up at 10 s is told to ask again.
fn refused_until(device: &Device, mode: Mode) -> String {
    let mut next = waiter(90, "next", at(10_000));
    next.proposal.mode = mode;
    let asks = asks(next, Otherwise::Refuse(WaitPolicy::Fail), LeftOut::default());
    match device.decide(asks, at(10_000)).reply {
        Reply::Refused(refusal) => refusal.details.unwrap()["availableAt"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_says_when_a_reservation_ends() {
    let mut device = with_waiters(&["kim"]);
    device.rules.admission_grace = Duration::from_secs(10);
    device.take(release(&device.state.held[0].clone()), at(5_000));
    for mode in [Mode::Exclusive, Mode::Shared] {
        assert_eq!(refused_until(&device, mode), "2026-01-01T00:00:15.000000Z");
    }
}

#[test]
fn a_refusal_counts_the_seats_that_are_kept_among_those_that_are_taken() {
    let mut device = Device::new(2);
    device.rules.admission_grace = Duration::from_secs(10);
    let first = device.grant(sharing(waiter(1, "ruth", at(0))), at(0));
    let mut short = sharing(waiter(2, "omar", at(0)));
    short.proposal.ttl = Duration::from_secs(12);
    device.grant(short, at(0));
    device.wait(sharing(kim(3, at(1))), at(1));
    device.take(release(&first), at(5_000));
    assert_eq!(refused_until(&device, Mode::Shared), "2026-01-01T00:00:12.000000Z", "one seat is enough");
    assert_eq!(refused_until(&device, Mode::Exclusive), "2026-01-01T00:00:15.000000Z", "all must have gone");
}

#[test]
fn a_refusal_says_when_others_are_before_and_not_whose_it_is() {
    let mut device = Device::new(1);
    device.rivals.exclusive = Some(rank(0, at(0), 1, 1, None));
    let walk_up = asks(waiter(2, "kim", at(1)), Otherwise::Refuse(WaitPolicy::Fail), LeftOut::default());
    match device.decide(walk_up, at(1)).reply {
        Reply::Refused(refusal) => {
            assert!(refusal.message.starts_with("board is promised to those who wait; "), "{refusal}");
            assert_eq!(refusal.details.unwrap().get("availableAt"), None);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn with_aging_whoever_has_waited_long_enough_passes_a_higher_priority() {
    let mut device = with_waiters(&[]);
    let aging = Some(Duration::from_secs(1));
    device.rules.priority_aging = aging;
    let joins = |number, holder, priority, now| {
        let mut it = unattended(waiter(number, holder, now), now);
        it.rank = rank(priority, now, 1, number, aging);
        it
    };
    device.wait(joins(1, "old", 0, at(1)), at(1));
    device.wait(joins(2, "nine", 9, at(10_000)), at(10_000));
    device.wait(joins(3, "eleven", 11, at(10_000)), at(10_000));
    assert_eq!(device.waiters(), ["eleven", "old", "nine"]);
    device.take(Command::Wake, at(250_000));
    assert_eq!(device.waiters(), ["eleven", "old", "nine"], "two waiters never swap");
}

#[test]
fn a_seat_that_was_just_kept_for_somebody_gets_her_past_nobody_who_waits_in_front() {
    let mut device = Device::new(2);
    device.rules.admission_grace = Duration::from_secs(30);
    let held = device.grant(waiter(90, "holder", at(0)), at(0));
    device.wait(sharing(unattended(waiter(1, "ruth", at(1)), at(1))), at(1));
    device.wait(sharing(unattended(waiter(2, "omar", at(2)), at(2))), at(2));
    device.wait(sharing(waiter(3, "kim", at(3))), at(3));
    device.wait(sharing(waiter(4, "ruth", at(4))), at(4));
    device.take(release(&held), at(5));
    assert_eq!((device.holders(), device.kept_for()), (vec!["kim".to_owned()], vec!["ruth".to_owned()]));
    assert_eq!(device.waiters(), ["omar", "ruth"], "omar fits no more, and nobody gets past him");
}
