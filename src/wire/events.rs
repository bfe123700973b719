//! A worker's events on their way to the gateway, which stores each once by its id.
//!
//! The worker sends what is in its log behind the number that `Welcome` named, oldest first, in pages of at most
//! [`EVENTS_PER_PAGE_MAX`], and the next page only when [`Control::EventsTaken`](super::report::Control) has come for the
//! one before. So a gap is filled after each time apart, as far back as the worker's log goes. Names in them are the
//! worker's own.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::{EVENT_PAYLOAD_BYTES_MAX, EVENTS_PER_PAGE_MAX, FRAME_BYTES_MAX};
use crate::model::time::micros;
use crate::model::{EventId, Requester};

const _: () = assert!(EVENTS_PER_PAGE_MAX * (EVENT_PAYLOAD_BYTES_MAX + 512) + 16 * 1024 < FRAME_BYTES_MAX);

/// Some events, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventsPage {
    /// At least one.
    pub events: Vec<EventRow>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Its name, the same wherever it is told.
    pub id: EventId,
    /// Its number in the worker's log: grows from event to event, below 2⁶³. A new log starts at the Unix time in ms, so that
    /// it goes on behind one that was lost.
    pub seq: u64,
    /// When it happened.
    #[serde(with = "micros")]
    pub at: Timestamp,
    /// What kind of thing; a gateway ignores a kind that it does not know.
    pub event: String,
    /// Whom it is about.
    pub owner: Option<Requester>,
    /// The facts, at most [`EVENT_PAYLOAD_BYTES_MAX`] as JSON; a longer one is sent with `{"truncated": true}` alone.
    pub payload: Map<String, Value>,
}
