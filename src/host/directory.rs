//! What the desk knows of each resource: enough to choose, to show and to start its actor.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use ractor::{ActorId, ActorRef};

use super::message::OpId;
use super::resource::ResourceMessage;
use crate::admission::resource::{Command, ResourceState};
use crate::clock::RunTime;
use crate::model::{Code, LeaseId, Mode, Nearness, Refusal, ResourceId, ResourceSpec, Selector};

/// The resources of a node.
#[derive(Debug, Default)]
pub(super) struct Directory {
    entries: BTreeMap<ResourceId, Entry>,
    leases: HashMap<LeaseId, ResourceId>,
    actors: HashMap<ActorId, ResourceId>,
}

/// One resource.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its settings.
    pub(super) spec: Arc<ResourceSpec>,
    /// False when it is no longer in the lab file and only waits for its leases to end.
    pub(super) grantable: bool,
    /// As its actor last said it is, or as the database holds it.
    pub(super) state: ResourceState,
    /// Its actor, while it has one.
    pub(super) life: Life,
    /// Counts its actors.
    pub(super) activation: u64,
    /// Modes of the leases that it has been asked for and has not answered.
    pub(super) promised: Vec<Mode>,
    /// Operations that it has been asked for and has not answered.
    pub(super) in_flight: usize,
    /// How often in a row its expiry could not be written.
    pub(super) wake_failures: u32,
    /// When it last had something to do.
    pub(super) used_at: RunTime,
}

/// The actor of a resource.
#[derive(Debug)]
pub(super) enum Life {
    /// Nothing happens: the database is enough.
    Idle,
    /// It runs.
    Active(ActorRef<ResourceMessage>),
    /// Its actor died; the database is closing its activation. What comes in meanwhile waits here, bounded.
    Reopening(VecDeque<(OpId, Command)>),
}

impl Directory {
    /// Adds a resource at start.
    pub(super) fn add(&mut self, spec: ResourceSpec, grantable: bool, state: ResourceState) {
        for held in &state.held {
            self.leases.insert(held.lease.id.clone(), spec.id.clone());
        }
        let entry = Entry {
            spec: Arc::new(spec.clone()),
            grantable,
            state,
            life: Life::Idle,
            activation: 0,
            promised: Vec::new(),
            in_flight: 0,
            wake_failures: 0,
            used_at: RunTime::default(),
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

    /// Replaces what is known of a resource.
    pub(super) fn set_state(&mut self, id: &ResourceId, state: ResourceState) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        for held in &entry.state.held {
            self.leases.remove(&held.lease.id);
        }
        for held in &state.held {
            self.leases.insert(held.lease.id.clone(), id.clone());
        }
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
            |entry: &&Entry| matches!(entry.life, Life::Active(_)) && entry.in_flight == 0 && entry.used_at <= before;
        self.entries.values().filter(idle).map(|entry| entry.spec.id.clone()).collect()
    }

    /// The free match that has been idle longest; one that was never leased goes first, then the order of ids.
    ///
    /// # Errors
    /// `NO_MATCHING_RESOURCE` when nothing can ever match, `NO_CAPACITY` when what matches is held.
    pub(super) fn choose(&self, selector: &Selector, mode: Mode) -> Result<ResourceId, Refusal> {
        let grantable = || self.entries.values().filter(|entry| entry.grantable);
        let mut matching = 0;
        let mut best: Option<&Entry> = None;
        for entry in grantable().filter(|entry| selector.matches(&entry.spec.labels)) {
            matching += 1;
            let better = |best: &Entry| entry.state.idle_since < best.state.idle_since;
            if entry.could_take(mode) && best.is_none_or(better) {
                best = Some(entry);
            }
        }
        match best {
            Some(entry) => Ok(entry.spec.id.clone()),
            None if matching == 0 => {
                let mut nearness = Nearness::default();
                grantable().for_each(|entry| nearness.add(selector, &entry.spec.labels));
                Err(no_match(selector, &nearness))
            }
            None => {
                let message = format!("all {matching} that match {selector} are leased; ask again later");
                Err(Refusal::new(Code::NoCapacity, message).retry_after(std::time::Duration::from_secs(5)))
            }
        }
    }
}

impl Entry {
    /// True when it is free for `mode`, also after what it has been asked for.
    fn could_take(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.promised.is_empty() && self.state.admits(&self.spec, mode),
            Mode::Shared => {
                let seats = self.state.held.len() + self.promised.len();
                self.state.admits(&self.spec, mode)
                    && !self.promised.contains(&Mode::Exclusive)
                    && seats < self.spec.max_shared.get() as usize
            }
        }
    }
}

/// `NO_MATCHING_RESOURCE` for a selector, with what came near.
fn no_match(selector: &Selector, nearness: &Nearness) -> Refusal {
    let near = nearness.describe(selector);
    Refusal::new(Code::NoMatchingResource, format!("no resource matches {selector}: {near}"))
}
