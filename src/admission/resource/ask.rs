//! Asking for a lease: granted at once, or waiting, or refused.

use super::booked;
use super::draft::Draft;
use super::refuse;
use super::serve::{Turn, turn};
use super::work;
use super::{Change, Departure, Held, Otherwise, Place, Rejection, Reply, Waiter};
use crate::admission::{Attendance, Rank, Speaker};
use crate::limits::STORE_GROUP_MAX;
use crate::model::{LeftOut, Mode, Proposal, RequestId, Requester, WaitPolicy};

/// Somebody asks. A free resource that is reserved for nobody goes to whoever asks first, but an attended waiter who
/// fits is never overtaken.
pub(super) fn ask(
    draft: &mut Draft<'_>,
    asked: Waiter,
    otherwise: Otherwise,
    left_out: LeftOut,
    speaker: Speaker,
) -> Reply {
    let by_name = matches!(otherwise, Otherwise::Join | Otherwise::Refuse(WaitPolicy::Fail));
    let standing = draft.unattended_of(&asked.proposal.holder).filter(|_| by_name).cloned();
    let waiter = match &standing {
        Some(standing) => again(draft, standing, asked, left_out),
        None => asked,
    };
    if can_take(draft, &waiter) {
        if let Some(standing) = standing {
            draft.leave(standing, Departure::Granted);
        }
        // One that is granted at once is stored with its lease; one that has to be made ready for is stored now.
        let claims = work::claims(draft);
        let stored = claims && (speaker == Speaker::Requester || matches!(otherwise, Otherwise::Wait(_)));
        if speaker == Speaker::Requester || stored {
            draft.push(requested(&waiter, otherwise.policy(), stored));
        }
        return given(work::give(draft, waiter, stored), stored);
    }
    match otherwise {
        Otherwise::Decline(_) => Reply::Declined,
        Otherwise::Join => join(draft, standing, waiter),
        Otherwise::Refuse(wait) => {
            if let Some(standing) = standing {
                draft.push(Change::Seen { request: standing.proposal.request, at: draft.around.now.run });
            }
            refuse(draft, &waiter, wait, speaker)
        }
        Otherwise::Wait(wait) => {
            draft.push(requested(&waiter, wait, true));
            let position = draft.position(waiter.rank);
            let request = waiter.proposal.request.clone();
            let requester = waiter.proposal.holder.clone();
            draft.push(Change::Joined { waiter, position });
            draft.push(Change::Queued { request, requester, position });
            Reply::Waiting
        }
    }
}

/// One that the node has found to be the first for this resource: of the pool, or one that another device has failed. It
/// was stored when it began to wait, but for a gateway's.
pub(super) fn offer(draft: &mut Draft<'_>, waiter: &Waiter, stored: bool) -> Reply {
    if can_take(draft, waiter) { given(work::give(draft, waiter.clone(), stored), stored) } else { Reply::Declined }
}

fn given(held: Option<Held>, stored: bool) -> Reply {
    held.map_or(Reply::Claimed { stored }, Reply::Granted)
}

/// Takes an attended waiter out, if it still waits.
pub(super) fn withdraw(draft: &mut Draft<'_>, request: &RequestId, why: Rejection) -> Reply {
    let proposal = match draft.waiter(request).filter(|waiter| waiter.is_attended()).cloned() {
        Some(waiter) => {
            let proposal = waiter.proposal.clone();
            draft.leave(waiter, Departure::Rejected);
            proposal
        }
        None => match work::give_up_claim(draft, request, "the request was given up") {
            Some((waiter, true)) => waiter.proposal,
            Some((_, false)) => return Reply::Left(true),
            None => return Reply::Left(false),
        },
    };
    let refusal = refuse::withdrawn(&proposal, why, draft.around.rules);
    draft.push(Change::Rejected { proposal, reason: why, refusal, waited: true, at: draft.around.now.wall });
    Reply::Left(true)
}

/// Takes an unattended waiter out, and gives up what is kept for it.
pub(super) fn leave(draft: &mut Draft<'_>, holder: &Requester) -> Reply {
    let waits = draft.unattended_of(holder).cloned();
    let reserved = draft.is_reserved_for(holder);
    let left = waits.is_some() || reserved;
    if let Some(waiter) = waits {
        draft.leave(waiter, Departure::Left);
    }
    if reserved {
        draft.push(Change::Unreserved { holder: holder.clone() });
        draft.freed = true;
    }
    Reply::Left(left)
}

/// Takes out those who wait for a resource that is going, as many as are to be written at once.
pub(super) fn dismiss(draft: &mut Draft<'_>) -> Reply {
    let first: Vec<Waiter> = draft.queue(None).take(STORE_GROUP_MAX).cloned().collect();
    for waiter in first {
        if waiter.is_attended() {
            withdraw(draft, &waiter.proposal.request, Rejection::NoMatch);
        } else {
            draft.leave(waiter, Departure::Left);
        }
    }
    let reserved: Vec<Requester> = draft.reserved.iter().map(|kept| kept.holder.clone()).collect();
    for holder in reserved {
        draft.push(Change::Unreserved { holder });
    }
    Reply::Done
}

