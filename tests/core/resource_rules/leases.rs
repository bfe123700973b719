//! The life of a lease, by example.

use std::time::Duration;

use berth::admission::resource::{Change, Command, EndReason, Held, Reply};
use berth::clock::{Now, RunTime};
use berth::model::{Authority, Caller, Code, Fence, Role};
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::device::{Crash, Device, ask, unattended, waiter};
use crate::sample::{at, run, text, wall};

fn client(name: &str, role: Role) -> Authority {
    Authority::Client(Caller { principal: text(name), role })
}

fn renew(fence: Option<Fence>, ttl_s: Option<u64>) -> Command {
    let authority = client("ruth", Role::Agent);
    let ttl = ttl_s.map(Duration::from_secs);
    Command::Renew { lease: text("lse_1"), fence, ttl, allow_shorter: false, authority }
}

fn release(fence: Option<Fence>, authority: Authority) -> Command {
    Command::Release { lease: text("lse_1"), fence, authority }
}

/// Ruth has it for ten minutes.
fn held_by(holder: &str) -> (Device, Held) {
    let mut device = Device::new(1);
    let held = device.grant(waiter(1, holder, at(0)), at(0));
    (device, held)
}

fn renewed(device: &mut Device, command: Command, now: Now) -> Held {
    match device.take(command, now).reply {
        Reply::Renewed(held, _) => held,
        other => panic!("{other:?}"),
    }
}

