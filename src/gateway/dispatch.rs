//! The way of a lease request through the fleet: where it can go, its dispatch, and what comes back.

use std::collections::{HashMap, HashSet};

use super::fleet::{Open, Stage};
use super::front::{CallKind, FrontState};
use super::message::FirstGrant;
use super::placement::{Candidate, Placement, no_capacity, place};
use super::read::ambiguous_resource;
use super::session::Outcome;
use super::table::Entered;
use crate::admission::resource::Held;
use crate::clock::RunTime;
use crate::limits::DISPATCH_BOUND;
use crate::model::time::whole_ms;
use crate::model::{
    Code, Event, EventKind, LeaseId, LeaseRecord, NodeName, Refusal, RequestId, ResourceAddress, Selector, Target,
};
use crate::wire::call::{Answer, Call, Dispatch, Granted};

/// What came of placing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// It is out, ended, or waits for a worker that is away.
    Done,
    /// It waits for an answer of a worker that is here.
    Later,
}

/// Where a request can go now.
enum Way {
    To(NodeName),
    /// Not before a worker has answered something else.
    Later,
    /// A worker that could serve it is away; said when that has lasted too long.
    Away(Refusal),
    Refused(Refusal),
}

impl FrontState {
    /// Sends out what can be placed, in the order of the queue. What cannot be placed now is passed over.
    pub(super) fn pump(&mut self) {
        if !self.rebuilt || self.fleet.is_empty() {
            return;
        }
        let mut outstanding = self.fleet.outstanding();
        // There is only less and less room in one round: what is like a request that found none finds none either.
        let mut no_room = HashSet::new();
        for id in self.fleet.in_order() {
            let Some(open) = self.fleet.get(&id) else { continue };
            let alike = match &open.ask.target {
                Target::Select(selector) if open.skipped.is_empty() && !self.orphans.concerns(&id) => {
                    Some((selector.canonical(), open.ask.mode))
                }
                _ => None,
            };
            if alike.as_ref().is_some_and(|alike| no_room.contains(alike)) && !self.nobody_waits(&open.ask) {
                continue;
            }
            if self.place_now(&id, &mut outstanding) == Placed::Later {
                no_room.extend(alike);
            }
        }
    }

    /// Sends one request out, ends it, or leaves it in its place.
    pub(super) fn place_now(&mut self, id: &RequestId, outstanding: &mut HashMap<NodeName, usize>) -> Placed {
        let Some(open) = self.fleet.get(id) else { return Placed::Done };
        if self.nobody_waits(&open.ask) {
            self.refuse(id, out_of_time());
            return Placed::Done;
        }
        let way = match &open.ask.target {
            Target::Select(selector) => self.way_by_selector(open, selector, outstanding),
            Target::Resource(address) => self.way_by_name(open, address),
        };
        match way {
            Way::To(worker) => {
                *outstanding.entry(worker.clone()).or_default() += 1;
                self.send_out(id, worker);
            }
            Way::Later => return Placed::Later,
            Way::Refused(refusal) => self.refuse(id, refusal),
            Way::Away(refusal) => self.wait_or_refuse(id, refusal, self.around.clock.now().run),
        }
        Placed::Done
    }

    fn way_by_selector(&self, open: &Open, selector: &Selector, outstanding: &HashMap<NodeName, usize>) -> Way {
        let candidates = self.workers.iter().map(|(name, worker)| Candidate {
            name,
            takes_requests: worker.takes_requests(),
            view: worker.view.as_ref(),
            outstanding: outstanding.get(name).copied().unwrap_or(0),
            busy: worker.is_busy() || self.orphans.releases(&open.ask.id, name),
            skipped: open.skipped.contains(name) || self.orphans.is_given_up(&open.ask.id, name),
        });
        match place(selector, open.ask.mode, candidates) {
            Placement::To(worker) => Way::To(worker),
            Placement::Later => Way::Later,
            Placement::Away => Way::Away(no_capacity(format!("what could serve {selector} is away or held"))),
            Placement::Refused(refusal) => Way::Refused(refusal),
        }
    }

