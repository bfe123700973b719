//! The writer without its queue, on a database that refuses to commit or has no room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::admission::calendar::{CalendarChange, HoldMove};
use crate::admission::resource::Change;
use crate::clock::RunTime;
use crate::model::{
    Fence, Fingerprint, Hold, HoldId, HoldStatus, LeaseRecord, Mode, Note, RequestId, Target, TokenHash, Window,
};
use crate::store::{EVENTS_READ_MAX, EventFilter};

/// A writer and what its batches were answered, by the lease that each was to grant.
struct Desk {
    folder: TempDir,
    writer: Writer,
    events: EventLog,
    invariants: Invariants,
    answers: Arc<Mutex<BTreeMap<String, Result<(), CommitError>>>>,
}

fn now() -> Now {
    Now { wall: "2026-01-01T00:00:00Z".parse().unwrap(), run: RunTime::default() }
}

fn lease(id: &str, note: Option<Note>) -> LeaseRecord {
    let resource = id.parse().unwrap();
    LeaseRecord {
        id: id.parse().unwrap(),
        request_id: RequestId::generate(),
        fingerprint: Fingerprint::of(&Target::Resource(id.parse().unwrap()), Mode::Exclusive, None),
        asked_ttl: None,
        resource_id: resource,
        mode: Mode::Exclusive,
        holder: "ci".parse().unwrap(),
        granted_at: now().wall,
        renewed_at: now().wall,
        ttl: Duration::from_secs(60),
        fence: Fence(1),
        note,
        id_chosen_by_requester: true,
        idempotency_key: None,
    }
}

fn granted(lease: LeaseRecord) -> Change {
    let deadline = now().run + lease.ttl;
    Change::Granted { deadline, last_end: None, expires_at: now().wall_at(deadline), lease }
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (writer, events, invariants, _) = Writer::open(&folder.path().join("berth.db"), now()).unwrap();
        Self { folder, writer, events, invariants, answers: Arc::default() }
    }

    /// A batch that is remembered under `name`.
    fn batch(&self, name: &str, changes: Vec<Change>) -> Job {
        let (answers, name) = (self.answers.clone(), name.to_owned());
        let done = Box::new(move |result| drop(answers.lock().unwrap().insert(name, result)));
        Job::Commit(Batch { resource: None, activation: 0, changes, events: vec![], now: now(), done })
    }

    fn grant(&self, id: &str) -> Job {
        self.batch(id, vec![granted(lease(id, None))])
    }

    /// More than a megabyte of leases.
    fn grant_many(&self, name: &str) -> Job {
        let note: Note = "x".repeat(512).parse().unwrap();
        let leases = (0..1_000).map(|number| granted(lease(&format!("{name}-{number}"), Some(note.clone()))));
        self.batch(name, leases.collect())
    }

    fn answer(&self, name: &str) -> Result<(), CommitError> {
        self.answers.lock().unwrap()[name].clone()
    }

    /// What the event log says has been granted.
    fn told(&self) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let events = runtime.block_on(self.events.read(0, EVENTS_READ_MAX, &EventFilter::default())).unwrap();
        assert!(events.last().is_none_or(|last| last.seq == *self.events.newest().borrow()));
        events.iter().map(|event| event.payload["leaseId"].as_str().unwrap().to_owned()).collect()
    }

    /// What the next start finds.
    fn found(self) -> Vec<String> {
        drop((self.writer, self.events, self.invariants));
        let (_, _, _, loaded) = Writer::open(&self.folder.path().join("berth.db"), now()).unwrap();
        let leases = loaded.resources.iter().flat_map(|resource| &resource.leases);
        leases.map(|(lease, _)| lease.id.to_string()).collect()
    }
}

#[test]
fn a_group_whose_commit_is_refused_has_not_happened_and_later_ones_go_on() {
    let mut desk = Desk::new();
    desk.writer.run(vec![desk.grant("before")]).unwrap();
    desk.writer.connection.commit_hook(Some(|| true)).unwrap();
    desk.writer.run(vec![desk.grant("first"), desk.grant("second")]).unwrap();
    for name in ["first", "second"] {
        assert!(matches!(desk.answer(name), Err(CommitError::Disk(_))), "{:?}", desk.answer(name));
    }
    assert_eq!(desk.told(), ["before"]);
    // The database has been opened anew, so the hook is gone.
    desk.writer.run(vec![desk.grant("first"), desk.grant("later")]).unwrap();
    assert_eq!(desk.answer("first"), Ok(()), "what failed can be tried again");
    assert_eq!(desk.answer("later"), Ok(()));
    assert_eq!(desk.told(), ["before", "first", "later"]);
    assert_eq!(desk.found(), ["before", "first", "later"]);
}

/// A hold of the slot that everybody here wants.
fn held(id: &str) -> Change {
    let wall = |s| now().wall.checked_add(Duration::from_secs(s)).unwrap();
    let hold = Hold {
        id: id.parse().unwrap(),
        resource_id: "bench-1".parse().unwrap(),
        holder: "ci".parse().unwrap(),
        window: Window::new(wall(3_600), wall(7_200)).unwrap(),
        status: HoldStatus::Active,
        ttl: Duration::from_secs(600),
        key: None,
        token: TokenHash::of("secret"),
        booking: None,
        created_at: now().wall,
        settled_at: None,
    };
    let deadline = now().run + hold.ttl;
    let what = HoldMove::Created;
    Change::Calendar(CalendarChange::Hold { hold: Arc::new(hold), what, deadline, expires_at: now().wall_at(deadline) })
}

