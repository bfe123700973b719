//! How a command comes back: the resource as it then is, into the directory, the ledger, the book and the reports;
//! then the answer. And what happens when a resource's actor dies.

use std::collections::VecDeque;
use std::time::Duration;

use super::desk::{DeskState, Op, OpKind, grant};
use super::directory::Life;
use super::message::{DeskMessage, FirstGrant, OpId};
use super::resource::restored;
use crate::admission::resource::{Held, Reply, ResourceState};
use crate::model::{LeaseRecord, Refusal, ResourceId};
use crate::store::StoredResource;

/// The first and the longest pause before an expiry whose commit failed is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

impl DeskState {
    /// A resource has done a command.
    pub(super) fn settled(
        &mut self,
        resource: &ResourceId,
        activation: u64,
        op: OpId,
        reply: Reply,
        state: Option<ResourceState>,
    ) {
        // What a dead actor had said before it died comes before `Reopened` and counts; what a former life of the
        // resource said does not.
        if self.directory.get(resource).is_none_or(|entry| entry.activation != activation) {
            return;
        }
        if let Some(state) = state {
            self.adopt(resource, state);
        }
        self.settle_op(op, reply);
    }

    /// Takes a resource's new state in: what ended is free before anybody hears of it, and the change is reported.
    fn adopt(&mut self, resource: &ResourceId, state: ResourceState) {
        let Some(entry) = self.directory.get(resource) else { return };
        if entry.state == state {
            return;
        }
        let now = self.clock.now();
        let labels = entry.spec.labels.clone();
        let there = |held: &Held, list: &[Held]| {
            list.iter().any(|other| other.lease.id == held.lease.id && other.lease.fence == held.lease.fence)
        };
        let ended: Vec<LeaseRecord> =
            (entry.state.held.iter()).filter(|held| !there(held, &state.held)).map(|held| held.lease.clone()).collect();
        let begun: Vec<Held> = state.held.iter().filter(|held| !there(held, &entry.state.held)).cloned().collect();
        self.schedule.set(resource, state.wake_at());
        self.directory.set_state(resource, state);
        for lease in ended {
            self.ledger.end(&lease.id);
            self.requests.end(&lease.request_id, now.run);
        }
        for held in begun {
            self.ledger.grant(&held.lease.request_id, &held.lease.id);
            let expires_at = now.wall_at(held.deadline);
            let first = FirstGrant { lease: held.lease.clone(), expires_at, labels: labels.clone() };
            self.requests.grant(&held.lease.request_id, first);
        }
        if let Some(entry) = self.directory.get(resource) {
            self.reporter.changed(entry, now);
        }
    }

    /// Answers whoever asked for a command.
    pub(super) fn settle_op(&mut self, op: OpId, reply: Reply) {
        let Some(Op { resource, kind, .. }) = self.ops.remove(&op) else { return };
        if let Some(entry) = self.directory.get_mut(&resource) {
            entry.in_flight -= 1;
            if let OpKind::Acquire { mode, .. } = &kind
                && let Some(index) = entry.promised.iter().position(|promised| promised == mode)
            {
                entry.promised.swap_remove(index);
            }
        }
        let labels = self.directory.get(&resource).map(|entry| entry.spec.labels.clone()).unwrap_or_default();
        match (kind, reply) {
            (OpKind::Acquire { request, .. }, Reply::Granted(held)) => {
                let now = self.clock.now();
                self.tell_watchers(&request, &Ok(grant(&held, &labels, now)));
            }
            (OpKind::Acquire { request, .. }, reply) => {
                let refusal = refusal_of(reply);
                self.ledger.refuse(&request);
                self.requests.fail(&request, refusal.clone(), self.clock.now().run);
                self.tell_watchers(&request, &Err(refusal));
            }
            (OpKind::Wake, reply) => self.woken(&resource, reply),
            (OpKind::Rewrite, reply) => {
                let written = !matches!(reply, Reply::Refused(_));
                self.drift.settled(&resource, written, self.clock.now().run);
            }
            (kind, reply) => self.answer_change(kind, reply),
        }
    }

    /// A resource has been woken. One whose expiry could not be written is woken again, ever later.
    fn woken(&mut self, resource: &ResourceId, reply: Reply) {
        let now = self.clock.now().run;
        let Some(entry) = self.directory.get_mut(resource) else { return };
        let next = if let Reply::Refused(refusal) = reply {
            let pause = RETRY_FIRST.saturating_mul(1 << entry.wake_failures.min(10)).min(RETRY_LONGEST);
            entry.wake_failures += 1;
            tracing::warn!(%resource, %refusal, ?pause, "an expiry was not written; it is tried again");
            Some(now + pause)
        } else {
            entry.wake_failures = 0;
            entry.state.wake_at()
        };
        self.schedule.set(resource, next);
    }

