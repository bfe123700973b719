//! The calendar of one resource: bookings and holds, no two of which overlap (SPEC §5, §6).
//!
//! [`decide`] answers a command with changes and a reply and touches nothing; [`apply`] is the only way the calendar moves.
//! What a booking means for leases is decided with the resource, by [`Doors`].

mod book;
mod change;
mod guard;
pub(super) mod history;
mod hold;
mod list;
mod outcome;
mod room;

use std::sync::Arc;
use std::time::Duration;

use imbl::{HashMap, OrdMap, OrdSet, Vector};
use jiff::Timestamp;

pub use self::book::{not_your_booking, unknown_booking};
pub use self::change::{BookingMove, CalendarChange, HoldMove, Miss, apply};
pub use self::guard::guarded;
pub use self::hold::{hold_conflict, holds_are_paused, not_your_hold, other_slot, too_many_bookings, unknown_hold};
pub use self::outcome::outcome;
pub use self::room::{CUT_LEAST, Doors, Room};
use super::CalendarRules;
use crate::clock::{Now, RunTime};
use crate::model::{
    Asker, Booking, BookingId, BookingStatus, Hold, HoldId, IdempotencyKey, LeaseId, Note, Rebooking, Refusal,
    Requester, ResourceId, SeriesId, Slot, TokenHash, Window,
};

/// Who has which window of a resource. Its parts are shared by clones, so a copy costs nothing.
#[derive(Debug, Clone, Default)]
pub struct Calendar {
    /// What nobody else can have, by its start; no two overlap.
    claims: OrdMap<Timestamp, Claim>,
    /// What a damaged database holds of a slot beside that; when the one goes, the other has the slot.
    displaced: Vector<(Timestamp, Claim)>,
    /// The longest window that there has been.
    longest: Duration,
    /// Every booking that is remembered, in the order of the windows.
    bookings: OrdMap<(Timestamp, BookingId), Arc<Booking>>,
    starts: HashMap<BookingId, Timestamp>,
    /// Every hold that is remembered.
    holds: HashMap<HoldId, HeldSlot>,
    /// When each active hold ends.
    deadlines: OrdSet<(RunTime, HoldId)>,
    /// The bookings whose lease is not over, by that.
    leases: OrdSet<(LeaseId, BookingId)>,
    /// The keys of active holds.
    keys: HashMap<(Requester, IdempotencyKey), HoldId>,
    /// True when an operator, or the node itself, has stopped new holds here.
    pub holds_paused: bool,
}

/// Two calendars are equal that hold the same; one that has held a longer window before only looks further back.
impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.claims == other.claims
            && self.displaced == other.displaced
            && self.bookings == other.bookings
            && self.starts == other.starts
            && self.leases == other.leases
            && self.holds == other.holds
            && self.deadlines == other.deadlines
            && self.keys == other.keys
            && self.holds_paused == other.holds_paused
    }
}

impl Eq for Calendar {}

/// A window that nobody else can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The first instant after it.
    pub ends_at: Timestamp,
    /// Whose.
    pub holder: Requester,
    /// By what.
    pub of: ClaimOf,
}

/// What claims a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOf {
    /// A booking.
    Booking(BookingId),
    /// An active hold.
    Hold(HoldId),
}

/// A hold and its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldSlot {
    /// The hold.
    pub hold: Arc<Hold>,
    /// When it ends, on run time.
    pub deadline: RunTime,
    /// The same as wall time, as it was last written.
    pub expires_at: Timestamp,
}

impl HeldSlot {
    /// When it ends or has ended, wall time.
    pub fn ends(&self, now: Now) -> Timestamp {
        // Whoever has set the wall clock has not moved the deadline.
        if self.hold.settled_at.is_none() { now.wall_at(self.deadline) } else { self.expires_at }
    }
}

/// What a decision goes by, beside the calendar.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// Of which resource.
    pub resource: &'a ResourceId,
    /// The operator's numbers.
    pub rules: &'a CalendarRules,
    /// True when no new holds are made on the whole node.
    pub holds_paused: bool,
    /// When.
    pub now: Now,
}

