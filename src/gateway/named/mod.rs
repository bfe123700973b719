//! Requests by a resource's name go straight to its worker and wait there, in one order with local ones (SPEC §9 Named
//! resources). This gateway keeps whose they are, hears of their end by a report, and asks where they stand when somebody
//! asks it.

mod ask;
mod found;
mod rows;

use ractor::RpcReplyPort;

use super::elsewhere::{Kind, Waits};
use super::fleet::Open;
use super::front::{FrontState, Watcher};
use super::history::{is_remembered, reason_of};
use super::message::{Asked, Joined};
use crate::admission::resource::Held;
use crate::model::{Ask, Door, LeaseId, NodeName, Refusal, RequestId, ResourceAddress, Target, WaitPolicy};
use crate::wire::call::Wait;
use crate::wire::requests::Place;

impl FrontState {
    /// How a dispatch of this request waits at its worker: by selector never. A timeout has run since the request came.
    pub(super) fn wait_of(&self, open: &Open) -> Wait {
        match (&open.ask.target, open.ask.wait) {
            (Target::Resource(_), WaitPolicy::Wait { timeout }) => {
                let waited = self.around.clock.now().run.0.saturating_sub(open.since.0);
                let left = timeout.map(|timeout| timeout.saturating_sub(waited));
                Wait::Attended { timeout_ms: left.map(crate::model::time::whole_ms) }
            }
            (Target::Resource(_), WaitPolicy::JoinWaitingRoom) => Wait::Unattended,
            _ => Wait::Never,
        }
    }

    /// The room that an acquire is for: there an unattended waiter may ask again.
    pub(super) fn room_of(&self, ask: &Ask) -> Option<ResourceAddress> {
        let (Target::Resource(address), Door::Acquire) = (&ask.target, ask.door) else { return None };
        match self.owners(address).as_slice() {
            [owner] => Some(ResourceAddress { worker: Some(owner.clone()), id: address.id.clone() }),
            _ => None,
        }
    }

    /// An answer has said that a request waits at its worker. Whoever asked hears so.
    pub(super) fn waits_there(&mut self, id: &RequestId, worker: &NodeName, place: Place, number: u64) {
        if self.fleet.get(id).is_some_and(|open| open.withdrawing.is_some()) {
            // It is being taken back, and what comes of that decides.
            return;
        }
        let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
        if view.is_some_and(|view| number <= view.number() && !view.waits(&place.request)) {
            // The report of its end was quicker, and was taken for that of another attempt: the worker is asked.
            self.fleet.doubt(id, self.around.clock.now().run);
            return self.settle_doubts(worker);
        }
        let wait = self.fleet.get(id).map(|open| self.wait_of(open));
        match wait {
            Some(Wait::Attended { .. }) => self.move_there(id, worker, Some(place), number),
            Some(Wait::Unattended) => self.stands_there(id, worker, place, number),
            Some(Wait::Never) | None => {
                tracing::error!(%worker, request = %id, "a worker lets a request wait that is not to; it is taken out");
                self.fleet.doubt(id, self.around.clock.now().run);
                self.settle_doubts(worker);
            }
        }
    }

    /// A request that was sent out is known to wait there.
    pub(super) fn move_there(&mut self, id: &RequestId, worker: &NodeName, place: Option<Place>, number: u64) {
        let position = place.as_ref().map_or(0, |place| usize::try_from(place.position).unwrap_or(usize::MAX));
        self.tell_position(id.clone(), position);
        let Some(open) = self.fleet.remove(id) else { return };
        let ask = &open.ask;
        let Target::Resource(address) = &ask.target else { return };
        let waits = Waits {
            worker: worker.clone(),
            resource: address.id.clone(),
            requester: ask.requester.clone(),
            mode: ask.mode,
            lease_id: ask.lease_id.clone(),
            number,
            place,
            kind: Kind::Sent(Box::new(open)),
        };
        self.elsewhere.insert(id.clone(), waits);
        self.tell_waits(id);
    }

