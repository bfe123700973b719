//! Requests of this gateway's that wait at workers, for a resource by its name (SPEC §9 Named resources). Pure.
//!
//! The worker has them in its waiting room, in one order with its own clients; here stands what this gateway knows of
//! them: because it has sent them there, or because a worker has reported them after a restart of the gateway.

use std::collections::HashMap;
use std::time::Duration;

use super::fleet::Open;
use crate::clock::RunTime;
use crate::model::{ChosenLeaseId, Mode, NodeName, RequestId, Requester, ResourceId};
use crate::wire::requests::Place;

/// All of them, by their request.
#[derive(Debug, Default)]
pub struct Elsewhere {
    entries: HashMap<RequestId, Waits>,
}

/// One of them.
#[derive(Debug)]
pub struct Waits {
    /// At which worker.
    pub worker: NodeName,
    /// For which of its resources.
    pub resource: ResourceId,
    /// Whose it is, without the gateway's prefix.
    pub requester: Requester,
    /// Alone or shared.
    pub mode: Mode,
    /// The lease id that it holds while it waits.
    pub lease_id: Option<ChosenLeaseId>,
    /// How it waits.
    pub kind: Kind,
    /// The number of the report or answer that this is from.
    pub number: u64,
    /// Where it stood when the worker last said so.
    pub place: Option<Place>,
}

/// How one waits.
#[derive(Debug)]
pub enum Kind {
    /// It stands in the waiting room and asks again.
    Unattended,
    /// This gateway has sent it there in this run; with what it was here.
    Sent(Box<Open>),
    /// It was there when this gateway came.
    Found {
        /// Since when this gateway knows.
        at: RunTime,
        /// True once somebody has asked about it, or has come with its key or ticket.
        claimed: bool,
        /// True while its worker is told to take it out.
        leaving: bool,
    },
}

impl Elsewhere {
    /// Enters one, in the place of what was known of it.
    pub fn insert(&mut self, request: RequestId, waits: Waits) {
        self.entries.insert(request, waits);
    }

    /// One of them.
    pub fn get(&self, request: &RequestId) -> Option<&Waits> {
        self.entries.get(request)
    }

    /// One of them, to note what is said of it.
    pub fn get_mut(&mut self, request: &RequestId) -> Option<&mut Waits> {
        self.entries.get_mut(request)
    }

    /// It waits no more.
    pub fn remove(&mut self, request: &RequestId) -> Option<Waits> {
        self.entries.remove(request)
    }

    /// It waits no more at this worker.
    pub fn remove_at(&mut self, request: &RequestId, worker: &NodeName) -> Option<Waits> {
        self.is_at(request, worker).then(|| self.entries.remove(request)).flatten()
    }

    /// True when it waits at this worker.
    pub fn is_at(&self, request: &RequestId, worker: &NodeName) -> bool {
        self.entries.get(request).is_some_and(|waits| waits.worker == *worker)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many wait at a worker.
    pub fn at(&self, worker: &NodeName) -> usize {
        self.entries.values().filter(|waits| waits.worker == *worker).count()
    }

    /// Those that wait at a worker.
    pub fn all_at(&self, worker: &NodeName) -> Vec<RequestId> {
        let there = self.entries.iter().filter(|(_, waits)| waits.worker == *worker);
        there.map(|(request, _)| request.clone()).collect()
    }

    /// The unattended waiter of a requester in one waiting room.
    pub fn standing(
        &self,
        requester: &Requester,
        worker: &NodeName,
        resource: &ResourceId,
    ) -> Option<(&RequestId, &Waits)> {
        self.entries.iter().find(|(_, waits)| {
            matches!(waits.kind, Kind::Unattended)
                && waits.requester == *requester
                && waits.worker == *worker
                && waits.resource == *resource
        })
    }

    /// Somebody has asked about it: it is not for nothing.
    pub fn claim(&mut self, request: &RequestId) {
        if let Some(Waits { kind: Kind::Found { claimed, .. }, .. }) = self.entries.get_mut(request) {
            *claimed = true;
        }
    }

    /// Its worker is told to take it out, or could not be told.
    pub fn leave(&mut self, request: &RequestId, told: bool) {
        if let Some(Waits { kind: Kind::Found { leaving, .. }, .. }) = self.entries.get_mut(request) {
            *leaving = told;
        }
    }

    /// Those that were found and that nobody has claimed for `grace`.
    pub fn unclaimed(&self, now: RunTime, grace: Duration) -> Vec<(RequestId, NodeName)> {
        let old = |waits: &Waits| matches!(waits.kind, Kind::Found { at, claimed: false, leaving: false } if now >= at + grace);
        let unclaimed = self.entries.iter().filter(|(_, waits)| old(waits));
        unclaimed.map(|(request, waits)| (request.clone(), waits.worker.clone())).collect()
    }

    /// Those whose time to wait has been over for `slack`, with what they are.
    pub fn timed_out(&self, now: RunTime, slack: impl Fn(&NodeName) -> Duration) -> Vec<RequestId> {
        let over = |waits: &Waits| match &waits.kind {
            Kind::Sent(open) => open.give_up_at().is_some_and(|at| now >= at + slack(&waits.worker)),
            Kind::Unattended | Kind::Found { .. } => false,
        };
        self.entries.iter().filter(|(_, waits)| over(waits)).map(|(request, _)| request.clone()).collect()
    }

    /// Those at `worker` that a snapshot cut at `number` does not show.
    pub fn missing(&self, worker: &NodeName, number: u64, shown: impl Fn(&RequestId) -> bool) -> Vec<RequestId> {
        let missing = |(request, waits): &(&RequestId, &Waits)| {
            waits.worker == *worker && waits.number <= number && !shown(request)
        };
        self.entries.iter().filter(missing).map(|(request, _)| request.clone()).collect()
    }

    /// A worker has started anew: its numbers begin again, so what is known of it is older than anything it says now.
    pub fn forget_numbers(&mut self, worker: &NodeName) {
        self.entries.values_mut().filter(|waits| waits.worker == *worker).for_each(|waits| waits.number = 0);
    }
}
