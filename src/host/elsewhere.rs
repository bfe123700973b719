//! Devices of this node that another worker has leased, by the gateway's word (SPEC §7).
//!
//! Such a device is held absent, beside what its driver says of it: nobody gets it here, local clients neither. The word is
//! kept in memory only. It ends by the gateway's next word, some time after the link to the gateway is lost, and with this
//! run of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::desk::{DeskState, OpKind};
use super::schedule::Schedule;
use crate::admission::resource::Command;
use crate::clock::RunTime;
use crate::model::{NodeName, ResourceId};

/// How long the gateway's word is good without its link. A lease of a gateway's that is away lasts as long.
pub(super) const KEPT: Duration = Duration::from_secs(60);
/// How long until a word that could not be written is carried out again.
const AGAIN: Duration = Duration::from_secs(1);

/// What is leased elsewhere.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    leased: BTreeMap<ResourceId, NodeName>,
    /// When the word ends, unless the gateway says it again; none while it is there.
    until: Option<RunTime>,
    again: Schedule<ResourceId>,
}

impl Elsewhere {
    /// The earliest instant at which something is to be done.
    pub(super) fn next(&self) -> Option<RunTime> {
        self.until.into_iter().chain(self.again.next()).min()
    }

    /// Why a device is not to be had.
    fn reason(&self, resource: &ResourceId) -> Option<Arc<str>> {
        self.leased.get(resource).map(|worker| format!("leased on {worker}").into())
    }
}

impl DeskState {
    /// The gateway says of which resources another worker has leased the device; of no others.
    pub(super) fn leased_elsewhere(&mut self, leased: BTreeMap<ResourceId, NodeName>) {
        self.elsewhere.until = None;
        let former = std::mem::replace(&mut self.elsewhere.leased, leased);
        let now = &self.elsewhere.leased;
        let all: BTreeSet<&ResourceId> = former.keys().chain(now.keys()).collect();
        let turned: Vec<ResourceId> = all.into_iter().filter(|id| former.get(*id) != now.get(*id)).cloned().collect();
        for resource in turned {
            self.say_presence(&resource);
        }
    }

    /// The link to the gateway is lost.
    pub(super) fn elsewhere_unheard(&mut self, now: RunTime) {
        if !self.elsewhere.leased.is_empty() {
            self.elsewhere.until.get_or_insert(now + KEPT);
        }
    }

    /// What time alone does to it.
    pub(super) fn end_elsewhere(&mut self, now: RunTime) {
        if self.elsewhere.until.is_some_and(|until| until <= now) {
            self.leased_elsewhere(BTreeMap::new());
        }
        for resource in self.elsewhere.again.due(now) {
            self.say_presence(&resource);
        }
    }

    /// Tells a resource whether its device is to be had.
    pub(super) fn say_presence(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get(resource) else { return };
        let identity = entry.facts.identity.clone().filter(|_| entry.unseen.is_none());
        let absent = self.absence_of(resource);
        self.send(resource, OpKind::Sighted, Command::Sighted { absent, identity });
    }

    /// Why the device of a resource is not to be had: by its driver's word, else by the gateway's.
    pub(super) fn absence_of(&self, resource: &ResourceId) -> Option<Arc<str>> {
        let unseen = self.directory.get(resource).and_then(|entry| entry.unseen.clone());
        unseen.or_else(|| self.elsewhere.reason(resource))
    }

    /// It could not be written.
    pub(super) fn say_presence_again(&mut self, resource: &ResourceId) {
        self.elsewhere.again.set(resource, Some(self.clock.now().run + AGAIN));
    }
}
