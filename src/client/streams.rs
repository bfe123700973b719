//! What a node tells as it happens (SPEC §12, §13): the event log, one lease request, one lease.
//!
//! A stream that ends without its last event was cut off. Whoever wants to go on opens it anew; where events have
//! numbers, after [`EventStream::last_seq`], so that none is missed and none is told twice.

use jiff::Timestamp;
use reqwest::Method;
use reqwest::header::ACCEPT;
use serde::Deserialize;

use super::messages::{Message, Messages};
use super::{Client, ClientError};
use crate::model::time::instant_option;
use crate::model::{EventKind, LeaseId, RequestId, Ticket, WaitingFor};
use crate::service::views::{EventView, RequestView};

/// Events of a node as they come.
pub struct EventStream<T> {
    client: Client,
    messages: Messages,
    /// None for an event that only a newer version knows.
    read: fn(&Message) -> serde_json::Result<Option<T>>,
}

/// What is told of a lease request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestNews {
    /// It waits.
    Waiting(Place),
    /// It is settled, and this is the last that is told.
    Settled(Box<RequestView>),
}

/// Where a waiting request stands.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Its place, from 1.
    #[serde(default)]
    pub position: Option<usize>,
    /// Why nothing moves.
    #[serde(default)]
    pub waiting_for: Option<WaitingFor>,
    /// Until when that lasts at the latest.
    #[serde(default, with = "instant_option")]
    pub until: Option<Timestamp>,
    /// The place in line, for a node that is restarted meanwhile.
    #[serde(default)]
    pub ticket: Option<Ticket>,
}

/// What is told of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum LeaseNews {
    /// Its deadline moved.
    Renewed,
    /// It is over, and this is the last that is told.
    Lost {
        /// Why.
        reason: String,
    },
}

impl<T> EventStream<T> {
    /// The next event; none when the node has ended the stream.
    ///
    /// # Errors
    /// The connection broke, nothing was heard for 45 s, or what came is not the contract.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        while let Some(message) = self.messages.next().await? {
            if let Some(event) = (self.read)(&message).map_err(|error| self.client.bad_answer(error))? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The number to resume after. A node says one before the first event.
    pub fn last_seq(&self) -> Option<u64> {
        self.messages.last_id()
    }
}

/// Each errs with a [`ClientError`], as the calls do.
impl Client {
    /// The event log after `after`, or from now on; of one kind only, if one is given.
    pub async fn event_stream(
        &self,
        after: Option<u64>,
        event: Option<EventKind>,
    ) -> Result<EventStream<EventView>, ClientError> {
        let read = |message: &Message| match message.event.parse::<EventKind>() {
            Ok(_) => serde_json::from_str(&message.data).map(Some),
            Err(_) => Ok(None),
        };
        let query: Vec<(&str, &str)> = event.iter().map(|kind| ("event", kind.as_str())).collect();
        self.stream(&["events", "stream"], &query, after, read).await
    }

    /// Where a lease request stands, and how it ends.
    pub async fn request_events(&self, id: &RequestId) -> Result<EventStream<RequestNews>, ClientError> {
        let read = |Message { event, data }: &Message| match event.as_str() {
            "waiting" => serde_json::from_str(data).map(|place| Some(RequestNews::Waiting(place))),
            "granted" | "failed" | "cancelled" => {
                serde_json::from_str(data).map(|request| Some(RequestNews::Settled(Box::new(request))))
            }
            _ => Ok(None),
        };
        self.stream(&["lease-requests", id.as_str(), "events"], &[], None, read).await
    }

    /// What happens to a lease after `after`, or from now on.
    pub async fn lease_events(&self, id: &LeaseId, after: Option<u64>) -> Result<EventStream<LeaseNews>, ClientError> {
        #[derive(Deserialize)]
        struct Lost {
            reason: String,
        }
        let read = |Message { event, data }: &Message| match event.as_str() {
            "renewed" => Ok(Some(LeaseNews::Renewed)),
            "lost" => serde_json::from_str(data).map(|Lost { reason }| Some(LeaseNews::Lost { reason })),
            _ => Ok(None),
        };
        self.stream(&["leases", id.as_str(), "events"], &[], after, read).await
    }

    async fn stream<T>(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
        after: Option<u64>,
        read: fn(&Message) -> serde_json::Result<Option<T>>,
    ) -> Result<EventStream<T>, ClientError> {
        let mut question = self.endless(Method::GET, segments).header(ACCEPT, "text/event-stream").query(query);
        if let Some(after) = after {
            question = question.header("Last-Event-ID", after);
        }
        let response = self.open(question).await?;
        let messages = Messages::new(self.clone(), response, after);
        Ok(EventStream { client: self.clone(), messages, read })
    }
}
