//! From what the database holds to a desk that goes on where the last run stopped (SPEC §8).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::calendar_index::CalendarIndex;
use super::directory::Directory;
use super::drift::{DRIFT_MAX, Drift};
use super::gateway_link::GatewayLink;
use super::message::FirstGrant;
use super::restored::restored;
use super::returning::Returning;
use super::schedule::Schedule;
use crate::admission::resource::{
    Around, Change, Departure, EndReason, Fresh, Rejection, ResourceState, apply, settled_at_start, withdrawn,
};
use crate::admission::ticket::TicketKey;
use crate::admission::{Ledger, Requests, Rules};
use crate::clock::{Now, RunTime};
use crate::limits::RESOURCES_MAX;
use crate::model::time::remaining;
use crate::model::{
    BookingId, BookingPolicy, Driver, Labels, LeaseId, NodeName, Proposal, RequestId, ResourceAddress, ResourceId,
    ResourceSpec,
};
use crate::store::{Loaded, StoredOutcome, StoredRequest, StoredResource};

/// The first admission after a start is reserved at least so long: whoever is admitted may not have noticed yet that the
/// node is back.
pub(super) const FIRST_GRACE: Duration = Duration::from_secs(10);

/// What the last run left, as the desk's own parts.
#[derive(Debug)]
pub struct Restarted {
    pub(super) incarnation: u64,
    pub(super) ledger: Ledger,
    pub(super) requests: Requests<FirstGrant>,
    pub(super) returning: Returning,
    pub(super) ended: HashMap<LeaseId, RequestId>,
    pub(super) directory: Directory,
    pub(super) schedule: Schedule<ResourceId>,
    pub(super) link: GatewayLink,
    pub(super) edges: Schedule<ResourceId, Timestamp>,
    pub(super) index: CalendarIndex,
    pub(super) drift: Drift,
    /// Resources that became free while the node was down.
    pub(super) freed: Vec<ResourceId>,
}

/// The resources of the lab file as the database knows them, and what has ended while the node was down. The
/// changes must be durable before [`Restoring::finish`].
#[derive(Debug)]
pub struct Restoring {
    incarnation: u64,
    link: GatewayLink,
    resources: Vec<(ResourceSpec, bool, ResourceState)>,
    requests: Vec<StoredRequest>,
    /// Resources whose deadlines on disk lay outside the width of their lease or hold, because the wall clock was set while the
    /// node was down.
    clamped: BTreeSet<ResourceId>,
    freed: Vec<ResourceId>,
    /// For each resource with something to write, its changes; without a resource those of requests that waited.
    pub ended: Vec<(Option<ResourceId>, Vec<Change>)>,
}

