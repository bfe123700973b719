//! Lease requests that are not settled yet: where each one stands, and how it is given up (SPEC §2).
//!
//! A request is given up when its owner cancels it, when its timeout has passed, and when nobody has asked about it for
//! `waiting_room.waiter_ttl`. Nobody can ask about one of the gateway's while that is away, so that time does not count. While a resource is being asked for it, that answer comes first: a grant wins, and
//! whoever cancelled hears so. So exactly one of grant and end happens.

use std::time::Duration;

use ractor::RpcReplyPort;

use super::asked::LeaveReply;
use super::desk::{DeskState, Note, OpKind, Watcher};
use super::message::{Asked, Grant, ReleasedNow, Said};
use crate::admission::Waiter;
use crate::admission::cancel::{self, Cancel, not_cancellable};
use crate::admission::resource::{Change, Command, Rejection, withdrawn};
use crate::clock::RunTime;
use crate::model::{Authority, LeaseRecord, Refusal, RequestId, ResourceId, WaitPolicy};

/// How long until an end that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// One request that is not settled.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) stage: Stage,
    /// How long it is ready to wait.
    pub(super) wait: WaitPolicy,
    /// True for one of the gateway's.
    pub(super) fleet: bool,
    /// When its timeout passes; counted from when it began to wait.
    give_up_at: Option<RunTime>,
    /// When it was last asked about.
    pub(super) asked_at: RunTime,
    /// Why it is to be given up as soon as the answer that is out has come.
    pub(super) withdrawing: Option<Rejection>,
    /// True while the resource that it waits for is being told to let it go.
    pub(super) leaving: bool,
    /// Who has cancelled it.
    cancels: Vec<RpcReplyPort<Said<()>>>,
    /// The attempt that its gateway has taken back: nothing is remembered of one that has waited.
    pub(super) taken_back: Option<u32>,
    /// What it hears if no other device is made ready for it either: one has failed it.
    pub(super) failed: Option<Refusal>,
}

/// Where a request stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// It is on its way to a resource, or its first answer is being written.
    Placing,
    /// It is being written down to wait in the pool.
    Joining(Box<Waiter>),
    /// It waits for this resource, which it named; or this resource is made ready for it.
    Room(ResourceId),
    /// It waits in the pool.
    Pool,
    /// It waits in the pool, and this resource is being asked to take it.
    Offered(Box<Waiter>),
    /// It leaves the pool; that is being written.
    Leaving(Box<Waiter>),
}

/// A release whose caller is yet to hear who was taken first.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) lease: Box<LeaseRecord>,
    pub(super) reply: RpcReplyPort<Said<ReleasedNow>>,
}

impl OpenRequest {
    pub(super) fn new(wait: WaitPolicy, fleet: bool, now: RunTime) -> Self {
        Self {
            stage: Stage::Placing,
            wait,
            fleet,
            give_up_at: None,
            asked_at: now,
            withdrawing: None,
            leaving: false,
            cancels: Vec::new(),
            taken_back: None,
            failed: None,
        }
    }

    /// True when it is known that it waits.
    pub(super) fn waits(&self) -> bool {
        !matches!(self.stage, Stage::Placing | Stage::Joining(_))
    }
}

impl DeskState {
    /// It is durable that a request waits: its bound begins, and whoever waits for the first answer has it.
    pub(super) fn start_waiting(&mut self, id: &RequestId, stage: Stage) {
        let now = self.clock.now().run;
        self.requests.store(id);
        let Some(open) = self.open.get_mut(id) else { return };
        open.stage = stage;
        if let WaitPolicy::Wait { timeout: Some(timeout) } = open.wait {
            open.give_up_at.get_or_insert(now + timeout);
        }
        open.asked_at = now;
        self.attend(id);
        self.tell_first_answer(id);
    }

    /// Goes on with the end that was asked for while an answer was out. True when it did.
    pub(super) fn withdraw_as_asked(&mut self, id: &RequestId) -> bool {
        let why = self.open.get_mut(id).and_then(|open| open.withdrawing.take());
        let Some(why) = why else { return false };
        self.withdraw(id, why, None);
        true
    }

    /// Sets when the request is to be looked at next.
    pub(super) fn attend(&mut self, id: &RequestId) {
        let ttl = self.rules.waiting.waiter_ttl;
        let at =
            self.open.get(id).map(|open| open.give_up_at.map_or(open.asked_at + ttl, |at| at.min(open.asked_at + ttl)));
        self.attention.set(id, at);
    }

