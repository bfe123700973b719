//! What the gateway costs: acquire and release over HTTP through it, and the same straight at the worker.
//!
//! 64 clients, each with a resource of its own; the two doors take turns in one run, and what counts is the ratio of the
//! medians of their cycles per second.
//!
//! `cargo bench --bench hop`, with a number behind `--` for another count of rounds.

use std::time::Duration;

use berth::client::{Client, Endpoint};
use berth::clock::Clock;
use berth::config::{Effective, Source};
use berth::model::{ResourceAddress, SubName};
use berth::node::{self, Running, Surroundings};
use berth::service::answers::Acquired;
use berth::service::ask::AcquireBody;
use futures_util::future::join_all;

const CLIENTS: usize = 64;
const CYCLES: usize = 20;
const ROUNDS: usize = 15;
const GOAL: f64 = 0.8;

/// One client at one door.
struct Hand {
    client: Client,
    resource: ResourceAddress,
}

impl Hand {
    fn new(node: &Running, index: usize) -> Self {
        let client = Client::new(Endpoint::Unix(node.socket.clone())).expect("a client");
        let requester: SubName = format!("c{index}").parse().expect("a name");
        let resource = format!("board-{}", index + 1).parse().expect("an address");
        Self { client: client.acting_for(requester), resource }
    }

    async fn cycles(&self) {
        for _ in 0..CYCLES {
            let body = AcquireBody::default();
            match self.client.acquire(&self.resource, &body).await.expect("it is free") {
                Acquired::Active { lease } => drop(self.client.release(&lease.id, None).await.expect("it is held")),
                Acquired::Pending(pending) => panic!("nobody waits here: {pending:?}"),
            }
        }
    }
}

/// Cycles per second of all clients at one door.
async fn round(hands: &[Hand]) -> f64 {
    let began = Clock::system().now().run;
    join_all(hands.iter().map(Hand::cycles)).await;
    let took = Clock::system().now().run.left(began);
    (CLIENTS * CYCLES) as f64 / took.as_secs_f64()
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    // Cargo hands `--bench` in.
    let rounds = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(ROUNDS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("lab.toml");
        let file = format!(
            "[lab]\nname = \"bench\"\n[gateway]\nname = \"gateway\"\napi = \"127.0.0.1:0\"\nlink = \"127.0.0.1:0\"\n\
             [[worker]]\nname = \"rack\"\n[[worker.resource]]\nid = \"board-{{n}}\"\ncount = {CLIENTS}\n"
        );
        std::fs::write(&path, file).expect("the lab file");
        let state = ("BERTH_LAB__STATE_DIR".to_owned(), directory.path().join("state").to_string_lossy().into_owned());
        let lab = Effective::load(Source::File(path), [state].into_iter()).expect("a lab").lab;
        let nodes = node::start(&lab, None, &Surroundings::default()).await.expect("the lab starts");
        while !nodes[0].coordinator.readiness().await.ready {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let hands = |node: &Running| (0..CLIENTS).map(|index| Hand::new(node, index)).collect::<Vec<_>>();
        let (through, direct) = (hands(&nodes[0]), hands(&nodes[1]));
        let (mut of_gateway, mut of_worker) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            of_worker.push(round(&direct).await);
            of_gateway.push(round(&through).await);
        }
        let (through, direct) = (median(&mut of_gateway), median(&mut of_worker));
        println!("acquire and release over HTTP, {CLIENTS} clients, median of {rounds} rounds");
        println!("  at the worker       {direct:>8.0} cycles/s");
        println!("  through the gateway {through:>8.0} cycles/s");
        let ratio = through / direct;
        let verdict = if ratio > GOAL { "over" } else { "UNDER" };
        println!("  ratio: {ratio:.2}, {verdict} the goal of {GOAL}");
        node::stop(nodes).await;
    });
}
