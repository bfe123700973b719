//! The lab file is read anew while the node runs (SPEC §12): its resources and its numbers, without a restart.
//!
//! - A resource that has **come** is read from the database first: it may have been here before, and its fences, its
//!   bookings and its drain go on. Then all of the new file counts from one moment on.
//! - What has **changed** about a resource counts from the next command that it is given. What was decided before stands.
//! - A resource that has **gone** is granted to nobody. Those who wait for it by its name end; what holds it stays until it
//!   is released or over. Then, or at once if nothing holds it, nothing is known of it any more. One that comes back before
//!   that is itself again.

use std::collections::BTreeSet;
use std::sync::Arc;

use ractor::RpcReplyPort;

use super::desk::{DeskState, OpKind};
use super::directory::{Entry, Life};
use super::message::{DeskMessage, OpId, Reloaded};
use super::read::unknown_resource;
use super::restored::restored;
use crate::admission::Rules;
use crate::admission::resource::{Command, Reply, Work};
use crate::limits::{RESOURCES_MAX, STORE_GROUP_MAX};
use crate::model::{BookingPolicy, Code, Proposal, Refusal, ResourceAddress, ResourceId, ResourceSpec, Target};
use crate::store::{OpenError, StoredResource};

/// A reload that waits for the rows of the resources that have come.
pub(super) struct Reload {
    resources: Vec<ResourceSpec>,
    rules: Rules,
    reply: RpcReplyPort<Result<Reloaded, Refusal>>,
    /// Whose rows are to be read.
    unread: Vec<ResourceId>,
    rows: Vec<StoredResource>,
}

impl DeskState {
    /// These are the resources and the numbers of the lab file now.
    pub(super) fn reload(
        &mut self,
        resources: Vec<ResourceSpec>,
        rules: Rules,
        reply: RpcReplyPort<Result<Reloaded, Refusal>>,
    ) {
        let unread: Vec<ResourceId> =
            resources.iter().map(|spec| &spec.id).filter(|id| self.directory.get(id).is_none()).cloned().collect();
        let refusal = if self.reload.is_some() {
            Some(Refusal::new(Code::QueueFull, "the lab file is being taken up already; ask again"))
        } else if self.directory.len() + unread.len() > 2 * RESOURCES_MAX {
            // Beside the bound of the file: what its predecessors have left behind.
            Some(Refusal::new(
                Code::BadRequest,
                format!(
                    "with those that are still leased and not in the lab file any more there would be more than {} \
                     resources; release some, and ask again",
                    2 * RESOURCES_MAX
                ),
            ))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            // A caller that has gone needs no answer.
            return drop(reply.send(Err(refusal)));
        }
        self.reload = Some(Reload { resources, rules, reply, unread, rows: Vec::new() });
        self.read_on();
    }

    /// Reads the next rows, or takes everything up when there are no more.
    fn read_on(&mut self) {
        let Some(reload) = &mut self.reload else { return };
        let from = reload.unread.len().saturating_sub(STORE_GROUP_MAX);
        let next = reload.unread.split_off(from);
        if next.is_empty() {
            return self.take_up();
        }
        let myself = self.myself.clone();
        self.store.read(next, move |rows| {
            // A desk that is gone reloads nothing.
            let _ = myself.cast(DeskMessage::Fetched(rows));
        });
    }

    /// Rows of resources that have come.
    pub(super) fn fetched(&mut self, rows: Result<Vec<StoredResource>, OpenError>) {
        let Some(reload) = &mut self.reload else { return };
        match rows {
            Ok(rows) => {
                reload.rows.extend(rows);
                self.read_on();
            }
            Err(error) => {
                tracing::error!(%error, "the lab file is not taken up: what is stored of its new resources cannot be read");
                if let Some(Reload { reply, .. }) = self.reload.take() {
                    let refusal = Refusal::internal("the database could not be read; nothing has changed");
                    let _ = reply.send(Err(refusal));
                }
            }
        }
    }

    fn take_up(&mut self) {
        let Some(Reload { resources, rules, reply, rows, .. }) = self.reload.take() else { return };
        self.set_rules(rules);
        let named: BTreeSet<ResourceId> = resources.iter().map(|spec| spec.id.clone()).collect();
        let is_gone = |entry: &&Entry| entry.grantable && !named.contains(&entry.spec.id);
        let gone: Vec<ResourceId> = self.directory.iter().filter(is_gone).map(|entry| entry.spec.id.clone()).collect();
        let mut rows: std::collections::HashMap<ResourceId, StoredResource> =
            rows.into_iter().map(|rows| (rows.id.clone(), rows)).collect();
        let mut now = Reloaded::default();
        for spec in resources {
            let id = spec.id.clone();
            match self.directory.get(&id) {
                Some(entry) if !entry.grantable => {
                    self.set_spec(spec);
                    now.added.push(id);
                }
                Some(entry) if !entry.is_as_in(&spec) => {
                    self.set_spec(spec);
                    now.changed.push(id);
                }
                Some(_) => {}
                None => {
                    if let Some(rows) = rows.remove(&id) {
                        self.add_resource(spec, rows);
                        now.added.push(id);
                    }
                }
            }
        }
        for id in &gone {
            self.begin_to_go(id);
        }
        now.gone = gone;
        self.watch_devices();
        self.serve_all();
        // A caller that has gone needs no answer.
        let _ = reply.send(Ok(now));
    }