impl Restoring {
    /// Brings the lab file and the database together.
    pub fn begin(
        specs: Vec<ResourceSpec>,
        mut loaded: Loaded,
        gateway: Option<NodeName>,
        rules: &Rules,
        now: Now,
    ) -> Self {
        let link = GatewayLink::new(gateway, rules.lease.uplink_grace, loaded.drained);
        let outside = |expires_at: Timestamp, width: Duration| {
            let kept = now.wall_at(now.run_at_or_before(expires_at, width));
            expires_at.duration_since(kept).abs() > DRIFT_MAX
        };
        let is_clamped = |rows: &&StoredResource| {
            let mut holds = rows.holds.iter().filter(|(hold, _)| hold.settled_at.is_none());
            rows.leases.iter().any(|(lease, expires_at)| outside(*expires_at, lease.ttl))
                || holds.any(|(hold, expires_at)| outside(*expires_at, hold.ttl))
        };
        let clamped = (loaded.resources.iter()).filter(is_clamped).map(|rows| rows.id.clone()).collect();
        let mut stored: HashMap<ResourceId, _> =
            loaded.resources.into_iter().map(|resource| (resource.id.clone(), resource)).collect();
        let mut resources = Vec::with_capacity(specs.len());
        for spec in specs {
            let unused = || ResourceState { free_since: Some(now.wall), ..ResourceState::default() };
            let state = stored.remove(&spec.id).map_or_else(unused, |rows| restored(rows, rules, now));
            resources.push((spec, true, state));
        }
        // A leased resource that is gone from the lab file goes after its release; nobody waits for it any more.
        let mut ended = Vec::new();
        for rows in stored.into_values().filter(|rows| !rows.leases.is_empty() || !rows.waiters.is_empty()) {
            let spec = ResourceSpec { driver: Arc::new(Driver::unknown()), ..ResourceSpec::bare(rows.id.clone()) };
            let mut state = restored(rows, rules, now);
            let left = |waiter: &crate::admission::Waiter| Change::Left {
                waiter: Box::new(waiter.clone()),
                why: Departure::Left,
                at: now.wall,
            };
            let changes: Vec<Change> = state.queue.iter().map(left).collect();
            changes.iter().cloned().for_each(|change| apply(&mut state, change));
            if !changes.is_empty() {
                ended.push((Some(spec.id.clone()), changes));
            }
            if !state.held.is_empty() {
                tracing::warn!(resource = %spec.id, "is leased but no longer in the lab file; it takes no new lease and goes after its release");
                resources.push((spec, false, state));
            }
        }
        assert!(resources.len() <= 2 * RESOURCES_MAX, "the lab file's bound holds for what it has left behind");
        let mut freed = Vec::new();
        for (spec, _, state) in &mut resources {
            let fresh = Fresh { request: RequestId::generate(), lease: LeaseId::generate() };
            // Beside what must not be, the database lets no booking be settled; that waits for the repair.
            let damaged = loaded.violations.iter().any(|violation| violation.resource == spec.id);
            let bookings = state.calendar.bookings().filter(|_| damaged).map(|booking| booking.id.clone());
            let unsettled: BTreeSet<BookingId> = bookings.collect();
            let around = Around {
                spec,
                rules: &rules.waiting,
                max_total: rules.lease.max_total,
                calendar: &rules.calendar,
                holds_paused: false,
                fresh: Some(&fresh),
                driver: &spec.driver,
                unsettled: &unsettled,
                rivals: Default::default(),
                node: link.node(),
                now,
            };
            let changes = settled_at_start(state, &around);
            loaded.requests.extend(changes.iter().filter_map(granted_at_start));
            // A window of which nothing is to be written may have ended meanwhile as well.
            let window_over = state.calendar.scheduled_and_over(now.wall).next().is_some();
            if !changes.is_empty() || (window_over && spec.bookings != BookingPolicy::default()) {
                freed.push(spec.id.clone());
            }
            if !changes.is_empty() {
                changes.iter().cloned().for_each(|change| apply(state, change));
                ended.push((Some(spec.id.clone()), changes));
            }
        }
        let open = loaded.requests.iter().filter(|request| request.outcome == StoredOutcome::Open);
        for proposal in open.filter_map(of_open) {
            let reason = Rejection::DaemonRestarted;
            let refusal = withdrawn(&proposal, reason, &rules.waiting);
            let change = Change::Rejected { proposal, reason, refusal, waited: true, at: now.wall };
            ended.push((None, vec![change]));
        }
        let over: HashMap<&RequestId, (Timestamp, EndReason)> = (ended.iter().flat_map(|(_, changes)| changes))
            .filter_map(|change| match change {
                Change::Ended { lease, reason, at } => Some((&lease.request_id, (*at, *reason))),
                _ => None,
            })
            .collect();
        for request in &mut loaded.requests {
            if let StoredOutcome::Granted { ended, .. } = &mut request.outcome
                && let Some((at, reason)) = over.get(&request.id)
            {
                *ended = Some((*at, Some(*reason)));
            }
        }
        let requests = loaded.requests;
        Self { incarnation: loaded.incarnation, link, resources, requests, clamped, freed, ended }
    }

