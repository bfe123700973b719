//! The event log, read on and on (SPEC §10).

use std::sync::Arc;
use std::time::Duration;

use super::router::Front;
use super::stream::Seq;
use crate::model::{Caller, Refusal};
use crate::service::Coordinator;
use crate::service::answers::Events;
use crate::service::ask::EventQuery;
use crate::service::views::EventView;

/// Events that a stream reads at once.
const BATCH: usize = 100;
/// How long one reading waits for something to happen.
const ROUND: Duration = Duration::from_secs(5);
/// The pause after a reading without events, for a log that does not wait.
const PAUSE: Duration = Duration::from_millis(100);

/// A place in the log from which a stream reads on.
pub(super) struct LogReader {
    coordinator: Arc<dyn Coordinator>,
    caller: Caller,
    query: EventQuery,
}

impl LogReader {
    /// Reads what comes after `after`.
    pub fn new(front: &Front, caller: Caller, Seq(after): Seq, query: EventQuery) -> Self {
        let query = EventQuery { after, limit: BATCH, ..query };
        Self { coordinator: Arc::clone(&front.app.coordinator), caller, query }
    }

    /// The number that a client would resume after.
    pub fn after(&self) -> u64 {
        self.query.after
    }

    /// The next events; waits a few seconds for one, so it may be none.
    ///
    /// # Errors
    /// As [`Coordinator::events`].
    pub async fn wait(&mut self) -> Result<Vec<EventView>, Refusal> {
        let events = self.read(ROUND).await?;
        if events.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(events)
    }

    /// What is there already.
    ///
    /// # Errors
    /// As [`Coordinator::events`].
    pub async fn rest(&mut self) -> Result<Vec<EventView>, Refusal> {
        self.read(Duration::ZERO).await
    }

    async fn read(&mut self, wait: Duration) -> Result<Vec<EventView>, Refusal> {
        let Events { events, last_seq } = self.coordinator.events(&self.caller, &self.query, wait).await?;
        // Never back: a client may resume after a number that the log has not reached yet.
        self.query.after = self.query.after.max(last_seq);
        Ok(events)
    }
}

/// The number of the newest event.
///
/// # Errors
/// As [`Coordinator::events`].
pub(super) async fn newest(coordinator: &dyn Coordinator, caller: &Caller) -> Result<Seq, Refusal> {
    let beyond = EventQuery { after: Seq::MAX.0, limit: 1, ..EventQuery::default() };
    let Events { last_seq, .. } = coordinator.events(caller, &beyond, Duration::ZERO).await?;
    Ok(Seq(last_seq))
}