    /// An unattended waiter stands in a waiting room. Its ask is answered and over; what stands there holds what it held.
    fn stands_there(&mut self, id: &RequestId, worker: &NodeName, place: Place, number: u64) {
        let Some(Open { ask, .. }) = self.fleet.remove(id) else { return };
        let Target::Resource(address) = &ask.target else { return };
        let entry = place.request.clone();
        let former = self.elsewhere.standing(&ask.requester, worker, &address.id);
        let former = former.map(|(request, waits)| (request.clone(), waits.lease_id.clone()));
        let lease_id = ask.lease_id.clone().or_else(|| former.as_ref().and_then(|(_, lease)| lease.clone()));
        if let Some((former, _)) = former.filter(|(former, _)| *former != entry) {
            // It has joined anew meanwhile.
            self.elsewhere.remove(&former);
        }
        self.ledger.waits(id, &entry, lease_id.as_ref());
        let waits = Waits {
            worker: worker.clone(),
            resource: address.id.clone(),
            requester: ask.requester.clone(),
            mode: ask.mode,
            lease_id,
            kind: Kind::Unattended,
            number,
            place: Some(place.clone()),
        };
        self.elsewhere.insert(entry, waits);
        self.tell_pending(id, &place);
    }

    /// A request is known to wait: whoever wanted to hear that much goes and looks.
    fn tell_waits(&mut self, id: &RequestId) {
        let first = id.clone();
        self.tell_waits_as(id, &first);
    }

    fn tell_waits_as(&mut self, id: &RequestId, first: &RequestId) {
        let mut looking = Vec::new();
        if let Some(watchers) = self.watchers.get_mut(id) {
            for watcher in std::mem::take(watchers) {
                match watcher {
                    Watcher::Caller(reply) => drop(reply.send(Ok(Asked::Known(first.clone())))),
                    Watcher::Mirror(second) => {
                        looking.push(second.clone());
                        watchers.push(Watcher::Mirror(second));
                    }
                    watcher => watchers.push(watcher),
                }
            }
        }
        for second in looking {
            self.tell_waits_as(&second, first);
        }
        // An acquire whose key stands for this request is told that it waits.
        self.tell_joiners(id, first);
    }

    /// Somebody has come to wait with one that waits at a worker already.
    pub(super) fn tell_if_there(&mut self, id: &RequestId) {
        if self.elsewhere.get(id).is_some() {
            self.tell_waits(id);
        }
    }

    fn tell_joiners(&mut self, id: &RequestId, first: &RequestId) {
        let Some(place) = self.elsewhere.get(first).and_then(|waits| waits.place.clone()) else { return };
        let Some(watchers) = self.watchers.get_mut(id) else { return };
        for watcher in std::mem::take(watchers) {
            match watcher {
                Watcher::Joiner(reply) => drop(reply.send(Ok(Joined::Pending(place.clone())))),
                watcher => watchers.push(watcher),
            }
        }
    }

