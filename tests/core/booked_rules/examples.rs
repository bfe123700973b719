//! By example, what bookings and holds mean for leases: the sentences of SPEC §5 and §6, and those of the seed.

use std::time::Duration;

use berth::admission::calendar::{BookingMove, CalendarChange, CalendarCommand, Miss};
use berth::admission::resource::{Change, Command, Reply};
use berth::model::{Asker, Authority, BookingStatus, Code, Role, Slot, SlotLength, TokenHash, WaitingFor};

use super::bench::*;
use super::fresh;
use crate::calendar_rules::diary::{admin, agent, booking, hold};
use crate::resource_rules::device::{Device, admitted, ranked, release, unattended, waiter};
use crate::sample::text;

#[test]
fn seed_000_a_booking_does_not_acquire_at_its_start_and_nothing_sets_fulfilled() {
    let mut device = booked(ADVISORY);
    assert_eq!(device.state.next_edge(&device.spec, &device.node, min(0).wall), None);
    for minute in [60, 61, 119, 120, 121] {
        assert_eq!(device.take(Command::Edge, min(minute)).changes, []);
    }
    device.take(ask(1, "ruth", minutes(5), min(122)), min(122));
    assert_eq!((device.holders(), status(&device, 1)), (vec!["ruth".to_owned()], BookingStatus::Scheduled));
}

#[test]
fn seed_000_the_booker_calls_acquire_when_the_window_opens_and_the_booking_stays_scheduled() {
    let mut device = booked(ADVISORY);
    granted(device.take(ask(1, "ruth", minutes(60), min(60)), min(60)));
    assert_eq!(status(&device, 1), BookingStatus::Scheduled);
}

#[test]
fn seed_000_a_walk_up_can_lease_the_resource_across_a_booked_window() {
    let mut device = booked(ADVISORY);
    let held = granted(device.take(ask(1, "kim", minutes(200), min(10)), min(10)));
    granted(device.take(renew(&held, minutes(240), false), min(70)));
    assert_eq!(status(&device, 1), BookingStatus::Scheduled);
}

#[test]
fn seed_000_a_second_booking_that_crosses_a_scheduled_one_names_it_and_only_holder_or_admin_cancel() {
    let mut device = booked(ADVISORY);
    let slot = Slot { starts_at: min(90).wall, length: SlotLength::Lasting(minutes(60)) };
    let windows = vec![(booking(2), slot)];
    let crossing = CalendarCommand::Book { holder: text("kim"), windows, series: None, note: None };
    let Reply::Refused(refusal) = device.take(Command::Calendar(crossing), min(1)).reply else { panic!("booked") };
    assert_eq!(
        (refusal.code, &refusal.details.unwrap()["bookingId"]),
        (Code::BookingConflict, &booking(1).as_str().into())
    );
    let cancel = |asker| CalendarCommand::Cancel { booking: booking(1), following: false, asker };
    let Reply::Refused(refusal) = device.take(Command::Calendar(cancel(agent("kim"))), min(1)).reply else {
        panic!("cancelled");
    };
    assert_eq!(refusal.code, Code::InsufficientPermissions);
    device.take(Command::Calendar(cancel(Asker { role: Role::Admin, ..agent("kim") })), min(1));
    assert_eq!(status(&device, 1), BookingStatus::Cancelled);
}

#[test]
fn enforced_in_the_window_only_the_booker_or_an_admin_gets_a_lease() {
    let now = min(61);
    let mut device = booked(ENFORCED);
    let (refusal, ms) = stopped(device.take(ask(1, "kim", minutes(1), now), now));
    assert_eq!((ms, &refusal.details.unwrap()["availableAt"]), (0, &"2026-01-01T02:00:00.000000Z".into()));
    stopped(device.take(shorter(ask(2, "kim", minutes(1), now)), now));
    stopped(device.take(ask(3, "ruth/job-1", minutes(1), now), now));
    granted(booked(ENFORCED).take(by_admin(ask(4, "admin", minutes(200), now)), now));
    granted(device.take(ask(5, "ruth", minutes(1), now), now));
}

#[test]
fn enforced_before_the_window_a_lease_ends_by_the_start() {
    let now = min(50);
    let mut device = booked(ENFORCED);
    let (refusal, ms) = stopped(device.take(ask(1, "kim", minutes(10) + Duration::from_millis(1), now), now));
    assert_eq!(ms, 600_000);
    assert!(!serde_json::to_string(&refusal).unwrap().contains("ruth"));
    granted(device.take(ask(2, "kim", minutes(10), now), now));
    let mut device = booked(ENFORCED);
    granted(device.take(by_admin(ask(3, "admin", minutes(11), now)), now));
}

