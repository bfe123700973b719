//! How a command comes back: what has changed goes into the directory, the ledger, the book and the reports; then the
//! answer is given.

use std::time::Duration;

use super::desk::{DeskState, Op, OpKind};
use super::message::{Asked, FirstGrant, Grant, OpId, PendingNow, ReleasedNow, Settled};
use super::offers::is_shared_now;
use super::open::{Parked, Stage};
use super::pump::mode_of;
use super::read::{grant, resource_now};
use super::reported::{add_rows, has_windows, is_reported, report};
use crate::admission::cancel::unknown_request;
use crate::admission::resource::{Change, Departure, DeviceChange, Held, Reply};
use crate::admission::{Speaker, Waiter};
use crate::clock::Now;
use crate::model::{Authority, ChosenLeaseId, Code, LeaseId, Refusal, RequestId, Requester, ResourceId, Target};

/// The first and the longest pause before what time or a turn asked for, and could not be written, is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

impl DeskState {
    /// A resource has done a command.
    pub(super) fn settled(&mut self, settled: Settled) {
        let Settled { resource, activation, op, reply, changes, admission_left, failed } = settled;
        // What a dead actor had said before it died comes before `Reopened` and counts; what a former life of the
        // resource said does not.
        let Some(entry) = self.directory.get_mut(&resource).filter(|entry| entry.activation == activation) else {
            return;
        };
        if entry.out == Some(op) {
            entry.out = None;
        }
        entry.admission_left |= admission_left;
        let is_edge = matches!(self.ops.get(&op), Some(Op { kind: OpKind::Edge { .. }, .. }));
        // Where a window has begun or ended, another is the next.
        let shown = is_edge && has_windows(entry);
        self.adopt(&resource, changes, shown);
        if failed {
            self.pause(&resource);
        }
        self.settle_op(op, reply);
        self.to_pump.insert(resource);
    }

    /// Takes in what has changed on a resource: what ended is free before anybody hears of it, and it is reported.
    /// With `shown` it is reported in any case.
    fn adopt(&mut self, resource: &ResourceId, changes: Vec<Change>, mut shown: bool) {
        let (mut told, mut rows) = (Vec::new(), Vec::new());
        let was_shared = self.directory.get(resource).is_some_and(is_shared_now);
        let (mut holders_changed, mut is_another) = (false, false);
        for change in changes {
            if change.is_durable()
                && !matches!(change, Change::Violated { .. })
                && let Some(entry) = self.directory.get_mut(resource)
            {
                entry.paused = false;
                entry.failures = 0;
                entry.admission_declined = false;
            }
            shown |= self.directory.get(resource).is_some_and(|entry| is_reported(entry, &change));
            add_rows(resource, &change, &mut rows);
            holders_changed |= matches!(change, Change::Granted { .. } | Change::Ended { .. } | Change::Drained { .. });
            self.directory.apply(resource, change.clone());
            if let Change::Device(DeviceChange::Identity(None)) = &change {
                is_another = true;
                self.forget_device(resource);
            }
            if let Change::Calendar(change) = &change {
                self.index.take(change);
            }
            match change {
                Change::Granted { lease, deadline, last_end, .. } => {
                    let held = Held { lease, deadline, last_end };
                    self.granted(resource, &held);
                    told.push(Told::Granted(Box::new(held)));
                }
                Change::Ended { lease, reason, at } => self.ended(&lease, at, Some(reason)),
                Change::Rejected { proposal, reason, refusal, waited: true, .. } => {
                    told.push(Told::Rejected(proposal.request, reason, refusal));
                }
                Change::Left { waiter, why, .. } if !waiter.is_attended() && why != Departure::Granted => {
                    // An ask of it that is under way has taken its reservations over; then this frees nothing.
                    self.ledger.refuse(&waiter.proposal.request);
                }
                _ => {}
            }
        }
        self.set_edge(resource);
        self.set_wake(resource);
        self.look_after(resource);
        self.pin_device(resource);
        if is_another {
            self.watch_devices();
            self.ask_for_device(resource);
        }
        if shown {
            self.report_resource(resource);
        }
        rows.into_iter().for_each(|row| self.report_row(row));
        // Now that everything is known, whoever waited hears it.
        for end in told {
            self.tell(end);
        }
        if was_shared && holders_changed {
            self.pins_moved(resource);
        }
    }

