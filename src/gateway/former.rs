//! Requests that were open when a former run of the gateway ended: how their story ends (SPEC §9 Operators).
//!
//! One of them ends as granted when a worker reports its lease, or as that worker's book of settled requests says. One that a
//! worker reports as waiting goes on. Any other ends as `daemon-restarted`, once the rebuild is over and those are heard that
//! could know better: the worker that it was sent to, or all of them when it was sent to none; after the absence grace
//! nobody is waited for.
//!
//! What a run told last may not have reached the disk when it was killed. So a lease that was granted since shortly before the
//! last event that is stored, or ever where none is, has its end told too, also when nothing of its request is stored.

use std::collections::btree_map::Entry;
use std::time::Duration;

use jiff::Timestamp;

use super::environment::bounded;
use super::front::FrontState;
use super::history::{granted, reason_of, rejected};
use super::message::{FirstGrant, FleetLease};
use crate::clock::RunTime;
use crate::model::{Code, NodeName, RequestId};
use crate::store::OpenRequest;
use crate::wire::requests::{SettledOutcome, SettledRow};

/// The end of a request may be missing in the journal, and its beginning too, when it ended so shortly before the last event
/// that was written. Worker and gateway may have different clocks.
const TAIL: Duration = Duration::from_secs(60);

impl FrontState {
    /// A worker has reported a lease that this run did not ask for. Its request has got it.
    pub(super) fn tell_found(&mut self, id: &RequestId, first: &FirstGrant) {
        let owed = self.around.history.unsettled.remove(id).is_some();
        if owed || self.may_be_untold(first.lease.lease.granted_at) {
            self.emit_if_untold(granted(id, first));
        }
    }

    /// True when nothing that a former run told of a grant of this moment may be stored.
    fn may_be_untold(&self, granted_at: Timestamp) -> bool {
        self.around.history.last_own.is_none_or(|last| last.checked_sub(TAIL).is_ok_and(|tail| granted_at >= tail))
    }

    /// One that waited at a worker since before this run has got nothing, by this gateway's own word.
    pub(super) fn tell_found_rejected(&mut self, id: &RequestId, reason: &str, code: Code) {
        if let Some(OpenRequest { id, requester, spec, .. }) = self.around.history.unsettled.remove(id) {
            self.emit_if_untold(rejected(&id, &requester, spec, reason, code));
        }
    }

    /// A worker says how a request has ended.
    pub(super) fn hear_settled(&mut self, worker: &NodeName, row: &SettledRow) {
        if row.requester.via.as_ref() != Some(&self.around.name) {
            return;
        }
        let owed = match self.around.history.unsettled.entry(row.request.clone()) {
            Entry::Occupied(open) if open.get().requester == row.requester.bare() => Some(open.remove()),
            // It does not know whose it is.
            Entry::Occupied(_) => return,
            Entry::Vacant(_) => None,
        };
        let event = match (&row.outcome, owed) {
            (SettledOutcome::Granted { resource, lease, expires_at, labels, environment }, owed) => {
                let (mut lease, _) = lease.clone().into_lease(resource);
                if owed.is_none() && !self.is_untold(&row.request, lease.granted_at) {
                    return;
                }
                lease.holder = row.requester.clone();
                let id = self.table.name(worker, &lease);
                let deadline = self.around.clock.now().run_at(*expires_at, lease.ttl);
                let (worker, labels) = (worker.clone(), labels.clone());
                let environment = bounded(environment.clone()).0;
                let lease = FleetLease { id, worker, lease, deadline, labels, environment };
                granted(&row.request, &FirstGrant { lease, expires_at: *expires_at })
            }
            // What it asked for is not known, and nothing was made of it.
            (SettledOutcome::Failed(_) | SettledOutcome::Cancelled, None) => return,
            (SettledOutcome::Failed(refusal), Some(open)) => {
                rejected(&open.id, &open.requester, open.spec, reason_of(refusal, false), refusal.code)
            }
            (SettledOutcome::Cancelled, Some(open)) => {
                let code = crate::admission::cancel::was_cancelled(&open.id).code;
                rejected(&open.id, &open.requester, open.spec, "cancelled", code)
            }
        };
        self.emit_if_untold(event);
    }

    /// True for a grant of a former run whose end may not be told; this run tells of its own.
    fn is_untold(&self, request: &RequestId, granted_at: Timestamp) -> bool {
        let known = self.requests.get(request).is_some() || self.still_open_elsewhere(request);
        !known && self.may_be_untold(granted_at)
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
