//! What happens when a resource's actor dies: nothing of that life may reach the disk any more, and then the disk says
//! what is true. Those who wait attended are in memory only; they go on waiting, unless the disk says that they have
//! got their lease or have ended.

use super::desk::{DeskState, Op, OpKind};
use super::directory::Life;
use super::message::{DeskMessage, OpId};
use super::restored::restored;
use super::settle::Told;
use crate::admission::Waiter;
use crate::admission::resource::{Held, Rejection, Reply, ResourceState, withdrawn};
use crate::model::{LeaseRecord, Refusal, RequestId, ResourceId};
use crate::store::{StoredOutcome, StoredRequest, StoredResource};

impl DeskState {
    /// A resource's actor has died.
    pub(super) fn close(&mut self, resource: ResourceId) {
        let Some(entry) = self.directory.get(&resource) else { return };
        let (activation, out) = (entry.activation, entry.out);
        self.directory.set_life(&resource, Life::Reopening);
        let subject = out.and_then(|op| self.ops.get(&op)).and_then(subject);
        let myself = self.myself.clone();
        self.store.close(resource.clone(), activation, subject, move |rows| {
            let _ = myself.cast(DeskMessage::Reopened(resource, rows));
        });
    }

    /// The disk has spoken: what was in flight ends as it says, and what came in meanwhile goes on.
    pub(super) fn reopened(&mut self, resource: ResourceId, rows: (StoredResource, Option<StoredRequest>)) {
        let Some(Life::Reopening) = self.directory.set_life(&resource, Life::Idle) else { return };
        let (rows, subject) = rows;
        let Some(entry) = self.directory.get_mut(&resource) else { return };
        let out = entry.out.take();
        entry.resting = false;
        entry.admission_declined = false;
        let mut state = restored(rows, &self.rules, self.clock.now());
        let rejected = self.keep_what_is_known(&resource, &mut state, out, subject.as_ref());
        let reply = out.and_then(|op| Some(outcome(self.ops.get(&op)?, &state, subject.as_ref())));
        self.adopt_reopened(&resource, state);
        if let Some(rejected) = rejected {
            self.tell(rejected);
        }
        if let Some((op, reply)) = out.zip(reply) {
            self.settle_op(op, reply);
        }
        self.to_pump.insert(resource);
    }

    /// What the disk holds as the desk knows it keeps the times of this run, and whoever waits attended waits on.
    fn keep_what_is_known(
        &mut self,
        resource: &ResourceId,
        state: &mut ResourceState,
        out: Option<OpId>,
        subject: Option<&StoredRequest>,
    ) -> Option<Told> {
        let entry = self.directory.get(resource)?;
        for held in &mut state.held {
            if let Some(known) = entry.state.held.iter().find(|known| known.lease == held.lease) {
                held.deadline = known.deadline;
            }
        }
        for reservation in &mut state.reserved {
            if let Some(known) = entry.state.reserved.iter().find(|known| known.holder == reservation.holder) {
                *reservation = known.clone();
            }
        }
        for waiter in state.queue.iter().cloned().collect::<Vec<_>>() {
            let known = entry.state.queue.unattended_of(&waiter.proposal.holder);
            if let Some(known) = known.filter(|known| known.joined_at == waiter.joined_at) {
                state.queue.remove(&waiter.proposal.request);
                state.queue.join(known.clone());
            }
        }
        let granted = |waiter: &Waiter| state.held.iter().any(|held| held.lease.request_id == waiter.proposal.request);
        let mut attended: Vec<Waiter> =
            entry.state.queue.iter().filter(|waiter| waiter.is_attended() && !granted(waiter)).cloned().collect();
        // One that was just joining is not known here yet.
        if let Some(OpKind::Ask { waiter, .. }) = out.and_then(|op| self.ops.get(&op)).map(|op| &op.kind)
            && waiter.is_attended()
            && subject.is_some_and(|request| request.outcome == StoredOutcome::Open)
        {
            attended.push(Waiter::clone(waiter));
        }
        let mut rejected = None;
        for waiter in attended {
            let ended = subject.filter(|request| request.id == waiter.proposal.request);
            match ended.map(|request| &request.outcome) {
                Some(StoredOutcome::Failed { refusal, cancelled, .. }) => {
                    let why = if *cancelled { Rejection::Cancelled } else { reason_of(refusal) };
                    let refusal = withdrawn(&waiter.proposal, why, &self.rules.waiting);
                    rejected = Some(Told::Rejected(waiter.proposal.request.clone(), why, refusal));
                }
                _ => state.queue.join(waiter),
            }
        }
        rejected
    }

