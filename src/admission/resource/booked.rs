//! What bookings and holds mean for the leases of a resource (SPEC §5, §6).
//!
//! A booking is settled before anything else is handed over: its holder stands before every waiter.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::draft::Draft;
use super::{Change, Departure, Held, Reply, Waiter, work};
use crate::admission::calendar::{self, BookingMove, CalendarChange, CalendarCommand, ClaimOf, Miss, Room};
use crate::model::time::{remaining, whole};
use crate::model::{
    Booking, BookingId, BookingMode, BookingPolicy, BookingStatus, Fence, Fingerprint, LeaseRecord, Mode, Proposal,
    Requester, ResourceAddress, Target,
};

/// Bookings that one decision finds missed at most; the next one finds the rest.
const MISSED_AT_ONCE_MAX: usize = 1_000;

/// Something about the calendar itself.
pub(super) fn calendar(draft: &mut Draft<'_>, command: CalendarCommand) -> Reply {
    let around = calendar::Around {
        resource: &draft.around.spec.id,
        rules: draft.around.calendar,
        holds_paused: draft.around.holds_paused,
        now: draft.around.now,
    };
    match calendar::decide(&draft.calendar, &around, command) {
        Ok((changes, reply)) => {
            changes.into_iter().for_each(|change| draft.push(Change::Calendar(change)));
            Reply::Calendar(reply)
        }
        Err(refusal) => Reply::Refused(refusal),
    }
}

/// What is left for somebody, as far as the calendar is concerned.
pub(super) fn room(draft: &Draft<'_>, holder: &Requester, by_admin: bool) -> Room {
    draft.doors.room_for(&draft.calendar, holder, by_admin)
}

/// True when the calendar lets a lease be granted now.
pub(super) fn admits(draft: &Draft<'_>, proposal: &Proposal) -> bool {
    draft.doors.admit(&draft.calendar, proposal, draft.around.now.wall)
}

/// True when a change of the calendar may let somebody in who had to stay outside.
pub(super) fn makes_room(policy: BookingPolicy, change: &CalendarChange) -> bool {
    let less = match change {
        CalendarChange::Booking { booking, what } => !booking.claims || matches!(what, BookingMove::Rescheduled(_)),
        CalendarChange::Hold { hold, .. } => hold.settled_at.is_some() && hold.booking.is_none(),
        CalendarChange::Forgotten { .. } | CalendarChange::HoldsPaused(_) => false,
    };
    less && policy != BookingPolicy::default()
}

/// True when windows may keep others out.
pub(super) fn stops_others(policy: BookingPolicy) -> bool {
    policy.mode == BookingMode::Enforced || policy.auto_acquire
}

/// A lease has been granted: a booking of its holder that has begun is fulfilled by it.
pub(super) fn fulfil(draft: &mut Draft<'_>, lease: &LeaseRecord) {
    if let Some(booking) = open_now(draft).filter(|booking| booking.holder == lease.holder) {
        push(draft, &booking, BookingMove::Fulfilled, Some(lease));
    }
}

/// A lease is over: the rest of the windows that it fulfilled is free.
pub(super) fn free(draft: &mut Draft<'_>, lease: &LeaseRecord) {
    for booking in draft.calendar.fulfilled_by(&lease.id) {
        push(draft, &booking, BookingMove::Freed, None);
    }
}

/// Settles the bookings whose time has come: fulfils, grants, or finds them missed. Tells who was granted.
pub(super) fn settle(draft: &mut Draft<'_>) -> Option<Requester> {
    let policy = draft.around.spec.bookings;
    if policy == BookingPolicy::default() {
        return None;
    }
    if policy.auto_acquire {
        let unsettled = draft.around.unsettled;
        let over = draft.calendar.scheduled_and_over(draft.around.now.wall).filter(|it| !unsettled.contains(&it.id));
        for booking in over.take(MISSED_AT_ONCE_MAX).collect::<Vec<_>>() {
            push(draft, &booking, BookingMove::Missed(Miss::Overrun), None);
        }
    }
    unreserve(draft);
    let booking = open_now(draft)?;
    if let Some(held) = draft.held.iter().find(|held| held.lease.holder == booking.holder).cloned() {
        let held = if policy.auto_acquire { prolong(draft, held, booking.window.ends_at()) } else { held };
        push(draft, &booking, BookingMove::Fulfilled, Some(&held.lease));
        return None;
    }
    if !draft.held.is_empty() || draft.is_out() {
        return None;
    }
    if policy.auto_acquire {
        return grant(draft, &booking);
    }
    let now = draft.around.now.wall;
    let no_show_at = draft.calendar.no_show_at(&booking.id, policy, draft.free_since());
    if no_show_at.is_some_and(|at| at <= now) {
        push(draft, &booking, BookingMove::Missed(Miss::NoShow), None);
    }
    None
}

/// In the window of somebody nothing is kept for another: who could not use it would only stand in the way, and an admin
/// needs it not.
fn unreserve(draft: &mut Draft<'_>) {
    if !draft.reserved.is_empty()
        && let Some(booker) = stopping(draft).cloned()
    {
        keep_for_none_but(draft, Some(&booker));
    }
}

/// True when the resource may be kept for `holder` now.
pub(super) fn may_keep(draft: &Draft<'_>, holder: &Requester) -> bool {
    stopping(draft).is_none_or(|booker| booker == holder)
}

/// Whose window it is, where that stops others.
fn stopping<'a>(draft: &'a Draft<'_>) -> Option<&'a Requester> {
    let enforced = draft.around.spec.bookings.mode == BookingMode::Enforced;
    let claim = draft.calendar.claim_at(draft.around.now.wall).filter(|_| enforced);
    claim.map(|claim| &claim.holder)
}

