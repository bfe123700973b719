//! One resource as an actor: decide, commit, apply.
//!
//! It is started by the desk when something is to happen on it, with the state that the desk knows: deadlines run on
//! this run's time, and reading them from the disk again would let a step of the wall clock move them. It is given one
//! command at a time. The command is decided against the last applied state, its changes are sent to the store, and
//! the outcome comes back as a message. Then the changes are applied and the desk is told of them, so that it applies them
//! to what it knows. Whoever asked is answered by the desk, so what ended is known there before anybody hears of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::message::{DeskMessage, OpId, Settled};
use crate::admission::calendar::{self, BookingMove, CalendarChange};
use crate::admission::resource::{
    Around, Change, Command, Decision, Departure, DeviceChange, Fresh, NodeNow, Rejection, Reply, ResourceState,
    Rivals, Work, apply, decide, withdrawn,
};
use crate::admission::{Rules, Waiter};
use crate::clock::Clock;
use crate::model::{BookingId, BookingPolicy, Code, Driver, LeaseId, Refusal, RequestId, ResourceId, ResourceSpec};
use crate::store::{Batch, CommitError, Store};

/// The actor; what it is comes with [`ResourceArguments`].
#[derive(Debug)]
pub(super) struct Resource;

/// Its protocol.
#[derive(Debug)]
pub(super) enum ResourceMessage {
    /// From the desk: carry this out and say `Settled`. Nothing else comes before that.
    Do(Box<Order>),
    /// From the store: the outcome of the batch that is out.
    Committed(Result<(), CommitError>),
    /// From a test: die.
    #[cfg(test)]
    Panic,
}

/// A command, and what it is decided by beside the resource's own state.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) op: OpId,
    pub(super) command: Command,
    /// Its settings and the operator's numbers, as they are now.
    pub(super) spec: Arc<ResourceSpec>,
    /// The driver of the lease that is on it, or was last.
    pub(super) driver: Arc<Driver>,
    pub(super) rules: Arc<Rules>,
    pub(super) rivals: Rivals,
    /// What is true of the whole worker.
    pub(super) node: Arc<NodeNow>,
    /// True when no new holds are made on the whole node.
    pub(super) holds_paused: bool,
}

/// What a resource is started with.
pub(super) struct ResourceArguments {
    pub(super) id: ResourceId,
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
    /// Bookings that the database has refused to settle, until something changes about them.
    unsettled: BTreeSet<BookingId>,
}

/// What is to be done when the batch that is out is durable.
struct Out {
    op: OpId,
    decision: Decision,
    /// Who was offered the resource, if that was the command.
    offered: Option<Box<Waiter>>,
    /// True when the hand-over has been taken out of it, because the database refused that.
    without_hand_over: bool,
    /// The command, where bookings are settled with it.
    order: Option<Box<Order>>,
    rules: Arc<Rules>,
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
        Ok(ResourceActorState { around, out: None, unsettled: BTreeSet::new() })
    }

    async fn handle(
        &self,
        myself: ActorRef<ResourceMessage>,
        message: ResourceMessage,
        state: &mut ResourceActorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ResourceMessage::Do(order) => state.carry_out(&myself, *order),
            ResourceMessage::Committed(outcome) => state.committed(&myself, outcome),
            #[cfg(test)]
            ResourceMessage::Panic => panic!("a test asked for it"),
        }
        Ok(())
    }
}

impl ResourceActorState {
    fn carry_out(&mut self, myself: &ActorRef<ResourceMessage>, order: Order) {
        let settles = order.spec.bookings != BookingPolicy::default();
        let kept = settles.then(|| Box::new(order.clone()));
        let rules = Arc::clone(&order.rules);
        let (op, offered, decision) = self.decide(order);
        if decision.changes.iter().any(Change::is_durable) {
            self.commit(myself, Out { op, decision, offered, without_hand_over: false, order: kept, rules });
        } else {
            self.finish(op, decision, false);
        }
    }

