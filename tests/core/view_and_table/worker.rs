//! The truth: a worker with two resources, what it reports and what it answers.

use std::collections::VecDeque;
use std::time::Duration;

use berth::model::{Fence, LeaseId, LeaseRecord, Mode, NodeName, RequestId};
use berth::wire::report::{LeaseRow, ResourceReport};

use crate::sample;

pub const RESOURCES: [&str; 2] = ["bench", "board"];
/// So that leases end and begin beside others that stay.
pub const MAX_SHARED: usize = 2;

/// For whom a lease is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Who {
    /// For a request that this gateway has sent out.
    Sent,
    /// For a request of this gateway's former life.
    Former,
    /// For a client of the worker, or for another gateway.
    Stranger(bool),
}

/// What a call came to. It carries the number that the worker's answer carries.
#[derive(Debug, Clone)]
pub struct Answer {
    pub number: u64,
    pub what: What,
}

#[derive(Debug, Clone)]
pub enum What {
    /// A dispatch got this lease; or it was asked about later, and has got it.
    Granted(LeaseRecord),
    Renewed(LeaseRecord),
    Released(LeaseRecord),
}

/// A whole report.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub incarnation: u64,
    pub number: u64,
    pub resources: Vec<ResourceReport>,
}

/// One change.
#[derive(Debug, Clone)]
pub struct Delta {
    pub number: u64,
    pub resource: ResourceReport,
}

/// A worker, and what is on its way to the gateway.
pub struct Worker {
    pub name: NodeName,
    incarnation: u64,
    number: u64,
    fence: u64,
    pub leases: Vec<LeaseRecord>,
    /// In their order.
    pub snapshots: VecDeque<Snapshot>,
    /// In their order; the first may not be handed on before a snapshot has.
    pub deltas: VecDeque<Delta>,
    /// Answers overtake each other and all reports.
    pub answers: Vec<Answer>,
}

impl Worker {
    pub fn new(name: &str) -> Self {
        Self {
            name: sample::text(name),
            incarnation: 1,
            number: 0,
            fence: 0,
            leases: Vec::new(),
            snapshots: VecDeque::new(),
            deltas: VecDeque::new(),
            answers: Vec::new(),
        }
    }

    /// Grants a lease if there is room and its id is free.
    pub fn grant(&mut self, resource: usize, shared: bool, id: LeaseId, chosen: bool, who: Who, request: RequestId) {
        let resource = RESOURCES[resource];
        let there: Vec<_> = self.leases.iter().filter(|lease| lease.resource_id.as_str() == resource).collect();
        let beside = shared && there.len() < MAX_SHARED && there.iter().all(|lease| lease.mode == Mode::Shared);
        if !(there.is_empty() || beside) || self.leases.iter().any(|lease| lease.id == id) {
            return;
        }
        self.fence += 1;
        let holder = match who {
            Who::Sent | Who::Former => "gw:gateway:ci",
            Who::Stranger(true) => "gw:other:ci",
            Who::Stranger(false) => "ci",
        };
        let lease = LeaseRecord {
            request_id: request,
            mode: if shared { Mode::Shared } else { Mode::Exclusive },
            holder: sample::text(holder),
            id_chosen_by_requester: chosen,
            ..sample::lease(id.as_str(), resource, self.fence)
        };
        self.leases.push(lease.clone());
        self.changed(resource);
        if who == Who::Sent {
            self.answer(What::Granted(lease));
        }
    }

    /// Renews one of its leases: on the gateway's word, which is told, or not.
    pub fn renew(&mut self, index: usize, ttl_ms: u64, called: bool) {
        let Some(lease) = self.leases.get_mut(index) else { return };
        lease.ttl = Duration::from_millis(ttl_ms);
        let lease = lease.clone();
        self.changed(lease.resource_id.as_str());
        if called {
            self.answer(What::Renewed(lease));
        }
    }

    /// Ends one of its leases: released on the gateway's word, or expired.
    pub fn end(&mut self, index: usize, called: bool) {
        let Some(lease) = self.leases.get(index).cloned() else { return };
        self.release(&lease);
        if called {
            self.answer(What::Released(lease));
        }
    }

    pub fn release(&mut self, lease: &LeaseRecord) {
        let before = self.leases.len();
        self.leases.retain(|other| (&other.id, other.fence) != (&lease.id, lease.fence));
        if self.leases.len() < before {
            self.changed(lease.resource_id.as_str());
        }
    }

    /// Says what became of a request whose answer was lost: as it is now, with the number of the last change of all.
    pub fn settle(&mut self, request: &RequestId) {
        if let Some(lease) = self.leases.iter().find(|lease| lease.request_id == *request).cloned() {
            self.answer(What::Granted(lease));
        }
    }

    /// Sends everything, and every change from here on. What had not been sent is in it.
    pub fn subscribe(&mut self) {
        self.deltas.clear();
        let resources = RESOURCES.iter().map(|resource| self.report(resource)).collect();
        self.snapshots.push_back(Snapshot { incarnation: self.incarnation, number: self.number, resources });
    }

    /// The link is lost with all that was on it, and a new one is up.
    pub fn relink(&mut self, anew: bool) {
        self.answers.clear();
        self.snapshots.clear();
        if anew {
            self.incarnation += 1;
            self.number = 0;
        }
        self.subscribe();
    }

    pub fn report(&self, resource: &str) -> ResourceReport {
        let leases = self.leases.iter().filter(|lease| lease.resource_id.as_str() == resource);
        ResourceReport {
            id: sample::text(resource),
            labels: Default::default(),
            max_shared: MAX_SHARED as u32,
            fence: Fence(self.fence),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            device: None,
            environment: Default::default(),
            identity: None,
            failure: None,
            prepared_ms: 0,
            leases: leases.map(|lease| LeaseRow::new(lease, lease.ttl)).collect(),
        }
    }

    fn changed(&mut self, resource: &str) {
        self.number += 1;
        let resource = self.report(resource);
        self.deltas.push_back(Delta { number: self.number, resource });
    }

    fn answer(&mut self, what: What) {
        self.answers.push(Answer { number: self.number, what });
    }
}

/// True when the gateway of these tests asked for it.
pub fn is_ours(lease: &LeaseRecord) -> bool {
    lease.holder.to_string().starts_with("gw:gateway:")
}
