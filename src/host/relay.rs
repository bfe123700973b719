//! The worker's events on their way to the gateway ([`wire::events`](crate::wire::events) is the conversation).
//!
//! A task of its own reads the log behind what the gateway has stored and lays one page ready at a time, the next only when
//! the one before is acknowledged. So reports never wait for the log, and a page is never read twice.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::limits::{EVENT_PAYLOAD_BYTES_MAX, EVENTS_PER_PAGE_MAX};
use crate::model::Requester;
use crate::store::{EventFilter, EventLog, EventRecord};
use crate::wire::events::{EventRow, EventsPage};

/// The pause after a log that could not be read.
const AGAIN: Duration = Duration::from_secs(5);

/// The relay of one link; it ends with it.
#[derive(Debug)]
pub(super) struct Relay {
    pages: mpsc::Receiver<EventsPage>,
    taken: mpsc::Sender<u64>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// Relays what is behind number `after`; none for the whole log.
    pub(super) fn start(log: EventLog, after: Option<u64>) -> Self {
        let (ready, pages) = mpsc::channel(1);
        let (taken, acknowledged) = mpsc::channel(1);
        let task = tokio::spawn(relay(log, after.unwrap_or(0), ready, acknowledged));
        Self { pages, taken, task }
    }

    /// The next page that is to be sent. Nothing is lost when the future is dropped.
    pub(super) async fn page(&mut self) -> EventsPage {
        match self.pages.recv().await {
            Some(page) => page,
            // The log is closed: the node is going down.
            None => std::future::pending().await,
        }
    }

    /// The gateway has stored the events up to this number.
    pub(super) fn taken(&self, seq: u64) {
        // One acknowledgement waits at most, because one page is out at most.
        let _ = self.taken.try_send(seq);
    }
}

async fn relay(log: EventLog, after: u64, ready: mpsc::Sender<EventsPage>, mut acknowledged: mpsc::Receiver<u64>) {
    let everything = EventFilter { private: true, ..EventFilter::default() };
    let mut newest = log.newest();
    // A gateway that knows of later events than there are has those of a log that was lost here.
    let mut after = if after > *newest.borrow() { 0 } else { after };
    loop {
        newest.mark_unchanged();
        match log.read(after, EVENTS_PER_PAGE_MAX, &everything).await {
            Ok(found) if found.is_empty() => {
                if newest.changed().await.is_err() {
                    return;
                }
            }
            Ok(found) => {
                let last = found.last().map_or(after, |event| event.seq);
                if ready.send(EventsPage { events: found.into_iter().map(row).collect() }).await.is_err() {
                    return;
                }
                loop {
                    match acknowledged.recv().await {
                        Some(seq) if seq == last => break,
                        Some(other) => {
                            tracing::warn!(other, last, "the gateway acknowledges other events than were sent")
                        }
                        None => return,
                    }
                }
                after = last;
            }
            Err(error) => {
                tracing::warn!(%error, "the events cannot be read for the gateway; tried again");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn row(event: EventRecord) -> EventRow {
    let EventRecord { id, seq, at, kind, owner, worker: _, payload } = event;
    let named = payload.get("requester").and_then(Value::as_str).and_then(|requester| requester.parse().ok());
    let owner = named.or_else(|| owner.map(|principal| Requester::local(principal, None)));
    EventRow { id, seq, at, event: kind.as_str().to_owned(), owner, payload: bounded(payload) }
}

/// The facts, as far as they are not too long to travel.
fn bounded(payload: Map<String, Value>) -> Map<String, Value> {
    let length = serde_json::to_string(&payload).map_or(usize::MAX, |text| text.len());
    if length <= EVENT_PAYLOAD_BYTES_MAX {
        return payload;
    }
    tracing::warn!(length, "the facts of an event are too long for the gateway, which is told only that");
    let mut short = Map::new();
    short.insert("truncated".to_owned(), json!(true));
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EventId, EventKind};

    fn record(payload: Value) -> EventRecord {
        EventRecord {
            id: EventId::generate(),
            seq: 7,
            at: jiff::Timestamp::UNIX_EPOCH,
            kind: EventKind::LeaseQueued,
            owner: Some("ci".parse().unwrap()),
            worker: None,
            payload: payload.as_object().unwrap().clone(),
        }
    }

    #[test]
    fn whom_an_event_is_about_is_said_in_full_where_its_facts_say_it() {
        let sent = row(record(json!({ "requester": "gw:gateway:ci/job-1" })));
        assert_eq!(sent.owner.unwrap().to_string(), "gw:gateway:ci/job-1");
        assert_eq!(row(record(json!({ "position": 1 }))).owner.unwrap().to_string(), "ci");
    }

    #[test]
    fn facts_that_are_too_long_are_said_to_be_so_and_the_longest_that_fit_go_as_they_are() {
        let facts = |length: usize| {
            let frame = json!({ "detail": "" }).to_string().len();
            let payload = json!({ "detail": "x".repeat(length - frame) });
            assert_eq!(payload.to_string().len(), length);
            payload
        };
        let fits = facts(EVENT_PAYLOAD_BYTES_MAX);
        assert_eq!(Value::Object(row(record(fits.clone())).payload), fits);
        let sent = row(record(facts(EVENT_PAYLOAD_BYTES_MAX + 1)));
        assert_eq!(Value::Object(sent.payload), json!({ "truncated": true }));
    }
}
