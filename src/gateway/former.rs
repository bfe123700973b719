//! Requests that were open when a former run of the gateway ended: how their story ends (SPEC §9 Operators).
//!
//! One of them ends as granted when a worker reports its lease, or as that worker's book of settled requests says. One that a
//! worker reports as waiting goes on. Any other ends as `daemon-restarted`, once the rebuild is over and those are heard that
//! could know better: the worker that it was sent to, or all of them when it was sent to none; after the absence grace
//! nobody is waited for.

use std::time::Duration;

use super::environment::bounded;
use super::front::FrontState;
use super::history::{granted, reason_of, rejected};
use super::message::{FirstGrant, FleetLease};
use crate::clock::RunTime;
use crate::model::{Code, NodeName, RequestId};
use crate::store::OpenRequest;
use crate::wire::requests::{SettledOutcome, SettledRow};

/// The end of a request may be missing in the journal though its beginning is too, when it ended so shortly before the last
/// event that was written. Worker and gateway may have different clocks.
const TAIL: Duration = Duration::from_secs(60);

impl FrontState {
    /// A worker has reported a lease that this run did not ask for. Its request has got it.
    pub(super) fn tell_found(&mut self, id: &RequestId, first: &FirstGrant) {
        let history = &mut self.around.history;
        let tail = history.last_own.and_then(|last| last.checked_sub(TAIL).ok());
        let owed = history.unsettled.remove(id).is_some();
        if owed || tail.is_some_and(|tail| first.lease.lease.granted_at >= tail) {
            self.emit_if_untold(granted(id, first));
        }
    }

    /// One that waited at a worker since before this run has got nothing, by this gateway's own word.
    pub(super) fn tell_found_rejected(&mut self, id: &RequestId, reason: &str, code: Code) {
        if let Some(OpenRequest { id, requester, spec, .. }) = self.around.history.unsettled.remove(id) {
            self.emit_if_untold(rejected(&id, &requester, spec, reason, code));
        }
    }

    /// A worker says how a request has ended.
    pub(super) fn hear_settled(&mut self, worker: &NodeName, row: &SettledRow) {
        let ours = row.requester.via.as_ref() == Some(&self.around.name);
        let same = |open: &OpenRequest| open.requester == row.requester.bare();
        if !(ours && self.around.history.unsettled.get(&row.request).is_some_and(same)) {
            return;
        }
        let Some(open) = self.around.history.unsettled.remove(&row.request) else { return };
        let event = match &row.outcome {
            SettledOutcome::Granted { resource, lease, expires_at, labels, environment } => {
                let (mut lease, _) = lease.clone().into_lease(resource);
                lease.holder = row.requester.clone();
                let id = self.table.name(worker, &lease);
                let deadline = self.around.clock.now().run_at(*expires_at, lease.ttl);
                let (worker, labels) = (worker.clone(), labels.clone());
                let environment = bounded(environment.clone()).0;
                let lease = FleetLease { id, worker, lease, deadline, labels, environment };
                granted(&open.id, &FirstGrant { lease, expires_at: *expires_at })
            }
            SettledOutcome::Failed(refusal) => {
                rejected(&open.id, &open.requester, open.spec, reason_of(refusal, false), refusal.code)
            }
            SettledOutcome::Cancelled => {
                let code = crate::admission::cancel::was_cancelled(&open.id).code;
                rejected(&open.id, &open.requester, open.spec, "cancelled", code)
            }
        };
        self.emit_if_untold(event);
    }

    /// True while a request of a former run goes on: it waits at a worker, or in this run's own queue.
    pub(super) fn still_open_elsewhere(&self, request: &RequestId) -> bool {
        self.elsewhere.get(request).is_some() || self.fleet.get(request).is_some()
    }

    /// Ends the story of the requests of former runs of which nobody will tell any more.
    pub(super) fn settle_former(&mut self, now: RunTime) {
        if !self.rebuilt || self.around.history.unsettled.is_empty() {
            return;
        }
        let graced = now >= self.started + self.around.absence_grace;
        let all_heard = self.unheard().is_empty();
        let heard = |worker: &NodeName| self.workers.get(worker).is_none_or(|worker| worker.view.is_some());
        let over = |open: &&OpenRequest| {
            let told = graced || open.worker.as_ref().map_or(all_heard, heard);
            told && !self.still_open_elsewhere(&open.id)
        };
        let over: Vec<OpenRequest> = self.around.history.unsettled.values().filter(over).cloned().collect();
        for OpenRequest { id, requester, spec, .. } in over {
            self.around.history.unsettled.remove(&id);
            self.emit_if_untold(rejected(&id, &requester, spec, "daemon-restarted", Code::NodeRestarted));
        }
    }
}