    fn decide(&self, order: Order) -> (OpId, Option<Box<Waiter>>, Decision) {
        let Order { op, command, spec, driver, rules, rivals, node, holds_paused } = order;
        let fresh = Fresh { request: RequestId::generate(), lease: LeaseId::generate() };
        let around = Around {
            spec: &spec,
            rules: &rules.waiting,
            max_total: rules.lease.max_total,
            calendar: &rules.calendar,
            holds_paused,
            fresh: Some(&fresh),
            driver: &driver,
            unsettled: &self.unsettled,
            rivals,
            node: &node,
            now: self.around.clock.now(),
        };
        let offered = if let Command::Offer { waiter, .. } = &command { Some(waiter.clone()) } else { None };
        (op, offered, decide(&self.around.state, &around, command))
    }

    fn commit(&mut self, myself: &ActorRef<ResourceMessage>, out: Out) {
        let myself = myself.clone();
        self.around.store.commit(Batch {
            resource: Some(self.around.id.clone()),
            activation: self.around.activation,
            changes: out.decision.changes.clone(),
            events: Vec::new(),
            now: self.around.clock.now(),
            done: Box::new(move |outcome| {
                let _ = myself.cast(ResourceMessage::Committed(outcome));
            }),
        });
        self.out = Some(out);
    }

    fn committed(&mut self, myself: &ActorRef<ResourceMessage>, outcome: Result<(), CommitError>) {
        let Some(Out { op, decision, offered, without_hand_over, order, rules }) = self.out.take() else { return };
        match (outcome, order) {
            (Ok(()), _) => self.finish(op, decision, without_hand_over),
            (Err(CommitError::Constraint(detail)), Some(order)) if settles_a_booking(&decision) => {
                self.leave_unsettled(myself, &decision, *order, detail);
            }
            (outcome, _) => {
                self.refused(myself, Out { op, decision, offered, without_hand_over, order: None, rules }, outcome)
            }
        }
    }

    /// The database holds something that no booking can be settled beside. Those that were to be are left as they are, and
    /// the command is carried out without: it must not suffer from what is wrong with them.
    fn leave_unsettled(
        &mut self,
        myself: &ActorRef<ResourceMessage>,
        decision: &Decision,
        order: Order,
        detail: String,
    ) {
        let resource = &self.around.id;
        tracing::error!(%resource, detail, "the database refused to settle a booking; it is left as it is");
        self.unsettled.extend(decision.changes.iter().filter_map(settled_booking).cloned());
        let rules = Arc::clone(&order.rules);
        let (op, offered, mut decision) = self.decide(order);
        decision.changes.push(Change::Violated { detail });
        self.commit(myself, Out { op, decision, offered, without_hand_over: false, order: None, rules });
    }

    fn refused(&mut self, myself: &ActorRef<ResourceMessage>, out: Out, outcome: Result<(), CommitError>) {
        let Out { op, decision, offered, without_hand_over, rules, .. } = out;
        match outcome {
            Ok(()) => self.finish(op, decision, without_hand_over),
            Err(CommitError::Constraint(detail))
                if !without_hand_over && decision.handed_over_from < decision.changes.len() =>
            {
                let decision = self.without_hand_over(decision, offered.as_deref(), detail, &rules);
                self.commit(myself, Out { op, decision, offered, without_hand_over: true, order: None, rules });
            }
            Err(error) => {
                let repeats = error.repeats().map(|code| calendar::guarded(code, &self.around.id));
                let refusal = match error {
                    CommitError::Full => Refusal::new(Code::QueueFull, "the store is busy; ask again")
                        .retry_after(std::time::Duration::from_secs(1)),
                    CommitError::Constraint(_) | CommitError::Closed | CommitError::Disk(_) => {
                        repeats.unwrap_or_else(|| Refusal::internal("it could not be written, and has not happened"))
                    }
                };
                let nothing = Decision { changes: Vec::new(), reply: Reply::Refused(refusal), ..decision };
                self.settle(op, nothing, true);
            }
        }
    }

