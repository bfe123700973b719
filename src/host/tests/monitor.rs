//! What must not be in the database is found, stops new holds, and nothing else.

use std::time::Duration;

use super::calls::{ADVISORY, MINUTE, booked, slot};
use super::lab::{Lab, said};
use crate::admission::Rules;
use crate::model::{BookingId, Code, EventKind};
use crate::wire::calendar::CalendarAnswer;

const SECOND: Duration = Duration::from_secs(1);

async fn lab() -> Lab {
    Lab::new(&[booked("a", "", ADVISORY), booked("b", "", ADVISORY)], Rules::default()).await
}

/// A second booking of the slot from minute 60 to 90 on `a`, past everything that guards it.
fn plant(lab: &Lab) {
    let database = lab.database();
    let select = "SELECT type, name FROM sqlite_schema WHERE tbl_name IN ('booking', 'hold') AND sql IS NOT NULL \
                  AND (type = 'trigger' OR name IN ('one_booking_for_a_slot', 'one_hold_for_a_slot'))";
    let mut statement = database.prepare(select).unwrap();
    let guards: Vec<(String, String)> =
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    for (kind, name) in &guards {
        database.execute_batch(&format!("DROP {kind} {name}")).unwrap();
    }
    let twin = "INSERT INTO booking (id, resource_id, holder, starts_at, ends_at, status, claims, created_at) \
                SELECT ?1, resource_id, 'thief', starts_at, ends_at, status, claims, created_at FROM booking \
                WHERE status = 'scheduled' LIMIT 1";
    assert_eq!(database.execute(twin, [BookingId::generate().as_str()]).unwrap(), 1);
}

fn repair(lab: &Lab) {
    let database = lab.database();
    assert_eq!(database.execute("DELETE FROM booking WHERE holder = 'thief'", []).unwrap(), 1);
}