    fn way_by_name(&self, open: &Open, address: &ResourceAddress) -> Way {
        let unreachable = |worker: &NodeName| worker_unreachable(worker, "it has not been asked; ask again later");
        match self.owners(address).as_slice() {
            [] => {
                let unheard = self.unheard();
                let could_have = |name: &&NodeName| address.worker.as_ref().is_none_or(|asked| asked == *name);
                match unheard.iter().find(could_have) {
                    Some(worker) => Way::Away(unreachable(worker)),
                    None => Way::Refused(self.unknown_resource(address)),
                }
            }
            [owner] => {
                let skipped = open.skipped.contains(owner) || self.orphans.is_given_up(&open.ask.id, owner);
                let busy =
                    |worker: &super::front::Worker| worker.is_busy() || self.orphans.releases(&open.ask.id, owner);
                match self.workers.get(owner) {
                    Some(worker) if worker.takes_requests() && !skipped && busy(worker) => Way::Later,
                    Some(worker) if worker.takes_requests() && !skipped => Way::To(owner.clone()),
                    _ => Way::Away(unreachable(owner)),
                }
            }
            several => Way::Refused(ambiguous_resource(address, several)),
        }
    }

    /// A worker that is away may come back; a request that will not wait, or has waited enough, is refused.
    fn wait_or_refuse(&mut self, id: &RequestId, refusal: Refusal, now: RunTime) {
        let Some(open) = self.fleet.get_mut(id) else { return };
        let since = *open.away_since.get_or_insert(now);
        if open.ask.no_wait() || now >= since + self.around.absence_grace {
            self.refuse(id, refusal);
        }
    }

    fn send_out(&mut self, id: &RequestId, worker: NodeName) {
        let Some(attempt) = self.fleet.dispatch(id, worker.clone()) else { return };
        let Some(open) = self.fleet.get(id) else { return };
        let (ask, wait) = (&open.ask, self.wait_of(open));
        // One by selector is this gateway's own.
        let ticket = ask.ticket.clone().filter(|_| matches!(ask.target, Target::Resource(_)));
        let target = match &ask.target {
            Target::Resource(address) => Target::Resource(ResourceAddress { worker: None, id: address.id.clone() }),
            select => select.clone(),
        };
        let dispatch = Dispatch {
            request: id.clone(),
            attempt,
            door: ask.door,
            requester: ask.requester.through(&self.around.name),
            target,
            mode: ask.mode,
            ttl_ms: whole_ms(ask.ttl),
            lease_id: ask.lease_id.clone(),
            note: ask.note.clone(),
            key: ask.key.clone(),
            fingerprint: ask.fingerprint(),
            allow_shorter: ask.allow_shorter,
            admin: ask.by_admin,
            priority: ask.priority,
            wait,
            ticket,
            left_out: ask.left_out,
        };
        tracing::debug!(request = %id, %worker, attempt, "dispatched");
        self.tell_dispatched(ask, &worker, attempt);
        let kind = CallKind::Dispatch { request: id.clone(), attempt };
        self.ask(&worker, kind, Call::Dispatch(dispatch), DISPATCH_BOUND);
    }

    /// What became of a dispatch.
    pub(super) fn dispatch_answered(&mut self, worker: &NodeName, id: &RequestId, attempt: u32, outcome: Outcome) {
        let sent = Stage::Dispatched { worker: worker.clone(), attempt };
        if self.fleet.get(id).is_none_or(|open| open.stage != sent) {
            // A report of the lease was quicker, and has been judged as the answer.
            return;
        }
        match outcome {
            Outcome::Answered(answer, number) => match *answer {
                Answer::Granted(granted) => self.granted(id, worker, granted, number),
                Answer::Refused(refusal) => self.worker_refused(id, worker, refusal),
                Answer::Waiting(place) => self.waits_there(id, worker, place, number),
                other => {
                    tracing::error!(%worker, ?other, "an answer does not fit its call");
                    self.doubt(id, worker);
                }
            },
            // The link has just gone, or is full: the next tick places it again.
            Outcome::NotSent => return self.fleet.requeue(id),
            Outcome::Lost => self.doubt(id, worker),
        }
        self.pump();
    }

