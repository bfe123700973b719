//! Dispatches of the gateway: which attempt of a request this worker has taken, and which are refused for good (SPEC
//! §9 In doubt).

use std::collections::{HashMap, VecDeque};

use crate::model::RequestId;

/// Requests whose attempts are remembered; the oldest go first.
const REQUESTS_MAX: usize = 100_000;

/// What is known of each request's attempts, in this life of the node.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    known: HashMap<RequestId, Known>,
    order: VecDeque<RequestId>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The latest attempt that was taken on.
    taken: u32,
    /// Every attempt up to this one is refused.
    cancelled: u32,
}

impl Attempts {
    /// This attempt is being carried out.
    pub(super) fn take(&mut self, request: &RequestId, attempt: u32) {
        let known = self.entry(request);
        known.taken = known.taken.max(attempt);
    }

    /// This attempt, and every one before it, is refused from now on.
    pub(super) fn cancel(&mut self, request: &RequestId, attempt: u32) {
        let known = self.entry(request);
        known.cancelled = known.cancelled.max(attempt);
    }

    /// True when the attempt came too late.
    pub(super) fn is_cancelled(&self, request: &RequestId, attempt: u32) -> bool {
        self.known.get(request).is_some_and(|known| attempt <= known.cancelled)
    }

    /// True when just this attempt was taken on before: the same dispatch has come twice.
    pub(super) fn is_taken(&self, request: &RequestId, attempt: u32) -> bool {
        self.known.get(request).is_some_and(|known| attempt == known.taken)
    }

    fn entry(&mut self, request: &RequestId) -> &mut Known {
        if !self.known.contains_key(request) {
            self.order.push_back(request.clone());
            while self.order.len() > REQUESTS_MAX {
                let oldest = self.order.pop_front().expect("more than none");
                self.known.remove(&oldest);
            }
        }
        self.known.entry(request.clone()).or_default()
    }
}
