//! What is asked of a resource with bookings, at random.

use std::time::Duration;

use berth::admission::calendar::CalendarCommand;
use berth::admission::resource::{Command, Otherwise};
use berth::admission::{Speaker, Waiter};
use berth::clock::Now;
use berth::model::{
    Authority, BookingMode, BookingPolicy, Caller, LeftOut, Mode, Priority, Rebooking, Requester, Role, Slot,
    SlotLength, TokenHash, WaitPolicy, Window,
};
use jiff::Timestamp;
use proptest::prelude::*;

use crate::calendar_rules::diary::{admin, booking, hold};
use crate::resource_rules::device::{Device, rank, unattended, waiter};
use crate::sample;

const HOLDERS: [&str; 3] = ["kim", "ruth", "omar"];

/// What is done in one step.
#[derive(Debug, Clone)]
pub struct Step {
    /// How far both clocks go on first.
    pub after: Duration,
    /// True to go on just so far that the next edge of a window is met, if there is one.
    pub to_edge: bool,
    /// How far the wall clock is set, besides.
    pub wall_set_s: i64,
    pub asked: Asked,
}

#[derive(Debug, Clone)]
pub enum Asked {
    Ask(Attempt, Otherwise),
    Offer(Attempt),
    Renew { lease: usize, ttl_ms: Option<u64>, allow_shorter: bool, by_admin: bool },
    Release { lease: usize },
    Leave { holder: usize },
    Drain(bool),
    Book { holder: usize, at: Planned },
    Hold { holder: usize, at: Planned },
    Confirm { hold: usize },
    ReleaseHold { hold: usize },
    Cancel { booking: usize },
    Reschedule { booking: usize, at: Planned },
    Serve,
    Wake,
    Edge,
    Rewrite,
}

#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    holder: usize,
    shared: bool,
    priority: i32,
    ttl_ms: u64,
    allow_shorter: bool,
    by_admin: bool,
}

/// A window, in spans of five seconds: from the last full one, and how many.
#[derive(Debug, Clone, Copy)]
pub struct Planned(i64, i64);

impl Planned {
    fn slot(self, now: Now) -> Slot {
        let span = 5_000_000;
        let full = now.wall.as_microsecond().div_euclid(span);
        let at = |spans: i64| Timestamp::from_microsecond((full + spans) * span).unwrap();
        Slot { starts_at: at(self.0), length: SlotLength::Until(at(self.0 + self.1)) }
    }
}

pub fn policies() -> impl Strategy<Value = BookingPolicy> {
    let no_show = prop_oneof![Just(None), Just(Some(Duration::from_secs(4))), Just(Some(Duration::from_millis(6_500)))];
    let mode = prop_oneof![1 => Just(BookingMode::Advisory), 2 => Just(BookingMode::Enforced)];
    (mode, any::<bool>(), no_show).prop_map(|(mode, auto_acquire, no_show_after)| BookingPolicy {
        mode,
        auto_acquire,
        no_show_after,
    })
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, any) = (|| 0..HOLDERS.len(), any::<usize>);
    let ttl =
        || prop_oneof![6 => (1..20u64).prop_map(|seconds| seconds * 1_000), 2 => 1..20_000u64, 1 => 500..1_500u64];
    let attempt = || {
        let rest = (prop::bool::weighted(0.4), prop::bool::weighted(0.1));
        (who(), prop::bool::weighted(0.3), prop_oneof![3 => Just(0), 1 => 0..3], ttl(), rest).prop_map(
            |(holder, shared, priority, ttl_ms, (allow_shorter, by_admin))| Attempt {
                holder,
                shared,
                priority,
                ttl_ms,
                allow_shorter,
                by_admin,
            },
        )
    };
    let otherwise = prop_oneof![
        3 => Just(Otherwise::Join),
        4 => Just(Otherwise::Wait(WaitPolicy::Wait { timeout: None })),
        2 => Just(Otherwise::Refuse(WaitPolicy::Fail)),
        1 => Just(Otherwise::Refuse(WaitPolicy::NoWait)),
        1 => Just(Otherwise::Decline(WaitPolicy::NoWait)),
    ];
    let planned = || (0..8i64, 1..6i64).prop_map(|(from, spans)| Planned(from, spans));
    let asked = prop_oneof![
        12 => (attempt(), otherwise).prop_map(|(attempt, otherwise)| Asked::Ask(attempt, otherwise)),
        2 => attempt().prop_map(Asked::Offer),
        5 => (any(), prop::option::of(ttl()), prop::bool::ANY, prop::bool::weighted(0.1)).prop_map(
            |(lease, ttl_ms, allow_shorter, by_admin)| Asked::Renew { lease, ttl_ms, allow_shorter, by_admin }
        ),
        5 => any().prop_map(|lease| Asked::Release { lease }),
        1 => who().prop_map(|holder| Asked::Leave { holder }),
        1 => prop::bool::weighted(0.3).prop_map(Asked::Drain),
        9 => (who(), planned()).prop_map(|(holder, at)| Asked::Book { holder, at }),
        3 => (who(), planned()).prop_map(|(holder, at)| Asked::Hold { holder, at }),
        2 => any().prop_map(|hold| Asked::Confirm { hold }),
        1 => any().prop_map(|hold| Asked::ReleaseHold { hold }),
        2 => any().prop_map(|booking| Asked::Cancel { booking }),
        2 => (any(), planned()).prop_map(|(booking, at)| Asked::Reschedule { booking, at }),
        1 => Just(Asked::Serve),
        2 => Just(Asked::Wake),
        3 => Just(Asked::Edge),
        1 => Just(Asked::Rewrite),
    ];
    let after = prop_oneof![
        3 => Just(Duration::ZERO),
        6 => (0..8u64).prop_map(Duration::from_secs),
        3 => (0..8_000_000u64).prop_map(Duration::from_micros),
        1 => (0..60u64).prop_map(Duration::from_secs),
    ];
    let wall = prop_oneof![20 => Just(0i64), 1 => -20..20i64];
    let step = (after, prop::bool::weighted(0.2), wall, asked).prop_map(|(after, to_edge, wall_set_s, asked)| Step {
        after,
        to_edge,
        wall_set_s,
        asked,
    });
    prop::collection::vec(step, 1..40)
}

