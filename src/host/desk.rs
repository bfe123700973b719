//! The desk: the one actor through which everything on this node goes.
//!
//! It serializes the checks of SPEC §2. It never waits: it reserves in the ledger, hands the command to a resource's
//! actor, and learns the end by a message that carries the resource as it then is. Only then is the caller
//! answered. Only the desk sends to resources, so only it starts and retires them.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr, RpcReplyPort, SupervisionEvent};
use tokio::task::JoinHandle;

use super::attempts::Attempts;
use super::directory::{Directory, Life};
use super::drift::Drift;
use super::message::{DeskMessage, FirstGrant, Grant, OpId, ResourceNow, Said};
use super::reporter::{Reporter, report};
use super::resource::{Resource, ResourceArguments, ResourceMessage, queue_full};
use super::restart::Restarted;
use super::schedule::Schedule;
use crate::admission::resource::{Command, Held, Reply, unknown_lease};
use crate::admission::{LeaseRules, Ledger, Request, Requests};
use crate::clock::{Clock, Now, RunTime};
use crate::limits::RESOURCE_QUEUE_MAX;
use crate::model::{Code, Labels, LeaseId, LeaseRecord, Refusal, RequestId, ResourceAddress, ResourceId};
use crate::store::Store;

/// An idle resource's actor is retired after this long; the next command starts it anew.
const RESIDENCY: Duration = Duration::from_secs(60);
/// The desk looks at the clock at least this often, because a timer does not count the time of a suspend.
const TICK_MAX: Duration = Duration::from_secs(1);

/// The actor; what it is comes with [`DeskArguments`].
#[derive(Debug)]
pub struct Desk;

/// What the desk is started with.
#[derive(Debug)]
pub struct DeskArguments {
    /// The node's own name, which may precede a resource's id.
    pub name: crate::model::NodeName,
    /// Where changes become durable.
    pub store: Store,
    /// Where the time comes from.
    pub clock: Clock,
    /// The operator's numbers.
    pub rules: LeaseRules,
    /// What the last run left.
    pub restarted: Restarted,
}

/// The desk's state; its parts each keep one thing.
pub struct DeskState {
    pub(super) name: crate::model::NodeName,
    pub(super) myself: ActorRef<DeskMessage>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) ledger: Ledger,
    pub(super) requests: Requests<FirstGrant>,
    pub(super) watchers: HashMap<RequestId, Vec<Watcher>>,
    pub(super) directory: Directory,
    pub(super) schedule: Schedule,
    pub(super) reporter: Reporter,
    pub(super) attempts: Attempts,
    pub(super) ops: HashMap<OpId, Op>,
    next_op: OpId,
    timer: Option<(RunTime, Timer)>,
    pub(super) drift: Drift,
    pub(super) stopping: bool,
    retire_at: RunTime,
}

type Timer = JoinHandle<Result<(), MessagingErr<DeskMessage>>>;

/// Who waits for a request to settle.
pub(super) enum Watcher {
    Caller(RpcReplyPort<Said<Grant>>),
    /// A second request under the same key: it ends as this one does.
    Mirror(RequestId),
    Reader(RpcReplyPort<Option<Request<FirstGrant>>>),
    Settler(RpcReplyPort<Said<Option<Grant>>>),
}

/// A command that a resource has been given.
pub(super) struct Op {
    pub(super) resource: ResourceId,
    pub(super) kind: OpKind,
}

pub(super) enum OpKind {
    Acquire {
        request: RequestId,
        mode: crate::model::Mode,
    },
    /// With the time of the last renewal before this one.
    Renew {
        lease: LeaseId,
        renewed_at: Timestamp,
        reply: RpcReplyPort<Said<Grant>>,
    },
    Release {
        lease: Box<LeaseRecord>,
        reply: RpcReplyPort<Said<LeaseRecord>>,
    },
    Wake,
    Rewrite,
}

