//! What happens when a resource's actor dies: nothing of that life may reach the disk any more, and then the disk says
//! what is true. Those who wait attended are in memory only; they go on waiting, unless the disk says that they have
//! got their lease or have ended.

use std::time::Duration;

use super::desk::{DeskState, Op, OpKind};
use super::directory::{Entry, Life};
use super::message::{DeskMessage, OpId};
use super::open::Stage;
use super::reported::reopened_rows;
use super::restored::restored;
use super::settle::Told;
use crate::admission::calendar::{self, HeldSlot};
use crate::admission::resource::{Claim, Claimant, Device, Held, Rejection, Reply, ResourceState, Work, withdrawn};
use crate::admission::{Attendance, Rank, Waiter};
use crate::clock::RunTime;
use crate::model::{LeaseId, LeaseRecord, Proposal, Refusal, RequestId, ResourceId};
use crate::store::{StoredOutcome, StoredRequest, StoredResource};

impl DeskState {
    /// A resource's actor has died.
    pub(super) fn close(&mut self, resource: ResourceId) {
        let Some(entry) = self.directory.get(&resource) else { return };
        let (activation, out) = (entry.activation, entry.out);
        self.directory.set_life(&resource, Life::Reopening);
        let subject = out.and_then(|op| self.ops.get(&op)).and_then(subject);
        let myself = self.myself.clone();
        self.store.close(resource.clone(), activation, subject, move |rows| {
            let _ = myself.cast(DeskMessage::Reopened(resource, Box::new(rows)));
        });
    }

    /// The disk has spoken: what was in flight ends as it says, and what came in meanwhile goes on.
    pub(super) fn reopened(&mut self, resource: ResourceId, rows: (StoredResource, Option<StoredRequest>)) {
        let Some(Life::Reopening) = self.directory.set_life(&resource, Life::Idle) else { return };
        let (rows, subject) = rows;
        let Some(entry) = self.directory.get_mut(&resource) else { return };
        let out = entry.out.take();
        entry.admission_declined = false;
        let mut state = restored(rows, &self.rules, self.clock.now());
        let rejected = self.keep_what_is_known(&resource, &mut state, out, subject.as_ref());
        let reply = out.and_then(|op| {
            Some(outcome(self.ops.get(&op)?, &self.directory.get(&resource)?.state, &state, subject.as_ref()))
        });
        self.adopt_reopened(&resource, state);
        if let Some(rejected) = rejected {
            self.tell(rejected);
        }
        if let Some((op, reply)) = out.zip(reply) {
            self.settle_op(op, reply);
        }
        self.pins_moved(&resource);
        // What was about to be handed over is handed over later, lest it kills the next one as fast as that starts.
        self.pause(&resource);
        self.to_pump.insert(resource);
    }

