//! What the desk shows: nothing in here changes anything.

use std::collections::HashMap;

use super::desk::DeskState;
use super::directory::Entry;
use super::message::{DeskMessage, Grant, RequestNow, ResourceNow, WaiterNow, WaitingNow};
use super::open::Stage;
use crate::admission::Waiter;
use crate::admission::resource::{Held, NodeNow, not_yours, unknown_lease};
use crate::clock::{Now, RunTime};
use crate::model::time::rfc3339;
use crate::model::{
    Authority, Code, DeviceState, LeaseId, Mode, Refusal, RequestId, ResourceAddress, ResourceId, Target, WaitingFor,
};

impl DeskState {
    /// `UNKNOWN_LEASE`; whoever could have changed the lease hears when and why it ended, while that is remembered.
    pub(super) fn no_such_lease(&self, id: &LeaseId, authority: &Authority) -> Refusal {
        let refusal = unknown_lease(id);
        let Some(request) = self.ended.get(id).and_then(|request| self.requests.get(request)) else { return refusal };
        match (&request.ended, authority.may_change(&request.requester)) {
            (Some((at, reason)), true) => {
                let at = rfc3339(*at);
                let why = reason.map_or("ended", |reason| reason.as_str());
                let message = format!("lease {id} is over since {at} ({why}); `berth lease list` shows yours");
                let refusal = Refusal { message, ..refusal }.with("endedAt", at);
                match reason {
                    Some(reason) => refusal.with("reason", reason.as_str()),
                    None => refusal,
                }
            }
            _ => refusal,
        }
    }

    pub(super) fn read(&mut self, message: DeskMessage) {
        // A reader that has gone needs no answer.
        match message {
            DeskMessage::OpenRequests(reply) => {
                let _ = reply.send(self.open_requests());
            }
            DeskMessage::Waiting(reply) => drop(reply.send(self.directory.waiters() + self.pool.len())),
            DeskMessage::Leases(reply) => {
                let now = self.clock.now();
                let leases =
                    |entry: &Entry| entry.state.held.iter().map(|held| grant(held, entry, now)).collect::<Vec<_>>();
                let _ = reply.send(self.directory.iter().flat_map(leases).collect());
            }
            DeskMessage::Lease(id, caller, reply) => {
                let found = match self.find_lease(&id) {
                    Some(grant) if caller.may_read(&grant.lease.holder) => Ok(grant),
                    Some(_) => Err(not_yours(&id, "read")),
                    None => Err(self.no_such_lease(&id, &Authority::Client(caller))),
                };
                let _ = reply.send(found);
            }
            DeskMessage::Resources(selector, reply) => {
                let now = self.clock.now();
                let entries = self.directory.iter().filter(|entry| entry.grantable);
                let matching = entries
                    .filter(|entry| selector.as_ref().is_none_or(|selector| selector.matches(&entry.spec.labels)));
                let _ = reply.send(matching.map(|entry| resource_now(entry, self.link.node(), now)).collect());
            }
            DeskMessage::Resource(address, reply) => {
                let now = self.clock.now();
                let found = self.resolve(&address);
                let _ = reply.send(found.and_then(|id| {
                    self.directory
                        .get(&id)
                        .map(|entry| resource_now(entry, self.link.node(), now))
                        .ok_or_else(|| unknown_resource(&address))
                }));
            }
            DeskMessage::WaitingRoom(address, reply) => {
                let found = self.resolve(&address).map(|id| {
                    let waiters = self.waiters_of(&id, 0, usize::MAX);
                    (id, waiters)
                });
                let _ = reply.send(found);
            }
            DeskMessage::Waiters { resource, after, most, reply } => {
                let found = self.resolve(&ResourceAddress { worker: None, id: resource }).map(|id| {
                    let waiters = self.waiters_of(&id, after, most);
                    let all = self.directory.get(&id).map_or(0, |entry| entry.state.queue.len());
                    let more = after.saturating_add(waiters.len()) < all;
                    (waiters, more)
                });
                self.say(reply, found);
            }
            _ => unreachable!("every other message is handled where it is matched"),
        }
    }