    /// Takes the state in that the disk holds: what ended is free, and what began is known.
    fn adopt_reopened(&mut self, resource: &ResourceId, state: ResourceState) {
        let Some(entry) = self.directory.get(resource) else { return };
        let now = self.clock.now();
        let there = |held: &Held, list: &[Held]| {
            list.iter().any(|other| other.lease.id == held.lease.id && other.lease.fence == held.lease.fence)
        };
        let ended: Vec<LeaseRecord> =
            (entry.state.held.iter()).filter(|held| !there(held, &state.held)).map(|held| held.lease.clone()).collect();
        let begun: Vec<Held> = state.held.iter().filter(|held| !there(held, &entry.state.held)).cloned().collect();
        let gone: Vec<RequestId> = (entry.state.queue.iter())
            .filter(|waiter| !waiter.is_attended() && state.queue.get(&waiter.proposal.request).is_none())
            .map(|waiter| waiter.proposal.request.clone())
            .collect();
        self.schedule.set(resource, state.wake_at(&self.rules.waiting));
        self.directory.set_state(resource, state);
        for lease in ended {
            self.ended(&lease, now.wall, None);
        }
        for request in gone {
            self.ledger.refuse(&request);
        }
        for held in &begun {
            self.granted(resource, held);
        }
        if let Some(entry) = self.directory.get(resource) {
            self.reporter.changed(entry, now);
        }
        for held in begun {
            self.tell(Told::Granted(held));
        }
    }
}

/// The request whose row says how a command ended.
fn subject(op: &Op) -> Option<RequestId> {
    match &op.kind {
        OpKind::Ask { waiter, .. } => Some(waiter.proposal.request.clone()),
        OpKind::Withdraw { request } | OpKind::Offer { request, .. } => Some(request.clone()),
        _ => None,
    }
}

/// How a command that was in flight when its actor died has ended, by what the disk holds.
fn outcome(op: &Op, state: &ResourceState, subject: Option<&StoredRequest>) -> Reply {
    let not_done = || Reply::Refused(Refusal::internal("the resource failed meanwhile, and it has not happened"));
    let lease_of = |request: &RequestId| state.held.iter().find(|held| held.lease.request_id == *request).cloned();
    match &op.kind {
        OpKind::Ask { waiter, .. } => {
            let request = &waiter.proposal.request;
            let standing = state.queue.unattended_of(&waiter.proposal.holder);
            match (lease_of(request), standing) {
                (Some(held), _) => Reply::Granted(held),
                (None, _) if waiter.is_attended() && state.queue.get(request).is_some() => Reply::Waiting,
                (None, Some(standing)) if !waiter.is_attended() => Reply::Pending {
                    request: standing.proposal.request.clone(),
                    position: state.queue.position(standing.rank),
                },
                _ => not_done(),
            }
        }
        OpKind::Offer { request, .. } => lease_of(request).map_or(Reply::Declined, Reply::Granted),
        OpKind::Withdraw { .. } => {
            let open = subject.is_none_or(|request| request.outcome == StoredOutcome::Open);
            if open { not_done() } else { Reply::Left(true) }
        }
        OpKind::Renew { lease, renewed_at, .. } => {
            let renewed = |held: &&Held| held.lease.id == *lease && held.lease.renewed_at != *renewed_at;
            state.held.iter().find(renewed).cloned().map_or_else(not_done, Reply::Renewed)
        }
        OpKind::Release { lease, .. } => {
            let there = |held: &Held| held.lease.id == lease.id && held.lease.fence == lease.fence;
            if state.held.iter().any(there) { not_done() } else { Reply::Released(LeaseRecord::clone(lease), None) }
        }
        OpKind::Leave { .. } | OpKind::Drain { .. } | OpKind::Rewrite => not_done(),
        OpKind::Serve { .. } => Reply::Served(None),
        OpKind::Wake => Reply::Done,
    }
}

/// Why a stored request failed, as far as its words tell.
fn reason_of(refusal: &Refusal) -> Rejection {
    match refusal.code {
        crate::model::Code::QueueTimeout => Rejection::Timeout,
        crate::model::Code::NoCapacity => Rejection::Abandoned,
        _ => Rejection::WorkerFailed,
    }
}
