//! Bodies: one JSON object, within its bound, with nothing in it that is not understood.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use super::answer::Problem;
use crate::limits;
use crate::model::{Code, Refusal};

/// How long a body may take to arrive.
const ARRIVAL_BOUND: Duration = Duration::from_secs(30);
/// How much of a body that is too large is read and thrown away. A client that is still writing when the connection
/// closes would lose the answer.
const DISCARDED_BYTES_MAX: usize = 16 * limits::BODY_BYTES_MAX;
/// Serde's words may repeat the client's text; a message shows the beginning.
const MESSAGE_CHARS_MAX: usize = 300;

/// A body that must be there.
pub(super) struct Body<T>(pub T);

/// A body that may be left out; then it is `T`'s default.
pub(super) struct OptionalBody<T>(pub T);

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        match read(request).await? {
            Some(body) => Ok(Self(body)),
            None => Err(Refusal::bad_field("body", "is missing; send a JSON object").into()),
        }
    }
}

impl<S: Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        Ok(Self(read(request).await?.unwrap_or_default()))
    }
}

/// None when the body is empty.
async fn read<T: DeserializeOwned>(request: Request) -> Result<Option<T>, Refusal> {
    let (parts, body) = request.into_parts();
    let arrival = tokio::time::timeout(ARRIVAL_BOUND, collect(&parts.headers, body)).await;
    let bytes = arrival.unwrap_or_else(|_| Err(Refusal::bad_field("body", "did not arrive in time; send it again")))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if !is_json(&parts.headers) {
        let message = "the body must be JSON; send the header Content-Type: application/json";
        return Err(Refusal::new(Code::UnsupportedMediaType, message));
    }
    parse(&bytes).map(Some)
}

async fn collect(headers: &HeaderMap, body: axum::body::Body) -> Result<Vec<u8>, Refusal> {
    let too_large = || {
        let most = limits::BODY_BYTES_MAX;
        Refusal::new(Code::PayloadTooLarge, format!("the body is larger than {most} bytes; send less"))
    };
    let told = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|told| told > DISCARDED_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut seen = 0;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Refusal::bad_field("body", "ended before it was whole; send it again"))?;
        seen += chunk.len();
        if seen > DISCARDED_BYTES_MAX {
            return Err(too_large());
        }
        if seen <= limits::BODY_BYTES_MAX {
            bytes.extend_from_slice(&chunk);
        }
    }
    if seen > limits::BODY_BYTES_MAX { Err(too_large()) } else { Ok(bytes) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return false;
    };
    let kind = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// One JSON object.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // Serde would also take a list, as the fields in their order.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Refusal::bad_field("body", "must be one JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let body = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let why: String = words(error.inner()).chars().take(MESSAGE_CHARS_MAX).collect();
        Refusal::bad_field(&field(&path, &why), why)
    })?;
    json.end().map_err(|_| Refusal::bad_field("body", "has something after its JSON object; send one object"))?;
    Ok(body)
}

/// What is wrong. Where a value is read but refused, its field says where; serde would add a line and a column, and they
/// would stand behind the caret of a selector.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((why, _)) if error.is_data() => why.to_owned(),
        _ => text,
    }
}

/// The field that `why` is about. Of an unknown, a missing or a repeated one the path names the object around it,
/// and serde's words name the field.
fn field(path: &str, why: &str) -> String {
    let path = if path == "." || path == "?" { "" } else { path };
    let inner = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| why.strip_prefix(start)?.split_once('`'))
        .map(|(name, _)| name);
    match (path, inner) {
        ("", None) => "body".to_owned(),
        ("", Some(name)) => name.to_owned(),
        (path, Some(name)) if path != name && !path.ends_with(&format!(".{name}")) => format!("{path}.{name}"),
        (path, _) => path.to_owned(),
    }
}
