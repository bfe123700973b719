//! What happens to one lease, for its holder (SPEC §13): `renewed`, and at the end `lost` with the reason.
//!
//! It is made of the event log. The newest number is taken before the lease is looked up, so an end in between is in
//! what is read. Every few quiet seconds the lease is looked up again, for a node whose log does not have its end.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::Event;
use serde_json::{Value, json};

use super::answer::Answer;
use super::events::start;
use super::log::{LogReader, newest};
use super::path::Id;
use super::router::Front;
use super::stream::{Feed, Opening, Resumed, told};
use crate::model::{Caller, Code, EventKind, Fence, LeaseId, NodeName, Refusal};
use crate::service::Coordinator;
use crate::service::ask::EventQuery;
use crate::service::views::EventView;

/// `GET /v1/leases/{id}/events`. A client that comes back after the end is still told how it ended, as long as the log
/// has it.
pub(super) async fn stream(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(lease): Id<LeaseId>,
    Resumed(resumed): Resumed,
    opening: Opening,
) -> Answer {
    let coordinator = Arc::clone(&front.app.coordinator);
    let newest = newest(&*coordinator, &caller).await?;
    let query = EventQuery { lease: Some(lease.clone()), ..EventQuery::default() };
    let after = resumed.unwrap_or(newest);
    let (fence, worker) = match coordinator.lease(&caller, &lease).await {
        Ok(view) => (resumed.is_none().then_some(view.fence), view.worker.map(|worker| worker.id)),
        Err(refusal) if resumed.is_some() && is_over(&refusal) => {
            let mut since = LogReader::new(&front, caller.clone(), after, query.clone());
            if since.rest().await?.is_empty() {
                return Err(refusal.into());
            }
            (None, None)
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let log = LogReader::new(&front, caller.clone(), after, query);
    Ok(opening.serve(OneLease { log, coordinator, caller, lease, worker, fence, begun: false, over: false }))
}

struct OneLease {
    log: LogReader,
    coordinator: Arc<dyn Coordinator>,
    caller: Caller,
    lease: LeaseId,
    /// The worker that has it, where this is a gateway.
    worker: Option<NodeName>,
    /// The grant that is watched. None when it is not known which of those that had the id it was: then the first end
    /// in the log is its own.
    fence: Option<Fence>,
    begun: bool,
    over: bool,
}

impl Feed for OneLease {
    async fn next(&mut self) -> Option<Vec<Event>> {
        if self.over {
            return None;
        }
        if !self.begun {
            self.begun = true;
            return Some(vec![start(&self.log)]);
        }
        let mut events = self.log.wait().await.ok()?;
        if events.is_empty()
            && let Some(reason) = self.ended().await
        {
            events = self.log.rest().await.ok()?;
            let mut told = self.tell(&events)?;
            if !self.over {
                told.push(lost(&reason)?);
                self.over = true;
            }
            return Some(told);
        }
        self.tell(&events)
    }
}

impl OneLease {
    /// What the holder is told of `events`, up to the end of the lease.
    fn tell(&mut self, events: &[EventView]) -> Option<Vec<Event>> {
        let mut all = Vec::new();
        for view in events {
            let event = match view.event {
                _ if self.is_of_another_grant(view) => continue,
                EventKind::LeaseRenewed => told("renewed", &view.payload)?,
                // Its device fails, or is as it should be again: `device_unhealthy`, `device_recovered`.
                EventKind::ResourceStateChanged => match view.payload.get("device").and_then(Value::as_str) {
                    Some(word) => told(word, &view.payload)?,
                    None => continue,
                },
                EventKind::LeaseReleased => {
                    self.over = true;
                    lost(view.payload.get("reason").unwrap_or(&Value::Null))?
                }
                EventKind::LeaseExpired => {
                    self.over = true;
                    lost(&json!("expired"))?
                }
                _ => continue,
            };
            all.push(event.id(view.seq.to_string()));
            if self.over {
                break;
            }
        }
        Some(all)
    }

    fn is_of_another_grant(&self, view: &EventView) -> bool {
        let said = view.payload.get("fence").and_then(Value::as_u64);
        // One worker does not speak for another, though its lease may have the same id.
        let elsewhere = self.worker.is_some() && view.worker_id != self.worker;
        elsewhere || matches!((self.fence, said), (Some(Fence(watched)), Some(said)) if watched != said)
    }

    /// Why the lease is over, as far as that is known; none while it is active or nobody knows.
    async fn ended(&self) -> Option<Value> {
        match self.coordinator.lease(&self.caller, &self.lease).await {
            Ok(view) => self.fence.is_some_and(|watched| watched != view.fence).then_some(Value::Null),
            Err(refusal) if is_over(&refusal) => {
                let reason = refusal.details.as_ref().and_then(|details| details.get("reason"));
                Some(reason.cloned().unwrap_or_default())
            }
            Err(_) => None,
        }
    }
}

/// True when it is sure that there is no such lease: a gateway that is still rebuilding does not know yet.
fn is_over(refusal: &Refusal) -> bool {
    let rebuilding = refusal.details.as_ref().and_then(|details| details.get("rebuilding"));
    refusal.code == Code::UnknownLease && rebuilding != Some(&Value::Bool(true))
}

fn lost(reason: &Value) -> Option<Event> {
    let known = reason.as_str().unwrap_or("unknown");
    told("lost", &json!({ "reason": known }))
}
