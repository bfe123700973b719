//! Tools at devices, through the gateway and past it (SPEC §7). Processes know nothing of a paused clock, so time is real
//! here.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use berth::admission::LeaseRules;
use berth::limits::EXEC_WINDOW_BYTES;
use berth::link::exec::ToolLine;
use berth::model::{Caller, Code, ExecAsk, ExecSignal, Fence, LeaseId, Refusal, RenewAsk, Role};
use berth::service::Coordinator;
use berth::service::answers::Acquired;
use berth::service::ask::{AcquireBody, EventQuery, Headers};
use berth::service::views::LeaseView;
use berth::wire::exec::{FromTool, ToTool};
use berth::wire::{ProtocolRange, ProtocolVersion};
use bytes::Bytes;

use crate::chosen_id::reported;
use crate::lab::{FILE, Lab, RACK_1, eventually};
use crate::liar::Liar;

const ALLOW: &str = r#"
[exec]
timeout = "60s"
[exec.allow]
sh = ["sh", "-c"]
cat = ["cat"]
gone = ["/nowhere/gone"]
"#;
/// How long anything may take that is expected here.
const BOUND: Duration = Duration::from_secs(30);

async fn lab() -> Lab {
    Lab::of(&format!("{FILE}{ALLOW}"), &[]).await
}

fn caller(name: &str, role: Role) -> Caller {
    Caller { principal: name.parse().unwrap(), role }
}

fn ci() -> Caller {
    caller("ci", Role::Agent)
}

async fn acquire(node: &dyn Coordinator, by: &Caller, resource: &str) -> LeaseView {
    let body = AcquireBody { ttl_ms: Some(3_600_000.try_into().unwrap()), ..AcquireBody::default() };
    let ask = body.into_ask(resource.parse().unwrap(), by, Headers::default(), &LeaseRules::default()).unwrap();
    match node.acquire(by, ask).await.unwrap() {
        Acquired::Active { lease } => *lease,
        Acquired::Pending(pending) => panic!("{pending:?}"),
    }
}

fn ask(tool: &str, args: &[&str]) -> ExecAsk {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    ExecAsk { tool: tool.parse().unwrap(), args: args.try_into().unwrap(), fence: None }
}

/// A script, with the test's own words behind it.
async fn sh(node: &dyn Coordinator, lease: &LeaseId, script: &str) -> ToolLine {
    node.exec(&ci(), lease, ask("sh", &[script])).await.unwrap()
}

async fn refused(node: &dyn Coordinator, by: &Caller, lease: &LeaseId, ask: ExecAsk) -> Refusal {
    node.exec(by, lease, ask).await.map(drop).unwrap_err()
}

#[derive(Debug, Default, PartialEq)]
struct Said {
    out: Vec<u8>,
    err: Vec<u8>,
    taken: usize,
    end: Option<Result<u8, Code>>,
}

/// The next frame, acknowledged.
async fn next(line: &mut ToolLine) -> FromTool {
    let frame = tokio::time::timeout(BOUND, line.from.recv()).await.expect("in time").expect("a last frame");
    if let FromTool::Stdout(bytes) | FromTool::Stderr(bytes) = &frame {
        assert!(!bytes.is_empty());
        // One that has ended needs none.
        let _ = line.to.send(ToTool::Ack(bytes.len() as u32)).await;
    }
    frame
}

/// Everything up to the end.
async fn end(line: &mut ToolLine) -> Said {
    let mut said = Said::default();
    while said.end.is_none() {
        match next(line).await {
            FromTool::Stdout(bytes) => said.out.extend(bytes),
            FromTool::Stderr(bytes) => said.err.extend(bytes),
            FromTool::Ack(bytes) => said.taken += bytes as usize,
            FromTool::Exit(code) => said.end = Some(Ok(code)),
            FromTool::Failed(refusal) => said.end = Some(Err(refusal.code)),
        }
    }
    said
}

fn said(out: &str, err: &str, code: u8) -> Said {
    Said { out: out.into(), err: err.into(), taken: 0, end: Some(Ok(code)) }
}

/// A file in which a script leaves its process number, and word of its end.
struct Trace(tempfile::TempDir);