    /// A lease exists: it is known before anybody hears of it.
    pub(super) fn granted(&mut self, resource: &ResourceId, held: &Held) {
        let now = self.clock.now();
        let entry = self.directory.get(resource);
        let labels = entry.map(|entry| entry.spec.labels.clone()).unwrap_or_default();
        let environment = entry.map(|entry| entry.facts.environment.clone()).unwrap_or_default();
        let lease = &held.lease;
        if self.requests.get(&lease.request_id).is_none() {
            // Nobody has asked for it: it is the node's own grant to the holder of a booking.
            self.requests.open(lease.request_id.clone(), lease.holder.clone(), None, lease.granted_at);
            self.ledger.restore(&lease.request_id, &lease.holder, &lease.id, None);
        }
        self.ledger.grant(&lease.request_id, &lease.id);
        let expires_at = now.wall_at(held.deadline);
        self.requests.grant(&lease.request_id, FirstGrant { lease: lease.clone(), expires_at, labels, environment });
        self.requests.store(&lease.request_id);
        self.ended.remove(&lease.id);
    }

    /// A lease is over: its requester and its id are free.
    pub(super) fn ended(
        &mut self,
        lease: &crate::model::LeaseRecord,
        at: jiff::Timestamp,
        reason: Option<crate::admission::resource::EndReason>,
    ) {
        let now = self.clock.now().run;
        self.ledger.end(&lease.id);
        self.requests.say_end(&lease.request_id, at, reason);
        self.requests.end(&lease.request_id, now);
        self.ended.insert(lease.id.clone(), lease.request_id.clone());
        self.end_execs(&lease.id);
    }

    pub(super) fn tell(&mut self, end: Told) {
        match end {
            Told::Granted(held) => {
                let Some(entry) = self.directory.get(&held.lease.resource_id) else { return };
                let granted = grant(&held, entry, self.clock.now());
                let id = held.lease.request_id.clone();
                let offered = match self.open.get_mut(&id).map(|open| &mut open.stage) {
                    Some(stage @ Stage::Offered(_)) => Some(std::mem::replace(stage, Stage::Placing)),
                    _ => None,
                };
                self.end_with_lease(&id, granted);
                if let Some(Stage::Offered(waiter)) = offered {
                    self.waiter_left_pool(&waiter);
                }
            }
            Told::Rejected(request, reason, refusal) => self.end_without_lease(&request, reason, refusal),
        }
    }

    /// Answers whoever asked for a command.
    pub(super) fn settle_op(&mut self, op: OpId, reply: Reply) {
        let Some(Op { resource, kind }) = self.ops.remove(&op) else { return };
        self.drain_goes_on(op);
        if let Some(entry) = self.directory.get_mut(&resource)
            && let Some(mode) = mode_of(&kind)
            && let Some(index) = entry.promised.iter().position(|promised| *promised == mode)
        {
            entry.promised.swap_remove(index);
        }
        let clears = matches!(kind, OpKind::Clear { .. });
        match kind {
            OpKind::Ask { waiter, speaker } => self.ask_settled(&resource, *waiter, speaker, reply),
            OpKind::Offer { request, parked, .. } => {
                let taken = self.offer_settled(&resource, &request, &reply);
                self.release_settled(&resource, parked, taken);
            }
            OpKind::Serve { parked, admits } => {
                if let Some(entry) = self.directory.get_mut(&resource).filter(|_| admits) {
                    // Those of the pool have been asked; one who waits for more room than there is stays before it.
                    entry.admission_declined = entry.admission_left && matches!(reply, Reply::Served(_));
                    entry.admission_left |= matches!(reply, Reply::Refused(_));
                    // The first after a start has been admitted, or there was none.
                    entry.least_grace = if entry.admission_left { entry.least_grace } else { Duration::ZERO };
                }
                let first = if let Reply::Served(first) = reply { first } else { None };
                self.release_settled(&resource, parked, first);
            }
            OpKind::Withdraw { request, why } => match reply {
                // It has ended, or it had its lease already: both have been told, but for one of which nothing is stored.
                Reply::Left(left) => self.withdrawn(&request, why, left),
                reply => self.not_withdrawn(&request, &refusal_of(reply)),
            },
            OpKind::Leave { reply: caller, .. } => {
                let answer = if let Reply::Left(left) = reply { Ok(left) } else { Err(refusal_of(reply)) };
                self.say_left(caller, answer);
            }
            OpKind::See { request, reply: caller } => {
                let answer = match reply {
                    Reply::Pending { position, .. } => {
                        let place = self.standing_place(&resource, &request, position);
                        place.ok_or_else(|| unknown_request(&request))
                    }
                    Reply::Left(_) => Err(unknown_request(&request)),
                    reply => Err(refusal_of(reply)),
                };
                self.say(caller, answer);
            }
            OpKind::Worked => {
                self.job_settled(&resource, &reply);
                if let Reply::Unprepared { waiter, stored, refusal } = reply {
                    self.unprepared(&resource, *waiter, stored, refusal);
                }
            }
            OpKind::Sighted => self.sighting_settled(&resource, &reply),
            OpKind::Drain { reply: caller, .. } | OpKind::Clear { reply: caller } => {
                let (entry, now) = (self.directory.get(&resource), self.clock.now());
                let answer = match (reply, entry) {
                    (Reply::Done, Some(entry)) => Ok((resource_now(entry, self.link.node(), now), report(entry, now))),
                    (reply, _) => Err(refusal_of(reply)),
                };
                self.say(caller, answer);
                if clears {
                    self.clear_settled(&resource);
                }
            }
            OpKind::Renew { lease, authority, reply: caller, .. } => {
                let answer = match (reply, self.directory.get(&resource)) {
                    (Reply::Renewed(held, notices), Some(entry)) => {
                        Ok(Grant { notices, ..grant(&held, entry, self.clock.now()) })
                    }
                    (reply, _) => Err(self.refusal_of_lease(&lease, &authority, reply)),
                };
                self.say(caller, answer);
            }
            OpKind::Release { lease: named, authority, reply: caller } => match reply {
                Reply::Released(lease, admitted @ Some(_)) => self.say(caller, Ok(ReleasedNow { lease, admitted })),
                Reply::Released(lease, None) => {
                    // Somebody of the pool may be the first: the answer waits for that.
                    let parked = Parked { lease: Box::new(lease), reply: caller };
                    if let Some(entry) = self.directory.get_mut(&resource) {
                        entry.parked = Some(parked);
                    }
                }
                reply => self.say(caller, Err(self.refusal_of_lease(&named.id, &authority, reply))),
            },
            OpKind::Calendar(op) => self.calendar_settled(*op, reply),
            OpKind::Dismiss => {
                if let Reply::Refused(refusal) = reply {
                    tracing::warn!(%resource, %refusal, "those who wait for what is going stay for now");
                    self.pause(&resource);
                }
            }
            OpKind::Wake => self.woken(&resource, None, reply),
            OpKind::Edge { since } => self.woken(&resource, Some(since), reply),
            OpKind::Rewrite => {
                let written = !matches!(reply, Reply::Refused(_));
                self.drift.settled(&resource, written, self.clock.now().run);
            }
        }
    }

