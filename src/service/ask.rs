//! The bodies of the two doors (SPEC §2), and their way to a checked [`Ask`].

use serde::{Deserialize, Serialize};

use crate::admission::LeaseRules;
use crate::model::{
    Ask, Caller, ChosenLeaseId, Door, IdempotencyKey, Mode, Note, Principal, Priority, Refusal, RequestId, Requester,
    ResourceAddress, Role, Selector, SubName, Target, Ttl,
};

/// Body of `POST /v1/resources/{id}/leases`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcquireBody {
    /// What to do when the resource is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_conflict: Option<OnConflict>,
    /// The id that the lease is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<ChosenLeaseId>,
    /// Alone or shared.
    #[serde(default)]
    pub mode: Mode,
    /// The lease's width; default `lease.default_ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The rank among those that wait.
    #[serde(default)]
    pub priority: Priority,
    /// The sub-name for whom the caller acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<SubName>,
    /// Free text for the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The caller's name for this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// What an acquire does when the resource is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnConflict {
    /// Answer `RESOURCE_UNAVAILABLE`.
    Fail,
}

/// Body of `POST /v1/lease-requests`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequestBody {
    /// Exactly this resource; either this or `select`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_id: Option<ResourceAddress>,
    /// Any resource that matches; either this or `resourceId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<Selector>,
    /// Rather be refused than wait.
    #[serde(default)]
    pub no_wait: bool,
    /// The id that the lease is to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<ChosenLeaseId>,
    /// Alone or shared.
    #[serde(default)]
    pub mode: Mode,
    /// The lease's width; default `lease.default_ttl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The rank among those that wait.
    #[serde(default)]
    pub priority: Priority,
    /// The sub-name for whom the caller acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<SubName>,
    /// Free text for the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The caller's name for this attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Body of `POST /v1/leases/{id}/renew`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewBody {
    /// A new width; default the lease's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The grant that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<crate::model::Fence>,
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

/// What a call says outside its body: headers that stand for a field.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// `Berth-Requester`.
    pub requester: Option<SubName>,
    /// `Idempotency-Key`.
    pub idempotency_key: Option<IdempotencyKey>,
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
        Ok(Ask {
            id: RequestId::generate(),
            door: Door::Acquire,
            no_wait: true,
            requester: requester(caller, self.requester, headers.requester)?,
            target: Target::Resource(resource),
            mode: self.mode,
            ttl: bounded_ttl(self.ttl_ms, rules)?.unwrap_or(rules.default_ttl),
            priority: self.priority,
            lease_id: self.lease_id,
            note: self.note,
            key: one_of("idempotencyKey", self.idempotency_key, headers.idempotency_key)?,
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
        Ok(Ask {
            id: RequestId::generate(),
            door: Door::Request,
            no_wait: self.no_wait,
            requester: requester(caller, self.requester, headers.requester)?,
            target,
            mode: self.mode,
            ttl: bounded_ttl(self.ttl_ms, rules)?.unwrap_or(rules.default_ttl),
            priority: self.priority,
            lease_id: self.lease_id,
            note: self.note,
            key: one_of("idempotencyKey", self.idempotency_key, headers.idempotency_key)?,
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

fn one_of<T: PartialEq>(field: &str, body: Option<T>, header: Option<T>) -> Result<Option<T>, Refusal> {
    match (body, header) {
        (Some(body), Some(header)) if body != header => {
            Err(Refusal::bad_field(field, "body and header differ; send one"))
        }
        (body, header) => Ok(body.or(header)),
    }
}
