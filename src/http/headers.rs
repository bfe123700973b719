//! The headers that stand for a field of a body.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::answer::Problem;
use crate::model::Refusal;
use crate::service::ask::Headers;

/// `Berth-Requester` and `Idempotency-Key`.
pub(super) struct Stated(pub Headers);

impl<S: Sync> FromRequestParts<S> for Stated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(Headers {
            requester: header(&parts.headers, "Berth-Requester")?,
            idempotency_key: header(&parts.headers, "Idempotency-Key")?,
        }))
    }
}

/// The header `name`, if it is there.
///
/// # Errors
/// `BAD_REQUEST` naming it, when it is there twice or is no `T`.
pub(super) fn header<T: FromStr<Err: Display>>(headers: &HeaderMap, name: &str) -> Result<Option<T>, Refusal> {
    let mut given = headers.get_all(name).iter();
    let Some(value) = given.next() else {
        return Ok(None);
    };
    if given.next().is_some() {
        return Err(Refusal::bad_field(name, "is there twice; send one"));
    }
    let text = value.to_str().map_err(|_| Refusal::bad_field(name, "must be printable ASCII"))?;
    text.parse().map(Some).map_err(|error| Refusal::bad_field(name, error))
}
