//! Numbers every change and hands it to the link, if there is one (the protocol is in [`wire::report`]).
//!
//! What the rows are is said in [`reported`](super::reported).
//!
//! [`wire::report`]: crate::wire::report

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::limits::DELTAS_QUEUED_MAX;
use crate::model::{NodeName, RequestId, ResourceId};
use crate::wire::digest::{of_resource, of_waiting};
use crate::wire::report::{Changed, Delta, Digest, Report, ResourceReport};
use crate::wire::requests::{SettledRow, WaitingRow};

/// What a subscriber gets: everything as it is now, and then every change.
#[derive(Debug)]
pub struct Subscription {
    /// Which life of the node.
    pub incarnation: u64,
    /// The number of the last change in what follows.
    pub number: u64,
    /// Every resource.
    pub resources: Vec<ResourceReport>,
    /// The gateway's requests that wait here.
    pub waiting: Vec<WaitingRow>,
    /// Those that are settled and remembered.
    pub settled: Vec<SettledRow>,
    /// The changes after `number`, and a digest in their order whenever one is asked for. It ends when the subscriber was
    /// too slow; then it subscribes anew.
    pub reports: mpsc::Receiver<Report>,
}

/// Counts changes in this life of the node.
#[derive(Debug)]
pub(super) struct Reporter {
    incarnation: u64,
    number: u64,
    subscriber: Option<Subscriber>,
}

/// The link to a gateway, and what that gateway has been told.
#[derive(Debug)]
struct Subscriber {
    gateway: NodeName,
    reports: mpsc::Sender<Report>,
    told: Picture,
}

/// What a gateway's picture of this worker comes to.
#[derive(Debug, Default)]
struct Picture {
    digest: u64,
    resources: HashMap<ResourceId, u64>,
    waiting: HashMap<RequestId, u64>,
}

impl Reporter {
    pub(super) fn new(incarnation: u64) -> Self {
        Self { incarnation, number: 0, subscriber: None }
    }

    /// The number of the last change.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Replaces the subscriber. The rows are everything as it is at this moment.
    pub(super) fn subscribe(
        &mut self,
        gateway: NodeName,
        resources: Vec<ResourceReport>,
        waiting: Vec<WaitingRow>,
        settled: Vec<SettledRow>,
    ) -> Subscription {
        let (sender, reports) = mpsc::channel(DELTAS_QUEUED_MAX);
        let told = Picture::of(&resources, &waiting);
        self.subscriber = Some(Subscriber { gateway, reports: sender, told });
        Subscription { incarnation: self.incarnation, number: self.number, resources, waiting, settled, reports }
    }

    /// The gateway that is told of its requests, while there is one.
    pub(super) fn gateway(&self) -> Option<&NodeName> {
        self.subscriber.as_ref().map(|subscriber| &subscriber.gateway)
    }

    /// True when the gateway has been told that this request waits, and not yet how that ended.
    pub(super) fn is_told_to_wait(&self, request: &RequestId) -> bool {
        self.subscriber.as_ref().is_some_and(|subscriber| subscriber.told.waiting.contains_key(request))
    }

    /// Something has changed; `change` is what is told of it.
    pub(super) fn changed(&mut self, change: impl FnOnce() -> Changed) {
        self.number += 1;
        let Some(subscriber) = &mut self.subscriber else { return };
        let change = change();
        subscriber.told.take(&change);
        let delta = Delta { incarnation: self.incarnation, number: self.number, change };
        if subscriber.reports.try_send(Report::Delta(delta)).is_err() {
            self.subscriber = None;
        }
    }

    /// Puts what everything comes to behind the changes that are in it.
    pub(super) fn say_digest(&mut self) {
        let Some(subscriber) = &self.subscriber else { return };
        let digest = Digest { incarnation: self.incarnation, number: self.number, digest: subscriber.told.digest };
        // One that does not fit is left out: the next one says the same.
        let _ = subscriber.reports.try_send(Report::Digest(digest));
    }
}

impl Picture {
    /// As a whole snapshot says.
    fn of(resources: &[ResourceReport], waiting: &[WaitingRow]) -> Self {
        let resources: HashMap<_, _> = resources.iter().map(|it| (it.id.clone(), of_resource(it))).collect();
        let waiting: HashMap<_, _> = waiting.iter().map(|row| (row.request.clone(), of_waiting(row))).collect();
        let digest = resources.values().chain(waiting.values()).fold(0, |all, one| all ^ one);
        Self { digest, resources, waiting }
    }

    /// One change later.
    fn take(&mut self, change: &Changed) {
        let (former, now) = match change {
            Changed::Resource(report) => {
                let now = of_resource(report);
                (self.resources.insert(report.id.clone(), now), now)
            }
            Changed::Waiting(row) => {
                let now = of_waiting(row);
                (self.waiting.insert(row.request.clone(), now), now)
            }
            Changed::Settled(SettledRow { request, .. }) | Changed::Gone(request) => (self.waiting.remove(request), 0),
            Changed::ResourceGone(resource) => (self.resources.remove(resource), 0),
        };
        self.digest ^= former.unwrap_or(0) ^ now;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Fence, Fingerprint, Mode, Target};
    use crate::wire::requests::SettledOutcome;

