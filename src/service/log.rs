//! The event log as its readers see it: one rule for hosts and gateways (SPEC §10).

use std::time::Duration;

use super::answers::Events;
use super::ask::EventQuery;
use super::views::EventView;
use crate::model::{Caller, NodeName, Refusal, Role};
use crate::store::{EventFilter, EventLog, EventRecord, ReadError};

/// The events in the log of `node` that the caller may read; where there is none yet, waits up to `wait` for one.
///
/// # Errors
/// `INTERNAL` when the log cannot be read.
pub(super) async fn events(
    log: &EventLog,
    node: &NodeName,
    caller: &Caller,
    query: &EventQuery,
    wait: Duration,
) -> Result<Events, Refusal> {
    let filter = EventFilter {
        owner: (caller.role == Role::Agent).then(|| caller.principal.clone()),
        private: caller.role == Role::Admin,
        kind: query.event,
        lease: query.lease.clone(),
    };
    let mut newest = log.newest();
    // How far the log has been looked at; what comes while the time runs out is for the next call.
    let mut looked_at = query.after;
    let waiting = async {
        loop {
            let last = *newest.borrow_and_update();
            let found = log.read(query.after, query.limit, &filter).await.map_err(unreadable)?;
            let last_read = found.last().map_or(0, |event| event.seq);
            // What the filter leaves out was looked at too, unless the page is full.
            let last_seq = if found.len() >= query.limit { last_read } else { last.max(last_read) };
            looked_at = last_seq;
            if !found.is_empty() || wait.is_zero() || newest.changed().await.is_err() {
                let events = found.into_iter().map(|event| shown(event, node)).collect();
                return Ok(Events { events, last_seq });
            }
        }
    };
    if wait.is_zero() {
        return waiting.await;
    }
    match tokio::time::timeout(wait, waiting).await {
        Ok(events) => events,
        Err(_) => Ok(Events { events: Vec::new(), last_seq: looked_at }),
    }
}

fn shown(event: EventRecord, node: &NodeName) -> EventView {
    let EventRecord { id, seq, at, kind, owner: _, worker, payload } = event;
    EventView { id, seq, timestamp: at, event: kind, payload, node: node.clone(), worker_id: worker }
}

fn unreadable(error: ReadError) -> Refusal {
    tracing::error!(%error, "the events cannot be read");
    Refusal::internal("the events cannot be read")
}
