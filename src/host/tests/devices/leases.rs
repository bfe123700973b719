//! The way of a lease around its hooks.

use super::super::super::message::{Asked, DeskMessage};
use super::super::calls::{AUTO_ACQUIRE, booked, slot};
use super::super::lab::{End, Lab, acquires, holder, joins, reply, said, shared, waits};
use super::{MINUTE, SECOND, device, driver, lab_of, rules};
use crate::driver::Sighting;
use crate::model::{BookingStatus, Code, EventKind, ResourceSpec, WaitPolicy, WaitingFor};

#[tokio::test(start_paused = true)]
async fn a_lease_is_there_once_its_device_is_ready_and_its_time_begins_then() {
    for target in ["a", "os=1"] {
        let lab = lab_of("a", "prepare reset").await;
        let request = lab.wait(waits("ci", target)).await;
        assert_eq!(lab.device("a").await, "preparing");
        let shown = reply(lab.send(|reply| DeskMessage::Peek(request.clone(), reply))).await.unwrap();
        assert_eq!(shown.waiting.unwrap().waiting_for, WaitingFor::Preparing);
        let job = lab.job("prepare a").await;
        lab.pass(40 * SECOND).await;
        assert_eq!(lab.leases_on("a").await, []);
        assert!(!lab.events().await.contains(&EventKind::LeaseGranted));
        let (lease, fence) =
            (job.variable("BERTH_LEASE").unwrap().to_owned(), job.variable("BERTH_FENCE").unwrap().to_owned());
        assert_eq!((job.variable("BERTH_HOLDER"), job.variable("BERTH_RESOURCE")), (Some("ci"), Some("a")));
        job.succeeds();
        let granted = lab.end(&request).await.lease();
        assert_eq!((granted.id.as_str(), granted.fence.to_string()), (&*lease, fence));
        let grant = reply(lab.send(DeskMessage::Leases)).await.remove(0);
        let left = grant.deadline.left(lab.clock.now().run);
        assert!(left > granted.ttl - SECOND, "the ttl counts from the end of the prepare: {left:?}");
        assert_eq!(lab.device("a").await, "leased");
        lab.release(&granted).await.unwrap();
        lab.job("reset a").await.succeeds();
        lab.settle().await;
        assert_eq!(lab.device("a").await, "available");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_is_answered_when_its_device_is_ready() {
    for ask in [acquires("ci", "a"), joins("ci", "a")] {
        let lab = lab_of("a", "prepare").await;
        let asked = lab.begin(ask);
        lab.job("prepare a").await.succeeds();
        assert!(matches!(said(asked).await, Ok(Asked::Granted(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_one_waits_for_the_end_of_the_reset_and_a_release_does_not() {
    for target in ["a", "os=1"] {
        let lab = lab_of("a", "reset").await;
        let first = lab.lease(acquires("first", "a")).await;
        let next = lab.wait(waits("next", target)).await;
        assert_eq!(lab.release(&first).await, Ok(None), "a reset comes before whoever is next");
        let reset = lab.job("reset a").await;
        assert_eq!(reset.variable("BERTH_LEASE"), Some(first.id.as_str()));
        lab.pass(30 * SECOND).await;
        assert_eq!(lab.state(&next).await, None);
        let shown = reply(lab.send(|reply| DeskMessage::Peek(next.clone(), reply))).await.unwrap();
        assert_eq!(shown.waiting.unwrap().waiting_for, WaitingFor::Resetting);
        reset.succeeds();
        assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    }
}

#[tokio::test(start_paused = true)]
async fn sharers_find_what_the_first_has_had_prepared_and_the_last_leaves_it_to_the_reset() {
    let spec = ResourceSpec { max_shared: 2.try_into().unwrap(), ..device("a", "os=1", "prepare reset") };
    let lab = Lab::new(&[spec], rules()).await;
    let one = lab.wait(shared(waits("one", "a"))).await;
    let two = lab.wait(shared(waits("two", "a"))).await;
    let prepare = lab.job("prepare a").await;
    assert_eq!(lab.state(&two).await, None, "it is not ready yet");
    prepare.succeeds();
    let (one, two) = (lab.end(&one).await.lease(), lab.end(&two).await.lease());
    lab.no_job().await;
    lab.release(&one).await.unwrap();
    lab.no_job().await;
    lab.release(&two).await.unwrap();
    let reset = lab.job("reset a").await;
    assert_eq!(reset.variable("BERTH_LEASE"), Some(two.id.as_str()));
    reset.succeeds();
}

#[tokio::test(start_paused = true)]
async fn the_device_of_a_booking_is_made_ready_at_its_start() {
    for fails in [false, true] {
        let spec = ResourceSpec { driver: driver("prepare"), ..booked("a", "os=1", AUTO_ACQUIRE) };
        let lab = Lab::new(&[spec], rules()).await;
        let booking = lab.book("ci", "a", slot(10, 20)).await.unwrap();
        lab.pass(10 * MINUTE + SECOND).await;
        let prepare = lab.job("prepare a").await;
        if fails {
            prepare.fails();
            lab.settle().await;
            assert_eq!(lab.status(&booking.id).await, BookingStatus::Missed);
            assert_eq!(lab.leases_on("a").await, []);
        } else {
            prepare.succeeds();
            lab.settle().await;
            assert_eq!(lab.status(&booking.id).await, BookingStatus::Fulfilled);
            assert_eq!(lab.leases_on("a").await.len(), 1);
            lab.pass(10 * MINUTE).await;
            assert_eq!(lab.leases_on("a").await, [], "it ends with its window");
        }
        lab.no_job().await;
    }
}

/// What comes of the booking while its device is made ready.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Prepare {
    Succeeds,
    Fails,
    SucceedsWithoutTheBooking,
}

#[tokio::test(start_paused = true)]
async fn a_request_of_whom_it_is_booked_for_ends_with_the_prepare_and_blocks_nobody() {
    for prepare in [Prepare::Succeeds, Prepare::Fails, Prepare::SucceedsWithoutTheBooking] {
        let spec = ResourceSpec { driver: driver("prepare"), ..booked("a", "os=1", AUTO_ACQUIRE) };
        let lab = Lab::new(&[spec, device("b", "os=2", "")], rules()).await;
        let booking = lab.book("ci", "a", slot(10, 20)).await.unwrap();
        let other = lab.begin(acquires("other", "a"));
        lab.job("prepare a").await.succeeds();
        let Ok(Asked::Granted(other)) = said(other).await else { panic!("it is free") };
        let waits_on = lab.wait(waits("ci", "a")).await;
        lab.pass(11 * MINUTE).await;
        lab.release(&other.lease).await.unwrap();
        let job = lab.job("prepare a").await;
        if prepare == Prepare::SucceedsWithoutTheBooking {
            said(lab.begin_give_up("ci", &booking.id)).await.unwrap();
        }
        match prepare {
            Prepare::Fails => job.fails(),
            _ => job.succeeds(),
        }
        match lab.end(&waits_on).await {
            End::Lease(lease) if prepare != Prepare::Fails => {
                assert_eq!(holder(&lease), "ci");
                lab.release(&lease).await.unwrap();
            }
            End::Refused(code) if prepare == Prepare::Fails => assert_eq!(code, Code::DeviceFailed),
            end => panic!("{prepare:?}: {end:?}"),
        }
        lab.lease(acquires("ci", "b")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_stood_in_the_waiting_room_for_what_is_booked_for_it_is_free_when_the_prepare_fails() {
    let spec = ResourceSpec { driver: driver("prepare"), ..booked("a", "os=1", AUTO_ACQUIRE) };
    let lab = Lab::new(&[spec, device("b", "os=2", "")], rules()).await;
    lab.book("ci", "a", slot(10, 20)).await.unwrap();
    let other = lab.begin(acquires("other", "a"));
    lab.job("prepare a").await.succeeds();
    let Ok(Asked::Granted(other)) = said(other).await else { panic!("it is free") };
    lab.join(joins("ci", "a")).await;
    lab.pass(11 * MINUTE).await;
    lab.release(&other.lease).await.unwrap();
    lab.job("prepare a").await.fails();
    lab.settle().await;
    lab.lease(acquires("ci", "b")).await;
}

#[tokio::test(start_paused = true)]
async fn a_device_that_goes_while_it_is_made_ready_is_granted_to_nobody() {
    for target in ["a", "os=1"] {
        let lab = lab_of("a", "prepare").await;
        let request = lab.wait(waits("ci", target)).await;
        let job = lab.job("prepare a").await;
        lab.sees("a", Sighting::Absent("leased on rack-2".to_owned())).await;
        job.succeeds();
        assert!(matches!(lab.end(&request).await, End::Refused(Code::DeviceFailed)));
        assert_eq!((lab.device("a").await, lab.leases_on("a").await), ("absent", vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_a_thousand_leases_and_each_had_its_hooks_once_and_in_order() {
    let lab = lab_of("a", "prepare reset").await;
    for number in 0..1_000 {
        let request = lab.wait(waits("ci", if number % 2 == 0 { "a" } else { "os=1" })).await;
        let prepare = lab.job("prepare a").await;
        let of = prepare.variable("BERTH_LEASE").unwrap().to_owned();
        prepare.succeeds();
        let lease = lab.end(&request).await.lease();
        assert_eq!(of, lease.id.as_str());
        lab.release(&lease).await.unwrap();
        let reset = lab.job("reset a").await;
        assert_eq!(reset.variable("BERTH_LEASE"), Some(lease.id.as_str()));
        reset.succeeds();
    }
    lab.no_job().await;
    assert_eq!(lab.device("a").await, "available");
    let left = lab.leftovers().await;
    assert_eq!((left.jobs, left.commands, left.open, left.ledger), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn no_wait_waits_for_the_prepare_alone() {
    let lab = lab_of("a", "prepare").await;
    let ask = |who| crate::model::Ask { wait: WaitPolicy::NoWait, ..waits(who, "os=1") };
    let asked = lab.begin(ask("ci"));
    let prepare = lab.job("prepare a").await;
    assert_eq!(lab.ask(ask("other")).await, Err(crate::model::Code::NoCapacity));
    prepare.succeeds();
    assert!(matches!(said(asked).await, Ok(Asked::Granted(_))));
}
