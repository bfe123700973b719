//! Who may cancel a lease request, and when (SPEC §2 Cancel). One rule for hosts and gateways.

use super::{Request, RequestState};
use crate::model::{Caller, Code, LeaseId, NodeName, Refusal, RequestId};

/// What cancelling a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// It is open, and is to be given up.
    Open,
    /// It has been cancelled before.
    Done,
}

/// Checks whether `caller` may cancel a request now. `lease_of` names the lease that one has got.
///
/// # Errors
/// `UNKNOWN_LEASE_REQUEST`, `INSUFFICIENT_PERMISSIONS`, `REQUEST_NOT_CANCELLABLE`, in this order.
pub fn cancel<L>(
    id: &RequestId,
    request: Option<&Request<L>>,
    caller: &Caller,
    lease_of: impl Fn(&L) -> &LeaseId,
) -> Result<Cancel, Refusal> {
    let request = request.ok_or_else(|| unknown_request(id))?;
    if !caller.may_change(&request.requester) {
        let message = format!("lease request {id} is not yours; only its owner or an admin may cancel it");
        return Err(Refusal::new(Code::InsufficientPermissions, message));
    }
    judge(id, request, lease_of)
}

/// The same for a gateway, which has checked the owner: it may cancel what it has asked for itself, and knows of nothing
/// else.
///
/// # Errors
/// `UNKNOWN_LEASE_REQUEST`, `REQUEST_NOT_CANCELLABLE`, in this order.
pub fn cancel_for<L>(
    id: &RequestId,
    request: Option<&Request<L>>,
    gateway: &NodeName,
    lease_of: impl Fn(&L) -> &LeaseId,
) -> Result<Cancel, Refusal> {
    let own = request.filter(|request| request.requester.via.as_ref() == Some(gateway));
    judge(id, own.ok_or_else(|| unknown_request(id))?, lease_of)
}

fn judge<L>(id: &RequestId, request: &Request<L>, lease_of: impl Fn(&L) -> &LeaseId) -> Result<Cancel, Refusal> {
    match &request.state {
        RequestState::Open => Ok(Cancel::Open),
        RequestState::Cancelled => Ok(Cancel::Done),
        RequestState::Granted(lease) => Err(not_cancellable(id, Some(lease_of(lease)))),
        RequestState::Failed(_) => Err(not_cancellable(id, None)),
    }
}

/// `UNKNOWN_LEASE_REQUEST` for `id`.
pub fn unknown_request(id: &RequestId) -> Refusal {
    let message = format!("no lease request {id}; settled ones are forgotten after a while");
    Refusal::new(Code::UnknownLeaseRequest, message).with("requestId", id.as_str())
}

/// `REQUEST_NOT_CANCELLABLE`, with the lease that the request has got, if it has.
pub fn not_cancellable(id: &RequestId, lease: Option<&LeaseId>) -> Refusal {
    let refused = |message: String| Refusal::new(Code::RequestNotCancellable, message).with("requestId", id.as_str());
    match lease {
        Some(lease) => refused(format!(
            "lease request {id} has got lease {lease}; give it back with `berth lease release {lease}`"
        ))
        .with("leaseId", lease.as_str()),
        None => refused(format!("lease request {id} has ended; there is nothing to cancel")),
    }
}

/// What an acquire is told whose key stands for a request that was cancelled.
pub fn was_cancelled(id: &RequestId) -> Refusal {
    let message = format!("lease request {id} of this key was cancelled; use a new key to ask again");
    Refusal::new(Code::ResourceUnavailable, message).with("requestId", id.as_str())
}
