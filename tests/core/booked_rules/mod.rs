//! One resource with its bookings: who gets a lease beside them, and what becomes of each.

mod bench;
mod examples;
mod invariants;
mod starting;
mod steps;

use std::time::Duration;

use berth::admission::resource::{Change, Departure, Fresh, ResourceState, apply, settled_at_start};
use berth::clock::Now;
use berth::model::Requester;
use proptest::prelude::*;
use proptest::test_runner::Config;

use self::invariants::{Happened, bookings_are_settled};
use self::steps::{policies, steps};
use crate::resource_rules::device::{Crash, Device};
use crate::sample;

/// Names for what the node grants by itself in this step.
fn fresh(number: usize) -> Fresh {
    Fresh { request: sample::request(50_000 + number), lease: sample::text(&format!("lse_auto_{number}")) }
}

/// A start at this instant would settle the bookings as well, and serve nobody who waits but who has booked.
fn assert_settled_at_start(device: &Device, now: Now) {
    let around = device.around(now);
    let mut state = device.state.clone();
    let booked = state.calendar.claim_at(now.wall).map(|claim| claim.holder.clone());
    let is_bookers = |holder: &Requester| booked.as_ref() == Some(holder);
    for change in settled_at_start(&state, &around) {
        let by_itself = match &change {
            Change::Granted { lease, .. } => lease.id == device.fresh.lease || is_bookers(&lease.holder),
            Change::Left { waiter, why, .. } => *why == Departure::Granted && is_bookers(&waiter.proposal.holder),
            Change::Reserved(_) => false,
            _ => true,
        };
        assert!(by_itself, "{change:?}");
        apply(&mut state, change);
    }
    bookings_are_settled(&state, &around);
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn bookings_and_leases_go_together_as_the_policy_says(
        policy in policies(),
        max_shared in 1u32..=2,
        grace_s in prop_oneof![Just(0u64), Just(7)],
        max_total in prop::option::of(Just(Duration::from_secs(11))),
        steps in steps(),
    ) {
        let mut device = Device::new(max_shared);
        device.spec.bookings = policy;
        device.rules.admission_grace = Duration::from_secs(grace_s);
        device.rules.waiter_ttl = Duration::from_secs(40);
        device.max_total = max_total;
        let mut now = sample::at(1_000_000);
        let mut free_since = Some(now.wall);
        device.state.free_since = free_since;
        let mut copy: ResourceState = device.state.clone();
        for (number, step) in steps.iter().enumerate() {
            let edge = device.state.next_edge(&device.spec, &device.node, now.wall).filter(|_| step.to_edge);
            let after = edge.map_or(step.after, |at| Duration::try_from(at.duration_since(now.wall)).unwrap());
            let set = jiff::SignedDuration::from_secs(step.wall_set_s);
            let wall = now.wall.checked_add(after).unwrap().checked_add(set).unwrap();
            now = Now { wall, run: now.run + after };
            device.fresh = fresh(number);
            assert_settled_at_start(&device, now);

            let command = step.asked.command(number, &device, now);
            let before = device.state.clone();
            let decision = device.decide(command.clone(), now);
            assert_eq!(device.decide(command.clone(), now), decision, "it is decided the same way each time");
            device.carry_out(decision.changes.clone(), now, Crash::Never);
            let around = device.around(now);
            let happened = Happened::new(&before, &around, &command, &decision, free_since);
            happened.check();
            free_since = happened.free_since().pop().unwrap_or(free_since);
            decision.changes.iter().for_each(|change| apply(&mut copy, change.clone()));
            assert_eq!(copy, device.state);
        }
    }
}
