//! Links and reports: how the front's picture of its workers moves, and with it the routing table.

use std::collections::HashSet;

use super::calendar::pause::Told;
use super::fleet::Stage;
use super::front::{FrontState, Worker};
use super::identity::ToldElsewhere;
use super::message::{FirstGrant, WholeSnapshot};
use super::session::{LinkId, SessionMessage};
use super::table::Entered;
use super::view::{Seen, View};
use crate::admission::RequestState;
use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::model::{Event, EventKind, LeaseId, LeaseRecord, NodeName, RequestId, ResourceId};
use crate::wire::hello::Hello;
use crate::wire::report::{Changed, Digest, ResourceReport};
use crate::wire::requests::WaitingRow;

impl Worker {
    /// Asks for a whole picture, if that has not been tried just now.
    fn ask_anew(&mut self, name: &NodeName, now: RunTime, why: &str) {
        if self.resyncs.is_due(now) {
            tracing::warn!(worker = %name, "{why}");
            self.resyncs.asked(now);
            let _ = self.session.cast(SessionMessage::Resync);
        }
    }
}

impl FrontState {
    pub(super) fn up(&mut self, name: &NodeName, link: LinkId, hello: Hello) {
        let event = Event::new(EventKind::WorkerConnected).with("worker", name.as_str());
        self.emit(event.with("version", hello.version.as_str()).with("incarnation", hello.incarnation));
        let Some(worker) = self.heard(name) else { return };
        worker.link = Some(link);
        worker.away_since = None;
        worker.reported = false;
        worker.told = Told::default();
        worker.told_elsewhere = ToldElsewhere::default();
        worker.incompatible = false;
        let anew = worker.view.as_mut().filter(|view| view.incarnation() != hello.incarnation);
        if let Some(view) = anew {
            view.begin_incarnation(hello.incarnation);
            self.table.forget_numbers(name);
            self.elsewhere.forget_numbers(name);
        }
        if let Some(worker) = self.workers.get_mut(name) {
            worker.hello = Some(hello);
        }
        self.fleet.reconnected(name);
        self.pump_due = true;
    }

    pub(super) fn incompatible(&mut self, name: &NodeName, hello: Hello) {
        if let Some(worker) = self.heard(name) {
            worker.incompatible = true;
            worker.hello = Some(hello);
        }
    }

    pub(super) fn down(&mut self, name: &NodeName, link: LinkId, why: &str) {
        let now = self.around.clock.now().run;
        let Some(worker) = self.workers.get_mut(name).filter(|worker| worker.link == Some(link)) else { return };
        worker.link = None;
        worker.reported = false;
        worker.away_since = Some(now);
        let event = Event::new(EventKind::WorkerDisconnected).with("worker", name.as_str());
        self.emit(event.with("reason", why));
        // Who can be served by this worker alone waits for it from now on.
        self.pump_due = true;
    }

    pub(super) fn snapshot(&mut self, name: &NodeName, link: LinkId, at: RunTime, snapshot: WholeSnapshot) {
        let WholeSnapshot { incarnation, number, resources: reports, waiting, settled } = snapshot;
        let now = self.around.clock.now().run;
        let Some(worker) = self.heard(name).filter(|worker| worker.link == Some(link)) else { return };
        let view = worker.view.get_or_insert_with(|| {
            let mut view = View::default();
            view.begin_incarnation(incarnation);
            view
        });
        let changed = !view.has_the_resources(&reports);
        view.take_snapshot(number, reports, at);
        view.take_waiting(number, &waiting);
        worker.reported = true;
        worker.forgotten = false;
        worker.resyncs.snapshot(now);
        let left_out: Vec<ResourceId> =
            view.resources().iter().filter(|(_, seen)| seen.left_out > 0).map(|(id, _)| id.clone()).collect();
        let leases: Vec<Held> = view.resources().values().flat_map(|seen| seen.held.iter().cloned()).collect();
        tracing::debug!(worker = %name, number, leases = leases.len(), "took a snapshot in");
        left_out.iter().for_each(|id| self.warn_of_claims(name, id));
        self.note_identities(name);
        for held in &leases {
            self.enter(name, held, number);
        }
        let grants: HashSet<_> = leases.iter().map(|held| (&held.lease.id, held.lease.fence)).collect();
        let shown = |lease: &LeaseRecord| grants.contains(&(&lease.id, lease.fence));
        self.take_rows(name, number, waiting, settled);
        let missing = self.table.count_missing(name, number, shown);
        self.forget_leases(missing.dropped);
        if missing.ask_again
            && let Some(worker) = self.workers.get(name)
        {
            let _ = worker.session.cast(SessionMessage::Resync);
        }
        self.settle_doubts(name);
        self.tell_pauses();
        self.end_rebuild_if_due();
        self.reported(name, number, changed);
        self.pump_due = true;
    }

