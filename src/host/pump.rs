//! What a resource does next. It has one command at a time; what else is asked of it waits here. Whoever waits in the
//! pool and is first for a resource that has room comes before anything else that is asked of it, so nothing is
//! granted in between.

use std::sync::Arc;

use ractor::Actor;

use super::desk::{DeskState, Note, OpKind};
use super::directory::Life;
use super::message::{DeskMessage, OpId, ReleasedNow};
use super::open::Parked;
use super::resource::{Order, Resource, ResourceArguments, ResourceMessage, queue_full};
use crate::admission::resource::{Change, Command, Reply};
use crate::limits::RESOURCE_QUEUE_MAX;
use crate::model::{Event, Mode, Refusal, Requester, ResourceId};
use crate::store::{Batch, CommitError};

impl DeskState {
    /// Gives a command to a resource. It is carried out after those that were given before.
    pub(super) fn send(&mut self, resource: &ResourceId, kind: OpKind, command: Command) {
        let op = self.next_op();
        let now = self.clock.now().run;
        let Some(entry) = self.directory.get_mut(resource) else { return };
        entry.used_at = now;
        entry.promised.extend(mode_of(&kind));
        self.ops.insert(op, super::desk::Op { resource: resource.clone(), kind });
        let Some(entry) = self.directory.get_mut(resource) else { return };
        if entry.waiting.len() < RESOURCE_QUEUE_MAX {
            entry.waiting.push_back((op, command));
            self.to_pump.insert(resource.clone());
        } else {
            self.settle_op(op, Reply::Refused(queue_full(resource)));
        }
    }

    /// Lets every resource go on that has something to do.
    pub(super) async fn pump_all(&mut self) {
        while let Some(resource) = self.to_pump.pop_first() {
            self.pump(&resource).await;
        }
    }

    async fn pump(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get(resource) else { return };
        if entry.out.is_some() || matches!(entry.life, Life::Reopening) {
            return;
        }
        let next = self.dismissal(resource).or_else(|| self.hand_over_next(resource));
        if let Some((kind, command)) = next {
            let op = self.next_op();
            if let Some(entry) = self.directory.get_mut(resource) {
                entry.promised.extend(mode_of(&kind));
            }
            self.ops.insert(op, super::desk::Op { resource: resource.clone(), kind });
            return self.carry_out(resource, op, command).await;
        }
        if let Some(parked) = self.directory.get_mut(resource).and_then(|entry| entry.parked.take()) {
            self.answer_parked(parked, None);
        }
        if let Some((op, command)) = self.directory.get_mut(resource).and_then(|entry| entry.waiting.pop_front()) {
            return self.carry_out(resource, op, command).await;
        }
        self.let_go(resource);
    }

    /// The command for those who wait, if it is somebody's turn.
    fn hand_over_next(&mut self, resource: &ResourceId) -> Option<(OpKind, Command)> {
        if self.directory.get(resource).is_none_or(|entry| entry.paused || !entry.grantable) {
            return None;
        }
        if let Some(waiter) = self.first_for(resource) {
            let (request, mode) = (waiter.proposal.request.clone(), waiter.proposal.mode);
            self.take_offered(&request);
            let parked = self.directory.get_mut(resource)?.parked.take();
            return Some((
                OpKind::Offer { request, mode, parked },
                Command::Offer { waiter: Box::new(waiter), stored: true },
            ));
        }
        let kept = self.returning.first_for(&self.directory.get(resource)?.spec).is_some();
        let entry = self.directory.get_mut(resource)?;
        if kept || entry.admission_declined || !std::mem::take(&mut entry.admission_left) {
            return None;
        }
        let parked = entry.parked.take();
        let kind = OpKind::Serve { parked, admits: true };
        Some((kind, Command::Serve { freed: Some(entry.least_grace) }))
    }