    /// The hand-over broke a constraint of the database: what was before it stands alone, and those who were to be
    /// granted fail. That is a bug which the last guard has caught, and it must not keep a release from happening.
    fn without_hand_over(
        &self,
        mut decision: Decision,
        offered: Option<&Waiter>,
        detail: String,
        rules: &Rules,
    ) -> Decision {
        let resource = &self.around.id;
        tracing::error!(%resource, detail, "the database refused a hand-over; it is taken back");
        let now = self.around.clock.now();
        // What time had led to came before the command, and takes that along.
        let undone = decision.command_from > decision.handed_over_from;
        for change in decision.changes.split_off(decision.handed_over_from) {
            let request = match change {
                Change::Granted { lease, .. } => lease.request_id,
                Change::Device(DeviceChange::Work { work: Work::Preparing(claim), .. }) => match claim.request() {
                    Some(request) => request.clone(),
                    None => continue,
                },
                Change::Left { why: Departure::Admitted { .. }, .. } => {
                    decision.admission_left = true;
                    continue;
                }
                _ => continue,
            };
            let offered = offered.filter(|waiter| waiter.proposal.request == request && !undone);
            let standing = self.around.state.queue.get(&request);
            let Some(waiter) = offered.or(standing) else { continue };
            let (proposal, reason) = (waiter.proposal.clone(), Rejection::WorkerFailed);
            let refusal = withdrawn(&proposal, reason, &rules.waiting);
            if standing.is_some() {
                let waiter = Box::new(waiter.clone());
                decision.changes.push(Change::Left { waiter, why: Departure::Rejected, at: now.wall });
            }
            decision.changes.push(Change::Rejected { proposal, reason, refusal, waited: true, at: now.wall });
        }
        decision.changes.push(Change::Violated { detail });
        decision.reply = match decision.reply {
            Reply::Served(_) => Reply::Served(None),
            _ if undone => {
                Reply::Refused(Refusal::internal("it has not happened, because what came before it failed; ask again"))
            }
            Reply::Released(lease, _) => Reply::Released(lease, None),
            Reply::Granted(_) | Reply::Claimed { .. } if offered.is_some() => Reply::Declined,
            reply => reply,
        };
        decision
    }

    fn finish(&mut self, op: OpId, decision: Decision, failed: bool) {
        for change in &decision.changes {
            if let Change::Calendar(CalendarChange::Booking { booking, .. }) = change {
                self.unsettled.remove(&booking.id);
            }
            apply(&mut self.around.state, change.clone());
        }
        self.settle(op, decision, failed);
    }

    fn settle(&self, op: OpId, decision: Decision, failed: bool) {
        let Decision { changes, reply, admission_left, .. } = decision;
        let (resource, activation) = (self.around.id.clone(), self.around.activation);
        let settled = Settled { resource, activation, op, reply, changes, admission_left, failed };
        // A desk that is gone takes the whole node with it.
        let _ = self.around.desk.cast(DeskMessage::Settled(Box::new(settled)));
    }
}

/// The booking that a change settles: its time has come.
fn settled_booking(change: &Change) -> Option<&BookingId> {
    match change {
        Change::Calendar(CalendarChange::Booking {
            booking,
            what: BookingMove::Fulfilled | BookingMove::Missed(_),
        }) => Some(&booking.id),
        _ => None,
    }
}

fn settles_a_booking(decision: &Decision) -> bool {
    decision.changes.iter().any(|change| settled_booking(change).is_some())
}

/// `QUEUE_FULL` for a resource that is asked faster than it can commit.
pub(super) fn queue_full(resource: &crate::model::ResourceId) -> Refusal {
    let most = crate::limits::RESOURCE_QUEUE_MAX;
    let message = format!("{resource} has {most} commands waiting; ask again");
    Refusal::new(Code::QueueFull, message).retry_after(std::time::Duration::from_secs(1))
}
