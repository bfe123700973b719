//! How an answer is written: JSON for "yes", one shape for every "no".

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::{Code, Refusal};

/// What a handler comes to.
pub(super) type Answer = Result<Response, Problem>;

/// A refusal on its way out.
#[derive(Debug)]
pub(super) struct Problem(pub Refusal);

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: Code,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Map<String, Value>>,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem(Refusal { code, message, details, retry_after }) = self;
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response =
            json(status, &Envelope { error: Error { code, message: &message, details: details.as_ref() } });
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if code == Code::Unauthenticated {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// `status` and `value` as JSON. Every answer is of this moment and some hold secrets, so none is to be stored.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let (status, text) = match serde_json::to_vec(value) {
        Ok(text) => (status, text),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be written as JSON");
            let text = br#"{"error":{"code":"INTERNAL","message":"the answer cannot be written"}}"#;
            (StatusCode::INTERNAL_SERVER_ERROR, text.to_vec())
        }
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// 200 and `value`.
pub(super) fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}