    /// Every ask that was like this one is answered: it stands in the waiting room. Nothing of the asks is kept.
    fn tell_pending(&mut self, id: &RequestId, place: &Place) {
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            match watcher {
                // A caller that has gone needs no answer.
                Watcher::Joiner(reply) => drop(reply.send(Ok(Joined::Pending(place.clone())))),
                Watcher::Mirror(second) => self.tell_pending(&second, place),
                Watcher::Caller(_) | Watcher::Reader(_) | Watcher::Canceller(_) => {}
            }
        }
        self.mirrors.remove(id);
        self.requests.discard(id);
    }

    /// The reservations of an ask that came to nothing are free; if it was one of an unattended waiter that still stands in
    /// its waiting room, that keeps them.
    pub(super) fn free(&mut self, id: &RequestId, ask: &Ask) {
        let standing = match self.room_of(ask) {
            Some(ResourceAddress { worker: Some(worker), id: resource }) => {
                let standing = self.elsewhere.standing(&ask.requester, &worker, &resource);
                standing.map(|(request, waits)| (request.clone(), waits.lease_id.clone()))
            }
            _ => None,
        };
        match standing {
            Some((standing, lease)) => self.ledger.waits(id, &standing, lease.as_ref()),
            None => self.ledger.refuse(id),
        }
    }

    /// A report shows the lease that one has got which waited there.
    pub(super) fn granted_there(&mut self, id: &RequestId, worker: &NodeName, held: &Held, number: u64) {
        match self.elsewhere.remove_at(id, worker) {
            Some(Waits { kind: Kind::Sent(open), .. }) => {
                self.fleet.put_back(*open);
                self.attend(id);
                self.judge_grant(id, worker, held, number);
            }
            Some(Waits { kind: Kind::Found { .. } | Kind::Unattended, .. }) => {
                self.ledger.refuse(id);
                match self.table.enter(worker, held, number) {
                    super::table::Entered::New(lease) => {
                        self.remember(&lease, worker, &held.lease);
                        if let Some(first) = self.first_grant(&lease) {
                            self.tell_watchers(id, &Ok(first));
                        }
                    }
                    other => {
                        tracing::warn!(request = %id, %worker, ?other, "a lease that was waited for cannot be routed");
                        self.release_orphan(worker, &held.lease);
                        let refusal = crate::admission::lease_id_taken(&held.lease.id);
                        self.end_second(id, Err(refusal));
                    }
                }
            }
            None => {}
        }
    }

    /// Joins a waiting room, or takes the lease of a resource that is free.
    pub(super) fn join(&mut self, ask: Ask, reply: RpcReplyPort<Result<Joined, Refusal>>) {
        self.take_in(ask, Watcher::Joiner(reply));
    }

    /// The request that a ticket claims, if it is one of the same requester for the same that waits at a worker.
    pub(super) fn claim_by_ticket(&mut self, ask: &Ask) -> Option<RequestId> {
        let request = crate::admission::ticket::TicketKey::claimed(ask.ticket.as_ref()?)?;
        let Target::Resource(address) = &ask.target else { return None };
        let waits = self.elsewhere.get(&request)?;
        let same = !matches!(waits.kind, Kind::Unattended)
            && waits.requester == ask.requester
            && waits.resource == address.id
            && address.worker.as_ref().is_none_or(|worker| *worker == waits.worker)
            && waits.mode == ask.mode
            && waits.lease_id == ask.lease_id
            && ask.wait != WaitPolicy::JoinWaitingRoom;
        same.then(|| {
            self.elsewhere.claim(&request);
            request
        })
    }

    /// Gives up one that waits at a worker: whatever it may still get there is released on sight.
    pub(super) fn leave_there(&mut self, id: &RequestId) -> Option<Waits> {
        let waits = self.elsewhere.remove(id)?;
        let attempt = match &waits.kind {
            Kind::Sent(open) => open.attempts,
            // An earlier life has sent it, and which attempt that was is not known: it was one up to this.
            Kind::Found { .. } | Kind::Unattended => u32::MAX,
        };
        self.orphans.give_up(id.clone(), waits.worker.clone(), attempt);
        self.settle_doubts(&waits.worker);
        Some(waits)
    }

    /// One that waited at a worker ends without a lease.
    pub(super) fn fails_there(&mut self, id: &RequestId, waited: Option<Waits>, refusal: Refusal) {
        self.tell_end_there(id, waited.as_ref(), reason_of(&refusal, false), refusal.code);
        let keeps_key = is_remembered(refusal.code);
        if keeps_key {
            self.ledger.close(id);
        } else {
            self.ledger.refuse(id);
        }
        self.requests.fail(id, refusal.clone(), keeps_key, self.around.clock.now().run);
        self.tell_watchers(id, &Err(refusal));
    }

    /// The first request that this one ends with, or itself.
    pub(super) fn first_of(&self, id: &RequestId) -> RequestId {
        self.mirrors.get(id).unwrap_or(id).clone()
    }

    /// This gateway's name of the lease that a request got at a worker.
    pub(super) fn name_there(&self, worker: &NodeName, waits: &Waits, lease: &LeaseId) -> LeaseId {
        match &waits.lease_id {
            Some(chosen) => chosen.clone().into(),
            None => LeaseId::through(worker, lease),
        }
    }
}