    fn doubt(&mut self, id: &RequestId, worker: &NodeName) {
        tracing::info!(request = %id, %worker, "nobody knows what became of a dispatch; its worker is asked");
        self.fleet.doubt(id, self.around.clock.now().run);
        if self.workers.get(worker).is_some_and(super::front::Worker::takes_requests) {
            self.settle_doubts(worker);
        }
    }

    fn worker_refused(&mut self, id: &RequestId, worker: &NodeName, refusal: Refusal) {
        let by_selector = self.fleet.get(id).is_some_and(|open| matches!(open.ask.target, Target::Select(_)));
        let elsewhere = matches!(
            refusal.code,
            Code::NoCapacity | Code::ResourceBooked | Code::NoMatchingResource | Code::QueueFull
        );
        if refusal.code == Code::Stopping || by_selector && elsewhere {
            if let Some(open) = self.fleet.get_mut(id) {
                open.skipped.insert(worker.clone());
            }
            self.fleet.requeue(id);
        } else {
            self.refuse(id, refusal);
        }
    }

    fn granted(&mut self, id: &RequestId, worker: &NodeName, granted: Granted, number: u64) {
        let held = self.held(granted);
        self.answered_grant(id, worker, &held, number);
    }

    /// An answer has shown the lease that a request got.
    pub(super) fn answered_grant(&mut self, id: &RequestId, worker: &NodeName, held: &Held, number: u64) {
        let resource = &held.lease.resource_id;
        let view = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut());
        let live = view.is_none_or(|view| view.answered(number, resource, held.clone()));
        self.judge_grant(id, worker, held, number);
        if !live && let Some(view) = self.workers.get(worker).and_then(|worker| worker.view.as_ref()) {
            // The report of its end was quicker, and does not come again.
            let shown = view.resources().get(resource).map_or(&[][..], |seen| &seen.held);
            let ended = self.table.drop_ended(worker, resource, shown, view.number());
            self.forget_leases(ended);
        }
    }

    /// A lease of an answer, with its deadline on this gateway's run time.
    pub(super) fn held(&self, granted: Granted) -> Held {
        let (lease, left) = granted.lease.into_lease(&granted.resource);
        Held { lease, deadline: self.around.clock.now().run + left, last_end: None }
    }

    /// A lease has turned up that an attempt got which was given up: its request has it if it still waits, else nobody.
    pub(super) fn take_or_release(&mut self, id: &RequestId, worker: &NodeName, held: &Held, number: u64) {
        if self.fleet.get(id).is_some_and(|open| open.stage == Stage::Waiting) {
            self.judge_grant(id, worker, held, number);
        } else {
            self.release_orphan(worker, &held.lease);
        }
    }

    /// True when an attempt of this request is out at this worker.
    pub(super) fn is_out_at(&self, id: &RequestId, worker: &NodeName) -> bool {
        matches!(
            self.fleet.get(id).map(|open| &open.stage),
            Some(Stage::Dispatched { worker: at, .. } | Stage::InDoubt { worker: at, .. }) if at == worker
        )
    }

    /// A worker says that it has granted a request: checks that it is what was asked for, and routes it.
    pub(super) fn judge_grant(&mut self, id: &RequestId, worker: &NodeName, held: &Held, number: u64) {
        let Some(Open { ask, stage, .. }) = self.fleet.get(id) else { return };
        let forwarded = ask.lease_id.clone();
        let unwanted = matches!(stage, Stage::InDoubt { .. }) && self.nobody_waits(ask);
        if self.orphans.has_lease(worker, &held.lease) {
            // It is being released: whoever says that it is the answer speaks of the past.
            return self.fleet.requeue(id);
        }
        // The owner is never taken from an echo.
        let mut held = held.clone();
        held.lease.holder = ask.requester.through(&self.around.name);
        let name = match &forwarded {
            Some(chosen) if *chosen.as_str() == *held.lease.id.as_str() => LeaseId::from(chosen.clone()),
            Some(chosen) => {
                tracing::warn!(%worker, asked = %chosen, got = %held.lease.id, "granted under another id; released");
                self.release_orphan(worker, &held.lease);
                if let Some(open) = self.fleet.get_mut(id) {
                    open.skipped.insert(worker.clone());
                }
                self.fleet.requeue(id);
                return;
            }
            None => LeaseId::through(worker, &held.lease.id),
        };
        if unwanted {
            self.release_orphan(worker, &held.lease);
            self.refuse(id, worker_unreachable(worker, "the lease has been released again"));
            return;
        }
        match self.table.enter_as(name, worker, &held, number) {
            Entered::New(lease) | Entered::Known(lease) => {
                let ask = self.fleet.remove(id).map(|open| open.ask);
                if let Some(former) = self.ledger.grant(id, &lease) {
                    self.requests.end(&former, self.around.clock.now().run);
                }
                match self.first_grant(&lease) {
                    Some(first) => {
                        self.requests.grant(id, first.clone());
                        self.tell_granted(id, ask.as_ref(), &first);
                        self.tell_watchers(id, &Ok(first));
                    }
                    None => {
                        tracing::error!(%lease, "a lease that was just routed is not there");
                        let event = Event::new(EventKind::InvariantViolated)
                            .with("resourceId", held.lease.resource_id.as_str());
                        self.emit(event.with("detail", format!("lease {lease} was routed and is not there")));
                    }
                }
            }
            Entered::Taken(lease, first) => {
                tracing::warn!(%lease, %first, second = %worker, "two workers granted one id; the second is released");
                self.release_orphan(worker, &held.lease);
                self.refuse(id, crate::admission::lease_id_taken(&lease));
            }
            Entered::Older(lease) => self.refuse(id, crate::admission::lease_id_taken(&lease)),
            Entered::Foreign => {}
        }
    }

    /// The request got nothing; everything it reserved is free before anybody hears of it.
    pub(super) fn refuse(&mut self, id: &RequestId, refusal: Refusal) {
        match self.fleet.remove(id) {
            Some(open) => {
                self.tell_refused(&open.ask, &refusal);
                self.free(id, &open.ask);
            }
            None => self.ledger.refuse(id),
        }
        self.requests.fail(id, refusal.clone(), false, self.around.clock.now().run);
        self.tell_watchers(id, &Err(refusal));
    }

    pub(super) fn first_grant(&self, id: &LeaseId) -> Option<FirstGrant> {
        let lease = self.fleet_lease(id)?;
        let expires_at = self.around.clock.now().wall_at(lease.deadline);
        Some(FirstGrant { lease, expires_at })
    }

    /// Releases a lease that nobody is to have, as often as it takes.
    pub(super) fn release_orphan(&mut self, worker: &NodeName, lease: &LeaseRecord) {
        self.orphans.add_lease(worker, lease);
        self.settle_doubts(worker);
    }
}

/// The end of an acquire whose caller has gone before it could be carried out: it has been told that nobody knows, and a
/// lease that it got now would be held by nobody.
pub(super) fn out_of_time() -> Refusal {
    let message = "the caller's time was up before a worker could be asked; nothing is leased, ask again";
    Refusal::new(Code::WorkerUnreachable, message).retry_after(std::time::Duration::from_secs(1))
}

/// `WORKER_UNREACHABLE`, saying what is known.
pub(super) fn worker_unreachable(worker: &NodeName, known: &str) -> Refusal {
    Refusal::new(Code::WorkerUnreachable, format!("worker {worker} is away: {known}"))
        .with("worker", worker.as_str())
        .retry_after(std::time::Duration::from_secs(1))
}