    pub(super) fn delta(&mut self, name: &NodeName, link: LinkId, at: RunTime, number: u64, change: Changed) {
        match change {
            Changed::Resource(report) => self.resource_changed(name, link, at, number, report),
            Changed::Waiting(row) => {
                if self.request_changed(name, link, number, &row.request, Some(&row)) {
                    self.reported_waiting(name, number, row);
                }
            }
            Changed::Settled(row) => {
                if self.request_changed(name, link, number, &row.request, None) {
                    self.reported_settled(name, row);
                    self.pump();
                }
            }
            Changed::Gone(request) => {
                if self.request_changed(name, link, number, &request, None) {
                    self.reported_gone(name, &request);
                }
            }
            Changed::ResourceGone(resource) => self.resource_gone(name, link, number, &resource),
        }
    }

    /// A request waits at the worker, or not any more. False when that is of a former link.
    fn request_changed(
        &mut self,
        name: &NodeName,
        link: LinkId,
        number: u64,
        request: &RequestId,
        row: Option<&WaitingRow>,
    ) -> bool {
        let Some(worker) = self.heard(name).filter(|worker| worker.link == Some(link)) else { return false };
        let Some(view) = &mut worker.view else { return false };
        view.take_request(number, request, row);
        true
    }

    /// What the worker says that its state comes to.
    pub(super) fn digest(&mut self, name: &NodeName, link: LinkId, digest: Digest) {
        let now = self.around.clock.now().run;
        let Some(worker) = self.heard(name).filter(|worker| worker.link == Some(link)) else { return };
        let Some(view) = worker.view.as_ref().filter(|view| view.incarnation() == digest.incarnation) else { return };
        if worker.reported && (view.number(), view.digest()) != (digest.number, digest.digest) {
            worker.ask_anew(name, now, "the picture of a worker is not what it says; asking anew");
        }
    }

    /// Changes of a worker's are missing. When it may not be asked yet, a later digest shows that they still are.
    pub(super) fn gap(&mut self, name: &NodeName, link: LinkId) {
        let now = self.around.clock.now().run;
        if let Some(worker) = self.heard(name).filter(|worker| worker.link == Some(link)) {
            worker.ask_anew(name, now, "changes that a worker has reported are missing; asking anew");
        }
    }

    fn resource_changed(&mut self, name: &NodeName, link: LinkId, at: RunTime, number: u64, report: ResourceReport) {
        let Some(worker) = self.heard(name).filter(|worker| worker.link == Some(link)) else { return };
        let Some(view) = &mut worker.view else { return };
        let id = report.id.clone();
        let known = view.resources().get(&id);
        let changed = known.is_none_or(|seen| seen.labels != report.labels || seen.grantable != report.grantable);
        if !view.take_delta(number, report, at) {
            return;
        }
        let Some(Seen { labels, held, left_out, .. }) = view.resources().get(&id).cloned() else { return };
        if left_out > 0 {
            self.warn_of_claims(name, &id);
        }
        self.note_identity(name, &id);
        let ended = self.table.drop_ended(name, &id, &held, number);
        self.forget_leases(ended);
        for held in &held {
            self.enter(name, held, number);
        }
        self.reported(name, number, changed);
        if changed {
            // Somebody's last match may have gone.
            self.pump_due = true;
        } else {
            self.pump_labels(&labels);
        }
    }

    /// A resource is there no more, and so nobody has it.
    fn resource_gone(&mut self, name: &NodeName, link: LinkId, number: u64, resource: &ResourceId) {
        let Some(worker) = self.heard(name).filter(|worker| worker.link == Some(link)) else { return };
        let Some(view) = &mut worker.view else { return };
        if !view.take_gone(number, resource) {
            return;
        }
        self.note_identity(name, resource);
        let ended = self.table.drop_ended(name, resource, &[], number);
        self.forget_leases(ended);
        self.reported(name, number, true);
        // Somebody's last match may have gone.
        self.pump_due = true;
    }

