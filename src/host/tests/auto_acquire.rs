//! `bookings.auto_acquire`: the holder of a booking has its lease from the start of the window to its end.

use std::time::Duration;

use super::super::message::{Asked, DeskMessage};
use super::calls::{AUTO_ACQUIRE, ENFORCED, MINUTE, booked, minute, slot};
use super::lab::{End, HOUR, Lab, acquires, holder, joins, ranked, reply, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, BookingPolicy, BookingStatus, Code, EventKind, LeaseRecord, ResourceSpec, Role};

const TARGETS: [&str; 2] = ["a", "os=1"];
const MILLISECOND: Duration = Duration::from_millis(1);

async fn lab() -> Lab {
    Lab::new(&resources(), rules()).await
}

/// Nobody gives up meanwhile.
fn rules() -> Rules {
    let mut rules = Rules::default();
    rules.waiting.waiter_ttl = 4 * HOUR;
    rules
}

fn resources() -> [ResourceSpec; 2] {
    [booked("a", "os=1", AUTO_ACQUIRE), resource("b", "os=2", 1)]
}

async fn only_lease(lab: &Lab) -> LeaseRecord {
    let leases = lab.leases_on("a").await;
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases[0].clone()
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_booking_is_there_from_its_start_to_its_end() {
    let lab = lab().await;
    let booking = lab.book("ci/job", "a", slot(10, 20)).await.unwrap();
    lab.pass(10 * MINUTE - MILLISECOND).await;
    assert_eq!(lab.leases_on("a").await, []);
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.pass(4 * MILLISECOND).await;
    let lease = only_lease(&lab).await;
    assert_eq!(holder(&lease), "ci/job");
    let fulfilled = lab.booking(&booking.id).await;
    assert_eq!((fulfilled.status, fulfilled.lease_id.as_ref()), (BookingStatus::Fulfilled, Some(&lease.id)));

    // It is a lease like any other, and so is its request.
    let caller = crate::model::Caller { principal: "ci".parse().unwrap(), role: Role::Agent };
    let read = reply(lab.send(|reply| DeskMessage::Lease(lease.id.clone(), caller, reply))).await.unwrap();
    assert_eq!(read.lease, lease);
    assert!(read.expires_at <= minute(20) && read.expires_at > minute(20).checked_sub(MINUTE).unwrap());
    assert_eq!(lab.state(&lease.request_id).await, Some(End::Lease(Box::new(lease.clone()))));
    assert_eq!(lab.ask(acquires("ci/job", "b")).await, Err(Code::RequesterAlreadyLeased));
    assert_eq!(lab.ask(acquires("other", "a")).await, Err(Code::ResourceUnavailable));
    assert_eq!(lab.renew(&lease).await, Ok(lease.fence));

    lab.release(&lease).await.unwrap();
    assert!(!lab.booking(&booking.id).await.claims, "the rest of its window is free");
    let next = lab.lease(acquires("ci/job", "b")).await;
    lab.release(&next).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_booking_ends_with_its_window_and_then_everything_is_free() {
    let lab = lab().await;
    lab.book("ci", "a", slot(10, 20)).await.unwrap();
    let held = lab.lease(acquires("early", "a")).await;
    lab.pass(5 * MINUTE).await;
    lab.release(&held).await.unwrap();
    lab.pass(15 * MINUTE - 10 * MILLISECOND).await;
    assert_eq!(holder(&only_lease(&lab).await), "ci");
    lab.pass(20 * MILLISECOND).await;
    assert_eq!(lab.leases_on("a").await, []);
    lab.is_sound().await;
    assert!(matches!(lab.ask(acquires("ci", "a")).await, Ok(Asked::Granted(_))));
    let kinds = lab.events().await;
    let count = |kind| kinds.iter().filter(|it| **it == kind).count();
    assert_eq!((count(EventKind::BookingFulfilled), count(EventKind::BookingMissed)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn windows_end_to_start_are_handed_from_one_holder_to_the_other() {
    let lab = lab().await;
    let first = lab.book("one", "a", slot(10, 20)).await.unwrap();
    let second = lab.book("two", "a", slot(20, 30)).await.unwrap();
    let third = lab.book("one", "a", slot(30, 31)).await.unwrap();
    for (at, who) in [(10, "one"), (20, "two"), (30, "one")] {
        let now = lab.clock.now().wall;
        lab.pass(Duration::try_from(minute(at).duration_since(now)).unwrap() + 5 * MILLISECOND).await;
        assert_eq!(holder(&only_lease(&lab).await), who, "minute {at}");
    }
    lab.pass(MINUTE).await;
    for booking in [first, second, third] {
        assert_eq!(lab.status(&booking.id).await, BookingStatus::Fulfilled);
    }
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn while_another_overruns_the_booker_stands_before_everybody_who_waits() {
    for target in TARGETS {
        let lab = lab().await;
        let held = lab.lease(acquires("overruns", "a")).await;
        let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
        let waiting = lab.wait(ranked(waits("important", target), 1_000.0)).await;
        lab.join(ranked(joins("stands", "a"), 1_000.0)).await;
        lab.pass(12 * MINUTE).await;
        assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("booker"), "{target}");
        let lease = only_lease(&lab).await;
        assert_eq!(holder(&lease), "booker");
        assert_eq!(lab.booking(&booking.id).await.lease_id.as_ref(), Some(&lease.id));
        assert_eq!(lab.state(&waiting).await, None);
        lab.pass(8 * MINUTE).await;
        let end = lab.end(&waiting).await.lease();
        lab.release(&end).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_booker_who_waits_for_its_window_gets_what_it_has_asked_for() {
    for by_request in [true, false] {
        let lab = lab().await;
        let held = lab.lease(acquires("overruns", "a")).await;
        let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
        lab.pass(11 * MINUTE).await;
        let ask = joins("booker", "a");
        let waiting = match by_request {
            true => Some(lab.wait(waits("booker", "a")).await),
            false => {
                lab.join(ask.clone()).await;
                None
            }
        };
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("booker"));
        let lease = only_lease(&lab).await;
        assert_eq!(lab.booking(&booking.id).await.lease_id.as_ref(), Some(&lease.id));
        assert_eq!(lab.room("a").await, [""; 0], "it waits no more");
        match waiting {
            Some(waiting) => assert_eq!(lab.end(&waiting).await.lease().id, lease.id),
            None => {
                let Ok(Asked::Granted(grant)) = lab.ask(ask).await else { panic!("the answer becomes the lease") };
                assert_eq!(grant.lease, lease);
            }
        }
        lab.release(&lease).await.unwrap();
        assert_eq!(lab.leases_on("a").await, [], "it is not granted twice");
        lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_booking_that_the_database_will_not_settle_stops_nothing_else() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(10, 60)).await.unwrap();
    let other = lab.hold("other", "a", slot(120, 130), 20 * MINUTE).await.unwrap();
    let fault = lab.forbid_bookings("NEW.status = 'fulfilled'");
    lab.pass(11 * MINUTE).await;
    assert_eq!((lab.status(&booking.id).await, lab.leases_on("a").await), (BookingStatus::Scheduled, vec![]));
    // The first of these may have to find out.
    lab.book("third", "a", slot(200, 210)).await.unwrap();
    lab.confirm("other", &other.id).await.unwrap();
    let violated = || async { lab.events().await.into_iter().filter(|it| *it == EventKind::InvariantViolated).count() };
    let before = violated().await;
    lab.pass(5 * MINUTE).await;
    assert!(before > 0 && violated().await <= before + 1, "it is not tried for ever");
    drop(fault);
    // Repaired, it is settled with whatever is asked of the resource next, by an actor that starts anew.
    lab.book("fourth", "a", slot(220, 230)).await.unwrap();
    let lease = only_lease(&lab).await;
    assert_eq!(lab.booking(&booking.id).await.lease_id.as_ref(), Some(&lease.id));
    lab.release(&lease).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_overruns_a_whole_window_makes_its_booking_missed_at_the_end() {
    let lab = lab().await;
    let held = lab.lease(acquires("overruns", "a")).await;
    let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
    let waiting = lab.wait(waits("next", "a")).await;
    lab.pass(20 * MINUTE - 5 * MILLISECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.pass(10 * MILLISECOND).await;
    let missed = lab.booking(&booking.id).await;
    assert_eq!((missed.status, missed.claims), (BookingStatus::Missed, false));
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("next"));
    let lease = lab.end(&waiting).await.lease();
    lab.release(&lease).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_resource_goes_to_its_booker_when_it_is_brought_back_in_the_window() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
    lab.drain("a", true).await.unwrap();
    lab.pass(15 * MINUTE).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.drain("a", false).await.unwrap();
    assert_eq!(holder(&only_lease(&lab).await), "booker");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_its_holder_has_already_becomes_that_of_the_booking() {
    let lab = lab().await;
    let held = lab.lease(Ask { ttl: 12 * MINUTE, ..acquires("ci", "a") }).await;
    let booking = lab.book("ci", "a", slot(10, 30)).await.unwrap();
    lab.pass(10 * MINUTE + 5 * MILLISECOND).await;
    assert_eq!(lab.booking(&booking.id).await.lease_id.as_ref(), Some(&held.id));
    lab.pass(20 * MINUTE - 20 * MILLISECOND).await;
    assert_eq!(only_lease(&lab).await.id, held.id, "until the end of the window at least");
    lab.pass(MINUTE).await;
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_passes_while_something_else_is_being_written_is_not_forgotten() {
    for others in ["a lease", "a booking"] {
        let lab = lab().await;
        let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
        lab.pass(10 * MINUTE - MILLISECOND).await;
        let commits = lab.hold_commits();
        // It is decided before the start, and durable after it.
        let lease = (others == "a lease").then(|| lab.begin(acquires("early", "a")));
        let other = (others == "a booking").then(|| lab.begin_book("early", "a", slot(40, 50)));
        lab.turn().await;
        tokio::time::advance(2 * MILLISECOND).await;
        drop(commits);
        if let Some(lease) = lease {
            let Ok(Asked::Granted(early)) = said(lease).await else { panic!("it was free") };
            lab.pass(MINUTE).await;
            assert_eq!(lab.release(&early.lease).await.unwrap().as_deref(), Some("booker"));
        }
        if let Some(other) = other {
            said(other).await.unwrap();
        }
        lab.pass(Duration::from_secs(2)).await;
        assert_eq!(lab.status(&booking.id).await, BookingStatus::Fulfilled, "{others}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_booking_that_is_made_just_before_its_start_and_written_after_it_has_its_lease() {
    let lab = lab().await;
    lab.pass(10 * MINUTE - MILLISECOND).await;
    let commits = lab.hold_commits();
    let booked = lab.begin_book("booker", "a", slot(10, 20));
    lab.turn().await;
    tokio::time::advance(2 * MILLISECOND).await;
    drop(commits);
    said(booked).await.unwrap();
    lab.pass(Duration::from_secs(2)).await;
    assert_eq!(holder(&only_lease(&lab).await), "booker");
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_lease_cannot_be_written_is_tried_again() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
    let fault = lab.lose_leases("true");
    lab.pass(11 * MINUTE).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled, "nothing of it has happened");
    assert_eq!(lab.leases_on("a").await, []);
    drop(fault);
    lab.pass(Duration::from_secs(6)).await;
    let lease = only_lease(&lab).await;
    assert_eq!(lab.booking(&booking.id).await.lease_id.as_ref(), Some(&lease.id));
    lab.release(&lease).await.unwrap();
    lab.pass(10 * MINUTE).await;
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_being_written_when_the_actor_dies_happens_once() {
    for before_the_commit in [true, false] {
        let lab = lab().await;
        let booking = lab.book("booker", "a", slot(10, 20)).await.unwrap();
        lab.pass(10 * MINUTE - MILLISECOND).await;
        let commits = before_the_commit.then(|| lab.hold_commits());
        tokio::time::advance(4 * MILLISECOND).await;
        lab.turn().await;
        lab.panic("a");
        lab.turn().await;
        drop(commits);
        lab.pass(Duration::from_secs(6)).await;
        let lease = only_lease(&lab).await;
        assert_eq!(lab.booking(&booking.id).await.lease_id.as_ref(), Some(&lease.id));
        assert_eq!(lab.ask(acquires("booker", "b")).await, Err(Code::RequesterAlreadyLeased));
        lab.release(&lease).await.unwrap();
        lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn windows_that_open_or_close_while_the_node_is_down_are_settled_before_it_admits() {
    let lab = lab().await;
    let closed = lab.book("one", "a", slot(10, 20)).await.unwrap();
    let open = lab.book("two", "a", slot(20, 40)).await.unwrap();
    let stopped = lab.stop().await;
    tokio::time::sleep(30 * MINUTE).await;
    let lab = stopped.start().await;
    // The first thing that is asked sees it.
    assert_eq!(lab.ask(acquires("other", "a")).await, Err(Code::ResourceUnavailable));
    assert_eq!(lab.status(&closed.id).await, BookingStatus::Missed);
    let lease = only_lease(&lab).await;
    assert_eq!(holder(&lease), "two");
    assert_eq!(lab.booking(&open.id).await.lease_id.as_ref(), Some(&lease.id));
    assert_eq!(lab.state(&lease.request_id).await, Some(End::Lease(Box::new(lease.clone()))));
    assert_eq!(lab.ask(acquires("two", "b")).await, Err(Code::RequesterAlreadyLeased));
    lab.agrees().await;

    // A window that is open on both sides of a restart keeps its lease.
    let lab = lab.restart().await;
    assert_eq!(only_lease(&lab).await, lease);
    lab.pass(10 * MINUTE - Duration::from_secs(1)).await;
    assert_eq!(only_lease(&lab).await, lease);
    lab.pass(Duration::from_secs(2)).await;
    assert_eq!(lab.leases_on("a").await, []);
    assert_eq!(lab.state(&lease.request_id).await, Some(End::Lease(Box::new(lease))));
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn an_overrun_over_a_restart_hands_the_resource_to_its_booker() {
    let lab = lab().await;
    let held = lab.lease(acquires("overruns", "a")).await;
    let booking = lab.book("booker", "a", slot(10, 40)).await.unwrap();
    lab.pass(12 * MINUTE).await;
    let lab = lab.restart().await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("booker"));
    let lab = lab.restart().await;
    assert_eq!(holder(&only_lease(&lab).await), "booker");
}

#[tokio::test(start_paused = true)]
async fn windows_follow_a_wall_clock_that_is_set_and_their_leases_do_not() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(60, 120)).await.unwrap();
    let later = lab.book("later", "a", slot(240, 250)).await.unwrap();
    lab.pass(MINUTE).await;
    lab.clock.step_wall_ms(90 * 60_000);
    lab.pass(Duration::from_secs(2)).await;
    let lease = only_lease(&lab).await;
    assert_eq!(holder(&lease), "booker", "the clock was set over its start");
    lab.clock.step_wall_ms(-90 * 60_000);
    lab.pass(28 * MINUTE).await;
    assert_eq!(only_lease(&lab).await, lease, "what it has it keeps, for as long as it was given");
    lab.pass(2 * MINUTE).await;
    assert_eq!(lab.leases_on("a").await, []);
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Fulfilled);
    // The clock shows half past twelve, less what was set; the next window starts when it says so.
    lab.clock.step_wall_ms(200 * 60_000);
    lab.pass(10 * MINUTE).await;
    assert_eq!(holder(&only_lease(&lab).await), "later");
    assert_eq!(lab.status(&later.id).await, BookingStatus::Fulfilled);
    lab.pass(15 * MINUTE).await;
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_comes_again_when_the_clock_is_set_back_before_it() {
    let lab = lab().await;
    let held = lab.lease(Ask { ttl: 4 * HOUR, ..acquires("overruns", "a") }).await;
    let booking = lab.book("booker", "a", slot(60, 120)).await.unwrap();
    lab.clock.step_wall_ms(70 * 60_000);
    lab.pass(Duration::from_secs(2)).await;
    lab.clock.step_wall_ms(-70 * 60_000);
    lab.pass(Duration::from_secs(2)).await;
    lab.release(&held).await.unwrap();
    assert_eq!(lab.leases_on("a").await, []);
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.pass(HOUR).await;
    assert_eq!(holder(&only_lease(&lab).await), "booker");
}

#[tokio::test(start_paused = true)]
async fn an_enforced_window_keeps_others_out_before_it_and_then_goes_to_its_booker() {
    let policy = BookingPolicy { auto_acquire: true, ..ENFORCED };
    let lab = Lab::new(&[booked("a", "os=1", policy)], rules()).await;
    lab.book("booker", "a", slot(30, 60)).await.unwrap();
    assert_eq!(lab.ask(acquires("walks-up", "a")).await, Err(Code::ResourceBooked));
    let waiting = lab.wait(waits("waits", "os=1")).await;
    lab.pass(30 * MINUTE + 5 * MILLISECOND).await;
    let lease = only_lease(&lab).await;
    assert_eq!(holder(&lease), "booker");
    assert_eq!(lab.release(&lease).await.unwrap().as_deref(), Some("waits"));
    let lease = lab.end(&waiting).await.lease();
    lab.release(&lease).await.unwrap();
    lab.is_sound().await;
}
