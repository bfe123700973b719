//! A worker that speaks the real protocol and relays whatever a test has it say.

use std::time::Duration;

use berth::link::dial::{Dialer, WorkerLink};
use berth::link::{LinkError, read, write};
use berth::model::{EventId, Fence, NodeRole};
use berth::wire::events::{EventRow, EventsPage};
use berth::wire::hello::Hello;
use berth::wire::report::{Changed, Control, Delta, Digest, LeaseRow, Report, ResourceReport, snapshot};
use berth::wire::requests::{SettledRow, WaitingRow};
use berth::wire::{PROTOCOL, ProtocolRange};
use serde_json::Value;

use crate::lab::Lab;
use crate::strangers::identity;

/// Its link, as long as this lives.
pub struct Liar {
    pub link: WorkerLink,
    _dialer: Dialer,
}

impl Liar {
    /// Takes the place of a worker of the lab's, with one resource that holds these leases.
    pub async fn join(lab: &Lab, name: &str, resource: &str, leases: Vec<LeaseRow>) -> Self {
        Self::join_with(lab, name, resource, leases, &[], &[]).await
    }

    /// The same with requests of the gateway's that wait at it, and others that are settled.
    pub async fn join_with(
        lab: &Lab,
        name: &str,
        resource: &str,
        leases: Vec<LeaseRow>,
        waiting: &[WaitingRow],
        settled: &[SettledRow],
    ) -> Self {
        Self::speaking(PROTOCOL, lab, name, resource, leases, waiting, settled).await
    }

    /// The same, of another version.
    pub async fn speaking(
        protocol: ProtocolRange,
        lab: &Lab,
        name: &str,
        resource: &str,
        leases: Vec<LeaseRow>,
        waiting: &[WaitingRow],
        settled: &[SettledRow],
    ) -> Self {
        let identity = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, name);
        let address = lab.file.gateway.as_ref().unwrap().link.to_string();
        let dialer = Dialer::new(&identity, &"gateway".parse().unwrap(), &address, &lab.weather.udp()).unwrap();
        let incarnation = u64::MAX;
        let hello = Hello { protocol, version: "9.9.9".to_owned(), run: uuid::Uuid::new_v4(), incarnation };
        let link = dialer.dial(&address, &hello).await.unwrap();
        let report = report(resource, leases);
        link.streams().send_snapshot(snapshot(incarnation, 0, &[report], waiting, settled).unwrap()).await.unwrap();
        Self { link, _dialer: dialer }
    }

    /// Shows these resources, and nobody who waits, as what it is at this number.
    pub async fn shows(&self, number: u64, reports: &[ResourceReport]) {
        let frames = snapshot(u64::MAX, number, reports, &[], &[]).unwrap();
        self.link.streams().send_snapshot(frames).await.unwrap();
    }

    /// Says what it comes to at this number.
    pub async fn comes_to(&mut self, number: u64, digest: u64) {
        let digest = Digest { incarnation: u64::MAX, number, digest };
        write(&mut self.link.reports, &Report::Digest(digest)).await.unwrap();
    }

    /// True when the gateway asks for a whole snapshot within this time.
    pub async fn is_asked_anew(&mut self, within: Duration) -> bool {
        let asked = async {
            while read::<Control>(&mut self.link.control).await.unwrap().expect("the link is up") != Control::Resync {}
        };
        tokio::time::timeout(within, asked).await.is_ok()
    }

    /// Sends a page of events.
    pub async fn says(&mut self, events: Vec<EventRow>) -> Result<(), LinkError> {
        write(&mut self.link.reports, &Report::Events(EventsPage { events })).await
    }

    /// Reports its change of this number.
    pub async fn changes(&mut self, number: u64, change: Changed) {
        let delta = Delta { incarnation: u64::MAX, number, change };
        write(&mut self.link.reports, &Report::Delta(delta)).await.unwrap();
    }

    /// The next acknowledgement of events; none when the gateway has ended the link.
    pub async fn acknowledged(&mut self) -> Option<u64> {
        loop {
            match read::<Control>(&mut self.link.control).await {
                Ok(Some(Control::EventsTaken { seq })) => return Some(seq),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Sends a page and waits until it is acknowledged.
    pub async fn relays(&mut self, events: Vec<EventRow>) {
        let last = events.last().unwrap().seq;
        self.says(events).await.unwrap();
        assert_eq!(self.acknowledged().await, Some(last));
    }
}

/// A free resource but for these leases, as it is reported.
pub fn report(resource: &str, leases: Vec<LeaseRow>) -> ResourceReport {
    ResourceReport {
        id: resource.parse().unwrap(),
        labels: Default::default(),
        max_shared: 1,
        fence: Fence(0),
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
        leases,
    }
}

/// An event as a worker may claim it.
pub fn row(seq: u64, event: &str, payload: Value) -> EventRow {
    EventRow {
        id: EventId::generate(),
        seq,
        at: jiff::Timestamp::UNIX_EPOCH,
        event: event.to_owned(),
        owner: None,
        payload: payload.as_object().unwrap().clone(),
    }
}
