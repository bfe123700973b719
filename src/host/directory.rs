//! What the desk knows of each resource: enough to choose, to show and to start its actor.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ractor::{ActorId, ActorRef};

use super::message::OpId;
use super::open::Parked;
use super::resource::ResourceMessage;
use crate::admission::resource::{Change, Command, DeviceChange, NodeNow, ResourceState, Task, Work, apply};
use crate::clock::RunTime;
use crate::model::time::remaining;
use crate::model::{
    Code, DeviceFacts, Driver, DriverKind, HookKind, LeaseId, Mode, Nearness, Refusal, ResourceId, ResourceSpec,
    Selector,
};

/// The resources of a node.
#[derive(Debug, Default)]
pub(super) struct Directory {
    entries: BTreeMap<ResourceId, Entry>,
    leases: HashMap<LeaseId, ResourceId>,
    actors: HashMap<ActorId, ResourceId>,
    /// Waiters of all resources.
    waiters: usize,
    /// As many activations as any resource had that has gone: what the store has closed of it stays closed.
    activations: u64,
}

/// One resource.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its settings, with the labels that its driver has found.
    pub(super) spec: Arc<ResourceSpec>,
    /// The same as the lab file says it; the very same where a driver has found nothing.
    pub(super) given: Arc<ResourceSpec>,
    /// The driver of the lease that is on it, or was last.
    pub(super) lease_driver: Arc<Driver>,
    /// What its driver knows of the device.
    pub(super) facts: Arc<DeviceFacts>,
    /// Why its driver does not see the device.
    pub(super) unseen: Option<Arc<str>>,
    /// When the claim that is on it, or was last, began.
    pub(super) claimed_at: Option<Timestamp>,
    /// How long its device was made ready for its latest lease.
    pub(super) prepared: Duration,
    /// False when it is no longer in the lab file and only waits for its leases to end.
    pub(super) grantable: bool,
    /// As its actor last said it is, or as the database holds it.
    pub(super) state: ResourceState,
    /// Its actor, while it has one.
    pub(super) life: Life,
    /// Counts its actors.
    pub(super) activation: u64,
    /// The command that its actor has and has not answered.
    pub(super) out: Option<OpId>,
    /// What comes after that, bounded.
    pub(super) waiting: VecDeque<(OpId, Command)>,
    /// Modes of the leases that it has been asked for and has not answered.
    pub(super) promised: Vec<Mode>,
    /// True when an unattended waiter is to be admitted as soon as those of the pool have been asked.
    pub(super) admission_left: bool,
    /// How long it is reserved for that one at least.
    pub(super) least_grace: Duration,
    /// True when that was tried, and others still stand before it; nothing has changed since.
    pub(super) admission_declined: bool,
    /// True after what was to be handed over could not be: that is tried again when something changes, or a while later.
    pub(super) paused: bool,
    /// How often in a row that was so.
    pub(super) failures: u32,
    /// A release whose caller is yet to hear who was taken first.
    pub(super) parked: Option<Parked>,
    /// How often in a row its expiry could not be written.
    pub(super) wake_failures: u32,
    /// When it last had something to do.
    pub(super) used_at: RunTime,
    /// Up to when, on wall time, it has been told of the edges of its windows.
    pub(super) edges_until: Timestamp,
}

/// The actor of a resource.
#[derive(Debug)]
pub(super) enum Life {
    /// Nothing happens: the database is enough.
    Idle,
    /// It runs.
    Active(ActorRef<ResourceMessage>),
    /// Its actor died; the database is closing its activation, and nothing is asked of it meanwhile.
    Reopening,
}

/// Where a request by selector can go.
#[derive(Debug)]
pub(super) enum Choice {
    /// This resource has room for it.
    Free(ResourceId),
    /// So many match, and none has room.
    Busy(usize),
}

impl Directory {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes a resource out that nobody holds or waits for, and that has no actor.
    pub(super) fn remove(&mut self, id: &ResourceId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        self.activations = self.activations.max(entry.activation);
        Some(entry)
    }

