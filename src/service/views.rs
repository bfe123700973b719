//! The shapes of the answers (SPEC §13). They are written by a node and read by the client.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::{Now, RunTime};
use crate::model::time::{instant, instant_option, whole_ms};
use crate::model::{
    Caller, DeviceState, EventId, EventKind, Fence, HookFailure, Labels, LeaseId, LeaseRecord, Mode, NodeName,
    NodeRole, Note, Priority, Refusal, RequestId, Requester, ResourceId, Role, Ticket, WaitingFor,
};

/// A lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// Its name at this node.
    pub id: LeaseId,
    /// The request that got it.
    pub request_id: RequestId,
    /// What it holds.
    pub resource_id: ResourceId,
    /// Alone or shared.
    pub mode: Mode,
    /// Whose it is.
    pub holder_id: Requester,
    /// The principal behind the holder.
    pub owner_id: Requester,
    /// When it was granted.
    #[serde(with = "instant")]
    pub granted_at: Timestamp,
    /// When it was last renewed; the grant counts.
    #[serde(with = "instant")]
    pub renewed_at: Timestamp,
    /// Its width.
    pub ttl_ms: u64,
    /// The width that was asked for, where a booking has cut it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_ttl_ms: Option<u64>,
    /// When it ends, by the node's wall clock.
    #[serde(with = "instant")]
    pub expires_at: Timestamp,
    /// How long that is from the answer; a client counts from when it sent the question.
    pub expires_in_ms: u64,
    /// True when the requester chose `id`.
    pub id_chosen_by_requester: bool,
    /// The fence of the grant.
    pub fence: Fence,
    /// Free text of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The resource's labels.
    pub labels: Labels,
    /// What a holder needs to reach the device.
    pub environment: BTreeMap<String, String>,
    /// The worker that owns the resource; at a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerRef>,
}

/// Names a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRef {
    /// Its name.
    pub id: NodeName,
}

impl LeaseView {
    /// A lease as its worker shows it.
    pub fn new(lease: &LeaseRecord, deadline: RunTime, labels: &Labels, now: Now) -> Self {
        Self {
            id: lease.id.clone(),
            request_id: lease.request_id.clone(),
            resource_id: lease.resource_id.clone(),
            mode: lease.mode,
            holder_id: lease.holder.clone(),
            owner_id: lease.holder.owner(),
            granted_at: lease.granted_at,
            renewed_at: lease.renewed_at,
            ttl_ms: whole_ms(lease.ttl),
            asked_ttl_ms: lease.asked_ttl.map(whole_ms),
            expires_at: now.wall_at(deadline),
            expires_in_ms: whole_ms(deadline.left(now.run)),
            id_chosen_by_requester: lease.id_chosen_by_requester,
            fence: lease.fence,
            note: lease.note.clone(),
            labels: labels.clone(),
            environment: BTreeMap::new(),
            worker: None,
        }
    }

    /// The same lease as a gateway shows it: under the gateway's id, with its requester unprefixed.
    pub fn through(mut self, worker: &NodeName, id: LeaseId) -> Self {
        self.id = id;
        self.holder_id = self.holder_id.bare();
        self.owner_id = self.owner_id.bare();
        self.worker = Some(WorkerRef { id: worker.clone() });
        self
    }
}

/// Answer to a release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// The lease that is over.
    pub lease_id: LeaseId,
    /// What it held.
    pub resource_id: ResourceId,
    /// For people.
    pub message: String,
    /// The holder that was taken first from those who wait, granted or admitted; null when nobody was.
    pub admitted_waiter: Option<Requester>,
}

impl Released {
    /// The answer for one lease.
    pub fn new(lease_id: LeaseId, resource_id: ResourceId, admitted_waiter: Option<Requester>) -> Self {
        let message = format!("Lease {lease_id} released");
        Self { lease_id, resource_id, message, admitted_waiter }
    }
}

/// Where a lease request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RequestState {
    /// Not settled yet.
    Waiting,
    /// It got a lease, which may have ended since.
    Granted,
    /// It got none.
    Failed,
    /// Its owner did not want it any more.
    Cancelled,
}

/// A lease request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestView {
    /// Its name.
    pub id: RequestId,
    /// Where it stands.
    pub state: RequestState,
    /// When it came in.
    #[serde(with = "instant")]
    pub created_at: Timestamp,
    /// Its place among those who wait for the same, from 1; while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Why nothing moves; while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// Until when that lasts at the latest, where it is known.
    #[serde(with = "instant_option", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The place in line, for a node that was restarted meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
    /// The lease as it was granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Refusal>,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    /// Its id on its worker.
    pub id: ResourceId,
    /// What selectors see.
    pub labels: Labels,
    /// What it is doing.
    pub state: DeviceState,
    /// More about that, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Until when that lasts, as far as anybody can tell.
    #[serde(with = "instant_option", default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The hook that failed last, until one succeeds; for admins and viewers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HookFailure>,
    /// The fence of its latest grant.
    pub fence: Fence,
    /// How many shared leases may coexist.
    pub max_shared: u32,
    /// How many wait for it by its name, of both kinds.
    pub queue_length: usize,
    /// The worker that owns it; at a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<NodeName>,
    /// False while its worker is not connected, so that this is what was last heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// Its active leases.
    pub leases: Vec<LeaseBrief>,
}

/// A lease, as a resource's page shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseBrief {
    /// Its name at this node.
    pub id: LeaseId,
    /// Whose it is; only for an admin, a viewer, and oneself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_id: Option<Requester>,
    /// Alone or shared.
    pub mode: Mode,
    /// When it ends.
    #[serde(with = "instant")]
    pub expires_at: Timestamp,
}

