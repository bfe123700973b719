//! A fleet of real processes that are killed, stopped and cut off while many clients take leases; every call and answer
//! is written down, and the history is checked afterwards.
//!
//! `BERTH_CHAOS_SECONDS` says how long (60 by default), `BERTH_CHAOS_SEED` which faults and what the clients do; a seed
//! repeats the plan, not the races. `BERTH_CHAOS_FAULT_BINARY` names a program that was built with the feature
//! `fault-double-grant`, on which the checks prove that they catch what they are for. Links are cut where the test runs
//! as root and there are `ip` and `nft`.

mod checks;
mod clients;
mod dice;
mod door;
mod grants;
mod history;
mod killer;
mod log;
mod model;
mod network;
mod nodes;
mod recorder;
mod story;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use self::checks::{Check, SERVED_BOUND};
use self::clients::Client;
use self::door::Door;
use self::history::{Answer, At, Call, Fault, Run, Wait};
use self::killer::{Planned, What, edges, plan};
use self::network::Network;
use self::nodes::{GATEWAY, NODES, Nodes, WORKERS, are_connected, resources, tables};
use self::recorder::Recorder;
use crate::patience::{BOUND, eventually};

const CLIENTS: u32 = 32;
/// So many of them speak to each worker, past the gateway.
const LOCAL: u32 = 3;
/// A lease that is to be there when all is over.
const LONG: u64 = 600_000;

/// One run.
struct Chaos {
    lasts: Duration,
    seed: u64,
    /// Another program than the one that is tested.
    program: Option<PathBuf>,
}

impl Chaos {
    fn new(default: u64) -> Self {
        let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
        let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later than 1970").as_micros() as u64;
        let seed = number("BERTH_CHAOS_SEED").unwrap_or_else(|| now() % 1_000_000);
        let lasts = Duration::from_secs(number("BERTH_CHAOS_SECONDS").unwrap_or(default));
        Self { lasts, seed, program: None }
    }

    /// Runs it, to its end.
    fn run(self) -> Run {
        say(&format!("chaos for {:?}; BERTH_CHAOS_SEED={}", self.lasts, self.seed));
        let network = Network::new(&NODES).map_err(|why| say(&format!("SKIPPED: no links are cut: {why}"))).ok();
        let cuts = network.is_some();
        let is_tested = self.program.is_none();
        let mut nodes = Nodes::start(network, self.program);
        let (gateway, workers) = (nodes.door(GATEWAY), WORKERS.map(|worker| nodes.door(worker)));
        let runtime = Runtime::new().expect("a runtime");
        let recorder = Arc::new(Recorder::new());
        let stop = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let local = (0..WORKERS.len()).find(|worker| number / LOCAL == *worker as u32);
                let door = local.map_or(&gateway, |worker| &workers[worker]).clone();
                let named = resources(local.map_or(&WORKERS, |worker| std::slice::from_ref(&WORKERS[worker])));
                let mut client = Client::new(number, door, named.into(), recorder.clone(), self.seed);
                client.stop = stop.clone();
                (number, runtime.spawn(client.run()))
            })
            .collect();
        let mut faults = Vec::new();
        for (at, fault, begins) in edges(&plan(self.seed, self.lasts, &NODES, cuts)) {
            wait_until(&recorder, at, &clients);
            let now = recorder.now();
            nodes.suffer(fault, begins);
            if begins {
                let (node, what) = (fault.node.clone(), fault.what.word());
                faults.push(Fault { node, what, from: now, to: At::MAX });
            } else if let Some(open) = faults.iter_mut().rev().find(|open| open.node == fault.node) {
                open.to = recorder.now();
            }
        }
        wait_until(&recorder, self.lasts, &clients);
        let mut run = Run { faults, ..Run::default() };
        if is_tested {
            heal(&mut run, &mut nodes, &recorder, &runtime, || {
                stop.store(true, Ordering::SeqCst);
                served(clients)
            });
        }
        for worker in &workers {
            run.log.extend(runtime.block_on(nodes::log(worker, &recorder)));
        }
        run.history = recorder.history();
        say(&summary(&run));
        run
    }
}

