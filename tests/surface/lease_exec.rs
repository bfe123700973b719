//! Tools at devices, as their callers meet them: `berth lease exec` and one request over HTTP, through a gateway
//! (SPEC §7).

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http::{Call, Door};
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};

const TOOLS: &str = r#"
[exec]
timeout = "2m"
[exec.allow]
sh = ["sh", "-c"]
cat = ["cat"]
blob = ["head", "-c", "104857600", "/dev/zero"]
serial = ["echo", "{env.ANDROID_SERIAL}"]
"#;

const NODES: [&str; 3] = ["rack-1", "rack-2", "gateway"];

fn fleet() -> Lab {
    Lab::apart(&format!("{FLEET}{TOOLS}"), &NODES)
}

fn joined(settings: &str) -> Lab {
    Lab::joined(&format!("{FLEET}{settings}"), "gateway")
}

/// A lease of the operator's, who is the admin, at the gateway.
#[track_caller]
fn lease(lab: &Lab, resource: &str) -> String {
    let body = json!({ "requester": format!("of-{resource}"), "ttlMs": 3_600_000 });
    acquired(&lab.socket("gateway"), resource, &body)
}

#[track_caller]
fn acquired(door: &Door, resource: &str, body: &Value) -> String {
    let made = door.post(&format!("/v1/resources/{resource}/leases"), body).expect(201);
    made.body["lease"]["id"].as_str().expect("an id").to_owned()
}

/// `berth lease exec` at the gateway.
fn command(lab: &Lab, lease: &str, tool: &[&str]) -> Command {
    let mut command = lab.command();
    command.args(["--via", "test@gateway", "lease", "exec", lease, "--"]).args(tool);
    command
}

/// One that runs beside the test, and is killed with it.
struct Caller(Child);

impl Drop for Caller {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Caller {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program starts"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it takes the signal");
    }

    /// Waits until it has written this much of stdout.
    fn says(&mut self, text: &str) {
        let mut said = vec![0; text.len()];
        self.0.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("it says something");
        assert_eq!(String::from_utf8_lossy(&said), text);
    }

    /// How it ends, and what it has said of that.
    #[track_caller]
    fn ends(&mut self) -> (Option<i32>, String) {
        let status = eventually("it ends", BOUND, || self.0.try_wait().expect("a child can be asked"));
        let mut said = String::new();
        self.0.stderr.as_mut().expect("a pipe").read_to_string(&mut said).expect("text");
        (status.code(), said)
    }
}

/// Leaves its process number in a file, says that it is ready, and goes on for a minute.
fn long(file: &Path) -> String {
    format!("echo $$ > {}; echo ready; sleep 60 & wait", file.display())
}

#[track_caller]
fn dies(file: &Path) {
    let pid = fs::read_to_string(file).expect("its number").trim().to_owned();
    eventually("the tool is gone", BOUND, || (!PathBuf::from(format!("/proc/{pid}")).exists()).then_some(()));
}

#[test]
fn a_tool_has_its_output_its_input_and_its_exit_code_as_if_it_ran_here() {
    let lab = joined(TOOLS);
    let id = lease(&lab, "pixel-a");
    let said = lab.finish(command(&lab, &id, &["sh", "echo out; echo err >&2; exit 3"]));
    assert_eq!((said.exit, said.out.as_str(), said.err.as_str()), (3, "out\n", "err\n"));
    assert_eq!(lab.finish(command(&lab, &id, &["sh", "kill -9 $$"])).exit, 137);
    assert_eq!(lab.finish(command(&lab, &id, &["sh", "exit 0"])).exit, 0);
    let words: String = (0..5_000).map(|number| format!("{number} ü\n")).collect();
    fs::write(lab.path("words"), &words).expect("a file");
    let input = || Stdio::from(fs::File::open(lab.path("words")).expect("the file"));
    let said = lab.finish_fed(command(&lab, &id, &["cat"]), input());
    assert_eq!((said.exit, said.out == words), (0, true), "{}", said.err);
    // A tool that does not read does not wait for who writes.
    assert_eq!(lab.finish_fed(command(&lab, &id, &["sh", "exec 0<&-; exit 5"]), input()).exit, 5);
    // What the tool is given is what was written, whatever it looks like.
    let said = lab.finish(command(&lab, &id, &["sh", "echo \"$0\" \"$1\"", "--json", "{env.HOME}"]));
    assert_eq!(said.ok(), "--json {env.HOME}\n");
}