    /// What the disk holds as the desk knows it keeps the times of this run, and whoever waits attended waits on.
    fn keep_what_is_known(
        &mut self,
        resource: &ResourceId,
        state: &mut ResourceState,
        out: Option<OpId>,
        subject: Option<&StoredRequest>,
    ) -> Option<Told> {
        let entry = self.directory.get(resource)?;
        for held in &mut state.held {
            let is_known = |known: &&Held| known.lease.id == held.lease.id && known.lease.fence == held.lease.fence;
            if let Some(known) = entry.state.held.iter().find(is_known) {
                held.last_end = known.last_end;
                held.deadline = if known.lease == held.lease { known.deadline } else { held.deadline };
            }
        }
        if let (Some(_), true) = (state.free_since, state.fence == entry.state.fence) {
            state.free_since = entry.state.free_since.or(state.free_since);
        }
        for held in entry.state.calendar.holds().filter(|held| held.hold.settled_at.is_none()) {
            // The same hold, also with another token, ends when it was to end.
            if let Some(stored) = state.calendar.hold(&held.hold.id).filter(|it| it.hold.settled_at.is_none()).cloned()
            {
                state.calendar.put_hold(HeldSlot { deadline: held.deadline, ..stored });
            }
        }
        if is_same_work(&entry.state.device, &state.device) {
            state.device = Device { failure: state.device.failure.clone(), ..entry.state.device.clone() };
        }
        let Device { absent, health, reset_took, .. } = entry.state.device.clone();
        state.device = Device { absent, health, reset_took, ..state.device.clone() };
        let still = |lease: &LeaseId| state.held.iter().any(|held| held.lease.id == *lease);
        state.notices = entry.state.notices.clone();
        state.notices.retain(|lease, _| still(lease));
        for reservation in &mut state.reserved {
            if let Some(known) = entry.state.reserved.iter().find(|known| known.holder == reservation.holder) {
                *reservation = known.clone();
            }
        }
        let kind = out.and_then(|op| self.ops.get(&op)).map(|op| &op.kind);
        let now = self.clock.now().run;
        for stored in state.queue.iter().cloned().collect::<Vec<_>>() {
            let holder = &stored.proposal.holder;
            let asking = match kind {
                Some(OpKind::Ask { waiter, .. }) if waiter.proposal.holder == *holder && !waiter.is_attended() => {
                    Some(&**waiter)
                }
                _ => None,
            };
            let mut known = entry.state.queue.unattended_of(holder).into_iter().chain(asking);
            if let Some(known) = known.find(|known| has_joined_with(known, &stored)) {
                state.queue.remove(&stored.proposal.request);
                state.queue.join(as_stored(known, &stored, asking.map(|_| now), self.rules.waiting.priority_aging));
            }
        }
        self.claim_again(entry, state, kind, subject);
        let granted = |waiter: &Waiter| {
            let request = &waiter.proposal.request;
            let claimed = state.device.claim().and_then(Claim::request) == Some(request);
            claimed || state.held.iter().any(|held| held.lease.request_id == *request)
        };
        let mut attended: Vec<Waiter> =
            entry.state.queue.iter().filter(|waiter| waiter.is_attended() && !granted(waiter)).cloned().collect();
        // One that was just joining is not known here yet.
        if let Some(OpKind::Ask { waiter, .. }) = kind
            && waiter.is_attended()
            && subject.is_some_and(|request| request.outcome == StoredOutcome::Open)
        {
            attended.push(Waiter::clone(waiter));
        }
        let mut rejected = None;
        for waiter in attended {
            let ended = subject.filter(|request| request.id == waiter.proposal.request);
            match ended.map(|request| &request.outcome) {
                Some(StoredOutcome::Failed { refusal, cancelled, .. }) => {
                    let why = if *cancelled { Rejection::Cancelled } else { reason_of(refusal) };
                    let refusal = withdrawn(&waiter.proposal, why, &self.rules.waiting);
                    rejected = Some(Told::Rejected(waiter.proposal.request.clone(), why, refusal));
                }
                _ => state.queue.join(waiter),
            }
        }
        if let (Some(OpKind::Offer { request, .. }), Some(StoredOutcome::Failed { refusal, .. })) =
            (kind, subject.map(|request| &request.outcome))
        {
            rejected = Some(Told::Rejected(request.clone(), reason_of(refusal), refusal.clone()));
        }
        rejected
    }

    /// A claim that was just being written is for whoever was to get it: the disk knows the lease alone.
    fn claim_again(
        &self,
        entry: &Entry,
        state: &mut ResourceState,
        kind: Option<&OpKind>,
        subject: Option<&StoredRequest>,
    ) {
        let Work::Preparing(claim) = &mut state.device.work else { return };
        if claim.claimant != Claimant::Nobody {
            return;
        }
        let asking = match kind {
            Some(OpKind::Ask { waiter, .. }) => Some(&**waiter),
            Some(OpKind::Offer { request, .. }) => match self.open.get(request).map(|open| &open.stage) {
                Some(Stage::Offered(waiter)) => Some(&**waiter),
                _ => None,
            },
            _ => None,
        };
        let is_its = |waiter: &&Waiter| waiter.proposal.lease == claim.of.lease;
        let open = subject.is_some_and(|request| request.outcome == StoredOutcome::Open);
        let found = asking.filter(is_its).map(|waiter| (waiter, open));
        if let Some((waiter, stored)) = found.or_else(|| Some((entry.state.queue.iter().find(is_its)?, true))) {
            claim.claimant = Claimant::Waiter { waiter: Box::new(waiter.clone()), stored };
        }
    }

