//! One question and one answer over HTTP, both bounded.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::messages::Silence;
use super::{ClientError, Endpoint, InvalidEndpoint};
use crate::model::{Refusal, SubName};

/// A call without a bound of its own ends after this long.
const CALL_BOUND: Duration = Duration::from_secs(15);
/// The largest answer that is read: a list of 100 000 resources fits several times.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Talks to one node. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    /// For messages.
    pub(super) name: String,
    requester: Option<SubName>,
    pub(super) bound: Duration,
}

/// The object around every error (SPEC §11).
#[derive(Deserialize)]
struct ErrorBody {
    error: Refusal,
}

/// An answer that was read whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Client {
    /// A client of the node at `endpoint`. Connects with the first call.
    ///
    /// # Errors
    /// The URL or the token can be none, or the machine's certificates cannot be read.
    pub fn new(endpoint: Endpoint) -> Result<Self, InvalidEndpoint> {
        let (base, name, http) = endpoint.open()?;
        Ok(Self { http, base, name, requester: None, bound: CALL_BOUND })
    }

    /// Acts for a sub-requester: the header `Berth-Requester` of every call.
    pub fn acting_for(self, requester: SubName) -> Self {
        Self { requester: Some(requester), ..self }
    }

    /// Ends every call after `bound` that has no bound of its own; 15 s when nothing is said.
    pub fn bounded(self, bound: Duration) -> Self {
        Self { bound, ..self }
    }

    /// A question to `/v1/<segments>`; each segment is percent-encoded, its slashes too.
    pub(super) fn question(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        self.endless(method, segments).timeout(self.bound)
    }

    /// A question whose answer has no end; see [`Self::open`].
    pub(super) fn endless(&self, method: Method, segments: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an HTTP URL has a path").pop_if_empty().push("v1").extend(segments);
        let question = self.http.request(method, url);
        match &self.requester {
            Some(requester) => question.header("Berth-Requester", requester.as_str()),
            None => question,
        }
    }

    /// Asks, and reads the answer as a `T` or as a refusal.
    pub(super) async fn ask<T: DeserializeOwned>(&self, question: RequestBuilder) -> Result<T, ClientError> {
        let answer = self.exchange(question).await?;
        self.judge(answer)
    }

    /// Asks for something whose answer has no body.
    pub(super) async fn done(&self, question: RequestBuilder) -> Result<(), ClientError> {
        let answer = self.exchange(question).await?;
        if answer.status == StatusCode::NO_CONTENT { Ok(()) } else { self.judge::<IgnoredAny>(answer).map(drop) }
    }

    /// Asks for a stream of events; its beginning is bounded, and an answer that is none is a refusal.
    pub(super) async fn open(&self, question: RequestBuilder) -> Result<Response, ClientError> {
        let begun = tokio::time::timeout(self.bound, question.send()).await;
        let mut response = begun.map_err(|_| self.silent(self.bound))?.map_err(|source| self.unanswered(source))?;
        let content = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if response.status().is_success() && content.starts_with("text/event-stream") {
            return Ok(response);
        }
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        if status.is_success() {
            return Err(self.bad_answer("no stream of events came"));
        }
        let body = tokio::time::timeout(self.bound, self.read(response)).await;
        let body = body.map_err(|_| self.silent(self.bound))??;
        match self.judge::<IgnoredAny>(Answer { status, headers, body }) {
            Err(error) => Err(error),
            Ok(_) => Err(self.bad_answer("no stream of events came")),
        }
    }

    /// Asks, and reads the whole answer, whatever its status.
    pub(super) async fn exchange(&self, question: RequestBuilder) -> Result<Answer, ClientError> {
        let mut response = question.send().await.map_err(|source| self.unanswered(source))?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        Ok(Answer { status, headers, body: self.read(response).await? })
    }

    pub(super) fn judge<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, ClientError> {
        let Answer { status, headers, body } = answer;
        if status.is_success() {
            let json = &mut serde_json::Deserializer::from_slice(&body);
            return serde_path_to_error::deserialize(json).map_err(|error| self.bad_answer(error));
        }
        let Ok(ErrorBody { error: mut refusal }) = serde_json::from_slice(&body) else {
            return Err(self.bad_answer(format_args!("status {status} without an error of Berth; is this its URL?")));
        };
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        refusal.retry_after = refusal.retry_after.or(retry_after);
        Err(ClientError::Refused(refusal))
    }

    pub(super) async fn read(&self, mut response: Response) -> Result<Vec<u8>, ClientError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|source| self.unanswered(source))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(self.bad_answer(format_args!("it is larger than {ANSWER_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    pub(super) fn unanswered(&self, source: reqwest::Error) -> ClientError {
        let source = source.without_url();
        let reached = !source.is_connect();
        ClientError::Unanswered { endpoint: self.name.clone(), reached, source: source.into() }
    }

    /// Nothing came for so long.
    pub(super) fn silent(&self, bound: Duration) -> ClientError {
        ClientError::Unanswered { endpoint: self.name.clone(), reached: true, source: Silence(bound).into() }
    }

    pub(super) fn bad_answer(&self, why: impl std::fmt::Display) -> ClientError {
        ClientError::BadAnswer { endpoint: self.name.clone(), why: why.to_string() }
    }
}
