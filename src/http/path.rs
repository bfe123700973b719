//! The id in a path.

use std::str::FromStr;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::answer::Problem;
use crate::model::{BookingId, HoldId, InvalidId, LeaseId, NodeName, Refusal, RequestId, ResourceAddress, TokenId};

/// What may stand for `{id}` in a route.
pub(super) trait PathId: FromStr<Err = InvalidId> {
    /// What a refusal calls it.
    const FIELD: &'static str;
}

impl PathId for ResourceAddress {
    const FIELD: &'static str = "resourceId";
}

impl PathId for LeaseId {
    const FIELD: &'static str = "leaseId";
}

impl PathId for RequestId {
    const FIELD: &'static str = "requestId";
}

impl PathId for BookingId {
    const FIELD: &'static str = "bookingId";
}

impl PathId for HoldId {
    const FIELD: &'static str = "holdId";
}

impl PathId for NodeName {
    const FIELD: &'static str = "name";
}

impl PathId for TokenId {
    const FIELD: &'static str = "tokenId";
}

/// The id in the path; one that cannot exist is `BAD_REQUEST`.
pub(super) struct Id<T>(pub T);

impl<S: Send + Sync, T: PathId> FromRequestParts<S> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|_| Refusal::bad_field(T::FIELD, "is not UTF-8"))?;
        Ok(Self(text.parse().map_err(|error| Refusal::bad_field(T::FIELD, error))?))
    }
}