    /// Adds a resource.
    pub(super) fn add(&mut self, spec: ResourceSpec, grantable: bool, state: ResourceState, now: Timestamp) {
        for held in &state.held {
            self.leases.insert(held.lease.id.clone(), spec.id.clone());
        }
        self.waiters += state.queue.len();
        let given = Arc::new(spec.clone());
        let entry = Entry {
            spec: Arc::clone(&given),
            given,
            lease_driver: Arc::clone(&spec.driver),
            facts: Arc::default(),
            unseen: None,
            claimed_at: None,
            prepared: Duration::ZERO,
            grantable,
            state,
            life: Life::Idle,
            activation: self.activations,
            out: None,
            waiting: VecDeque::new(),
            promised: Vec::new(),
            admission_left: false,
            least_grace: Duration::ZERO,
            admission_declined: false,
            paused: false,
            failures: 0,
            parked: None,
            wake_failures: 0,
            used_at: RunTime::default(),
            edges_until: now,
        };
        self.entries.insert(spec.id, entry);
    }

    pub(super) fn get(&self, id: &ResourceId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ResourceId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// The resource that `lease` holds.
    pub(super) fn resource_of(&self, lease: &LeaseId) -> Option<&ResourceId> {
        self.leases.get(lease)
    }

    /// How many wait for a resource by its name.
    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }

    /// Makes a fact true.
    pub(super) fn apply(&mut self, id: &ResourceId, change: Change) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        match &change {
            Change::Granted { lease, .. } => {
                let of_claim = entry.state.device.fence == lease.fence;
                let claimed_at = entry.claimed_at.take().filter(|_| of_claim);
                entry.prepared = claimed_at.map(|at| remaining(at, lease.granted_at)).unwrap_or_default();
                self.leases.insert(lease.id.clone(), id.clone());
            }
            Change::Device(DeviceChange::Work { work, .. }) => match work {
                Work::Preparing(claim) => entry.claimed_at = Some(claim.at),
                // The lease comes next, in the same batch.
                Work::None => {}
                Work::Resetting(_) | Work::Quarantined(_) => entry.claimed_at = None,
            },
            Change::Ended { lease, .. } => drop(self.leases.remove(&lease.id)),
            _ => {}
        }
        let begins = match &change {
            Change::Device(DeviceChange::Work { work: Work::Preparing(_), .. }) => true,
            // One that was made ready for has its driver already.
            Change::Granted { lease, .. } => lease.fence != entry.state.device.fence,
            _ => false,
        };
        if begins && entry.state.held.is_empty() {
            entry.lease_driver = Arc::clone(&entry.spec.driver);
        }
        let before = entry.state.queue.len();
        apply(&mut entry.state, change);
        self.waiters = self.waiters + entry.state.queue.len() - before;
    }

    /// Replaces what is known of a resource.
    pub(super) fn set_state(&mut self, id: &ResourceId, state: ResourceState) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        for held in &entry.state.held {
            self.leases.remove(&held.lease.id);
        }
        for held in &state.held {
            self.leases.insert(held.lease.id.clone(), id.clone());
        }
        self.waiters = self.waiters + state.queue.len() - entry.state.queue.len();
        entry.state = state;
    }

    /// Notes which actor a resource has.
    pub(super) fn set_life(&mut self, id: &ResourceId, life: Life) -> Option<Life> {
        let entry = self.entries.get_mut(id)?;
        let former = std::mem::replace(&mut entry.life, life);
        if let Life::Active(actor) = &former {
            self.actors.remove(&actor.get_id());
        }
        if let Life::Active(actor) = &entry.life {
            self.actors.insert(actor.get_id(), id.clone());
        }
        Some(former)
    }

    /// The resource whose present actor this is.
    pub(super) fn resource_of_actor(&self, actor: ActorId) -> Option<&ResourceId> {
        self.actors.get(&actor)
    }

    /// Resources whose actor has had nothing to do since `before`.
    pub(super) fn idle_since(&self, before: RunTime) -> Vec<ResourceId> {
        let idle =
            |entry: &&Entry| matches!(entry.life, Life::Active(_)) && entry.out.is_none() && entry.used_at <= before;
        self.entries.values().filter(idle).map(|entry| entry.spec.id.clone()).collect()
    }

    /// The free match that has been idle longest and is nobody else's turn; one that was never leased goes first, then
    /// the order of ids.
    ///
    /// # Errors
    /// `NO_MATCHING_RESOURCE` when nothing can ever match.
    pub(super) fn choose(
        &self,
        selector: &Selector,
        mode: Mode,
        node: &NodeNow,
        is_its_turn: impl Fn(&Entry) -> bool,
    ) -> Result<Choice, Refusal> {
        let grantable = || self.entries.values().filter(|entry| entry.grantable);
        let mut matching = 0;
        let mut best: Option<&Entry> = None;
        for entry in grantable().filter(|entry| selector.matches(&entry.spec.labels)) {
            matching += 1;
            let better = |best: &Entry| entry.state.idle_since < best.state.idle_since;
            if entry.could_take(node, mode) && best.is_none_or(better) && is_its_turn(entry) {
                best = Some(entry);
            }
        }
        match best {
            Some(entry) => Ok(Choice::Free(entry.spec.id.clone())),
            None if matching > 0 => Ok(Choice::Busy(matching)),
            None => {
                let mut nearness = Nearness::default();
                grantable().for_each(|entry| nearness.add(selector, &entry.spec.labels));
                Err(no_match(selector, &nearness))
            }
        }
    }
}