    /// Why something was not done to a lease. It may have ended while it was on its way there: then its owner hears when
    /// and why.
    fn refusal_of_lease(&self, lease: &LeaseId, authority: &Authority, reply: Reply) -> Refusal {
        let refusal = refusal_of(reply);
        match refusal.code {
            Code::UnknownLease if self.find_lease(lease).is_none() => self.no_such_lease(lease, authority),
            _ => refusal,
        }
    }

    /// Who was taken first after a release is known, or will be by what comes next.
    fn release_settled(&mut self, resource: &ResourceId, parked: Option<Parked>, first: Option<Requester>) {
        match (parked, self.directory.get_mut(resource)) {
            (Some(parked), Some(entry)) if first.is_none() => entry.parked = Some(parked),
            (Some(parked), _) => self.answer_parked(parked, first),
            (None, _) => {}
        }
    }

    fn ask_settled(&mut self, resource: &ResourceId, waiter: Waiter, speaker: Speaker, reply: Reply) {
        let id = waiter.proposal.request.clone();
        match reply {
            // Whoever asked has been told with the change.
            Reply::Granted(_) => self.came_back(waiter.returns.as_ref()),
            Reply::Claimed { stored } => {
                self.claimed(resource, &id, stored);
                self.came_back(waiter.returns.as_ref());
            }
            Reply::Waiting => {
                self.start_waiting(&id, Stage::Room(resource.clone()));
                self.came_back(waiter.returns.as_ref());
                self.withdraw_as_asked(&id);
            }
            Reply::Pending { request, position } => {
                self.unclaim(&waiter);
                self.pending(resource, &id, &request, position);
            }
            Reply::Declined => match &waiter.proposal.target {
                Target::Select(selector) => {
                    // What it was sent to has been taken by another meanwhile.
                    let matching = self.directory.iter().filter(|entry| selector.matches(&entry.spec.labels)).count();
                    self.wait_in_pool(waiter, matching, speaker);
                }
                Target::Resource(_) => {
                    self.unclaim(&waiter);
                    self.refuse(&id, self.queue_is_full());
                }
            },
            reply => {
                self.unclaim(&waiter);
                self.keep_standing(resource, &waiter);
                self.refuse(&id, refusal_of(reply));
            }
        }
        self.ask_those_behind(&id);
    }