fn keep_for_none_but(draft: &mut Draft<'_>, holder: Option<&Requester>) {
    let others = draft.reserved.iter().map(|kept| &kept.holder).filter(|kept| Some(*kept) != holder);
    for holder in others.cloned().collect::<Vec<_>>() {
        draft.push(Change::Unreserved { holder });
        draft.freed = true;
    }
}

/// The scheduled booking that has begun and is not over, where bookings mean anything for leases.
fn open_now(draft: &Draft<'_>) -> Option<Arc<Booking>> {
    if draft.around.spec.bookings == BookingPolicy::default() {
        return None;
    }
    let ClaimOf::Booking(id) = &draft.calendar.claim_at(draft.around.now.wall)?.of else { return None };
    let booking = draft.calendar.booking(id).filter(|_| !draft.around.unsettled.contains(id));
    booking.filter(|booking| booking.status == BookingStatus::Scheduled).cloned()
}

/// Grants the holder of a booking its lease until the end of the window. Neither `lease.max_ttl` nor `lease.max_total`
/// stops it, and what was kept for somebody else is kept no more.
fn grant(draft: &mut Draft<'_>, booking: &Booking) -> Option<Requester> {
    let now = draft.around.now;
    let ttl = whole(remaining(now.wall, booking.window.ends_at()));
    if ttl.is_zero() {
        return None;
    }
    // Whoever waits for it already has what it has asked for.
    let waits = |waiter: &&Waiter| waiter.proposal.holder == booking.holder && waiter.proposal.mode == Mode::Exclusive;
    let waiting = draft.queue(None).find(waits).cloned();
    let waited = waiting.as_ref().is_some_and(Waiter::is_attended);
    let proposal = match waiting {
        Some(waiter) => {
            let proposal = waiter.proposal.clone();
            if !waited {
                // With a claim it stands nowhere until its lease is there.
                let claimed = Departure::Admitted { reserved_until: None };
                let why = if work::claims(draft) { claimed } else { Departure::Granted };
                draft.leave(waiter, why);
            }
            proposal
        }
        None => own_proposal(draft, booking, ttl)?,
    };
    keep_for_none_but(draft, None);
    if !work::claim_for_booking(draft, &booking.id, &proposal, waited) {
        let proposal = Proposal { ttl, allow_shorter: false, ..proposal };
        draft.grant_for(&proposal, now.run + ttl, draft.next_fence());
    }
    Some(booking.holder.clone())
}

/// The lease of a booking whose device has been made ready, until the end of the window; none where the booking is no more.
pub(super) fn grant_claimed(
    draft: &mut Draft<'_>,
    booking: &BookingId,
    proposal: &Proposal,
    fence: Fence,
) -> Option<Held> {
    let now = draft.around.now;
    let booking = open_now(draft).filter(|open| open.id == *booking)?;
    let ttl = whole(remaining(now.wall, booking.window.ends_at()));
    let proposal = Proposal { ttl, allow_shorter: false, ..proposal.clone() };
    (!ttl.is_zero()).then(|| draft.grant_for(&proposal, now.run + ttl, fence))
}

/// A booking comes to nothing.
pub(super) fn missed(draft: &mut Draft<'_>, booking: &BookingId, why: Miss) {
    if let Some(booking) = open_now(draft).filter(|open| open.id == *booking) {
        push(draft, &booking, BookingMove::Missed(why), None);
    }
}

/// The lease that nobody has asked for but by booking.
fn own_proposal(draft: &Draft<'_>, booking: &Booking, ttl: Duration) -> Option<Proposal> {
    let fresh = draft.around.fresh?.clone();
    let target = Target::Resource(ResourceAddress { worker: None, id: draft.around.spec.id.clone() });
    Some(Proposal {
        request: fresh.request,
        holder: booking.holder.clone(),
        fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
        target,
        mode: Mode::Exclusive,
        priority: Default::default(),
        ttl,
        lease: fresh.lease,
        id_chosen_by_requester: false,
        note: booking.note.clone(),
        key: None,
        allow_shorter: false,
        by_admin: true,
    })
}

/// Lets a lease last at least until then.
fn prolong(draft: &mut Draft<'_>, held: Held, ends_at: Timestamp) -> Held {
    let now = draft.around.now;
    let deadline = now.run_of(ends_at);
    if held.deadline >= deadline {
        return held;
    }
    let mut lease = held.lease;
    // What is on disk is trusted for no longer than the width of the lease.
    lease.ttl = lease.ttl.max(whole(remaining(now.wall, ends_at)));
    draft.push(Change::Renewed { lease: lease.clone(), deadline, expires_at: ends_at, told: true });
    Held { lease, deadline, ..held }
}

fn push(draft: &mut Draft<'_>, booking: &Booking, what: BookingMove, lease: Option<&LeaseRecord>) {
    let now = draft.around.now.wall;
    let mut booking = booking.clone();
    match what {
        BookingMove::Fulfilled => {
            booking.status = BookingStatus::Fulfilled;
            booking.lease_id = lease.map(|lease| lease.id.clone());
            booking.settled_at = Some(now);
        }
        BookingMove::Missed(_) => {
            booking.status = BookingStatus::Missed;
            booking.claims = false;
            booking.settled_at = Some(now);
        }
        BookingMove::Freed => booking.claims = false,
        BookingMove::Created | BookingMove::Rescheduled(_) | BookingMove::Cancelled { .. } => {}
    }
    draft.push(Change::Calendar(CalendarChange::Booking { booking: Arc::new(booking), what }));
}