async fn count(lab: &Lab, kind: EventKind) -> usize {
    lab.events().await.into_iter().filter(|it| *it == kind).count()
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_found_within_one_interval_at_once_when_asked_and_at_a_start() {
    for how in ["interval", "check", "start"] {
        let lab = lab().await;
        let hold = lab.hold("ci", "a", slot(100, 110), 30 * MINUTE).await.unwrap();
        let other = lab.hold("ci", "a", slot(110, 120), 30 * MINUTE).await.unwrap();
        lab.book("ci", "a", slot(60, 90)).await.unwrap();
        lab.pass(45 * SECOND).await;
        plant(&lab);
        let lab = match how {
            "interval" => {
                lab.pass(30 * SECOND + Duration::from_millis(10)).await;
                lab
            }
            "check" => {
                let found = lab.check().await;
                assert_eq!((found.violations.len(), found.holds_paused), (1, true));
                lab
            }
            _ => lab.restart().await,
        };
        assert_eq!(lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap_err(), Code::HoldsPaused, "{how}");
        let complaints = lab.complaints().await;
        assert!(complaints.len() == 1 && complaints[0].contains("overlaps"), "{complaints:?}");
        assert!(!complaints[0].contains("thief") && !complaints[0].contains("ci"), "nothing of whose: {complaints:?}");
        // Everything else goes on.
        lab.confirm("ci", &hold.id).await.unwrap();
        lab.give_back("ci", &other.id).await.unwrap();
        let booking = lab.book("ci", "b", slot(60, 90)).await.unwrap();
        lab.move_to("ci", &booking.id, slot(70, 90)).await.unwrap();
        assert_eq!(lab.pause(None, false).await.unwrap_err(), Code::HoldsPaused, "while it is there");
        assert_eq!(lab.pause(Some("b"), false).await.unwrap_err(), Code::HoldsPaused, "while it is there");
        lab.pass(5 * MINUTE).await;
        assert_eq!(count(&lab, EventKind::InvariantViolated).await, 1, "{how}: told once");
        assert_eq!(count(&lab, EventKind::HoldsPaused).await, 1);

        repair(&lab);
        lab.pass(31 * SECOND).await;
        assert_eq!(lab.hold("ci", "b", slot(160, 190), MINUTE).await.unwrap_err(), Code::HoldsPaused, "not by itself");
        assert_eq!(lab.complaints().await.len(), 1, "it was there, and nobody has said that all is well");
        assert_eq!(lab.pause(None, false).await, Ok(CalendarAnswer::Paused(false)));
        assert_eq!(lab.complaints().await, [""; 0]);
        lab.hold("ci", "b", slot(160, 190), MINUTE).await.unwrap();
        assert_eq!(count(&lab, EventKind::HoldsResumed).await, 1);
        let lab = lab.restart().await;
        lab.hold("ci", "b", slot(260, 290), MINUTE).await.unwrap();
        lab.agrees().await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_duplicate_is_told_of_once_however_many_there_are() {
    let lab = lab().await;
    lab.book("ci", "a", slot(60, 90)).await.unwrap();
    plant(&lab);
    for _ in 0..29 {
        plant(&lab);
    }
    lab.pass(3 * MINUTE).await;
    assert_eq!(lab.check().await.violations.len(), 30);
    assert_eq!(count(&lab, EventKind::InvariantViolated).await, 30);
    assert_eq!(count(&lab, EventKind::HoldsPaused).await, 1);
    assert!(lab.complaints().await.len() <= 20, "what people can read");
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_node_outlives_a_repair_and_a_restart() {
    let lab = lab().await;
    lab.book("ci", "a", slot(60, 90)).await.unwrap();
    plant(&lab);
    lab.check().await;
    lab.settle().await;
    repair(&lab);
    let lab = lab.restart().await;
    assert_eq!(lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap_err(), Code::HoldsPaused);
    assert!(lab.complaints().await[0].contains("overlaps"));
    assert_eq!(lab.pause(None, false).await, Ok(CalendarAnswer::Paused(false)));
    let lab = lab.restart().await;
    assert_eq!(lab.complaints().await, [""; 0]);
    lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_admin_pauses_the_node_or_one_resource_and_that_outlives_a_restart() {
    for resource in [None, Some("a")] {
        let mut lab = lab().await;
        let hold = lab.hold("ci", "a", slot(60, 90), 30 * MINUTE).await.unwrap();
        assert_eq!(lab.pause(resource, true).await, Ok(CalendarAnswer::Paused(true)));
        assert_eq!(lab.pause(resource, true).await, Ok(CalendarAnswer::Paused(true)), "twice is once");
        for restarts in [false, true] {
            lab = if restarts { lab.restart().await } else { lab };
            assert_eq!(lab.hold("ci", "a", slot(100, 110), MINUTE).await.unwrap_err(), Code::HoldsPaused);
            let on_b = lab.hold("ci", "b", slot(100, 110), MINUTE).await;
            assert_eq!(on_b.is_ok(), resource.is_some());
            if let Ok(hold) = on_b {
                lab.give_back("ci", &hold.id).await.unwrap();
            }
            assert_eq!(lab.complaints().await, [""; 0], "what an admin has ordered is no fault");
        }
        let booking = lab.confirm("ci", &hold.id).await.unwrap();
        lab.move_to("ci", &booking.id, slot(60, 80)).await.unwrap();
        assert_eq!(lab.pause(resource, false).await, Ok(CalendarAnswer::Paused(false)));
        lab.hold("ci", "a", slot(100, 110), MINUTE).await.unwrap();
        let lab = lab.restart().await;
        lab.hold("ci", "a", slot(120, 130), MINUTE).await.unwrap();
        assert_eq!(count(&lab, EventKind::HoldsPaused).await, 1);
        assert_eq!(count(&lab, EventKind::HoldsResumed).await, 1);
        lab.is_sound().await;
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_resumes_and_checks_at_once_are_all_answered_and_told_of_once() {
    let lab = lab().await;
    for paused in [true, false] {
        let asked: Vec<_> = (0..5)
            .map(|_| (lab.begin_pause(None, paused), lab.send(super::super::message::DeskMessage::Check)))
            .collect();
        for (pause, check) in asked {
            assert_eq!(said(pause).await, Ok(CalendarAnswer::Paused(paused)));
            assert_eq!(super::lab::reply(check).await.unwrap().violations, [""; 0]);
        }
    }
    lab.settle().await;
    assert_eq!(count(&lab, EventKind::HoldsPaused).await, 1);
    assert_eq!(count(&lab, EventKind::HoldsResumed).await, 1);
    lab.hold("ci", "a", slot(100, 110), MINUTE).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_crosses_a_new_duplicate_does_not_undo_its_pause() {
    let lab = lab().await;
    lab.book("ci", "a", slot(60, 90)).await.unwrap();
    lab.pause(None, true).await.unwrap();
    let resumed = lab.begin_pause(None, false);
    plant(&lab);
    let checked = lab.send(super::super::message::DeskMessage::Check);
    let resumed = said(resumed).await;
    assert_eq!(super::lab::reply(checked).await.unwrap().violations.len(), 1);
    lab.settle().await;
    assert!(resumed.is_ok() || resumed == Err(Code::HoldsPaused), "{resumed:?}");
    assert_eq!(lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap_err(), Code::HoldsPaused);
    let stored: Option<String> =
        lab.database().query_row("SELECT holds_paused FROM node", [], |row| row.get(0)).unwrap();
    assert!(stored.is_some_and(|why| why.contains("overlaps")), "on disk as well");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_cannot_be_written_is_no_pause_and_a_found_duplicate_stops_holds_at_once() {
    let lab = lab().await;
    let fault = lab.lose("UPDATE OF holds_paused", "node");
    assert_eq!(lab.pause(None, true).await.unwrap_err(), Code::Internal);
    lab.hold("ci", "a", slot(100, 110), MINUTE).await.unwrap();
    lab.book("ci", "a", slot(60, 90)).await.unwrap();
    plant(&lab);
    lab.check().await;
    assert_eq!(lab.hold("ci", "b", slot(60, 90), MINUTE).await.unwrap_err(), Code::HoldsPaused);
    lab.settle().await;
    drop(fault);
}