/// Waits until all is well again, until all clients have been served, and looks at what is left.
fn heal<F: Future<Output = Vec<(u32, Option<At>)>>>(
    run: &mut Run,
    nodes: &mut Nodes,
    recorder: &Recorder,
    runtime: &Runtime,
    served: impl FnOnce() -> F,
) {
    let (gateway, workers) = (nodes.door(GATEWAY), WORKERS.map(|worker| nodes.door(worker)));
    nodes.wait_ready();
    let links = || runtime.block_on(gateway.get("/v1/workers"));
    eventually("every worker is connected", BOUND, || are_connected(&links()).then_some(()));
    run.healed = recorder.now();
    run.clients = runtime.block_on(served());
    // Leases that outlive what comes: of both doors, with names of both kinds.
    runtime.block_on(take(&gateway, &workers));
    run.tables.push(settled_tables(runtime, &gateway, &workers));
    run.faults.push(nodes.restart_gateway(recorder));
    run.tables.push(settled_tables(runtime, &gateway, &workers));
}

/// Waits for a moment of the run; a client that has failed ends the test at once.
fn wait_until(recorder: &Recorder, at: At, clients: &[(u32, JoinHandle<At>)]) {
    while recorder.now() < at {
        assert!(clients.iter().all(|(_, client)| !client.is_finished()), "a client has failed");
        thread::sleep(Duration::from_millis(50).min(at.saturating_sub(recorder.now())));
    }
}

/// When each client had been served for the last time; none for one that was not within the bound.
async fn served(clients: Vec<(u32, JoinHandle<At>)>) -> Vec<(u32, Option<At>)> {
    let deadline = tokio::time::Instant::now() + SERVED_BOUND;
    let mut all = Vec::new();
    for (number, client) in clients {
        let done = tokio::time::timeout_at(deadline, client).await.ok();
        all.push((number, done.map(|client| client.expect("the client does not fail"))));
    }
    all
}

/// Takes a resource of every worker through the gateway and one at its own door.
async fn take(gateway: &Door, workers: &[Door]) {
    for (number, worker) in workers.iter().enumerate() {
        for (door, place) in [(gateway, 1), (worker, 2)] {
            let mut body = json!({ "requester": format!("last-{number}-{place}"), "ttlMs": LONG });
            if number != 1 {
                body["leaseId"] = json!(format!("last-{number}-{place}"));
            }
            let path = format!("/v1/resources/{}/leases", nodes::resource(&worker.node, place));
            // What clients have left behind ends first.
            let mut told = json!(null);
            for _ in 0..300 {
                told = door.call(Method::POST, &path, None, Some(&body), BOUND).await.expect("all is well again");
                if told["lease"].is_object() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert!(told["lease"].is_object(), "{path}: {told}");
        }
    }
}

/// The gateway's list and the workers', once they are the same or some time has passed: reports take a moment.
fn settled_tables(runtime: &Runtime, gateway: &Door, workers: &[Door]) -> history::Tables {
    let mut last = history::Tables::default();
    let _ = crate::patience::poll(BOUND, || {
        last = runtime.block_on(tables(gateway, workers));
        (last.gateway == last.workers).then_some(())
    });
    last
}

/// What happened, in numbers.
fn summary(run: &Run) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in &run.history {
        let call = match &entry.call {
            Call::Ask(ask) if ask.wait == Wait::Attended => "ask attended",
            Call::Ask(ask) if ask.wait == Wait::Room => "ask room",
            Call::Ask(_) => "ask",
            Call::Poll(_) => "poll",
            Call::Renew(_) => "renew",
            Call::Release(_) => "release",
            Call::Leave { .. } => "leave",
            Call::Look { .. } => "look",
        };
        let answer = match &entry.answer {
            Answer::Leased(_) => "leased",
            Answer::Waiting { .. } => "waiting",
            Answer::Standing => "standing",
            Answer::Released { .. } => "released",
            Answer::Seen { .. } => "seen",
            Answer::Done => "done",
            Answer::Refused { code, .. } => code,
            Answer::Unknown => "no answer",
        };
        let door = if entry.door == GATEWAY { "gateway" } else { "worker" };
        *counts.entry(format!("{door}: {call} -> {answer}")).or_default() += 1;
    }
    let grants = grants::grants(&run.history).len();
    let mut text = format!("{} calls, {grants} leases, {} faults", run.history.len(), run.faults.len());
    for (what, count) in counts {
        let _ = write!(text, "\n  {count:>6}  {what}");
    }
    text
}

