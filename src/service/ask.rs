//! The bodies of the two doors (SPEC §2), and their way to a checked [`Ask`].

use serde::{Deserialize, Deserializer, Serialize};

use crate::admission::LeaseRules;
use crate::model::{
    Ask, Caller, ChosenLeaseId, Door, EventKind, Fence, IdempotencyKey, LeaseId, LeftOut, Mode, Note, Principal,
    Priority, Refusal, RenewAsk, RequestId, Requester, ResourceAddress, Role, Selector, SubName, Target, Ticket,
    Timeout, Ttl, WaitPolicy,
};

/// A field that may be left out. `null` is not leaving it out: it is a value of the wrong type (SPEC §1).
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// Body of `POST /v1/resources/{id}/leases`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcquireBody {
    /// What to do when the resource is held.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// The id that the lease is to have.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<ChosenLeaseId>,
    /// Alone or shared; default exclusive.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The lease's width; default `lease.default_ttl`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The rank among those that wait; default 0.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The sub-name for whom the caller acts.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub requester: Option<SubName>,
    /// Free text for the lease.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The caller's name for this attempt.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// A place in line from before the node was restarted.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// Rather a shorter lease than none, where a booking is in the way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_shorter: bool,
}

/// What an acquire does when the resource is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnConflict {
    /// Answer `RESOURCE_UNAVAILABLE`.
    Fail,
    /// Stand in the waiting room, and ask again.
    JoinWaitingRoom,
}

/// Body of `POST /v1/lease-requests`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestBody {
    /// Exactly this resource; either this or `select`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<ResourceAddress>,
    /// Any resource that matches; either this or `resourceId`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub select: Option<Selector>,
    /// Rather be refused than wait.
    #[serde(default)]
    pub no_wait: bool,
    /// The longest wait; default without a bound.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<Timeout>,
    /// The id that the lease is to have.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<ChosenLeaseId>,
    /// Alone or shared; default exclusive.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The lease's width; default `lease.default_ttl`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The rank among those that wait; default 0.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// The sub-name for whom the caller acts.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub requester: Option<SubName>,
    /// Free text for the lease.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The caller's name for this attempt.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// A place in line from before the node was restarted.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// Rather a shorter lease than none, where a booking is in the way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_shorter: bool,
}

/// Body of `POST /v1/leases/{id}/renew`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewBody {
    /// A new width; default the lease's own.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The grant that is meant.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Rather a shorter renewal than none, where a booking is in the way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_shorter: bool,
}

/// Body of `POST /v1/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenBody {
    /// The principal's name; it can never be used twice.
    pub name: Principal,
    /// What it may do.
    pub role: Role,
}

/// Which events are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Those after this number.
    pub after: u64,
    /// At most so many; 1 to 1 000.
    pub limit: usize,
    /// Of this kind only.
    pub event: Option<EventKind>,
    /// About this lease only.
    pub lease: Option<LeaseId>,
}

/// What a call says outside its body: headers that stand for a field.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// `Berth-Requester`.
    pub requester: Option<SubName>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<IdempotencyKey>,
}

impl RenewBody {
    /// Checks the width.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the field.
    pub fn into_ask(self, rules: &LeaseRules) -> Result<RenewAsk, Refusal> {
        bounded_ttl(self.ttl_ms, rules)?;
        Ok(RenewAsk { ttl: self.ttl_ms, fence: self.fence, allow_shorter: self.allow_shorter })
    }
}

