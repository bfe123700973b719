//! `bookings.no_show_after`: a booking that nobody claims is missed, and the rest of its window is free.

use std::time::Duration;

use super::calls::{ENFORCED, MINUTE, booked, minute, slot};
use super::lab::{Lab, acquires, holder, waits};
use crate::admission::Rules;
use crate::model::{Ask, BookingPolicy, BookingStatus, Code};

const MILLISECOND: Duration = Duration::from_millis(1);

async fn lab() -> Lab {
    let policy = BookingPolicy { no_show_after: Some(10 * MINUTE), ..ENFORCED };
    Lab::new(&[booked("a", "os=1", policy)], Rules::default()).await
}

#[tokio::test(start_paused = true)]
async fn a_booking_is_missed_exactly_when_nobody_has_claimed_it_for_so_long() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(30, 60)).await.unwrap();
    lab.pass(40 * MINUTE - 2 * MILLISECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.pass(4 * MILLISECOND).await;
    let missed = lab.booking(&booking.id).await;
    assert_eq!((missed.status, missed.claims), (BookingStatus::Missed, false));
    // The rest of the window is anybody's.
    let other = lab.book("other", "a", slot(41, 60)).await.unwrap();
    lab.give_up("other", &other.id).await.unwrap();
    let lease = lab.lease(acquires("walks-up", "a")).await;
    lab.release(&lease).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn claiming_it_by_hand_at_the_last_moment_fulfils_it() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(30, 60)).await.unwrap();
    lab.pass(40 * MINUTE - 2 * MILLISECOND).await;
    let lease = lab.lease(acquires("booker", "a")).await;
    lab.pass(10 * MILLISECOND).await;
    let fulfilled = lab.booking(&booking.id).await;
    assert_eq!((fulfilled.status, fulfilled.lease_id.as_ref()), (BookingStatus::Fulfilled, Some(&lease.id)));
    lab.release(&lease).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn time_in_which_it_was_held_or_drained_does_not_count() {
    for drained in [true, false] {
        let lab = lab().await;
        let held = lab.lease(Ask { ttl: 35 * MINUTE, ..acquires("holder", "a") }).await;
        let booking = lab.book("booker", "a", slot(30, 60)).await.unwrap();
        if drained {
            lab.release(&held).await.unwrap();
            lab.drain("a", true).await.unwrap();
            lab.pass(35 * MINUTE).await;
            lab.drain("a", false).await.unwrap();
        } else {
            lab.pass(35 * MINUTE + 2 * MILLISECOND).await;
        }
        assert_eq!(lab.leases_on("a").await, []);
        lab.pass(10 * MINUTE - 5 * MILLISECOND).await;
        assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled, "drained: {drained}");
        lab.pass(10 * MILLISECOND).await;
        assert_eq!(lab.status(&booking.id).await, BookingStatus::Missed, "drained: {drained}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_death_of_an_actor_gives_nobody_more_time() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(30, 60)).await.unwrap();
    lab.pass(35 * MINUTE).await;
    // An actor that is there to die.
    assert_eq!(lab.ask(acquires("other", "a")).await, Err(Code::ResourceBooked));
    lab.panic("a");
    lab.pass(5 * MINUTE + 2 * MILLISECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Missed);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_it_has_its_whole_time_again() {
    let lab = lab().await;
    let booking = lab.book("booker", "a", slot(30, 60)).await.unwrap();
    lab.pass(35 * MINUTE).await;
    let lab = lab.restart().await;
    lab.pass(10 * MINUTE - 5 * MILLISECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.pass(10 * MILLISECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Missed);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_served_when_the_booker_does_not_come() {
    for target in ["a", "os=1"] {
        let lab = lab().await;
        lab.book("booker", "a", slot(30, 300)).await.unwrap();
        let waiting = lab.wait(waits("waits", target)).await;
        let ended = lab.watch(&waiting);
        lab.pass(40 * MINUTE - 2 * MILLISECOND).await;
        assert_eq!(lab.leases_on("a").await, []);
        lab.pass(5 * MILLISECOND).await;
        drop(ended);
        assert_eq!(lab.leases_on("a").await.iter().map(holder).collect::<Vec<_>>(), ["waits"], "{target}");
        assert!(lab.clock.now().wall > minute(40));
    }
}