    /// Answers a renew or a release.
    pub(super) fn answer_change(&self, kind: OpKind, reply: Reply) {
        match (kind, reply) {
            (OpKind::Renew { reply: caller, .. }, Reply::Renewed(held)) => {
                let entry = self.directory.get(&held.lease.resource_id);
                let labels = entry.map(|entry| entry.spec.labels.clone()).unwrap_or_default();
                self.say(caller, Ok(grant(&held, &labels, self.clock.now())));
            }
            (OpKind::Renew { reply: caller, .. }, reply) => self.say(caller, Err(refusal_of(reply))),
            (OpKind::Release { reply: caller, .. }, Reply::Released(lease)) => self.say(caller, Ok(lease)),
            (OpKind::Release { reply: caller, .. }, reply) => self.say(caller, Err(refusal_of(reply))),
            (OpKind::Acquire { .. } | OpKind::Wake | OpKind::Rewrite, _) => {}
        }
    }

    /// A resource's actor has died: nothing of that life may reach the disk any more, and then the disk says what is
    /// true.
    pub(super) fn close(&mut self, resource: ResourceId) {
        let Some(entry) = self.directory.get(&resource) else { return };
        let activation = entry.activation;
        self.directory.set_life(&resource, Life::Reopening(VecDeque::new()));
        let myself = self.myself.clone();
        self.store.close(resource.clone(), activation, move |rows| {
            let _ = myself.cast(DeskMessage::Reopened(resource, rows));
        });
    }

    /// A lease that the disk holds as the desk knows it keeps the deadline of this run.
    fn keep_known_deadlines(&self, resource: &ResourceId, state: &mut ResourceState) {
        let Some(entry) = self.directory.get(resource) else { return };
        for held in &mut state.held {
            if let Some(known) = entry.state.held.iter().find(|known| known.lease == held.lease) {
                held.deadline = known.deadline;
            }
        }
    }

    /// The disk has spoken: what was in flight ends as it says, and what came in meanwhile goes on.
    pub(super) async fn reopened(&mut self, resource: ResourceId, rows: StoredResource) {
        let Some(Life::Reopening(waiting)) = self.directory.set_life(&resource, Life::Idle) else { return };
        let later: Vec<OpId> = waiting.iter().map(|(op, _)| *op).collect();
        let in_flight = |(id, op): (&OpId, &Op)| (op.resource == resource && !later.contains(id)).then_some(*id);
        let lost: Vec<OpId> = self.ops.iter().filter_map(in_flight).collect();
        let mut state = restored(rows, self.clock.now());
        self.keep_known_deadlines(&resource, &mut state);
        let settled: Vec<(OpId, Reply)> =
            lost.into_iter().filter_map(|id| Some((id, outcome(self.ops.get(&id)?, &state)))).collect();
        // The deadline that is due may be one whose expiry was in flight.
        self.schedule.set(&resource, state.wake_at());
        self.adopt(&resource, state);
        for (op, reply) in settled {
            self.settle_op(op, reply);
        }
        for (op, command) in waiting {
            self.hand_over(&resource, op, command).await;
        }
    }
}

/// How a command that was in flight when its actor died has ended, by what the disk holds.
fn outcome(op: &Op, state: &ResourceState) -> Reply {
    let not_done = || Reply::Refused(Refusal::internal("the resource failed meanwhile, and it has not happened"));
    match &op.kind {
        OpKind::Acquire { request, .. } => {
            let held = state.held.iter().find(|held| held.lease.request_id == *request);
            held.cloned().map_or_else(not_done, Reply::Granted)
        }
        OpKind::Renew { lease, renewed_at, .. } => {
            let renewed = |held: &&Held| held.lease.id == *lease && held.lease.renewed_at != *renewed_at;
            state.held.iter().find(renewed).cloned().map_or_else(not_done, Reply::Renewed)
        }
        OpKind::Release { lease, .. } => {
            let there = |held: &Held| held.lease.id == lease.id && held.lease.fence == lease.fence;
            if state.held.iter().any(there) { not_done() } else { Reply::Released(LeaseRecord::clone(lease)) }
        }
        OpKind::Rewrite => not_done(),
        OpKind::Wake => Reply::Nothing,
    }
}

fn refusal_of(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => {
            tracing::error!(?other, "a resource's answer does not fit its command");
            Refusal::internal("the resource's answer does not fit")
        }
    }
}
