//! The nodes of a run: one gateway and three workers, each a process of the real program.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::door::Door;
use super::history::{At, Fault, Logged, Tables};
use super::killer::{Planned, What};
use super::log::fact;
use super::network::Network;
use super::recorder::Recorder;
use crate::lab::Lab;

pub const GATEWAY: &str = "gateway";
pub const WORKERS: [&str; 3] = ["rack-1", "rack-2", "rack-3"];
pub const NODES: [&str; 4] = [GATEWAY, "rack-1", "rack-2", "rack-3"];
/// Resources of each worker.
const EACH: usize = 3;

/// `gateway.rebuild_wait`, longer than any worker is away: a gateway that began to admit before would not know what that
/// worker has granted under a key, and could grant again (SPEC §9).
pub const REBUILD_WAIT: Duration = Duration::from_secs(30);

/// `absence_grace` is shorter than a fault can be, so that attempts are given up.
const LAB: &str = r#"
[lab]
name = "test"
[gateway]
api = "<<gateway>>:<gateway>"
link = "<<gateway>>:<link>"
rebuild_wait = "<<rebuild_wait>>"
absence_grace = "4s"
[api]
insecure = true
[waiting_room]
waiter_ttl = "12s"
admission_grace = "1s"
return_grace = "3s"
"#;

/// The processes, and the networks that they run in.
pub struct Nodes {
    /// Dropped first: what runs in a network ends before that.
    lab: Lab,
    network: Option<Network>,
    program: Option<PathBuf>,
}

impl Nodes {
    /// Starts all of them, in networks of their own if there are any, and waits until they admit. `program` stands in
    /// for the program that is tested.
    pub fn start(network: Option<Network>, program: Option<PathBuf>) -> Self {
        let mut file = LAB.to_owned();
        for worker in WORKERS {
            file.push_str(&format!("[[worker]]\nname = \"{worker}\"\napi = \"<<{worker}>>:<{worker}>\"\n"));
            for number in 1..=EACH {
                let kind = if number == EACH { "spare" } else { "phone" };
                let id = resource(worker, number);
                let labels = format!("{{ pool = \"all\", kind = \"{kind}\" }}");
                file.push_str(&format!("[[worker.resource]]\nid = \"{id}\"\nlabels = {labels}\n"));
            }
        }
        let mut nodes = Self { lab: Lab::new(""), network, program };
        for node in NODES {
            file = file.replace(&format!("<<{node}>>"), &nodes.host(node));
        }
        file = file.replace("<<rebuild_wait>>", &format!("{}s", REBUILD_WAIT.as_secs()));
        nodes.lab = Lab::new(&file);
        NODES.iter().for_each(|node| nodes.begin(node));
        nodes.wait_ready();
        nodes
    }

    fn host(&self, node: &str) -> String {
        self.network.as_ref().map_or_else(|| "127.0.0.1".to_owned(), |network| network.address(node))
    }

    fn begin(&mut self, node: &str) {
        let mut command = self.lab.command();
        if let Some(program) = &self.program {
            let mut other = Command::new(program);
            Network::like(&mut other, &command);
            command = other;
        }
        command.arg("up").arg("--config").arg(self.lab.file()).args(["--node", node]);
        if let Some(network) = &self.network {
            command = network.inside(node, &command);
        }
        self.lab.run(node, command);
    }

    /// Waits until every node admits; one that has ended by itself fails the test.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        NODES.iter().for_each(|node| self.lab.wait_ready(node));
    }

    /// A node's door, as its admin.
    pub fn door(&self, node: &str) -> Door {
        let token = fs::read_to_string(self.lab.state(node).join("admin.token")).expect("the node has made its token");
        Door::new(node, &format!("{}:{}", self.host(node), self.lab.port(node)), token.trim())
    }

    /// Begins a fault, or ends it.
    pub fn suffer(&mut self, fault: &Planned, begins: bool) {
        let node = fault.node.as_str();
        match (fault.what, begins) {
            (What::Kill, true) => self.lab.kill_9(node),
            (What::Kill, false) => self.begin(node),
            (What::Stop, true) => self.lab.signal(node, Signal::STOP),
            (What::Stop, false) => self.lab.signal(node, Signal::CONT),
            (cut, begins) => {
                let network = self.network.as_ref().expect("links are cut where there are networks");
                if cut != What::CutToWorker {
                    network.cut(node, GATEWAY, begins);
                }
                if cut != What::CutToGateway {
                    network.cut(GATEWAY, node, begins);
                }
            }
        }
    }

    /// Kills the gateway and starts it again.
    pub fn restart_gateway(&mut self, recorder: &Recorder) -> Fault {
        let from = recorder.now();
        self.lab.kill_9(GATEWAY);
        self.begin(GATEWAY);
        self.wait_ready();
        Fault { node: GATEWAY.to_owned(), what: "killed", from, to: recorder.now() }
    }
}

/// The name of a resource.
pub fn resource(worker: &str, number: usize) -> String {
    format!("{worker}-board-{number}")
}

/// All of some workers.
pub fn resources(workers: &[&str]) -> Vec<String> {
    workers.iter().flat_map(|worker| (1..=EACH).map(|number| resource(worker, number))).collect()
}

/// True when the gateway has a link to each of its workers.
pub fn are_connected(workers: &Value) -> bool {
    let workers = workers["workers"].as_array().expect("a list");
    workers.len() == WORKERS.len() && workers.iter().all(|worker| worker["connection"] == "connected")
}

/// What a worker's event log says of leases.
pub async fn log(door: &Door, recorder: &Recorder) -> Vec<Logged> {
    let (mut after, mut log) = (0, Vec::new());
    loop {
        let page = door.get(&format!("/v1/events?after={after}&limit=1000")).await;
        let events = page["events"].as_array().expect("a list");
        if events.is_empty() {
            return log;
        }
        log.extend(events.iter().filter_map(|event| {
            let (hold, fact, requester) = fact(event)?;
            let (worker, at): (_, At) = (door.node.to_string(), recorder.at_text(&event["timestamp"]));
            Some(Logged { worker, at, hold, requester, fact })
        }));
        after = page["lastSeq"].as_u64().expect("a number");
    }
}

/// The active leases by the gateway's list, and by those of the workers in the gateway's names.
pub async fn tables(gateway: &Door, workers: &[Door]) -> Tables {
    let mut tables = Tables::default();
    let line = |lease: &Value, worker: &str, name: String| {
        let text = |key: &str| lease[key].as_str().unwrap_or_else(|| panic!("{lease} lacks {key}"));
        let holder = text("holderId").trim_start_matches("gw:gateway:");
        format!("{name} of {holder} on {worker}/{} by fence {}", text("resourceId"), lease["fence"])
    };
    for lease in gateway.get("/v1/leases").await["leases"].as_array().expect("a list") {
        let worker = lease["worker"]["id"].as_str().unwrap_or_else(|| panic!("{lease} names no worker"));
        tables.gateway.push(line(lease, worker, lease["id"].as_str().unwrap_or_default().to_owned()));
    }
    for worker in workers {
        for lease in worker.get("/v1/leases").await["leases"].as_array().expect("a list") {
            let id = lease["id"].as_str().unwrap_or_default();
            let chosen = lease["idChosenByRequester"] == true;
            let name = if chosen { id.to_owned() } else { format!("{}.{id}", worker.node) };
            tables.workers.push(line(lease, &worker.node, name));
        }
    }
    tables.gateway.sort();
    tables.workers.sort();
    tables
}
