//! The calls about workers, one for each route (SPEC §13). Gateways answer them.

use reqwest::Method;

use super::{Client, ClientError};
use crate::model::NodeName;
use crate::service::answers::Workers;
use crate::service::views::WorkerView;
use crate::service::workers::{InvitationMade, OneWorker, WorkerRemoved};

/// Every call errs with a [`ClientError`]; the codes of a refusal are those of SPEC §11.
impl Client {
    /// The workers of the lab.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, ClientError> {
        self.ask(self.question(Method::GET, &["workers"])).await.map(|Workers { workers }| workers)
    }

    /// Lets a machine join under a name; the answer is the only one that holds the line.
    pub async fn invite(&self, worker: &NodeName) -> Result<InvitationMade, ClientError> {
        self.ask(self.question(Method::POST, &["workers", worker.as_str(), "invitation"])).await
    }

    /// Takes a whole worker out, or brings it back.
    pub async fn drain_worker(&self, worker: &NodeName, drained: bool) -> Result<WorkerView, ClientError> {
        let method = if drained { Method::POST } else { Method::DELETE };
        let question = self.question(method, &["workers", worker.as_str(), "drain"]);
        self.ask(question).await.map(|OneWorker { worker }| worker)
    }

    /// Takes a worker off the roster; with `revoke` also one that is connected, and its key for good.
    pub async fn remove_worker(&self, worker: &NodeName, revoke: bool) -> Result<WorkerRemoved, ClientError> {
        let question = self.question(Method::DELETE, &["workers", worker.as_str()]);
        self.ask(if revoke { question.query(&[("revoke", true)]) } else { question }).await
    }
}