/// Says it past the test's own capture.
fn say(text: &str) {
    // Nobody may be reading.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Everything that is wrong with a run; then the history is kept in a file.
fn wrong(run: &Run, seed: u64) -> Vec<String> {
    let found = checks::all(run);
    if !found.is_empty() {
        let path = std::env::temp_dir().join(format!("berth-chaos-{seed}.txt"));
        let lines = |name: &str, all: Vec<String>| format!("--- {name}\n{}\n", all.join("\n"));
        let text = lines("found", found.clone())
            + &lines("faults", run.faults.iter().map(|it| format!("{it:?}")).collect())
            + &lines("logs", run.log.iter().map(|it| format!("{it:?}")).collect())
            + &lines("history", run.history.iter().map(|it| format!("{it:?}")).collect());
        match std::fs::write(&path, text) {
            Ok(()) => say(&format!("the history is in {}", path.display())),
            Err(error) => say(&format!("{}: {error}", path.display())),
        }
    }
    found
}

#[test]
fn a_fleet_that_is_killed_stopped_and_cut_keeps_every_promise() {
    let chaos = Chaos::new(60);
    let (seed, lasts) = (chaos.seed, chaos.lasts);
    let run = chaos.run();
    let found = wrong(&run, seed);
    assert!(found.is_empty(), "{} of seed {seed}:\n{}", found.len(), found[..found.len().min(20)].join("\n"));
    // A run in which nothing happened shows nothing.
    let enough = |what: &str, count: usize, each: u64| {
        let least = lasts.as_secs() / each;
        assert!(count as u64 >= least, "{count} {what} in {lasts:?}, fewer than {least}\n{}", summary(&run));
    };
    let answered = |is: fn(&Call, &Answer) -> bool| run.history.iter().filter(|it| is(&it.call, &it.answer)).count();
    enough("leases", grants::grants(&run.history).len(), 1);
    enough("faults", run.faults.len(), 6);
    enough("renewals", answered(|call, told| matches!((call, told), (Call::Renew(_), Answer::Leased(_)))), 1);
    enough("releases", answered(|_, told| matches!(told, Answer::Released { .. })), 1);
    enough("waits", answered(|_, told| matches!(told, Answer::Waiting { .. })), 1);
    enough("expiries", run.log.iter().filter(|line| line.fact == history::Fact::Expired).count(), 3);
}

#[test]
fn the_checker_catches_a_double_grant() {
    let Some(program) = std::env::var_os("BERTH_CHAOS_FAULT_BINARY") else {
        say("SKIPPED: the_checker_catches_a_double_grant: BERTH_CHAOS_FAULT_BINARY names no program");
        return;
    };
    let chaos = Chaos { program: Some(program.into()), lasts: Duration::from_secs(10), ..Chaos::new(10) };
    let run = chaos.run();
    let caught = |(name, check): &Check| (!check(&run).is_empty()).then_some(*name);
    let caught: Vec<&str> = checks::ALL.iter().filter_map(caught).collect();
    for name in ["I1 one holder at a time", "I3 no grant before the former lease ended", "linearizable"] {
        assert!(caught.contains(&name), "{name} found nothing; only {caught:?} did\n{}", summary(&run));
    }
}

#[test]
fn a_link_that_is_cut_either_way_is_lost_and_comes_back() {
    let network = match Network::new(&NODES) {
        Ok(network) => network,
        Err(why) => return say(&format!("SKIPPED: a_link_that_is_cut_either_way_is_lost_and_comes_back: {why}")),
    };
    let mut nodes = Nodes::start(Some(network), None);
    let (runtime, gateway) = (Runtime::new().expect("a runtime"), nodes.door(GATEWAY));
    let is = |connected: bool| {
        let what = if connected { "it is connected" } else { "its link is lost" };
        let workers = || runtime.block_on(gateway.get("/v1/workers"));
        eventually(what, BOUND, || (are_connected(&workers()) == connected).then_some(()));
    };
    is(true);
    for what in What::ALL.into_iter().filter(|what| what.is_cut()) {
        let fault = Planned { node: WORKERS[0].to_owned(), what, from: At::ZERO, to: At::ZERO };
        nodes.suffer(&fault, true);
        is(false);
        nodes.suffer(&fault, false);
        is(true);
    }
}