#[test]
fn enforced_a_gateways_admin_renews_across_the_window_and_its_agents_do_not() {
    let mut device = booked(ENFORCED);
    let held = granted(device.take(by_admin(ask(1, "gw:gateway:kim", minutes(90), min(0))), min(0)));
    let renewed = |admin| {
        let authority = Authority::Gateway { name: "gateway".parse().unwrap(), admin };
        let (lease, ttl) = (held.lease.id.clone(), Some(minutes(90)));
        Command::Renew { lease, fence: None, ttl, allow_shorter: false, authority }
    };
    stopped(device.take(renewed(false), min(30)));
    assert_eq!(granted(device.take(renewed(true), min(30))).deadline, min(120).run);
}

#[test]
fn enforced_a_caller_who_allows_it_gets_a_lease_cut_to_the_start_and_saying_so() {
    let now = min(50);
    let mut device = booked(ENFORCED);
    let held = granted(device.take(shorter(ask(1, "kim", minutes(60), now)), now));
    assert_eq!((held.lease.ttl, held.lease.asked_ttl, held.deadline), (minutes(10), Some(minutes(60)), min(60).run));
    let mut device = booked(ENFORCED);
    let held = granted(device.take(shorter(ask(1, "kim", minutes(10), now)), now));
    assert_eq!((held.lease.ttl, held.lease.asked_ttl), (minutes(10), None), "nothing was cut");
    let ms = Duration::from_millis;
    let late = |before: u64| crate::sample::at(3_600_000 - before);
    granted(booked(ENFORCED).take(shorter(ask(1, "kim", ms(5_000), late(1_000))), late(1_000)));
    let (refusal, left) = stopped(booked(ENFORCED).take(shorter(ask(1, "kim", ms(5_000), late(999))), late(999)));
    assert_eq!(left, 999, "{refusal:?}");
}

#[test]
fn enforced_a_renew_ends_by_the_start_is_refused_or_cut() {
    let mut device = booked(ENFORCED);
    let held = granted(device.take(ask(1, "kim", minutes(20), min(30)), min(30)));
    let (_, ms) = stopped(device.take(renew(&held, minutes(20), false), min(45)));
    assert_eq!(ms, 15 * 60_000);
    let cut = granted(device.take(renew(&held, minutes(20), true), min(45)));
    assert_eq!((cut.deadline, cut.lease.ttl, cut.lease.asked_ttl), (min(60).run, minutes(15), Some(minutes(20))));
    let whole = granted(device.take(renew(&held, minutes(2), false), min(46)));
    assert_eq!((whole.deadline, whole.lease.asked_ttl), (min(48).run, None));
}

#[test]
fn enforced_a_lease_that_runs_into_a_window_when_it_is_booked_stays_but_is_not_renewed_past_the_start() {
    let mut device = device(ENFORCED);
    let held = granted(device.take(ask(1, "kim", minutes(90), min(0)), min(0)));
    book(&mut device, 1, "ruth", 60, 120, min(1));
    stopped(device.take(renew(&held, minutes(90), false), min(10)));
    let kept = granted(device.take(renew(&held, minutes(90), true), min(10)));
    assert_eq!(kept.deadline, min(90).run, "it is not shortened");
    device.take(Command::Edge, min(60));
    assert_eq!(device.holders(), ["kim"]);
    let (_, ms) = stopped(device.take(renew(&held, minutes(1), true), min(70)));
    assert_eq!((ms, status(&device, 1)), (0, BookingStatus::Scheduled));
    device.take(Command::Wake, min(90));
    assert_eq!(device.holders(), Vec::<String>::new());
    granted(device.take(ask(2, "ruth", minutes(30), min(90)), min(90)));
}

#[test]
fn enforced_a_request_that_does_not_fit_waits_and_blocks_nobody_behind_it() {
    let mut device = booked(ENFORCED);
    assert_eq!(device.take(wait(1, "kim", minutes(90), min(30)), min(30)).reply, Reply::Waiting);
    let proposal = device.state.queue.iter().next().unwrap().proposal.clone();
    let until = device.state.waiting_for(&device.spec, &device.node, &proposal, min(30));
    assert_eq!(until, (WaitingFor::Booked, Some(min(120).run)));
    granted(device.take(ask(2, "omar", minutes(20), min(30)), min(30)));
    assert_eq!(device.waiters(), ["kim"]);
    device.take(Command::Wake, min(50));
    assert_eq!(device.take(Command::Edge, min(119)).changes, []);
    device.take(Command::Edge, min(120));
    assert_eq!((device.holders(), device.waiters()), (vec!["kim".to_owned()], vec![]));
}

