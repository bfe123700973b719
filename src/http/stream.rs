//! What the streams of server-sent events have in common (SPEC §12).
//!
//! A stream ends when its subject does, when the node stops, when the token that opened it is revoked, and when its
//! client goes. While it is open it is a request that is served, and a comment every 15 s keeps the connection alive.
//! It never ends with an error: a client that is cut off opens it anew, with `Last-Event-ID` where events have numbers,
//! and is told then.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::CACHE_CONTROL;
use axum::http::request::Parts;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::answer::Problem;
use super::door::Shown;
use super::headers::header;
use super::router::{Front, Permit};
use super::server::Connected;
use crate::model::{Code, Refusal};
use crate::trust::Tokens;

/// Between two comments of a stream on which nothing happens.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often the token of an open stream is looked up.
const TOKEN_CHECK: Duration = Duration::from_secs(1);

/// Where a stream's events come from.
pub(super) trait Feed: Send + 'static {
    /// What comes next, after a bounded wait and perhaps nothing yet. None: that was all.
    fn next(&mut self) -> impl Future<Output = Option<Vec<Event>>> + Send;
}

/// What a stream holds on to as long as it is open.
pub(super) struct Opening {
    _permit: Option<Permit>,
    _connected: Option<Connected>,
    shown: Shown,
    tokens: Arc<Tokens>,
    stopping: CancellationToken,
}

impl FromRequestParts<Front> for Opening {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, front: &Front) -> Result<Self, Infallible> {
        Ok(Self {
            _permit: parts.extensions.get().cloned(),
            _connected: parts.extensions.get().cloned(),
            shown: parts.extensions.get().cloned().unwrap_or_default(),
            tokens: Arc::clone(&front.app.tokens),
            stopping: front.stopping.clone(),
        })
    }
}

impl Opening {
    /// The answer that streams what `feed` has.
    pub fn serve(self, feed: impl Feed) -> Response {
        let open = Open { opening: self, feed, queued: VecDeque::new() };
        let events = stream::unfold(open, Open::step);
        let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// Waits until there is a reason to end, and says which.
    pub async fn over(&self) -> Refusal {
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => Refusal::new(Code::Stopping, "this node is going down; ask again when it is back"),
            () = self.revoked() => Refusal::new(Code::Unauthenticated, "the token was revoked; ask an admin for a new one"),
        }
    }

    /// Waits until the token that opened the stream is none any more.
    async fn revoked(&self) {
        while self.shown.holds(&self.tokens) {
            tokio::time::sleep(TOKEN_CHECK).await;
        }
    }
}

struct Open<F> {
    opening: Opening,
    feed: F,
    queued: VecDeque<Event>,
}

impl<F: Feed> Open<F> {
    async fn step(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        loop {
            if let Some(event) = self.queued.pop_front() {
                return Some((Ok(event), self));
            }
            let more = tokio::select! {
                biased;
                _ = self.opening.over() => None,
                more = self.feed.next() => more,
            };
            self.queued.extend(more?);
        }
    }
}

/// An event whose data is `value`; none when it cannot be written, which is a fault.
pub(super) fn told(event: &str, value: &impl Serialize) -> Option<Event> {
    match serde_json::to_string(value) {
        Ok(data) => Some(Event::default().event(event).data(data)),
        Err(error) => {
            tracing::error!(%error, event, "an event cannot be written as JSON");
            None
        }
    }
}

/// The number of an event in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seq(pub u64);

impl Seq {
    /// The largest that a log can have: its numbers are stored with a sign.
    pub const MAX: Seq = Seq(i64::MAX as u64);
}

impl FromStr for Seq {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && *number <= Seq::MAX.0);
        number.map(Seq).ok_or("must be the whole number that an event has as its seq")
    }
}

/// The header `Last-Event-ID`: the last event that the client has seen of this stream.
pub(super) struct Resumed(pub Option<Seq>);

impl<S: Sync> FromRequestParts<S> for Resumed {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(header(&parts.headers, "Last-Event-ID")?))
    }
}