    fn report(index: u8, fence: u64) -> ResourceReport {
        ResourceReport {
            id: format!("board-{index}").parse().unwrap(),
            labels: Default::default(),
            max_shared: 1,
            fence: Fence(fence),
            grantable: true,
            drained: fence.is_multiple_of(2),
            queue_length: fence / 3,
            reserved: 0,
            next_window: None,
            device: None,
            environment: Default::default(),
            identity: None,
            failure: None,
            prepared_ms: 0,
            leases: Vec::new(),
        }
    }

    fn id(index: u8) -> RequestId {
        format!("req_{:032x}", u128::from(index)).parse().unwrap()
    }

    fn fingerprint() -> Fingerprint {
        Fingerprint::of(&Target::Resource("board-1".parse().unwrap()), Mode::Exclusive, None)
    }

    fn row(index: u8, resource: u8) -> WaitingRow {
        WaitingRow {
            request: id(index),
            requester: format!("gw:gateway:ci-{}", index % 3).parse().unwrap(),
            resource: format!("board-{resource}").parse().unwrap(),
            mode: Mode::Exclusive,
            attended: true,
            lease_id: None,
            key: None,
            fingerprint: fingerprint(),
            joined_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn changes() -> impl Strategy<Value = Vec<Changed>> {
        let settled = |index| {
            Changed::Settled(SettledRow {
                request: id(index),
                requester: "gw:gateway:ci".parse().unwrap(),
                key: None,
                fingerprint: fingerprint(),
                created_at: Timestamp::UNIX_EPOCH,
                ended_ms_ago: None,
                outcome: SettledOutcome::Cancelled,
            })
        };
        let change = prop_oneof![
            (0..6u8, 0..20u64).prop_map(|(index, fence)| Changed::Resource(report(index, fence))),
            (0..6u8, 0..3u8).prop_map(|(index, resource)| Changed::Waiting(row(index, resource))),
            (0..8u8).prop_map(settled),
            (0..8u8).prop_map(|index| Changed::Gone(id(index))),
            (0..6u8).prop_map(|index| Changed::ResourceGone(report(index, 0).id)),
        ];
        prop::collection::vec(change, 0..60)
    }

    proptest! {
        #[test]
        fn the_digest_that_is_kept_up_to_date_is_the_one_of_what_is_there(cut in 0..30usize, changes in changes()) {
            let mut resources: BTreeMap<ResourceId, ResourceReport> = BTreeMap::new();
            let mut waiting: BTreeMap<RequestId, WaitingRow> = BTreeMap::new();
            let mut picture = Picture::default();
            for (index, change) in changes.into_iter().enumerate() {
                picture.take(&change);
                match change {
                    Changed::Resource(report) => drop(resources.insert(report.id.clone(), report)),
                    Changed::Waiting(row) => drop(waiting.insert(row.request.clone(), row)),
                    Changed::Settled(SettledRow { request, .. }) | Changed::Gone(request) => {
                        waiting.remove(&request);
                    }
                    Changed::ResourceGone(resource) => drop(resources.remove(&resource)),
                }
                let all: Vec<_> = resources.values().cloned().collect();
                let rows: Vec<_> = waiting.values().cloned().collect();
                let anew = Picture::of(&all, &rows);
                prop_assert_eq!(picture.digest, anew.digest, "after {} changes", index + 1);
                if index == cut {
                    picture = anew;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_digest_comes_behind_the_change_whose_number_it_has() {
        let mut reporter = Reporter::new(7);
        reporter.changed(|| unreachable!("nobody is told"));
        let mut told = reporter.subscribe("gateway".parse().unwrap(), vec![report(1, 0)], Vec::new(), Vec::new());
        assert_eq!((told.incarnation, told.number), (7, 1));
        reporter.say_digest();
        reporter.changed(|| Changed::Resource(report(1, 5)));
        reporter.say_digest();
        reporter.changed(|| Changed::Resource(report(1, 6)));
        let mut numbers = Vec::new();
        while let Ok(said) = told.reports.try_recv() {
            numbers.push(match said {
                Report::Delta(delta) => ("delta", delta.number),
                Report::Digest(digest) => {
                    let expected = of_resource(&report(1, if digest.number == 1 { 0 } else { 5 }));
                    assert_eq!(digest.digest, expected);
                    ("digest", digest.number)
                }
                Report::Events(_) => unreachable!("the desk has none"),
            });
        }
        assert_eq!(numbers, [("digest", 1), ("delta", 2), ("digest", 2), ("delta", 3)]);
    }

    #[tokio::test]
    async fn a_subscriber_that_is_too_slow_is_let_go_of_but_not_for_a_digest() {
        let mut reporter = Reporter::new(7);
        let told = reporter.subscribe("gateway".parse().unwrap(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..DELTAS_QUEUED_MAX {
            reporter.changed(|| Changed::Resource(report(1, 5)));
        }
        reporter.say_digest();
        assert!(reporter.gateway().is_some());
        reporter.changed(|| Changed::Resource(report(1, 6)));
        assert!(reporter.gateway().is_none());
        assert_eq!((told.reports.len(), reporter.number()), (DELTAS_QUEUED_MAX, DELTAS_QUEUED_MAX as u64 + 1));
    }
}
