//! How a request that waits for a place is given up: its owner cancels it, or its timeout passes.

use ractor::RpcReplyPort;

use super::fleet::{Open, Stage};
use super::front::FrontState;
use crate::admission::RequestState;
use crate::clock::RunTime;
use crate::model::{Caller, Code, Refusal, RequestId, WaitPolicy};

impl FrontState {
    /// An owner cancels a request. One that is out at a worker may get its lease there, so it is not.
    pub(super) fn cancel(&mut self, id: &RequestId, caller: &Caller, reply: RpcReplyPort<Result<(), Refusal>>) {
        let answer = match self.requests.get(id) {
            None => {
                let message = format!("no lease request {id}; settled ones are forgotten after a while");
                Err(Refusal::new(Code::UnknownLeaseRequest, message).with("requestId", id.as_str()))
            }
            Some(request) if !caller.may_change(&request.requester) => {
                let message = format!("lease request {id} is not yours; only its owner or an admin may cancel it");
                Err(Refusal::new(Code::InsufficientPermissions, message))
            }
            Some(request) => match &request.state {
                RequestState::Cancelled => Ok(()),
                RequestState::Granted(first) => {
                    let lease = &first.lease.id;
                    let message = format!("lease request {id} has got lease {lease}; give it back instead");
                    Err(not_cancellable(id, message).with("leaseId", lease.as_str()))
                }
                RequestState::Failed(_) => {
                    Err(not_cancellable(id, format!("lease request {id} has ended; there is nothing to cancel")))
                }
                RequestState::Open if self.fleet.get(id).is_some_and(|open| open.stage == Stage::Waiting) => {
                    self.give_up(id);
                    Ok(())
                }
                RequestState::Open => {
                    Err(not_cancellable(id, format!("lease request {id} is being placed; ask again in a moment")))
                }
            },
        };
        let _ = reply.send(answer);
    }

    fn give_up(&mut self, id: &RequestId) {
        let now = self.around.clock.now().run;
        self.fleet.remove(id);
        self.ledger.close(id);
        self.requests.cancel(id, now);
        self.tell_watchers(id, &Err(cancelled(id)));
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
            self.fleet.remove(&id);
            self.ledger.close(&id);
            self.requests.fail(&id, refusal.clone(), true, now);
            self.tell_watchers(&id, &Err(refusal));
        }
    }
}

fn not_cancellable(id: &RequestId, message: String) -> Refusal {
    Refusal::new(Code::RequestNotCancellable, message).with("requestId", id.as_str())
}

/// What a key answers that stands for a request which was cancelled.
pub(super) fn cancelled(id: &RequestId) -> Refusal {
    let message = format!("lease request {id} of this key was cancelled; use a new key to ask again");
    Refusal::new(Code::ResourceUnavailable, message).with("requestId", id.as_str())
}
