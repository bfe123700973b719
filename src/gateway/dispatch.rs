//! The way of a lease request through the fleet: where it can go, its dispatch, and what comes back.

use super::environment::bounded;
use super::fleet::{Failed, Open, Stage};
use super::front::{CallKind, FrontState};
use super::history::is_remembered;
use super::message::FirstGrant;
use super::pump::wish;
use super::read::ambiguous_resource;
use super::session::Outcome;
use super::skips::{News, Why};
use super::table::Entered;
use crate::admission::resource::Held;
use crate::limits::DISPATCH_BOUND;
use crate::model::time::whole_ms;
use crate::model::{
    Code, Door, Event, EventKind, LeaseId, LeaseRecord, NodeName, Refusal, RequestId, ResourceAddress, Target,
};
use crate::wire::call::{Answer, Call, Dispatch, Granted};

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
    /// Sends a request by name out, ends it, or leaves it in its place.
    pub(super) fn place_by_name(&mut self, id: &RequestId, address: &ResourceAddress) {
        let Some(open) = self.fleet.get(id) else { return };
        match self.way_by_name(open, address) {
            Way::To(worker) if open.ask.door == Door::Acquire && self.is_contended(open, &worker, &address.id) => {
                self.refuse(id, others_wait(address));
            }
            Way::To(worker) => self.send_out(id, worker),
            Way::Later => {}
            Way::Refused(refusal) => self.refuse(id, refusal),
            Way::Away(refusal) => self.wait_or_refuse(id, refusal, self.around.clock.now().run),
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
                let now = self.around.clock.now().run;
                let skipped = open.skips.has(owner, now) || self.orphans.is_given_up(&open.ask.id, owner);
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

    pub(super) fn send_out(&mut self, id: &RequestId, worker: NodeName) {
        let now = self.around.clock.now().run;
        let Some(attempt) = self.fleet.dispatch(id, worker.clone(), now) else { return };
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
            not_on: open.failed.as_ref().filter(|failed| failed.worker == worker).and_then(|it| it.resource.clone()),
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
                Answer::Refused(refusal) => self.worker_refused(id, worker, refusal, number),
                Answer::Waiting(place) => self.waits_there(id, worker, place, number),
                other => {
                    tracing::error!(%worker, ?other, "an answer does not fit its call");
                    self.doubt(id, worker);
                }
            },
            // The link has just gone, or is full: it is placed again in a moment.
            Outcome::NotSent => {
                let now = self.around.clock.now().run;
                self.fleet.skip(id, worker, Why::NotSent, now);
                self.back_to_queue(id);
            }
            Outcome::Lost => self.doubt(id, worker),
        }
    }

    fn doubt(&mut self, id: &RequestId, worker: &NodeName) {
        tracing::info!(request = %id, %worker, "nobody knows what became of a dispatch; its worker is asked");
        self.fleet.doubt(id, self.around.clock.now().run);
        if self.workers.get(worker).is_some_and(super::front::Worker::takes_requests) {
            self.settle_doubts(worker);
        }
    }

    /// A worker has said no. What it lacks another may have; any other refusal is the request's end.
    fn worker_refused(&mut self, id: &RequestId, worker: &NodeName, refusal: Refusal, number: u64) {
        let now = self.around.clock.now().run;
        let by_selector = self.fleet.get(id).is_some_and(Open::by_selector);
        let why = match refusal.code {
            Code::Stopping => Why::Stopping,
            Code::NoCapacity | Code::ResourceBooked | Code::QueueFull if by_selector => Why::NoRoom(number),
            Code::NoMatchingResource if by_selector => Why::NoMatch(number),
            Code::DeviceFailed if self.may_have_another(id, worker, &refusal) => Why::NoRoom(number),
            _ => return self.refuse(id, refusal),
        };
        tracing::debug!(request = %id, %worker, code = %refusal.code, "a worker does not take it now");
        self.fleet.skip(id, worker, why, now);
        if matches!(why, Why::NoRoom(_)) {
            self.look_at_what_came_since(id, worker);
        }
        self.back_to_queue(id);
    }

    /// True for a request by selector whose device could not be made ready for the first time, where another match may be
    /// (SPEC §7).
    fn may_have_another(&mut self, id: &RequestId, worker: &NodeName, refusal: &Refusal) -> bool {
        let said = refusal.details.as_ref().and_then(|details| details.get("resourceId")?.as_str()?.parse().ok());
        let unheard = !self.unheard().is_empty();
        let Some(open) = self.fleet.get(id).filter(|open| open.failed.is_none()) else { return false };
        let Target::Select(selector) = &open.ask.target else { return false };
        let failed = Failed { worker: worker.clone(), resource: said, refusal: refusal.clone() };
        let another = self.workers.iter().any(|(name, worker)| {
            let there = worker.view.iter().flat_map(super::view::View::resources).filter(|(_, seen)| seen.grantable);
            let others = there.filter(|(resource, _)| !failed.is(name, resource));
            others.into_iter().any(|(_, seen)| selector.matches(&seen.labels))
        });
        if another || unheard {
            tracing::warn!(request = %id, %worker, %refusal, "a device could not be made ready; the request goes to another");
            if let Some(open) = self.fleet.get_mut(id) {
                open.failed = Some(failed);
            }
        }
        another || unheard
    }

    /// A report may have been quicker than the refusal that it is later than.
    fn look_at_what_came_since(&mut self, id: &RequestId, worker: &NodeName) {
        let now = self.around.clock.now().run;
        let Some(open) = self.fleet.get(id) else { return };
        let Target::Select(selector) = &open.ask.target else { return };
        let requester = open.ask.requester.through(&self.around.name);
        let wish = wish(&open.ask, selector, &requester);
        let Some(view) = self.workers.get(worker).and_then(|worker| worker.view.as_ref()) else { return };
        let free = view.free().filter(|(resource, _)| !open.has_failed_on(worker, resource));
        let latest = free.filter(|(_, seen)| seen.fits(&wish, now)).map(|(_, seen)| seen.number()).max();
        if let (Some(number), Some(open)) = (latest, self.fleet.get_mut(id)) {
            open.skips.reported(worker, News { number, fits: true, changed: false });
        }
    }

    /// What an answer says that a holder needs to reach the device, which the reports may not have told yet.
    pub(super) fn take_environment(&mut self, worker: &NodeName, granted: &mut Granted, number: u64) {
        let (environment, _) = bounded(std::mem::take(&mut granted.environment));
        if environment.is_empty() {
            return;
        }
        if let Some(view) = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut()) {
            view.answered_environment(number, &granted.resource, environment);
        }
    }

    fn granted(&mut self, id: &RequestId, worker: &NodeName, mut granted: Granted, number: u64) {
        self.take_environment(worker, &mut granted, number);
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
            return self.back_to_queue(id);
        }
        // The owner is never taken from an echo.
        let mut held = held.clone();
        held.lease.holder = ask.requester.through(&self.around.name);
        let name = match &forwarded {
            Some(chosen) if *chosen.as_str() == *held.lease.id.as_str() => LeaseId::from(chosen.clone()),
            Some(chosen) => {
                tracing::warn!(%worker, asked = %chosen, got = %held.lease.id, "granted under another id; released");
                self.release_orphan(worker, &held.lease);
                self.fleet.skip(id, worker, Why::WrongId, self.around.clock.now().run);
                return self.back_to_queue(id);
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
        let mut keeps_key = false;
        let refusal = match self.fleet.get(id).and_then(|open| open.failed.as_ref()) {
            // There was no second device for it either.
            Some(failed) if is_for_lack(refusal.code) => failed.refusal.clone(),
            _ => refusal,
        };
        match self.fleet.remove(id) {
            Some(open) => {
                self.tell_refused(&open.ask, &refusal);
                keeps_key = is_remembered(refusal.code);
                if keeps_key {
                    self.ledger.close(id);
                } else {
                    self.free(id, &open.ask);
                }
                if let Some(former) = open.returns.filter(|_| !open.waits) {
                    self.returning.unclaim(&former);
                }
                self.left_queue(open.ask.mode);
            }
            None => self.ledger.refuse(id),
        }
        self.requests.fail(id, refusal.clone(), keeps_key, self.around.clock.now().run);
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

/// True for a refusal that only says that nothing else is to be had.
fn is_for_lack(code: Code) -> bool {
    matches!(code, Code::NoCapacity | Code::NoMatchingResource)
}

/// The end of an acquire whose caller has gone before it could be carried out: it has been told that nobody knows, and a
/// lease that it got now would be held by nobody.
pub(super) fn out_of_time() -> Refusal {
    let message = "the caller's time was up before a worker could be asked; nothing is leased, ask again";
    Refusal::new(Code::WorkerUnreachable, message).retry_after(std::time::Duration::from_secs(1))
}

/// `RESOURCE_UNAVAILABLE` for one who would take what others wait for.
fn others_wait(address: &ResourceAddress) -> Refusal {
    let message = format!(
        "{address} is free, but kept for those who waited for one like it; ask again in a moment, or wait in line"
    );
    Refusal::new(Code::ResourceUnavailable, message).with("resourceId", address.to_string())
}

/// `QUEUE_FULL` for one who would wait.
pub(super) fn too_many_wait() -> Refusal {
    Refusal::new(Code::QueueFull, "as many wait at this gateway as may; ask again later")
        .retry_after(std::time::Duration::from_secs(5))
}

/// `WORKER_UNREACHABLE`, saying what is known.
pub fn worker_unreachable(worker: &NodeName, known: &str) -> Refusal {
    Refusal::new(Code::WorkerUnreachable, format!("worker {worker} is away: {known}"))
        .with("worker", worker.as_str())
        .retry_after(std::time::Duration::from_secs(1))
}