    /// Takes the state in that the disk holds: what ended is free, and what began is known.
    fn adopt_reopened(&mut self, resource: &ResourceId, state: ResourceState) {
        let Some(entry) = self.directory.get(resource) else { return };
        let now = self.clock.now();
        let there = |held: &Held, list: &[Held]| {
            list.iter().any(|other| other.lease.id == held.lease.id && other.lease.fence == held.lease.fence)
        };
        let ended: Vec<LeaseRecord> =
            (entry.state.held.iter()).filter(|held| !there(held, &state.held)).map(|held| held.lease.clone()).collect();
        let begun: Vec<Held> = state.held.iter().filter(|held| !there(held, &entry.state.held)).cloned().collect();
        let gone: Vec<RequestId> = (entry.state.queue.iter())
            .filter(|waiter| !waiter.is_attended() && state.queue.get(&waiter.proposal.request).is_none())
            .map(|waiter| waiter.proposal.request.clone())
            .collect();
        let rows = reopened_rows(entry, &state);
        self.index.remove(&entry.state.calendar);
        self.index.add(&state.calendar);
        self.directory.set_state(resource, state);
        self.set_edge(resource);
        self.set_wake(resource);
        self.look_after(resource);
        self.pin_device(resource);
        for lease in ended {
            self.ended(&lease, now.wall, None);
        }
        for request in gone {
            self.ledger.refuse(&request);
        }
        for held in &begun {
            self.granted(resource, held);
        }
        self.report_resource(resource);
        rows.into_iter().for_each(|row| self.report_row(row));
        for held in begun {
            self.tell(Told::Granted(Box::new(held)));
        }
    }
}

/// True for two that are about the same work: then what only this run knows of it holds.
fn is_same_work(known: &Device, stored: &Device) -> bool {
    let cooling = |device: &Device| device.cooling.map(|cooling| cooling.ends_at);
    let same = match (&known.work, &stored.work) {
        (Work::None, Work::None) => true,
        (Work::Preparing(known), Work::Preparing(stored)) => known.of == stored.of,
        (Work::Resetting(known), Work::Resetting(stored)) => known.of == stored.of,
        (Work::Quarantined(known), Work::Quarantined(stored)) => {
            (known.fault, known.tries, &known.of) == (stored.fault, stored.tries, &stored.of)
        }
        _ => false,
    };
    same && cooling(known) == cooling(stored)
}

/// True for two that are one entry of the waiting room: asking again keeps the place in the order of joining.
fn has_joined_with(known: &Waiter, stored: &Waiter) -> bool {
    let (known, stored) = (known.rank.joined(), stored.rank.joined());
    (known.run, known.arrival) == (stored.run, stored.arrival)
}

/// An unattended waiter with what the disk says of it. What is not stored there is known here.
fn as_stored(known: &Waiter, stored: &Waiter, seen: Option<RunTime>, aging: Option<Duration>) -> Waiter {
    let Waiter { proposal, .. } = stored;
    let attendance = seen.map_or(known.attendance, |last_seen| Attendance::Unattended { last_seen });
    Waiter {
        rank: Rank::new(proposal.priority, known.rank.joined(), aging),
        proposal: Proposal {
            mode: proposal.mode,
            priority: proposal.priority,
            ttl: proposal.ttl,
            note: proposal.note.clone(),
            ..known.proposal.clone()
        },
        attendance,
        ..known.clone()
    }
}

/// The request whose row says how a command ended.
fn subject(op: &Op) -> Option<RequestId> {
    match &op.kind {
        OpKind::Ask { waiter, .. } => Some(waiter.proposal.request.clone()),
        OpKind::Withdraw { request, .. } | OpKind::Offer { request, .. } => Some(request.clone()),
        _ => None,
    }
}

