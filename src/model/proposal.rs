//! What a lease request gets if it is granted, and how long it is ready to wait for it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::time::whole_ms;
use super::{
    Fence, Fingerprint, IdempotencyKey, LeaseId, LeaseRecord, Mode, Note, Priority, RequestId, Requester, ResourceId,
    Target,
};

/// A lease that is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The request.
    pub request: RequestId,
    /// Whose lease it would be.
    pub holder: Requester,
    /// What is asked for.
    pub target: Target,
    /// Alone or shared.
    pub mode: Mode,
    /// The rank among those that wait.
    pub priority: Priority,
    /// The width.
    pub ttl: Duration,
    /// The id.
    pub lease: LeaseId,
    /// True when the requester chose it.
    pub id_chosen_by_requester: bool,
    /// Free text.
    pub note: Option<Note>,
    /// The key of the request.
    pub key: Option<IdempotencyKey>,
    /// What the key stands for.
    pub fingerprint: Fingerprint,
    /// Rather a shorter lease than none, where a booking is in the way.
    pub allow_shorter: bool,
    /// True when an admin asks, whom no booking stops.
    pub by_admin: bool,
}

impl Proposal {
    /// The lease on `resource`, granted at `at`.
    pub fn granted(&self, resource: &ResourceId, fence: Fence, at: Timestamp) -> LeaseRecord {
        LeaseRecord {
            id: self.lease.clone(),
            request_id: self.request.clone(),
            resource_id: resource.clone(),
            mode: self.mode,
            holder: self.holder.clone(),
            granted_at: at,
            renewed_at: at,
            ttl: self.ttl,
            fence,
            note: self.note.clone(),
            id_chosen_by_requester: self.id_chosen_by_requester,
            idempotency_key: self.key.clone(),
            fingerprint: self.fingerprint,
            asked_ttl: None,
        }
    }

    /// What was asked for, as events show it. The lease id and the key are options beside it and never in it (SPEC
    /// §2).
    pub fn spec(&self) -> Map<String, Value> {
        let mut spec = Map::new();
        match &self.target {
            Target::Resource(address) => spec.insert("resourceId".to_owned(), address.to_string().into()),
            Target::Select(selector) => spec.insert("select".to_owned(), selector.to_string().into()),
        };
        spec.insert("mode".to_owned(), self.mode.as_str().into());
        spec.insert("ttlMs".to_owned(), whole_ms(self.ttl).into());
        spec.insert("priority".to_owned(), f64::from(self.priority).into());
        if let Some(note) = &self.note {
            spec.insert("note".to_owned(), note.as_str().into());
        }
        spec
    }
}

/// What is to happen when a request cannot be granted now (SPEC §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Door 1: refuse with `RESOURCE_UNAVAILABLE`.
    Fail,
    /// Door 1: stand in the waiting room, unattended.
    JoinWaitingRoom,
    /// Door 2: refuse with `NO_CAPACITY`.
    NoWait,
    /// Door 2: wait, attended, at most so long.
    Wait {
        /// None: without a bound.
        timeout: Option<Duration>,
    },
}

impl WaitPolicy {
    /// As events show it.
    pub fn shown(self) -> Map<String, Value> {
        let mut shown = Map::new();
        match self {
            WaitPolicy::Fail => shown.insert("onConflict".to_owned(), "fail".into()),
            WaitPolicy::JoinWaitingRoom => shown.insert("onConflict".to_owned(), "join-waiting-room".into()),
            WaitPolicy::NoWait => shown.insert("noWait".to_owned(), true.into()),
            WaitPolicy::Wait { timeout } => {
                if let Some(timeout) = timeout {
                    shown.insert("timeoutMs".to_owned(), whole_ms(timeout).into());
                }
                shown.insert("noWait".to_owned(), false.into())
            }
        };
        shown
    }
}
