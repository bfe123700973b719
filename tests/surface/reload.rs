//! The lab file, read again while the nodes run: by the command, by HTTP and by a signal (SPEC §12).

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::waiting::{acquire, release, text};

/// One worker that has no gateway.
const ALONE: &str = "
[lab]
name = \"test\"

[[worker]]
name = \"host\"
api = \"127.0.0.1:<host>\"

[[worker.resource]]
id = \"board\"
labels = { platform = \"linux\" }
";

/// Writes the lab file anew, with each of these texts in place of another.
fn edit(lab: &Lab, changes: &[(&str, &str)]) {
    let mut text = fs::read_to_string(lab.file()).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{from} is not in the file");
        text = text.replacen(from, to, 1);
    }
    fs::write(lab.file(), text).unwrap();
}

/// What `berth config reload` says with `--json`.
fn reload(lab: &Lab) -> Value {
    let said = lab.berth(&["config", "reload", "--json"]).ok();
    serde_json::from_str::<Value>(&said).unwrap()["reload"].clone()
}

fn names(door: &Door) -> Vec<String> {
    let listed = door.get("/v1/resources").expect(200).body;
    listed["resources"].as_array().unwrap().iter().map(|resource| text(&resource["id"])).collect()
}

/// The lines of a process's log that hold these words.
fn logged(lab: &Lab, process: &str, words: &str) -> usize {
    lab.said(process).lines().filter(|line| line.contains(words)).count()
}

#[test]
fn a_file_with_an_error_changes_nothing_and_says_why_by_command_by_http_and_in_the_log() {
    let lab = Lab::joined(FLEET, "gateway");
    let door = lab.door("gateway");
    let before = names(&door);
    edit(&lab, &[("max_shared = 2", "max_shared = 0"), ("id = \"pixel-b\"", "id = \"pixel-c\"")]);
    let said = lab.berth(&["config", "reload"]).failed(2);
    let why =
        "worker.rack-2.resource.bench.max_shared: must be a whole number from 1 to 256, not 0; nothing has changed";
    assert!(said.starts_with("error BAD_REQUEST: ") && said.contains("lab.toml:") && said.contains(why), "{said}");
    let refused = door.post("/v1/config/reload", &json!({})).refused("BAD_REQUEST", 400);
    assert!(refused.message().ends_with(why), "{}", refused.message());
    let unheard = logged(&lab, "all", "the lab file is not taken up");
    lab.signal("all", Signal::HUP);
    eventually("the log says why", BOUND, || {
        (logged(&lab, "all", "the lab file is not taken up") > unheard).then_some(())
    });
    fs::write(lab.file(), "[lab").unwrap();
    assert!(lab.berth(&["config", "reload"]).failed(2).contains("not valid TOML"));
    fs::remove_file(lab.file()).unwrap();
    assert!(lab.berth(&["config", "reload"]).failed(2).contains("cannot read the lab file"));
    assert_eq!(names(&door), before);
    assert_eq!(door.get("/v1/readyz").expect(200).body["ready"], true);
}