fn refused(device: &mut Device, command: Command, now: Now) -> Code {
    match device.take(command, now).reply {
        Reply::Refused(refusal) => refusal.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_renew_moves_the_deadline_by_the_leases_own_width() {
    let (mut device, held) = held_by("ruth");
    assert_eq!(held.deadline, run(600_000));
    let held = renewed(&mut device, renew(None, None), at(1_000));
    assert_eq!((held.deadline, held.lease.ttl), (run(601_000), Duration::from_secs(600)));
    assert_eq!((held.lease.granted_at, held.lease.renewed_at), (wall(0), wall(1_000)));
}

#[test]
fn a_renew_by_a_new_width_makes_it_the_leases_own_even_when_it_is_shorter() {
    let (mut device, _) = held_by("ruth");
    assert_eq!(renewed(&mut device, renew(None, Some(5)), at(1_000)).deadline, run(6_000));
    assert_eq!(renewed(&mut device, renew(None, None), at(2_000)).deadline, run(7_000));
}

#[test]
fn no_renewal_reaches_past_max_total() {
    let mut device = Device::new(1);
    device.max_total = Some(Duration::from_secs(900));
    let held = device.grant(waiter(1, "ruth", at(0)), at(0));
    assert_eq!(held.deadline, run(600_000));
    assert_eq!(renewed(&mut device, renew(None, None), at(200_000)).deadline, run(800_000));
    let last = renewed(&mut device, renew(None, Some(3600)), at(500_000));
    assert_eq!((last.deadline, last.lease.ttl), (run(900_000), Duration::from_secs(3600)));
    assert_eq!(refused(&mut device, renew(None, None), at(900_000)), Code::UnknownLease);
}

#[test]
fn max_total_cuts_the_first_width_too() {
    let mut device = Device::new(1);
    device.max_total = Some(Duration::from_secs(60));
    let held = device.grant(waiter(1, "ruth", at(0)), at(0));
    assert_eq!((held.deadline, held.last_end), (run(60_000), Some(run(60_000))));
}

#[test]
fn a_later_grant_is_not_touched_by_the_fence_of_a_former_one() {
    let (mut device, former) = held_by("ruth");
    device.take(release(None, client("ruth", Role::Agent)), at(1));
    let held = device.grant(waiter(1, "ruth", at(2)), at(2));
    assert_eq!(refused(&mut device, renew(Some(former.lease.fence), None), at(3)), Code::UnknownLease);
    let late = release(Some(former.lease.fence), client("ruth", Role::Agent));
    assert_eq!(refused(&mut device, late, at(3)), Code::UnknownLease);
    renewed(&mut device, renew(Some(held.lease.fence), None), at(3));
}

#[test]
fn a_fence_grows_though_the_wall_clock_is_set_back() {
    let mut device = Device::new(1);
    let first = device.grant(waiter(1, "ruth", at(5_000)), at(5_000));
    assert_eq!(first.lease.fence, Fence(wall(5_000).as_millisecond() as u64));
    device.take(release(None, Authority::Client(Caller::admin())), at(6_000));
    let back = Now { wall: wall(0), run: run(7_000) };
    let second = device.grant(waiter(2, "kim", back), back);
    assert_eq!(second.lease.fence, Fence(first.lease.fence.0 + 1));
}

fn reason(holder: &str, authority: Authority) -> EndReason {
    let (device, _) = held_by(holder);
    match device.decide(release(None, authority), at(1)).changes.as_slice() {
        [Change::Ended { reason, .. }] => *reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_release_by_its_owner_is_explicit_and_by_an_admin_is_told_apart() {
    assert_eq!(reason("ruth/job-1", client("ruth", Role::Agent)), EndReason::Explicit);
    assert_eq!(reason("ruth", client("ruth", Role::Admin)), EndReason::Explicit, "an admin's own lease");
    assert_eq!(reason("ruth", Authority::Client(Caller::admin())), EndReason::Admin);
    let gateway = |admin| Authority::Gateway { name: text("gateway"), admin };
    assert_eq!(reason("gw:gateway:ruth", gateway(false)), EndReason::Explicit);
}

#[test]
fn a_machines_operator_who_ends_a_lease_of_the_gateways_operator_is_not_its_owner() {
    assert_eq!(reason("gw:gateway:admin", Authority::Client(Caller::admin())), EndReason::Admin);
}

#[test]
fn a_foreign_lease_is_neither_renewed_nor_released() {
    let (mut device, _) = held_by("kim");
    assert_eq!(refused(&mut device, renew(None, None), at(1)), Code::InsufficientPermissions);
    let gateway = Authority::Gateway { name: text("gateway"), admin: true };
    for authority in [client("ruth", Role::Agent), client("kim", Role::Viewer), gateway] {
        assert_eq!(refused(&mut device, release(None, authority), at(1)), Code::InsufficientPermissions);
    }
}

#[test]
fn when_the_wall_clock_is_set_the_disk_is_told_the_deadlines_and_nothing_else_changes() {
    let (device, held) = held_by("ruth");
    let now = Now { wall: wall(3_600_000), run: run(60_000) };
    let changes = device.decide(Command::Rewrite, now).changes;
    let (deadline, expires_at) = (held.deadline, wall(3_600_000 + 540_000));
    assert_eq!(changes, [Change::Renewed { lease: held.lease, deadline, expires_at, told: false }]);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_lease_lives_until_its_deadline_and_not_an_instant_longer(
        ttl_ns in 1u64..1_000_000_000_000,
        start_ns in 0u64..1_000_000_000_000,
    ) {
        let at = |ns: u64| Now { wall: wall(0), run: RunTime(Duration::from_nanos(ns)) };
        let mut device = Device::new(1);
        let mut first = waiter(1, "ruth", at(start_ns));
        first.proposal.ttl = Duration::from_nanos(ttl_ns);
        device.grant(first, at(start_ns));
        let next = |now| ask(unattended(waiter(2, "kim", now), now));
        let deadline = start_ns + ttl_ns;

        let before = at(deadline - 1);
        prop_assert!(matches!(device.decide(renew(None, None), before).reply, Reply::Renewed(_, _)));
        let waits = matches!(device.decide(next(before), before).reply, Reply::Pending { .. });
        prop_assert!(waits);
        prop_assert!(device.decide(Command::Wake, before).changes.is_empty());

        let then = at(deadline);
        let late = device.decide(renew(None, None), then);
        prop_assert!(matches!(late.reply, Reply::Refused(refusal) if refusal.code == Code::UnknownLease));
        prop_assert_eq!(late.changes.len(), 1, "the end is written, whatever was asked");
        prop_assert!(matches!(device.decide(next(then), then).reply, Reply::Granted(_)));
        prop_assert_eq!(device.decide(Command::Wake, then).changes.len(), 1);
    }
}

#[test]
fn after_a_restart_a_lease_has_what_the_disk_says_is_left_but_never_more_than_its_width() {
    let (mut device, _) = held_by("ruth");
    device.carry_out(vec![], at(200_000), Crash::BeforeApply);
    assert_eq!(device.state.held[0].deadline, run(600_000));
    let set_back = Now { wall: wall(0).checked_sub(Duration::from_secs(3600)).unwrap(), run: run(200_000) };
    device.carry_out(vec![], set_back, Crash::BeforeApply);
    assert_eq!(device.state.held[0].deadline, run(800_000));
    let years_later = Now { wall: wall(365 * 24 * 3_600_000), run: run(200_000) };
    device.carry_out(vec![], years_later, Crash::BeforeApply);
    assert!(device.state.held[0].deadline < run(200_000), "it was long ago");
    assert_eq!(device.take(Command::Wake, years_later).changes.len(), 1, "it is over, and that is told");
}
