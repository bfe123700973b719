//! What a start finds, after windows have opened or closed while the node was down (SPEC §5, §8).

use berth::admission::resource::{Change, ResourceState, apply, settled_at_start};
use berth::clock::Now;
use berth::model::{BookingPolicy, BookingStatus};

use super::bench::*;
use crate::resource_rules::device::{Device, waiter};

/// The node starts again at that time.
fn start(device: &mut Device, now: Now) -> Vec<Change> {
    // As far as a start knows, it is free since then, leased or not.
    device.state = ResourceState { free_since: Some(now.wall), ..device.state.clone() };
    let changes = settled_at_start(&device.state, &device.around(now));
    changes.iter().for_each(|change| apply(&mut device.state, change.clone()));
    changes
}

#[test]
fn a_window_that_opened_meanwhile_has_its_lease_before_anybody_is_served() {
    let mut device = booked(ACQUIRED);
    device.rules.waiter_ttl = minutes(200);
    device.take(wait(1, "kim", minutes(70), min(1)), min(1));
    start(&mut device, min(70));
    assert_eq!((device.holders(), device.state.held[0].deadline), (vec!["ruth".to_owned()], min(120).run));
    assert_eq!((status(&device, 1), device.waiters()), (BookingStatus::Fulfilled, vec!["kim".to_owned()]));
}

#[test]
fn a_window_that_closed_meanwhile_is_missed_where_the_node_should_have_acquired_it() {
    for (policy, expected) in [
        (ACQUIRED, BookingStatus::Missed),
        (LOOSELY_ACQUIRED, BookingStatus::Missed),
        (ENFORCED, BookingStatus::Scheduled),
        (ADVISORY, BookingStatus::Scheduled),
    ] {
        let mut device = booked(policy);
        start(&mut device, min(130));
        assert_eq!((device.holders(), status(&device, 1)), (vec![], expected), "{policy:?}");
    }
}

#[test]
fn a_lease_that_expired_meanwhile_frees_what_is_left_of_its_window() {
    let mut device = booked(ENFORCED);
    device.take(ask(1, "ruth", minutes(10), min(65)), min(65));
    start(&mut device, min(80));
    assert_eq!((device.holders(), the_booking(&device, 1).claims), (vec![], false));
}

#[test]
fn a_lease_of_the_bookers_that_ran_on_becomes_the_bookings() {
    let mut device = booked(ACQUIRED);
    device.take(ask(1, "ruth", minutes(30), min(50)), min(50));
    start(&mut device, min(70));
    assert_eq!((device.holders(), device.state.held[0].deadline), (vec!["ruth".to_owned()], min(120).run));
    assert_eq!(status(&device, 1), BookingStatus::Fulfilled);
}

#[test]
fn by_default_a_start_settles_leases_and_no_bookings() {
    let mut device = booked(BookingPolicy::default());
    device.grant(waiter(1, "kim", min(59)), min(59));
    let changes = start(&mut device, min(300));
    assert!(matches!(changes.as_slice(), [Change::Ended { .. }]), "{changes:?}");
}

#[test]
fn a_no_show_is_counted_from_the_start_or_from_the_end_of_a_lease_that_it_found() {
    let mut device = booked(NO_SHOW);
    start(&mut device, min(70));
    device.take(berth::admission::resource::Command::Edge, min(84));
    assert_eq!(status(&device, 1), BookingStatus::Scheduled);
    device.take(berth::admission::resource::Command::Edge, min(85));
    assert_eq!(status(&device, 1), BookingStatus::Missed);

    let mut device = device_with_an_overrun();
    start(&mut device, min(59));
    device.take(berth::admission::resource::Command::Wake, min(80));
    assert_eq!((device.holders(), status(&device, 1)), (vec![], BookingStatus::Scheduled));
}

/// Kim has it until minute 80, and Ruth has booked it from 60 on.
fn device_with_an_overrun() -> Device {
    let mut device = device(NO_SHOW);
    granted(device.take(ask(1, "kim", minutes(80), min(0)), min(0)));
    book(&mut device, 1, "ruth", 60, 120, min(1));
    device
}