#[test]
fn enforced_an_unattended_waiter_is_admitted_at_the_end_of_the_window() {
    let mut device = booked(ENFORCED);
    device.rules.waiter_ttl = minutes(200);
    device.wait(unattended(waiter(1, "kim", min(55)), min(55)), min(55));
    assert_eq!(admitted(&device.take(Command::Edge, min(60)).changes), Vec::<String>::new());
    assert_eq!(admitted(&device.take(Command::Edge, min(120)).changes), ["kim"]);
}

#[test]
fn enforced_what_is_kept_for_another_is_not_kept_in_the_window() {
    let mut device = device(ENFORCED);
    device.rules.admission_grace = minutes(30);
    let held = device.grant(waiter(1, "omar", min(40)), min(40));
    let mut kim = unattended(waiter(2, "kim", min(41)), min(41));
    kim.proposal.ttl = minutes(1);
    device.wait(kim, min(41));
    book(&mut device, 1, "ruth", 60, 120, min(42));
    device.take(release(&held), min(45));
    assert_eq!(device.kept_for(), ["kim"]);
    assert_eq!(device.decide(ask(3, "ruth", minutes(5), min(59)), min(59)).command_from, 0);
    granted(device.take(ask(3, "ruth", minutes(5), min(60)), min(60)));
    assert_eq!((device.kept_for(), status(&device, 1)), (vec![], BookingStatus::Fulfilled));
}

#[test]
fn enforced_an_active_hold_stops_walk_ups_like_a_booking_of_its_holder() {
    let mut device = device(ENFORCED);
    let slot = Slot { starts_at: min(5).wall, length: SlotLength::Lasting(minutes(60)) };
    let (id, holder, token) = (hold(1), text("ruth"), TokenHash::of("secret"));
    let command = CalendarCommand::Hold { id, holder, slot, ttl: Some(minutes(10)), key: None, token };
    device.take(Command::Calendar(command), min(0));
    let (_, ms) = stopped(device.take(ask(1, "kim", minutes(6), min(0)), min(0)));
    assert_eq!(ms, 5 * 60_000);
    stopped(device.take(ask(2, "kim", minutes(1), min(6)), min(6)));
    assert_eq!(device.take(wait(3, "kim", minutes(1), min(6)), min(6)).reply, Reply::Waiting);
    assert_eq!(device.state.wake_at(&device.spec, &device.rules, &device.node, min(0)), Some(min(10).run));
    device.take(Command::Wake, min(10));
    assert_eq!(device.holders(), ["kim"], "an expired hold stops nobody");
}

#[test]
fn acquiring_by_hand_inside_ones_own_window_fulfils_it_and_its_end_frees_the_rest() {
    for policy in [ENFORCED, NO_SHOW] {
        let mut device = booked(policy);
        let decision = device.take(ask(1, "ruth", minutes(10), min(65)), min(65));
        assert_eq!(
            events(&device, &decision.changes, min(65)),
            ["lease.requested", "lease.granted", "booking.fulfilled"]
        );
        let held = granted(decision);
        let it = the_booking(&device, 1);
        assert_eq!(
            (it.status, &it.lease_id, it.claims),
            (BookingStatus::Fulfilled, &Some(held.lease.id.clone()), true)
        );
        let freed = device.take(release(&held), min(70)).changes;
        assert!(freed.iter().any(|it| is(it, BookingMove::Freed)), "{freed:?}");
        assert_eq!((status(&device, 1), the_booking(&device, 1).claims), (BookingStatus::Fulfilled, false));
        granted(device.take(ask(2, "kim", minutes(100), min(71)), min(71)));
    }
}

fn is(change: &Change, wanted: BookingMove) -> bool {
    matches!(change, Change::Calendar(CalendarChange::Booking { what, .. }) if *what == wanted)
}

#[test]
fn auto_acquire_grants_until_the_end_whatever_the_longest_lease_is() {
    for policy in [ACQUIRED, LOOSELY_ACQUIRED] {
        let mut device = booked(policy);
        device.max_total = Some(minutes(30));
        assert_eq!(device.state.next_edge(&device.spec, &device.node, min(0).wall), Some(min(60).wall));
        assert_eq!(device.take(Command::Edge, crate::sample::at(3_599_999)).changes, []);
        let decision = device.take(Command::Edge, min(60));
        assert_eq!(events(&device, &decision.changes, min(60)), ["lease.granted", "booking.fulfilled"]);
        let held = device.state.held[0].clone();
        assert_eq!((held.deadline, held.lease.ttl), (min(120).run, minutes(60)));
        assert_eq!(the_booking(&device, 1).lease_id, Some(held.lease.id.clone()));
        device.take(Command::Wake, min(119));
        assert_eq!(device.holders(), ["ruth"]);
        device.take(Command::Wake, min(120));
        assert_eq!((device.holders(), the_booking(&device, 1).claims), (vec![], false));
    }
}