    pub(super) fn find_lease(&self, id: &LeaseId) -> Option<Grant> {
        let entry = self.directory.get(self.directory.resource_of(id)?)?;
        let held = entry.state.held.iter().find(|held| held.lease.id == *id)?;
        Some(grant(held, entry, self.clock.now()))
    }

    /// The resource that an address names on this node.
    pub(super) fn resolve(&self, address: &ResourceAddress) -> Result<ResourceId, Refusal> {
        let here = address.worker.as_ref().is_none_or(|worker| *worker == self.name);
        match self.directory.get(&address.id) {
            Some(entry) if here && entry.grantable => Ok(address.id.clone()),
            _ => Err(unknown_resource(address)),
        }
    }

    /// A request as it is now.
    pub(super) fn request_now(&self, id: &RequestId) -> Option<RequestNow> {
        let request = self.requests.get(id)?.clone();
        let now = self.clock.now();
        let standing = self.open.get(id).and_then(|open| self.standing(id, &open.stage));
        let waiting = standing.map(|(waiter, in_pool)| {
            let reason = if in_pool { self.pool_waits_for(waiter, now) } else { self.room_waits_for(waiter, now) };
            self.waiting_now(waiter, self.position(waiter, in_pool), reason, now)
        });
        Some(RequestNow { request, waiting })
    }

    /// The open requests. Where each stands is counted in one walk over all who wait, not in one for each.
    fn open_requests(&self) -> Vec<(RequestId, RequestNow)> {
        let mut positions: HashMap<&RequestId, usize> = HashMap::new();
        for entry in self.directory.iter() {
            let queue = entry.state.queue.iter().enumerate();
            positions.extend(queue.map(|(index, waiter)| (&waiter.proposal.request, index + 1)));
        }
        positions.extend(self.pool.positions());
        let mut reasons: HashMap<(String, Mode), (WaitingFor, Option<RunTime>)> = HashMap::new();
        let now = self.clock.now();
        let mut show = |id: &RequestId| {
            let request = self.requests.get(id)?.clone();
            let standing = self.open.get(id).and_then(|open| self.standing(id, &open.stage));
            let waiting = standing.map(|(waiter, in_pool)| {
                let reason = if in_pool {
                    let key = (waiter.proposal.target.to_string(), waiter.proposal.mode);
                    *reasons.entry(key).or_insert_with(|| self.pool_waits_for(waiter, now))
                } else {
                    self.room_waits_for(waiter, now)
                };
                self.waiting_now(waiter, positions.get(id).copied().unwrap_or(1), reason, now)
            });
            Some((id.clone(), RequestNow { request, waiting }))
        };
        self.open.keys().filter_map(&mut show).collect()
    }