    /// Gives a command to a resource's actor, which is started if need be.
    async fn carry_out(&mut self, resource: &ResourceId, op: OpId, command: Command) {
        let rivals = match self.directory.get(resource) {
            Some(entry) => self.rivals(entry),
            None => return,
        };
        let (node, holds_paused) = (self.link.shared(), self.monitor.is_paused());
        let Some(entry) = self.directory.get_mut(resource) else { return };
        let (spec, rules) = (Arc::clone(&entry.spec), Arc::clone(&self.rules));
        let driver = Arc::clone(&entry.lease_driver);
        let order = Order { op, command, spec, driver, rules, rivals, node, holds_paused };
        entry.out = Some(op);
        if let Life::Active(actor) = &entry.life {
            // A cast fails only when the actor has just died; then its supervision event is on the way, and
            // settles this operation.
            let _ = actor.cast(ResourceMessage::Do(Box::new(order)));
            return;
        }
        entry.activation += 1;
        let arguments = ResourceArguments {
            id: resource.clone(),
            state: entry.state.clone(),
            activation: entry.activation,
            store: self.store.clone(),
            clock: self.clock.clone(),
            desk: self.myself.clone(),
        };
        // Its `pre_start` takes only what is at hand, so this does not wait for anything.
        match Actor::spawn_linked(None, Resource, arguments, self.myself.get_cell()).await {
            Ok((actor, _)) => {
                let _ = actor.cast(ResourceMessage::Do(Box::new(order)));
                self.directory.set_life(resource, Life::Active(actor));
            }
            Err(error) => {
                tracing::error!(%resource, %error, "cannot start a resource's actor");
                if let Some(entry) = self.directory.get_mut(resource) {
                    entry.out = None;
                }
                self.to_pump.insert(resource.clone());
                self.settle_op(op, Reply::Refused(Refusal::internal("the resource's actor cannot be started")));
            }
        }
    }

    /// Tells whoever released a lease, and who was taken first of those who waited.
    pub(super) fn answer_parked(&self, parked: Parked, admitted: Option<Requester>) {
        let Parked { lease, reply } = parked;
        self.say(reply, Ok(ReleasedNow { lease: *lease, admitted }));
    }

    /// Writes changes that are on no resource; the outcome comes as `Noted`.
    pub(super) fn note(&mut self, changes: Vec<Change>, note: Note) {
        self.write(changes, Vec::new(), note);
    }

    /// Writes an event that is nobody's answer.
    pub(super) fn note_event(&mut self, event: Event) {
        self.write(Vec::new(), vec![event], Note::Said);
    }

    pub(super) fn write(&mut self, changes: Vec<Change>, events: Vec<Event>, note: Note) {
        let op = self.next_op();
        self.notes.insert(op, note);
        let myself = self.myself.clone();
        self.store.commit(Batch {
            resource: None,
            activation: 0,
            changes,
            events,
            now: self.clock.now(),
            done: Box::new(move |outcome| {
                let _ = myself.cast(DeskMessage::Noted(op, outcome));
            }),
        });
    }

    /// A batch of the desk's own is durable, or is not.
    pub(super) fn noted(&mut self, op: OpId, outcome: Result<(), CommitError>) {
        let Some(note) = self.notes.remove(&op) else { return };
        let written = outcome.map_err(|_| Refusal::internal("it could not be written, and has not happened"));
        match note {
            Note::Joined { request } => self.joined_pool(&request, written),
            Note::Withdrawn { request, why, refusal } => self.left_pool(&request, why, refusal, written),
            Note::Refused { request, refusal } => self.refuse(&request, refusal),
            Note::Rejected { reply, refusal } => self.say(reply, Err(refusal)),
            Note::HoldsPaused { pauses, replies } => self.pauses_written(pauses, replies, written),
            Note::NodeDrained => self.drain_written(written),
            Note::Exec { permit, reply } => self.exec_noted(*permit, reply, written),
            Note::Said => {}
        }
    }
}

/// The mode of the lease that a command asks for.
pub(super) fn mode_of(kind: &OpKind) -> Option<Mode> {
    match kind {
        OpKind::Ask { waiter, .. } => Some(waiter.proposal.mode),
        OpKind::Offer { mode, .. } => Some(*mode),
        _ => None,
    }
}
