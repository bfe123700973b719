//! How long a gateway takes to rebuild its routing table: from when it listens until every one of 100 000 leases that ten
//! workers report is routed, as a ratio to decoding and inserting the same records with no network.
//!
//! The two take turns; what counts is the ratio of the medians.
//!
//! `cargo bench --bench rebuild`, with a number behind `--` for another count of rounds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth::admission::resource::Held;
use berth::clock::{Clock, RunTime};
use berth::config::{Effective, Lab, Source};
use berth::gateway::table::Table;
use berth::gateway::view::View;
use berth::link::Udp;
use berth::link::dial::{Dialer, WorkerLink};
use berth::model::{Fence, Fingerprint, LeaseId, LeaseRecord, Mode, NodeName, NodeRole, RequestId, ResourceId, Target};
use berth::node::{self, Surroundings};
use berth::trust::{Authority, Identity};
use berth::wire::PROTOCOL;
use berth::wire::frame::decode;
use berth::wire::hello::Hello;
use berth::wire::report::{LeaseRow, Part, ResourceReport, snapshot};
use bytes::Bytes;

const WORKERS: usize = 10;
const LEASES_EACH: usize = 10_000;
const ROUNDS: usize = 7;
const GOAL: f64 = 3.0;
const TTL: Duration = Duration::from_secs(3600);

fn worker(index: usize) -> NodeName {
    format!("rack-{index}").parse().expect("a name")
}

/// What one worker reports: each of its resources leased by this gateway.
fn frames(worker: usize) -> Vec<Bytes> {
    let now = Clock::system().now().wall;
    let report = |index: usize| {
        let id: ResourceId = format!("board-{index}").parse().expect("an id");
        let target = Target::Resource(id.as_str().parse().expect("an address"));
        let lease = LeaseRecord {
            id: LeaseId::generate(),
            request_id: RequestId::generate(),
            resource_id: id.clone(),
            mode: Mode::Exclusive,
            holder: format!("gw:gateway:ci/job-{worker}-{index}").parse().expect("a requester"),
            granted_at: now,
            renewed_at: now,
            ttl: TTL,
            fence: Fence(index as u64 + 1),
            note: None,
            id_chosen_by_requester: false,
            idempotency_key: None,
            fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
            asked_ttl: None,
        };
        ResourceReport {
            labels: [("platform", "linux"), ("board", "imx8")]
                .map(|(key, value)| (key.parse().expect("a key"), value.parse().expect("a value")))
                .into(),
            id,
            max_shared: 1,
            fence: lease.fence,
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
            leases: vec![LeaseRow::new(&lease, TTL)],
        }
    };
    let reports: Vec<ResourceReport> = (0..LEASES_EACH).map(report).collect();
    snapshot(1, 0, &reports, &[], &[]).expect("every record fits a frame")
}

/// The same records without a network: what there is to do at the least.
fn without_network(all: &[Vec<Bytes>]) -> Duration {
    let began = Clock::system().now().run;
    let mut table = Table::new("gateway".parse().expect("a name"));
    let now = RunTime::default();
    let mut views = Vec::new();
    for (index, frames) in all.iter().enumerate() {
        let worker = worker(index);
        let mut reports = Vec::new();
        for frame in frames {
            if let Part::Chunk { resources, .. } = decode::<Part>(frame).expect("a frame") {
                reports.extend(resources);
            }
        }
        let mut view = View::default();
        view.begin_incarnation(1);
        view.take_snapshot(0, reports, now);
        let held: Vec<Held> = view.resources().values().flat_map(|seen| seen.held.iter().cloned()).collect();
        for held in &held {
            table.enter(&worker, held, 0);
        }
        views.push(view);
    }
    assert_eq!(table.iter().count(), WORKERS * LEASES_EACH);
    Clock::system().now().run.left(began)
}

struct Fleet {
    lab: Lab,
    around: Surroundings,
    identities: Vec<Identity>,
    _directory: tempfile::TempDir,
}