impl Actor for Desk {
    type Msg = DeskMessage;
    type State = DeskState;
    type Arguments = DeskArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<DeskMessage>,
        arguments: DeskArguments,
    ) -> Result<DeskState, ActorProcessingErr> {
        let Restarted { incarnation, ledger, requests, directory, schedule, drift } = arguments.restarted;
        let mut state = DeskState {
            name: arguments.name,
            myself,
            store: arguments.store,
            clock: arguments.clock,
            ledger,
            requests,
            watchers: HashMap::new(),
            directory,
            schedule,
            reporter: Reporter::new(incarnation),
            attempts: Attempts::default(),
            ops: HashMap::new(),
            next_op: 1,
            timer: None,
            drift,
            stopping: false,
            retire_at: RunTime::default(),
        };
        state.arm_timer();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<DeskMessage>,
        message: DeskMessage,
        state: &mut DeskState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Request { ask, origin, reply } => state.request(ask, origin, reply).await,
            DeskMessage::Settle { request, attempt, reply } => state.settle_attempt(request, attempt, reply),
            DeskMessage::Renew { lease, fence, ttl, authority, reply } => {
                let command = Command::Renew { lease: lease.clone(), fence, ttl, authority };
                match state.find_lease(&lease) {
                    Some(Grant { lease: LeaseRecord { resource_id, renewed_at, .. }, .. }) => {
                        state.send(&resource_id, OpKind::Renew { lease, renewed_at, reply }, command).await;
                    }
                    None => state.say(reply, Err(unknown_lease(&lease))),
                }
            }
            DeskMessage::Release { lease, fence, authority, reply } => {
                let command = Command::Release { lease: lease.clone(), fence, authority };
                match state.find_lease(&lease) {
                    Some(Grant { lease, .. }) => {
                        let resource = lease.resource_id.clone();
                        state.send(&resource, OpKind::Release { lease: Box::new(lease), reply }, command).await;
                    }
                    None => state.say(reply, Err(unknown_lease(&lease))),
                }
            }
            DeskMessage::Settled { resource, activation, op, reply, state: now } => {
                state.settled(&resource, activation, op, reply, now);
            }
            // A database that cannot be read leaves nothing to go on with: the process starts again from it.
            DeskMessage::Reopened(resource, rows) => state.reopened(resource, rows?).await,
            DeskMessage::Stop => state.stopping = true,
            DeskMessage::Tick => state.tick().await,
            DeskMessage::Watch(id, reply) => state.watch(id, reply),
            DeskMessage::Subscribe(reply) => {
                let now = state.clock.now();
                let resources = state.directory.iter().map(|entry| report(entry, now)).collect();
                let _ = reply.send(state.reporter.subscribe(resources));
            }
            #[cfg(test)]
            DeskMessage::PanicResource(id) => {
                if let Some(super::directory::Entry { life: Life::Active(actor), .. }) = state.directory.get(&id) {
                    actor.cast(ResourceMessage::Panic)?;
                }
            }
            #[cfg(test)]
            DeskMessage::RetireIdle => state.retire(state.clock.now().run + RESIDENCY),
            #[cfg(test)]
            DeskMessage::Actors(reply) => {
                let active = state.directory.iter().filter(|entry| matches!(entry.life, Life::Active(_)));
                let _ = reply.send(active.count());
            }
            read => state.read(read),
        }
        state.arm_timer();
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<DeskMessage>,
        event: SupervisionEvent,
        state: &mut DeskState,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(actor, error) = event
            && let Some(resource) = state.directory.resource_of_actor(actor.get_id()).cloned()
        {
            tracing::error!(%resource, %error, "a resource's actor died; it is started anew from the database");
            state.close(resource);
        }
        Ok(())
    }
}

impl DeskState {
    /// Gives a command to a resource's actor, which is started if need be.
    pub(super) async fn send(&mut self, resource: &ResourceId, kind: OpKind, command: Command) {
        let op = self.next_op;
        self.next_op += 1;
        let now = self.clock.now();
        let Some(entry) = self.directory.get_mut(resource) else { return };
        entry.used_at = now.run;
        entry.in_flight += 1;
        if let OpKind::Acquire { mode, .. } = kind {
            entry.promised.push(mode);
        }
        self.ops.insert(op, Op { resource: resource.clone(), kind });
        if let Life::Reopening(waiting) = &mut entry.life {
            if waiting.len() < RESOURCE_QUEUE_MAX {
                waiting.push_back((op, command));
            } else {
                self.settle_op(op, Reply::Refused(queue_full(resource)));
            }
            return;
        }
        self.hand_over(resource, op, command).await;
    }

