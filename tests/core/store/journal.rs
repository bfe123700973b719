//! A gateway's history: appended beside all answers, each event once, and read back by the next run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth::clock::Now;
use berth::model::{Event, EventId, EventKind, NodeName};
use berth::store::{
    EVENTS_READ_MAX, EventFilter, EventRecord, Journal, OpenError, OpenedJournal, RelayedEvent, RelayedPage,
};
use serde_json::json;
use tempfile::TempDir;

use super::within_bound;
use crate::sample;

const ALL: EventFilter = EventFilter { owner: None, private: true, kind: None, lease: None };

struct File(TempDir);

impl File {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("events.db")
    }

    fn open(&self) -> Open {
        self.open_at(sample::at(0))
    }

    fn open_at(&self, now: Now) -> Open {
        Open { opened: Journal::open(&self.path(), now).unwrap(), taken: Arc::default() }
    }
}

struct Open {
    opened: OpenedJournal,
    /// What was acknowledged, in its order.
    taken: Arc<Mutex<Vec<u64>>>,
}

impl Open {
    fn append(&self, event: Event) {
        self.opened.journal.append(event, sample::wall(0)).unwrap();
    }

    fn relay(&self, worker: &str, events: &[&RelayedEvent]) {
        let events: Vec<RelayedEvent> = events.iter().map(|event| (*event).clone()).collect();
        let upto = events.last().map_or(0, |event| event.seq);
        let page = RelayedPage { worker: sample::text(worker), upto, events };
        let taken = Arc::clone(&self.taken);
        self.opened.journal.relay(page, sample::wall(0), move |seq| taken.lock().unwrap().push(seq)).unwrap();
    }

    fn newest(&self) -> u64 {
        *self.opened.events.newest().borrow()
    }

    async fn read(&self, filter: &EventFilter) -> Vec<EventRecord> {
        self.opened.events.read(0, EVENTS_READ_MAX, filter).await.unwrap()
    }

    async fn kinds(&self) -> Vec<EventKind> {
        self.read(&ALL).await.iter().map(|event| event.kind).collect()
    }

    /// Waits until the log has reached this number.
    async fn reaches(&self, seq: u64) {
        let mut newest = self.opened.events.newest();
        within_bound(newest.wait_for(|newest| *newest >= seq)).await.unwrap();
    }