impl Trace {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("pid")
    }

    /// A script that says on stdout that it runs, and then goes on for a minute.
    fn script(&self) -> String {
        format!("echo $$ > {}; echo ready; sleep 60 & wait", self.path().display())
    }

    fn pid(&self) -> u32 {
        fs::read_to_string(self.path()).unwrap().trim().parse().unwrap()
    }

    fn is_running(&self) -> bool {
        fs::metadata(format!("/proc/{}", self.pid())).is_ok()
    }

    async fn dies(&self) {
        eventually("the process is gone", || async { (!self.is_running()).then_some(()) }).await;
    }
}

/// One that runs a minute unless it is ended; it runs already.
async fn long(node: &dyn Coordinator, lease: &LeaseId, trace: &Trace) -> ToolLine {
    let mut line = sh(node, lease, &trace.script()).await;
    assert_eq!(next(&mut line).await, FromTool::Stdout(Bytes::from_static(b"ready\n")));
    assert!(trace.is_running());
    line
}

#[tokio::test]
async fn a_tool_runs_at_the_device_with_its_own_output_and_exit_code() {
    let lab = lab().await;
    let gateway = lab.gateway();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let script = "echo out; echo err >&2; echo $BERTH_RESOURCE $BERTH_FENCE $BERTH_HOLDER $0 $1; exit 3";
    let mut line = gateway.exec(&ci(), &lease.id, ask("sh", &[script, "zero", "o n e"])).await.unwrap();
    let it = end(&mut line).await;
    let out = format!("out\npixel {} gw:gateway:ci zero o n e\n", lease.fence);
    assert_eq!(it, said(&out, "err\n", 3));
    // Past the gateway it is the same.
    let worker = lab.worker("rack-2");
    let local = acquire(&*worker, &ci(), "board-1").await;
    assert_eq!(end(&mut sh(&*worker, &local.id, "kill -9 $$").await).await, said("", "", 137));
    let mut line = worker.exec(&ci(), &local.id, ask("gone", &[])).await.unwrap();
    assert_eq!(end(&mut line).await.end, Some(Err(Code::DeviceFailed)));
}

#[tokio::test]
async fn only_the_owner_runs_tools_and_only_those_that_are_allowed() {
    let lab = lab().await;
    let (gateway, worker) = (lab.gateway(), lab.worker("rack-1"));
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let there = worker.leases(&Caller::admin()).await.unwrap()[0].id.clone();
    for (name, role) in [("other", Role::Agent), ("admin", Role::Admin), ("ci", Role::Viewer)] {
        let by = caller(name, role);
        let no = refused(&*gateway, &by, &lease.id, ask("cat", &[])).await;
        assert_eq!(no.code, Code::InsufficientPermissions, "{name}");
        let no = refused(&*worker, &by, &there, ask("cat", &[])).await;
        assert_eq!(no.code, Code::InsufficientPermissions, "{name}: the lease is the gateway's");
    }
    let no = refused(&*worker, &ci(), &there, ask("cat", &[])).await;
    assert_eq!(no.code, Code::InsufficientPermissions, "ci of the worker is another than ci of the gateway");
    for node in [&gateway, &worker] {
        let no = refused(&**node, &ci(), &"lse_none".parse().unwrap(), ask("cat", &[])).await;
        assert_eq!(no.code, Code::UnknownLease);
    }
    let no = refused(&*gateway, &ci(), &lease.id, ask("rm", &[])).await;
    assert_eq!(no.code, Code::BadRequest);
    assert!(no.message.contains("rm is not allowed") && no.message.contains("cat, gone, sh"), "{no}");
    // An admin's own lease is its own.
    let own = acquire(&*gateway, &Caller::admin(), "board-1").await;
    let mut line = gateway.exec(&Caller::admin(), &own.id, ask("sh", &["echo mine"])).await.unwrap();
    assert_eq!(end(&mut line).await, said("mine\n", "", 0));
}

#[tokio::test]
async fn the_worker_refuses_the_fence_of_a_former_grant() {
    let lab = lab().await;
    let gateway = lab.gateway();
    let former = acquire(&*gateway, &ci(), "pixel").await;
    gateway.release(&ci(), &former.id, None).await.unwrap();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let with = |fence| ExecAsk { fence: Some(fence), ..ask("sh", &["echo hi"]) };
    for fence in [former.fence, Fence(lease.fence.0 + 1)] {
        let no = refused(&*gateway, &ci(), &lease.id, with(fence)).await;
        assert_eq!(no.code, Code::UnknownLease);
        assert_eq!(no.details.unwrap()["leaseId"], lease.id.as_str(), "in the gateway's name of it");
    }
    let mut line = gateway.exec(&ci(), &lease.id, with(lease.fence)).await.unwrap();
    assert_eq!(end(&mut line).await, said("hi\n", "", 0));
}

