//! Who may see what: one rule for hosts and gateways.

use crate::admission::Request;
use crate::admission::cancel::unknown_request;
use crate::admission::resource::not_yours;
use crate::model::{Caller, Code, LeaseId, Refusal, RequestId, Requester};

/// A lease request, if it is there and the caller may read it.
///
/// # Errors
/// `UNKNOWN_LEASE_REQUEST`, `INSUFFICIENT_PERMISSIONS`.
pub(super) fn request_for<L>(
    caller: &Caller,
    id: &RequestId,
    found: Option<Request<L>>,
) -> Result<Request<L>, Refusal> {
    let request = found.ok_or_else(|| unknown_request(id))?;
    if caller.may_read(&request.requester) {
        return Ok(request);
    }
    let message = format!("lease request {id} is not yours; only its owner or an admin may read it");
    Err(Refusal::new(Code::InsufficientPermissions, message))
}

/// Whether the caller may read a lease of `holder`.
///
/// # Errors
/// `INSUFFICIENT_PERMISSIONS`.
pub(super) fn lease_for(caller: &Caller, id: &LeaseId, holder: &Requester) -> Result<(), Refusal> {
    if caller.may_read(holder) { Ok(()) } else { Err(not_yours(id, "read")) }
}
