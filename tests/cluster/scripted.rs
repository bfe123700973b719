//! A gateway that does only what a test tells it, in front of a real worker: it speaks the real protocol over real QUIC.
//!
//! It checks what it reads as it goes: numbers without gaps, and each digest against what it has been told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth::clock::Clock;
use berth::config::{Effective, Lab as LabFile, Source};
use berth::link::listen::{GatewayLink, Greeted, Guest, Listener};
use berth::link::{read, write};
use berth::model::{Code, Fingerprint, LeftOut, Mode, NodeRole, Refusal, RequestId, ResourceId, Target};
use berth::node::{self, Running, Surroundings};
use berth::service::Coordinator;
use berth::wire::call::{Answer, Call, Dispatch, Wait};
use berth::wire::digest::{of_resource, of_waiting};
use berth::wire::hello::Welcome;
use berth::wire::report::{Changed, Control, Part, Report, ResourceReport};
use berth::wire::requests::{Place, SettledRow, WaitingRow};
use berth::wire::{PROTOCOL, ProtocolVersion};

use crate::lab::{FILE, guard};
use crate::strangers::identity;
use crate::weather::Weather;

/// How long a scripted gateway waits for its worker, of the paused clock.
const BOUND: Duration = Duration::from_secs(20);

/// The gateway, the worker `rack-1` with its one resource `pixel`, and the link between them.
pub struct Scripted {
    pub clock: Clock,
    file: LabFile,
    listener: Listener,
    worker: Option<Running>,
    link: Option<GatewayLink>,
    pub told: Told,
    _directory: tempfile::TempDir,
}

/// What the worker has said.
#[derive(Default)]
pub struct Told {
    incarnation: u64,
    pub number: u64,
    pub resources: BTreeMap<ResourceId, ResourceReport>,
    pub waiting: BTreeMap<RequestId, WaitingRow>,
    pub settled: BTreeMap<RequestId, SettledRow>,
}

impl Scripted {
    /// Starts both, and lets the worker in. Variables are as of a lab.
    pub async fn start(variables: &[(&str, &str)]) -> Self {
        let mut scripted = Self::unlinked(variables).await;
        scripted.let_in().await;
        scripted
    }

