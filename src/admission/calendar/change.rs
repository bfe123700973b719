//! Facts of a calendar: what a transaction writes and what [`apply`] makes true.

use std::sync::Arc;

use jiff::Timestamp;

use super::{Calendar, Claim, ClaimOf, HeldSlot};
use crate::clock::RunTime;
use crate::model::{Booking, BookingId, Hold, HoldId, HoldStatus, Window};

/// A fact of one resource's calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CalendarChange {
    /// A booking is there, or is another than it was.
    Booking {
        /// As it is now.
        booking: Arc<Booking>,
        /// What happened to it.
        what: BookingMove,
    },
    /// A hold is there, or is another than it was.
    Hold {
        /// As it is now.
        hold: Arc<Hold>,
        /// What happened to it.
        what: HoldMove,
        /// When it ends, on run time.
        deadline: RunTime,
        /// The same as wall time, for the disk.
        expires_at: Timestamp,
    },
    /// What was over for long enough is remembered no more.
    Forgotten {
        /// These bookings.
        bookings: Vec<BookingId>,
        /// These holds.
        holds: Vec<HoldId>,
    },
    /// No new holds are made here, or they are again.
    HoldsPaused(bool),
}

/// What happened to a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BookingMove {
    /// It was made.
    Created,
    /// It has another window than this one.
    Rescheduled(Window),
    /// It was given up: by its owner, or by an admin who is not.
    Cancelled {
        /// True for the second.
        by_admin: bool,
    },
    /// Its holder has its lease.
    Fulfilled,
    /// Nobody came, or there was no room in its whole window.
    Missed(Miss),
    /// The lease that fulfilled it is over, so the rest of its window is free.
    Freed,
}

/// Why a booking came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Miss {
    /// Its holder did not claim it in time.
    NoShow,
    /// The resource was not free in its whole window.
    Overrun,
    /// The device could not be made ready for it.
    DeviceFailed,
}

impl Miss {
    /// The word in the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Miss::NoShow => "no-show",
            Miss::Overrun => "overrun",
            Miss::DeviceFailed => "device-failed",
        }
    }
}

/// What happened to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldMove {
    /// It was made.
    Created,
    /// It has another token; the former one is dead.
    Reissued,
    /// It has become a booking.
    Confirmed,
    /// It was given back: with its token, or by an admin without.
    Released {
        /// True for the second.
        by_admin: bool,
    },
    /// Its time has passed.
    Expired,
    /// The wall clock was set, and the disk is to say again when it ends.
    Rewritten,
}

/// Makes a fact true.
pub fn apply(calendar: &mut Calendar, change: CalendarChange) {
    match change {
        CalendarChange::Booking { booking, .. } => calendar.put_booking(booking),
        CalendarChange::Hold { hold, deadline, expires_at, .. } => {
            calendar.put_hold(HeldSlot { hold, deadline, expires_at });
        }
        CalendarChange::Forgotten { bookings, holds } => {
            bookings.iter().for_each(|id| calendar.drop_booking(id));
            holds.iter().for_each(|id| calendar.drop_hold(id));
        }
        CalendarChange::HoldsPaused(paused) => calendar.holds_paused = paused,
    }
}

impl Calendar {
    /// Takes a booking in; the one of the same id is replaced.
    pub fn put_booking(&mut self, booking: Arc<Booking>) {
        self.drop_booking(&booking.id);
        let starts_at = booking.window.starts_at();
        if booking.claims {
            let of = ClaimOf::Booking(booking.id.clone());
            self.claim(booking.window, Claim { ends_at: booking.window.ends_at(), holder: booking.holder.clone(), of });
        }
        if let (true, Some(lease)) = (booking.claims, &booking.lease_id) {
            self.leases.insert((lease.clone(), booking.id.clone()));
        }
        self.longest = self.longest.max(booking.window.width());
        self.starts.insert(booking.id.clone(), starts_at);
        self.bookings.insert((starts_at, booking.id.clone()), booking);
    }

    fn drop_booking(&mut self, id: &BookingId) {
        let Some(starts_at) = self.starts.remove(id) else { return };
        if let Some(former) = self.bookings.remove(&(starts_at, id.clone()))
            && former.claims
        {
            self.unclaim(starts_at, &ClaimOf::Booking(id.clone()));
            if let Some(lease) = &former.lease_id {
                self.leases.remove(&(lease.clone(), id.clone()));
            }
        }
    }

    /// Takes a hold in; the one of the same id is replaced.
    pub fn put_hold(&mut self, held: HeldSlot) {
        let id = held.hold.id.clone();
        self.drop_hold(&id);
        let hold = &held.hold;
        if hold.status == HoldStatus::Active {
            let claim =
                Claim { ends_at: hold.window.ends_at(), holder: hold.holder.clone(), of: ClaimOf::Hold(id.clone()) };
            self.claim(hold.window, claim);
            self.deadlines.insert((held.deadline, id.clone()));
            if let Some(key) = &hold.key {
                self.keys.insert((hold.holder.clone(), key.clone()), id.clone());
            }
        }
        self.holds.insert(id, held);
    }

    fn drop_hold(&mut self, id: &HoldId) {
        let Some(HeldSlot { hold, deadline, .. }) = self.holds.remove(id) else { return };
        if hold.status == HoldStatus::Active {
            self.unclaim(hold.window.starts_at(), &ClaimOf::Hold(id.clone()));
            self.deadlines.remove(&(deadline, id.clone()));
            if let Some(key) = &hold.key {
                self.keys.remove(&(hold.holder.clone(), key.clone()));
            }
        }
    }

    fn claim(&mut self, window: Window, claim: Claim) {
        let starts_at = window.starts_at();
        if let Some(former) = self.claims.insert(starts_at, claim) {
            self.displaced.push_back((starts_at, former));
        }
    }

    fn unclaim(&mut self, starts_at: Timestamp, of: &ClaimOf) {
        let of_slot = |(at, _): &(Timestamp, Claim)| *at == starts_at;
        if self.claims.get(&starts_at).is_some_and(|claim| claim.of == *of) {
            self.claims.remove(&starts_at);
            if let Some(index) = self.displaced.iter().rposition(of_slot) {
                let (_, other) = self.displaced.remove(index);
                self.claims.insert(starts_at, other);
            }
        } else {
            self.displaced.retain(|(at, claim)| *at != starts_at || claim.of != *of);
        }
    }
}
