//! The words of Berth: identifiers, labels, selectors, leases and refusals.
//!
//! Everything here is checked once, when it is built, and is plain data afterwards: no I/O, no clock. The
//! bounds are those of SPEC §1; a value that exists has passed them.

mod booking;
mod booking_filter;
mod driver;
mod event;
mod exec;
mod hold;
mod id;
mod label;
mod lease;
mod node;
mod notice;
mod proposal;
mod refusal;
mod repeat;
mod request;
mod requester;
mod resource;
mod selector;
mod selector_parse;
pub mod span;
pub mod time;
mod window;
pub mod zone;

pub use booking::{Booking, BookingId, BookingStatus, SeriesId};
pub use booking_filter::{BookingFilter, Cursor};
pub use driver::{
    AdbDevice, AdbWhich, DeviceFacts, DeviceIdentity, Driver, DriverKind, Hook, HookFailure, HookKind, OUTPUT_BYTES_MAX,
};
pub use event::{Event, EventKind};
pub use exec::{
    ExecAsk, ExecRules, ExecSignal, InvalidArgs, TOOL_ARG_BYTES_MAX, TOOL_ARGS_BYTES_MAX, TOOL_ARGS_MAX, ToolArgs,
};
pub use hold::{Hold, HoldId, HoldStatus, TokenHash};
pub use id::{
    ChosenLeaseId, EventId, IdempotencyKey, InvalidId, LabName, LeaseId, NodeName, Note, RequestId, ResourceId, Ticket,
    TokenId, ToolName,
};
pub use label::{LabelKey, LabelValue, Labels};
pub use lease::{Fence, LeaseRecord, Mode, RenewAsk};
pub use node::NodeRole;
pub use notice::{NOTICES_MAX, Notice, NoticeKind};
pub use proposal::{Proposal, WaitPolicy};
pub use refusal::{Code, Refusal};
pub use repeat::{Every, OCCURRENCES_MAX, Repeat};
pub use request::{Ask, Door, Fingerprint, LeftOut, Priority, ResourceAddress, Target, Timeout, Ttl};
pub use requester::{ADMIN, Asker, Authority, Caller, Principal, Requester, Role, SubName};
pub use resource::{BookingMode, BookingPolicy, DeviceState, ResourceSpec, WaitingFor};
pub use selector::{Comparison, Nearness, Selector, Term};
pub use window::{Rebooking, Slot, SlotLength, Window};
pub use zone::Zone;
