//! What workers report of requests that wait there, or are settled.

use std::collections::HashSet;

use super::super::elsewhere::{Kind, Waits};
use super::super::environment::bounded;
use super::super::fleet::{Open, Stage};
use super::super::front::FrontState;
use super::super::history::{is_remembered, reason_of};
use super::super::message::{FirstGrant, FleetLease};
use crate::admission::cancel::was_cancelled;
use crate::clock::RunTime;
use crate::model::{Code, NodeName, Refusal, RequestId};
use crate::wire::requests::{SettledOutcome, SettledRow, WaitingRow};

impl FrontState {
    /// The requests of a snapshot cut at `number`. Its leases are entered already.
    pub(in super::super) fn take_rows(
        &mut self,
        worker: &NodeName,
        number: u64,
        waiting: Vec<WaitingRow>,
        settled: Vec<SettledRow>,
    ) {
        let shown: HashSet<RequestId> = waiting.iter().map(|row| row.request.clone()).collect();
        for row in waiting {
            // What has come or gone after the cut is known already.
            let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
            if view.is_some_and(|view| view.waits(&row.request)) {
                self.reported_waiting(worker, number, row);
            }
        }
        for row in settled {
            self.reported_settled(worker, row);
        }
        for request in self.elsewhere.missing(worker, number, |request| shown.contains(request)) {
            self.lost_there(&request);
        }
    }

    /// A worker reports one that waits there.
    pub(in super::super) fn reported_waiting(&mut self, worker: &NodeName, number: u64, row: WaitingRow) {
        if row.requester.via.as_ref() != Some(&self.around.name) {
            tracing::warn!(%worker, requester = %row.requester, "a worker reports a request that is not this gateway's");
            return;
        }
        if self.orphans.is_given_up(&row.request, worker) {
            // It is being asked about, and by that taken out.
            return;
        }
        if let Some(waits) = self.elsewhere.get_mut(&row.request).filter(|waits| waits.worker == *worker) {
            waits.number = waits.number.max(number);
            waits.lease_id = row.lease_id;
            return;
        }
        match self.fleet.get(&row.request).map(|open| &open.stage) {
            // Its answer is on its way.
            Some(Stage::Dispatched { worker: at, .. }) if at == worker => return,
            // What comes of asking about it decides.
            Some(Stage::InDoubt { worker: at, asked: true, .. }) if at == worker => return,
            Some(Stage::InDoubt { worker: at, .. }) if at == worker => {
                let taken_back = self.fleet.get(&row.request).is_some_and(|open| open.withdrawing.is_some());
                if taken_back || !row.attended {
                    // It is asked about now, and by that taken out.
                    return;
                }
                return self.move_there(&row.request, worker, None, number);
            }
            Some(_) => return self.take_out(worker, &row.request),
            None => {}
        }
        if self.elsewhere.get(&row.request).is_some() || self.requests.get(&row.request).is_some() {
            // This run knows that it has ended, or that it waits at another worker.
            return self.take_out(worker, &row.request);
        }
        self.adopt(worker, number, row);
    }

    /// A worker reports how one of this gateway's requests has ended.
    pub(in super::super) fn reported_settled(&mut self, worker: &NodeName, row: SettledRow) {
        if row.requester.via.as_ref() != Some(&self.around.name) {
            return;
        }
        self.hear_settled(worker, &row);
        if self.elsewhere.is_at(&row.request, worker) {
            self.settled_there(worker, row);
        } else if self.requests.get(&row.request).is_none() && self.fleet.get(&row.request).is_none() {
            self.remember_settled(worker, row);
        }
    }

    /// One that is known to wait there has ended.
    fn settled_there(&mut self, worker: &NodeName, row: SettledRow) {
        let id = row.request.clone();
        match row.outcome {
            SettledOutcome::Granted { .. } => {
                // Its lease has come and gone before a report has shown it.
                let ended = self.ended_at(row.ended_ms_ago);
                let first = self.first_of_row(worker, &row);
                let waited = self.elsewhere.remove(&id);
                self.ledger.close(&id);
                if let Some(first) = first {
                    if let Some(Waits { kind: Kind::Sent(open), .. }) = &waited {
                        self.tell_granted(&id, Some(&open.ask), &first);
                    }
                    self.requests.grant(&id, first.clone());
                    self.requests.end(&id, ended);
                    self.tell_watchers(&id, &Ok(first));
                }
            }
            SettledOutcome::Failed(refusal) if refusal.code == Code::NodeRestarted => self.lost_there(&id),
            SettledOutcome::Failed(refusal) => {
                let refusal = super::ask::outward(refusal, worker);
                let waited = self.elsewhere.remove(&id);
                self.fails_there(&id, waited, refusal);
            }
            SettledOutcome::Cancelled => {
                let waited = self.elsewhere.remove(&id);
                self.is_cancelled(&id, waited);
            }
        }
    }

    /// One that waited at a worker is given up by its owner.
    pub(super) fn is_cancelled(&mut self, id: &RequestId, waited: Option<Waits>) {
        let refusal = was_cancelled(id);
        self.tell_end_there(id, waited.as_ref(), "cancelled", refusal.code);
        self.ledger.close(id);
        self.requests.cancel(id, self.around.clock.now().run);
        self.tell_watchers(id, &Err(refusal));
    }

