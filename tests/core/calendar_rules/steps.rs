//! What is asked of the calendar, at random.

use std::time::Duration;

use berth::admission::calendar::{BookingMove, CalendarChange, CalendarCommand, Miss};
use berth::clock::Now;
use berth::model::{
    Asker, Booking, BookingId, BookingStatus, Every, HoldId, Rebooking, Repeat, Requester, Role, Slot, SlotLength,
    TokenHash,
};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use proptest::prelude::*;

use super::diary::{self, Diary, QUARTER};
use crate::sample;

pub const HOLDERS: [&str; 4] = ["zelda", "zelda/night-shift", "quentin", "gw:gateway:zelda"];
pub const NOTES: [&str; 2] = ["swap the fuse", "two ladders"];
/// Noon before each change of DST of 2026 in Warsaw.
const BEFORE_DST: [&str; 2] = ["2026-03-28T11:00:00Z", "2026-10-24T10:00:00Z"];

/// What is done in one step.
#[derive(Debug, Clone)]
pub struct Step {
    pub clock: Tick,
    pub asked: Asked,
}

/// How the clocks go on first.
#[derive(Debug, Clone)]
pub enum Tick {
    /// Both.
    On(Duration),
    /// Both, to exactly where the next hold ends, or by so little before.
    ToDeadline(Duration),
    /// The wall clock is set.
    Set(i64),
    /// The wall clock is set to noon before a change of DST.
    BeforeDst(usize),
}

/// A start in quarters of an hour from the last full one, and a length in quarters.
#[derive(Debug, Clone, Copy)]
pub struct When {
    from: i64,
    quarters: i64,
    until: bool,
}

#[derive(Debug, Clone)]
pub enum Asked {
    Book {
        holder: usize,
        when: When,
        repeat: Option<(Every, i64)>,
        note: Option<usize>,
    },
    BookHeld {
        hold: usize,
        holder: Option<usize>,
    },
    Hold {
        holder: usize,
        when: When,
        ttl_s: Option<u64>,
        key: Option<usize>,
    },
    HoldAgain {
        hold: usize,
        elsewhere: bool,
    },
    Confirm {
        hold: usize,
        token: Shown,
    },
    Release {
        hold: usize,
        token: Option<Shown>,
        asker: Asker,
    },
    Reschedule {
        booking: usize,
        from: Option<i64>,
        when: Option<When>,
        asker: Asker,
    },
    Cancel {
        booking: usize,
        following: bool,
        asker: Asker,
    },
    PauseHolds(bool),
    PauseNode(bool),
    Forget {
        bookings: Vec<usize>,
        holds: Vec<usize>,
    },
    /// What leases make of a booking: fulfilled, freed or missed.
    Lease {
        booking: usize,
        what: BookingMove,
    },
}

