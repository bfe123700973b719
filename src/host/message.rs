//! What is said to the desk, and what it answers.

use std::time::Duration;

use jiff::Timestamp;
use ractor::RpcReplyPort;

use super::reporter::Subscription;
use crate::admission::Request;
use crate::admission::resource::{Reply, ResourceState};
use crate::clock::RunTime;
use crate::model::{
    Ask, Authority, Fence, Labels, LeaseId, LeaseRecord, Refusal, RequestId, ResourceAddress, ResourceId, Selector,
};
use crate::store::{OpenError, StoredResource};

/// Names one command that a resource has been given, in this life of the node.
pub(super) type OpId = u64;

/// An answer, and the number of the last change that it knows of.
#[derive(Debug)]
pub struct Said<T> {
    /// The answer.
    pub result: Result<T, Refusal>,
    /// The number of the delta with its effect, or of the last before it.
    pub number: u64,
}

/// A lease with what its holder is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The lease.
    pub lease: LeaseRecord,
    /// When it ends, on this node's run time.
    pub deadline: RunTime,
    /// The same as wall time; for a request that is answered again, what it was told first.
    pub expires_at: Timestamp,
    /// The labels of its resource.
    pub labels: Labels,
}

/// A lease as it was granted, for the book of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct FirstGrant {
    /// The lease.
    pub lease: LeaseRecord,
    /// When it was to end, wall time.
    pub expires_at: Timestamp,
    /// The labels of its resource.
    pub labels: Labels,
}

/// Through which door a lease request came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A client of this node.
    Client,
    /// The gateway.
    Gateway {
        /// Which dispatch of the request this is.
        attempt: u32,
        /// What the requester's key stands for at the gateway.
        fingerprint: crate::model::Fingerprint,
    },
}

/// A resource as the desk shows it.
#[derive(Debug, Clone)]
pub struct ResourceNow {
    /// Its settings.
    pub spec: std::sync::Arc<crate::model::ResourceSpec>,
    /// What is true of it.
    pub state: ResourceState,
}

/// The desk's protocol.
#[derive(Debug)]
pub enum DeskMessage {
    /// Lease something.
    Request {
        /// What is asked for.
        ask: Ask,
        /// By whom.
        origin: Origin,
        /// Answered once it is settled.
        reply: RpcReplyPort<Said<Grant>>,
    },
    /// What became of a dispatch whose answer was lost?
    Settle {
        /// The gateway's request.
        request: RequestId,
        /// The attempt.
        attempt: u32,
        /// Answered with the lease it got, or with none: then it never gets one.
        reply: RpcReplyPort<Said<Option<Grant>>>,
    },
    /// Move a lease's deadline.
    Renew {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// A new width.
        ttl: Option<Duration>,
        /// On whose word.
        authority: Authority,
        /// Answered once it is durable.
        reply: RpcReplyPort<Said<Grant>>,
    },
    /// End a lease.
    Release {
        /// Which.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// On whose word.
        authority: Authority,
        /// Answered once it is durable.
        reply: RpcReplyPort<Said<LeaseRecord>>,
    },
    /// A request, as soon as it is settled.
    Watch(RequestId, RpcReplyPort<Option<Request<FirstGrant>>>),
    /// A request, as it is now.
    Peek(RequestId, RpcReplyPort<Option<Request<FirstGrant>>>),
    /// The open requests.
    OpenRequests(RpcReplyPort<Vec<(RequestId, Request<FirstGrant>)>>),
    /// The active leases.
    Leases(RpcReplyPort<Vec<Grant>>),
    /// One active lease.
    Lease(LeaseId, RpcReplyPort<Option<Grant>>),
    /// The resources that match.
    Resources(Option<Selector>, RpcReplyPort<Vec<ResourceNow>>),
    /// One resource.
    Resource(ResourceAddress, RpcReplyPort<Result<ResourceNow, Refusal>>),
    /// Everything, and every change from now on; the former subscriber gets no more.
    Subscribe(RpcReplyPort<Subscription>),
    /// Take no more requests; leases are renewed and released as before.
    Stop,
    /// From a resource: a command is done.
    #[doc(hidden)]
    Settled {
        /// Whose.
        resource: ResourceId,
        /// Which life of its actor.
        activation: u64,
        /// Which.
        op: OpId,
        /// What came of it.
        reply: Reply,
        /// The resource's new state, if it has changed.
        state: Option<ResourceState>,
    },
    /// From the store: a dead actor's activation is closed, and this is what is on disk.
    #[doc(hidden)]
    Reopened(ResourceId, Result<StoredResource, OpenError>),
    /// From the timer.
    #[doc(hidden)]
    Tick,
    /// From a test: the resource's actor is to die.
    #[cfg(test)]
    PanicResource(ResourceId),
    /// From a test: retire every actor that has nothing to do.
    #[cfg(test)]
    RetireIdle,
    /// From a test: how many resources have an actor?
    #[cfg(test)]
    Actors(RpcReplyPort<usize>),
}