/// What is asked of a calendar.
#[derive(Debug, Clone)]
pub enum CalendarCommand {
    /// Book windows: all of them, or none.
    Book {
        /// For whom.
        holder: Requester,
        /// The windows with the names of their bookings, in their order; at least one.
        windows: Vec<(BookingId, Slot)>,
        /// The series that they are.
        series: Option<SeriesId>,
        /// Free text.
        note: Option<Note>,
    },
    /// Give a booking another window.
    Reschedule {
        /// Which.
        booking: BookingId,
        /// The window.
        to: Rebooking,
        /// Who asks.
        asker: Asker,
    },
    /// Give a booking up.
    Cancel {
        /// Which.
        booking: BookingId,
        /// True for all later ones of its series, too.
        following: bool,
        /// Who asks.
        asker: Asker,
    },
    /// Hold a slot.
    Hold {
        /// The name it gets.
        id: HoldId,
        /// For whom.
        holder: Requester,
        /// Which.
        slot: Slot,
        /// How long; default `holds.default_ttl`.
        ttl: Option<Duration>,
        /// The caller's name for this attempt.
        key: Option<IdempotencyKey>,
        /// What is kept of the token.
        token: TokenHash,
    },
    /// Turn a hold into a booking.
    Confirm {
        /// Which.
        hold: HoldId,
        /// What the caller shows.
        token: TokenHash,
        /// The name that the booking gets.
        booking: BookingId,
        /// True when the hold's owner has as many bookings as one may.
        full: bool,
        /// Free text for the booking.
        note: Option<Note>,
    },
    /// Give a hold back.
    Release {
        /// Which.
        hold: HoldId,
        /// What the caller shows; an admin needs none.
        token: Option<TokenHash>,
        /// Who asks.
        asker: Asker,
    },
    /// Stop new holds here, or make them again.
    PauseHolds(bool),
    /// Remember these no more, as far as they are over.
    Forget {
        /// Bookings.
        bookings: Vec<BookingId>,
        /// Holds.
        holds: Vec<HoldId>,
    },
}

/// The answer to a command, to be given once its changes are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CalendarReply {
    /// These are booked.
    Booked(Vec<Arc<Booking>>),
    /// The booking as it is now: rescheduled, or what a hold has become.
    Booking(Arc<Booking>),
    /// It is given up, and with it these later ones of its series.
    Cancelled(Arc<Booking>, Vec<Arc<Booking>>),
    /// The hold as it is now.
    Hold(HeldSlot),
    /// It is done.
    Done,
}

impl CalendarReply {
    /// The same with its bookings as they are in `calendar`: one whose window has begun may be fulfilled at once.
    pub(super) fn brought_up_to(self, calendar: &Calendar) -> Self {
        let now = |it: Arc<Booking>| calendar.booking(&it.id).cloned().unwrap_or(it);
        match self {
            CalendarReply::Booked(all) => CalendarReply::Booked(all.into_iter().map(now).collect()),
            CalendarReply::Booking(it) => CalendarReply::Booking(now(it)),
            CalendarReply::Cancelled(..) | CalendarReply::Hold(_) | CalendarReply::Done => self,
        }
    }
}

/// What a command leads to.
pub type Decided = Result<(Vec<CalendarChange>, CalendarReply), Refusal>;

/// Decides a command. Holds whose time has passed are settled before ([`Calendar::expired`]).
///
/// # Errors
/// The refusals of SPEC §5 and §6; then nothing changes.
pub fn decide(calendar: &Calendar, around: &Around<'_>, command: CalendarCommand) -> Decided {
    match command {
        CalendarCommand::Book { holder, windows, series, note } => {
            book::book(calendar, around, &holder, &windows, series.as_ref(), note.as_ref())
        }
        CalendarCommand::Reschedule { booking, to, asker } => book::reschedule(calendar, around, &booking, to, &asker),
        CalendarCommand::Cancel { booking, following, asker } => {
            book::cancel(calendar, around, &booking, following, &asker)
        }
        CalendarCommand::Hold { id, holder, slot, ttl, key, token } => {
            hold::hold(calendar, around, hold::Wanted { id, holder, slot, ttl, key, token })
        }
        CalendarCommand::Confirm { hold, token, booking, full, note } => {
            hold::confirm(calendar, around, &hold, &token, booking, full, note)
        }
        CalendarCommand::Release { hold, token, asker } => hold::release(calendar, around, &hold, token, &asker),
        CalendarCommand::PauseHolds(paused) if calendar.holds_paused == paused => Ok((Vec::new(), CalendarReply::Done)),
        CalendarCommand::PauseHolds(paused) => Ok((vec![CalendarChange::HoldsPaused(paused)], CalendarReply::Done)),
        CalendarCommand::Forget { bookings, holds } => {
            Ok((calendar.forget(bookings, holds, around.now), CalendarReply::Done))
        }
    }
}

impl Calendar {
    /// True when nothing at all is in it.
    pub fn is_empty(&self) -> bool {
        self.bookings.is_empty() && self.holds.is_empty()
    }