/// Which token somebody shows.
#[derive(Debug, Clone, Copy)]
pub enum Shown {
    Latest,
    First,
    Other,
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let when = || {
        let quarters = prop_oneof![12 => 1..=6i64, 1 => Just(0), 1 => Just(-2), 1 => Just(9)];
        (-2..=24i64, quarters, any::<bool>()).prop_map(|(from, quarters, until)| When { from, quarters, until })
    };
    let (who, any) = (|| 0..HOLDERS.len(), any::<usize>);
    let shown = || prop_oneof![6 => Just(Shown::Latest), 1 => Just(Shown::First), 1 => Just(Shown::Other)];
    let asker = || {
        let role = prop_oneof![8 => Just(Role::Agent), 2 => Just(Role::Admin), 1 => Just(Role::Viewer)];
        (who(), role).prop_map(|(who, role)| Asker { requester: sample::text(HOLDERS[who]), role })
    };
    let repeat = prop::option::weighted(0.3, (prop_oneof![3 => Just(Every::Day), 1 => Just(Every::Week)], 0..9i64));
    let ttl = || prop::option::of(prop_oneof![1..120u64, Just(600), 1_700..1_900u64]);
    let what = prop_oneof![
        3 => Just(BookingMove::Fulfilled),
        2 => Just(BookingMove::Freed),
        1 => Just(BookingMove::Missed(Miss::NoShow)),
    ];
    let indices = || prop::collection::vec(any(), 0..4);
    let asked = prop_oneof![
        8 => (who(), when(), repeat, prop::option::of(0..NOTES.len()))
            .prop_map(|(holder, when, repeat, note)| Asked::Book { holder, when, repeat, note }),
        2 => (any(), prop::option::of(who())).prop_map(|(hold, holder)| Asked::BookHeld { hold, holder }),
        8 => (who(), when(), ttl(), prop::option::of(0..2usize))
            .prop_map(|(holder, when, ttl_s, key)| Asked::Hold { holder, when, ttl_s, key }),
        2 => (any(), prop::bool::weighted(0.2)).prop_map(|(hold, elsewhere)| Asked::HoldAgain { hold, elsewhere }),
        5 => (any(), shown()).prop_map(|(hold, token)| Asked::Confirm { hold, token }),
        3 => (any(), prop::option::weighted(0.7, shown()), asker())
            .prop_map(|(hold, token, asker)| Asked::Release { hold, token, asker }),
        6 => (any(), prop::option::of(-4..8i64), prop::option::of(when()), asker())
            .prop_map(|(booking, from, when, asker)| Asked::Reschedule { booking, from, when, asker }),
        4 => (any(), prop::bool::weighted(0.4), asker())
            .prop_map(|(booking, following, asker)| Asked::Cancel { booking, following, asker }),
        1 => prop::bool::weighted(0.3).prop_map(Asked::PauseHolds),
        1 => prop::bool::weighted(0.3).prop_map(Asked::PauseNode),
        1 => (indices(), indices()).prop_map(|(bookings, holds)| Asked::Forget { bookings, holds }),
        3 => (any(), what).prop_map(|(booking, what)| Asked::Lease { booking, what }),
    ];
    let clock = prop_oneof![
        10 => (0..900_000_000u64).prop_map(|us| Tick::On(Duration::from_micros(us))),
        4 => Just(Tick::On(Duration::ZERO)),
        3 => Just(Tick::On(QUARTER)),
        1 => (0..40u64).prop_map(|hours| Tick::On(QUARTER * 4 * hours as u32)),
        2 => (0..2u64).prop_map(|ns| Tick::ToDeadline(Duration::from_nanos(ns))),
        1 => (0..2u64).prop_map(|us| Tick::ToDeadline(Duration::from_micros(us))),
        1 => (-7_200..7_200i64).prop_map(Tick::Set),
        1 => (0..2usize).prop_map(Tick::BeforeDst),
    ];
    prop::collection::vec((clock, asked).prop_map(|(clock, asked)| Step { clock, asked }), 1..50)
}

impl Tick {
    pub fn after(&self, now: Now, diary: &Diary) -> Now {
        let on = |span: Duration| {
            let wall = now.wall.checked_add(span).unwrap();
            // The wall clock shows whole microseconds.
            Now { wall: Timestamp::from_microsecond(wall.as_microsecond()).unwrap(), run: now.run + span }
        };
        match self {
            Tick::On(span) => on(*span),
            Tick::ToDeadline(before) => {
                on(diary.calendar.next_deadline().map_or(QUARTER, |at| at.left(now.run).saturating_sub(*before)))
            }
            Tick::Set(seconds) => Now { wall: now.wall.checked_add(Span::new().seconds(*seconds)).unwrap(), ..now },
            Tick::BeforeDst(which) => Now { wall: sample::text(BEFORE_DST[*which]), ..now },
        }
    }
}

impl When {
    fn slot(self, now: Now) -> Slot {
        let quarter = QUARTER.as_micros() as i64;
        let full = now.wall.as_microsecond().div_euclid(quarter);
        let at = |quarters: i64| Timestamp::from_microsecond((full + quarters) * quarter).unwrap();
        let length = match (self.until, u32::try_from(self.quarters)) {
            (false, Ok(quarters)) => SlotLength::Lasting(QUARTER * quarters),
            _ => SlotLength::Until(at(self.from + self.quarters)),
        };
        Slot { starts_at: at(self.from), length }
    }
}

