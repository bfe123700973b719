//! The event log: a page of it, and what happens as it happens (SPEC §10).

use axum::Extension;
use axum::extract::State;
use axum::response::sse::Event;

use super::answer::{Answer, ok};
use super::log::{LogReader, newest};
use super::query::Params;
use super::router::Front;
use super::stream::{Feed, Opening, Resumed, Seq, told};
use crate::model::{Caller, Refusal};
use crate::service::ask::EventQuery;
use crate::service::views::EventView;

/// Events of one page when the caller does not say.
const LIMIT_DEFAULT: usize = 100;
/// Events of one page at most.
const LIMIT_MAX: usize = 1_000;

/// `GET /v1/events?after=&limit=&event=`.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>, params: Params) -> Answer {
    let Seq(after) = params.get("after")?.unwrap_or(Seq(0));
    let limit = params.get("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Refusal::bad_field("limit", format!("1 to {LIMIT_MAX}; read on with after=<lastSeq>")).into());
    }
    let query = EventQuery { after, limit, event: params.get("event")?, lease: None };
    Ok(ok(&front.app.coordinator.events(&caller, &query, std::time::Duration::ZERO).await?))
}

/// `GET /v1/events/stream?after=&event=`: after `Last-Event-ID`, else after `after`, else from now on.
pub(super) async fn stream(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    params: Params,
    Resumed(resumed): Resumed,
    opening: Opening,
) -> Answer {
    let query = EventQuery { event: params.get("event")?, ..EventQuery::default() };
    let after: Option<Seq> = params.get("after")?;
    let after = match resumed.or(after) {
        Some(after) => after,
        None => newest(&*front.app.coordinator, &caller).await?,
    };
    let log = LogReader::new(&front, caller, after, query);
    Ok(opening.serve(Everything { log, begun: false }))
}

/// The log as it grows.
struct Everything {
    log: LogReader,
    begun: bool,
}

impl Feed for Everything {
    async fn next(&mut self) -> Option<Vec<Event>> {
        if !self.begun {
            self.begun = true;
            return Some(vec![start(&self.log)]);
        }
        self.log.wait().await.ok()?.iter().map(shown).collect()
    }
}

/// The first thing that a stream of numbered events says: a number without an event. A client that is cut off before
/// anything has happened knows so where to go on.
pub(super) fn start(log: &LogReader) -> Event {
    Event::default().id(log.after().to_string())
}

fn shown(view: &EventView) -> Option<Event> {
    Some(told(view.event.as_str(), view)?.id(view.seq.to_string()))
}