#[test]
fn a_lease_that_the_booker_has_there_becomes_the_bookings_and_lasts_at_least_until_the_end() {
    for (ttl, deadline) in [(20, 120), (90, 140)] {
        let mut device = booked(ACQUIRED);
        device.max_total = Some(minutes(100));
        let held = granted(device.take(ask(1, "ruth", minutes(ttl), min(50)), min(50)));
        let decision = device.take(Command::Edge, min(60));
        assert_eq!(the_booking(&device, 1).lease_id, Some(held.lease.id.clone()), "{decision:?}");
        assert_eq!((device.holders().len(), device.state.held[0].deadline), (1, min(deadline).run));
    }
}

#[test]
fn while_another_overruns_the_booker_stands_before_every_priority() {
    for policy in [ACQUIRED, LOOSELY_ACQUIRED] {
        let mut device = device(policy);
        let overrun = granted(device.take(ask(1, "kim", minutes(200), min(0)), min(0)));
        book(&mut device, 1, "ruth", 60, 120, min(1));
        device.rules.waiter_ttl = minutes(200);
        device.wait(ranked(waiter(2, "omar", min(2)), 9), min(2));
        device.wait(ranked(unattended(waiter(3, "pat", min(2)), min(2)), 10), min(2));
        device.take(Command::Edge, min(60));
        assert_eq!((device.holders(), status(&device, 1)), (vec!["kim".to_owned()], BookingStatus::Scheduled));
        let decision = device.take(release(&overrun), min(90));
        assert_eq!(decision.reply, Reply::Released(overrun.lease, Some(text("ruth"))));
        assert_eq!((device.holders(), device.waiters().len()), (vec!["ruth".to_owned()], 2));
        assert_eq!((device.state.held[0].deadline, status(&device, 1)), (min(120).run, BookingStatus::Fulfilled));
    }
}

#[test]
fn a_booker_who_found_no_room_leaves_at_the_end_missed() {
    let mut device = device(ACQUIRED);
    let overrun = granted(device.take(ask(1, "kim", minutes(200), min(0)), min(0)));
    book(&mut device, 1, "ruth", 60, 120, min(1));
    device.wait(waiter(2, "omar", min(2)), min(2));
    device.take(Command::Edge, min(60));
    assert_eq!(device.state.next_edge(&device.spec, &device.node, min(60).wall), Some(min(120).wall));
    let at_the_end = device.take(Command::Edge, min(120));
    assert!(at_the_end.changes.iter().any(|it| is(it, BookingMove::Missed(Miss::Overrun))), "{at_the_end:?}");
    assert_eq!(status(&device, 1), BookingStatus::Missed);
    device.take(release(&overrun), min(121));
    assert_eq!(device.holders(), ["omar"]);
}

#[test]
fn a_drained_resource_is_acquired_when_it_comes_back_within_the_window() {
    let mut device = booked(ACQUIRED);
    device.take(Command::Drain(true), min(30));
    device.take(Command::Edge, min(60));
    assert_eq!(device.holders(), Vec::<String>::new());
    device.take(Command::Drain(false), min(70));
    assert_eq!((device.holders(), device.state.held[0].deadline), (vec!["ruth".to_owned()], min(120).run));
}

#[test]
fn a_booking_made_in_its_own_window_is_acquired_and_answered_as_fulfilled() {
    let mut device = device(ACQUIRED);
    book(&mut device, 1, "ruth", 60, 120, min(60));
    assert_eq!((device.holders(), status(&device, 1)), (vec!["ruth".to_owned()], BookingStatus::Fulfilled));
    let mut device = super::bench::device(ACQUIRED);
    let slot = Slot { starts_at: min(5).wall, length: SlotLength::Lasting(minutes(60)) };
    let (id, holder, token) = (hold(1), text("ruth"), TokenHash::of("secret"));
    device.take(Command::Calendar(CalendarCommand::Hold { id, holder, slot, ttl: None, key: None, token }), min(0));
    let confirm = CalendarCommand::Confirm { hold: hold(1), token, booking: booking(1), full: false, note: None };
    let reply = device.take(Command::Calendar(confirm), min(6)).reply;
    let Reply::Calendar(berth::admission::calendar::CalendarReply::Booking(made)) = reply else { panic!("{reply:?}") };
    assert_eq!((made.status, made.lease_id.is_some()), (BookingStatus::Fulfilled, true));
}

