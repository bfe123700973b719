//! Dispatches whose answer was lost: asked about when their worker is back, given up when that takes too long.

use super::fleet::{Open, Stage};
use super::front::{CallKind, FrontState};
use super::given_up::GivenUp;
use super::session::Outcome;
use crate::clock::RunTime;
use crate::limits::CALL_BOUND;
use crate::model::{Code, Fence, LeaseId, NodeName, RequestId};
use crate::wire::call::{Answer, Call};

impl FrontState {
    /// Asks a worker what became of everything that is in doubt at it, and releases what nobody is to have there. What
    /// has been asked already is not asked twice.
    pub(super) fn settle_doubts(&mut self, worker: &NodeName) {
        let doubtful = |(id, open): (&RequestId, &Open)| match &open.stage {
            Stage::InDoubt { worker: at, attempt, asked: false, .. } if at == worker => Some((id.clone(), *attempt)),
            _ => None,
        };
        let mut asks: Vec<(RequestId, u32)> = self.fleet.doubtful().filter_map(doubtful).collect();
        for (id, _) in &asks {
            if let Some(Open { stage: Stage::InDoubt { asked, .. }, .. }) = self.fleet.get_mut(id) {
                *asked = true;
            }
        }
        let (given_up, leases) = self.orphans.ask(worker);
        asks.extend(given_up);
        for (request, attempt) in asks {
            let call = Call::Settle { request: request.clone(), attempt };
            self.ask(worker, CallKind::Settle { request, attempt }, call, CALL_BOUND);
        }
        for lease in leases {
            let (id, fence) = (lease.id, lease.fence);
            let call = Call::Release { lease: id.clone(), fence: Some(fence) };
            self.ask(worker, CallKind::Orphan { lease: id, fence }, call, CALL_BOUND);
        }
    }

    /// A worker has said what became of an attempt.
    pub(super) fn settle_answered(&mut self, worker: &NodeName, id: &RequestId, attempt: u32, outcome: Outcome) {
        let settled = match outcome {
            Outcome::Answered(answer, number) => match *answer {
                Answer::Settled(granted) => Some((granted, number)),
                _ => None,
            },
            Outcome::NotSent | Outcome::Lost => None,
        };
        let Some((granted, number)) = settled else {
            // It is asked again.
            self.orphans.attempt_unanswered(id, worker);
            let now = self.around.clock.now().run;
            let withdrawn = |open: &Open| open.withdrawing.is_some() && open.out_at() == Some((worker, attempt));
            if self.fleet.get(id).is_some_and(withdrawn) {
                // Whatever its dispatch is answered from now on, this answer decides.
                self.fleet.doubt(id, now);
                self.tell_cancellers(id, worker);
            }
            if let Some(Open { stage: Stage::InDoubt { asked, .. }, .. }) = self.fleet.get_mut(id) {
                *asked = false;
            }
            return;
        };
        let held = granted.map(|granted| self.held(granted));
        // One that is to be given up is asked about before its answer is lost.
        let open = self.fleet.get(id).filter(|open| open.out_at() == Some((worker, attempt)));
        let in_doubt =
            open.is_some_and(|open| matches!(open.stage, Stage::InDoubt { .. }) || open.withdrawing.is_some());
        if self.orphans.settle(id, worker, attempt) {
            let waiting = self.fleet.get(id).is_some_and(|open| open.stage == Stage::Waiting);
            match held {
                Some(held) if waiting => self.answered_grant(id, worker, &held, number),
                Some(held) => self.release_orphan(worker, &held.lease),
                None => {}
            }
        } else if in_doubt {
            match held {
                Some(held) => self.answered_grant(id, worker, &held, number),
                None => self.back_to_queue(id),
            }
        }
        self.pump_due = true;
    }

    /// Gives up what has been in doubt for too long, or on a worker that is not in the lab any more: a grant of it found
    /// later is released on sight.
    pub(super) fn give_up_doubts(&mut self, now: RunTime) {
        let grace = self.around.absence_grace;
        let late = |(id, open): (&RequestId, &Open)| match &open.stage {
            Stage::InDoubt { worker, attempt, since, .. }
                if now >= *since + grace || !self.workers.contains_key(worker) =>
            {
                Some(GivenUp { request: id.clone(), worker: worker.clone(), attempt: *attempt })
            }
            _ => None,
        };
        let late: Vec<GivenUp> = self.fleet.doubtful().filter_map(late).collect();
        for row in late {
            if self.workers.contains_key(&row.worker) {
                self.start_giving_up(row);
            } else {
                self.go_on_without_worker(&row.request, &row.worker);
            }
        }
        self.orphans.keep_workers(|worker| self.workers.contains_key(worker));
    }

    /// The release of an orphan has been answered.
    pub(super) fn orphan_answered(&mut self, worker: &NodeName, lease: &LeaseId, fence: Fence, outcome: &Outcome) {
        let over = match outcome {
            Outcome::Answered(answer, number) => match &**answer {
                Answer::Released { .. } => Some(*number),
                Answer::Refused(refusal) if refusal.code == Code::UnknownLease => Some(*number),
                _ => None,
            },
            Outcome::NotSent | Outcome::Lost => None,
        };
        let Some(number) = over else { return self.orphans.lease_unanswered(worker, lease, fence) };
        let Some(record) = self.orphans.lease_ended(worker, lease, fence) else { return };
        if let Some(view) = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut()) {
            view.ended(number, &record);
        }
        self.pump_due = true;
    }
}
