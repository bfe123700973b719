//! Short calls from the gateway to a worker, on one stream.
//!
//! The gateway sends [`CallFrame`]s, the worker answers each with one [`AnswerFrame`] of the same `id`. Calls are
//! carried out in the order in which they were sent; answers may overtake each other. At most 1 024 calls are
//! unanswered at a time. Each answer carries the number of the delta with its effect, or of the last before it when it had
//! none, so the gateway knows which report already contains it.
//!
//! - [`Call::Dispatch`] asks for a lease. The worker deduplicates by `request` and `attempt` and by nothing else.
//!   Answer: `granted` or `refused`. There is no waiting: what cannot be granted now is refused.
//! - [`Call::Settle`] asks what became of a dispatch whose answer was lost. The worker takes it in the order of its own
//!   work: a lease that the attempt got is answered as `settled` with the lease; else the attempt is refused from then on, should it
//!   still arrive, and the answer is `settled` with nil.
//! - [`Call::Renew`], [`Call::Release`] name a lease by the worker's own id. Only leases that this gateway asked for
//!   can be named. Answers: `renewed`, `released`, `refused`.
//! - [`Call::Calendar`] asks for bookings and holds ([`calendar`](super::calendar)). Who asks is one of this gateway's own
//!   requesters; any other is refused. Answer: `calendar` or `refused`.

use serde::{Deserialize, Serialize};

use super::calendar::{CalendarAnswer, CalendarCall};
use super::report::LeaseRow;
use crate::model::{
    ChosenLeaseId, Door, Fence, Fingerprint, IdempotencyKey, LeaseId, Mode, Note, Refusal, RequestId, Requester, Target,
};

/// A call with its correlation id, which the gateway never uses twice on one link.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallFrame {
    /// Comes back with the answer.
    pub id: u64,
    /// What is asked.
    pub call: Call,
}

/// The part of a [`CallFrame`] that every version can read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CallFrameId {
    /// Comes back with the answer.
    pub id: u64,
}

/// What the gateway asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Call {
    /// Lease something to a requester of the gateway's.
    Dispatch(Dispatch),
    /// What became of a dispatch?
    #[serde(rename_all = "camelCase")]
    Settle {
        /// The request.
        request: RequestId,
        /// The attempt whose answer was lost.
        attempt: u32,
    },
    /// Move a lease's deadline.
    #[serde(rename_all = "camelCase")]
    Renew {
        /// The worker's own name of it.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// A new width, in ms.
        ttl_ms: Option<u64>,
        /// Rather a shorter renewal than none, where a booking is in the way.
        #[serde(default)]
        allow_shorter: bool,
        /// True when an admin of the gateway's asks, whom the bookings of others do not stop.
        #[serde(default)]
        admin: bool,
    },
    /// End a lease.
    Release {
        /// The worker's own name of it.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
    },
    /// Something about bookings and holds.
    Calendar(CalendarCall),
}

/// A lease request, one attempt on one worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    /// The gateway's request.
    pub request: RequestId,
    /// Counts the dispatches of this request, over all workers, from 1.
    pub attempt: u32,
    /// Where the request came in at the gateway.
    pub door: Door,
    /// `gw:<gateway>:<requester>`; the worker refuses any other gateway's name than that of the link.
    pub requester: Requester,
    /// What it asks for; a resource without its worker's name.
    pub target: Target,
    /// Alone or shared.
    pub mode: Mode,
    /// The lease's width, in ms.
    pub ttl_ms: u64,
    /// The id that the requester chose for the lease.
    pub lease_id: Option<ChosenLeaseId>,
    /// Free text for the lease.
    pub note: Option<Note>,
    /// The requester's key; kept with the lease and reported, never compared.
    pub key: Option<IdempotencyKey>,
    /// What the key stands for at the gateway.
    pub fingerprint: Fingerprint,
    /// Rather a shorter lease than none, where a booking is in the way.
    #[serde(default)]
    pub allow_shorter: bool,
    /// True when an admin of the gateway's asks, whom the bookings of others do not stop.
    #[serde(default)]
    pub admin: bool,
}

/// An answer with its correlation id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerFrame {
    /// The call's.
    pub id: u64,
    /// The number of the delta with the effect.
    pub number: u64,
    /// What came of it.
    pub answer: Answer,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// A lease was granted.
    Granted(Granted),
    /// A dispatch is settled: with this lease, or with none for good.
    Settled(Option<Granted>),
    /// The lease was renewed.
    Renewed(Granted),
    /// The lease is over.
    Released,
    /// What a calendar has answered, packed.
    Calendar(CalendarAnswer),
    /// No.
    Refused(Refusal),
}

/// A lease and what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    /// The resource.
    pub resource: crate::model::ResourceId,
    /// The lease.
    pub lease: LeaseRow,
}
