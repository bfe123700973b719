//! How a request that waits for a place is given up: its owner cancels it, or its timeout passes.

use ractor::RpcReplyPort;

use super::fleet::{Open, Stage};
use super::front::FrontState;
use crate::admission::cancel::{self, Cancel, was_cancelled};
use crate::clock::RunTime;
use crate::model::{Caller, Code, Refusal, RequestId, WaitPolicy};

impl FrontState {
    /// An owner cancels a request. One that is out at a worker may get its lease there, so it is not.
    pub(super) fn cancel(&mut self, id: &RequestId, caller: &Caller, reply: RpcReplyPort<Result<(), Refusal>>) {
        let first = self.first_of(id);
        if self.elsewhere.get(&first).is_some()
            && let Ok(Cancel::Open) = cancel::cancel(id, self.requests.get(id), caller, |first| &first.lease.id)
        {
            return self.cancel_there(&first, reply);
        }
        let waits = self.fleet.get(id).is_some_and(|open| open.stage == Stage::Waiting);
        let answer = match cancel::cancel(id, self.requests.get(id), caller, |first| &first.lease.id) {
            Ok(Cancel::Open) if waits => {
                self.give_up(id);
                Ok(())
            }
            Ok(Cancel::Open) => {
                let message = format!("lease request {id} is being placed; ask again in a moment");
                Err(Refusal::new(Code::RequestNotCancellable, message).with("requestId", id.as_str()))
            }
            Ok(Cancel::Done) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        let _ = reply.send(answer);
    }

    fn give_up(&mut self, id: &RequestId) {
        let now = self.around.clock.now().run;
        if let Some(open) = self.fleet.remove(id) {
            self.tell_rejected(&open.ask, "cancelled", was_cancelled(id).code);
        }
        self.ledger.close(id);
        self.requests.cancel(id, now);
        self.tell_watchers(id, &Err(was_cancelled(id)));
    }

    /// Ends those whose timeout has passed while they waited for a place.
    pub(super) fn end_timed_out(&mut self, now: RunTime) {
        let timed_out = |(id, open): (&RequestId, &Open)| {
            let WaitPolicy::Wait { timeout: Some(timeout) } = open.ask.wait else { return None };
            (open.stage == Stage::Waiting && now >= open.since + timeout).then(|| (id.clone(), open.ask.target.clone()))
        };
        let ended: Vec<_> = self.fleet.iter().filter_map(timed_out).collect();
        for (id, target) in ended {
            let message = format!("{target} did not become free in time; ask again, or wait longer");
            let refusal = Refusal::new(Code::QueueTimeout, message).with("requestId", id.as_str());
            if let Some(open) = self.fleet.remove(&id) {
                self.tell_rejected(&open.ask, "timeout", refusal.code);
            }
            self.ledger.close(&id);
            self.requests.fail(&id, refusal.clone(), true, now);
            self.tell_watchers(&id, &Err(refusal));
        }
    }
}