impl Fleet {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lab.toml");
        let workers: String = (0..WORKERS).map(|index| format!("[[worker]]\nname = \"{}\"\n", worker(index))).collect();
        let gateway =
            "[lab]\nname = \"bench\"\n[gateway]\nname = \"gateway\"\napi = \"127.0.0.1:0\"\nlink = \"127.0.0.1:0\"\n";
        std::fs::write(&path, format!("{gateway}{workers}")).expect("the lab file");
        let state = ("BERTH_LAB__STATE_DIR".to_owned(), directory.path().join("state").to_string_lossy().into_owned());
        let lab = Effective::load(Source::File(path), [state].into_iter()).expect("a lab").lab;
        let identities = (0..WORKERS).map(|index| identity(&lab.state_dir, &worker(index))).collect();
        let around = Surroundings { clock: Clock::system(), udp: Udp::default(), guard: None, hands: None };
        Self { lab, around, identities, _directory: directory }
    }

    /// One life of the gateway, timed from when it listens until every lease is routed.
    async fn rebuild(&self, all: &Arc<Vec<Vec<Bytes>>>) -> Duration {
        let name = self.lab.gateway.as_ref().expect("a gateway").name.clone();
        let mut nodes = node::start(&self.lab, Some(&name), &self.around).await.expect("the gateway starts");
        let gateway = nodes.remove(0);
        let address = gateway.link_address().expect("it listens").to_string();
        let began = Clock::system().now().run;
        let reporting: Vec<_> = (self.identities.iter().enumerate())
            .map(|(index, identity)| {
                let dialer = Dialer::new(identity, &name, &address, &Udp::default()).expect("a dialler");
                let (address, all) = (address.clone(), Arc::clone(all));
                tokio::spawn(async move {
                    let link = report(&dialer, &address, &all[index]).await;
                    (dialer, link)
                })
            })
            .collect();
        while !gateway.coordinator.readiness().await.ready {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let took = Clock::system().now().run.left(began);
        let routed = gateway.coordinator.status(&berth::model::Caller::admin()).await.expect("a status").leases;
        assert_eq!(routed, WORKERS * LEASES_EACH);
        for reporting in reporting {
            let (dialer, _link) = reporting.await.expect("a worker");
            dialer.close().await;
        }
        gateway.stop().await;
        took
    }
}

async fn report(dialer: &Dialer, address: &str, frames: &[Bytes]) -> WorkerLink {
    let hello = Hello { protocol: PROTOCOL, version: "bench".to_owned(), run: uuid::Uuid::new_v4(), incarnation: 1 };
    let link = dialer.dial(address, &hello).await.expect("the gateway welcomes it");
    link.streams().send_snapshot(frames.to_vec()).await.expect("it is sent");
    link
}

fn identity(state: &Path, name: &NodeName) -> Identity {
    let (lab, now) = ("bench".parse().expect("a name"), Clock::system().now().wall);
    let authority = Authority::open(state, &lab, now).expect("an authority");
    let files = authority.node_files(&state.join(name.as_str()), NodeRole::Worker, name, now).expect("files");
    Identity::load(&files, &lab, NodeRole::Worker, name).expect("an identity")
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() {
    // Cargo hands `--bench` in.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let all: Arc<Vec<Vec<Bytes>>> = Arc::new((0..WORKERS).map(frames).collect());
        let fleet = Fleet::new();
        let (mut alone, mut linked) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(without_network(&all));
            linked.push(fleet.rebuild(&all).await);
        }
        let (alone, linked) = (median(&mut alone), median(&mut linked));
        println!("rebuild of {} leases from {WORKERS} workers, median of {rounds} rounds", WORKERS * LEASES_EACH);
        println!("  decoded and inserted, no network {alone:>10.1?}");
        println!("  from listening to routed         {linked:>10.1?}");
        let ratio = linked.as_secs_f64() / alone.as_secs_f64();
        let verdict = if ratio < GOAL { "under" } else { "OVER" };
        println!("  ratio: {ratio:.2}, {verdict} the goal of {GOAL}");
    });
}
