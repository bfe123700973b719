//! What operators do with workers (SPEC §9 Operators): invite, drain, remove. Gateways answer it.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::gateway::worker_view;
use super::views::WorkerView;
use super::{GatewayService, HostService};
use crate::gateway::message::FrontMessage;
use crate::model::time::instant;
use crate::model::{Caller, Code, NodeName, Refusal};
use crate::trust::roster::unknown_worker;

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneWorker {
    /// It.
    pub worker: WorkerView,
}

/// Answer to a worker's removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRemoved {
    /// Which.
    pub name: NodeName,
    /// True when its key is never accepted again.
    pub revoked: bool,
    /// For people; says what to know next.
    pub message: String,
}

/// An invitation, as the one answer that has it. Whoever reads the line can join.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InvitationMade {
    /// The line, for the machine that joins.
    pub invitation: String,
    /// Until when it may be used.
    #[serde(with = "instant")]
    pub expires_at: Timestamp,
}

impl std::fmt::Debug for InvitationMade {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The line holds a secret.
        f.debug_struct("InvitationMade").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The operations on workers, for admins. Every wait in here is bounded.
#[async_trait]
pub trait WorkerOperations: Send + Sync + 'static {
    /// Lets a machine join as `worker`, once, within an hour.
    async fn invite(&self, _caller: &Caller, _worker: &NodeName) -> Result<InvitationMade, Refusal> {
        Err(ask_the_gateway())
    }

    /// Takes a whole worker out, or brings it back: what is leased stays so, nothing new is granted.
    async fn drain_worker(&self, _caller: &Caller, _worker: &NodeName, _drained: bool) -> Result<WorkerView, Refusal> {
        Err(ask_the_gateway())
    }

    /// Takes a worker off the roster; with `revoke` also one that is connected, and its key for good.
    async fn remove_worker(
        &self,
        _caller: &Caller,
        _worker: &NodeName,
        _revoke: bool,
    ) -> Result<WorkerRemoved, Refusal> {
        Err(ask_the_gateway())
    }
}

/// `UNSUPPORTED_ON_WORKER`.
fn ask_the_gateway() -> Refusal {
    Refusal::new(Code::UnsupportedOnWorker, "a worker keeps no roster; ask the gateway")
}

impl WorkerOperations for HostService {}

#[async_trait]
impl WorkerOperations for GatewayService {
    async fn invite(&self, caller: &Caller, worker: &NodeName) -> Result<InvitationMade, Refusal> {
        caller.must_be_admin("invite workers")?;
        let (invitation, expires_at) = self.registrar.invite(worker).await?;
        Ok(InvitationMade { invitation: invitation.expose(), expires_at })
    }

    async fn drain_worker(&self, caller: &Caller, worker: &NodeName, drained: bool) -> Result<WorkerView, Refusal> {
        caller.must_be_admin("take workers out")?;
        self.registrar.drain(worker, drained).await?;
        let all = self.ask(FrontMessage::Workers).await?;
        let found = all.into_iter().find(|found| found.name == *worker);
        found.map(worker_view).ok_or_else(|| unknown_worker(worker))
    }

    async fn remove_worker(&self, caller: &Caller, worker: &NodeName, revoke: bool) -> Result<WorkerRemoved, Refusal> {
        caller.must_be_admin("remove workers")?;
        let removed = self.registrar.remove(worker, revoke).await?;
        let mut message = format!("Worker {worker} removed");
        if removed.revoked {
            message.push_str("; its key is never accepted again, another machine can be invited under its name");
        }
        if removed.configured {
            message.push_str(
                "; the lab file still names it, so it is back at the next start of the gateway unless you take it out \
                 there",
            );
        }
        Ok(WorkerRemoved { name: worker.clone(), revoked: removed.revoked, message })
    }
}
