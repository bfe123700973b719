//! The calls about a node's settings.

use std::time::Duration;

use reqwest::Method;

use super::{Client, ClientError};
use crate::service::reload::{OneReload, ReloadView};

/// A node has a minute for its file, and others may come before.
const RELOAD_BOUND: Duration = Duration::from_secs(90);

/// Every call errs with a [`ClientError`]; the codes of a refusal are those of SPEC §11.
impl Client {
    /// Has the process of the node read its lab file again.
    pub async fn reload(&self) -> Result<ReloadView, ClientError> {
        let question = self.question(Method::POST, &["config", "reload"]).timeout(RELOAD_BOUND);
        self.ask(question).await.map(|OneReload { reload }| reload)
    }
}