fn one<T: Clone>(all: &[T], index: usize) -> Option<T> {
    index.checked_rem(all.len() + 1).and_then(|index| all.get(index)).cloned()
}

pub fn token() -> TokenHash {
    TokenHash::of("the token of every hold here")
}

impl Asked {
    pub fn command(&self, number: usize, device: &Device, now: Now) -> Command {
        let (ms, calendar) = (Duration::from_millis, &device.state.calendar);
        let requester = |index: usize| -> Requester { sample::text(HOLDERS[index]) };
        let lease = |index: usize| {
            let known = one(&device.state.held, index);
            known.map_or_else(|| sample::text("unknown"), |held| held.lease.id)
        };
        let bookings: Vec<_> = calendar.bookings().map(|it| it.id.clone()).collect();
        let mut holds: Vec<_> = calendar.holds().map(|held| held.hold.id.clone()).collect();
        holds.sort();
        let booked = |index: usize| one(&bookings, index).unwrap_or_else(|| booking(0));
        let held = |index: usize| one(&holds, index).unwrap_or_else(|| hold(0));
        let by_operator = || Authority::Client(Caller::admin());
        let owner = |index: usize, by_admin: bool| match one(&device.state.held, index).filter(|_| !by_admin) {
            Some(held) => Authority::Client(Caller { principal: held.lease.holder.principal, role: Role::Agent }),
            None => by_operator(),
        };
        let calendar = match self {
            Asked::Ask(attempt, otherwise) => {
                let waits = !matches!(otherwise, Otherwise::Join | Otherwise::Refuse(WaitPolicy::Fail));
                let it = attempt.waiter(number, now);
                let waiter = Box::new(if waits { it } else { unattended(it, now) });
                let (left_out, speaker) = (LeftOut::default(), Speaker::Requester);
                return Command::Ask { waiter, otherwise: *otherwise, left_out, speaker };
            }
            Asked::Offer(attempt) => {
                return Command::Offer { waiter: Box::new(attempt.waiter(number, now)), stored: true };
            }
            Asked::Renew { lease: index, ttl_ms, allow_shorter, by_admin } => {
                return Command::Renew {
                    lease: lease(*index),
                    fence: None,
                    ttl: ttl_ms.map(ms),
                    allow_shorter: *allow_shorter,
                    authority: owner(*index, *by_admin),
                };
            }
            Asked::Release { lease: index } => {
                return Command::Release { lease: lease(*index), fence: None, authority: by_operator() };
            }
            Asked::Leave { holder } => return Command::Leave { holder: requester(*holder) },
            Asked::Drain(drained) => return Command::Drain(*drained),
            Asked::Serve => return Command::Serve { freed: None },
            Asked::Wake => return Command::Wake,
            Asked::Edge => return Command::Edge,
            Asked::Rewrite => return Command::Rewrite,
            Asked::Book { holder, at } => {
                let windows = vec![(booking(number), at.slot(now))];
                CalendarCommand::Book { holder: requester(*holder), windows, series: None, note: None }
            }
            Asked::Hold { holder, at } => CalendarCommand::Hold {
                id: hold(number),
                holder: requester(*holder),
                slot: at.slot(now),
                ttl: Some(ms(12_000)),
                key: None,
                token: token(),
            },
            Asked::Confirm { hold } => {
                let (hold, booking) = (held(*hold), booking(number));
                CalendarCommand::Confirm { hold, token: token(), booking, full: false, note: None }
            }
            Asked::ReleaseHold { hold } => {
                CalendarCommand::Release { hold: held(*hold), token: Some(token()), asker: admin() }
            }
            Asked::Cancel { booking } => {
                CalendarCommand::Cancel { booking: booked(*booking), following: false, asker: admin() }
            }
            Asked::Reschedule { booking, at } => {
                let Slot { starts_at, length } = at.slot(now);
                let to = Rebooking { starts_at: Some(starts_at), length: Some(length) };
                CalendarCommand::Reschedule { booking: booked(*booking), to, asker: admin() }
            }
        };
        Command::Calendar(calendar)
    }
}

impl Attempt {
    fn waiter(&self, number: usize, now: Now) -> Waiter {
        let mut it = waiter(number, HOLDERS[self.holder], now);
        it.proposal.mode = if self.shared { Mode::Shared } else { Mode::Exclusive };
        it.proposal.priority = Priority::try_from(f64::from(self.priority)).unwrap();
        it.proposal.ttl = Duration::from_millis(self.ttl_ms);
        it.proposal.allow_shorter = self.allow_shorter;
        it.proposal.by_admin = self.by_admin;
        it.rank = rank(self.priority, now, 1, number, None);
        it
    }
}

/// The windows that somebody else has of a resource.
pub fn taken_from(device: &berth::admission::resource::ResourceState, holder: &Requester) -> Vec<Window> {
    let bookings = device.calendar.bookings().filter(|it| it.claims && it.holder != *holder).map(|it| it.window);
    let holds = device.calendar.holds().map(|held| &held.hold);
    let holds = holds.filter(|it| it.settled_at.is_none() && it.holder != *holder).map(|it| it.window);
    bookings.chain(holds).collect()
}
