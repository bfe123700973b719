//! What becomes of a hook when its node or its guard dies, and what is left of a thousand.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use berth::driver::{Ended, Outcome, Programs, Tool};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;

use super::commands::{reset, run};
use super::{BOUND, alone, crowd, eventually, guard, no_environment, processes, script, state};

/// How soon the processes of a dead node have to be gone.
const SOON: Duration = Duration::from_secs(1);

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// The processes that this one has started and not yet buried.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok());
    lists.collect::<String>().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

async fn vanish(started: &[u32]) {
    let gone = eventually("all are gone", || started.iter().all(|pid| state(*pid).is_none()).then_some(()));
    timeout(SOON, gone).await.expect("they are gone soon");
}

/// What a killed node writes down: a file for the hook's processes, and one for the tool's.
const FOLDER: &str = "BERTH_TEST_KILLED_NODE";

#[tokio::test]
async fn when_a_node_is_killed_its_hooks_and_tools_are_gone_within_a_second() {
    if let Some(folder) = env::var_os(FOLDER) {
        return node(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["hooks::deaths::when_a_node_is_killed_its_hooks_and_tools_are_gone_within_a_second", "--exact"]);
    command.env(FOLDER, folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut node = command.spawn().unwrap();
    let mut started = processes(&folder.path().join("hook")).await;
    started.extend(processes(&folder.path().join("tool")).await);
    assert_eq!(started.len(), 8);
    assert!(started.iter().all(|pid| state(*pid).is_some()));
    node.kill().unwrap();
    node.wait().unwrap();
    vanish(&started).await;
}

/// A node with a hook and a tool that never end.
async fn node(folder: &Path) {
    let tool = Tool::start(&guard(), &crowd(&folder.join("tool")), &no_environment(), None).unwrap();
    let outcome = run(reset(&crowd(&folder.join("hook")), BOUND, None)).await;
    panic!("nobody has killed the node: {outcome:?}, {tool:?}");
}

#[tokio::test]
async fn a_hook_whose_guard_is_killed_has_failed_and_its_group_is_gone() {
    if alone("hooks::deaths::a_hook_whose_guard_is_killed_has_failed_and_its_group_is_gone", &[]) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("processes");
        let text = format!("sleep 1000 & echo $! > {0}; echo $$ >> {0}; echo ready >> {0}; wait", file.display());
        let hook = tokio::spawn(run(reset(&script(&text), BOUND, None)));
        let started = processes(&file).await;
        let [guard] = children()[..] else { panic!("one guard, not {:?}", children()) };
        kill(guard, Signal::KILL);
        let outcome = hook.await.unwrap();
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.why, "was killed, because its guard (berth guard) has ended too early");
        // Nobody who is known buries them now; that they are dead is what counts.
        let dead = |pid: &u32| state(*pid).is_none_or(|state| state == 'Z');
        eventually("the group is dead", || started.iter().all(dead).then_some(())).await;
    }
}

#[tokio::test]
async fn a_guard_that_is_told_to_stop_kills_what_it_guards() {
    if alone("hooks::deaths::a_guard_that_is_told_to_stop_kills_what_it_guards", &[]) {
        let folder = tempfile::tempdir().unwrap();
        for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            let file = folder.path().join(format!("{}", signal.as_raw()));
            let mut tool = Tool::start(&guard(), &crowd(&file), &no_environment(), None).unwrap();
            let started = processes(&file).await;
            kill(children()[0], signal);
            assert_eq!(timeout(BOUND, tool.wait()).await.unwrap(), Ended::Signalled(9));
            super::all_gone(&started);
        }
    }
}

#[tokio::test]
async fn a_thousand_hooks_leave_no_file_open_and_no_process() {
    if alone("hooks::deaths::a_thousand_hooks_leave_no_file_open_and_no_process", &[]) {
        let open = || fs::read_dir("/proc/self/fd").unwrap().count();
        let programs = Programs::new(guard());
        let job = reset(&super::argv(&["true"]), BOUND, None);
        let stop = tokio_util::sync::CancellationToken::new();
        let one = || berth::driver::Hands::run(&programs, job.clone(), stop.clone());
        assert_eq!(one().await, Outcome::Done);
        let before = open();
        let thousand = async {
            for _ in 0..1000 {
                assert_eq!(one().await, Outcome::Done);
            }
        };
        timeout(6 * BOUND, thousand).await.expect("a hook takes milliseconds");
        assert_eq!(open(), before);
        assert_eq!(children(), [0; 0]);
    }
}
