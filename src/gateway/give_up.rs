//! How a request is given up: its owner cancels it, its timeout passes, nobody asks about it any more, or the worker
//! that could serve it stays away (SPEC §2, §9).
//!
//! One that is out at a worker may have its lease there. The worker is asked to settle that attempt first; a lease that it
//! has got is the request's, and whoever cancelled hears so. So exactly one of grant and end happens.

use ractor::RpcReplyPort;

use super::dispatch::worker_unreachable;
use super::fleet::{Open, Stage};
use super::front::{CallKind, FrontState, Watcher, Worker};
use crate::admission::cancel::{self, Cancel, was_cancelled};
use crate::admission::resource::{Rejection, withdrawn};
use crate::clock::RunTime;
use crate::limits::{CALL_BOUND, WATCHERS_MAX};
use crate::model::{Caller, Code, Mode, NodeName, Refusal, RequestId, WaitPolicy};
use crate::wire::call::Call;

impl FrontState {
    /// An owner cancels a request.
    pub(super) fn cancel(&mut self, id: &RequestId, caller: &Caller, reply: RpcReplyPort<Result<(), Refusal>>) {
        let first = self.first_of(id);
        if self.elsewhere.get(&first).is_some()
            && let Ok(Cancel::Open) = cancel::cancel(id, self.requests.get(id), caller, |first| &first.lease.id)
        {
            return self.cancel_there(&first, reply);
        }
        let answer = match cancel::cancel(id, self.requests.get(id), caller, |first| &first.lease.id) {
            Ok(Cancel::Open) => return self.cancel_open(id, reply),
            Ok(Cancel::Done) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        let _ = reply.send(answer);
    }

    fn cancel_open(&mut self, id: &RequestId, reply: RpcReplyPort<Result<(), Refusal>>) {
        if let Some(index) = self.held_back.iter().position(|ask| ask.id == *id) {
            // It has not been checked, so it holds nothing.
            self.held_back.remove(index);
            self.requests.cancel(id, self.around.clock.now().run);
            self.tell_watchers(id, &Err(was_cancelled(id)));
            let _ = reply.send(Ok(()));
            return;
        }
        let first = self.mirrors.get(id).unwrap_or(id).clone();
        if self.fleet.get(&first).is_none() {
            let message = format!("lease request {id} is being settled; ask again in a moment");
            let refusal = Refusal::new(Code::RequestNotCancellable, message).with("requestId", id.as_str());
            let _ = reply.send(Err(refusal));
            return;
        }
        let watchers = self.watchers.entry(first.clone()).or_default();
        if watchers.len() >= WATCHERS_MAX {
            let refusal = Refusal::new(Code::QueueFull, "too many wait for this request already; ask again later");
            let _ = reply.send(Err(refusal.retry_after(std::time::Duration::from_secs(1))));
            return;
        }
        watchers.push(Watcher::Canceller(reply));
        self.withdraw(&first, Rejection::Cancelled);
        let at = self.fleet.get(&first).and_then(Open::out_at).map(|(worker, _)| worker.clone());
        if let Some(worker) = at
            && !self.workers.get(&worker).is_some_and(Worker::takes_requests)
        {
            self.tell_cancellers(&first, &worker);
        }
    }

    /// It is not known yet whether the request got its lease; it ends as soon as that is known, and whoever cancelled it
    /// does not wait for that.
    pub(super) fn tell_cancellers(&mut self, id: &RequestId, worker: &NodeName) {
        let Some(watchers) = self.watchers.remove(id) else { return };
        let (cancellers, others): (Vec<_>, Vec<_>) =
            watchers.into_iter().partition(|watcher| matches!(watcher, Watcher::Canceller(_)));
        if !others.is_empty() {
            self.watchers.insert(id.clone(), others);
        }
        for watcher in cancellers {
            if let Watcher::Canceller(reply) = watcher {
                let known = "the request is cancelled as soon as it is known that it has no lease; look at it again";
                let _ = reply.send(Err(worker_unreachable(worker, known)));
            }
        }
    }

    /// Gives a request up, now or as soon as its worker has said what became of the attempt that is out.
    pub(super) fn withdraw(&mut self, id: &RequestId, why: Rejection) {
        let Some(open) = self.fleet.get_mut(id) else { return };
        if open.stage == Stage::Waiting {
            return self.end_withdrawn(id, why);
        }
        if open.withdrawing.replace(open.withdrawing.unwrap_or(why)).is_some() {
            return;
        }
        if let Stage::Dispatched { worker, attempt } = &open.stage {
            let (worker, attempt) = (worker.clone(), *attempt);
            let call = Call::Settle { request: id.clone(), attempt };
            self.ask(&worker, CallKind::Settle { request: id.clone(), attempt }, call, CALL_BOUND);
        }
    }

    /// Its worker has not got it, or not any more: the request waits again, or ends as it was to.
    pub(super) fn back_to_queue(&mut self, id: &RequestId) {
        match self.fleet.get(id).and_then(|open| open.withdrawing) {
            Some(why) => self.end_withdrawn(id, why),
            None => self.fleet.requeue(id),
        }
        self.pump_due = true;
    }

    /// What became of the attempt on a worker is not known, and is not waited for any more.
    pub(super) fn go_on_without_worker(&mut self, id: &RequestId, worker: &NodeName) {
        let Some(open) = self.fleet.get(id) else { return };
        let over = open.ask.no_wait() || open.withdrawing == Some(Rejection::Timeout);
        if over {
            self.refuse(id, worker_unreachable(worker, "a lease that it may have granted will be released"));
        } else {
            self.back_to_queue(id);
        }
    }

    fn end_withdrawn(&mut self, id: &RequestId, why: Rejection) {
        let now = self.around.clock.now().run;
        let Some(open) = self.fleet.remove(id) else { return };
        let refusal = match why {
            Rejection::Cancelled => was_cancelled(id),
            why => withdrawn(&open.waiter().proposal, why, &self.around.waiting),
        };
        if open.ask.wait == WaitPolicy::JoinWaitingRoom {
            // What it stands as keeps what it holds.
            self.free(id, &open.ask);
        } else {
            self.tell_rejected(&open.ask, why.as_str(), refusal.code);
        }
        if why.is_remembered() {
            self.ledger.close(id);
        } else {
            self.ledger.refuse(id);
        }
        if why == Rejection::Cancelled {
            self.requests.cancel(id, now);
        } else {
            self.requests.fail(id, refusal.clone(), why.is_remembered(), now);
        }
        self.left_queue(open.ask.mode);
        self.tell_watchers(id, &Err(refusal));
    }

    /// One who wanted something alone has gone: those who would share it may go on.
    pub(super) fn left_queue(&mut self, mode: Mode) {
        if mode == Mode::Exclusive && self.fleet.pool().heads(Mode::Shared).next().is_some() {
            self.pump_due = true;
        }
    }

    /// Looks at the requests whose time has come.
    pub(super) fn give_up_due(&mut self, now: RunTime) {
        let ttl = self.around.waiting.waiter_ttl;
        for id in self.fleet.due(now) {
            let watched = self.is_watched(&id);
            let Some(open) = self.fleet.get_mut(&id) else { continue };
            if watched {
                open.asked_at = now;
            }
            if open.give_up_at().is_some_and(|at| at <= now) {
                self.withdraw(&id, Rejection::Timeout);
            } else if open.asked_at + ttl <= now {
                self.withdraw(&id, Rejection::Abandoned);
            } else {
                if open.stage == Stage::Waiting && open.away_since.is_some() {
                    self.place_now(&id);
                }
                self.attend(&id);
            }
        }
    }

    /// True when somebody waits for the end of the request just now.
    fn is_watched(&self, id: &RequestId) -> bool {
        self.watchers.get(id).is_some_and(|watchers| {
            watchers.iter().any(|watcher| match watcher {
                Watcher::Reader(reply) => !reply.is_closed(),
                Watcher::Mirror(second) => self.is_watched(second),
                Watcher::Caller(_) | Watcher::Joiner(_) | Watcher::Canceller(_) => false,
            })
        })
    }
}
