use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use berth::driver::{Ended, Tool};
use berth::model::ExecSignal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::timeout;

use super::{BOUND, all_gone, argv, crowd, eventually, guard, no_environment, processes, script};

fn start(argv: &[String]) -> Tool {
    Tool::start(&guard(), argv, &no_environment(), None).unwrap()
}

async fn ended(tool: &mut Tool) -> Ended {
    timeout(BOUND, tool.wait()).await.expect("the tool ends")
}

async fn text(mut from: impl AsyncReadExt + Unpin) -> String {
    let mut text = String::new();
    timeout(BOUND, from.read_to_string(&mut text)).await.expect("the stream ends").unwrap();
    text
}

#[tokio::test]
async fn a_tool_has_three_streams_of_its_own_and_an_exit_code() {
    let mut tool = start(&script("read line; echo \"got $line\"; echo trouble >&2; exit 3"));
    tool.stdin.as_mut().unwrap().write_all(b"this\n").await.unwrap();
    assert_eq!(ended(&mut tool).await, Ended::Exited(3));
    assert_eq!(ended(&mut tool).await, Ended::Exited(3), "asked again");
    assert_eq!(text(tool.stdout.take().unwrap()).await, "got this\n");
    assert_eq!(text(tool.stderr.take().unwrap()).await, "trouble\n");
}

#[tokio::test]
async fn a_tool_sees_the_end_of_its_input() {
    let mut tool = start(&argv(&["cat"]));
    tool.stdin.take().unwrap().write_all(b"all of it").await.unwrap();
    assert_eq!(text(tool.stdout.take().unwrap()).await, "all of it");
    assert_eq!(ended(&mut tool).await, Ended::Exited(0));
}

#[tokio::test]
async fn the_end_of_a_tools_output_is_seen_while_it_still_runs() {
    let mut tool = start(&script("echo last; exec > /dev/null 2> /dev/null; read line"));
    assert_eq!(text(tool.stdout.take().unwrap()).await, "last\n");
    drop(tool.stdin.take());
    assert_eq!(ended(&mut tool).await, Ended::Exited(1));
}

#[tokio::test]
async fn a_signal_reaches_the_whole_group_of_a_tool() {
    // The shell waits for its child, and tells by its own code that both have got the signal.
    let inner = "trap 'exit 4' USR1; echo; while :; do sleep 0.01; done";
    let mut tool = start(&script(&format!("trap : USR1; sh -c \"{inner}\" & wait; wait $!; exit $?")));
    tool.stdout.as_mut().unwrap().read_exact(&mut [0]).await.unwrap();
    tool.signal(ExecSignal::Usr1).unwrap();
    assert_eq!(ended(&mut tool).await, Ended::Exited(4));
    tool.signal(ExecSignal::Usr1).unwrap();
}

#[tokio::test]
async fn a_tool_that_ends_by_a_signal_says_which() {
    for (signal, number) in [
        (ExecSignal::Int, 2),
        (ExecSignal::Term, 15),
        (ExecSignal::Hup, 1),
        (ExecSignal::Quit, 3),
        (ExecSignal::Usr1, 10),
        (ExecSignal::Usr2, 12),
        (ExecSignal::Kill, 9),
    ] {
        let mut tool = start(&argv(&["cat"]));
        // Before it runs, even.
        tool.signal(signal).unwrap();
        assert_eq!(ended(&mut tool).await, Ended::Signalled(number));
    }
}

#[tokio::test]
async fn a_tool_that_does_not_exist_says_so() {
    let mut tool = start(&argv(&["no-such-tool", "-v"]));
    let Ended::NotStarted(why) = ended(&mut tool).await else { panic!("it runs") };
    assert_eq!(why, "no-such-tool: no such file or directory");
    let empty = Tool::start(&guard(), &[], &no_environment(), None).map(|_| ()).unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_tool_inherits_its_three_streams_and_nothing_else() {
    let listing = script("cd /proc/self/fd; echo *");
    // What the one who started the tests has left open, and what the shell opens for itself.
    let usual = Command::new(&listing[0]).args(&listing[1..]).output().await.unwrap();
    let mut tool = start(&listing);
    assert_eq!(text(tool.stdout.take().unwrap()).await, String::from_utf8(usual.stdout).unwrap());
}

#[tokio::test]
async fn a_tool_that_is_dropped_or_killed_takes_everything_with_it_that_it_has_started() {
    for dropped in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("processes");
        let mut tool = start(&crowd(&file));
        let started = processes(&file).await;
        assert_eq!(started.len(), 4);
        if dropped {
            drop(tool);
            eventually("all are gone", || started.iter().all(|pid| super::state(*pid).is_none()).then_some(())).await;
        } else {
            tool.kill();
            assert_eq!(ended(&mut tool).await, Ended::Signalled(9));
            all_gone(&started);
        }
    }
}

#[tokio::test]
async fn what_a_tool_leaves_behind_is_killed_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("processes");
    let text = format!("(setsid sh -c 'echo $$ > {0}; echo ready >> {0}; exec sleep 1000' &)", file.display());
    let mut tool = start(&script(&format!("{text}; until grep -q ready {}; do sleep 0.01; done", file.display())));
    assert_eq!(ended(&mut tool).await, Ended::Exited(0));
    all_gone(&processes(&file).await);
}

#[tokio::test]
async fn a_reader_that_stalls_stalls_the_tool_and_loses_nothing() {
    const ALL: usize = 32 * 1024 * 1024;
    let folder = tempfile::tempdir().unwrap();
    let done = folder.path().join("done");
    let text = format!("head -c {ALL} /dev/zero; touch {}", done.display());
    let mut tool = start(&script(&text));
    let mut output = tool.stdout.take().unwrap();
    output.read_exact(&mut [0; 1000]).await.unwrap();
    assert!(timeout(Duration::from_millis(300), tool.wait()).await.is_err(), "it waits for its reader");
    assert!(fs::metadata(&done).is_err());
    let rest = timeout(BOUND, tokio::io::copy(&mut output, &mut tokio::io::sink())).await.unwrap().unwrap();
    assert_eq!(rest, ALL as u64 - 1000);
    assert_eq!(ended(&mut tool).await, Ended::Exited(0));
    assert!(fs::metadata(&done).is_ok());
}
