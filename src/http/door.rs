//! Who calls, and whether they may change anything.

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;

use super::answer::Problem;
use super::router::Front;
use crate::model::{Caller, Code, Refusal, Role};
use crate::trust::{Secret, Tokens};

/// What the connection itself says of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// Nothing: it came over TCP.
    Network,
    /// On the Unix socket, with the node's own uid or root's.
    Operator,
    /// On the Unix socket, with another uid.
    Stranger,
}

/// The token that the caller has shown; none when the socket vouches for it. What outlasts its request asks again whether
/// it still holds.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown(Option<Secret>);

impl Shown {
    /// False once the token is revoked.
    pub fn holds(&self, tokens: &Tokens) -> bool {
        self.0.as_ref().is_none_or(|secret| tokens.authenticate(secret.expose()).is_some())
    }
}

/// The routes that anyone may read.
const OPEN: &[&str] = &["/v1/healthz", "/v1/readyz"];

/// Lets in who may come in; the handlers find the [`Caller`] in the request.
pub(super) async fn check(State(front): State<Front>, mut request: Request, next: Next) -> Result<Response, Problem> {
    if !OPEN.contains(&request.uri().path()) {
        let peer = request.extensions().get().copied().unwrap_or(Peer::Network);
        let (caller, shown) = caller(&front, peer, request.headers())?;
        let reads = request.method() == Method::GET || request.method() == Method::HEAD;
        if caller.role == Role::Viewer && !reads {
            let message = format!("{} is a viewer and changes nothing; ask with an agent's token", caller.principal);
            return Err(Refusal::new(Code::InsufficientPermissions, message).into());
        }
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(shown);
    }
    Ok(next.run(request).await)
}

fn caller(front: &Front, peer: Peer, headers: &HeaderMap) -> Result<(Caller, Shown), Refusal> {
    let refused = |message: &str| Refusal::new(Code::Unauthenticated, message);
    if peer == Peer::Stranger {
        return Err(refused("this socket answers only the node's own user and root; use HTTP with a token"));
    }
    let mut given = headers.get_all(AUTHORIZATION).iter();
    match (given.next(), given.next()) {
        (None, _) if peer == Peer::Operator => Ok((Caller::admin(), Shown::default())),
        (None, _) => Err(refused("no token; send the header Authorization: Bearer bth_…")),
        (Some(_), Some(_)) => Err(refused("two Authorization headers; send one")),
        (Some(value), None) => {
            let (scheme, secret) = value.to_str().unwrap_or_default().split_once(' ').unwrap_or_default();
            let bearer = scheme.eq_ignore_ascii_case("bearer").then(|| Secret::parse(secret.trim())).flatten();
            let known = bearer.and_then(|secret| {
                let caller = front.app.tokens.authenticate(secret.expose())?;
                Some((caller, Shown(Some(secret))))
            });
            known.ok_or_else(|| refused("the token is unknown or revoked; ask an admin for a new one"))
        }
    }
}
