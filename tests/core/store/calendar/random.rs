//! Whatever the rules decide, the guards of the database let it through, and the next start finds it as it was.

use std::sync::Arc;
use std::time::Duration;

use berth::admission::CalendarRules;
use berth::admission::calendar::{Around, Calendar, CalendarChange, CalendarCommand, HeldSlot, apply, decide};
use berth::admission::resource::Change;
use berth::clock::Now;
use berth::model::{Asker, HoldStatus, Rebooking, ResourceId, Role, Slot, SlotLength, TokenHash};
use proptest::prelude::*;
use proptest::test_runner::Config;

use super::{BENCH, MINUTE_MS, booking_id, hold_id};
use crate::sample;
use crate::store::{Answer, Database, answer};

/// What is asked of the calendar, so many ms after the step before. Slots are minutes from then on, and what is there
/// already is chosen by its number.
#[derive(Debug, Clone)]
struct Step {
    after_ms: u64,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Book { who: usize, first: u64, minutes: u64, days: usize },
    Reschedule { which: usize, to: u64, minutes: Option<u64> },
    Cancel { which: usize, following: bool },
    Hold { who: usize, first: u64, minutes: u64, ttl_ms: u64, key: Option<u8> },
    Confirm { which: usize },
    Release { which: usize },
    Pause(bool),
    Forget { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..40usize;
    let what = prop_oneof![
        6 => (0..2usize, 0..30u64, 1..8u64, 1..4usize)
            .prop_map(|(who, first, minutes, days)| What::Book { who, first, minutes, days }),
        4 => (which.clone(), 0..30u64, prop::option::of(1..8u64))
            .prop_map(|(which, to, minutes)| What::Reschedule { which, to, minutes }),
        3 => (which.clone(), any::<bool>()).prop_map(|(which, following)| What::Cancel { which, following }),
        6 => (0..2usize, 0..30u64, 1..8u64, 1..900_000u64, prop::option::of(0..3u8))
            .prop_map(|(who, first, minutes, ttl_ms, key)| What::Hold { who, first, minutes, ttl_ms, key }),
        4 => which.clone().prop_map(|which| What::Confirm { which }),
        2 => which.clone().prop_map(|which| What::Release { which }),
        1 => any::<bool>().prop_map(What::Pause),
        2 => which.prop_map(|which| What::Forget { which }),
    ];
    let step = (0..300_000u64, what).prop_map(|(after_ms, what)| Step { after_ms, what });
    prop::collection::vec(step, 1..80)
}

/// The calendar in memory, and how many bookings and holds have been named.
#[derive(Default)]
struct Memory {
    calendar: Calendar,
    bookings: usize,
    holds: usize,
}

impl Memory {
    fn command(&mut self, what: What, ms: u64) -> CalendarCommand {
        let holder = |who: usize| sample::text(["ci/job-17", "gw:gateway:ops"][who]);
        let at = |minute: u64| sample::wall((ms / MINUTE_MS + 1 + minute) * MINUTE_MS);
        let length = |minutes: u64| SlotLength::Lasting(Duration::from_millis(minutes * MINUTE_MS));
        let asker = Asker { requester: sample::text("admin"), role: Role::Admin };
        match what {
            What::Book { who, first, minutes, days } => {
                let slots =
                    (0..days as u64).map(|day| Slot { starts_at: at(first + day * 10), length: length(minutes) });
                let windows = slots.map(|slot| {
                    self.bookings += 1;
                    (booking_id(self.bookings), slot)
                });
                let (windows, holder) = (windows.collect(), holder(who));
                let series = (days > 1).then(|| sample::text("series_00000000-0000-4000-8000-000000000001"));
                CalendarCommand::Book { holder, windows, series, note: None }
            }
            What::Reschedule { which, to, minutes } => {
                let to = Rebooking { starts_at: Some(at(to)), length: minutes.map(length) };
                CalendarCommand::Reschedule { booking: booking_id(which), to, asker }
            }
            What::Cancel { which, following } => {
                CalendarCommand::Cancel { booking: booking_id(which), following, asker }
            }
            What::Hold { who, first, minutes, ttl_ms, key } => {
                self.holds += 1;
                CalendarCommand::Hold {
                    id: hold_id(self.holds),
                    holder: holder(who),
                    slot: Slot { starts_at: at(first), length: length(minutes) },
                    ttl: Some(Duration::from_millis(ttl_ms)),
                    key: key.map(|key| sample::text(&format!("k-{key}"))),
                    token: TokenHash::of("secret"),
                }
            }
            What::Confirm { which } => {
                self.bookings += 1;
                let (hold, booking) = (hold_id(which), booking_id(self.bookings));
                CalendarCommand::Confirm { hold, token: TokenHash::of("secret"), booking, full: false, note: None }
            }
            What::Release { which } => {
                CalendarCommand::Release { hold: hold_id(which), token: Some(TokenHash::of("secret")), asker }
            }
            What::Pause(paused) => CalendarCommand::PauseHolds(paused),
            What::Forget { which } => {
                CalendarCommand::Forget { bookings: vec![booking_id(which)], holds: vec![hold_id(which)] }
            }
        }
    }

    /// What a step changes: first what time has done.
    fn step(&mut self, what: What, ms: u64, now: Now) -> Vec<CalendarChange> {
        let mut changes = self.calendar.expired(now);
        changes.iter().cloned().for_each(|change| apply(&mut self.calendar, change));
        let command = self.command(what, ms);
        let (resource, rules): (ResourceId, _) = (sample::text(BENCH), CalendarRules::default());
        let around = Around { resource: &resource, rules: &rules, holds_paused: false, now };
        if let Ok((decided, _)) = decide(&self.calendar, &around, command) {
            decided.iter().cloned().for_each(|change| apply(&mut self.calendar, change));
            changes.extend(decided);
        }
        changes
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 48, ..Config::default() })]

    #[test]
    fn a_start_finds_the_calendar_as_it_was_and_nothing_that_the_rules_decide_is_refused(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let database = Database::new();
            let open = database.open();
            let mut memory = Memory::default();
            let (mut ms, mut answers) = (0, Vec::<Answer>::new());
            for Step { after_ms, what } in steps {
                ms += after_ms;
                let now = sample::at(ms);
                let changes: Vec<_> = memory.step(what, ms, now).into_iter().map(Change::Calendar).collect();
                if !changes.is_empty() {
                    answers.push(open.queue_batch(Some(BENCH), 1, changes, vec![], now));
                }
            }
            for waiting in answers {
                prop_assert_eq!(answer(waiting).await, Ok(()));
            }
            let open = database.reopened(open).await;
            prop_assert_eq!(&open.loaded.violations, &[]);
            let now = sample::at(ms);
            let mut found = Calendar::default();
            if let Some(rows) = open.loaded.resources.first() {
                found.holds_paused = rows.holds_paused;
                rows.bookings.iter().for_each(|booking| found.put_booking(Arc::new(booking.clone())));
                for (hold, expires_at) in &rows.holds {
                    let deadline = match hold.status {
                        HoldStatus::Active => now.run_at(*expires_at, hold.ttl),
                        // Of one that is over the deadline lies behind, where no run begins.
                        _ => memory.calendar.hold(&hold.id).unwrap().deadline,
                    };
                    // As it was last written; of this run the deadline is the truth.
                    let expires_at = memory.calendar.hold(&hold.id).unwrap().expires_at;
                    found.put_hold(HeldSlot { hold: Arc::new(hold.clone()), deadline, expires_at });
                }
            }
            prop_assert_eq!(found, memory.calendar);
            Ok(())
        })?;
    }
}
