//! How many bookings and holds one principal may have, also while many calls are under way; and how long what is over is
//! remembered.

use std::time::Duration;

use super::super::message::Leftovers;
use super::calls::{
    ADVISORY, Answer, MINUTE, admin, agent, booked, books, holds, minute, one_booking, one_hold, slot, token,
};
use super::lab::{Lab, reply, said};
use crate::admission::Rules;
use crate::model::{BookingId, BookingStatus, Code, Every, HoldId, HoldStatus, Repeat};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk};

const DAY: Duration = Duration::from_secs(24 * 3600);

async fn lab() -> Lab {
    let mut rules = Rules::default();
    rules.limits.bookings_per_principal = 5;
    Lab::new(&["a", "b", "c", "d"].map(|id| booked(id, "", ADVISORY)), rules).await
}

type Call = fn(&Lab, &BookingId, &HoldId) -> Answer;

/// How many went well; the others heard that there are too many.
async fn went_well(answers: Vec<Answer>) -> usize {
    let mut well = 0;
    for answer in answers {
        match said(answer).await {
            Ok(_) => well += 1,
            Err(code) => assert_eq!(code, Code::RateLimited),
        }
    }
    well
}

#[tokio::test(start_paused = true)]
async fn a_principal_has_eight_holds_at_most_however_many_it_asks_for_at_once() {
    let lab = lab().await;
    let many = |from: i64| -> Vec<Answer> {
        let ask = |n: i64| {
            let who = ["ci", "ci/one", "ci/two"][n as usize % 3];
            lab.begin_hold(who, ["a", "b", "c", "d"][n as usize % 4], slot(from + 10 * n, from + 10 * n + 5), MINUTE)
        };
        (0..40).map(ask).collect()
    };
    assert_eq!(went_well(many(60)).await, 8);
    assert_eq!(went_well(many(1_000)).await, 0);
    assert!(lab.hold("other", "a", slot(2_000, 2_010), MINUTE).await.is_ok(), "each principal has its own");
    lab.pass(MINUTE + Duration::from_millis(5)).await;
    assert_eq!(went_well(many(60)).await, 8, "those have expired");
    lab.is_sound().await;
    let lab = lab.restart().await;
    assert_eq!(lab.hold("ci", "a", slot(5_000, 5_010), MINUTE).await.unwrap_err(), Code::RateLimited);
    lab.pass(MINUTE).await;
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_comes_to_nothing_counts_no_more() {
    let lab = lab().await;
    lab.book("other", "a", slot(60, 90)).await.unwrap();
    for round in 0..3 {
        let answers: Vec<_> = (0..8).map(|_| lab.begin_hold("ci", "a", slot(60, 90), MINUTE)).collect();
        for answer in answers {
            assert_eq!(said(answer).await.unwrap_err(), Code::HoldConflict, "{round}");
        }
    }
    let fault = lab.lose("INSERT", "hold");
    let answers: Vec<_> = (0..8).map(|n| lab.begin_hold("ci", "b", slot(60 + n, 61 + n), MINUTE)).collect();
    for answer in answers {
        assert_eq!(said(answer).await.unwrap_err(), Code::Internal);
    }
    drop(fault);
    let mut made = Vec::new();
    for n in 0..8 {
        made.push(lab.hold("ci", "b", slot(60 + n, 61 + n), MINUTE).await.unwrap());
    }
    assert_eq!(lab.hold("ci", "c", slot(60, 61), MINUTE).await.unwrap_err(), Code::RateLimited);
    lab.give_back("ci", &made[0].id).await.unwrap();
    lab.hold("ci", "c", slot(60, 61), MINUTE).await.unwrap();
    lab.confirm("ci", &made[1].id).await.unwrap();
    lab.hold("ci", "c", slot(61, 62), MINUTE).await.unwrap();
    assert_eq!(lab.hold("ci", "c", slot(62, 63), MINUTE).await.unwrap_err(), Code::RateLimited);
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_principal_has_so_many_scheduled_bookings_at_most_and_a_series_counts_as_one() {
    let lab = lab().await;
    let many = |from: i64| -> Vec<Answer> {
        let ask = |n: i64| lab.begin_book("ci", ["a", "b"][n as usize % 2], slot(from + 10 * n, from + 10 * n + 5));
        (0..20).map(ask).collect()
    };
    let until = "2026-01-20".parse().unwrap();
    let repeat = Repeat { every: Every::Day, until, tz: "UTC".parse().unwrap() };
    let series = said(lab.call(agent("ci"), books("c", slot(60, 90), Some(repeat)))).await.unwrap();
    let CalendarAnswer::Booked { series: Some(_), bookings } = series else { panic!("a series") };
    assert_eq!(bookings.len(), 20);
    assert_eq!(went_well(many(60)).await, 4);
    assert_eq!(went_well(many(1_000)).await, 0);
    let ask = CalendarAsk::Cancel { booking: bookings[3].id.clone(), following: true };
    said(lab.call(agent("ci"), ask)).await.unwrap();
    assert_eq!(lab.book("ci", "d", slot(60, 90)).await.unwrap_err(), Code::RateLimited, "three of it are left");
    let ask = CalendarAsk::Cancel { booking: bookings[0].id.clone(), following: true };
    said(lab.call(agent("ci"), ask)).await.unwrap();
    lab.book("ci", "d", slot(60, 90)).await.unwrap();
    assert_eq!(lab.book("ci", "d", slot(90, 120)).await.unwrap_err(), Code::RateLimited);
    lab.is_sound().await;
    // What is over counts no more, whatever its status says.
    lab.pass(300 * MINUTE).await;
    assert_eq!(went_well(many(2_000)).await, 5);
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn bookings_that_holds_become_count_as_well() {
    let lab = lab().await;
    let mut made = Vec::new();
    for n in 0..8 {
        made.push(lab.hold("ci", "a", slot(60 + n, 61 + n), 10 * MINUTE).await.unwrap());
    }
    let confirms = made.iter().map(|hold| lab.begin_confirm("ci", &hold.id)).collect();
    assert_eq!(went_well(confirms).await, 5);
    assert_eq!(lab.scheduled("a").await.len(), 5);
    let confirmed = lab.confirm("ci", &made[0].id).await.unwrap();
    assert_eq!(confirmed.status, BookingStatus::Scheduled, "it has been made before");
    lab.give_up("ci", &confirmed.id).await.unwrap();
    lab.confirm("ci", &made[7].id).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_under_the_key_of_one_that_expires_meanwhile_is_counted() {
    let lab = lab().await;
    let keyed = |from, secret: &str| {
        lab.call(agent("ci"), holds("a", slot(from, from + 10), MINUTE, Some("key"), token(secret)))
    };
    said(keyed(60, "one")).await.unwrap();
    let mut others = Vec::new();
    for n in 0..7 {
        others.push(lab.hold("ci", "b", slot(60 + n, 61 + n), 10 * MINUTE).await.unwrap());
    }
    lab.pass(MINUTE - Duration::from_millis(1)).await;
    let commits = lab.hold_commits();
    let wait = lab.begin_book("other", "a", slot(600, 610));
    lab.turn().await;
    let keyed = keyed(100, "two");
    lab.turn().await;
    tokio::time::advance(Duration::from_millis(5)).await;
    lab.turn().await;
    drop(commits);
    said(wait).await.unwrap();
    let another = lab.begin_hold("ci", "c", slot(60, 61), MINUTE);
    let both = [said(keyed).await.is_ok(), said(another).await.is_ok()];
    assert!(both[0] || both[1], "there is room for one");
    assert_ne!(both, [true, true], "nine holds");
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_committed_has_not_happened_and_can_be_asked_for_again() {
    let lab = lab().await;
    let booking = lab.book("ci", "a", slot(60, 90)).await.unwrap();
    let hold = lab.hold("ci", "a", slot(100, 110), 10 * MINUTE).await.unwrap();
    let mut events = lab.events().await.len();
    let faults = |statement, table| lab.lose(statement, table);
    let calls: [(&str, &str, Call); 6] = [
        ("INSERT", "booking", |lab, _, _| lab.begin_book("ci", "a", slot(200, 210))),
        ("INSERT", "hold", |lab, _, _| lab.begin_hold("ci", "a", slot(200, 210), 10 * MINUTE)),
        ("UPDATE", "booking", |lab, booking, _| lab.begin_move("ci", booking, slot(200, 210))),
        ("UPDATE", "hold", |lab, _, hold| lab.begin_give_back("ci", hold)),
        ("INSERT", "booking", |lab, _, hold| lab.begin_confirm("ci", hold)),
        ("UPDATE", "booking", |lab, booking, _| lab.begin_give_up("ci", booking)),
    ];
    for (statement, table, call) in calls {
        let fault = faults(statement, table);
        assert_eq!(said(call(&lab, &booking.id, &hold.id)).await.unwrap_err(), Code::Internal, "{statement} {table}");
        drop(fault);
        assert_eq!(lab.booking(&booking.id).await, booking);
        assert_eq!(lab.one_hold(&hold.id).await.unwrap().status, HoldStatus::Active);
        assert_eq!(lab.events().await.len(), events, "no event");
        lab.is_sound().await;
        // The slot is anybody's.
        let other = lab.book("other", "a", slot(200, 210)).await.unwrap();
        lab.give_up("other", &other.id).await.unwrap();
        events += 2;
    }
    lab.confirm("ci", &hold.id).await.unwrap();
    lab.give_up("ci", &booking.id).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn what_has_been_over_for_ninety_days_is_forgotten_and_the_rest_is_not() {
    let lab = lab().await;
    let over = lab.book("ci", "a", slot(60, 90)).await.unwrap();
    let cancelled = lab.book("ci", "a", slot(200 * 24 * 60, 200 * 24 * 60 + 1)).await.unwrap();
    lab.give_up("ci", &cancelled.id).await.unwrap();
    let stays = lab.book("ci", "a", slot(201 * 24 * 60, 201 * 24 * 60 + 1)).await.unwrap();
    let expired = lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap();
    let confirmed = lab.hold("ci", "b", slot(100, 110), MINUTE).await.unwrap();
    let made = lab.confirm("ci", &confirmed.id).await.unwrap();
    lab.pass(2 * MINUTE).await;
    // Time is set forward, for a quarter of a year of seconds is long.
    let quarter = i64::try_from((90 * DAY).as_millis()).unwrap();
    lab.clock.step_wall_ms(quarter - 5 * 60_000);
    lab.pass(MINUTE).await;
    for hold in [&expired, &confirmed] {
        lab.one_hold(&hold.id).await.unwrap();
    }
    lab.booking(&cancelled.id).await;
    lab.clock.step_wall_ms(10 * 60_000);
    lab.pass(MINUTE).await;
    let gone = |booking: &BookingId| lab.call(admin(), CalendarAsk::Booking(booking.clone()));
    for hold in [&expired, &confirmed] {
        assert_eq!(lab.one_hold(&hold.id).await.unwrap_err(), Code::UnknownHold);
    }
    assert_eq!(said(gone(&cancelled.id)).await.unwrap_err(), Code::UnknownBooking);
    assert_eq!(lab.booking(&made.id).await.window, made.window);
    lab.booking(&over.id).await;
    lab.is_sound().await;
    lab.clock.step_wall_ms(120 * 60_000);
    lab.pass(MINUTE).await;
    for booking in [&over, &made] {
        assert_eq!(said(gone(&booking.id)).await.unwrap_err(), Code::UnknownBooking);
    }
    assert_eq!(one_booking(said(gone(&stays.id)).await.unwrap()).window, stays.window);
    lab.is_sound().await;
    let lab = lab.restart().await;
    assert_eq!(lab.scheduled("a").await, [stays.window]);
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_forgotten_yet_is_forgotten_later() {
    let lab = lab().await;
    let hold = lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap();
    lab.give_back("ci", &hold.id).await.unwrap();
    let fault = lab.lose("DELETE", "hold");
    lab.clock.step_wall_ms(i64::try_from((91 * DAY).as_millis()).unwrap());
    lab.pass(5 * MINUTE).await;
    lab.one_hold(&hold.id).await.unwrap();
    drop(fault);
    lab.pass(MINUTE).await;
    assert_eq!(lab.one_hold(&hold.id).await.unwrap_err(), Code::UnknownHold);
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn calls_whose_callers_have_gone_leave_nothing_behind() {
    let lab = lab().await;
    for n in 0..20 {
        drop(lab.begin_hold("ci", "a", slot(60 + n, 61 + n), MINUTE));
        drop(lab.begin_book("ci", "b", slot(60 + n, 61 + n)));
    }
    let commits = lab.hold_commits();
    let answers = [lab.begin_hold("ci", "a", slot(60, 61), MINUTE), lab.begin_book("ci", "b", slot(60, 61))];
    lab.turn().await;
    drop(answers);
    drop(commits);
    lab.settle().await;
    assert_eq!(reply(lab.send(super::super::message::DeskMessage::Leftovers)).await, Leftovers::default());
    lab.pass(2 * MINUTE).await;
    assert_eq!(lab.scheduled("b").await.len(), 1, "what had begun has happened");
    assert_eq!(lab.scheduled("b").await[0].starts_at(), minute(60));
    lab.is_sound().await;
    let hold = said(lab.begin_hold("ci", "a", slot(60, 61), MINUTE)).await.map(one_hold).unwrap();
    assert_eq!(hold.status, HoldStatus::Active);
}