#[test]
fn one_request_runs_a_tool_and_streams_what_it_writes() {
    let lab = joined(TOOLS);
    let id = lease(&lab, "pixel-a");
    let path = format!("/v1/leases/{id}/exec");
    let body = json!({ "tool": "sh", "args": ["cat; exit 4"], "stdin": "aGVsbG8=" }).to_string();
    let mut text = String::new();
    let mut answer = lab.socket("gateway").open(&Call::json(&path, &body)).expect("it answers");
    answer.read_to_string(&mut text).expect("text");
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("content-type: application/x-ndjson"), "{text}");
    let lines: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect();
    assert_eq!(lines, [json!({ "stream": "stdout", "data": "aGVsbG8=" }), json!({ "exit": 4 })], "{text}");
}

#[test]
fn every_refusal_has_its_code_at_both_doors() {
    let lab = joined(&TOOLS.replace("2m", "1s"));
    let made = lab.socket("gateway").post("/v1/tokens", &json!({ "name": "ci", "role": "agent" })).expect(201);
    let agent = Door::tcp(lab.port("gateway")).with_token(made.body["secret"].as_str().expect("a secret"));
    let (own, other) = (lease(&lab, "pixel-a"), acquired(&agent, "pixel-b", &json!({})));
    let door = lab.socket("gateway");
    let refused = |lease: &str, tool: &str, fence: Option<u64>, code: &str, status: u16, exit: i32| {
        let mut body = json!({ "tool": tool });
        let mut told = lab.command();
        told.args(["--via", "test@gateway", "lease", "exec", lease]);
        if let Some(fence) = fence {
            body["fence"] = json!(fence);
            told.args(["--fence", &fence.to_string()]);
        }
        told.args(["--", tool]);
        let no = door.post(&format!("/v1/leases/{lease}/exec"), &body).refused(code, status);
        let said = lab.finish(told).failed(exit);
        assert!(said.starts_with(&format!("error {code}: ")), "{said}");
        no
    };
    refused(&other, "cat", None, "INSUFFICIENT_PERMISSIONS", 403, 3);
    refused("lse_none", "cat", None, "UNKNOWN_LEASE", 404, 12);
    refused(&own, "cat", Some(1), "UNKNOWN_LEASE", 404, 12);
    let no = refused(&own, "rm", None, "BAD_REQUEST", 400, 2);
    assert_eq!(no.details()["allowed"], json!(["blob", "cat", "serial", "sh"]));
    let no = refused(&own, "serial", None, "BAD_REQUEST", 400, 2);
    assert!(no.message().contains("ANDROID_SERIAL"), "{}", no.message());
    let said = lab.finish(command(&lab, &own, &["a b"])).failed(2);
    assert!(said.contains("tool name"), "{said}");
    let said = lab.finish(command(&lab, &own, &["sh", "sleep 60"])).failed(10);
    assert!(said.starts_with("error EXEC_TIMEOUT: ") && said.contains("exec.timeout"), "{said}");
}

#[test]
fn a_lab_file_without_tools_says_how_to_allow_some() {
    let lab = joined("");
    let id = lease(&lab, "pixel-a");
    let said = lab.finish(command(&lab, &id, &["adb"])).failed(2);
    assert!(said.contains("[exec.allow]"), "{said}");
}

#[test]
fn signals_go_to_the_tool() {
    let lab = joined(TOOLS);
    let id = lease(&lab, "pixel-a");
    let mut caller =
        Caller::start(command(&lab, &id, &["sh", "trap 'exit 7' INT; echo ready; while :; do sleep 0.05; done"]));
    caller.says("ready\n");
    caller.signal(Signal::INT);
    assert_eq!(caller.ends(), (Some(7), String::new()));
    let mut caller = Caller::start(command(&lab, &id, &["sh", "echo ready; exec sleep 60"]));
    caller.says("ready\n");
    caller.signal(Signal::TERM);
    assert_eq!(caller.ends(), (Some(143), String::new()));
}

#[test]
fn a_lease_that_is_lost_ends_its_tool_and_the_command_with_14() {
    let lab = joined(TOOLS);
    let (id, file) = (lease(&lab, "pixel-a"), lab.path("pid"));
    let mut caller = Caller::start(command(&lab, &id, &["sh", &long(&file)]));
    caller.says("ready\n");
    lab.socket("gateway").delete(&format!("/v1/leases/{id}")).expect(200);
    let (exit, said) = caller.ends();
    assert_eq!(exit, Some(14), "{said}");
    assert!(said.starts_with(&format!("error LEASE_LOST: lease {id} is lost: ")), "{said}");
    dies(&file);
}

