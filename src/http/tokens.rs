//! Tokens, for admins.

use std::error::Error;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Answer, Problem, json, ok};
use super::body::Body;
use super::path::Id;
use super::router::Front;
use crate::model::{Caller, Refusal, TokenId};
use crate::service::answers::{OneToken, TokenCreated, Tokens as TokenList};
use crate::service::ask::TokenBody;
use crate::trust::{TokenError, Tokens};

/// `GET /v1/tokens`.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    caller.must_be_admin("see tokens")?;
    Ok(ok(&TokenList { tokens: front.app.tokens.list() }))
}

/// `POST /v1/tokens`. The secret is in this answer and nowhere else.
pub(super) async fn create(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Body(TokenBody { name, role }): Body<TokenBody>,
) -> Answer {
    caller.must_be_admin("make tokens")?;
    let now = front.app.clock.now().wall;
    let (token, secret) = on_disk(&front, move |tokens| tokens.create(name, role, now)).await?;
    Ok(json(StatusCode::CREATED, &TokenCreated { token, secret }))
}

/// `DELETE /v1/tokens/{id}`.
pub(super) async fn revoke(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<TokenId>,
) -> Answer {
    caller.must_be_admin("revoke tokens")?;
    let now = front.app.clock.now().wall;
    let token = on_disk(&front, move |tokens| tokens.revoke(&id, now)).await?;
    Ok(ok(&OneToken { token }))
}

/// Runs `change` where it may wait for the disk.
async fn on_disk<T: Send + 'static>(
    front: &Front,
    change: impl FnOnce(&Tokens) -> Result<T, TokenError> + Send + 'static,
) -> Result<T, Problem> {
    let tokens = Arc::clone(&front.app.tokens);
    let failed = || Problem(Refusal::internal("the token could not be stored"));
    match tokio::task::spawn_blocking(move || change(&tokens)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(TokenError::Refused(refusal))) => Err(refusal.into()),
        Ok(Err(error)) => {
            tracing::error!(%error, source = error.source(), "a token could not be stored");
            Err(failed())
        }
        Err(_) => Err(failed()),
    }
}
