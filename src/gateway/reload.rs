//! The lab file is read anew while the gateway runs (SPEC §12): the numbers that it holds itself. Its workers read their
//! own file, and report what has become of their resources.

use super::front::FrontState;
use crate::admission::Rules;

impl FrontState {
    /// From now on these numbers count. The ranks of those who wait stay, and what was promised.
    pub(super) fn reload(&mut self, rules: Rules) {
        let Rules { lease, waiting, events, limits, .. } = rules;
        self.ledger.set_requester_max(lease.max_per_requester);
        self.requests.set_retention(lease.request_retention);
        self.fleet.set_aging(waiting.priority_aging);
        self.around.history.set_rules(events);
        self.around.waiters_max = limits.waiters_max;
        self.around.rules = lease;
        self.around.waiting = waiting;
        self.pump_due = true;
    }
}