#[test]
fn back_to_back_bookings_are_acquired_one_after_the_other() {
    let mut device = booked(ACQUIRED);
    book(&mut device, 2, "kim", 120, 180, min(0));
    device.take(Command::Edge, min(60));
    device.fresh = fresh(2);
    device.take(Command::Wake, min(120));
    assert_eq!((device.holders(), device.state.held[0].deadline), (vec!["kim".to_owned()], min(180).run));
    assert_eq!((status(&device, 1), status(&device, 2)), (BookingStatus::Fulfilled, BookingStatus::Fulfilled));
}

#[test]
fn a_no_show_is_missed_exactly_when_unclaimed_that_long_and_those_who_wait_are_served() {
    let mut device = booked(NO_SHOW);
    device.rules.waiter_ttl = minutes(200);
    device.take(wait(1, "kim", minutes(90), min(30)), min(30));
    device.take(Command::Edge, min(60));
    assert_eq!(device.state.next_edge(&device.spec, &device.node, min(60).wall), Some(min(75).wall));
    assert_eq!(device.take(Command::Edge, crate::sample::at(75 * 60_000 - 1)).changes, []);
    let decision = device.take(Command::Edge, min(75));
    assert!(decision.changes.iter().any(|it| is(it, BookingMove::Missed(Miss::NoShow))), "{decision:?}");
    assert_eq!((device.holders(), status(&device, 1)), (vec!["kim".to_owned()], BookingStatus::Missed));
}

#[test]
fn time_in_which_the_resource_was_not_free_for_it_makes_no_no_show() {
    let mut device = device(NO_SHOW);
    let overrun = granted(device.take(ask(1, "kim", minutes(80), min(0)), min(0)));
    book(&mut device, 1, "ruth", 60, 120, min(1));
    device.take(Command::Edge, min(79));
    assert_eq!(status(&device, 1), BookingStatus::Scheduled);
    device.take(Command::Wake, min(80));
    assert_eq!(device.take(Command::Edge, min(94)).changes, []);
    assert_eq!(overrun.deadline, min(80).run);
    device.take(Command::Drain(true), min(94));
    device.take(Command::Drain(false), min(96));
    device.take(Command::Edge, min(110));
    assert_eq!(status(&device, 1), BookingStatus::Scheduled);
    device.take(Command::Edge, min(111));
    assert_eq!(status(&device, 1), BookingStatus::Missed);
}

#[test]
fn a_booking_made_late_in_its_window_has_its_time_from_then_on() {
    let mut device = device(NO_SHOW);
    let slot = Slot { starts_at: min(5).wall, length: SlotLength::Lasting(minutes(60)) };
    let (id, holder, token) = (hold(1), text("ruth"), TokenHash::of("secret"));
    let ttl = Some(minutes(30));
    device.take(Command::Calendar(CalendarCommand::Hold { id, holder, slot, ttl, key: None, token }), min(0));
    let confirm = CalendarCommand::Confirm { hold: hold(1), token, booking: booking(1), full: false, note: None };
    device.take(Command::Calendar(confirm), min(25));
    device.take(Command::Edge, min(39));
    assert_eq!(status(&device, 1), BookingStatus::Scheduled);
    device.take(Command::Edge, min(40));
    assert_eq!(status(&device, 1), BookingStatus::Missed);
}

#[test]
fn cancelling_serves_those_whom_the_window_stopped() {
    let mut device = booked(ENFORCED);
    device.take(wait(1, "kim", minutes(90), min(30)), min(30));
    let cancel = CalendarCommand::Cancel { booking: booking(1), following: false, asker: admin() };
    device.take(Command::Calendar(cancel), min(31));
    assert_eq!(device.holders(), ["kim"]);
}

#[test]
fn one_of_the_pool_that_a_window_stops_is_declined() {
    let now = min(50);
    let offer = |ttl| {
        let mut waiter = waiter(1, "kim", now);
        waiter.proposal.ttl = ttl;
        Command::Offer { waiter: Box::new(waiter), stored: true }
    };
    let device: Device = booked(ENFORCED);
    assert_eq!(device.decide(offer(minutes(11)), now).reply, Reply::Declined);
    assert!(matches!(device.decide(offer(minutes(10)), now).reply, Reply::Granted(_)));
}