    /// The waiter of an open request, and whether it waits in the pool.
    pub(super) fn standing<'a>(&'a self, id: &RequestId, stage: &'a Stage) -> Option<(&'a Waiter, bool)> {
        match stage {
            Stage::Placing | Stage::Joining(_) => None,
            Stage::Room(resource) => Some((self.directory.get(resource)?.state.waiter(id)?, false)),
            Stage::Pool => Some((self.pool.get(id)?, true)),
            // It is the first, and a resource is about to take it.
            Stage::Offered(waiter) | Stage::Leaving(waiter) => Some((waiter, true)),
        }
    }

    fn position(&self, waiter: &Waiter, in_pool: bool) -> usize {
        let id = &waiter.proposal.request;
        match &waiter.proposal.target {
            _ if in_pool => self.pool.position(id).unwrap_or(1),
            Target::Resource(address) => {
                let entry = self.directory.get(&address.id);
                entry.map_or(1, |entry| entry.state.queue.position(waiter.rank))
            }
            Target::Select(_) => 1,
        }
    }

    fn room_waits_for(&self, waiter: &Waiter, now: Now) -> (WaitingFor, Option<RunTime>) {
        match &waiter.proposal.target {
            Target::Resource(address) => {
                let entry = self.directory.get(&address.id);
                entry.map_or((WaitingFor::Leased, None), |entry| {
                    entry.state.waiting_for(&entry.spec, self.link.node(), &waiter.proposal, now)
                })
            }
            // One by selector stands in no waiting room: a resource is made ready for it.
            Target::Select(_) => (WaitingFor::Preparing, None),
        }
    }

    fn waiting_now(
        &self,
        waiter: &Waiter,
        position: usize,
        (waiting_for, until): (WaitingFor, Option<RunTime>),
        now: Now,
    ) -> WaitingNow {
        WaitingNow {
            position,
            waiting_for,
            until: until.map(|until| now.wall_at(until)),
            place: self.returning.stub(waiter),
        }
    }

    /// What one of the pool waits for: a lease to end if there is one among its matches, with the earliest of their
    /// deadlines.
    fn pool_waits_for(&self, waiter: &Waiter, now: Now) -> (WaitingFor, Option<RunTime>) {
        let Target::Select(selector) = &waiter.proposal.target else { return (WaitingFor::Leased, None) };
        let matching = self.directory.iter().filter(|entry| entry.grantable && selector.matches(&entry.spec.labels));
        let mut reasons: Vec<_> = matching
            .map(|entry| entry.state.waiting_for(&entry.spec, self.link.node(), &waiter.proposal, now))
            .collect();
        reasons.sort_by_key(|(why, until)| (*why, until.unwrap_or(RunTime(std::time::Duration::MAX))));
        reasons.first().copied().unwrap_or((WaitingFor::Leased, None))
    }

    /// Who waits for a resource, in their order, behind the first `after`.
    fn waiters_of(&self, id: &ResourceId, after: usize, most: usize) -> Vec<WaiterNow> {
        let now = self.clock.now();
        let Some(entry) = self.directory.get(id) else { return Vec::new() };
        let show = |waiter: &Waiter| {
            let asked_at = self.open.get(&waiter.proposal.request).map(|open| open.asked_at);
            let seen = waiter.last_seen().or(asked_at).unwrap_or(now.run);
            WaiterNow {
                holder: waiter.proposal.holder.clone(),
                joined_at: waiter.joined_at,
                // Both are read from the wall clock, which may have been set in between.
                last_seen: now.wall_at(seen).max(waiter.joined_at),
                mode: waiter.proposal.mode,
                priority: waiter.proposal.priority,
            }
        };
        entry.state.queue.iter().skip(after).take(most).map(show).collect()
    }
}

/// A resource as it is shown.
pub(super) fn resource_now(entry: &Entry, node: &NodeNow, now: Now) -> ResourceNow {
    let state = &entry.state;
    let device = state.device(node);
    let free = device == DeviceState::Available && !state.fits(&entry.spec, node, Mode::Exclusive, None);
    let reason = match device {
        DeviceState::Available if free => {
            let until = state.reserved.iter().map(|kept| kept.until).max();
            until.map(|until| format!("reserved for who is next, until {}", rfc3339(now.wall_at(until))))
        }
        DeviceState::Drained if !state.held.is_empty() => Some("drained; what is leased stays so".to_owned()),
        DeviceState::Drained if !state.drained => Some("the whole worker is drained by an operator".to_owned()),
        DeviceState::Drained => Some("drained by an operator".to_owned()),
        DeviceState::Leased if state.device.is_ready() => None,
        _ => state.device.reason(),
    };
    let until = state.device_until(&entry.spec).filter(|until| *until > now.run && device != DeviceState::Leased);
    ResourceNow {
        spec: entry.spec.clone(),
        state: device,
        reason,
        until: until.map(|until| now.wall_at(until)),
        failure: state.device.failure.as_deref().cloned(),
        fence: state.fence,
        held: state.held.clone(),
        queue_length: state.queue.len(),
    }
}

/// A lease with what its holder is shown.
pub(super) fn grant(held: &Held, entry: &Entry, now: Now) -> Grant {
    Grant {
        lease: held.lease.clone(),
        deadline: held.deadline,
        expires_at: now.wall_at(held.deadline),
        labels: entry.spec.labels.clone(),
        environment: entry.facts.environment.clone(),
        notices: Vec::new(),
    }
}

/// `UNKNOWN_RESOURCE`.
pub fn unknown_resource(address: &ResourceAddress) -> Refusal {
    Refusal::new(Code::UnknownResource, format!("no resource {address}; `berth resource list` shows what there is"))
        .with("resourceId", address.to_string())
}