    /// Somebody has asked about the request.
    pub(super) fn asked_about(&mut self, id: &RequestId) {
        let now = self.clock.now().run;
        if let Some(open) = self.open.get_mut(id) {
            open.asked_at = now;
        }
    }

    /// Gives up the requests whose time has come.
    pub(super) fn give_up_due(&mut self, now: RunTime) {
        let ttl = self.rules.waiting.waiter_ttl;
        let fleet_asks_since = self.link.node().fleet_asks_since();
        for id in self.attention.due(now) {
            let parked_poll = self.is_watched(&id);
            let Some(open) = self.open.get_mut(&id) else { continue };
            if parked_poll {
                open.asked_at = now;
            }
            if open.fleet {
                open.asked_at = open.asked_at.max(fleet_asks_since.unwrap_or(now));
            }
            if open.give_up_at.is_some_and(|at| at <= now) {
                self.withdraw(&id, Rejection::Timeout, None);
            } else if open.asked_at + ttl <= now {
                self.withdraw(&id, Rejection::Abandoned, None);
            } else {
                self.attend(&id);
            }
        }
    }

    /// True when somebody waits for the end of the request just now.
    fn is_watched(&mut self, id: &RequestId) -> bool {
        let Some(watchers) = self.watchers.get_mut(id) else { return false };
        watchers.retain(|watcher| !watcher.has_gone());
        watchers.iter().any(|watcher| matches!(watcher, Watcher::Reader(..)))
    }

    /// An owner cancels a request.
    pub(super) fn cancel(&mut self, id: &RequestId, authority: &Authority, reply: RpcReplyPort<Said<()>>) {
        let known = self.requests.get(id);
        let answer = match authority {
            Authority::Client(caller) => cancel::cancel(id, known, caller, |first| &first.lease.id),
            Authority::Gateway { name, .. } => match self.waits_for_gateway(id, name) {
                Some((resource, holder)) if known.is_none() => {
                    return self.leave(&resource, holder, LeaveReply::Cancelled(reply));
                }
                _ => cancel::cancel_for(id, known, name, |first| &first.lease.id),
            },
        };
        match answer {
            Ok(Cancel::Open) => self.withdraw(id, Rejection::Cancelled, Some(reply)),
            Ok(Cancel::Done) => self.say(reply, Ok(())),
            Err(refusal) => self.say(reply, Err(refusal)),
        }
    }