impl Entry {
    /// The driver that a task is for: what belongs to a lease ends as it began, and a device in quarantine is tried as the lab
    /// file says now, if it is still the same device.
    pub(super) fn driver_of(&self, task: &Task) -> &Arc<Driver> {
        let of_lease = matches!(task.hook, HookKind::Prepare | HookKind::Reset) && task.tries.is_none();
        if of_lease || self.kind() != &self.spec.driver.kind { &self.lease_driver } else { &self.spec.driver }
    }

    /// What its device is: while somebody has it what it was leased as, whatever the lab file says meanwhile.
    pub(super) fn kind(&self) -> &DriverKind {
        if self.is_in_use() { &self.lease_driver.kind } else { &self.spec.driver.kind }
    }

    /// True while somebody has its device, or leaves it as it was before.
    pub(super) fn is_in_use(&self) -> bool {
        !self.state.held.is_empty() || self.state.device.work != Work::None
    }

    /// True when something looks at its device again and again.
    pub(super) fn checks(&self) -> bool {
        self.grantable && self.spec.driver.checks()
    }

    /// True when it is free for `mode` as it is.
    pub(super) fn has_room(&self, node: &NodeNow, mode: Mode) -> bool {
        self.grantable && self.state.fits(&self.spec, node, mode, None)
    }

    /// True when it is free for `mode`, also after what it has been asked for.
    pub(super) fn could_take(&self, node: &NodeNow, mode: Mode) -> bool {
        let fits = self.has_room(node, mode);
        match mode {
            Mode::Exclusive => fits && self.promised.is_empty(),
            Mode::Shared => {
                let seats = self.state.held.len() + self.state.reserved.len() + self.promised.len();
                fits && !self.promised.contains(&Mode::Exclusive) && seats < self.spec.max_shared.get() as usize
            }
        }
    }
}

/// `NO_CAPACITY` for a selector whose matches are all held.
pub(super) fn all_held(selector: &Selector, matching: usize) -> Refusal {
    let message = format!("all {matching} that match {selector} are taken; ask without noWait to wait");
    Refusal::new(Code::NoCapacity, message).retry_after(Duration::from_secs(5))
}

/// `NO_MATCHING_RESOURCE` for a selector, with what came near.
fn no_match(selector: &Selector, nearness: &Nearness) -> Refusal {
    let near = nearness.describe(selector);
    Refusal::new(Code::NoMatchingResource, format!("no resource matches {selector}: {near}"))
}
