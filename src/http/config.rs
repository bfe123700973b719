//! The settings of the node.

use axum::Extension;
use axum::extract::State;

use super::answer::{Answer, ok};
use super::router::Front;
use crate::model::Caller;
use crate::service::reload::OneReload;

/// `POST /v1/config/reload`: has the process read its lab file again; for admins.
pub(super) async fn reload(State(front): State<Front>, Extension(caller): Extension<Caller>) -> Answer {
    caller.must_be_admin("have the lab file read again")?;
    Ok(ok(&OneReload { reload: front.app.reloads.reload().await? }))
}
