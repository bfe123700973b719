//! One resource as an actor: decide, commit, apply.
//!
//! It is started by the desk when something is to happen on it, with the state that the desk knows: deadlines run on
//! this run's time, and reading them from the disk again would let a step of the wall clock move them. A command is
//! decided against the last applied state, its changes are sent to the store, and nothing else is decided until the
//! outcome is back as a message. Then the changes are applied and the desk is told, with the state as it is now.
//! Whoever asked is answered by the desk, so what ended is known there before anybody hears of it.

use std::collections::VecDeque;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::message::{DeskMessage, OpId};
use crate::admission::resource::{Change, Command, Decision, Held, Reply, ResourceState, apply, decide};
use crate::clock::{Clock, Now};
use crate::limits::RESOURCE_QUEUE_MAX;
use crate::model::{Code, Refusal, ResourceSpec};
use crate::store::{Batch, CommitError, Store, StoredResource};

/// The actor; what it is comes with [`ResourceArguments`].
#[derive(Debug)]
pub(super) struct Resource;

/// Its protocol.
#[derive(Debug)]
pub(super) enum ResourceMessage {
    /// From the desk: carry this out and say `Settled`.
    Do(OpId, Command),
    /// From the store: the outcome of the batch that is out.
    Committed(Result<(), CommitError>),
    /// From a test: die.
    #[cfg(test)]
    Panic,
}

/// What a resource is started with.
pub(super) struct ResourceArguments {
    pub(super) spec: Arc<ResourceSpec>,
    pub(super) state: ResourceState,
    pub(super) activation: u64,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) desk: ActorRef<DeskMessage>,
}

pub(super) struct ResourceActorState {
    around: ResourceArguments,
    /// The batch that is out. Until its outcome is back, `around.state` stays as it is.
    out: Option<Out>,
    /// What waits for that.
    queue: VecDeque<(OpId, Command)>,
}

/// What is to be done when the batch that is out is durable.
struct Out {
    op: OpId,
    changes: Vec<Change>,
    reply: Reply,
}

impl Actor for Resource {
    type Msg = ResourceMessage;
    type State = ResourceActorState;
    type Arguments = ResourceArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<ResourceMessage>,
        around: ResourceArguments,
    ) -> Result<ResourceActorState, ActorProcessingErr> {
        Ok(ResourceActorState { around, out: None, queue: VecDeque::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<ResourceMessage>,
        message: ResourceMessage,
        state: &mut ResourceActorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ResourceMessage::Do(op, command) => state.enqueue(&myself, op, command),
            ResourceMessage::Committed(outcome) => {
                state.committed(outcome);
                state.carry_on(&myself);
            }
            #[cfg(test)]
            ResourceMessage::Panic => panic!("a test asked for it"),
        }
        Ok(())
    }
}

/// A resource's state from its rows.
pub(super) fn restored(rows: StoredResource, now: Now) -> ResourceState {
    let held = |(lease, expires_at): (crate::model::LeaseRecord, jiff::Timestamp)| Held {
        deadline: now.run_at(expires_at, lease.ttl),
        lease,
    };
    ResourceState { held: rows.leases.into_iter().map(held).collect(), fence: rows.fence, idle_since: rows.idle_since }
}

impl ResourceActorState {
    fn enqueue(&mut self, myself: &ActorRef<ResourceMessage>, op: OpId, command: Command) {
        if self.queue.len() >= RESOURCE_QUEUE_MAX {
            self.settle(op, Reply::Refused(queue_full(&self.around.spec.id)), None);
            return;
        }
        self.queue.push_back((op, command));
        self.carry_on(myself);
    }

    /// Decides commands until one has changes to commit.
    fn carry_on(&mut self, myself: &ActorRef<ResourceMessage>) {
        while self.out.is_none()
            && let Some((op, command)) = self.queue.pop_front()
        {
            let around = &self.around;
            let Decision { changes, reply } = decide(&around.state, &around.spec, command, around.clock.now());
            if changes.is_empty() {
                self.settle(op, reply, None);
            } else {
                self.commit(myself, Out { op, changes, reply });
            }
        }
    }

    fn commit(&mut self, myself: &ActorRef<ResourceMessage>, out: Out) {
        let myself = myself.clone();
        self.around.store.commit(Batch {
            resource: self.around.spec.id.clone(),
            activation: self.around.activation,
            changes: out.changes.clone(),
            done: Box::new(move |outcome| {
                let _ = myself.cast(ResourceMessage::Committed(outcome));
            }),
        });
        self.out = Some(out);
    }

    fn committed(&mut self, outcome: Result<(), CommitError>) {
        let Some(Out { op, changes, reply }) = self.out.take() else { return };
        match outcome {
            Ok(()) => {
                changes.into_iter().for_each(|change| apply(&mut self.around.state, change));
                self.settle(op, reply, Some(self.around.state.clone()));
            }
            Err(CommitError::Full) => {
                let refusal = Refusal::new(Code::QueueFull, "the store is busy; ask again");
                self.settle(op, Reply::Refused(refusal.retry_after(std::time::Duration::from_secs(1))), None);
            }
            Err(_) => {
                let refusal = Refusal::internal("it could not be written, and has not happened");
                self.settle(op, Reply::Refused(refusal), None);
            }
        }
    }

    fn settle(&self, op: OpId, reply: Reply, state: Option<ResourceState>) {
        let resource = self.around.spec.id.clone();
        let activation = self.around.activation;
        // A desk that is gone takes the whole node with it.
        let _ = self.around.desk.cast(DeskMessage::Settled { resource, activation, op, reply, state });
    }
}

/// `QUEUE_FULL` for a resource that is asked faster than it can commit.
pub(super) fn queue_full(resource: &crate::model::ResourceId) -> Refusal {
    let message = format!("{resource} has {RESOURCE_QUEUE_MAX} commands waiting; ask again");
    Refusal::new(Code::QueueFull, message).retry_after(std::time::Duration::from_secs(1))
}