    /// The gateway takes an attempt back whose answer was lost. One that is under way may still be granted; one that
    /// waits, or comes to wait, is taken out, and nothing is remembered of it.
    pub(super) fn take_back(&mut self, id: &RequestId, attempt: u32) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.taken_back = Some(attempt);
        // One that does not wait may have a device that is made ready for it.
        if matches!(open.wait, WaitPolicy::Wait { .. }) || matches!(open.stage, Stage::Room(_)) {
            self.withdraw(id, Rejection::TakenBack, None);
        }
    }

    /// The same for an unattended waiter that has just come to stand here as this request.
    pub(super) fn leave_if_taken_back(&mut self, resource: &ResourceId, id: &RequestId, entry: &RequestId) {
        let Some(attempt) = self.open.get(id).and_then(|open| open.taken_back) else { return };
        self.attempts.cancel(id, attempt);
        let holder = self.directory.get(resource).and_then(|it| it.state.queue.get(entry)).filter(|_| entry == id);
        if let Some(holder) = holder.map(|waiter| waiter.proposal.holder.clone()) {
            self.leave(resource, holder, LeaveReply::Nobody);
        }
    }

    /// Gives a request up, now or as soon as the answer that is out has come.
    pub(super) fn withdraw(&mut self, id: &RequestId, why: Rejection, reply: Option<RpcReplyPort<Said<()>>>) {
        let Some(open) = self.open.get_mut(id) else { return };
        open.cancels.extend(reply);
        match &open.stage {
            Stage::Placing | Stage::Joining(_) | Stage::Offered(_) | Stage::Leaving(_) => {
                open.withdrawing.get_or_insert(why);
            }
            // Whoever cancels now hears what comes of that.
            Stage::Room(_) if open.leaving => {}
            Stage::Room(resource) => {
                let (resource, request) = (resource.clone(), id.clone());
                let command = Command::Withdraw { request: request.clone(), why };
                open.leaving = true;
                self.attention.set(id, None);
                self.send(&resource, OpKind::Withdraw { request, why }, command);
            }
            Stage::Pool => {
                let Some(waiter) = self.pool.remove(id) else { return };
                let refusal = withdrawn(&waiter.proposal, why, &self.rules.waiting);
                self.leave_pool(id, waiter, why, refusal);
            }
        }
    }

    /// Writes how one ended who stands in the pool no more.
    pub(super) fn leave_pool(&mut self, id: &RequestId, waiter: Waiter, why: Rejection, refusal: Refusal) {
        let Some(open) = self.open.get_mut(id) else { return };
        let (proposal, at) = (waiter.proposal.clone(), self.clock.now().wall);
        open.stage = Stage::Leaving(Box::new(waiter));
        self.attention.set(id, None);
        let change = Change::Rejected { proposal, reason: why, refusal: refusal.clone(), waited: true, at };
        self.note(vec![change], Note::Withdrawn { request: id.clone(), why, refusal });
    }

    /// The end of one who left the pool is written, or is not.
    pub(super) fn left_pool(&mut self, id: &RequestId, why: Rejection, refusal: Refusal, written: Result<(), Refusal>) {
        let Some(open) = self.open.get_mut(id) else { return };
        let Stage::Leaving(waiter) = std::mem::replace(&mut open.stage, Stage::Pool) else { return };
        match written {
            Ok(()) => {
                self.end_without_lease(id, why, refusal);
                self.waiter_left_pool(&waiter);
            }
            Err(refusal) => {
                self.pool.join(*waiter);
                self.not_withdrawn(id, &refusal);
                self.seek(id);
            }
        }
    }

    /// The end of a request could not be written: it waits on, and what time asked for is tried again.
    pub(super) fn not_withdrawn(&mut self, id: &RequestId, refusal: &Refusal) {
        let now = self.clock.now().run;
        let Some(open) = self.open.get_mut(id) else { return };
        (open.withdrawing, open.leaving) = (None, false);
        for reply in std::mem::take(&mut open.cancels) {
            self.say(reply, Err(refusal.clone()));
        }
        self.attention.set(id, Some(now + RETRY));
    }

    /// A request that waited has ended without a lease: everything it held is free.
    pub(super) fn end_without_lease(&mut self, id: &RequestId, why: Rejection, refusal: Refusal) {
        let now = self.clock.now().run;
        let taken_back = self.open.get(id).and_then(|open| open.taken_back).filter(|_| why == Rejection::TakenBack);
        if let Some(attempt) = taken_back {
            self.attempts.cancel(id, attempt);
        }
        if why.is_remembered() {
            self.ledger.close(id);
        } else {
            self.ledger.refuse(id);
        }
        match why {
            Rejection::Cancelled => self.requests.cancel(id, now),
            // It goes on at the gateway, and may come again with its next attempt.
            Rejection::TakenBack => {
                self.requests.discard(id);
                self.store.forget(vec![id.clone()]);
            }
            _ => self.requests.fail(id, refusal.clone(), why.is_remembered(), now),
        }
        self.report_end(id);
        for reply in self.close_request(id) {
            // Whoever cancelled wanted no lease, and there is none.
            self.say(reply, Ok(()));
        }
        match why {
            Rejection::Cancelled => self.tell_watchers(id, &Ok(Asked::Cancelled(id.clone()))),
            _ => self.tell_watchers(id, &Err(refusal)),
        }
    }

    /// A request has got its lease.
    pub(super) fn end_with_lease(&mut self, id: &RequestId, grant: Grant) {
        let lease = grant.lease.id.clone();
        self.report_end(id);
        for reply in self.close_request(id) {
            self.say(reply, Err(not_cancellable(id, Some(&lease))));
        }
        self.tell_watchers(id, &Ok(Asked::Granted(grant)));
    }

    /// The request is settled. Answers with those who have cancelled it.
    pub(super) fn close_request(&mut self, id: &RequestId) -> Vec<RpcReplyPort<Said<()>>> {
        self.attention.set(id, None);
        self.open.remove(id).map(|open| open.cancels).unwrap_or_default()
    }
}
