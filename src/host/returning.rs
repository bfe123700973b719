//! Those who waited when the node was restarted (SPEC §2 Waiting ticket). Their requests have failed, but whoever comes
//! back with the ticket takes the place over, once; and for a while what they waited for goes to nobody else.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::admission::resource::Place;
use crate::admission::ticket::{Stub, TicketKey};
use crate::admission::{Attendance, Joined, Pool, Rank, Rules, Waiter};
use crate::clock::{Now, RunTime};
use crate::model::{Ask, Fingerprint, LeaseId, Mode, Proposal, RequestId, ResourceSpec, Target, WaitPolicy};
use crate::store::StoredRequest;

/// Places in line from earlier runs of the node.
#[derive(Debug)]
pub(super) struct Returning {
    key: Arc<TicketKey>,
    run: u64,
    /// The places whose tickets are not spent.
    places: HashMap<RequestId, Place>,
    /// Those of them that somebody is taking over just now.
    claimed: HashSet<RequestId>,
    /// Whoever waited at the restart and is not back yet, by the resource that it named.
    by_name: HashMap<crate::model::ResourceId, BTreeMap<Rank, RequestId>>,
    /// The same, by selector.
    by_selector: Pool,
    named: HashMap<RequestId, (crate::model::ResourceId, Rank)>,
    until: Option<RunTime>,
}

impl Returning {
    /// Nobody is expected.
    pub(super) fn new(key: Arc<TicketKey>, run: u64) -> Self {
        Self {
            key,
            run,
            places: HashMap::new(),
            claimed: HashSet::new(),
            by_name: HashMap::new(),
            by_selector: Pool::default(),
            named: HashMap::new(),
            until: None,
        }
    }

    /// A place whose ticket is not spent.
    pub(super) fn add(&mut self, request: RequestId, place: Place) {
        self.places.insert(request, place);
    }

    /// One who waited when the node was restarted: for a while what it waited for is kept for those who come back.
    pub(super) fn expect(&mut self, request: &StoredRequest, place: &Place, rules: &Rules, now: Now) {
        let grace = rules.waiting.return_grace;
        if grace.is_zero() {
            return;
        }
        self.until = Some(now.run + grace);
        let joined = place.joined.on_this_run(place.joined_at, now);
        let rank = Rank::new(place.priority, joined, rules.waiting.priority_aging);
        match &place.target {
            Target::Resource(address) => {
                self.by_name.entry(address.id.clone()).or_default().insert(rank, request.id.clone());
                self.named.insert(request.id.clone(), (address.id.clone(), rank));
            }
            Target::Select(_) => self.by_selector.join(Waiter {
                rank,
                proposal: Proposal {
                    request: request.id.clone(),
                    holder: request.requester.clone(),
                    target: place.target.clone(),
                    mode: place.mode,
                    priority: place.priority,
                    ttl: place.ttl,
                    lease: LeaseId::generate(),
                    id_chosen_by_requester: false,
                    note: None,
                    key: None,
                    fingerprint: request.fingerprint,
                    allow_shorter: false,
                    by_admin: false,
                },
                joined_at: place.joined_at,
                attendance: Attendance::Attended,
                returns: None,
                restored: false,
                not_on: None,
            }),
        }
    }

    /// What the ticket for the place of a waiter says.
    pub(super) fn stub(&self, waiter: &Waiter) -> Stub {
        Stub::of(waiter, self.run)
    }

    /// The place that the ticket of `ask` restores, and whose it was. A ticket that does not verify or does not fit is
    /// ignored; so is that of a lease request in the hands of an unattended waiter, whose own place is kept on disk.
    pub(super) fn claim(&mut self, ask: &Ask, now: Now) -> Option<(RequestId, Joined, jiff::Timestamp)> {
        let stub = self.key.read(ask.ticket.as_ref()?)?;
        let fits = ask.wait != WaitPolicy::JoinWaitingRoom
            && stub.run < self.run
            && stub.requester == ask.requester
            && stub.target == Fingerprint::of(&ask.target, ask.mode, None)
            && self.places.contains_key(&stub.request)
            && !self.claimed.contains(&stub.request);
        if !fits {
            return None;
        }
        self.claimed.insert(stub.request.clone());
        Some((stub.request, stub.joined.on_this_run(stub.joined_at, now), stub.joined_at))
    }

    /// The claim has come to nothing.
    pub(super) fn unclaim(&mut self, former: &RequestId) {
        self.claimed.remove(former);
    }

    /// Whoever had the place `former` is back, or its place is forgotten.
    pub(super) fn is_back(&mut self, former: &RequestId) {
        self.claimed.remove(former);
        self.places.remove(former);
        self.by_selector.remove(former);
        if let Some((resource, rank)) = self.named.remove(former)
            && let Some(places) = self.by_name.get_mut(&resource)
        {
            places.remove(&rank);
            if places.is_empty() {
                self.by_name.remove(&resource);
            }
        }
    }

    /// The first place of those who waited for this resource and are not back yet.
    pub(super) fn first_for(&self, spec: &ResourceSpec) -> Option<Rank> {
        self.until?;
        let named = self.by_name.get(&spec.id).and_then(|places| places.keys().next()).copied();
        let selected = [Mode::Exclusive, Mode::Shared]
            .map(|mode| Some(self.by_selector.first(&spec.labels, mode, |_| true)?.rank));
        named.into_iter().chain(selected.into_iter().flatten()).min()
    }

    /// When the time of those who are not back ends, if somebody is expected.
    pub(super) fn until(&self) -> Option<RunTime> {
        self.until
    }

    /// Ends that time.
    pub(super) fn stop_expecting(&mut self) {
        self.until = None;
        self.by_name.clear();
        self.named.clear();
        self.by_selector = Pool::default();
    }
}
