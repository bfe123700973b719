//! Dispatches whose answer was lost: asked about when their worker is back, given up when that takes too long.

use super::dispatch::worker_unreachable;
use super::fleet::Stage;
use super::front::{CallKind, FrontState};
use super::session::Outcome;
use crate::clock::RunTime;
use crate::limits::CALL_BOUND;
use crate::model::{Code, LeaseId, NodeName, RequestId};
use crate::wire::call::{Answer, Call};

impl FrontState {
    /// Asks a worker that is back what became of everything that is in doubt at it.
    pub(super) fn settle_doubts(&mut self, worker: &NodeName) {
        let doubtful = |(id, open): (&RequestId, &super::fleet::Open)| match &open.stage {
            Stage::InDoubt { worker: at, attempt, asked: false, .. } if at == worker => Some((id.clone(), *attempt)),
            _ => None,
        };
        let mut asks: Vec<(RequestId, u32)> = self.fleet.iter().filter_map(doubtful).collect();
        for (id, _) in &asks {
            if let Some(super::fleet::Open { stage: Stage::InDoubt { asked, .. }, .. }) = self.fleet.get_mut(id) {
                *asked = true;
            }
        }
        asks.extend(self.orphans.given_up_at(worker));
        for (request, attempt) in asks {
            let call = Call::Settle { request: request.clone(), attempt };
            self.ask(worker, CallKind::Settle { request }, call, CALL_BOUND);
        }
    }

    /// A worker has said what became of an attempt.
    pub(super) fn settle_answered(&mut self, worker: &NodeName, id: &RequestId, outcome: Outcome) {
        let settled = match outcome {
            Outcome::Answered(answer, number) => match *answer {
                Answer::Settled(granted) => Some((granted, number)),
                _ => None,
            },
            Outcome::NotSent | Outcome::Lost => None,
        };
        let Some((granted, number)) = settled else {
            // It is asked again with its next snapshot.
            if let Some(super::fleet::Open { stage: Stage::InDoubt { asked, .. }, .. }) = self.fleet.get_mut(id) {
                *asked = false;
            }
            return;
        };
        let held = granted.as_ref().and_then(|granted| self.held(granted).ok());
        if self.orphans.is_given_up(id, worker) {
            self.orphans.settled(id);
            if let Some(held) = held {
                self.release_orphan(worker, &held.lease);
            }
        } else if self.is_out_at(id, worker) {
            match (granted, held) {
                (Some(granted), Some(held)) => {
                    if let Some(view) = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut()) {
                        view.answered(number, &granted.resource, held.clone());
                    }
                    self.judge_grant(id, worker, &held, number);
                }
                _ => self.fleet.requeue(id),
            }
        }
        self.pump();
    }

    /// Gives up what has been in doubt for too long: a grant of it found later is released on sight.
    pub(super) fn give_up_doubts(&mut self, now: RunTime) {
        let grace = self.around.absence_grace;
        let late = |(id, open): (&RequestId, &super::fleet::Open)| match &open.stage {
            Stage::InDoubt { worker, attempt, since, .. } if now >= *since + grace => {
                Some((id.clone(), worker.clone(), *attempt, open.ask.no_wait))
            }
            _ => None,
        };
        let late: Vec<_> = self.fleet.iter().filter_map(late).collect();
        for (id, worker, attempt, no_wait) in late {
            tracing::warn!(request = %id, %worker, attempt, "gave up an attempt that its worker never answered");
            self.orphans.give_up(id.clone(), worker.clone(), attempt);
            if no_wait {
                self.refuse(&id, worker_unreachable(&worker, "a lease that it may have granted will be released"));
            } else {
                self.fleet.requeue(&id);
            }
        }
    }

    /// The release of an orphan has been answered.
    pub(super) fn orphan_answered(
        &mut self,
        worker: &NodeName,
        lease: &LeaseId,
        fence: crate::model::Fence,
        outcome: &Outcome,
    ) {
        let over = match outcome {
            Outcome::Answered(answer, _) => match &**answer {
                Answer::Released => true,
                Answer::Refused(refusal) => refusal.code == Code::UnknownLease,
                _ => false,
            },
            Outcome::NotSent | Outcome::Lost => false,
        };
        if over {
            self.orphans.lease_ended(worker, lease, fence);
        }
    }
}