    /// A booking.
    pub fn booking(&self, id: &BookingId) -> Option<&Arc<Booking>> {
        self.bookings.get(&(*self.starts.get(id)?, id.clone()))
    }

    /// A hold.
    pub fn hold(&self, id: &HoldId) -> Option<&HeldSlot> {
        self.holds.get(id)
    }

    /// Every hold that is remembered.
    pub fn holds(&self) -> impl Iterator<Item = &HeldSlot> {
        self.holds.values()
    }

    /// Every booking that is remembered, in the order of the windows.
    pub fn bookings(&self) -> impl Iterator<Item = &Arc<Booking>> {
        self.bookings.values()
    }

    /// The active hold that was made under a key.
    pub fn hold_under(&self, holder: &Requester, key: &IdempotencyKey) -> Option<&HeldSlot> {
        self.holds.get(self.keys.get(&(holder.clone(), key.clone()))?)
    }

    /// The claim that `at` lies in.
    pub fn claim_at(&self, at: Timestamp) -> Option<&Claim> {
        let (_, claim) = self.claims.range(..=at).next_back()?;
        (claim.ends_at > at).then_some(claim)
    }

    /// The claims that have an instant in common with a window, in their order.
    pub fn claims_over(&self, window: Window) -> impl Iterator<Item = (&Timestamp, &Claim)> {
        let first = self.claims.range(..window.starts_at()).next_back();
        let reaches_in = first.filter(|(_, claim)| claim.ends_at > window.starts_at());
        reaches_in.into_iter().chain(self.claims.range(window.starts_at()..window.ends_at()))
    }

    /// The bookings that a lease has fulfilled and still fulfils.
    pub fn fulfilled_by(&self, lease: &LeaseId) -> Vec<Arc<Booking>> {
        // Most resources have none at all.
        if self.leases.is_empty() {
            return Vec::new();
        }
        let of_it = self.leases.iter().filter(|(id, _)| id == lease);
        of_it.filter_map(|(_, id)| self.booking(id)).cloned().collect()
    }

    /// The scheduled bookings whose window has passed.
    pub fn scheduled_and_over(&self, now: Timestamp) -> impl Iterator<Item = Arc<Booking>> {
        let over = self.claims.range(..now).filter(move |(_, claim)| claim.ends_at <= now);
        let bookings = over.filter_map(|(_, claim)| match &claim.of {
            ClaimOf::Booking(id) => self.booking(id),
            ClaimOf::Hold(_) => None,
        });
        bookings.filter(|booking| booking.status == BookingStatus::Scheduled).cloned()
    }

    /// When the next active hold ends.
    pub fn next_deadline(&self) -> Option<RunTime> {
        self.deadlines.get_min().map(|(at, _)| *at)
    }

    /// The active holds whose time has passed, as their changes.
    pub fn expired(&self, now: Now) -> Vec<CalendarChange> {
        let past = self.deadlines.iter().take_while(|(at, _)| *at <= now.run);
        past.filter_map(|(_, id)| self.holds.get(id)).map(|held| hold::settled(held, HoldMove::Expired, now)).collect()
    }

    /// The deadlines of active holds, to be written anew because the wall clock was set.
    pub fn rewritten(&self, now: Now) -> Vec<CalendarChange> {
        let active = self.deadlines.iter().filter_map(|(_, id)| self.holds.get(id));
        let rewrite = |held: &HeldSlot| CalendarChange::Hold {
            hold: held.hold.clone(),
            what: HoldMove::Rewritten,
            deadline: held.deadline,
            expires_at: now.wall_at(held.deadline),
        };
        active.map(rewrite).collect()
    }

    /// True when so many more windows fit, beside those that are not over.
    fn has_room_for(&self, more: usize, most: usize, now: Timestamp) -> bool {
        // Those that are over are counted only where it matters: there may be many.
        let over = || self.claims.range(..now).filter(|(_, claim)| claim.ends_at <= now).count();
        self.claims.len() + more <= most || self.claims.len() - over() + more <= most
    }

    fn forget(&self, mut bookings: Vec<BookingId>, mut holds: Vec<HoldId>, now: Now) -> Vec<CalendarChange> {
        bookings.retain(|id| self.booking(id).is_some_and(|it| it.over_at() <= now.wall));
        holds.retain(|id| self.hold(id).is_some_and(|held| held.hold.settled_at.is_some()));
        match bookings.is_empty() && holds.is_empty() {
            true => Vec::new(),
            false => vec![CalendarChange::Forgotten { bookings, holds }],
        }
    }
}