#[tokio::test]
async fn a_tool_ends_with_its_lease() {
    let lab = lab().await;
    let (gateway, trace) = (lab.gateway(), Trace::new());
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut line = long(&*gateway, &lease.id, &trace).await;
    gateway.release(&ci(), &lease.id, None).await.unwrap();
    let FromTool::Failed(why) = next(&mut line).await else { panic!("it goes on") };
    assert_eq!(why.code, Code::UnknownLease);
    let details = why.details.unwrap();
    assert_eq!((&details["leaseId"], &details["reason"]), (&lease.id.as_str().into(), &"explicit".into()));
    assert!(!trace.is_running(), "it is gone before its end is told");
    // The same past the gateway, by the deadline.
    let worker = lab.worker("rack-2");
    let local = acquire(&*worker, &ci(), "board-1").await;
    let ttl = Some(1_000.try_into().unwrap());
    let mut line = long(&*worker, &local.id, &trace).await;
    worker.renew(&ci(), &local.id, RenewAsk { ttl, ..RenewAsk::default() }).await.unwrap();
    let FromTool::Failed(why) = next(&mut line).await else { panic!("it goes on") };
    assert_eq!((why.code, &why.details.unwrap()["reason"]), (Code::UnknownLease, &"expired".into()));
    assert!(!trace.is_running());
}

#[tokio::test]
async fn a_tool_dies_when_its_caller_goes() {
    let lab = lab().await;
    let (gateway, trace) = (lab.gateway(), Trace::new());
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    drop(long(&*gateway, &lease.id, &trace).await);
    trace.dies().await;
    let ended = ended_event(&*lab.worker("rack-1"), 1).await;
    assert!(ended.get("exit").is_none() && ended.get("code").is_none(), "{ended:?}");
}

#[tokio::test]
async fn a_tool_dies_when_the_link_to_its_gateway_is_cut() {
    let lab = lab().await;
    let (gateway, trace) = (lab.gateway(), Trace::new());
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut line = long(&*gateway, &lease.id, &trace).await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    let FromTool::Failed(why) = next(&mut line).await else { panic!("it goes on") };
    assert_eq!(why.code, Code::WorkerUnreachable);
    trace.dies().await;
    let no = refused(&*gateway, &ci(), &lease.id, ask("cat", &[])).await;
    assert_eq!(no.code, Code::WorkerUnreachable);
}

#[tokio::test]
async fn a_tool_ends_with_its_node_and_none_is_started_by_one_that_stops() {
    let mut lab = lab().await;
    let (worker, trace) = (lab.worker("rack-2"), Trace::new());
    let lease = acquire(&*worker, &ci(), "board-1").await;
    let mut line = long(&*worker, &lease.id, &trace).await;
    lab.refuse_requests("rack-2");
    assert_eq!(end(&mut line).await.end, Some(Err(Code::Stopping)));
    assert!(!trace.is_running());
    assert_eq!(refused(&*worker, &ci(), &lease.id, ask("cat", &[])).await.code, Code::Stopping);
    lab.refuse_requests("gateway");
    let through = lab.gateway();
    assert_eq!(refused(&*through, &ci(), &lease.id, ask("cat", &[])).await.code, Code::Stopping);
    // One that is not told first ends them too.
    let worker = lab.worker("rack-1");
    let lease = acquire(&*worker, &ci(), "pixel").await;
    let mut line = long(&*worker, &lease.id, &trace).await;
    drop(worker);
    lab.stop("rack-1").await;
    assert_eq!(end(&mut line).await.end, Some(Err(Code::Stopping)));
}

#[tokio::test]
async fn a_tool_that_runs_too_long_is_killed() {
    let lab = Lab::of(&format!("{FILE}{ALLOW}"), &[("BERTH_EXEC__TIMEOUT", "1s")]).await;
    let (gateway, trace) = (lab.gateway(), Trace::new());
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut line = long(&*gateway, &lease.id, &trace).await;
    let it = end(&mut line).await;
    assert_eq!(it.end, Some(Err(Code::ExecTimeout)));
    assert!(!trace.is_running());
}

