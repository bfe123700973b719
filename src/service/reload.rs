//! The lab file, read again while the node runs (SPEC §12).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::model::Refusal;

/// Whoever reads the lab file again for the nodes of this process.
#[async_trait]
pub trait Reloads: fmt::Debug + Send + Sync + 'static {
    /// Reads it, and has every node of this process go by what it says now. Bounded.
    ///
    /// # Errors
    /// `BAD_REQUEST` with what is wrong in the file; then nothing has changed. `INTERNAL` when a node could not take it up.
    async fn reload(&self) -> Result<ReloadView, Refusal>;
}

/// `{"reload":{…}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneReload {
    /// What it came to.
    pub reload: ReloadView,
}

/// What another lab file has come to. Resources are named `WORKER/ID`, values by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReloadView {
    /// Resources that there are from now on, or again.
    pub added: Vec<String>,
    /// Those with other settings.
    pub changed: Vec<String>,
    /// Those that there are no more, or not when what holds them is over.
    pub gone: Vec<String>,
    /// Numbers that are others now.
    pub rules: Vec<String>,
    /// What has changed in the file and counts only after a restart of the node.
    pub needs_restart: Vec<String>,
}

impl ReloadView {
    /// True when the file says nothing new.
    pub fn is_empty(&self) -> bool {
        let Self { added, changed, gone, rules, needs_restart } = self;
        [added, changed, gone, rules, needs_restart].iter().all(|list| list.is_empty())
    }
}
