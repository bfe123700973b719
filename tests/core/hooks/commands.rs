use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use berth::driver::{Hands, Job, Outcome, Programs, Tenure, environment};
use berth::model::{DeviceFacts, Driver, DriverKind, Hook, HookFailure, HookKind, OUTPUT_BYTES_MAX};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{BOUND, all_gone, alone, argv, crowd, guard, processes, script};

/// A reset by that program, in a directory of its own if there is one.
pub(super) fn reset(argv: &[String], allowed: Duration, directory: Option<&Path>) -> Job {
    let driver = Driver {
        kind: DriverKind::Command,
        reset: Some(Hook { argv: argv.to_vec(), timeout: allowed }),
        directory: directory.map(Path::to_owned),
        ..Driver::default()
    };
    let resource = "pixel-a".parse().unwrap();
    let labels = [("platform".parse().unwrap(), "android".parse().unwrap())].into();
    let environment = environment(&resource, &labels, Tenure::default());
    Job { resource, hook: HookKind::Reset, driver: Arc::new(driver), facts: Arc::default(), environment }
}

/// Runs a job to its end.
pub(super) async fn run(job: Job) -> Outcome {
    let programs = Programs::new(guard());
    timeout(BOUND, programs.run(job, CancellationToken::new())).await.expect("the hook ends")
}

fn failed(why: &str, output: &str) -> Outcome {
    Outcome::Failed(HookFailure { hook: HookKind::Reset, why: why.to_owned(), output: output.to_owned() })
}

async fn run_script(text: &str) -> Outcome {
    run(reset(&script(text), BOUND, None)).await
}

#[tokio::test]
async fn a_hook_that_exits_with_0_has_done_its_job_and_any_other_end_is_a_failure_in_words() {
    assert_eq!(run_script("echo fine").await, Outcome::Done);
    assert_eq!(run_script("echo bad; exit 3").await, failed("exited with 3", "bad\n"));
    assert_eq!(run_script("kill -9 $$").await, failed("was killed by signal 9 (SIGKILL)", ""));
    assert_eq!(run_script("kill -TERM $$").await, failed("was killed by signal 15 (SIGTERM)", ""));
}

#[tokio::test]
async fn a_job_without_a_hook_is_done() {
    let mut job = reset(&script("exit 1"), BOUND, None);
    job.hook = HookKind::Prepare;
    assert_eq!(run(job).await, Outcome::Done);
}

#[tokio::test]
async fn a_hook_reads_nothing_and_both_its_streams_are_kept_in_order() {
    let outcome = run_script("cat; echo one; echo two >&2; echo three; exit 1").await;
    assert_eq!(outcome, failed("exited with 1", "one\ntwo\nthree\n"));
}

#[tokio::test]
async fn a_hook_finds_the_resource_the_device_and_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let text = "echo $BERTH_RESOURCE $BERTH_LABEL_PLATFORM $ANDROID_SERIAL ${PATH:+path}; pwd; exit 1";
    let mut job = reset(&script(text), BOUND, Some(&folder));
    let environment = [("ANDROID_SERIAL".to_owned(), "emulator-5554".to_owned())].into();
    job.facts = Arc::new(DeviceFacts { environment, ..DeviceFacts::default() });
    let expected = format!("pixel-a android emulator-5554 path\n{}\n", folder.display());
    assert_eq!(run(job).await, failed("exited with 1", &expected));
}

#[tokio::test]
async fn a_node_that_runs_for_a_lease_itself_does_not_hand_that_on() {
    let variables =
        [("BERTH_LEASE", "lse_of_the_node"), ("BERTH_LABEL_OS", "of the node"), ("BERTH_TEST_OTHER", "kept")];
    let test = "hooks::commands::a_node_that_runs_for_a_lease_itself_does_not_hand_that_on";
    if alone(test, &variables) {
        let text = "echo ${BERTH_LEASE-none} ${BERTH_LABEL_OS-none} $BERTH_TEST_OTHER; exit 1";
        assert_eq!(run_script(text).await, failed("exited with 1", "none none kept\n"));
    }
}