#[test]
fn a_tool_dies_with_its_caller_and_with_each_node_on_its_way() {
    let mut lab = fleet();
    let (id, file) = (lease(&lab, "pixel-a"), lab.path("pid"));
    let start = |lab: &Lab| {
        let mut caller = Caller::start(command(lab, &id, &["sh", &long(&file)]));
        caller.says("ready\n");
        caller
    };
    let mut caller = start(&lab);
    caller.signal(Signal::KILL);
    caller.0.wait().expect("it ends");
    dies(&file);
    // A reader that has seen enough is no failure.
    let mut caller =
        Caller::start(command(&lab, &id, &["sh", &format!("echo $$ > {}; exec cat /dev/zero", file.display())]));
    caller.says("\0\0");
    drop(caller.0.stdout.take());
    assert_eq!(caller.ends().0, Some(0));
    dies(&file);
    let mut caller = start(&lab);
    lab.kill_9("gateway");
    let (exit, said) = caller.ends();
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("nobody knows how sh has ended"), "{said}");
    dies(&file);
    lab.start("gateway");
    lab.wait_ready("gateway");
    let mut caller = start(&lab);
    assert!(lab.terminate("rack-1").success());
    let (exit, said) = caller.ends();
    assert_eq!(exit, Some(1), "{said}");
    assert!(said.contains("STOPPING") || said.contains("WORKER_UNREACHABLE"), "{said}");
    dies(&file);
}

/// What a process holds in memory, in KiB.
fn resident(lab: &Lab, node: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", lab.pid(node))).expect("the node runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its size");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn a_hundred_megabytes_go_through_the_gateway_to_a_slow_reader_and_no_node_grows_by_sixteen() {
    const BYTES: usize = 100 * 1024 * 1024;
    const GROWTH_KIB_MAX: u64 = 16 * 1024;
    let lab = fleet();
    let id = lease(&lab, "pixel-a");
    let before = ["gateway", "rack-1"].map(|node| resident(&lab, node));
    let mut caller = Caller::start(command(&lab, &id, &["blob"]));
    let mut out = caller.0.stdout.take().expect("a pipe");
    let (mut came, mut most, mut piece) = (0, before, vec![0; 1024 * 1024]);
    let mut look = || {
        for (at, node) in ["gateway", "rack-1"].into_iter().enumerate() {
            most[at] = most[at].max(resident(&lab, node));
        }
    };
    loop {
        match out.read(&mut piece).expect("it can be read") {
            0 => break,
            bytes => {
                assert!(piece[..bytes].iter().all(|byte| *byte == 0));
                // Once it stalls for long: what is on its way is all that piles up.
                let stalls = came < BYTES / 10 && came + bytes >= BYTES / 10;
                came += bytes;
                look();
                if stalls {
                    for _ in 0..20 {
                        thread::sleep(Duration::from_millis(100));
                        look();
                    }
                } else if came % 8 == 0 {
                    thread::sleep(Duration::from_micros(500));
                }
            }
        }
    }
    assert_eq!((came, caller.ends()), (BYTES, (Some(0), String::new())));
    for (before, most) in before.into_iter().zip(most) {
        assert!(most < before + GROWTH_KIB_MAX, "from {before} to {most} KiB");
    }
    // And as much the other way, to a tool that reads slowly.
    let before = ["gateway", "rack-1"].map(|node| resident(&lab, node));
    let script = "head -c 1000000 >/dev/null; sleep 2; wc -c";
    let mut caller = Caller::start(command(&lab, &id, &["sh", script]));
    let mut input = caller.0.stdin.take().expect("a pipe");
    let feeding = thread::spawn(move || {
        for _ in 0..100 {
            input.write_all(&vec![0; 1024 * 1024]).expect("it reads on");
        }
    });
    let mut most = before;
    while !feeding.is_finished() {
        for (at, node) in ["gateway", "rack-1"].into_iter().enumerate() {
            most[at] = most[at].max(resident(&lab, node));
        }
        thread::sleep(Duration::from_millis(20));
    }
    feeding.join().expect("all is sent");
    caller.says(&format!("{}\n", BYTES - 1_000_000));
    assert_eq!(caller.ends(), (Some(0), String::new()));
    for (before, most) in before.into_iter().zip(most) {
        assert!(most < before + GROWTH_KIB_MAX, "from {before} to {most} KiB");
    }
}
