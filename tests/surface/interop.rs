//! A worker that is not Berth: `tests/interop/worker.py`, written in Python from the documentation of the protocol. It is
//! used like any other, and shut out like any other when it breaks the protocol.
//!
//! It needs a Python with `aioquic` and `msgpack`, which `BERTH_INTEROP_PYTHON` names; where there is none the tests say
//! that they are skipped.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::said::Said;
use crate::waiting::{acquire, events, request, text};

const FILE: &str = r#"
[lab]
name = "test"

[gateway]
api = "127.0.0.1:<gateway>"
link = "127.0.0.1:<link>"
rebuild_wait = "1s"

[[worker]]
name = "rack-1"
api = "127.0.0.1:<rack-1>"

[[worker]]
name = "rack-2"
api = "127.0.0.1:<rack-2>"

[pki]
ca = "pki/ca.crt"
cert = "pki/{node}/node.crt"
key = "pki/{node}/node.key"
"#;

/// The Python that has what the peer needs. None where there is none, and then that is said.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("BERTH_INTEROP_PYTHON").filter(|path| !path.is_empty()).map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/berth-ci/venv/bin/python"));
    let found = named.or_else(|| usual().filter(|python| python.exists()));
    if found.is_none() {
        // Past the capture of what a test prints: a check that is left out must be seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED the independent peer: BERTH_INTEROP_PYTHON names no Python");
    }
    found
}

/// A gateway that runs, and certificates for two workers that do not.
struct Peers {
    lab: Lab,
    python: PathBuf,
}

impl Peers {
    fn new() -> Option<Self> {
        let python = python()?;
        let mut lab = Lab::new(FILE);
        lab.berth(&["pki", "init", "--lab", "test"]).ok();
        for (role, name) in [("gateway", "gateway"), ("worker", "rack-1"), ("worker", "rack-2")] {
            lab.berth(&["pki", "issue", role, name, "--lab", "test"]).ok();
        }
        lab.start("gateway");
        lab.wait_ready("gateway");
        Some(Self { lab, python })
    }

