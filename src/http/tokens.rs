//! Tokens, for admins.

use std::error::Error;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, Problem, json, named};
use super::body::Body;
use super::door::admin_only;
use super::path::Id;
use super::router::Front;
use crate::model::{Caller, Principal, Refusal, Role, TokenId};
use crate::trust::{TokenError, TokenInfo, Tokens};

/// Body of `POST /v1/tokens`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewToken {
    name: Principal,
    role: Role,
}

#[derive(Serialize)]
struct Created<'a> {
    token: TokenInfo,
    secret: &'a str,
}

/// `GET /v1/tokens`.
pub(super) async fn list(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    admin_only(&caller, "see tokens")?;
    Ok(named("tokens", front.app.tokens.list()))
}

/// `POST /v1/tokens`. The secret is in this answer and nowhere else.
pub(super) async fn create(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Body(NewToken { name, role }): Body<NewToken>,
) -> Answer {
    admin_only(&caller, "make tokens")?;
    let now = front.app.clock.now().wall;
    let (token, secret) = on_disk(&front, move |tokens| tokens.create(name, role, now)).await?;
    Ok(json(StatusCode::CREATED, &Created { token, secret: secret.expose() }))
}

/// `DELETE /v1/tokens/{id}`.
pub(super) async fn revoke(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<TokenId>,
) -> Answer {
    admin_only(&caller, "revoke tokens")?;
    let now = front.app.clock.now().wall;
    Ok(named("token", on_disk(&front, move |tokens| tokens.revoke(&id, now)).await?))
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
