//! Tools through the gateway: the front says where, and the rest passes it by.

use super::dispatch::worker_unreachable;
use super::front::FrontState;
use super::message::ExecRoute;
use crate::model::{Caller, Code, LeaseId, Refusal};

impl FrontState {
    /// The worker that has a lease, for its owner: nobody else is let in, no admin either.
    pub(super) fn exec_route(&self, id: &LeaseId, caller: &Caller) -> Result<ExecRoute, Refusal> {
        if self.stopping {
            return Err(Refusal::new(Code::Stopping, "the gateway is going down; ask again when it is back"));
        }
        let lease = self.fleet_lease(id).ok_or_else(|| self.unknown_lease(id))?;
        if !caller.may_use(&lease.lease.holder.bare()) {
            let message =
                format!("lease {id} is not yours; only its owner may run tools at its device, and no admin either");
            return Err(Refusal::new(Code::InsufficientPermissions, message));
        }
        let worker = self.workers.get(&lease.worker).filter(|worker| worker.link.is_some());
        let worker = worker.ok_or_else(|| worker_unreachable(&lease.worker, "nothing runs; ask again"))?;
        Ok(ExecRoute { session: worker.session.clone(), worker: lease.worker, lease: lease.lease.id })
    }
}