/// Refreshes an unattended waiter, if it still stands there.
pub(super) fn see(draft: &mut Draft<'_>, request: &RequestId) -> Reply {
    let Some(rank) = draft.waiter(request).filter(|waiter| !waiter.is_attended()).map(|waiter| waiter.rank) else {
        return Reply::Left(false);
    };
    draft.push(Change::Seen { request: request.clone(), at: draft.around.now.run });
    Reply::Pending { request: request.clone(), position: draft.position(rank) }
}

/// The waiter that an unattended one is after asking again. What it leaves out is as it was; another mode or lease id
/// joins anew.
fn again(draft: &Draft<'_>, standing: &Waiter, asked: Waiter, left_out: LeftOut) -> Waiter {
    let (was, mut now) = (&standing.proposal, asked.proposal.clone());
    if left_out.mode {
        now.mode = was.mode;
    }
    if left_out.priority {
        now.priority = was.priority;
    }
    if left_out.ttl {
        now.ttl = was.ttl;
    }
    now.note = now.note.or_else(|| was.note.clone());
    if !now.id_chosen_by_requester {
        now.lease = was.lease.clone();
        now.id_chosen_by_requester = was.id_chosen_by_requester;
    }
    if !keeps_place(standing, &now) {
        let rank = Rank::new(now.priority, asked.rank.joined(), draft.around.rules.priority_aging);
        return Waiter { proposal: now, rank, ..asked };
    }
    Waiter {
        rank: Rank::new(now.priority, standing.rank.joined(), draft.around.rules.priority_aging),
        proposal: now,
        joined_at: standing.joined_at,
        attendance: Attendance::Unattended { last_seen: draft.around.now.run },
        returns: None,
        restored: false,
        not_on: None,
    }
}

/// An entry from before a restart may name its lease id again.
fn keeps_place(standing: &Waiter, now: &Proposal) -> bool {
    let was = &standing.proposal;
    was.mode == now.mode && (was.lease == now.lease || standing.restored)
}

/// The place of an unattended waiter who cannot have the resource now.
fn join(draft: &mut Draft<'_>, standing: Option<Waiter>, waiter: Waiter) -> Reply {
    let (rank, mut request) = (waiter.rank, waiter.proposal.request.clone());
    match standing {
        Some(standing) if is_same(&standing, &waiter) => {
            request = standing.proposal.request;
            draft.push(Change::Seen { request: request.clone(), at: draft.around.now.run });
        }
        Some(standing) if keeps_place(&standing, &waiter.proposal) => {
            draft.push(Change::Moved { former: standing.proposal.request, waiter });
        }
        standing => {
            if let Some(standing) = standing {
                draft.leave(standing, Departure::Replaced);
            }
            let position = draft.position(rank);
            draft.push(Change::Joined { waiter, position });
        }
    }
    Reply::Pending { request, position: draft.position(rank) }
}

/// True when asking again has changed nothing that is stored.
fn is_same(standing: &Waiter, waiter: &Waiter) -> bool {
    let (was, now) = (&standing.proposal, &waiter.proposal);
    standing.rank == waiter.rank && was.ttl == now.ttl && was.note == now.note && was.lease == now.lease
}

/// True when the resource has room for it and nobody is ahead whose turn it is.
pub(super) fn can_take(draft: &Draft<'_>, waiter: &Waiter) -> bool {
    let holder = &waiter.proposal.holder;
    let fits = draft.fits(waiter.proposal.mode, holder) && waiter.not_on.as_ref() != Some(&draft.around.spec.id);
    #[cfg(feature = "fault-double-grant")]
    let fits = fits || super::fault::overlooks_the_holder();
    if !fits || !booked::admits(draft, &waiter.proposal) {
        return false;
    }
    if draft.is_its_seat(waiter) {
        return true;
    }
    let stands_in_the_way = |other: &Waiter| {
        if draft.is_away(other) || !booked::admits(draft, &other.proposal) {
            // It waits for its gateway, or for the end of a window, and whatever is granted now ends before that.
            return false;
        }
        let own = !other.is_attended() && other.proposal.holder == *holder;
        if draft.fits(other.proposal.mode, &other.proposal.holder) {
            other.is_attended()
        } else {
            // Whoever wants it alone stops those who would only share it.
            other.proposal.mode == Mode::Exclusive && !own
        }
    };
    let mut ahead = draft.queue(None).take_while(|other| other.rank < waiter.rank);
    !ahead.any(stands_in_the_way) && turn(draft, waiter) == Turn::Mine
}

/// Nothing is stored of an acquire that is refused; a lease request leaves its events (SPEC §2).
fn refuse(draft: &mut Draft<'_>, waiter: &Waiter, wait: WaitPolicy, speaker: Speaker) -> Reply {
    let refusal = refuse::not_now(draft, &waiter.proposal, wait, speaker);
    let proposal = waiter.proposal.clone();
    match speaker {
        Speaker::Gateway => draft.declined(&proposal, refusal.code),
        Speaker::Requester if wait == WaitPolicy::Fail => {}
        Speaker::Requester => {
            draft.push(requested(waiter, wait, false));
            let at = draft.around.now.wall;
            let refusal = refusal.clone();
            draft.push(Change::Rejected { proposal, reason: Rejection::NoWait, refusal, waited: false, at });
        }
    }
    Reply::Refused(refusal)
}

fn requested(waiter: &Waiter, wait: WaitPolicy, waits: bool) -> Change {
    Change::Requested {
        proposal: waiter.proposal.clone(),
        wait,
        place: waits.then(|| Place::of(waiter)),
        returns: waiter.returns.clone(),
    }
}