    pub(super) async fn hand_over(&mut self, resource: &ResourceId, op: OpId, command: Command) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        if let Life::Active(actor) = &entry.life {
            // A cast fails only when the actor has just died; then its supervision event is on the way, and
            // settles this operation like everything it had in its queue.
            let _ = actor.cast(ResourceMessage::Do(op, command));
            return;
        }
        entry.activation += 1;
        let arguments = ResourceArguments {
            spec: entry.spec.clone(),
            state: entry.state.clone(),
            activation: entry.activation,
            store: self.store.clone(),
            clock: self.clock.clone(),
            desk: self.myself.clone(),
        };
        // Its `pre_start` takes only what is at hand, so this does not wait for anything.
        match Actor::spawn_linked(None, Resource, arguments, self.myself.get_cell()).await {
            Ok((actor, _)) => {
                let _ = actor.cast(ResourceMessage::Do(op, command));
                self.directory.set_life(resource, Life::Active(actor));
            }
            Err(error) => {
                tracing::error!(%resource, %error, "cannot start a resource's actor");
                let refusal = Refusal::internal("the resource's actor cannot be started");
                self.settle_op(op, Reply::Refused(refusal));
            }
        }
    }

    async fn tick(&mut self) {
        let now = self.clock.now();
        // A tick that was on its way when the timer was moved must not leave a second one behind.
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        for resource in self.schedule.due(now.run) {
            self.send(&resource, OpKind::Wake, Command::Wake).await;
        }
        self.rewrite_deadlines(now).await;
        if now.run >= self.retire_at {
            self.retire_at = now.run + RESIDENCY / 4;
            self.retire(now.run);
            self.forget_old_requests(now.run);
        }
    }

    /// Writes deadlines anew that say something else on disk than this run knows.
    async fn rewrite_deadlines(&mut self, now: Now) {
        if self.drift.was_set(now) {
            let held = self.directory.iter().filter(|entry| !entry.state.held.is_empty());
            self.drift.add(held.map(|entry| entry.spec.id.clone()));
        }
        for resource in self.drift.next_group(now.run) {
            self.send(&resource, OpKind::Rewrite, Command::Rewrite).await;
        }
    }

    fn retire(&mut self, now: RunTime) {
        let before = RunTime(now.0.saturating_sub(RESIDENCY));
        for resource in self.directory.idle_since(before) {
            if let Some(Life::Active(actor)) = self.directory.set_life(&resource, Life::Idle) {
                actor.stop(None);
            }
        }
    }

    /// Arms the one timer for the earliest instant at which something is to be done.
    fn arm_timer(&mut self) {
        let now = self.clock.now().run;
        let soonest = self.schedule.next().map_or(now + TICK_MAX, |next| next.min(now + TICK_MAX));
        if self.timer.as_ref().is_some_and(|(at, _)| *at <= soonest) {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        // A timer counts whole milliseconds; one more, so that it never fires just before its instant.
        let after = soonest.left(now) + Duration::from_millis(1);
        self.timer = Some((soonest, self.myself.send_after(after, || DeskMessage::Tick)));
    }

    fn read(&mut self, message: DeskMessage) {
        match message {
            DeskMessage::Peek(id, reply) => {
                let _ = reply.send(self.requests.get(&id).cloned());
            }
            DeskMessage::OpenRequests(reply) => {
                let open = self.requests.open_ones().map(|(id, request)| (id.clone(), request.clone()));
                let _ = reply.send(open.collect());
            }
            DeskMessage::Leases(reply) => {
                let now = self.clock.now();
                let leases = |entry: &super::directory::Entry| {
                    let labels = entry.spec.labels.clone();
                    entry.state.held.iter().map(move |held| grant(held, &labels, now)).collect::<Vec<_>>()
                };
                let _ = reply.send(self.directory.iter().flat_map(leases).collect());
            }
            DeskMessage::Lease(id, reply) => {
                let _ = reply.send(self.find_lease(&id));
            }
            DeskMessage::Resources(selector, reply) => {
                let entries = self.directory.iter().filter(|entry| entry.grantable);
                let matching = entries
                    .filter(|entry| selector.as_ref().is_none_or(|selector| selector.matches(&entry.spec.labels)));
                let _ = reply.send(matching.map(resource_now).collect());
            }
            DeskMessage::Resource(address, reply) => {
                let found = self.resolve(&address);
                let _ = reply.send(found.and_then(|id| {
                    self.directory.get(&id).map(resource_now).ok_or_else(|| unknown_resource(&address))
                }));
            }
            _ => unreachable!("every other message is handled where it is matched"),
        }
    }

    pub(super) fn find_lease(&self, id: &LeaseId) -> Option<Grant> {
        let entry = self.directory.get(self.directory.resource_of(id)?)?;
        let held = entry.state.held.iter().find(|held| held.lease.id == *id)?;
        Some(grant(held, &entry.spec.labels, self.clock.now()))
    }

    /// The resource that an address names on this node.
    pub(super) fn resolve(&self, address: &ResourceAddress) -> Result<ResourceId, Refusal> {
        let here = address.worker.as_ref().is_none_or(|worker| *worker == self.name);
        match self.directory.get(&address.id) {
            Some(entry) if here && entry.grantable => Ok(address.id.clone()),
            _ => Err(unknown_resource(address)),
        }
    }
}

fn resource_now(entry: &super::directory::Entry) -> ResourceNow {
    ResourceNow { spec: entry.spec.clone(), state: entry.state.clone() }
}

/// A lease with what its holder is shown.
pub(super) fn grant(held: &Held, labels: &Labels, now: Now) -> Grant {
    Grant {
        lease: held.lease.clone(),
        deadline: held.deadline,
        expires_at: now.wall_at(held.deadline),
        labels: labels.clone(),
    }
}

fn unknown_resource(address: &ResourceAddress) -> Refusal {
    Refusal::new(Code::UnknownResource, format!("no resource {address}; `berth resource list` shows what there is"))
        .with("resourceId", address.to_string())
}