#[test]
fn a_hold_whose_commit_is_refused_leaves_no_row_and_no_event_and_its_slot_is_free() {
    let mut desk = Desk::new();
    let (first, second) = (HoldId::generate(), HoldId::generate());
    desk.writer.connection.commit_hook(Some(|| true)).unwrap();
    desk.writer.run(vec![desk.batch("first", vec![held(first.as_str())])]).unwrap();
    assert!(matches!(desk.answer("first"), Err(CommitError::Disk(_))), "{:?}", desk.answer("first"));
    let count = |table: &str, desk: &Desk| -> i64 {
        desk.writer.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!(["hold", "event", "resource"].map(|table| count(table, &desk)), [0, 0, 0]);
    desk.writer.run(vec![desk.batch("second", vec![held(second.as_str())])]).unwrap();
    assert_eq!(desk.answer("second"), Ok(()));
    let kept: String = desk.writer.connection.query_row("SELECT id FROM hold", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, second.as_str());
    assert_eq!(count("event", &desk), 1);
}

/// Those who look for violations have the file open too.
#[test]
fn a_look_at_the_invariants_that_is_under_way_when_a_commit_fails_is_waited_for_and_another_goes_well() {
    let mut desk = Desk::new();
    let checker = desk.writer.checker.clone();
    let (looks, is_looking) = mpsc::sync_channel(1);
    let (fails, has_failed) = mpsc::sync_channel(1);
    let looking = std::thread::spawn(move || {
        let mut checker = checker.blocking_lock();
        let connection = checker.connection().unwrap();
        let mut select = connection.prepare("SELECT count(*) FROM hold UNION ALL SELECT 1").unwrap();
        let mut rows = select.query([]).unwrap();
        assert!(rows.next().unwrap().is_some());
        looks.send(()).unwrap();
        has_failed.recv().unwrap();
        assert!(rows.next().unwrap().is_some());
    });
    is_looking.recv().unwrap();
    desk.writer.connection.commit_hook(Some(move || fails.send(()).is_ok())).unwrap();
    desk.writer.run(vec![desk.grant("refused")]).unwrap();
    looking.join().unwrap();
    assert!(matches!(desk.answer("refused"), Err(CommitError::Disk(_))));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(desk.invariants.check()).unwrap(), []);
    desk.writer.run(vec![desk.grant("later")]).unwrap();
    assert_eq!(desk.found(), ["later"]);
}

#[test]
fn a_reading_that_is_under_way_when_a_commit_fails_is_waited_for() {
    let mut desk = Desk::new();
    desk.writer.run(vec![desk.grant("before")]).unwrap();
    let reader = desk.writer.reader.clone();
    let (reads, is_reading) = mpsc::sync_channel(1);
    let (fails, has_failed) = mpsc::sync_channel(1);
    let reading = std::thread::spawn(move || {
        let mut reader = reader.blocking_lock();
        let connection = reader.connection().unwrap();
        let mut select = connection.prepare("SELECT count(*) FROM event UNION ALL SELECT 1").unwrap();
        let mut rows = select.query([]).unwrap();
        let count: i64 = rows.next().unwrap().unwrap().get(0).unwrap();
        // From here to the end of the statement nobody could fold the log into the database.
        reads.send(()).unwrap();
        has_failed.recv().unwrap();
        assert!(rows.next().unwrap().is_some());
        count
    });
    is_reading.recv().unwrap();
    let refuse = move || fails.send(()).is_ok();
    desk.writer.connection.commit_hook(Some(refuse)).unwrap();
    desk.writer.run(vec![desk.grant("refused")]).unwrap();
    assert_eq!(reading.join().unwrap(), 1);
    assert!(matches!(desk.answer("refused"), Err(CommitError::Disk(_))));
    desk.writer.run(vec![desk.grant("later")]).unwrap();
    assert_eq!(desk.told(), ["before", "later"]);
    assert_eq!(desk.found(), ["before", "later"]);
}

#[test]
fn a_batch_too_large_for_the_disk_fails_alone_and_the_others_of_its_group_are_committed() {
    let mut desk = Desk::new();
    desk.writer.run(vec![desk.grant("before")]).unwrap();
    let pages: i64 = desk.writer.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    desk.writer.connection.pragma_update(None, "max_page_count", pages + 20).unwrap();
    let group = vec![
        desk.grant("first"),
        desk.grant_many("large"),
        desk.grant("second"),
        desk.grant_many("larger"),
        desk.grant("third"),
    ];
    desk.writer.run(group).unwrap();
    for name in ["large", "larger"] {
        let refused = desk.answer(name);
        assert!(matches!(&refused, Err(CommitError::Disk(why)) if why.contains("full")), "{refused:?}");
    }
    for name in ["first", "second", "third"] {
        assert_eq!(desk.answer(name), Ok(()), "{name}");
    }
    assert_eq!(desk.told(), ["before", "first", "second", "third"]);
    assert_eq!(desk.found(), ["before", "first", "second", "third"]);
}

#[test]
fn a_pruning_that_cannot_be_committed_changes_nothing_and_fails_nobody() {
    let mut desk = Desk::new();
    desk.writer.run(vec![desk.grant("before")]).unwrap();
    let prune = Prune { before: jiff::Timestamp::MAX, count_max: 0 };
    let mut commits = 0;
    let refuse_the_second = move || {
        commits += 1;
        commits == 2
    };
    desk.writer.connection.commit_hook(Some(refuse_the_second)).unwrap();
    desk.writer.run(vec![Job::Prune(prune), desk.grant("beside")]).unwrap();
    assert_eq!(desk.answer("beside"), Ok(()));
    assert_eq!(desk.told(), ["before", "beside"]);
    desk.writer.run(vec![Job::Prune(prune)]).unwrap();
    assert_eq!(desk.told(), Vec::<String>::new());
    assert_eq!(desk.found(), ["before", "beside"]);
}
