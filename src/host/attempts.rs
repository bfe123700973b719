//! Dispatches of the gateway: which attempts have been settled as refused for good (SPEC §9 In doubt).

use std::collections::{HashMap, VecDeque};

use crate::model::RequestId;

/// Cancelled attempts that are remembered; the oldest go first.
const CANCELLED_MAX: usize = 100_000;

/// The highest cancelled attempt of each request.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    cancelled: HashMap<RequestId, u32>,
    order: VecDeque<RequestId>,
}

impl Attempts {
    /// This attempt, and every one before it, is refused from now on.
    pub(super) fn cancel(&mut self, request: RequestId, attempt: u32) {
        match self.cancelled.get_mut(&request) {
            Some(highest) => *highest = attempt.max(*highest),
            None => {
                self.cancelled.insert(request.clone(), attempt);
                self.order.push_back(request);
            }
        }
        while self.order.len() > CANCELLED_MAX {
            let oldest = self.order.pop_front().expect("more than none");
            self.cancelled.remove(&oldest);
        }
    }

    /// True when the attempt came too late.
    pub(super) fn is_cancelled(&self, request: &RequestId, attempt: u32) -> bool {
        self.cancelled.get(request).is_some_and(|highest| attempt <= *highest)
    }
}
