//! What bookings and holds leave of a resource for a lease (SPEC §5, §6).

use std::time::Duration;

use jiff::Timestamp;

use super::{Calendar, Claim, ClaimOf};
use crate::model::time::{remaining, whole};
use crate::model::{BookingMode, BookingPolicy, BookingStatus, Proposal, Requester};

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

/// What a calendar leaves of a resource at one instant, whoever asks. It is found once and asked for many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doors {
    /// Whose window it is, where that stops others, and until when.
    closed: Option<(Requester, Timestamp)>,
    /// The next window that stops others, and whose it is.
    next: Option<(Timestamp, Requester)>,
}

impl Doors {
    /// What is left for `holder`, as `calendar` says, of which these are the doors. An admin is stopped by nobody.
    pub fn room_for(&self, calendar: &Calendar, holder: &Requester, by_admin: bool) -> Room {
        if by_admin {
            return Room::Free;
        }
        if let Some((_, ends_at)) = self.closed.as_ref().filter(|(booker, _)| booker != holder) {
            return Room::Booked(*ends_at);
        }
        match &self.next {
            None => Room::Free,
            Some((starts_at, booker)) if booker != holder => Room::Until(*starts_at),
            // One's own windows stop nobody.
            Some((starts_at, _)) => {
                let foreign = calendar.claims.range(*starts_at..).find(|(_, claim)| claim.holder != *holder);
                foreign.map_or(Room::Free, |(starts_at, _)| Room::Until(*starts_at))
            }
        }
    }

    /// True when a lease may be granted now, as far as the calendar is concerned.
    pub fn admit(&self, calendar: &Calendar, proposal: &Proposal, now: Timestamp) -> bool {
        let room = self.room_for(calendar, &proposal.holder, proposal.by_admin);
        room.fitted(proposal.ttl, proposal.allow_shorter, now).is_some()
    }
}

impl Calendar {
    /// What it leaves of the resource now.
    pub fn doors(&self, policy: BookingPolicy, now: Timestamp) -> Doors {
        let enforced = policy.mode == BookingMode::Enforced;
        if self.claims.is_empty() || !(enforced || policy.auto_acquire) {
            return Doors::default();
        }
        let closed = self.claim_at(now).filter(|claim| enforced || self.is_scheduled(claim));
        let mut behind = self.claims.range(now..).filter(|(starts_at, _)| enforced && **starts_at > now);
        Doors {
            closed: closed.map(|claim| (claim.holder.clone(), claim.ends_at)),
            next: behind.next().map(|(starts_at, claim)| (*starts_at, claim.holder.clone())),
        }
    }

    /// The window of an enforced booking or hold that is on or comes next: its start, and what claims it.
    pub fn next_window(&self, policy: BookingPolicy, now: Timestamp) -> Option<(Timestamp, &Claim)> {
        if policy.mode != BookingMode::Enforced {
            return None;
        }
        let begun = self.claims.range(..=now).next_back().filter(|(_, claim)| claim.ends_at > now);
        let next = begun.or_else(|| self.claims.range(now..).find(|(starts_at, _)| **starts_at > now));
        next.map(|(starts_at, claim)| (*starts_at, claim))
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
        if policy.auto_acquire && self.scheduled_and_over(now).next().is_some() {
            // There were more than one decision finds missed.
            return Some(now);
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