    /// The peer as the worker `name`, with a phone.
    fn command(&self, name: &str, more: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/worker.py"));
        command.arg("--address").arg(format!("127.0.0.1:{}", self.lab.port("link")));
        command.args(["--peer", "berth://test/gateway/gateway", "--ca"]).arg(self.lab.path("pki/ca.crt"));
        for file in ["cert", "key"] {
            let extension = if file == "cert" { "crt" } else { "key" };
            command.arg(format!("--{file}")).arg(self.lab.path(&format!("pki/{name}/node.{extension}")));
        }
        command.args(["--resource", &format!("pixel-{name}:platform=android,rack={name}")]).args(more);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Starts it, and waits until the gateway uses it.
    fn start(&mut self, name: &str) {
        self.start_with(name, &[]);
    }

    fn start_with(&mut self, name: &str, how: &[&str]) {
        let command = self.command(name, how);
        self.lab.run(name, command);
        self.wait_connected(name);
    }

    /// Runs a peer that is not let in or is sent away, to its end; why its link ended.
    #[track_caller]
    fn sent_away(&self, name: &str, how: &[&str]) -> (Vec<Value>, String) {
        let Said { exit, out, err } = self.lab.finish(self.command(name, how));
        assert_eq!(exit, 0, "{out}{err}");
        let told = lines(&out);
        let ended = told.last().filter(|line| line["said"] == "ended").unwrap_or_else(|| panic!("{out}"));
        let why = text(&ended["why"]);
        (told, why)
    }

    fn wait_connected(&self, name: &str) -> Value {
        eventually(&format!("{name} is connected and known"), BOUND, || {
            let list = self.lab.door("gateway").get("/v1/workers").expect(200).body;
            let worker = list["workers"].as_array().unwrap().iter().find(|worker| worker["name"] == name).cloned()?;
            (worker["connection"] == "connected" && worker["known"] == true).then_some(worker)
        })
    }

    /// What the peer `name` has told of one kind.
    fn told(&self, name: &str, what: &str) -> Vec<Value> {
        let out = fs::read_to_string(self.lab.path(&format!("{name}.out"))).unwrap();
        // The last line may not be whole yet.
        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
        lines(whole).into_iter().filter(|line| line["said"] == what).collect()
    }

    /// A lease of whatever `select` finds, taken, renewed and given back through the gateway.
    #[track_caller]
    fn lease(&self, select: &str) -> Value {
        let door = self.lab.door("gateway");
        let made = request(&door, json!({ "select": select })).expect(201).body["request"].take();
        assert_eq!(made["state"], "granted", "{made}");
        let path = format!("/v1/leases/{}", text(&made["lease"]["id"]));
        door.post(&format!("{path}/renew"), &json!({ "ttlMs": 60_000 })).expect(200);
        door.delete(&path).expect(200);
        made["lease"].clone()
    }
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

#[test]
fn a_worker_written_from_the_documentation_is_leased_from_like_any_other() {
    let Some(mut peers) = Peers::new() else { return };
    peers.start("rack-1");
    let worker = peers.wait_connected("rack-1");
    assert_eq!(
        (&worker["version"], &worker["protocol"], &worker["resources"]),
        (&json!("interop"), &json!("2"), &json!(1))
    );
    let door = peers.lab.door("gateway");

    let lease = peers.lease("platform=android");
    assert!(text(&lease["id"]).starts_with("rack-1.lse_"), "{lease}");
    let holding = (&lease["resourceId"], &lease["worker"]["id"], &lease["fence"], &lease["labels"]["rack"]);
    assert_eq!(holding, (&json!("pixel-rack-1"), &json!("rack-1"), &json!(1), &json!("rack-1")));
    // By name, under an id of the caller's; and nobody else gets it meanwhile.
    let named = json!({ "resourceId": "pixel-rack-1", "leaseId": "mine", "note": "night run", "idempotencyKey": "k" });
    let made = request(&door, named.clone()).expect(201).body["request"].take();
    assert_eq!((&made["lease"]["id"], &made["lease"]["fence"]), (&json!("mine"), &json!(2)));
    let other = json!({ "requester": "other", "select": "platform=android", "noWait": true });
    request(&door, other).refused("NO_CAPACITY", 503);
    let deltas: Vec<Value> = peers.told("rack-1", "call");
    let kinds = deltas.iter().map(|call| call["call"].as_object().unwrap().keys().next().unwrap().as_str());
    assert_eq!(kinds.collect::<Vec<_>>(), ["dispatch", "renew", "release", "dispatch"]);

    // Both compute the same digest of what is leased: nothing was asked for anew by the time of the second.
    let digests = || peers.told("rack-1", "digest").len();
    let before = digests();
    eventually("two digests", BOUND, || (digests() >= before + 2).then_some(()));
    assert_eq!(peers.told("rack-1", "resync"), Vec::<Value>::new());

    // A gateway that starts anew learns all of it from the peer.
    peers.lab.kill_9("gateway");
    peers.lab.start("gateway");
    peers.lab.wait_ready("gateway");
    peers.wait_connected("rack-1");
    let again = request(&door, named).expect(201).body["request"].take();
    assert_eq!((&again["id"], &again["lease"]["fence"]), (&made["id"], &json!(2)), "the key finds the first answer");
    let shown = door.get("/v1/leases/mine").expect(200).body["lease"].take();
    assert_eq!((&shown["note"], &shown["requestId"]), (&json!("night run"), &made["id"]));
    door.delete("/v1/leases/mine").expect(200);

    // Its events are told with the gateway's own.
    let ended = eventually("both ends are told", BOUND, || {
        let told = events(&door, "lease.released");
        (told.len() == 2).then_some(told)
    });
    assert!(ended.iter().all(|event| event["workerId"] == "rack-1"), "{ended:?}");
    let ids = ended.iter().map(|event| &event["payload"]["leaseId"]);
    assert_eq!(ids.collect::<Vec<_>>(), [&lease["id"], &json!("mine")]);
}

#[test]
fn an_operator_takes_such_a_worker_or_its_resource_out_and_brings_it_back() {
    let Some(mut peers) = Peers::new() else { return };
    peers.start("rack-1");
    let door = peers.lab.door("gateway");
    let ask = json!({ "select": "platform=android", "noWait": true });
    peers.lab.berth(&["worker", "drain", "rack-1"]).ok();
    assert_eq!(peers.wait_connected("rack-1")["drained"], true);
    request(&door, ask.clone()).refused("NO_CAPACITY", 503);
    eventually("it has heard", BOUND, || {
        let drained = |call: &Value| call["call"]["drainWorker"]["drained"] == true;
        peers.told("rack-1", "call").iter().any(drained).then_some(())
    });
    peers.lab.berth(&["worker", "undrain", "rack-1"]).ok();
    let again = eventually("it serves again", BOUND, || {
        let told = request(&door, ask.clone());
        (told.status == 201).then(|| told.body["request"]["lease"].clone())
    });
    // The same for one resource; what is leased stays so.
    peers.lab.berth(&["resource", "drain", "pixel-rack-1"]).ok();
    let path = format!("/v1/leases/{}", text(&again["id"]));
    door.post(&format!("{path}/renew"), &json!({ "fence": again["fence"] })).expect(200);
    door.delete(&format!("{path}?fence=7")).refused("UNKNOWN_LEASE", 404);
    door.delete(&path).expect(200);
    acquire(&door, "pixel-rack-1", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    peers.lab.berth(&["resource", "undrain", "pixel-rack-1"]).ok();
    acquire(&door, "pixel-rack-1", json!({})).expect(201);
}

#[test]
fn a_peer_that_breaks_the_protocol_is_sent_away_and_disturbs_nobody() {
    let Some(mut peers) = Peers::new() else { return };
    peers.start("rack-1");
    let rejected = |peers: &Peers| -> Vec<String> {
        events(&peers.lab.door("gateway"), "worker.rejected").iter().map(|it| text(&it["payload"]["reason"])).collect()
    };
    let mut reasons = Vec::new();
    for (how, why, reason) in [
        (&["--alpn", "berth/2"][..], "0x178 ", "unknown-protocol"),
        (&["--no-certificate"], "`berth join` gets one", "no-certificate"),
        (&["--oversized", "hello"], "0x6 a frame is announced that is longer", "broken-protocol"),
    ] {
        let (told, ended) = peers.sent_away("rack-2", how);
        assert!(ended.contains(why), "{how:?}: {ended}");
        assert!(told.iter().all(|line| line["said"] != "welcome"), "{how:?}: {told:?}");
        reasons.push(reason);
        eventually(&format!("{reason} is told"), BOUND, || (rejected(&peers) == reasons).then_some(()));
        peers.lease("rack=rack-1");
    }
    let broken = events(&peers.lab.door("gateway"), "worker.rejected").pop().unwrap();
    assert_eq!(broken["payload"]["worker"], "rack-2", "its certificate has proved its name");

    // Once it is in it may do no more: that ends its link, and no other.
    let door = peers.lab.door("gateway");
    for (ends, what) in ["report", "snapshot"].into_iter().enumerate() {
        let (told, ended) = peers.sent_away("rack-2", &["--oversized", what]);
        assert!(told.iter().any(|line| line["said"] == "welcome"), "{told:?}");
        assert!(ended.contains("a frame is announced that is longer than it may be"), "{ended}");
        let lost = eventually("the end of the link is told", BOUND, || {
            events(&door, "worker.disconnected").get(ends).cloned()
        });
        assert_eq!(lost["payload"]["worker"], "rack-2");
        peers.lease("rack=rack-1");
    }
    assert_eq!(peers.told("rack-1", "ended"), Vec::<Value>::new(), "nobody else was disturbed");
    assert_eq!(peers.told("rack-1", "welcome").len(), 1);
    // The same worker is welcome when it behaves.
    peers.start("rack-2");
    assert_eq!(text(&peers.lease("rack=rack-2")["worker"]["id"]), "rack-2");
}

#[test]
fn a_request_is_granted_once_when_the_link_to_such_a_worker_is_lost_under_its_dispatch() {
    for (lost, sent_again) in [("dispatch", &[2][..]), ("answer", &[])] {
        let Some(mut peers) = Peers::new() else { return };
        peers.start_with("rack-1", &["--lose", lost]);
        let door = peers.lab.door("gateway");
        let made = request(&door, json!({ "select": "platform=android" })).expect(201).body["request"].take();
        let path = format!("/v1/lease-requests/{}", text(&made["id"]));
        let now = eventually("it is granted", BOUND, || {
            let now = door.get(&path).expect(200).body["request"].take();
            (now["state"] != "waiting").then_some(now)
        });
        assert_eq!((&now["state"], &now["lease"]["fence"]), (&json!("granted"), &json!(1)), "{lost}: {now}");
        assert_eq!(peers.told("rack-1", "lost").len(), 1);
        assert_eq!(peers.told("rack-1", "welcome").len(), 2);
        // What was not carried out is asked about before it is sent again, under the next attempt.
        let calls = peers.told("rack-1", "call");
        let asked = |kind: &str| -> Vec<Value> {
            let attempt = |call: &Value| call["call"].get(kind).map(|asked| asked["attempt"].clone());
            calls.iter().filter_map(attempt).collect()
        };
        assert_eq!(asked("dispatch"), sent_again, "{lost}: {calls:?}");
        if lost == "dispatch" {
            assert_eq!(asked("settle"), [1], "{calls:?}");
            let settled = calls.iter().find(|call| call["call"].get("settle").is_some()).unwrap();
            assert_eq!(settled["answer"], json!({ "settled": null }));
        }
        door.delete(&format!("/v1/leases/{}", text(&now["lease"]["id"]))).expect(200);
    }
}
