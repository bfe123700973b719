//! Query parameters. A route takes those it names and no others.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::{FromRequestParts, MatchedPath, Query, Request};
use axum::http::request::Parts;
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::Response;

use super::answer::Problem;
use crate::model::Refusal;

/// The parameters of a route; routes that are not here take none.
fn taken(method: &Method, route: &str) -> &'static [&'static str] {
    match (method.as_str(), route) {
        ("GET" | "HEAD", "/v1/resources") => &["select"],
        ("GET" | "HEAD", "/v1/lease-requests/{id}") => &["wait"],
        ("GET" | "HEAD", "/v1/events") => &["after", "limit", "event"],
        ("GET" | "HEAD", "/v1/events/stream") => &["after", "event"],
        ("DELETE", "/v1/leases/{id}") => &["fence"],
        ("GET" | "HEAD", "/v1/bookings" | "/v1/resources/{id}/bookings") => {
            &["from", "to", "status", "mine", "after", "limit"]
        }
        ("DELETE", "/v1/workers/{id}") => &["revoke"],
        ("DELETE", "/v1/bookings/{id}") => &["following"],
        _ => &[],
    }
}

/// Refuses what the route does not take.
pub(super) async fn check(request: Request, next: Next) -> Result<Response, Problem> {
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let known = taken(request.method(), route.as_str());
        for (name, _) in &Params::parse(request.uri())?.0 {
            if !known.contains(&name.as_str()) {
                let shown: String = name.chars().take(80).collect();
                let takes = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Refusal::bad_field(&shown, format!("no such query parameter; this takes {takes}")).into());
            }
        }
    }
    Ok(next.run(request).await)
}

/// The parameters of one request.
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    fn parse(uri: &Uri) -> Result<Self, Refusal> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| Refusal::bad_field("query", "is not name=value&…; encode it as a form"))?;
        Ok(Self(pairs))
    }

    /// The parameter `name`, if it is there.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming it, when it is there twice or is no `T`.
    pub fn get<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let mut given = self.0.iter().filter(|(key, _)| key == name);
        let value = given.next().map(|(_, value)| value.parse().map_err(|error| Refusal::bad_field(name, error)));
        match given.next() {
            Some(_) => Err(Refusal::bad_field(name, "is there twice; send one")),
            None => value.transpose(),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::parse(&parts.uri)?)
    }
}
