//! From what the database holds to a desk that goes on where the last run stopped (SPEC §8).

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;

use super::directory::Directory;
use super::drift::{DRIFT_MAX, Drift};
use super::message::FirstGrant;
use super::resource::restored;
use super::schedule::Schedule;
use crate::admission::resource::{Change, Command, ResourceState, apply, decide};
use crate::admission::{LeaseRules, Ledger, Requests};
use crate::clock::Now;
use crate::limits::RESOURCES_MAX;
use crate::model::{Labels, LeaseRecord, RequestId, ResourceId, ResourceSpec};
use crate::store::{Loaded, StoredRequest};

/// What the last run left, as the desk's own parts.
#[derive(Debug)]
pub struct Restarted {
    pub(super) incarnation: u64,
    pub(super) ledger: Ledger,
    pub(super) requests: Requests<FirstGrant>,
    pub(super) directory: Directory,
    pub(super) schedule: Schedule,
    pub(super) drift: Drift,
}

/// The resources of the lab file as the database knows them, and what has expired while the node was down. The
/// changes must be durable before [`Restoring::finish`].
#[derive(Debug)]
pub struct Restoring {
    incarnation: u64,
    resources: Vec<(ResourceSpec, bool, ResourceState)>,
    requests: Vec<StoredRequest>,
    /// Resources whose deadlines on disk lay outside the width of their lease, because the wall clock was set while the
    /// node was down.
    clamped: BTreeSet<ResourceId>,
    /// For each resource with something to write, its changes.
    pub expired: Vec<(ResourceId, Vec<Change>)>,
}

impl Restoring {
    /// Brings the lab file and the database together.
    pub fn begin(specs: Vec<ResourceSpec>, loaded: Loaded, now: Now) -> Self {
        let outside = |(lease, expires_at): &(LeaseRecord, Timestamp)| {
            let kept = now.wall_at(now.run_at(*expires_at, lease.ttl));
            expires_at.duration_since(kept).abs() > DRIFT_MAX
        };
        let clamped = (loaded.resources.iter())
            .filter(|rows| rows.leases.iter().any(outside))
            .map(|rows| rows.id.clone())
            .collect();
        let mut stored: HashMap<ResourceId, _> =
            loaded.resources.into_iter().map(|resource| (resource.id.clone(), resource)).collect();
        let mut resources = Vec::with_capacity(specs.len());
        for spec in specs {
            let state = stored.remove(&spec.id).map(|rows| restored(rows, now)).unwrap_or_default();
            resources.push((spec, true, state));
        }
        // A leased resource that is gone from the lab file goes after its release.
        let gone = stored.into_values().filter(|rows| !rows.leases.is_empty());
        for rows in gone {
            tracing::warn!(resource = %rows.id, "is leased but no longer in the lab file; it takes no new lease and is gone at the next start after its release");
            let one = std::num::NonZeroU32::MIN;
            let spec = ResourceSpec { id: rows.id.clone(), labels: Labels::new(), max_shared: one };
            resources.push((spec, false, restored(rows, now)));
        }
        assert!(resources.len() <= 2 * RESOURCES_MAX, "the lab file's bound holds for what it has left behind");
        let mut expired = Vec::new();
        for (spec, _, state) in &mut resources {
            let changes = decide(state, spec, Command::Wake, now).changes;
            if !changes.is_empty() {
                changes.iter().cloned().for_each(|change| apply(state, change));
                expired.push((spec.id.clone(), changes));
            }
        }
        Self { incarnation: loaded.incarnation, resources, requests: loaded.requests, clamped, expired }
    }

    /// The desk's parts.
    pub fn finish(self, rules: &LeaseRules, now: Now) -> Restarted {
        let mut ledger = Ledger::new(rules.max_per_requester);
        let mut requests = Requests::new(rules.request_retention);
        let mut directory = Directory::default();
        let mut schedule = Schedule::default();
        let active: HashSet<RequestId> = (self.resources.iter())
            .flat_map(|(_, _, state)| state.held.iter().map(|held| held.lease.request_id.clone()))
            .collect();
        let labels: HashMap<ResourceId, Labels> =
            self.resources.iter().map(|(spec, ..)| (spec.id.clone(), spec.labels.clone())).collect();
        // Before the active leases: should one key stand for an ended and an active lease, the active one has it.
        for request in self.requests {
            let is_active = active.contains(&request.id);
            let StoredRequest { id, requester, key, fingerprint, lease, expires_at, ended_at } = request;
            let labels = labels.get(&lease.resource_id).cloned().unwrap_or_default();
            let own_key = key.filter(|_| requester.via.is_none());
            if let (Some(key), false) = (&own_key, is_active) {
                ledger.remember(&id, &requester, key.clone(), fingerprint);
            }
            requests.open(id.clone(), requester, own_key, lease.granted_at);
            requests.grant(&id, FirstGrant { lease, expires_at, labels });
            if !is_active {
                // Its retention has run while the node was down, as far as the wall clock can tell.
                let ago =
                    ended_at.map_or(std::time::Duration::ZERO, |ended| crate::model::time::remaining(ended, now.wall));
                let since = crate::clock::RunTime(now.run.0.saturating_sub(ago));
                requests.end(&id, since);
            }
        }
        for (spec, grantable, state) in self.resources {
            for held in &state.held {
                let lease = &held.lease;
                let own_key = lease.idempotency_key.clone().filter(|_| lease.holder.via.is_none());
                let key = own_key.map(|key| (key, lease.fingerprint));
                ledger.restore(&lease.request_id, &lease.holder, &lease.id, key);
            }
            schedule.set(&spec.id, state.wake_at());
            directory.add(spec, grantable, state);
        }
        let drift = Drift::new(now, self.clamped);
        Restarted { incarnation: self.incarnation, ledger, requests, directory, schedule, drift }
    }
}