/// How a command that was in flight when its actor died has ended, by what the disk holds.
fn outcome(op: &Op, before: &ResourceState, state: &ResourceState, subject: Option<&StoredRequest>) -> Reply {
    let not_done = || Reply::Refused(Refusal::internal("the resource failed meanwhile, and it has not happened"));
    let lease_of = |request: &RequestId| state.held.iter().find(|held| held.lease.request_id == *request).cloned();
    match &op.kind {
        OpKind::Ask { waiter, .. } => {
            let request = &waiter.proposal.request;
            let standing = state.queue.unattended_of(&waiter.proposal.holder);
            let claimed = claim_of(state, request);
            match (lease_of(request), standing) {
                _ if claimed.is_some() => claimed.unwrap_or_else(not_done),
                (Some(held), _) => Reply::Granted(held),
                (None, _) if waiter.is_attended() && state.queue.get(request).is_some() => Reply::Waiting,
                (None, Some(standing)) if !waiter.is_attended() => Reply::Pending {
                    request: standing.proposal.request.clone(),
                    position: state.queue.position(standing.rank),
                },
                _ => not_done(),
            }
        }
        OpKind::Offer { request, .. } => {
            let lease = lease_of(request).map(Reply::Granted);
            lease.or_else(|| claim_of(state, request)).unwrap_or(Reply::Declined)
        }
        OpKind::Withdraw { .. } => {
            let open = subject.is_none_or(|request| request.outcome == StoredOutcome::Open);
            if open { not_done() } else { Reply::Left(true) }
        }
        OpKind::Renew { lease, renewed_at, .. } => {
            let renewed = |held: &&Held| held.lease.id == *lease && held.lease.renewed_at != *renewed_at;
            state.held.iter().find(renewed).cloned().map_or_else(not_done, |held| Reply::Renewed(held, Vec::new()))
        }
        OpKind::Release { lease, .. } => {
            let there = |held: &Held| held.lease.id == lease.id && held.lease.fence == lease.fence;
            if state.held.iter().any(there) { not_done() } else { Reply::Released(LeaseRecord::clone(lease), None) }
        }
        OpKind::Leave { holder, .. } => {
            let is_there = |state: &ResourceState| {
                state.queue.unattended_of(holder).is_some() || state.reserved.iter().any(|kept| kept.holder == *holder)
            };
            if is_there(state) { not_done() } else { Reply::Left(is_there(before)) }
        }
        OpKind::See { request, .. } => state.queue.get(request).map_or(Reply::Left(false), |waiter| Reply::Pending {
            request: request.clone(),
            position: state.queue.position(waiter.rank),
        }),
        OpKind::Drain { drained, .. } if state.drained == *drained => Reply::Done,
        OpKind::Clear { .. } if !matches!(state.device.work, Work::Quarantined(_) | Work::Resetting(_)) => Reply::Done,
        OpKind::Drain { .. } | OpKind::Clear { .. } | OpKind::Rewrite => not_done(),
        // It is said again; where it has come to disk it changes nothing then.
        OpKind::Worked | OpKind::Sighted => not_done(),
        // Nobody was admitted, so that is still to be done.
        OpKind::Serve { admits: true, .. } if state.queue.len() == before.queue.len() => not_done(),
        OpKind::Serve { .. } => Reply::Served(None),
        OpKind::Calendar(op) => {
            let done = calendar::outcome(&op.command, &before.calendar, &state.calendar);
            done.map_or_else(not_done, Reply::Calendar)
        }
        // Whoever waits still is dismissed next.
        OpKind::Wake | OpKind::Dismiss => Reply::Done,
        // The same of an edge.
        OpKind::Edge { .. } if state.queue.len() == before.queue.len() => not_done(),
        OpKind::Edge { .. } => Reply::Done,
    }
}

/// The claim of a request.
fn claim_of(state: &ResourceState, request: &RequestId) -> Option<Reply> {
    match &state.device.claim()?.claimant {
        Claimant::Waiter { waiter, stored } if waiter.proposal.request == *request => {
            Some(Reply::Claimed { stored: *stored })
        }
        _ => None,
    }
}

/// Why a stored request failed, as far as its words tell.
fn reason_of(refusal: &Refusal) -> Rejection {
    match refusal.code {
        crate::model::Code::QueueTimeout => Rejection::Timeout,
        crate::model::Code::NoCapacity => Rejection::Abandoned,
        crate::model::Code::Stopping => Rejection::TakenBack,
        crate::model::Code::UnknownResource => Rejection::NoMatch,
        _ => Rejection::WorkerFailed,
    }
}