    /// Tells how one ended that waited at a worker.
    pub(super) fn tell_end_there(&mut self, id: &RequestId, waited: Option<&Waits>, reason: &str, code: Code) {
        match waited.map(|waits| &waits.kind) {
            Some(Kind::Sent(open)) => self.tell_rejected(&open.ask, reason, code),
            Some(Kind::Found { .. }) => self.tell_found_rejected(id, reason, code),
            Some(Kind::Unattended) | None => {}
        }
    }

    /// Its worker does not have it any more, and it got nothing: this gateway sends it there again, to its old place. One
    /// that it knows too little of for that fails as it would at the worker.
    pub(in super::super) fn lost_there(&mut self, id: &RequestId) {
        match self.elsewhere.remove(id) {
            Some(Waits { kind: Kind::Sent(mut open), place, .. }) => {
                open.ask.ticket = place.map(|place| place.ticket).or(open.ask.ticket);
                open.stage = Stage::Waiting;
                open.asked_at = self.around.clock.now().run;
                tracing::info!(request = %id, "the worker has forgotten a request that waits; it is sent there again");
                self.fleet.put_back(*open);
                self.attend(id);
                self.pump_due = true;
            }
            Some(waits @ Waits { kind: Kind::Found { .. }, .. }) => {
                let worker = &waits.worker;
                let message = format!("worker {worker} was restarted while this waited; ask again with the ticket");
                self.fails_there(id, Some(waits), Refusal::new(Code::NodeRestarted, message));
            }
            Some(Waits { kind: Kind::Unattended, .. }) => self.ledger.refuse(id),
            None => {}
        }
    }

    /// An unattended waiter stands there no more.
    pub(in super::super) fn reported_gone(&mut self, worker: &NodeName, request: &RequestId) {
        if self.elsewhere.is_at(request, worker) {
            self.lost_there(request);
        }
    }

    /// Before this run a request was settled: its key answers as it did.
    fn remember_settled(&mut self, worker: &NodeName, row: SettledRow) {
        let (id, requester) = (row.request.clone(), row.requester.bare());
        let ended = self.ended_at(row.ended_ms_ago);
        if row.ended_ms_ago.is_none() {
            // Its lease is active, and the report of it says all that there is to know.
            return;
        }
        let (result, keeps_key) = match &row.outcome {
            SettledOutcome::Granted { .. } => match self.first_of_row(worker, &row) {
                Some(first) => (Some(Ok(first)), true),
                None => return,
            },
            SettledOutcome::Failed(refusal) => {
                let keeps_key = is_remembered(refusal.code);
                (Some(Err(super::ask::outward(refusal.clone(), worker))), keeps_key)
            }
            SettledOutcome::Cancelled => (None, true),
        };
        let mut key = row.key.clone().filter(|_| keeps_key);
        let in_use = key.as_ref().and_then(|key| self.ledger.request_of_key(&requester, key));
        if let Some((other, fingerprint)) = in_use.map(|(request, fingerprint)| (request.clone(), fingerprint)) {
            // The key came again before this was known. If that request still waits, this is its answer.
            let waits = self.fleet.get(&other).is_some_and(|open| open.stage == Stage::Waiting);
            if waits && fingerprint == row.fingerprint {
                self.ends_as_before(&other, result.clone());
            } else {
                key = None;
            }
        }
        self.requests.open(id.clone(), requester.clone(), key.clone(), row.created_at);
        match result {
            Some(Ok(first)) => {
                self.requests.grant(&id, first);
                self.requests.end(&id, ended);
            }
            Some(Err(refusal)) => self.requests.fail(&id, refusal, keeps_key, ended),
            None => self.requests.cancel(&id, ended),
        }
        if let Some(key) = key {
            self.ledger.remember(&id, &requester, key, row.fingerprint);
        }
    }

    /// One that waits here has the key of a request that has ended before this run: it ends as that did, none for
    /// cancelled, and its key is free for that.
    fn ends_as_before(&mut self, other: &RequestId, result: Option<Result<FirstGrant, Refusal>>) {
        let Some(Open { ask, .. }) = self.fleet.remove(other) else { return };
        self.ledger.refuse(other);
        let result = result.unwrap_or_else(|| Err(was_cancelled(other)));
        match &result {
            Ok(first) => self.tell_granted(other, None, first),
            Err(refusal) => self.tell_rejected(&ask, reason_of(refusal, ask.no_wait()), refusal.code),
        }
        self.end_second(other, result);
        self.left_queue(ask.mode);
    }

    fn ended_at(&self, ago_ms: Option<u64>) -> RunTime {
        let now = self.around.clock.now().run;
        RunTime(now.0.saturating_sub(std::time::Duration::from_millis(ago_ms.unwrap_or(0))))
    }

    /// A lease as it was granted, from the row of a settled request.
    fn first_of_row(&self, worker: &NodeName, row: &SettledRow) -> Option<FirstGrant> {
        let SettledOutcome::Granted { resource, lease, expires_at, labels, environment } = &row.outcome else {
            return None;
        };
        let (mut record, left) = lease.clone().into_lease(resource);
        record.holder = row.requester.clone();
        let id = self.table.name(worker, &record);
        let deadline = self.around.clock.now().run + left;
        let (worker, labels) = (worker.clone(), labels.clone());
        let environment = bounded(environment.clone()).0;
        let lease = FleetLease { id, worker, lease: record, deadline, labels, environment };
        Some(FirstGrant { lease, expires_at: *expires_at })
    }
}
