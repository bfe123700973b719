//! Where one lease request stands, as it changes (SPEC §13): `waiting` with its place, then `granted`, `failed` or
//! `cancelled`, and with that the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::Event;
use jiff::Timestamp;
use serde::Serialize;

use super::answer::Answer;
use super::path::Id;
use super::requests::shown;
use super::router::Front;
use super::stream::{Feed, Opening, told};
use crate::model::time::instant_option;
use crate::model::{Caller, RequestId, Ticket, WaitingFor};
use crate::service::Coordinator;
use crate::service::views::{RequestState, RequestView};

/// A place is told at most so often (SPEC §2).
const PACE: Duration = Duration::from_secs(1);

/// `GET /v1/lease-requests/{id}/events`: the current state first.
pub(super) async fn stream(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<RequestId>,
    opening: Opening,
) -> Answer {
    let coordinator = Arc::clone(&front.app.coordinator);
    let first = coordinator.lease_request(&caller, &id, Duration::ZERO).await?;
    Ok(opening.serve(OneRequest { coordinator, caller, id, first: Some(first), told: None, over: false }))
}

/// Data of `waiting`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Place {
    position: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<WaitingFor>,
    #[serde(with = "instant_option", skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<Ticket>,
}

impl Place {
    /// True when a client would want to hear of `other` after this one. A deadline is computed anew each time and
    /// trembles, and a ticket of the same place is as good as the other.
    fn differs(&self, other: &Place) -> bool {
        let moved = match (self.until, other.until) {
            (Some(was), Some(is)) => was.duration_since(is).unsigned_abs() >= PACE,
            (was, is) => was != is,
        };
        moved
            || (self.position, self.waiting_for) != (other.position, other.waiting_for)
            || self.ticket.is_some() != other.ticket.is_some()
    }
}

struct OneRequest {
    coordinator: Arc<dyn Coordinator>,
    caller: Caller,
    id: RequestId,
    first: Option<RequestView>,
    told: Option<Place>,
    over: bool,
}

impl Feed for OneRequest {
    async fn next(&mut self) -> Option<Vec<Event>> {
        if self.over {
            return None;
        }
        let request = match self.first.take() {
            Some(request) => request,
            None => self.look().await?,
        };
        let word = match request.state {
            RequestState::Waiting => return self.place(request),
            RequestState::Granted => "granted",
            RequestState::Failed => "failed",
            RequestState::Cancelled => "cancelled",
        };
        self.over = true;
        Some(vec![told(word, &shown(request))?])
    }
}

impl OneRequest {
    /// The request once it is settled, else how it stands after a second.
    async fn look(&self) -> Option<RequestView> {
        let paced = tokio::time::sleep(PACE);
        let request = self.coordinator.lease_request(&self.caller, &self.id, PACE).await.ok()?;
        if request.state == RequestState::Waiting {
            paced.await;
        }
        Some(request)
    }

    fn place(&mut self, request: RequestView) -> Option<Vec<Event>> {
        let RequestView { position, waiting_for, until, ticket, .. } = request;
        let place = Place { position, waiting_for, until, ticket };
        if self.told.as_ref().is_some_and(|told| !told.differs(&place)) {
            return Some(Vec::new());
        }
        let event = told("waiting", &place)?;
        self.told = Some(place);
        Some(vec![event])
    }
}
