//! A node that is killed while it makes a hold, at every point at which it touches its files.
//!
//! Each time another process, with a small library preloaded, makes one hold and is killed at the next of its writes,
//! flushes, cuts and removals, until it gets through and has closed its database in good order. Then this one starts on
//! what was left: there is a live hold with its expiry, its event and its slot, or there is nothing of it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use berth::store::{CommitError, EVENTS_READ_MAX, EventFilter};

use super::{EXPIRES_MS, booked, booking, held, hold, hold_id, window};
use crate::sample;
use crate::store::{ALONE, Open, answer, block_on, own_process, preloadable, within_bound};

/// Where the other process has its database, and says what it was told.
const FOLDER: &str = "BERTH_TEST_FOLDER";
/// The file that says at which call the process is killed; the library reads it.
const KILL_AT: &str = "BERTH_TEST_KILL_AT";
/// Set where a write is killed in the midst of it.
const TORN: &str = "BERTH_TEST_TORN";

/// More calls than one hold and an orderly end take.
const CALLS_MAX: usize = 400;

/// In the other process: makes the hold, under the knife, and closes the database.
async fn makes_a_hold(folder: &Path) {
    let open = Open::at(&folder.join("berth.db"), sample::at(0)).unwrap();
    open.calendar(vec![booked(&booking(1, window(1, 2)))]).await.unwrap();
    let told = folder.join("told");
    std::fs::rename(folder.join("prepared"), std::env::var_os(KILL_AT).unwrap()).unwrap();
    let (done, outcome) = tokio::sync::oneshot::channel();
    open.store.commit(berth::store::Batch {
        resource: Some(sample::text(super::BENCH)),
        activation: 1,
        changes: vec![held(&hold(1, window(10, 20)))],
        events: vec![],
        now: sample::at(0),
        done: Box::new(move |result| {
            // From here on somebody may have the token.
            std::fs::write(told, format!("{result:?}")).unwrap();
            drop(done.send(result));
        }),
    });
    answer(outcome).await.unwrap();
    open.close().await;
}

/// What was left of the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nothing,
    /// It is there, and nobody had been told.
    Untold,
    Told,
}

/// Starts on what was left, and looks at all of it.
async fn left(folder: &Path, at: &str) -> Left {
    let told = folder.join("told");
    let told = told.exists().then(|| std::fs::read_to_string(told).unwrap());
    let open = Open::at(&folder.join("berth.db"), sample::at(1_000)).unwrap();
    assert_eq!(open.loaded.violations, [], "{at}");
    let [bench] = open.loaded.resources.as_slice() else { panic!("{at}: {:?}", open.loaded.resources) };
    assert_eq!(bench.bookings, [booking(1, window(1, 2))], "{at}: what was there before stays");
    let all = EventFilter { private: true, ..EventFilter::default() };
    let events = open.events.read(0, EVENTS_READ_MAX, &all).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    let again = open.calendar(vec![held(&hold(2, window(15, 25)))]).await;
    let found = match bench.holds.as_slice() {
        [] => {
            assert_eq!(told, None, "{at}: whoever was told has its hold");
            assert_eq!(kinds, ["booking.created"], "{at}");
            assert_eq!(again, Ok(()), "{at}: the slot is free");
            Left::Nothing
        }
        [(found, expires_at)] => {
            assert_eq!((found, *expires_at), (&hold(1, window(10, 20)), sample::wall(EXPIRES_MS)), "{at}");
            assert_eq!(kinds, ["booking.created", "hold.created"], "{at}");
            assert_eq!(events[1].payload["holdId"], hold_id(1).as_str(), "{at}");
            let refused = Err(CommitError::Constraint("no_hold_over_another".to_owned()));
            assert_eq!(again, refused, "{at}: the slot is claimed");
            if told.is_some() { Left::Told } else { Left::Untold }
        }
        several => panic!("{at}: {several:?}"),
    };
    assert!(told.is_none_or(|told| told == "Ok(())"), "{at}");
    within_bound(open.close()).await;
    found
}

/// What is left at every call in turn, until the process gets through.
fn killed_at_every_call(library: &Path, torn: bool) -> Vec<Left> {
    let mut seen = Vec::new();
    loop {
        let folder = tempfile::tempdir().unwrap();
        let (number, kill_at) = (seen.len() + 1, folder.path().join("kill-at"));
        std::fs::write(folder.path().join("prepared"), number.to_string()).unwrap();
        let mut process =
            own_process("calendar::crash::a_node_killed_anywhere_in_a_hold_has_made_all_of_it_or_nothing");
        process.env("LD_PRELOAD", library).env(FOLDER, folder.path()).env(KILL_AT, &kill_at);
        if torn {
            process.env(TORN, "1");
        }
        let run = process.output().unwrap();
        let at = format!("call {number}{}", if torn { ", torn" } else { "" });
        let wrong = String::from_utf8_lossy(&run.stderr);
        assert!(kill_at.exists(), "{at}: it has begun: {wrong}");
        let killed = run.status.signal() == Some(9);
        assert!(killed || run.status.success(), "{at}: {wrong}");
        block_on(async { seen.push(left(folder.path(), &at).await) });
        if !killed {
            return seen;
        }
        assert!(number < CALLS_MAX, "it ends");
    }
}

#[test]
fn a_node_killed_anywhere_in_a_hold_has_made_all_of_it_or_nothing() {
    if std::env::var_os(ALONE).is_some() {
        let folder = std::env::var_os(FOLDER).unwrap();
        return block_on(makes_a_hold(Path::new(&folder)));
    }
    let folder = tempfile::tempdir().unwrap();
    let library = preloadable("killed_write", folder.path());
    for torn in [false, true] {
        let seen = killed_at_every_call(&library, torn);
        let count = |what| seen.iter().filter(|left| **left == what).count();
        // Before the last frame of the log is written there is nothing; between that and the answer it is there and
        // nobody knows; and while the database is closed it is there and has been told.
        let counts = [Left::Nothing, Left::Untold, Left::Told].map(count);
        assert!(counts.iter().all(|count| *count > 0), "{seen:?}");
        let mut in_order = seen.clone();
        in_order.sort_by_key(|left| *left as u8);
        assert_eq!(seen, in_order, "what is there at one call is there at the next");
    }
}