#[test]
fn every_process_of_a_machine_takes_its_part_of_the_file_up_at_once() {
    let lab = Lab::apart(FLEET, &["gateway", "rack-1", "rack-2"]);
    let door = lab.door("gateway");
    let bench = text(&acquire(&door, "bench", json!({ "requester": "holder" })).expect(201).body["lease"]["id"]);
    let holds = |select: &str, requester: &str| {
        let body = json!({ "select": select, "requester": requester, "ttlMs": 60_000 });
        text(&door.post("/v1/lease-requests", &body).expect(201).body["request"]["id"])
    };
    let state = |request: &str| door.get(&format!("/v1/lease-requests/{request}")).expect(200).body["request"].clone();
    holds("model=Pixel 8,os>=15", "first");
    let waits = holds("model=Pixel 8,os>=15", "second");
    assert_eq!(state(&waits)["state"], "waiting");
    let body = json!({ "resourceId": "bench", "requester": "fourth" });
    let named = text(&door.post("/v1/lease-requests", &body).expect(201).body["request"]["id"]);
    assert_eq!(state(&named)["state"], "waiting");
    let long = json!({ "requester": "third", "ttlMs": 5 * 3_600_000 });
    acquire(&door, "pixel-b", long.clone()).refused("BAD_REQUEST", 400);

    let bench_there =
        "id = \"bench\"\nlabels = { platform = \"linux\", board = \"imx8\" }\nmax_shared = 2\n\n[[worker.resource]]\n";
    edit(
        &lab,
        &[
            ("\n[[worker]]", "\n[lease]\nmax_ttl = \"6h\"\n\n[[worker]]"),
            ("api = \"127.0.0.1:", "rebuild_wait = \"20s\"\napi = \"127.0.0.1:"),
            (
                "id = \"pixel-b\"\nlabels",
                "id = \"pixel-c\"\nlabels = { model = \"Pixel 8\", os = \"16\" }\n\n[[worker.resource]]\nid = \"pixel-b\"\nmax_shared = 2\nlabels",
            ),
            (bench_there, ""),
        ],
    );
    assert_eq!(
        reload(&lab),
        json!({
            "added": ["rack-1/pixel-c"],
            "changed": ["rack-1/pixel-b"],
            "gone": ["rack-2/bench"],
            "rules": ["lease.max_ttl"],
            "needsRestart": ["gateway.rebuild_wait"],
        })
    );
    eventually("the resource that has come serves who waits", BOUND, || {
        (state(&waits)["state"] == "granted").then_some(())
    });
    assert_eq!(state(&waits)["lease"]["resourceId"], "pixel-c");
    acquire(&door, "pixel-b", long).expect(201);
    eventually("nobody waits for what has gone", BOUND, || (state(&named)["state"] == "failed").then_some(()));
    assert_eq!(state(&named)["error"]["code"], "UNKNOWN_RESOURCE");
    // What is leased goes after its release.
    eventually("the gateway knows", BOUND, || (!names(&door).contains(&"bench".to_owned())).then_some(()));
    assert_eq!(door.get(&format!("/v1/leases/{bench}")).expect(200).body["lease"]["resourceId"], "bench");
    acquire(&door, "bench", json!({ "requester": "late" })).refused("UNKNOWN_RESOURCE", 404);
    release(&door, &bench);
    assert_eq!(lab.berth(&["config", "reload"]).ok(), "only after a restart: gateway.rebuild_wait\n");
    edit(&lab, &[("id = \"pixel-b\"", "id = \"bench\"\n\n[[worker.resource]]\nid = \"pixel-b\"")]);
    let said = lab.berth(&["config", "reload"]).ok();
    assert_eq!(said, "added: rack-1/bench\nonly after a restart: gateway.rebuild_wait\n");
    eventually("it is another's now", BOUND, || {
        let shown = door.get("/v1/resources/bench");
        (shown.status == 200 && shown.body["resource"]["worker"] == "rack-1").then_some(())
    });
}

#[test]
fn a_worker_of_its_own_reads_its_file_on_a_signal_and_admins_alone_may_ask_for_it() {
    let mut lab = Lab::new(ALONE);
    lab.start("host");
    lab.wait_ready("host");
    let door = lab.door("host");
    let lease = text(&acquire(&door, "board", json!({ "requester": "one" })).expect(201).body["lease"]["id"]);
    let held = lab.berth(&["lease", "--resource", "board", "--no-wait", "--requester", "two"]);
    held.failed(11);
    edit(&lab, &[("[[worker]]", "[lease]\nmax_per_requester = 2\n\n[[worker]]"), ("linux", "freebsd")]);
    lab.signal("host", Signal::HUP);
    eventually("it has other labels", BOUND, || {
        let labels = door.get("/v1/resources/board").expect(200).body["resource"]["labels"].clone();
        (labels == json!({ "platform": "freebsd" })).then_some(())
    });
    assert_eq!(logged(&lab, "host", "the lab file was read again"), 1);
    assert_eq!(lab.berth(&["config", "reload"]).ok(), "nothing has changed\n");
    for role in ["agent", "viewer"] {
        let made = door.post("/v1/tokens", &json!({ "name": role, "role": role })).expect(201);
        let other = door.with_token(made.body["secret"].as_str().unwrap());
        other.post("/v1/config/reload", &json!({})).refused("INSUFFICIENT_PERMISSIONS", 403);
    }
    // The whole file may be another's.
    edit(&lab, &[("name = \"host\"", "name = \"other\"")]);
    assert_eq!(lab.berth(&["config", "reload"]).ok(), "only after a restart: worker.host.api, worker.host.name\n");
    assert_eq!(names(&door), ["board"]);
    release(&door, &lease);
    assert!(lab.terminate("host").success());
}

#[test]
fn config_show_prints_what_the_file_says() {
    let lab = Lab::new(ALONE);
    let file = lab.file();
    let file = file.to_str().unwrap();
    let shown = lab.berth(&["config", "show", "--config", file]).ok();
    assert_eq!(shown, lab.berth(&["config", "check", "--config", file]).ok());
    assert!(shown.contains("lease.max_ttl = \"4h\"") && shown.contains("# default"), "{shown}");
    let none = lab.berth(&["config", "reload"]).failed(1);
    assert!(none.contains("no node runs on this machine"), "{none}");
}