    /// The same, but nobody has answered the worker yet.
    pub async fn unlinked(variables: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lab.toml");
        std::fs::write(&path, FILE).unwrap();
        let state = directory.path().join("state").to_string_lossy().into_owned();
        let state_dir = [("BERTH_LAB__STATE_DIR".to_owned(), state)];
        let others = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let mut file = Effective::load(Source::File(path), state_dir.into_iter().chain(others)).unwrap().lab;
        let clock = Clock::tokio(Clock::system().now().wall);
        let me = identity(&file.state_dir, "cluster", NodeRole::Gateway, "gateway");
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), &me, &Weather::default().udp()).unwrap();
        let gateway = file.gateway.as_mut().unwrap();
        (gateway.link, gateway.address) = (listener.local_addr(), listener.local_addr().to_string());
        let told = Told::default();
        let mut scripted = Self { clock, file, listener, worker: None, link: None, told, _directory: directory };
        scripted.start_worker().await;
        scripted
    }

    async fn start_worker(&mut self) {
        let around = Surroundings {
            clock: self.clock.clone(),
            udp: Weather::default().udp(),
            guard: Some(guard()),
            hands: None,
        };
        let name = "rack-1".parse().unwrap();
        self.worker = node::start(&self.file, Some(&name), &around).await.unwrap().pop();
    }

    /// Ends the worker and starts it again on the same disk.
    pub async fn restart_worker(&mut self) {
        self.worker.take().unwrap().stop().await;
        self.start_worker().await;
        self.let_in().await;
    }

    pub fn worker(&self) -> Arc<dyn Coordinator> {
        Arc::clone(&self.worker.as_ref().unwrap().coordinator)
    }

    pub fn state_dir(&self) -> &std::path::Path {
        &self.file.state_dir
    }

    pub fn address(&self) -> String {
        self.listener.local_addr().to_string()
    }

    /// Ends the link.
    pub fn hang_up(&mut self) {
        self.link.take().unwrap().connection().close("the test hangs up");
    }

    /// Resolves when the worker has heard that its snapshot was taken: what it says afterwards comes after that.
    pub async fn is_taken(&mut self) {
        self.digest().await;
    }

    /// The next dial of the worker's.
    pub async fn knock(&self) -> Guest {
        let arriving = tokio::time::timeout(BOUND, self.listener.accept()).await.expect("the worker dials").unwrap();
        match arriving.greet().await.unwrap() {
            Greeted::Worker(guest) => guest,
            Greeted::Joiner(_) => panic!("a worker does not ask to join"),
        }
    }

    /// Judges the certificate of the next that dials, and takes no more notice of it.
    pub async fn judge(&self) {
        let arriving = tokio::time::timeout(BOUND, self.listener.accept()).await.expect("somebody dials").unwrap();
        let _ = arriving.greet().await;
    }

    /// Lets the worker in, takes its snapshot and says so.
    pub async fn let_in(&mut self) {
        let guest = self.knock().await;
        assert_eq!(guest.name.as_str(), "rack-1");
        assert_eq!(guest.hello.protocol, PROTOCOL);
        let welcome = Welcome::Accepted { protocol: ProtocolVersion(2), drained: false, events_after: None };
        let (incarnation, link) = (guest.hello.incarnation, guest.welcome(welcome).await.unwrap());
        self.link = Some(link);
        self.told = Told { incarnation, ..Told::default() };
        self.take_snapshot().await;
    }

    /// Asks for a whole snapshot and takes it in.
    pub async fn resync(&mut self) {
        write(&mut self.link().control, &Control::Resync).await.unwrap();
        self.take_snapshot().await;
    }

    fn link(&mut self) -> &mut GatewayLink {
        self.link.as_mut().expect("the worker is linked")
    }

    async fn take_snapshot(&mut self) {
        let link = self.link.as_mut().unwrap();
        let mut stream = tokio::time::timeout(BOUND, link.snapshots().next()).await.expect("a snapshot").unwrap();
        let (mut resources, mut waiting, mut settled) = (Vec::new(), Vec::new(), Vec::new());
        let mut number = None;
        loop {
            match read::<Part>(&mut stream).await.unwrap().expect("a snapshot has an end") {
                Part::Begin { incarnation, number: cut } => {
                    assert_eq!(incarnation, self.told.incarnation);
                    number = Some(cut);
                }
                Part::Chunk { resources: more, .. } => resources.extend(more),
                Part::Requests { waiting: more, settled: ended } => {
                    waiting.extend(more);
                    settled.extend(ended);
                }
                Part::End { resources: count, waiting: waiters, settled: ended } => {
                    let counts = [resources.len(), waiting.len(), settled.len()].map(|count| count as u64);
                    assert_eq!([count, waiters, ended], counts);
                    break;
                }
            }
        }
        let number = number.expect("a snapshot begins");
        self.told.number = number;
        self.told.resources = resources.into_iter().map(|it| (it.id.clone(), it)).collect();
        self.told.waiting = waiting.into_iter().map(|row| (row.request.clone(), row)).collect();
        self.told.settled = settled.into_iter().map(|row| (row.request.clone(), row)).collect();
        write(&mut link.control, &Control::Taken { number }).await.unwrap();
    }

    /// The next change; digests are checked and passed over.
    pub async fn change(&mut self) -> Changed {
        loop {
            if let Some(change) = self.hear().await {
                return change;
            }
        }
    }

    /// Waits for the next digest, which is checked.
    pub async fn digest(&mut self) {
        while self.hear().await.is_some() {}
    }

    /// The next change; none for a digest.
    async fn hear(&mut self) -> Option<Changed> {
        let link = self.link.as_mut().unwrap();
        let said = tokio::time::timeout(BOUND, read::<Report>(&mut link.reports)).await.expect("a report in time");
        match said.unwrap().expect("the link is up") {
            Report::Delta(delta) => {
                assert_eq!((delta.incarnation, delta.number), (self.told.incarnation, self.told.number + 1));
                self.told.take(delta.number, &delta.change);
                Some(delta.change)
            }
            Report::Digest(digest) => {
                assert_eq!((digest.incarnation, digest.number), (self.told.incarnation, self.told.number));
                assert_eq!(digest.digest, self.told.digest());
                None
            }
            Report::Events(_) => None,
        }
    }

    /// Calls; the answer, and its number.
    pub async fn call(&self, call: Call) -> (Answer, u64) {
        let pending = self.link.as_ref().unwrap().asker.send(call).unwrap();
        pending.answer(BOUND).await.expect("an answer in time")
    }

    /// Calls, and is refused.
    pub async fn refused(&self, call: Call) -> Refusal {
        match self.call(call).await {
            (Answer::Refused(refusal), _) => refusal,
            (other, _) => panic!("not refused: {other:?}"),
        }
    }

    /// Calls, and hears where the request stands; with the number of the answer.
    pub async fn place(&self, call: Call) -> (Place, u64) {
        match self.call(call).await {
            (Answer::Waiting(place), number) => (place, number),
            (other, _) => panic!("it does not wait: {other:?}"),
        }
    }

    /// A look at a request that does not wait.
    pub async fn does_not_wait(&self, request: &RequestId) {
        let refused = self.refused(Call::Look { request: request.clone() }).await;
        assert_eq!(refused.code, Code::UnknownLeaseRequest);
    }
}

impl Told {
    fn take(&mut self, number: u64, change: &Changed) {
        self.number = number;
        match change.clone() {
            Changed::Resource(report) => drop(self.resources.insert(report.id.clone(), report)),
            Changed::Waiting(row) => drop(self.waiting.insert(row.request.clone(), row)),
            Changed::Settled(row) => {
                self.waiting.remove(&row.request);
                self.settled.insert(row.request.clone(), row);
            }
            Changed::Gone(request) => drop(self.waiting.remove(&request)),
            Changed::ResourceGone(resource) => drop(self.resources.remove(&resource)),
        }
    }

    fn digest(&self) -> u64 {
        let resources = self.resources.values().map(of_resource);
        resources.chain(self.waiting.values().map(of_waiting)).fold(0, |all, one| all ^ one)
    }
}

/// A dispatch for `pixel`, through the door that fits its way of waiting.
pub fn dispatch(requester: &str, wait: Wait) -> Dispatch {
    let target = Target::Resource("pixel".parse().unwrap());
    let fingerprint = Fingerprint::of(&target, Mode::Exclusive, None);
    let door =
        if matches!(wait, Wait::Attended { .. }) { berth::model::Door::Request } else { berth::model::Door::Acquire };
    Dispatch {
        request: RequestId::generate(),
        attempt: 1,
        door,
        requester: requester.parse().unwrap(),
        target,
        mode: Mode::Exclusive,
        ttl_ms: 600_000,
        lease_id: None,
        note: None,
        key: None,
        fingerprint,
        allow_shorter: false,
        admin: false,
        priority: Default::default(),
        wait,
        ticket: None,
        left_out: LeftOut::default(),
        not_on: None,
    }
}

/// One that waits as long as it takes.
pub fn attended(requester: &str) -> Dispatch {
    dispatch(requester, Wait::Attended { timeout_ms: None })
}