#[tokio::test]
async fn signals_reach_the_tool_and_what_it_has_started() {
    let lab = lab().await;
    let gateway = lab.gateway();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut line =
        sh(&*gateway, &lease.id, "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.05; done").await;
    assert_eq!(next(&mut line).await, FromTool::Stdout(Bytes::from_static(b"ready\n")));
    line.to.send(ToTool::Signal(ExecSignal::Int)).await.unwrap();
    assert_eq!(end(&mut line).await, said("caught\n", "", 7));
    let mut line = sh(&*gateway, &lease.id, "echo ready; sleep 60").await;
    next(&mut line).await;
    line.to.send(ToTool::Signal(ExecSignal::Term)).await.unwrap();
    assert_eq!(end(&mut line).await, said("", "", 143));
}

#[tokio::test]
async fn what_a_tool_reads_and_writes_comes_through_byte_for_byte() {
    const BYTES: usize = 16 * 1024 * 1024;
    let lab = lab().await;
    let gateway = lab.gateway();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let ToolLine { to, from } = gateway.exec(&ci(), &lease.id, ask("cat", &[])).await.unwrap();
    let input: Vec<u8> = (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (room, mut line) = (std::sync::Arc::new(tokio::sync::Semaphore::new(EXEC_WINDOW_BYTES)), ToolLine { to, from });
    let (to, sent, allowed) = (line.to.clone(), input.clone(), std::sync::Arc::clone(&room));
    let feeding = tokio::spawn(async move {
        // Pieces of all sizes.
        let (mut rest, mut size) = (&sent[..], 1);
        while !rest.is_empty() {
            size = (size * 7 + 13) % EXEC_WINDOW_BYTES + 1;
            let (piece, more) = rest.split_at(size.min(rest.len()));
            allowed.acquire_many(piece.len() as u32).await.unwrap().forget();
            to.send(ToTool::Stdin(Bytes::copy_from_slice(piece))).await.unwrap();
            rest = more;
        }
        to.send(ToTool::Eof).await.unwrap();
    });
    let mut output = Vec::with_capacity(BYTES);
    let code = loop {
        match next(&mut line).await {
            FromTool::Stdout(bytes) => output.extend(bytes),
            FromTool::Ack(bytes) => room.add_permits(bytes as usize),
            FromTool::Exit(code) => break code,
            other => panic!("{other:?}"),
        }
    };
    feeding.await.unwrap();
    assert_eq!((code, output.len()), (0, BYTES));
    assert!(output == input, "not a byte differs");
    assert_eq!(room.available_permits(), EXEC_WINDOW_BYTES, "all of it was acknowledged");
}

#[tokio::test]
async fn a_reader_that_stalls_stalls_its_tool_and_nothing_else() {
    let lab = lab().await;
    let (gateway, trace) = (lab.gateway(), Trace::new());
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let script = format!(
        "i=0; while [ $i -lt 512 ]; do i=$((i+1)); printf '%8192d' $i; echo $i > {0}.new; mv {0}.new {0}; done",
        trace.path().display()
    );
    let mut line = sh(&*gateway, &lease.id, &script).await;
    let mut came = 0;
    while came < EXEC_WINDOW_BYTES {
        let frame = tokio::time::timeout(BOUND, line.from.recv()).await.unwrap().unwrap();
        let FromTool::Stdout(bytes) = frame else { panic!("{frame:?}") };
        came += bytes.len();
    }
    assert_eq!(came, EXEC_WINDOW_BYTES);
    let written = || fs::read_to_string(trace.path()).unwrap().trim().parse::<usize>().unwrap();
    // It goes on until its pipe is full, and no further.
    let mut before = 0;
    while before != written() {
        before = written();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(before * 8192 <= came + 2 * 64 * 1024, "{before} pieces");
    assert!(line.from.try_recv().is_err(), "and nothing comes");
    // Three more stall as well; what is asked of the worker is answered at once.
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(sh(&*gateway, &lease.id, "cat /dev/zero").await);
    }
    let asked = async {
        gateway.renew(&ci(), &lease.id, RenewAsk::default()).await.unwrap();
        assert_eq!(end(&mut sh(&*gateway, &lease.id, "echo hi").await).await, said("hi\n", "", 0));
        let other = acquire(&*gateway, &caller("other", Role::Agent), "board-1").await;
        gateway.release(&caller("other", Role::Agent), &other.id, None).await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(3), asked).await.expect("at once");
    // Once the reader goes on, so does the tool.
    line.to.send(ToTool::Ack(came as u32)).await.unwrap();
    let rest = end(&mut line).await;
    assert_eq!((rest.out.len() + came, rest.end), (512 * 8192, Some(Ok(0))));
    gateway.release(&ci(), &lease.id, None).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_sends_more_than_it_may_loses_its_tool() {
    let lab = lab().await;
    let gateway = lab.gateway();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut line = sh(&*gateway, &lease.id, "sleep 60").await;
    for _ in 0..2 {
        line.to.send(ToTool::Stdin(Bytes::from(vec![0; EXEC_WINDOW_BYTES]))).await.unwrap();
    }
    // The first is on its way into a pipe that takes as much; a third is too much in any case.
    let _ = line.to.send(ToTool::Stdin(Bytes::from(vec![0; EXEC_WINDOW_BYTES]))).await;
    assert_eq!(end(&mut line).await.end, Some(Err(Code::BadRequest)));
    let mut line = sh(&*gateway, &lease.id, "sleep 60").await;
    line.to.send(ToTool::Ack(1)).await.unwrap();
    assert_eq!(end(&mut line).await.end, Some(Err(Code::BadRequest)));
}

#[tokio::test]
async fn no_more_tools_run_under_one_lease_than_may() {
    let lab = lab().await;
    let gateway = lab.gateway();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut lines = Vec::new();
    for _ in 0..berth::limits::EXECS_PER_LEASE_MAX {
        lines.push(gateway.exec(&ci(), &lease.id, ask("cat", &[])).await.unwrap());
    }
    let no = refused(&*gateway, &ci(), &lease.id, ask("cat", &[])).await;
    assert_eq!((no.code, no.retry_after), (Code::RateLimited, Some(1)));
    let mut last = lines.pop().unwrap();
    last.to.send(ToTool::Eof).await.unwrap();
    assert_eq!(end(&mut last).await, said("", "", 0));
    gateway.exec(&ci(), &lease.id, ask("cat", &[])).await.unwrap();
}

/// The payload of the worker's `n`th event of that a tool has ended.
async fn ended_event(worker: &dyn Coordinator, n: usize) -> serde_json::Map<String, serde_json::Value> {
    exec_events(worker, "lease.exec-ended", n).await.pop().unwrap()
}

async fn exec_events(node: &dyn Coordinator, kind: &str, n: usize) -> Vec<serde_json::Map<String, serde_json::Value>> {
    let query = EventQuery { event: Some(kind.parse().unwrap()), limit: 100, ..EventQuery::default() };
    eventually("it is told", || async {
        let events = node.events(&Caller::admin(), &query, Duration::ZERO).await.unwrap().events;
        (events.len() >= n).then(|| events.into_iter().map(|event| event.payload).collect())
    })
    .await
}

#[tokio::test]
async fn the_log_names_the_tool_and_the_number_of_its_arguments_and_not_one_of_them() {
    let lab = lab().await;
    let gateway = lab.gateway();
    let lease = acquire(&*gateway, &ci(), "pixel").await;
    let mut line = gateway.exec(&ci(), &lease.id, ask("sh", &["exit 3", "hunter2"])).await.unwrap();
    end(&mut line).await;
    for node in [lab.worker("rack-1"), gateway] {
        let begun = exec_events(&*node, "lease.exec", 1).await;
        assert_eq!((&begun[0]["tool"], &begun[0]["args"]), (&"sh".into(), &2.into()));
        assert_eq!(begun[0]["fence"], lease.fence.0);
        let ended = exec_events(&*node, "lease.exec-ended", 1).await;
        assert_eq!(ended[0]["exit"], 3);
        let told = serde_json::to_string(&(&begun, &ended)).unwrap();
        assert!(!told.contains("hunter2") && !told.contains("exit 3"), "{told}");
    }
}

#[tokio::test]
async fn a_worker_of_a_version_without_tools_is_not_asked_for_one() {
    let mut lab = Lab::start().await;
    lab.stop("rack-2").await;
    let two = ProtocolRange { min: ProtocolVersion::V2, max: ProtocolVersion::V2 };
    let row = reported("old-1", "bench", "gw:gateway:ci");
    let _old = Liar::speaking(two, &lab, "rack-2", "bench", vec![row], &[], &[]).await;
    let gateway = lab.gateway();
    let id: LeaseId = "old-1".parse().unwrap();
    eventually("its lease is routed", || async { gateway.lease(&ci(), &id).await.ok() }).await;
    let no = refused(&*gateway, &ci(), &id, ask("cat", &[])).await;
    assert_eq!(no.code, Code::UnsupportedOnWorker);
    assert!(no.message.contains("upgrade"), "{no}");
}
