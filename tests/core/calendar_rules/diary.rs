//! The calendar of one technician, as its actor keeps it.

use std::time::Duration;

use berth::admission::CalendarRules;
use berth::admission::calendar::{Around, Calendar, CalendarChange, CalendarCommand, CalendarReply, apply, decide};
use berth::clock::Now;
use berth::model::{Asker, BookingId, HoldId, Refusal, Requester, ResourceId, Role, SeriesId, Slot, SlotLength};
use jiff::Timestamp;

use crate::sample;

pub const QUARTER: Duration = Duration::from_secs(15 * 60);

/// A calendar and what it goes by.
pub struct Diary {
    pub resource: ResourceId,
    pub rules: CalendarRules,
    pub node_paused: bool,
    pub calendar: Calendar,
}

impl Default for Diary {
    fn default() -> Self {
        Self {
            resource: sample::text("technician-1"),
            rules: CalendarRules::default(),
            node_paused: false,
            calendar: Calendar::default(),
        }
    }
}

impl Diary {
    pub fn around(&self, now: Now) -> Around<'_> {
        Around { resource: &self.resource, rules: &self.rules, holds_paused: self.node_paused, now }
    }

    /// Settles what has expired, as every decision does.
    pub fn settle(&mut self, now: Now) {
        self.calendar.expired(now).into_iter().for_each(|change| apply(&mut self.calendar, change));
    }

    /// Does what is asked, with what has changed.
    pub fn take(
        &mut self,
        command: CalendarCommand,
        now: Now,
    ) -> Result<(Vec<CalendarChange>, CalendarReply), Refusal> {
        self.settle(now);
        let (changes, reply) = decide(&self.calendar, &self.around(now), command)?;
        changes.iter().cloned().for_each(|change| apply(&mut self.calendar, change));
        Ok((changes, reply))
    }

    /// Does what is asked.
    pub fn tell(&mut self, command: CalendarCommand, now: Now) -> Result<CalendarReply, Refusal> {
        self.take(command, now).map(|(_, reply)| reply)
    }
}

/// A booking id that sorts otherwise than the numbers do.
pub fn booking(number: usize) -> BookingId {
    sample::text(&format!("book_{:08x}-0000-4000-8000-{number:012}", number.wrapping_mul(0x9e37_79b1) as u32))
}

/// The same of a hold.
pub fn hold(number: usize) -> HoldId {
    sample::text(&format!("hold_{:08x}-0000-4000-8000-{number:012}", number.wrapping_mul(0x9e37_79b1) as u32))
}

pub fn series(number: usize) -> SeriesId {
    sample::text(&format!("series_00000000-0000-4000-8000-{number:012}"))
}

pub fn agent(name: &str) -> Asker {
    Asker { requester: sample::text(name), role: Role::Agent }
}

pub fn admin() -> Asker {
    Asker { requester: sample::text("admin"), role: Role::Admin }
}

/// `2026-08-28` at that time of day, UTC; run time begins with the day.
pub fn at(time: &str) -> Now {
    let wall = instant(time);
    let midnight: Timestamp = sample::text("2026-08-28T00:00:00Z");
    let run = Duration::try_from(wall.duration_since(midnight)).unwrap();
    Now { wall, run: berth::clock::RunTime(run) }
}

pub fn instant(time: &str) -> Timestamp {
    sample::text(&format!("2026-08-28T{time}Z"))
}

pub fn slot(from: &str, to: &str) -> Slot {
    Slot { starts_at: instant(from), length: SlotLength::Until(instant(to)) }
}

/// Books one window.
pub fn book(number: usize, holder: &str, slot: Slot) -> CalendarCommand {
    let holder: Requester = sample::text(holder);
    CalendarCommand::Book { holder, windows: vec![(booking(number), slot)], series: None, note: None }
}
