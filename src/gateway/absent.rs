//! Workers that are away for long (SPEC §9 Worker away). The gateway never guesses that a lease is gone, so it stays
//! routed; but it does not hold its requester and its id for ever, and what was last heard of a worker is forgotten in the
//! end.

use std::time::Duration;

use super::front::FrontState;
use crate::clock::RunTime;
use crate::model::NodeName;

/// How much longer than any rule allows a lease is taken to last, because clocks differ.
pub(super) const SLACK: Duration = Duration::from_secs(60);
/// How long the picture of a worker is kept that is away.
const VIEW_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How often this is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl FrontState {
    /// Lets go what workers hold that have been away for long.
    pub(super) fn let_go_of_absent(&mut self, now: RunTime) {
        if now < self.absent_at {
            return;
        }
        self.absent_at = now + LOOK_EVERY;
        let grace = self.around.rules.uplink_grace + SLACK;
        let away = self.workers.iter().filter_map(|(name, worker)| Some((name.clone(), worker.away_since?)));
        for (worker, since) in away.collect::<Vec<(NodeName, RunTime)>>() {
            let over = self.table.uncount(&worker, now, grace);
            for (id, _) in &over {
                tracing::info!(lease = %id, %worker, "the worker is away, and the lease must be over; its name is free");
            }
            self.forget_leases(over);
            if now >= since + VIEW_KEPT && !self.table.counts(&worker) {
                self.forget_view(&worker);
            }
        }
    }

    /// Forgets what a worker has reported.
    fn forget_view(&mut self, name: &NodeName) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        if worker.view.take().is_some() {
            tracing::info!(worker = %name, "has been away for a day; what it had reported is forgotten");
            worker.forgotten = true;
            let gone = self.table.forget(name);
            self.forget_leases(gone);
            self.note_identities(name);
        }
    }
}
