//! What this gateway may have caused and wants no more: attempts that it has given up, and leases that nobody is to
//! have (SPEC §9 In doubt). Pure. Whatever is in here is asked about, or released, again and again until its worker
//! has said that it is over.

use std::collections::HashMap;

use super::given_up::GivenUp;
use crate::model::{Fence, LeaseId, LeaseRecord, NodeName, RequestId};

/// Attempts and leases that are to end on sight.
#[derive(Debug, Default)]
pub struct Orphans {
    given_up: HashMap<(RequestId, NodeName), Attempt>,
    leases: HashMap<(NodeName, LeaseId, Fence), Lease>,
}

#[derive(Debug)]
struct Attempt {
    attempt: u32,
    asked: bool,
}

#[derive(Debug)]
struct Lease {
    record: LeaseRecord,
    asked: bool,
}

impl Orphans {
    /// Nobody waits for this attempt any more.
    pub fn give_up(&mut self, request: RequestId, worker: NodeName, attempt: u32) {
        self.given_up.insert((request, worker), Attempt { attempt, asked: false });
    }

    /// Those that are given up and not settled, and those whose leases are being released; of the latter it does not
    /// matter which attempts they were.
    pub fn attempts(&self) -> impl Iterator<Item = GivenUp> {
        let row = |request: &RequestId, worker: &NodeName, attempt| GivenUp {
            request: request.clone(),
            worker: worker.clone(),
            attempt,
        };
        let leases = self.leases.iter().map(move |((worker, ..), lease)| row(&lease.record.request_id, worker, 0));
        let given_up = self.given_up.iter();
        given_up.map(move |((request, worker), given_up)| row(request, worker, given_up.attempt)).chain(leases)
    }

    /// How many those are.
    pub fn given_up(&self) -> usize {
        self.given_up.len()
    }

    /// What concerns workers that are not in the lab any more is nobody's to settle.
    pub fn keep_workers(&mut self, is_there: impl Fn(&NodeName) -> bool) {
        self.given_up.retain(|(_, worker), _| is_there(worker));
        self.leases.retain(|(worker, ..), _| is_there(worker));
    }

    /// True when an attempt of this request on this worker has been given up and is not settled.
    pub fn is_given_up(&self, request: &RequestId, worker: &NodeName) -> bool {
        self.given_up.contains_key(&(request.clone(), worker.clone()))
    }

    /// The worker has said what became of the attempt. False when it is another attempt that was given up, or none.
    pub fn settle(&mut self, request: &RequestId, worker: &NodeName, attempt: u32) -> bool {
        let place = (request.clone(), worker.clone());
        let this = self.given_up.get(&place).is_some_and(|given_up| given_up.attempt == attempt);
        if this {
            self.given_up.remove(&place);
        }
        this
    }

    /// A report shows what the given-up attempt got; there is nothing left to ask about.
    pub fn found(&mut self, request: &RequestId, worker: &NodeName) {
        self.given_up.remove(&(request.clone(), worker.clone()));
    }

    /// This lease is to be released.
    pub fn add_lease(&mut self, worker: &NodeName, lease: &LeaseRecord) {
        let place = (worker.clone(), lease.id.clone(), lease.fence);
        self.leases.entry(place).or_insert_with(|| Lease { record: lease.clone(), asked: false });
    }

    /// True when the lease is to be released.
    pub fn has_lease(&self, worker: &NodeName, lease: &LeaseRecord) -> bool {
        self.leases.contains_key(&(worker.clone(), lease.id.clone(), lease.fence))
    }

    /// True while a lease that an attempt of this request got here is being released.
    pub fn releases(&self, request: &RequestId, worker: &NodeName) -> bool {
        self.leases.iter().any(|((at, ..), lease)| at == worker && lease.record.request_id == *request)
    }

    /// The lease is over: what it was.
    pub fn lease_ended(&mut self, worker: &NodeName, lease: &LeaseId, fence: Fence) -> Option<LeaseRecord> {
        self.leases.remove(&(worker.clone(), lease.clone(), fence)).map(|lease| lease.record)
    }

    /// The worker is off the roster, and nobody can ask it any more.
    pub fn forget_worker(&mut self, worker: &NodeName) {
        self.given_up.retain(|(_, at), _| at != worker);
        self.leases.retain(|(at, ..), _| at != worker);
    }

    /// What this worker is to be asked about now; it counts as asked from here on.
    pub fn ask(&mut self, worker: &NodeName) -> (Vec<(RequestId, u32)>, Vec<LeaseRecord>) {
        let mut attempts = Vec::new();
        for ((request, at), given_up) in &mut self.given_up {
            if at == worker && !given_up.asked {
                given_up.asked = true;
                attempts.push((request.clone(), given_up.attempt));
            }
        }
        let mut leases = Vec::new();
        for ((at, ..), lease) in &mut self.leases {
            if at == worker && !lease.asked {
                lease.asked = true;
                leases.push(lease.record.clone());
            }
        }
        (attempts, leases)
    }

    /// The worker did not say what became of the attempt: it is asked again.
    pub fn attempt_unanswered(&mut self, request: &RequestId, worker: &NodeName) {
        if let Some(given_up) = self.given_up.get_mut(&(request.clone(), worker.clone())) {
            given_up.asked = false;
        }
    }

    /// The worker did not say that the lease is over: it is asked again.
    pub fn lease_unanswered(&mut self, worker: &NodeName, lease: &LeaseId, fence: Fence) {
        if let Some(lease) = self.leases.get_mut(&(worker.clone(), lease.clone(), fence)) {
            lease.asked = false;
        }
    }
}
