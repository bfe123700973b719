//! A disk that takes what is written and then fails to flush it.
//!
//! What such a `COMMIT` leaves in the log may be found at the next open, or not. Each case runs in a process of its own
//! with a small library preloaded that lets the next flushes fail; that process writes down what its batches were told
//! and ends as if it was killed. Then this one opens the file, without the library. Each batch grants a lease and makes a
//! hold, which share its fate.

use std::fmt::Write;
use std::path::Path;

use berth::model::{EventKind, Hold, HoldId};
use berth::store::{EVENTS_READ_MAX, EventFilter};

use super::{ALONE, Database, Open, calendar, granted, leases, own_process, preloadable, within_bound};
use crate::sample;

/// Where the other process finds the database, and writes down what was told.
const FOLDER: &str = "BERTH_TEST_FOLDER";
/// The file that says how many of the next flushes fail; the library reads it.
const FLUSHES_TO_FAIL: &str = "BERTH_TEST_FLUSHES_TO_FAIL";

/// The two batches that are one group while the disk fails.
const DOUBTFUL: [&str; 2] = ["doubtful-1", "doubtful-2"];

fn all_events() -> EventFilter {
    EventFilter { private: true, ..EventFilter::default() }
}

/// What a batch was told.
async fn told(open: &Open, id: &str) -> &'static str {
    let lease = sample::lease(id, id, 1);
    let hold =
        Hold { id: HoldId::generate(), resource_id: sample::text(id), ..calendar::hold(1, calendar::window(10, 20)) };
    match within_bound(open.queue(vec![granted(&lease), calendar::held(&hold)])).await {
        Ok(Ok(())) => "ok",
        Ok(Err(_)) => "failed",
        Err(_) => "nothing",
    }
}

/// In the other process: commits, lets the disk fail, commits, and goes on with a whole disk if the store does.
async fn with_a_failing_disk(folder: &Path) {
    let database = Database { folder: tempfile::TempDir::new_in(folder).unwrap() };
    let open = database.open();
    let mut answers = String::new();
    let mut note = |id: &str, told: &str| writeln!(answers, "{id} {told}").unwrap();
    note("before", told(&open, "before").await);

    let fails = std::env::var(FLUSHES_TO_FAIL).unwrap();
    std::fs::rename(folder.join("prepared"), &fails).unwrap();
    let [first, second] = DOUBTFUL;
    let (first_told, second_told) = tokio::join!(told(&open, first), told(&open, second));
    std::fs::remove_file(&fails).unwrap();
    note(first, first_told);
    note(second, second_told);

    if first_told == "nothing" {
        // Nobody was told anything, so the node has to exit.
        let ended = within_bound(open.failed.clone().wait()).await;
        ended.expect_err("it says why");
        note("after", told(&open, "after").await);
    } else {
        note("after", told(&open, "after").await);
        let events = open.events.read(0, EVENTS_READ_MAX, &all_events()).await.unwrap();
        assert_eq!(events.last().unwrap().seq, *open.events.newest().borrow());
        assert_eq!(events.last().unwrap().payload["resourceId"], "after", "the event log can be read again");
    }
    std::fs::write(folder.join("file"), database.path().to_str().unwrap()).unwrap();
    std::fs::write(folder.join("answers"), answers).unwrap();
    // As a kill would: nothing is closed or tidied up.
    std::process::exit(0);
}

/// What the doubtful batches were told when so many flushes failed. Whatever it was, the next start bears it out.
fn told_after(library: &Path, failing: u64) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("prepared"), format!("{failing}")).unwrap();
    let run = own_process("flush::what_was_told_is_what_a_start_finds_however_many_flushes_failed")
        .env("LD_PRELOAD", library)
        .env(FOLDER, folder.path())
        .env(FLUSHES_TO_FAIL, folder.path().join("failing"))
        .output()
        .unwrap();
    let wrong = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{failing} flushes: {wrong}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|_| panic!("{wrong}"));
    let (file, answers) = (read("file"), read("answers"));
    let answers: Vec<(&str, &str)> = answers.lines().map(|line| line.split_once(' ').unwrap()).collect();

    let found = start_finds(Path::new(&file));
    for (id, told) in &answers {
        let [there, granted, held, hold_told] = found.each_ref().map(|ids| ids.iter().any(|other| other == id));
        assert_eq!(there, granted, "{failing} flushes: {id} is there with its event");
        assert_eq!((there, there), (held, hold_told), "{failing} flushes: {id} is there with its hold");
        match *told {
            "ok" => assert!(there, "{failing} flushes: {id} was told and is not there"),
            "failed" => assert!(!there, "{failing} flushes: {id} was told to have failed and is there"),
            _ => {}
        }
    }
    let told = |id: &str| answers.iter().find(|(other, _)| *other == id).unwrap().1;
    assert_eq!(told("before"), "ok");
    assert_eq!(told(DOUBTFUL[0]), told(DOUBTFUL[1]), "{failing} flushes: they are one group");
    let goes_on = if told(DOUBTFUL[0]) == "nothing" { "failed" } else { "ok" };
    assert_eq!(told("after"), goes_on, "{failing} flushes");
    told(DOUBTFUL[0]).to_owned()
}

/// What a start finds, by the resource: leases, the grants that its event log tells, active holds, and those that are
/// told.
fn start_finds(file: &Path) -> [Vec<String>; 4] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_store, events, _, loaded, _end) = berth::store::Store::open(file, sample::at(0)).unwrap();
        let events = events.read(0, EVENTS_READ_MAX, &all_events()).await.unwrap();
        let told = |kind| {
            let told = events.iter().filter(|event| event.kind == kind);
            told.map(|event| event.payload["resourceId"].as_str().unwrap().to_owned()).collect()
        };
        let held = loaded.resources.iter().filter(|resource| !resource.holds.is_empty());
        let held = held.map(|resource| resource.id.to_string()).collect();
        let leases = leases(&loaded).into_iter().map(str::to_owned).collect();
        [leases, told(EventKind::LeaseGranted), held, told(EventKind::HoldCreated)]
    })
}

#[test]
fn what_was_told_is_what_a_start_finds_however_many_flushes_failed() {
    if std::env::var_os(ALONE).is_some() {
        let folder = std::env::var_os(FOLDER).unwrap();
        return super::block_on(with_a_failing_disk(Path::new(&folder)));
    }
    let folder = tempfile::tempdir().unwrap();
    let library = preloadable("failing_flush", folder.path());
    let seen: Vec<String> =
        [0, 1, 2, 3, 4, 1_000_000].into_iter().map(|failing| told_after(&library, failing)).collect();
    assert_eq!(seen[0], "ok", "a whole disk");
    // Which of the three it is depends on where in the reopening the disk is whole again. All of them come up, so what
    // is said of each above has been looked at.
    for told in ["ok", "failed", "nothing"] {
        assert!(seen[1..].iter().any(|other| other == told), "{told} is not in {seen:?}");
    }
}
