//! The calendar of one resource against two plain lists, over both changes of DST and with a wall clock that is set.

mod bookings;
pub mod diary;
mod holds;
pub mod invariants;
mod model;
mod series;
mod steps;

use berth::admission::calendar::{CalendarChange, CalendarCommand, CalendarReply, HeldSlot, apply, decide, outcome};
use berth::clock::{Now, RunTime};
use berth::model::{Booking, HoldStatus, Refusal};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::Config;

use self::diary::{Diary, QUARTER};
use self::model::{Model, No};
use self::steps::{Asked, Callers, steps};
use crate::sample;

fn code(refusal: &Refusal) -> No {
    let details = refusal.details.as_ref();
    let booking = details.and_then(|details| details.get("bookingId")).and_then(|id| id.as_str());
    (refusal.code, booking.map(sample::text))
}

/// A reply whose hold says when it ends on run time only; on wall time an active one says the same.
fn as_run_time(reply: &CalendarReply, now: Now) -> CalendarReply {
    let CalendarReply::Hold(held) = reply else { return reply.clone() };
    if held.hold.status == HoldStatus::Active {
        assert_eq!(held.ends(now), now.wall_at(held.deadline));
    }
    CalendarReply::Hold(HeldSlot { expires_at: Timestamp::UNIX_EPOCH, ..held.clone() })
}

fn assert_state(diary: &Diary, model: &Model) {
    let mut bookings = model.bookings.clone();
    bookings.sort_by_key(|it| (it.window.starts_at(), it.id.clone()));
    assert_eq!(diary.calendar.bookings().map(|it| it.as_ref().clone()).collect::<Vec<Booking>>(), bookings);
    assert_eq!(diary.calendar.holds().count(), model.holds.len());
    for (hold, deadline) in &model.holds {
        let held = diary.calendar.hold(&hold.id).expect("it is remembered");
        assert_eq!((held.hold.as_ref(), held.deadline), (hold, *deadline));
    }
    assert_eq!(diary.calendar.holds_paused, model.paused);
}

/// An answer that was lost is found again from what has changed.
fn assert_found_again(diary: &Diary, before: &Diary, command: &CalendarCommand, reply: &CalendarReply) {
    let found = outcome(command, &before.calendar, &diary.calendar);
    assert_eq!(found.as_ref(), Some(reply), "{command:?}");
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_calendar_does_what_two_lists_do_and_nothing_in_it_overlaps(
        bookings_max in prop_oneof![3 => Just(1_000usize), 1 => Just(6)],
        holds_enabled in prop::bool::weighted(0.95),
        steps in steps(),
    ) {
        let mut diary = Diary::default();
        (diary.rules.bookings_max, diary.rules.holds_enabled) = (bookings_max, holds_enabled);
        diary.rules.max_duration = QUARTER * 8;
        diary.rules.horizon = QUARTER * 4 * 24 * 14;
        let (mut model, mut callers) = (Model::default(), Callers::default());
        let mut now = Now { wall: sample::text("2026-03-28T20:07:00Z"), run: RunTime(QUARTER) };
        for (number, step) in steps.iter().enumerate() {
            now = step.clock.after(now, &diary);
            if let Asked::PauseNode(paused) = step.asked {
                diary.node_paused = paused;
            }
            let command = match callers.command(&step.asked, &diary, now) {
                Ok(command) => command,
                Err(change) => {
                    let CalendarChange::Booking { booking, .. } = &change else { unreachable!("{change:?}") };
                    let known = model.bookings.iter_mut().find(|it| it.id == booking.id).unwrap();
                    *known = booking.as_ref().clone();
                    apply(&mut diary.calendar, change);
                    assert_state(&diary, &model);
                    continue;
                }
            };
            let expected = model.take(&diary, now, &command);
            diary.settle(now);
            let before = Diary { resource: diary.resource.clone(), calendar: diary.calendar.clone(), ..Diary::default() };
            assert_eq!(
                decide(&diary.calendar, &diary.around(now), command.clone()),
                decide(&diary.calendar, &diary.around(now), command.clone())
            );
            match (diary.take(command.clone(), now), expected) {
                (Ok((changes, reply)), Ok(expected)) => {
                    assert_eq!(as_run_time(&reply, now), expected, "{command:?}");
                    if !changes.is_empty() {
                        assert_found_again(&diary, &before, &command, &reply);
                    }
                    if let (CalendarCommand::Hold { token, .. }, CalendarReply::Hold(held)) = (&command, &reply) {
                        callers.tokens.push((held.hold.id.clone(), *token));
                    }
                }
                (Err(refusal), Err(expected)) => {
                    assert_eq!(code(&refusal), expected, "{command:?}: {refusal:?}");
                    assert_eq!(diary.calendar, before.calendar);
                    invariants::a_refusal_gives_nothing_away(&refusal, &command, &diary, now);
                }
                (told, expected) => panic!("{command:?} at {now:?}: {told:?}, not {expected:?}"),
            }
            assert_state(&diary, &model);
            invariants::nothing_overlaps(&diary.calendar);
            // These look at everything, so they look now and then.
            if number % 4 == 3 || number + 1 == steps.len() {
                invariants::every_index_agrees(&diary.calendar, &model);
                invariants::lists_are_whole(&diary.calendar, &model, now);
            }
        }
    }
}
