//! What this gateway may have caused and wants no more: attempts that it has given up, and leases that nobody is to
//! have (SPEC §9 In doubt). Pure.

use std::collections::{HashMap, HashSet};

use crate::model::{Fence, LeaseId, LeaseRecord, NodeName, RequestId};

/// Attempts and leases that are to end on sight.
#[derive(Debug, Default)]
pub struct Orphans {
    given_up: HashMap<RequestId, GivenUp>,
    leases: HashSet<(NodeName, LeaseId, Fence)>,
}

/// An attempt that nobody waits for any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    /// Where it was sent.
    pub worker: NodeName,
    /// Which one it was.
    pub attempt: u32,
}

impl Orphans {
    /// Nobody waits for this attempt any more. Its worker is asked about it when it is back.
    pub fn give_up(&mut self, request: RequestId, worker: NodeName, attempt: u32) {
        self.given_up.insert(request, GivenUp { worker, attempt });
    }

    /// The worker has said what became of the attempt.
    pub fn settled(&mut self, request: &RequestId) -> Option<GivenUp> {
        self.given_up.remove(request)
    }

    /// True when an attempt of this request on this worker has been given up and is not settled.
    pub fn is_given_up(&self, request: &RequestId, worker: &NodeName) -> bool {
        self.given_up.get(request).is_some_and(|given_up| given_up.worker == *worker)
    }

    /// The given-up attempts on a worker.
    pub fn given_up_at(&self, worker: &NodeName) -> Vec<(RequestId, u32)> {
        let here = self.given_up.iter().filter(|(_, given_up)| given_up.worker == *worker);
        here.map(|(request, given_up)| (request.clone(), given_up.attempt)).collect()
    }

    /// This lease is to be released, as often as it takes.
    pub fn add_lease(&mut self, worker: &NodeName, lease: &LeaseRecord) {
        self.leases.insert((worker.clone(), lease.id.clone(), lease.fence));
    }

    /// True when the lease is to be released on sight.
    pub fn has_lease(&self, worker: &NodeName, lease: &LeaseRecord) -> bool {
        self.leases.contains(&(worker.clone(), lease.id.clone(), lease.fence))
    }

    /// The lease is over.
    pub fn lease_ended(&mut self, worker: &NodeName, lease: &LeaseId, fence: Fence) {
        self.leases.remove(&(worker.clone(), lease.clone(), fence));
    }
}