    /// An unattended waiter stands in the waiting room, as `entry`.
    fn pending(&mut self, resource: &ResourceId, id: &RequestId, entry: &RequestId, position: usize) {
        let standing = self.directory.get(resource).and_then(|entry_of| entry_of.state.queue.get(entry)).cloned();
        let Some(standing) = standing else { return };
        self.ledger.waits(id, entry, chosen(&standing).as_ref());
        self.requests.discard(id);
        self.leave_if_taken_back(resource, id, entry);
        self.close_request(id);
        let Some(now) = self.standing_place(resource, entry, position) else { return };
        self.tell_watchers(id, &Ok(Asked::Pending(now)));
    }

    /// What an unattended waiter is told.
    fn standing_place(&self, resource: &ResourceId, entry: &RequestId, position: usize) -> Option<PendingNow> {
        let standing = self.directory.get(resource)?.state.queue.get(entry)?;
        Some(PendingNow {
            resource: resource.clone(),
            mode: standing.proposal.mode,
            position,
            waiting_for: None,
            until: None,
            place: self.returning.stub(standing),
        })
    }

    /// The ask of an unattended waiter was refused: it goes on standing where it stood.
    fn keep_standing(&mut self, resource: &ResourceId, waiter: &Waiter) {
        let entry = self.directory.get(resource);
        let standing = entry.and_then(|entry| entry.state.queue.unattended_of(&waiter.proposal.holder)).cloned();
        if let Some(standing) = standing {
            self.ledger.waits(&waiter.proposal.request, &standing.proposal.request, chosen(&standing).as_ref());
        }
    }

    /// The asks that came while one of the same waiter was out.
    fn ask_those_behind(&mut self, id: &RequestId) {
        for (ask, origin, reply) in self.behind.remove(id).unwrap_or_default() {
            self.request(ask, origin, reply);
        }
    }

    /// A request that did not come to wait is refused: it holds nothing any more.
    pub(super) fn refuse(&mut self, id: &RequestId, refusal: Refusal) {
        let now = self.clock.now().run;
        self.ledger.refuse(id);
        self.requests.fail(id, refusal.clone(), false, now);
        for reply in self.close_request(id) {
            self.say(reply, Ok(()));
        }
        self.tell_watchers(id, &Err(refusal));
    }

    /// What was to be handed over could not be. Nobody is offered this resource until something changes on it; should
    /// nothing change, those who wait are served after a while.
    pub(super) fn pause(&mut self, resource: &ResourceId) {
        let now = self.clock.now().run;
        let Some(entry) = self.directory.get_mut(resource).filter(|entry| !entry.paused) else { return };
        entry.paused = true;
        self.retries.set(resource, Some(now + pause_after(entry.failures)));
        entry.failures = entry.failures.saturating_add(1);
    }

    /// A resource has been woken, or told of an edge of its windows. One whose expiry could not be written is woken again,
    /// ever later.
    fn woken(&mut self, resource: &ResourceId, edge_since: Option<jiff::Timestamp>, reply: Reply) {
        let Now { wall, run: now } = self.clock.now();
        let Some(entry) = self.directory.get_mut(resource) else { return };
        let next = if let Reply::Refused(refusal) = reply {
            let pause = pause_after(entry.wake_failures);
            entry.wake_failures += 1;
            tracing::warn!(%resource, %refusal, ?pause, "what time has done was not written; it is tried again");
            if let Some(since) = edge_since {
                entry.edges_until = entry.edges_until.min(since);
                return self.edges.set(resource, Some(crate::model::time::later(wall, pause)));
            }
            now + pause
        } else {
            entry.wake_failures = 0;
            return self.set_wake(resource);
        };
        self.schedule.set(resource, Some(next));
    }
}

/// How long until something is tried again that has failed so often before.
fn pause_after(failures: u32) -> Duration {
    RETRY_FIRST.saturating_mul(1 << failures.min(10)).min(RETRY_LONGEST)
}

/// An end that is to be told.
pub(super) enum Told {
    Granted(Box<Held>),
    Rejected(RequestId, crate::admission::resource::Rejection, Refusal),
}

/// The lease id that a waiter chose.
pub(super) fn chosen(waiter: &Waiter) -> Option<ChosenLeaseId> {
    let proposal = &waiter.proposal;
    proposal.lease.as_chosen().filter(|_| proposal.id_chosen_by_requester)
}

/// Why something was not done.
pub(super) fn refusal_of(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => refusal,
        other => {
            tracing::error!(?other, "a resource's answer does not fit its command");
            Refusal::new(Code::Internal, "the resource's answer does not fit; the log of the node has more")
        }
    }
}
