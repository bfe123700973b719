//! The words of Berth: identifiers, labels, selectors, leases and refusals.
//!
//! Everything here is checked once, when it is built, and is plain data afterwards: no I/O, no clock. The
//! bounds are those of SPEC §1; a value that exists has passed them.

mod id;
mod label;
mod lease;
mod node;
mod refusal;
mod request;
mod requester;
mod resource;
mod selector;
mod selector_parse;
pub mod span;
pub mod time;

pub use id::{
    ChosenLeaseId, IdempotencyKey, InvalidId, LabName, LeaseId, NodeName, Note, RequestId, ResourceId, TokenId,
};
pub use label::{LabelKey, LabelValue, Labels};
pub use lease::{Fence, LeaseRecord, Mode};
pub use node::NodeRole;
pub use refusal::{Code, Refusal};
pub use request::{Ask, Door, Fingerprint, Priority, ResourceAddress, Target, Ttl};
pub use requester::{ADMIN, Authority, Caller, Principal, Requester, Role, SubName};
pub use resource::{DeviceState, ResourceSpec};
pub use selector::{Comparison, Nearness, Selector, Term};
