//! The hand-over: who of those who wait is next (SPEC §2 Order, §3).

use std::time::Duration;

use super::draft::Draft;
use super::{Change, Departure, Proposal, Rank, Reservation, Waiter};
use super::{booked, work};
use crate::model::{Mode, Requester};

/// What a hand-over came to.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// The holder that was taken first, of either kind.
    pub(super) first: Option<Requester>,
    /// True when an unattended waiter could have been admitted, but others have to be asked before.
    pub(super) admission_left: bool,
}

/// Serves those who wait, in their order, as far as there is room. An attended waiter is granted, an unattended one is
/// admitted: named, and taken out; one for each freeing. The first that does not fit ends it, so nobody slips past
/// an exclusive waiter, and so does anyone of the pool who ranks before. Whoever waits for its gateway, or for the end of a
/// window, is passed over.
pub(super) fn serve(draft: &mut Draft<'_>, least_grace: Option<Duration>) -> Served {
    let mut may_admit = draft.take_freed();
    let mut served = Served::default();
    let mut looked_at = None;
    // Somebody who wants it alone could have had it, but has to ask, and stops those who would only share it.
    let mut passed_alone = false;
    let mut passed_sharing = PassedSharing::default();
    // Without a freeing only attended ones are served, and mostly there are none.
    while !draft.is_out() && (may_admit || draft.state.queue.has_attended()) {
        // Those who are only passed are not copied: there may be very many.
        let (mut passed, mut left) = (false, false);
        let mut candidates = draft.queue(looked_at).skip_while(|waiter| {
            if draft.is_away(waiter) {
                // When its gateway is back it is to be admitted after all.
                left |= !waiter.is_attended() && draft.fits(waiter.proposal.mode, &waiter.proposal.holder);
                return true;
            }
            if !booked::admits(draft, &waiter.proposal) {
                return true;
            }
            let passes = !may_admit
                && !waiter.is_attended()
                && draft.fits(waiter.proposal.mode, &waiter.proposal.holder)
                && turn(draft, waiter) == Turn::Mine;
            passed |= passes && waiter.proposal.mode == Mode::Exclusive;
            if passes {
                passed_sharing.note(draft, waiter);
            }
            passes
        });
        let next = candidates.next().cloned();
        drop(candidates);
        passed_alone |= passed;
        served.admission_left |= left && may_admit;
        let Some(waiter) = next else { break };
        looked_at = Some(waiter.rank);
        if !draft.fits(waiter.proposal.mode, &waiter.proposal.holder) || !passed_sharing.still_fit(draft) {
            break;
        }
        match turn(draft, &waiter) {
            Turn::Mine => {}
            Turn::AfterOthers => {
                served.admission_left |= may_admit;
                break;
            }
            Turn::AfterTheGrace => {
                served.admission_left |= may_admit;
                passed_alone |= waiter.proposal.mode == Mode::Exclusive;
                passed_sharing.note(draft, &waiter);
                continue;
            }
        }
        if waiter.is_attended() {
            served.first.get_or_insert_with(|| waiter.proposal.holder.clone());
            work::give(draft, waiter, true);
            if passed_alone {
                break;
            }
        } else if std::mem::take(&mut may_admit) {
            served.first.get_or_insert_with(|| waiter.proposal.holder.clone());
            admit(draft, waiter, least_grace);
        } else {
            passed_alone |= waiter.proposal.mode == Mode::Exclusive;
            passed_sharing.note(draft, &waiter);
        }
    }
    draft.take_freed();
    served.admission_left &= may_admit;
    served
}

/// Those who could have shared it, but have to ask or to wait for their turn. Once the seats are gone they stop whoever comes
/// behind, also one for whom a seat is kept: served one after the other, nobody would get past them either.
#[derive(Debug, Default)]
struct PassedSharing {
    /// One of those for whom no seat is kept, who all fit or none; and each of the others.
    holders: Vec<Requester>,
    has_one_without_a_seat: bool,
}

impl PassedSharing {
    fn note(&mut self, draft: &Draft<'_>, waiter: &Waiter) {
        let Proposal { mode, holder, .. } = &waiter.proposal;
        let has_seat = draft.reserved.iter().any(|kept| kept.holder == *holder);
        if *mode == Mode::Shared && (has_seat || !self.has_one_without_a_seat) {
            self.has_one_without_a_seat |= !has_seat;
            self.holders.push(holder.clone());
        }
    }

    fn still_fit(&self, draft: &Draft<'_>) -> bool {
        self.holders.iter().all(|holder| draft.fits(Mode::Shared, holder))
    }
}

fn admit(draft: &mut Draft<'_>, waiter: Waiter, least_grace: Option<Duration>) {
    let width = draft.around.rules.admission_grace.max(least_grace.unwrap_or_default());
    let until = draft.around.now.run + width;
    let (holder, mode) = (waiter.proposal.holder.clone(), waiter.proposal.mode);
    let reserved_until = (!width.is_zero() && booked::may_keep(draft, &holder)).then_some(until);
    draft.leave(waiter, Departure::Admitted { reserved_until });
    if reserved_until.is_some() {
        draft.push(Change::Reserved(Reservation { holder, mode, width, until }));
    }
}

/// Whether it is the turn of one who fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is.
    Mine,
    /// Somebody who does not wait here by name is before it.
    AfterOthers,
    /// It is for those who waited when the node was restarted and have come back.
    AfterTheGrace,
}

/// Whether anyone who does not stand in this queue goes before `waiter`, who fits: one of the pool, or one who waited
/// here when the node was restarted. What requests waited for then goes only to those who have come back with their
/// ticket, in the order of all their places.
pub(super) fn turn(draft: &Draft<'_>, waiter: &Waiter) -> Turn {
    if draft.is_its_seat(waiter) {
        return Turn::Mine;
    }
    let rivals = &draft.rivals;
    let before = |rank: Option<Rank>| rank.is_some_and(|rank| rank < waiter.rank);
    if rivals.returning.is_some() && waiter.returns.is_none() {
        return Turn::AfterTheGrace;
    }
    let free = draft.held.is_empty() && draft.reserved.is_empty();
    let sharing = waiter.proposal.mode == Mode::Shared;
    let outranked = (before(rivals.exclusive) && free)
        || (before(rivals.shared) && (free || sharing))
        || (before(rivals.pinned) && sharing)
        || before(rivals.returning);
    if outranked { Turn::AfterOthers } else { Turn::Mine }
}