    /// The desk's parts.
    pub fn finish(self, rules: &Rules, tickets: Arc<TicketKey>, now: Now) -> Restarted {
        let mut ledger = Ledger::new(rules.lease.max_per_requester);
        let mut requests = Requests::new(rules.lease.request_retention);
        let mut returning = Returning::new(tickets, self.incarnation);
        let mut ended = HashMap::new();
        let mut directory = Directory::default();
        let mut link = self.link;
        let (mut schedule, mut edges) = (Schedule::default(), Schedule::default());
        let mut index = CalendarIndex::default();
        let active: HashSet<RequestId> = (self.resources.iter())
            .flat_map(|(_, _, state)| state.held.iter().map(|held| held.lease.request_id.clone()))
            .collect();
        let labels: HashMap<ResourceId, Labels> =
            self.resources.iter().map(|(spec, ..)| (spec.id.clone(), spec.labels.clone())).collect();
        // Its retention has run while the node was down, as far as the wall clock can tell.
        let since = |at: Timestamp| RunTime(now.run.0.saturating_sub(remaining(at, now.wall)));
        // Before the active leases: should one key stand for an ended and an active lease, the active one has it.
        for request in self.requests {
            let id = &request.id;
            let own_key = request.key.clone().filter(|_| request.requester.via.is_none());
            if let (Some(key), false) = (&own_key, active.contains(id) || request.outcome == StoredOutcome::Open) {
                ledger.remember(id, &request.requester, key.clone(), request.fingerprint);
            }
            requests.open(id.clone(), request.requester.clone(), request.key.clone(), request.created_at);
            requests.stands_for(id, request.fingerprint);
            requests.store(id);
            if let Some(place) = &request.place {
                returning.add(id.clone(), place.clone());
            }
            match &request.outcome {
                StoredOutcome::Open => {
                    if let (Some(place), Some(proposal)) = (&request.place, of_open(&request)) {
                        let refusal = withdrawn(&proposal, Rejection::DaemonRestarted, &rules.waiting);
                        requests.fail(id, refusal, false, now.run);
                        returning.expect(&request, place, rules, now);
                    }
                }
                StoredOutcome::Failed { cancelled: true, at, .. } => requests.cancel(id, since(*at)),
                StoredOutcome::Failed { refusal, at, .. } => requests.fail(id, refusal.clone(), true, since(*at)),
                StoredOutcome::Granted { lease, expires_at, ended: end } => {
                    let labels = labels.get(&lease.resource_id).cloned().unwrap_or_default();
                    let first = FirstGrant {
                        lease: lease.clone(),
                        expires_at: *expires_at,
                        labels,
                        environment: BTreeMap::new(),
                    };
                    requests.grant(id, first);
                    if !active.contains(id) {
                        let (at, reason) = end.unwrap_or((now.wall, None));
                        requests.say_end(id, at, reason);
                        requests.end(id, since(at));
                        ended.insert(lease.id.clone(), id.clone());
                    }
                }
            }
        }
        for (spec, grantable, state) in self.resources {
            for held in &state.held {
                let lease = &held.lease;
                let own_key = lease.idempotency_key.clone().filter(|_| lease.holder.via.is_none());
                let key = own_key.map(|key| (key, lease.fingerprint));
                ledger.restore(&lease.request_id, &lease.holder, &lease.id, key);
                ended.remove(&lease.id);
            }
            for waiter in state.queue.iter() {
                let room = ResourceAddress { worker: None, id: spec.id.clone() };
                ledger.restore_waiter(&waiter.proposal.request, &waiter.proposal.holder, room, None);
            }
            link.expect(&spec.id, &state);
            schedule.set(&spec.id, state.wake_at(&spec, &rules.waiting, link.node(), now));
            edges.set(&spec.id, state.next_edge(&spec, link.node(), now.wall));
            index.add(&state.calendar);
            directory.add(spec, grantable, state, now.wall);
        }
        let drift = Drift::new(now, self.clamped);
        let (incarnation, freed) = (self.incarnation, self.freed);
        Restarted {
            incarnation,
            ledger,
            requests,
            returning,
            ended,
            directory,
            schedule,
            link,
            edges,
            index,
            drift,
            freed,
        }
    }
}

/// What a request that waited at the end of the last run was to get. An open one is always written with its place.
fn of_open(request: &StoredRequest) -> Option<Proposal> {
    let place = request.place.as_ref()?;
    Some(Proposal {
        request: request.id.clone(),
        holder: request.requester.clone(),
        target: place.target.clone(),
        mode: place.mode,
        priority: place.priority,
        ttl: place.ttl,
        lease: LeaseId::generate(),
        id_chosen_by_requester: false,
        note: place.note.clone(),
        key: None,
        fingerprint: request.fingerprint,
        allow_shorter: false,
        by_admin: false,
    })
}

/// The request of a lease that was granted at the start itself, to the holder of a booking.
fn granted_at_start(change: &Change) -> Option<StoredRequest> {
    let Change::Granted { lease, expires_at, .. } = change else { return None };
    Some(StoredRequest {
        id: lease.request_id.clone(),
        requester: lease.holder.clone(),
        key: None,
        fingerprint: lease.fingerprint,
        created_at: lease.granted_at,
        place: None,
        outcome: StoredOutcome::Granted { lease: lease.clone(), expires_at: *expires_at, ended: None },
    })
}