    /// Takes in one reported lease: routes it, or judges it as the answer of a dispatch, or ends it if nobody is to
    /// have it.
    fn enter(&mut self, worker: &NodeName, held: &Held, number: u64) {
        if !self.table.is_ours(&held.lease) {
            return;
        }
        let request = held.lease.request_id.clone();
        if self.orphans.has_lease(worker, &held.lease) {
            return;
        }
        if self.elsewhere.is_at(&request, worker) {
            self.granted_there(&request, worker, held, number);
        } else if self.orphans.is_given_up(&request, worker) {
            self.orphans.found(&request, worker);
            self.take_or_release(&request, worker, held, number);
        } else if self.is_out_at(&request, worker) {
            // The report may have been on its way for long: nobody is promised more than the worker will keep.
            let sent_at = self.fleet.get(&request).and_then(|open| open.sent_at);
            // But for the time in which its device was made ready, which was before the lease.
            let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
            let seen = view.and_then(|view| view.resources().get(&held.lease.resource_id));
            let prepared = seen.map(|seen| seen.prepared).unwrap_or_default();
            let latest = sent_at.map_or(held.deadline, |sent_at| sent_at + prepared + held.lease.ttl);
            let held = Held { deadline: held.deadline.min(latest), ..held.clone() };
            self.judge_grant(&request, worker, &held, number);
        } else if self.has_another_end(&request, worker, &held.lease) {
            self.release_orphan(worker, &held.lease);
        } else {
            match self.table.enter(worker, held, number) {
                Entered::New(id) => self.remember(&id, worker, &held.lease),
                Entered::Taken(id, first) => tracing::warn!(
                    lease = %id, %first, second = %worker,
                    "two workers hold a lease of this id; the first stays routed, the second ends at its deadline"
                ),
                Entered::Known(_) | Entered::Older(_) | Entered::Foreign => {}
            }
        }
    }

    /// True when this run knows that the request of a reported lease has not ended with it: one request, one outcome.
    fn has_another_end(&self, request: &RequestId, worker: &NodeName, lease: &LeaseRecord) -> bool {
        match self.requests.get(request).map(|request| &request.state) {
            None => false,
            Some(RequestState::Open | RequestState::Failed(_) | RequestState::Cancelled) => true,
            Some(RequestState::Granted(FirstGrant { lease: known, .. })) => {
                known.worker != *worker || known.lease.id != lease.id || known.lease.fence != lease.fence
            }
        }
    }

    /// Enters a routed lease into the ledger and the book of requests.
    pub(super) fn remember(&mut self, id: &LeaseId, worker: &NodeName, lease: &LeaseRecord) {
        let requester = lease.holder.bare();
        let mut key = lease.idempotency_key.clone().map(|key| (key, lease.fingerprint));
        let waiting = key.as_ref().and_then(|(key, _)| self.ledger.request_of_key(&requester, key));
        let waiting = waiting.filter(|(request, _)| **request != lease.request_id);
        let mut settled = None;
        if let Some((other, fingerprint)) = waiting.map(|(request, fingerprint)| (request.clone(), fingerprint)) {
            // The key came again before this lease was known. If that request still waits, this lease is its answer.
            let waits = self.fleet.get(&other).filter(|open| open.stage == Stage::Waiting);
            if let Some(mode) = waits.filter(|_| fingerprint == lease.fingerprint).map(|open| open.ask.mode) {
                self.fleet.remove(&other);
                self.left_queue(mode);
                self.ledger.refuse(&other);
                settled = Some(other);
            } else {
                key = None;
            }
        }
        if let Some(former) = self.ledger.holder_of(id).filter(|former| **former != lease.request_id) {
            // Its lease, if it has one, was a former one of this name.
            self.requests.end(former, self.around.clock.now().run);
        }
        let book_key = key.clone().map(|(key, _)| key);
        self.ledger.restore(&lease.request_id, &requester, id, key);
        tracing::debug!(lease = %id, %worker, %requester, "routed");
        if self.requests.get(&lease.request_id).is_none() {
            self.requests.open(lease.request_id.clone(), requester, book_key, lease.granted_at);
        }
        if let Some(first) = self.first_grant(id) {
            self.requests.grant(&lease.request_id, first.clone());
            self.tell_found(&lease.request_id, &first);
            if let Some(other) = settled {
                self.tell_granted(&other, None, &first);
                self.end_second(&other, Ok(first));
            }
        }
    }

    /// Leases that are over: their requesters and ids are free.
    pub(super) fn forget_leases(&mut self, ended: Vec<(LeaseId, LeaseRecord)>) {
        let now = self.around.clock.now().run;
        for (id, lease) in ended {
            self.ledger.end(&id);
            self.requests.end(&lease.request_id, now);
        }
    }

    /// What a worker says of a resource is no sensible claim in part. That is said once.
    fn warn_of_claims(&mut self, worker: &NodeName, resource: &ResourceId) {
        if let Some(state) = self.workers.get_mut(worker)
            && state.warned.insert(resource.clone())
        {
            tracing::warn!(%worker, %resource, "labels, an identity or an environment as no device has them are left out");
        }
    }

    fn heard(&mut self, name: &NodeName) -> Option<&mut Worker> {
        let wall = self.around.clock.now().wall;
        let worker = self.workers.get_mut(name)?;
        worker.last_seen = Some(wall);
        Some(worker)
    }
}
