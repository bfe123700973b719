//! The tools of a worker's own clients.

use async_trait::async_trait;

use super::Execs;
use crate::host::execs::{ExecRequest, not_its_owner};
use crate::link::exec::ToolLine;
use crate::model::{Authority, Caller, ExecAsk, LeaseId, Refusal, Requester, Role};
use crate::service::HostService;

#[async_trait]
impl Execs for HostService {
    async fn exec(&self, caller: &Caller, lease: &LeaseId, ask: ExecAsk) -> Result<ToolLine, Refusal> {
        if caller.role == Role::Viewer {
            return Err(not_its_owner(lease));
        }
        let requester = Requester::local(caller.principal.clone(), None);
        let authority = Authority::Client(caller.clone());
        self.execs.open(ExecRequest { lease: lease.clone(), requester, authority, ask }).await
    }
}
