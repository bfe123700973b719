//! What bookings and holds leave of a resource for a lease (SPEC §5, §6).

use std::time::Duration;

use jiff::Timestamp;

use super::{Calendar, Claim, ClaimOf};
use crate::model::time::{remaining, whole};
use crate::model::{BookingMode, BookingPolicy, BookingStatus, Requester};

/// A lease that is cut to fit lasts at least so long.
pub const CUT_LEAST: Duration = Duration::from_secs(1);

/// For how long somebody may have a resource, as far as its calendar is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// For as long as it likes.
    Free,
    /// Until somebody else's window starts.
    Until(Timestamp),
    /// Not before this: somebody else's window.
    Booked(Timestamp),
}

impl Room {
    /// The width of a lease that may be granted now, of the one that was asked for: that, or a shorter one where the
    /// caller allows it; none when there is no room.
    pub fn fitted(self, asked: Duration, allow_shorter: bool, now: Timestamp) -> Option<Duration> {
        let left = match self {
            Room::Free => return Some(asked),
            Room::Until(at) => remaining(now, at),
            Room::Booked(_) => return None,
        };
        match asked <= left {
            true => Some(asked),
            false => (allow_shorter && left >= CUT_LEAST).then(|| whole(left)),
        }
    }

    /// How long a lease could be had.
    pub fn available_for(self, now: Timestamp) -> Duration {
        match self {
            Room::Free => Duration::MAX,
            Room::Until(at) => remaining(now, at),
            Room::Booked(_) => Duration::ZERO,
        }
    }
}

impl Calendar {
    /// What is left for `holder` now. An admin is stopped by nobody.
    pub fn room_for(&self, policy: BookingPolicy, holder: &Requester, by_admin: bool, now: Timestamp) -> Room {
        let enforced = policy.mode == BookingMode::Enforced;
        if by_admin || self.claims.is_empty() || !(enforced || policy.auto_acquire) {
            return Room::Free;
        }
        if let Some(claim) = self.claim_at(now).filter(|claim| claim.holder != *holder)
            && (enforced || self.is_scheduled(claim))
        {
            return Room::Booked(claim.ends_at);
        }
        if !enforced {
            return Room::Free;
        }
        // One's own windows stop nobody; so few are one's own that looking past them costs nothing.
        let foreign = self.claims.range(now..).find(|(starts_at, claim)| **starts_at > now && claim.holder != *holder);
        foreign.map_or(Room::Free, |(starts_at, _)| Room::Until(*starts_at))
    }

    fn is_scheduled(&self, claim: &Claim) -> bool {
        match &claim.of {
            ClaimOf::Booking(id) => self.booking(id).is_some_and(|it| it.status == BookingStatus::Scheduled),
            ClaimOf::Hold(_) => false,
        }
    }

    /// The next instant of wall time at which a window alone changes who may have the resource.
    pub fn next_edge(&self, policy: BookingPolicy, free_since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        if policy == BookingPolicy::default() || self.claims.is_empty() {
            return None;
        }
        let next = self.claims.range(now..).map(|(starts_at, _)| *starts_at).find(|starts_at| *starts_at > now);
        let claim = self.claim_at(now);
        let no_show = claim.and_then(|claim| match &claim.of {
            ClaimOf::Booking(id) => self.no_show_at(id, policy, free_since).filter(|at| *at > now),
            ClaimOf::Hold(_) => None,
        });
        [next, claim.map(|claim| claim.ends_at), no_show].into_iter().flatten().min()
    }

    /// When a scheduled booking is missed because nobody claims it, if the resource stays free for it. One that was made
    /// when its window had begun, by confirming a hold, has its time from then on.
    pub fn no_show_at(
        &self,
        id: &crate::model::BookingId,
        policy: BookingPolicy,
        free_since: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let booking = self.booking(id).filter(|booking| booking.status == BookingStatus::Scheduled)?;
        let since = free_since?.max(booking.window.starts_at()).max(booking.created_at);
        Some(crate::model::time::later(since, policy.no_show_after?))
    }
}
