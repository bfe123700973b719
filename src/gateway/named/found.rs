//! Requests that waited at a worker when this gateway came. Whoever comes with the key or the ticket of one, or asks about
//! it, has it again; one that nobody claims is taken out.

use super::super::elsewhere::{Kind, Waits};
use super::super::front::{CallKind, FrontState};
use crate::clock::RunTime;
use crate::limits::CALL_BOUND;
use crate::model::{NodeName, RequestId, ResourceAddress};
use crate::wire::call::Call;
use crate::wire::requests::WaitingRow;

impl FrontState {
    /// Takes one in.
    pub(super) fn adopt(&mut self, worker: &NodeName, number: u64, row: WaitingRow) {
        let WaitingRow { request, requester, resource, mode, attended, lease_id, key, fingerprint, joined_at } = row;
        let requester = requester.bare();
        tracing::debug!(%request, %worker, %requester, attended, "a request waits there already");
        let kind = if attended {
            let key = key.map(|key| (key, fingerprint));
            if key.as_ref().is_some_and(|(key, _)| self.ledger.request_of_key(&requester, key).is_some()) {
                // The key has come again before this was known, and what came goes on.
                return self.take_out(worker, &request);
            }
            let book_key = key.as_ref().map(|(key, _)| key.clone());
            self.requests.open(request.clone(), requester.clone(), book_key, joined_at);
            self.ledger.restore_open(&request, &requester, lease_id.as_ref(), key);
            Kind::Found { at: self.around.clock.now().run, claimed: false, leaving: false }
        } else {
            let room = ResourceAddress { worker: Some(worker.clone()), id: resource.clone() };
            self.ledger.restore_waiter(&request, &requester, room, lease_id.as_ref());
            Kind::Unattended
        };
        let worker = worker.clone();
        let waits = Waits { worker, resource, requester, mode, lease_id, kind, number, place: None };
        self.elsewhere.insert(request, waits);
    }

    /// Takes those out that nobody has claimed.
    pub(in super::super) fn end_unclaimed(&mut self, now: RunTime) {
        for (request, worker) in self.elsewhere.unclaimed(now, self.around.absence_grace) {
            if self.workers.get(&worker).is_some_and(super::super::front::Worker::takes_requests) {
                tracing::info!(%request, %worker, "nobody has claimed a request that waits there; it is taken out");
                // Its end comes as a report.
                self.elsewhere.leave(&request, true);
                self.take_out(&worker, &request);
            }
        }
    }

    /// Takes a request out of a worker's waiting room that nobody is to have there.
    pub(super) fn take_out(&mut self, worker: &NodeName, request: &RequestId) {
        let call = Call::Cancel { request: request.clone() };
        self.ask(worker, CallKind::Withdraw { request: request.clone() }, call, CALL_BOUND);
    }
}
