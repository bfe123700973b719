//! Holds: exact at their boundary, in the same time over a restart, and one key for one slot.

use std::time::Duration;

use super::calls::{ADVISORY, MINUTE, agent, booked, holds, minute, one_hold, slot, token};
use super::lab::{HOUR, Lab, said};
use crate::admission::Rules;
use crate::model::{Code, EventKind, HoldStatus};

const MILLISECOND: Duration = Duration::from_millis(1);
const MICROSECOND: Duration = Duration::from_micros(1);

async fn lab() -> Lab {
    Lab::new(&[booked("a", "", ADVISORY), booked("b", "", ADVISORY)], Rules::default()).await
}

/// Moves the clock and lets nothing happen on the way: the timer of the desk has not fired yet.
async fn advance_to(lab: &Lab, run: Duration) {
    tokio::time::advance(run - lab.clock.now().run.0).await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_there_up_to_its_boundary_and_over_at_it() {
    for off in [-1i32, 0, 1] {
        let lab = lab().await;
        let hold = lab.hold("first", "a", slot(60, 90), MINUTE).await.unwrap();
        let deadline = lab.clock.now().run_of(hold.expires_at).0;
        let before = if off < 0 { MICROSECOND } else { Duration::ZERO };
        let after = if off > 0 { MICROSECOND } else { Duration::ZERO };
        advance_to(&lab, deadline + after - before).await;
        let next = lab.begin_hold("next", "a", slot(60, 90), MINUTE);
        let confirmed = lab.begin_confirm("first", &hold.id);
        let (next, confirmed) = (said(next).await, said(confirmed).await);
        if off < 0 {
            assert_eq!(next.map(one_hold).unwrap_err(), Code::HoldConflict);
            assert!(confirmed.is_ok());
        } else {
            assert_eq!(next.map(one_hold).unwrap().status, HoldStatus::Active, "{off} µs from the boundary");
            assert_eq!(confirmed.unwrap_err(), Code::HoldExpired, "{off} µs from the boundary");
            assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Expired);
        }
        // Whatever runs out in this very moment is written first.
        lab.pass(Duration::from_secs(1)).await;
        lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_booking_right_at_the_boundary_of_a_hold_wins() {
    for (off, answer) in [(-1, Err(Code::SlotHeld)), (0, Ok(()))] {
        let lab = lab().await;
        let hold = lab.hold("first", "a", slot(60, 90), MINUTE).await.unwrap();
        let deadline = lab.clock.now().run_of(hold.expires_at).0;
        advance_to(&lab, if off < 0 { deadline - MICROSECOND } else { deadline }).await;
        assert_eq!(lab.book("next", "a", slot(70, 80)).await.map(drop), answer);
        // Whatever runs out in this very moment is written first.
        lab.pass(Duration::from_secs(1)).await;
        lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_needs_to_ask_for_a_hold_to_expire() {
    let lab = lab().await;
    let hold = lab.hold("first", "a", slot(60, 90), MINUTE).await.unwrap();
    lab.pass(MINUTE - 2 * MILLISECOND).await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Active);
    lab.pass(4 * MILLISECOND).await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Expired);
    assert!(lab.events().await.contains(&EventKind::HoldExpired));
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn an_expiry_that_cannot_be_written_is_tried_again_and_nothing_is_told_before() {
    let lab = lab().await;
    let hold = lab.hold("first", "a", slot(60, 90), MINUTE).await.unwrap();
    let fault = lab.lose("UPDATE", "hold");
    lab.pass(2 * MINUTE).await;
    assert_eq!(lab.hold("next", "a", slot(60, 90), MINUTE).await.unwrap_err(), Code::Internal);
    assert!(!lab.events().await.contains(&EventKind::HoldExpired));
    drop(fault);
    lab.pass(Duration::from_secs(6)).await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Expired);
    lab.hold("next", "a", slot(60, 90), MINUTE).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_neither_ends_nor_prolongs_a_hold_over_a_restart_too() {
    for by_minutes in [60, -60, 365 * 24 * 60] {
        for restarts in [false, true] {
            let lab = lab().await;
            let hold = lab.hold("first", "a", slot(24 * 60 * 300, 24 * 60 * 301), 20 * MINUTE).await.unwrap();
            lab.pass(10 * MINUTE).await;
            lab.clock.step_wall_ms(by_minutes * 60_000);
            lab.pass(MINUTE).await;
            let lab = if restarts { lab.restart().await } else { lab };
            lab.pass(9 * MINUTE - Duration::from_secs(1)).await;
            let now = lab.one_hold(&hold.id).await.unwrap();
            assert_eq!(now.status, HoldStatus::Active, "{by_minutes} {restarts}");
            lab.pass(Duration::from_secs(2)).await;
            let now = lab.one_hold(&hold.id).await.unwrap();
            assert_eq!(now.status, HoldStatus::Expired, "{by_minutes} {restarts}");
            lab.is_sound().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_while_the_node_is_down_prolongs_a_hold_once_at_most() {
    let lab = lab().await;
    let hold = lab.hold("first", "a", slot(600, 660), 20 * MINUTE).await.unwrap();
    let stopped = lab.stop().await;
    stopped.clock.step_wall_ms(-3_600_000);
    let lab = stopped.start().await;
    lab.pass(15 * MINUTE).await;
    let lab = lab.restart().await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Active);
    lab.pass(5 * MINUTE + Duration::from_secs(1)).await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_restart_leaves_a_hold_the_time_that_it_has() {
    let lab = lab().await;
    let hold = lab.hold("first", "a", slot(600, 660), 20 * MINUTE).await.unwrap();
    let short = lab.hold("first", "a", slot(700, 760), 11 * MINUTE).await.unwrap();
    lab.pass(10 * MINUTE).await;
    let stopped = lab.stop().await;
    tokio::time::sleep(5 * MINUTE).await;
    let lab = stopped.start().await;
    let now = lab.one_hold(&hold.id).await.unwrap();
    assert_eq!((now.status, now.expires_at), (HoldStatus::Active, hold.expires_at));
    assert_eq!(lab.one_hold(&short.id).await.unwrap().status, HoldStatus::Expired, "while the node was down");
    lab.agrees().await;
    lab.pass(5 * MINUTE - Duration::from_secs(1)).await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Active);
    assert_eq!(lab.confirm("first", &hold.id).await.unwrap().window.starts_at(), minute(600));
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_stands_for_one_hold_as_long_as_that_is_active() {
    let lab = lab().await;
    let ask = |resource: &str, slot, secret: &str| {
        lab.call(agent("ci"), holds(resource, slot, 10 * MINUTE, Some("key"), token(secret)))
    };
    let first = said(ask("a", slot(60, 90), "one")).await.map(one_hold).unwrap();
    let again = said(ask("a", slot(60, 90), "two")).await.map(one_hold).unwrap();
    assert_eq!(again, first, "the same hold, also its end");
    for (resource, other) in [("a", slot(60, 91)), ("b", slot(60, 90)), ("b", slot(100, 110))] {
        assert_eq!(said(ask(resource, other, "three")).await.unwrap_err(), Code::IdempotencyConflict);
    }
    let confirm = |secret| {
        let ask =
            crate::wire::calendar::CalendarAsk::Confirm { hold: first.id.clone(), token: token(secret), note: None };
        said(lab.call(agent("ci"), ask))
    };
    assert_eq!(confirm("one").await.unwrap_err(), Code::InsufficientPermissions, "its token is dead");
    confirm("two").await.unwrap();
    let new = said(ask("b", slot(60, 90), "three")).await.map(one_hold).unwrap();
    assert_ne!(new.id, first.id, "the key is free");
    let lab = lab.restart().await;
    let on_a = lab.call(agent("ci"), holds("a", slot(200, 210), HOUR / 6, Some("key"), token("four")));
    assert_eq!(said(on_a).await.unwrap_err(), Code::IdempotencyConflict);
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn one_key_on_two_resources_at_the_same_time_makes_one_hold() {
    let lab = lab().await;
    let ask = |resource: &str| lab.call(agent("ci"), holds(resource, slot(60, 90), MINUTE, Some("key"), token("ci")));
    let both = [ask("a"), ask("b"), ask("a")];
    let mut made = Vec::new();
    for answer in both {
        match said(answer).await {
            Ok(answer) => made.push(one_hold(answer).id),
            Err(code) => assert_eq!(code, Code::IdempotencyConflict),
        }
    }
    made.dedup();
    assert_eq!(made.len(), 1, "the same again is the same hold");
    lab.is_sound().await;
    // The timer of the desk has not fired when the time of the first is over.
    let deadline = lab.clock.now().run_of(lab.one_hold(&made[0]).await.unwrap().expires_at);
    tokio::time::advance(deadline.0 - lab.clock.now().run.0).await;
    let other = if lab.one_hold(&made[0]).await.unwrap().resource_id.as_str() == "a" { "b" } else { "a" };
    said(ask(other)).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_named_more_finely_than_it_is_kept_is_the_same_slot_again() {
    let lab = lab().await;
    let fine = minute(60).checked_add(Duration::from_nanos(1_500)).unwrap();
    let slot = crate::model::Slot { starts_at: fine, length: crate::model::SlotLength::Lasting(MINUTE) };
    let ask = |secret| lab.call(agent("ci"), holds("a", slot, MINUTE, Some("key"), token(secret)));
    let first = said(ask("one")).await.map(one_hold).unwrap();
    assert_eq!(said(ask("two")).await.map(one_hold), Ok(first));
}
