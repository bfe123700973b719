//! The tools of a gateway's clients: each runs at the worker that has the lease, over a stream of its own.

use async_trait::async_trait;

use super::Execs;
use crate::admission::resource::unknown_lease;
use crate::gateway::message::{ExecRoute, FrontMessage};
use crate::gateway::session::SessionMessage;
use crate::gateway::worker_unreachable;
use crate::link::exec::{NotOpened, ToolLine};
use crate::model::{Caller, Code, ExecAsk, LeaseId, NodeName, Refusal, Requester};
use crate::service::{ACTOR_BOUND, GatewayService, ask_actor};
use crate::wire::exec::ExecCall;

#[async_trait]
impl Execs for GatewayService {
    async fn exec(&self, caller: &Caller, lease: &LeaseId, ask: ExecAsk) -> Result<ToolLine, Refusal> {
        let (id, by) = (lease.clone(), caller.clone());
        let ExecRoute { worker, lease: there, session } =
            self.ask(|reply| FrontMessage::Exec { id, caller: by, reply }).await??;
        let away = || worker_unreachable(&worker, "nothing runs; ask again");
        let streams = ask_actor(&session, ACTOR_BOUND, SessionMessage::Execs).await.flatten().ok_or_else(away)?;
        let ExecAsk { tool, args, fence } = ask;
        let requester = Requester::local(caller.principal.clone(), None).through(&self.name);
        let call = ExecCall { requester, lease: there, fence, tool, args };
        let named = lease.clone();
        let lost = worker_unreachable(&worker, "the tool is killed there, and nobody knows how far it came");
        let opened = streams.open(call, move |refusal| in_own_name(&named, refusal), lost).await;
        opened.map_err(|why| match why {
            NotOpened::Refused(refusal) => refusal,
            NotOpened::TooOld(protocol) => too_old(&worker, protocol.0),
            NotOpened::Full => {
                let message = format!("as many tools run at {worker} as may; ask again in a moment");
                Refusal::new(Code::QueueFull, message).retry_after(std::time::Duration::from_secs(1))
            }
            NotOpened::Lost(error) => {
                tracing::info!(%worker, %error, "a tool was not started");
                worker_unreachable(&worker, "if the tool was started it is killed; ask again")
            }
        })
    }
}

/// What the worker says of a lease, in the gateway's own name of it.
fn in_own_name(id: &LeaseId, refusal: Refusal) -> Refusal {
    if refusal.code != Code::UnknownLease {
        return refusal;
    }
    let mut own = unknown_lease(id);
    for fact in ["endedAt", "reason"] {
        if let Some(value) = refusal.details.as_ref().and_then(|details| details.get(fact)) {
            own = own.with(fact, value.clone());
        }
    }
    own
}

fn too_old(worker: &NodeName, protocol: u16) -> Refusal {
    let message = format!("{worker} speaks protocol {protocol}, which runs no tools; upgrade Berth there");
    Refusal::new(Code::UnsupportedOnWorker, message)
}