    /// Waits until so many pages are acknowledged; the last.
    async fn acknowledges(&self, pages: usize) -> u64 {
        let acknowledged = async {
            loop {
                if let Some(last) = self.taken.lock().unwrap().get(pages - 1) {
                    return *last;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within_bound(acknowledged).await
    }

    /// Ends the journal and waits until its file is closed.
    async fn close(self) {
        drop(self.opened.journal);
        within_bound(self.opened.end.wait()).await.unwrap();
    }
}

fn begin_ms() -> u64 {
    sample::wall(0).as_millisecond() as u64
}

fn relayed(seq: u64, kind: EventKind) -> RelayedEvent {
    RelayedEvent {
        id: EventId::generate(),
        seq,
        at: sample::wall(seq),
        kind,
        owner: None,
        lease: None,
        payload: json!({ "requester": "local" }).as_object().unwrap().clone(),
    }
}

fn about(kind: EventKind, request: usize) -> Event {
    Event::new(kind).about(&sample::text("ci/job-17")).with("requestId", sample::request(request).as_str())
}

fn requested(request: usize) -> Event {
    let spec = json!({ "resourceId": "board" });
    about(EventKind::LeaseRequested, request).with("requestSpec", spec)
}

fn worker(name: &str) -> NodeName {
    sample::text(name)
}

#[tokio::test]
async fn what_was_appended_is_read_back_in_its_order_also_by_the_next_run() {
    let file = File::new();
    let open = file.open();
    assert_eq!(open.newest(), begin_ms() - 1, "a new log begins at the Unix time in ms");
    open.append(Event::new(EventKind::NodeStarted).with("version", "1"));
    open.append(requested(1));
    open.relay("rack-1", &[&relayed(7, EventKind::LeaseExpired)]);
    open.append(Event::new(EventKind::NodeStopping));
    open.close().await;

    let open = file.open_at(sample::at(1));
    assert_eq!(open.newest(), begin_ms() + 3);
    let all = open.read(&ALL).await;
    let seqs: Vec<u64> = all.iter().map(|event| event.seq - begin_ms()).collect();
    assert_eq!(seqs, [0, 1, 2, 3]);
    use EventKind::{LeaseExpired, LeaseRequested, NodeStarted, NodeStopping};
    assert_eq!(open.kinds().await, [NodeStarted, LeaseRequested, LeaseExpired, NodeStopping]);
    let whose: Vec<_> = all.iter().map(|event| event.worker.as_ref().map(NodeName::as_str)).collect();
    assert_eq!(whose, [None, None, Some("rack-1"), None]);
    assert_eq!(all[2].at, sample::wall(7), "it keeps the time at which it happened");
    assert_eq!(open.opened.past.last_own, Some(sample::wall(0)));
    let of_ci = EventFilter { owner: Some(sample::text("ci")), ..EventFilter::default() };
    assert_eq!(open.read(&of_ci).await.len(), 1);
}

#[tokio::test]
async fn every_run_has_a_greater_number_than_the_last_whatever_the_clock_says() {
    let file = File::new();
    let mut last = 0;
    for (ms, least) in [(5_000, begin_ms() + 5_000), (0, 0), (0, 0), (90_000, begin_ms() + 90_000)] {
        let open = file.open_at(sample::at(ms));
        let incarnation = open.opened.past.incarnation;
        assert!(incarnation > last && incarnation >= least, "{incarnation} after {last}");
        last = incarnation;
        open.close().await;
    }
}

#[tokio::test]
async fn a_relayed_event_is_stored_once_and_acknowledged_each_time() {
    let file = File::new();
    let open = file.open();
    let [one, two, three] = [11, 12, 13].map(|seq| relayed(seq, EventKind::LeaseRenewed));
    open.relay("rack-1", &[&one, &two]);
    open.relay("rack-1", &[&one, &two]);
    open.relay("rack-1", &[&two, &three]);
    assert_eq!(open.acknowledges(3).await, 13);
    assert_eq!(open.opened.relays.after(&worker("rack-1")), Some(13));
    assert_eq!(open.opened.relays.after(&worker("rack-2")), None);
    // A worker that has read of another's events does not take their place.
    open.relay("rack-2", &[&one]);
    open.acknowledges(4).await;
    open.close().await;
    let open = file.open();
    let ids: Vec<EventId> = open.read(&ALL).await.into_iter().map(|event| event.id).collect();
    assert_eq!(ids, [one.id, two.id, three.id]);
    assert_eq!(open.read(&ALL).await[0].worker, Some(worker("rack-1")));
    assert_eq!(open.opened.relays.after(&worker("rack-1")), Some(13), "and known to the next run");
}

#[tokio::test]
async fn a_page_of_which_nothing_is_kept_moves_its_worker_on_and_a_new_log_of_it_back() {
    let file = File::new();
    let open = file.open();
    let page = RelayedPage { worker: worker("rack-1"), upto: 40, events: vec![] };
    open.opened.journal.relay(page, sample::wall(0), |_| ()).unwrap();
    open.relay("rack-1", &[&relayed(3, EventKind::NodeStarted)]);
    open.acknowledges(1).await;
    assert_eq!(open.opened.relays.after(&worker("rack-1")), Some(3));
}

#[tokio::test]
async fn a_request_begins_once_and_ends_once_and_those_without_an_end_are_known_to_the_next_run() {
    let file = File::new();
    let open = file.open();
    for request in [1, 2, 3] {
        open.append(requested(request));
    }
    open.append(about(EventKind::RequestDispatched, 2).with("worker", "rack-1"));
    open.append(about(EventKind::RequestGranted, 1));
    open.append(about(EventKind::LeaseRejected, 1));
    // One that was refused by the checks has an end alone.
    open.append(about(EventKind::LeaseRejected, 4));
    open.close().await;

    let open = file.open();
    let left: Vec<_> = open.opened.past.open.iter().map(|open| (&open.id, open.worker.clone())).collect();
    assert_eq!(left, [(&sample::request(2), Some(worker("rack-1"))), (&sample::request(3), None)]);
    let first = &open.opened.past.open[0];
    assert_eq!((first.requester.to_string().as_str(), &first.spec["resourceId"]), ("ci/job-17", &json!("board")));
    let end = || about(EventKind::RequestGranted, 2);
    for _ in 0..2 {
        open.opened.journal.append_if_untold(end(), sample::wall(0)).unwrap();
    }
    open.opened.journal.append_if_untold(about(EventKind::LeaseRejected, 3), sample::wall(0)).unwrap();
    open.close().await;

    let open = file.open();
    assert_eq!(open.opened.past.open, []);
    use EventKind::{LeaseRejected, LeaseRequested, RequestDispatched, RequestGranted};
    let told = [
        [LeaseRequested; 3].as_slice(),
        &[RequestDispatched, RequestGranted, LeaseRejected, RequestGranted, LeaseRejected],
    ];
    assert_eq!(open.kinds().await, told.concat());
}

/// What a process that is killed leaves behind: the files as they are while it runs.
fn as_a_kill_leaves(file: &File) -> File {
    let left = File::new();
    for end in ["", "-wal"] {
        let named = |path: &Path| PathBuf::from(format!("{}{end}", path.display()));
        std::fs::copy(named(&file.path()), named(&left.path())).unwrap();
    }
    left
}

#[tokio::test]
async fn what_a_reader_has_seen_survives_a_kill() {
    let file = File::new();
    let open = file.open();
    open.append(requested(1));
    open.relay("rack-1", &[&relayed(9, EventKind::LeaseExpired)]);
    open.acknowledges(1).await;
    open.reaches(begin_ms() + 1).await;
    let left = as_a_kill_leaves(&file);
    let again = left.open();
    assert_eq!(again.kinds().await, [EventKind::LeaseRequested, EventKind::LeaseExpired]);
    assert_eq!(again.opened.past.open.len(), 1);
    assert_eq!(again.opened.relays.after(&worker("rack-1")), Some(9));
    open.close().await;
}

#[tokio::test]
async fn the_oldest_go_by_the_gateways_time_and_by_their_number() {
    let file = File::new();
    let open = file.open();
    let mut of_the_future = relayed(1, EventKind::NodeStarted);
    of_the_future.at = sample::wall(1_000_000_000);
    open.relay("rack-1", &[&of_the_future]);
    for ms in [1_000, 2_000, 3_000, 4_000] {
        let event = Event::new(EventKind::InvariantViolated).with("detail", ms.to_string());
        open.opened.journal.append(event, sample::wall(ms)).unwrap();
    }
    open.reaches(begin_ms() + 4).await;
    open.opened.journal.prune(sample::wall(2_000), 100).unwrap();
    open.append(about(EventKind::LeaseRejected, 1));
    open.reaches(begin_ms() + 5).await;
    let left = |events: Vec<EventRecord>| events.iter().map(|event| event.seq - begin_ms()).collect::<Vec<_>>();
    assert_eq!(left(open.read(&ALL).await), [2, 3, 4, 5], "what a worker says of the time does not count");
    open.opened.journal.prune(sample::wall(0), 2).unwrap();
    open.close().await;
    let open = file.open();
    assert_eq!(left(open.read(&ALL).await), [4, 5]);
    open.append(Event::new(EventKind::NodeStopping));
    open.reaches(begin_ms() + 6).await;
}

#[tokio::test]
async fn a_disk_that_does_not_take_a_group_has_it_later_and_nothing_is_lost() {
    let file = File::new();
    let open = file.open();
    let foreign = rusqlite::Connection::open(file.path()).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    for request in 1..=50 {
        open.append(requested(request));
    }
    open.relay("rack-1", &[&relayed(9, EventKind::LeaseExpired)]);
    // Longer than a connection waits for a lock.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(open.newest(), begin_ms() - 1);
    assert!(open.taken.lock().unwrap().is_empty(), "what is not durable is not acknowledged");
    foreign.execute_batch("ROLLBACK").unwrap();
    drop(foreign);
    assert_eq!(open.acknowledges(1).await, 9);
    assert_eq!(open.newest(), begin_ms() + 50);
    assert_eq!(open.read(&ALL).await.len(), 51);
    open.close().await;
}

#[tokio::test]
async fn a_journal_of_a_newer_berth_is_refused() {
    let file = File::new();
    file.open().close().await;
    rusqlite::Connection::open(file.path()).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Journal::open(&file.path(), sample::at(0)).unwrap_err();
    assert!(matches!(error, OpenError::TooNew { found: 99, .. }), "{error}");
}