impl AcquireBody {
    /// Checks what spans several fields, and fills in the defaults.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the field.
    pub fn into_ask(
        self,
        resource: ResourceAddress,
        caller: &Caller,
        headers: Headers,
        rules: &LeaseRules,
    ) -> Result<Ask, Refusal> {
        let left_out =
            LeftOut { mode: self.mode.is_none(), ttl: self.ttl_ms.is_none(), priority: self.priority.is_none() };
        Ok(Ask {
            id: RequestId::generate(),
            door: Door::Acquire,
            wait: match self.on_conflict.unwrap_or(OnConflict::Fail) {
                OnConflict::Fail => WaitPolicy::Fail,
                OnConflict::JoinWaitingRoom => WaitPolicy::JoinWaitingRoom,
            },
            requester: requester(caller, self.requester, headers.requester)?,
            target: Target::Resource(resource),
            mode: self.mode.unwrap_or_default(),
            ttl: bounded_ttl(self.ttl_ms, rules)?.unwrap_or(rules.default_ttl),
            priority: self.priority.unwrap_or_default(),
            lease_id: self.lease_id,
            note: self.note,
            key: one_of("idempotencyKey", self.idempotency_key, headers.idempotency_key)?,
            ticket: self.ticket,
            allow_shorter: self.allow_shorter,
            by_admin: caller.role == Role::Admin,
            left_out,
        })
    }
}

impl RequestBody {
    /// Checks what spans several fields, and fills in the defaults.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the field.
    pub fn into_ask(self, caller: &Caller, headers: Headers, rules: &LeaseRules) -> Result<Ask, Refusal> {
        let target = match (self.resource_id, self.select) {
            (Some(address), None) => Target::Resource(address),
            (None, Some(selector)) => Target::Select(selector),
            (Some(_), Some(_)) => {
                return Err(Refusal::bad_field("select", "name either select or resourceId, not both"));
            }
            (None, None) => return Err(Refusal::bad_field("select", "is missing; name select or resourceId")),
        };
        let wait = match (self.no_wait, self.timeout_ms) {
            (true, Some(_)) => {
                return Err(Refusal::bad_field("timeoutMs", "bounds a wait, and noWait says not to wait; send one"));
            }
            (true, None) => WaitPolicy::NoWait,
            (false, timeout) => WaitPolicy::Wait { timeout: timeout.map(Timeout::duration) },
        };
        Ok(Ask {
            id: RequestId::generate(),
            door: Door::Request,
            wait,
            requester: requester(caller, self.requester, headers.requester)?,
            target,
            mode: self.mode.unwrap_or_default(),
            ttl: bounded_ttl(self.ttl_ms, rules)?.unwrap_or(rules.default_ttl),
            priority: self.priority.unwrap_or_default(),
            lease_id: self.lease_id,
            note: self.note,
            key: one_of("idempotencyKey", self.idempotency_key, headers.idempotency_key)?,
            ticket: self.ticket,
            allow_shorter: self.allow_shorter,
            by_admin: caller.role == Role::Admin,
            left_out: LeftOut::default(),
        })
    }
}

/// Checks a ttl against `lease.max_ttl`.
///
/// # Errors
/// `BAD_REQUEST` naming the field.
pub fn bounded_ttl(ttl: Option<Ttl>, rules: &LeaseRules) -> Result<Option<std::time::Duration>, Refusal> {
    match ttl.map(Ttl::duration) {
        Some(ttl) if ttl > rules.max_ttl => {
            let most = rules.max_ttl.as_millis();
            Err(Refusal::bad_field("ttlMs", format!("at most {most} here (lease.max_ttl); ask for less and renew")))
        }
        ttl => Ok(ttl),
    }
}

/// The requester of a call; the body and the header may both name it, if they agree.
pub fn requester(caller: &Caller, body: Option<SubName>, header: Option<SubName>) -> Result<Requester, Refusal> {
    Ok(Requester::local(caller.principal.clone(), one_of("requester", body, header)?))
}

pub(super) fn one_of<T: PartialEq>(field: &str, body: Option<T>, header: Option<T>) -> Result<Option<T>, Refusal> {
    match (body, header) {
        (Some(body), Some(header)) if body != header => {
            Err(Refusal::bad_field(field, "body and header differ; send one"))
        }
        (body, header) => Ok(body.or(header)),
    }
}