#[tokio::test]
async fn a_program_with_a_slash_counts_from_its_directory() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("flash");
    fs::write(&program, "#!/bin/sh\necho \"flash $*\"\nexit 1\n").unwrap();
    let job = |name: &str| reset(&argv(&[name, "all of it"]), BOUND, Some(folder.path()));
    assert_eq!(run(job("./flash")).await, failed("could not be started: ./flash: permission denied", ""));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run(job("./flash")).await, failed("exited with 1", "flash all of it\n"));
    let lost = "could not be started: flash: no such file or directory";
    assert_eq!(run(job("flash")).await, failed(lost, ""), "without a slash it is looked up in PATH");
}

#[tokio::test]
async fn a_hook_whose_directory_does_not_exist_says_so() {
    let outcome = run(reset(&script("exit 0"), BOUND, Some(Path::new("/no/such/lab")))).await;
    assert_eq!(outcome, failed("could not be started: its directory /no/such/lab: no such file or directory", ""));
}

#[tokio::test]
async fn a_hook_without_its_guard_is_not_started() {
    let programs = Programs::new(berth::driver::Guard::new("/no/such/berth"));
    let outcome = programs.run(reset(&script("exit 0"), BOUND, None), CancellationToken::new()).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert!(failure.why.starts_with("could not be started: no guard for it: "), "{failure}");
}

#[tokio::test]
async fn a_hook_that_takes_too_long_is_killed_with_everything_that_it_has_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("processes");
    let outcome = run(reset(&crowd(&file), Duration::from_secs(4), None)).await;
    assert_eq!(outcome, failed("took longer than 4s and was killed", ""));
    let started = processes(&file).await;
    assert_eq!(started.len(), 4);
    all_gone(&started);
}

#[tokio::test]
async fn a_hook_that_is_told_to_stop_answers_when_nothing_of_it_runs_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("processes");
    let stop = CancellationToken::new();
    let job = reset(&crowd(&file), BOUND, None);
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { Programs::new(guard()).run(job, stop).await }
    });
    let started = processes(&file).await;
    stop.cancel();
    assert_eq!(timeout(BOUND, running).await.unwrap().unwrap(), Outcome::Stopped);
    all_gone(&started);
}

#[tokio::test]
async fn a_hook_that_is_stopped_before_its_start_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ran");
    let stop = CancellationToken::new();
    stop.cancel();
    let job = reset(&script(&format!("touch {}", file.display())), BOUND, None);
    assert_eq!(Programs::new(guard()).run(job, stop).await, Outcome::Stopped);
    assert!(!file.exists());
}

#[tokio::test]
async fn a_daemon_that_a_hook_leaves_behind_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("processes");
    let text = format!(
        "(setsid sh -c 'echo $$ > {0}; echo ready >> {0}; exec sleep 1000' &); until grep -q ready {0}; do sleep 0.01; done",
        file.display()
    );
    assert_eq!(run_script(&text).await, Outcome::Done);
    all_gone(&processes(&file).await);
}

#[tokio::test]
async fn a_hook_that_writes_much_takes_no_memory_and_its_end_is_shown() {
    if alone("hooks::commands::a_hook_that_writes_much_takes_no_memory_and_its_end_is_shown", &[]) {
        assert_eq!(run_script("exit 0").await, Outcome::Done);
        let before = peak_kib();
        let outcome = run_script("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 5").await;
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.why, "exited with 5");
        assert_eq!(failure.output.len(), OUTPUT_BYTES_MAX);
        assert!(failure.output.ends_with("xxx\nthe end\n"));
        let grown = peak_kib() - before;
        assert!(grown < 4 * 1024, "it took {grown} KiB");
    }
}

/// The most memory that this process has had.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