    /// From now on these numbers count, also for what is there.
    fn set_rules(&mut self, rules: Rules) {
        if *self.rules == rules {
            return;
        }
        self.ledger.set_requester_max(rules.lease.max_per_requester);
        self.requests.set_retention(rules.lease.request_retention);
        self.link.set_grace(rules.lease.uplink_grace);
        self.rules = Arc::new(rules);
        self.live_rules.set(Arc::clone(&self.rules));
        let all: Vec<ResourceId> = self.directory.iter().map(|entry| entry.spec.id.clone()).collect();
        all.iter().for_each(|resource| self.set_wake(resource));
        let open: Vec<_> = self.open.keys().cloned().collect();
        open.iter().for_each(|request| self.attend(request));
    }

    /// A resource of this node has other settings.
    fn set_spec(&mut self, spec: ResourceSpec) {
        let id = spec.id.clone();
        let Some(entry) = self.directory.get_mut(&id) else { return };
        entry.grantable = true;
        // One that is in use stays the device that it is, until the resource itself says that it is left.
        let in_use = entry.is_in_use();
        let other_device = entry.spec.driver.kind != spec.driver.kind && !in_use;
        entry.given = Arc::new(spec);
        entry.spec = Arc::clone(&entry.given);
        let was_unknown = entry.lease_driver.is_unknown;
        if !in_use || was_unknown {
            entry.lease_driver = Arc::clone(&entry.spec.driver);
        }
        if other_device || was_unknown {
            entry.facts = Arc::default();
            self.expect_device(&id);
        }
        self.merge_labels(&id);
        self.show_settings(&id);
        self.look_after(&id);
    }

    /// A resource that this run has not known, or not any more.
    fn add_resource(&mut self, spec: ResourceSpec, rows: StoredResource) {
        let now = self.clock.now();
        let id = spec.id.clone();
        let state = restored(rows, &self.rules, now);
        let has_bookings = state.calendar.bookings().next().is_some();
        self.index.add(&state.calendar);
        self.directory.add(spec, true, state, now.wall);
        self.expect_device(&id);
        self.show_settings(&id);
        self.look_after(&id);
        if has_bookings {
            // Windows may have begun or ended while it was away.
            self.send(&id, OpKind::Edge { since: now.wall }, Command::Edge);
        }
    }

    fn show_settings(&mut self, resource: &ResourceId) {
        self.set_edge(resource);
        self.set_wake(resource);
        self.report_resource(resource);
    }

    /// A resource is not in the lab file any more.
    fn begin_to_go(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        entry.grantable = false;
        // No window of it lets anybody in any more. What it is otherwise, it is to its end.
        entry.spec = Arc::new(ResourceSpec { bookings: BookingPolicy::default(), ..ResourceSpec::clone(&entry.spec) });
        let asks = |(_, command): &(OpId, Command)| matches!(command, Command::Ask { .. });
        let (asked, others): (Vec<_>, Vec<_>) = std::mem::take(&mut entry.waiting).into_iter().partition(asks);
        entry.waiting = others.into();
        for (op, command) in asked {
            let Command::Ask { waiter, .. } = command else { continue };
            self.settle_op(op, not_here(&waiter.proposal, resource));
        }
        self.show_settings(resource);
        self.to_pump.insert(resource.clone());
    }

    /// What a resource that is going is told before anything else: that nobody waits for it.
    pub(super) fn dismissal(&self, resource: &ResourceId) -> Option<(OpKind, Command)> {
        let entry = self.directory.get(resource)?;
        let waited_for = !entry.state.queue.is_empty() || !entry.state.reserved.is_empty();
        (!entry.grantable && !entry.paused && waited_for).then_some((OpKind::Dismiss, Command::Dismiss))
    }

    /// Forgets a resource that is going and has nothing to do any more.
    pub(super) fn let_go(&mut self, resource: &ResourceId) {
        if !self.directory.get(resource).is_some_and(Entry::has_gone) {
            return;
        }
        if let Some(Life::Active(actor)) = self.directory.set_life(resource, Life::Idle) {
            actor.stop(None);
        }
        let Some(entry) = self.directory.remove(resource) else { return };
        self.forget_jobs(resource);
        self.schedule.set(resource, None);
        self.edges.set(resource, None);
        self.retries.set(resource, None);
        self.drift.forget(resource);
        self.link.forget(resource);
        self.index.remove(&entry.state.calendar);
        self.report_gone(resource);
        tracing::info!(%resource, "is not in the lab file any more and has gone");
    }
}

impl Entry {
    /// True when the lab file says nothing new of it.
    fn is_as_in(&self, spec: &ResourceSpec) -> bool {
        *self.given == *spec
    }

    /// True for one that is not in the lab file any more when nothing is under way on it and nobody holds it or waits for it.
    fn has_gone(&self) -> bool {
        let at_rest = self.out.is_none() && self.waiting.is_empty() && self.parked.is_none();
        let state = &self.state;
        // The last holder leaves it as it was before. Where nobody knows how, that is done when the lab file names it again.
        let busy = match state.device.work {
            Work::Preparing(_) => true,
            Work::Resetting(_) => !self.lease_driver.is_unknown,
            Work::None | Work::Quarantined(_) => false,
        };
        let unused = state.held.is_empty() && state.queue.is_empty() && state.reserved.is_empty() && !busy;
        !self.grantable && at_rest && unused && !matches!(self.life, Life::Reopening)
    }
}

/// What somebody hears who has asked a resource that is going before it could answer.
fn not_here(proposal: &Proposal, resource: &ResourceId) -> Reply {
    match &proposal.target {
        Target::Select(_) => Reply::Declined,
        Target::Resource(_) => {
            Reply::Refused(unknown_resource(&ResourceAddress { worker: None, id: resource.clone() }))
        }
    }
}
