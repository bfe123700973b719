//! Requests of a gateway's as their worker reports them: those that wait there, and those that are settled.
//!
//! Only requests whose requester comes through this gateway are said (`gw:<gateway>:…`), under the gateway's own request
//! ids. So a gateway that has started anew knows again who waits, which lease ids and keys are taken, and how a request
//! ended that was answered before.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::report::LeaseRow;
use crate::model::time::micros;
use crate::model::{
    ChosenLeaseId, Fingerprint, IdempotencyKey, Labels, Mode, Refusal, RequestId, Requester, ResourceId, Ticket,
    WaitingFor,
};

/// A request that waits for a resource by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingRow {
    /// The gateway's request.
    pub request: RequestId,
    /// `gw:<gateway>:<requester>`.
    pub requester: Requester,
    /// What it waits for.
    pub resource: ResourceId,
    /// Alone or shared.
    pub mode: Mode,
    /// True for one that is granted its lease by the worker; false for one that stands in the waiting room and asks again.
    pub attended: bool,
    /// The lease id that it holds while it waits.
    pub lease_id: Option<ChosenLeaseId>,
    /// The requester's key.
    pub key: Option<IdempotencyKey>,
    /// What the key stands for at the gateway.
    pub fingerprint: Fingerprint,
    /// When it joined.
    #[serde(with = "micros")]
    pub joined_at: Timestamp,
}

/// A request that is settled and still remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettledRow {
    /// The gateway's request.
    pub request: RequestId,
    /// `gw:<gateway>:<requester>`.
    pub requester: Requester,
    /// The requester's key.
    pub key: Option<IdempotencyKey>,
    /// What the key stands for at the gateway.
    pub fingerprint: Fingerprint,
    /// When it was taken on.
    #[serde(with = "micros")]
    pub created_at: Timestamp,
    /// How long ago its end was, in ms; none while its lease is active.
    pub ended_ms_ago: Option<u64>,
    /// How it ended.
    pub outcome: SettledOutcome,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "read, handed on and dropped: few at a time, and most are the large one")]
pub enum SettledOutcome {
    /// It got this lease, which may have ended since.
    #[serde(rename_all = "camelCase")]
    Granted {
        /// Of which resource.
        resource: ResourceId,
        /// As it was granted.
        lease: LeaseRow,
        /// When it was to end.
        #[serde(with = "micros")]
        expires_at: Timestamp,
        /// The labels of the resource.
        labels: Labels,
        /// What its holder needed to reach the device.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        environment: BTreeMap<String, String>,
    },
    /// It got nothing.
    Failed(Refusal),
    /// Its owner gave it up.
    Cancelled,
}

/// Where a request stands that waits at a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The request that stands there; of an unattended waiter the first that it asked with.
    pub request: RequestId,
    /// In whose waiting room.
    pub resource: ResourceId,
    /// Alone or shared.
    pub mode: Mode,
    /// From 1, over the whole waiting room.
    pub position: u64,
    /// Why nothing moves; none for an unattended waiter, which is only told its place.
    pub waiting_for: Option<WaitingFor>,
    /// Until when at the latest, in ms from now, where that is known.
    pub until_ms: Option<u64>,
    /// The same place for a later run of the worker, signed by the worker. Opaque to the gateway, which hands it on to the
    /// caller and brings it back with the next dispatch.
    pub ticket: Ticket,
}