impl LeaseBrief {
    /// What `caller` may see of a lease.
    pub fn new(lease: &LeaseView, caller: &Caller) -> Self {
        let shown = caller.role != Role::Agent || caller.may_read(&lease.holder_id);
        Self {
            id: lease.id.clone(),
            holder_id: shown.then(|| lease.holder_id.clone()),
            mode: lease.mode,
            expires_at: lease.expires_at,
        }
    }
}

/// A waiting room (SPEC §3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingRoomView {
    /// How many wait.
    pub count: usize,
    /// For what.
    pub resource_id: ResourceId,
    /// They, in their order.
    pub waiters: Vec<WaiterView>,
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaiterView {
    /// Who.
    pub holder_id: Requester,
    /// Since when.
    #[serde(with = "instant")]
    pub joined_at: Timestamp,
    /// When it last asked, or was asked about.
    #[serde(with = "instant")]
    pub last_seen: Timestamp,
    /// Alone or shared.
    pub mode: Mode,
    /// Its rank.
    pub priority: Priority,
}

/// An event (SPEC §10).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Its name.
    pub id: EventId,
    /// Its number in the log of its node.
    pub seq: u64,
    /// When it happened.
    #[serde(with = "instant")]
    pub timestamp: Timestamp,
    /// What kind of thing happened.
    pub event: EventKind,
    /// The facts.
    pub payload: serde_json::Map<String, serde_json::Value>,
    /// The node whose log this is.
    pub node: NodeName,
    /// The worker that has relayed it; absent where the node tells of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<NodeName>,
}

/// How a worker's link stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    /// Up.
    Connected,
    /// Down.
    Disconnected,
    /// It speaks no common protocol version, and is not used.
    Incompatible,
}

/// A worker, as its gateway sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// Its name.
    pub name: NodeName,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// How its link stands.
    pub connection: Connection,
    /// True once it has reported since the gateway started.
    pub known: bool,
    /// True when an operator has taken the whole worker out.
    #[serde(default)]
    pub drained: bool,
    /// When it was last heard.
    #[serde(with = "instant_option", default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<Timestamp>,
    /// Its version of Berth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The protocol versions that it speaks: `1` or `1-2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// How many resources it has.
    pub resources: usize,
    /// How many leases it has, of any requester.
    pub leases: usize,
    /// How many wait for its resources by name.
    #[serde(default)]
    pub queue_length: usize,
}

/// Counts of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The node.
    pub node: NodeView,
    /// Its resources, at a gateway those of all workers.
    pub resources: ResourceCounts,
    /// Active leases.
    pub leases: usize,
    /// Those who wait, of both kinds.
    pub waiting: usize,
    /// The gateway; at a worker that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayView>,
    /// The workers; at a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<Vec<WorkerView>>,
}

/// A worker's gateway, and how the worker stands with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayView {
    /// Its name.
    pub name: NodeName,
    /// Where the worker dials it.
    pub address: String,
    /// How it is.
    pub connection: GatewayConnection,
    /// Since when it is so.
    #[serde(with = "instant")]
    pub since: Timestamp,
    /// Why there is no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How a worker stands with its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GatewayConnection {
    /// There is a link.
    Connected,
    /// There is none, and it is dialled.
    Disconnected,
    /// They have no protocol version in common.
    Incompatible,
    /// One of the two will not have the other.
    Refused,
}

impl GatewayConnection {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            GatewayConnection::Connected => "connected",
            GatewayConnection::Disconnected => "disconnected",
            GatewayConnection::Incompatible => "incompatible",
            GatewayConnection::Refused => "refused",
        }
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// `gateway` or `worker`.
    pub role: NodeRole,
    /// Its version of Berth.
    pub version: String,
    /// When it started.
    #[serde(with = "instant")]
    pub started_at: Timestamp,
    /// Whether it admits requests.
    pub ready: bool,
}

/// Resources by what they are doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceCounts {
    /// All.
    pub total: usize,
    /// Free.
    pub available: usize,
    /// Held.
    pub leased: usize,
    /// Being made ready for a lease.
    #[serde(default)]
    pub preparing: usize,
    /// Being brought back to what they were before a lease.
    #[serde(default)]
    pub resetting: usize,
    /// Left alone for a while after a lease that nobody released.
    #[serde(default)]
    pub cooling: usize,
    /// Failed.
    #[serde(default)]
    pub quarantined: usize,
    /// Not seen by their driver, or in use elsewhere.
    #[serde(default)]
    pub absent: usize,
    /// Taken out by an operator.
    pub drained: usize,
}

impl ResourceCounts {
    /// Counts states.
    pub fn of(states: impl Iterator<Item = DeviceState>) -> Self {
        states.fold(Self::default(), |mut counts, state| {
            counts.total += 1;
            match state {
                DeviceState::Available => counts.available += 1,
                DeviceState::Leased => counts.leased += 1,
                DeviceState::Preparing => counts.preparing += 1,
                DeviceState::Resetting => counts.resetting += 1,
                DeviceState::Cooling => counts.cooling += 1,
                DeviceState::Quarantined => counts.quarantined += 1,
                DeviceState::Absent => counts.absent += 1,
                DeviceState::Drained => counts.drained += 1,
            }
            counts
        })
    }
}

/// Whether a node admits requests (`readyz`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// True when it does.
    pub ready: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// How many workers there are and how many have reported; at a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerCounts>,
}

/// Workers of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerCounts {
    /// On the roster.
    pub configured: usize,
    /// Of these, how many have reported since the gateway started.
    pub reported: usize,
}

/// How long until `view` ends, for a table.
pub fn left(view: &LeaseView) -> Duration {
    Duration::from_millis(view.expires_in_ms)
}
