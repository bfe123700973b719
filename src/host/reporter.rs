//! Numbers every change and hands it to the link, if there is one (the protocol is in [`wire::report`]).
//!
//! [`wire::report`]: crate::wire::report

use tokio::sync::mpsc;

use crate::clock::Now;
use crate::limits::DELTAS_QUEUED_MAX;
use crate::wire::report::{Changed, Delta, LeaseRow, ResourceReport};

use super::directory::Entry;

/// What a subscriber gets: everything as it is now, and then every change.
#[derive(Debug)]
pub struct Subscription {
    /// Which life of the node.
    pub incarnation: u64,
    /// The number of the last change in `resources`.
    pub number: u64,
    /// Everything.
    pub resources: Vec<ResourceReport>,
    /// The changes after `number`. It ends when the subscriber was too slow; then it subscribes anew.
    pub deltas: mpsc::Receiver<Delta>,
}

/// Counts changes in this life of the node.
#[derive(Debug)]
pub(super) struct Reporter {
    incarnation: u64,
    number: u64,
    subscriber: Option<mpsc::Sender<Delta>>,
}

impl Reporter {
    pub(super) fn new(incarnation: u64) -> Self {
        Self { incarnation, number: 0, subscriber: None }
    }

    /// The number of the last change.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Replaces the subscriber. `resources` is everything as it is at this moment.
    pub(super) fn subscribe(&mut self, resources: Vec<ResourceReport>) -> Subscription {
        let (sender, deltas) = mpsc::channel(DELTAS_QUEUED_MAX);
        self.subscriber = Some(sender);
        Subscription { incarnation: self.incarnation, number: self.number, resources, deltas }
    }

    /// One resource has changed.
    pub(super) fn changed(&mut self, entry: &Entry, now: Now) {
        self.number += 1;
        let Some(subscriber) = &self.subscriber else { return };
        let delta =
            Delta { incarnation: self.incarnation, number: self.number, change: Changed::Resource(report(entry, now)) };
        if subscriber.try_send(delta).is_err() {
            self.subscriber = None;
        }
    }
}

/// A resource as it is now.
pub(super) fn report(entry: &Entry, now: Now) -> ResourceReport {
    ResourceReport {
        id: entry.spec.id.clone(),
        labels: entry.spec.labels.clone(),
        max_shared: entry.spec.max_shared.get(),
        fence: entry.state.fence,
        grantable: entry.grantable,
        drained: entry.state.drained,
        queue_length: entry.state.queue.len() as u64,
        reserved: entry.state.reserved.len() as u32,
        next_window: None,
        leases: entry.state.held.iter().map(|held| LeaseRow::new(&held.lease, held.deadline.left(now.run))).collect(),
    }
}