/// What callers remember: every token that was given out for a hold, and how many names they have used.
#[derive(Default)]
pub struct Callers {
    pub tokens: Vec<(HoldId, TokenHash)>,
    names: usize,
}

impl Callers {
    fn name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    fn token(&mut self) -> TokenHash {
        TokenHash::of(&format!("token {}", self.name()))
    }

    fn shown(&self, hold: &HoldId, shown: Shown) -> TokenHash {
        let mut given = self.tokens.iter().filter(|(id, _)| id == hold).map(|(_, token)| *token);
        let token = match shown {
            Shown::Latest => given.next_back(),
            Shown::First => given.next(),
            Shown::Other => None,
        };
        token.unwrap_or(TokenHash::of("guessed"))
    }

    /// One of them, or one that nothing has.
    fn pick<T: Clone>(all: &[T], index: usize) -> Option<T> {
        index.checked_rem(all.len() + 1).and_then(|index| all.get(index)).cloned()
    }

    /// The command, or a change that the leases of the resource make, if there is something to ask.
    pub fn command(&mut self, asked: &Asked, diary: &Diary, now: Now) -> Result<CalendarCommand, CalendarChange> {
        let calendar = &diary.calendar;
        let bookings: Vec<_> = calendar.bookings().cloned().collect();
        let mut holds: Vec<_> = calendar.holds().map(|held| held.hold.clone()).collect();
        holds.sort_by_key(|hold| hold.id.clone());
        let held = |index: usize| Self::pick(&holds, index);
        let hold_id = |index: usize| held(index).map_or_else(|| diary::hold(0), |hold| hold.id.clone());
        let booking_id = |index: usize| -> BookingId {
            Self::pick(&bookings, index).map_or_else(|| diary::booking(0), |booking| booking.id.clone())
        };
        let holder = |index: usize| -> Requester { sample::text(HOLDERS[index]) };
        let key = |index: usize| sample::text(["try-1", "try-2"][index]);
        Ok(match asked {
            Asked::Book { holder: who, when, repeat, note } => {
                let slot = when.slot(now);
                let starts = repeat.as_ref().map_or(vec![slot.starts_at], |(every, days)| {
                    let zone = TimeZone::get("Europe/Warsaw").unwrap();
                    let until = zone.to_datetime(slot.starts_at).date().checked_add(Span::new().days(*days)).unwrap();
                    let repeat = Repeat { every: *every, until, tz: sample::text("Europe/Warsaw") };
                    repeat.starts(slot.starts_at).unwrap()
                });
                let length = match (repeat, slot.length) {
                    (Some(_), SlotLength::Until(at)) => {
                        SlotLength::Lasting(Duration::try_from(at.duration_since(slot.starts_at)).unwrap_or_default())
                    }
                    (_, length) => length,
                };
                let slots = starts.into_iter().map(|starts_at| Slot { starts_at, length });
                let windows = slots.map(|slot| (diary::booking(self.name()), slot)).collect();
                let series = repeat.is_some().then(|| diary::series(self.name()));
                let note = note.map(|note| sample::text(NOTES[note]));
                CalendarCommand::Book { holder: holder(*who), windows, series, note }
            }
            Asked::BookHeld { hold, holder: who } => {
                let booking = diary::booking(self.name());
                let slot = held(*hold).map(|hold| Slot {
                    starts_at: hold.window.starts_at(),
                    length: SlotLength::Until(hold.window.ends_at()),
                });
                let slot = slot.unwrap_or_else(|| When { from: 1, quarters: 1, until: false }.slot(now));
                let own = held(*hold).map(|hold| hold.holder.clone());
                let holder = who.map(holder).or(own).unwrap_or_else(|| holder(0));
                CalendarCommand::Book { holder, windows: vec![(booking, slot)], series: None, note: None }
            }
            Asked::Hold { holder: who, when, ttl_s, key: named } => CalendarCommand::Hold {
                id: diary::hold(self.name()),
                holder: holder(*who),
                slot: when.slot(now),
                ttl: ttl_s.map(Duration::from_secs),
                key: named.map(key),
                token: self.token(),
            },
            Asked::HoldAgain { hold, elsewhere } => {
                let known = held(*hold);
                let later = if *elsewhere { QUARTER } else { Duration::ZERO };
                let slot = known.as_ref().map(|hold| Slot {
                    starts_at: hold.window.starts_at(),
                    length: SlotLength::Until(hold.window.ends_at().checked_add(later).unwrap()),
                });
                CalendarCommand::Hold {
                    id: diary::hold(self.name()),
                    holder: known.as_ref().map_or_else(|| holder(1), |hold| hold.holder.clone()),
                    slot: slot.unwrap_or_else(|| When { from: 3, quarters: 2, until: true }.slot(now)),
                    ttl: None,
                    key: known.map_or_else(|| Some(key(0)), |hold| hold.key.clone()),
                    token: self.token(),
                }
            }
            Asked::Confirm { hold, token } => CalendarCommand::Confirm {
                hold: hold_id(*hold),
                token: self.shown(&hold_id(*hold), *token),
                booking: diary::booking(self.name()),
                full: false,
                note: None,
            },
            Asked::Release { hold, token, asker } => CalendarCommand::Release {
                hold: hold_id(*hold),
                token: token.map(|token| self.shown(&hold_id(*hold), token)),
                asker: asker.clone(),
            },
            Asked::Reschedule { booking, from, when, asker } => {
                let known = Self::pick(&bookings, *booking);
                let quarter = QUARTER.as_micros() as i64;
                let moved = |by: i64, at: Timestamp| Timestamp::from_microsecond(at.as_microsecond() + by * quarter);
                let near = from.zip(known.as_ref()).map(|(by, it)| moved(by, it.window.starts_at()).unwrap());
                let to = match (near, when) {
                    (Some(starts_at), None) => Rebooking { starts_at: Some(starts_at), length: None },
                    (None, Some(when)) => {
                        let length = SlotLength::Lasting(QUARTER * u32::try_from(when.quarters).unwrap_or(0));
                        Rebooking { starts_at: None, length: Some(length) }
                    }
                    (_, Some(when)) => {
                        let Slot { starts_at, length } = when.slot(now);
                        Rebooking { starts_at: Some(starts_at), length: Some(length) }
                    }
                    (None, None) => Rebooking::default(),
                };
                CalendarCommand::Reschedule { booking: booking_id(*booking), to, asker: asker.clone() }
            }
            Asked::Cancel { booking, following, asker } => {
                CalendarCommand::Cancel { booking: booking_id(*booking), following: *following, asker: asker.clone() }
            }
            Asked::PauseHolds(paused) => CalendarCommand::PauseHolds(*paused),
            Asked::PauseNode(_) => CalendarCommand::Forget { bookings: vec![], holds: vec![] },
            Asked::Forget { bookings, holds } => CalendarCommand::Forget {
                bookings: bookings.iter().map(|index| booking_id(*index)).collect(),
                holds: holds.iter().map(|index| hold_id(*index)).collect(),
            },
            Asked::Lease { booking, what } => {
                let known = Self::pick(&bookings, *booking).and_then(|it| leased(&it, *what, now));
                let Some(booking) = known else { return Ok(CalendarCommand::PauseHolds(false)) };
                return Err(CalendarChange::Booking { booking: booking.into(), what: *what });
            }
        })
    }
}

/// What the leases of a resource make of a booking, if it is one of which they can.
fn leased(it: &Booking, what: BookingMove, now: Now) -> Option<Booking> {
    let open = it.status == BookingStatus::Scheduled && it.window.contains(now.wall);
    let settled = |status, claims| Booking { status, claims, settled_at: Some(now.wall), ..it.clone() };
    match what {
        BookingMove::Fulfilled if open => {
            Some(Booking { lease_id: Some(sample::text("lse_1")), ..settled(BookingStatus::Fulfilled, true) })
        }
        BookingMove::Missed(_) if open => Some(settled(BookingStatus::Missed, false)),
        BookingMove::Freed if it.status == BookingStatus::Fulfilled && it.claims => {
            Some(Booking { claims: false, ..it.clone() })
        }
        _ => None,
    }
}
