//! Renew and release through the gateway: straight to the worker that holds the lease.

use ractor::RpcReplyPort;

use super::dispatch::worker_unreachable;
use super::front::{CallKind, FrontState};
use super::message::{FleetLease, ReleasedThere, RenewedThere};
use super::read::not_reported;
use super::session::{CallId, Outcome};
use super::table::Route;
use crate::admission::resource;
use crate::limits::CALL_BOUND;
use crate::model::{Caller, Code, Fence, LeaseId, NOTICES_MAX, NodeName, Notice, Refusal, RenewAsk, Role};
use crate::wire::call::{Answer, Call};

/// Characters of what is told of a device.
const NOTICE_CHARS_MAX: usize = 1_024;

type Reply = RpcReplyPort<Result<RenewedThere, Refusal>>;

impl FrontState {
    pub(super) fn renew(&mut self, id: LeaseId, caller: &Caller, ask: RenewAsk, reply: Reply) {
        match self.routed(&id, caller, "renew") {
            Ok(FleetLease { worker, lease, .. }) => {
                let RenewAsk { ttl, fence, allow_shorter } = ask;
                let width = ttl.map_or(lease.asked_ttl.unwrap_or(lease.ttl), crate::model::Ttl::duration);
                let (ttl_ms, admin) = (ttl.map(u64::from), caller.role == Role::Admin);
                let call = Call::Renew { lease: lease.id, fence, ttl_ms, allow_shorter, admin };
                self.ask(&worker, CallKind::Renew { id, fence, width, reply }, call, CALL_BOUND);
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    pub(super) fn release(
        &mut self,
        id: LeaseId,
        caller: &Caller,
        fence: Option<Fence>,
        reply: RpcReplyPort<Result<ReleasedThere, Refusal>>,
    ) {
        match self.routed(&id, caller, "release") {
            Ok(lease) => {
                let call = Call::Release { lease: lease.lease.id.clone(), fence };
                let worker = lease.worker.clone();
                self.ask(&worker, CallKind::Release { lease: Box::new(lease), fence, reply }, call, CALL_BOUND);
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// The lease that a caller names, if it is routed and theirs.
    fn routed(&self, id: &LeaseId, caller: &Caller, verb: &str) -> Result<FleetLease, Refusal> {
        let lease = self.fleet_lease(id).ok_or_else(|| self.unknown_lease(id))?;
        if caller.may_change(&lease.lease.holder.bare()) { Ok(lease) } else { Err(resource::not_yours(id, verb)) }
    }

    /// `UNKNOWN_LEASE`; while a worker has not reported it may yet turn up.
    pub(super) fn unknown_lease(&self, id: &LeaseId) -> Refusal {
        let refusal = resource::unknown_lease(id);
        let unheard = self.unheard();
        if unheard.is_empty() {
            return refusal;
        }
        let silent = not_reported(&unheard);
        Refusal { message: format!("no active lease {id} is known yet: {silent}; ask again"), ..refusal }
            .with("rebuilding", true)
            .retry_after(std::time::Duration::from_secs(1))
    }

    /// What became of a call.
    pub(super) fn answered(&mut self, worker: &NodeName, incarnation: u64, call: CallId, outcome: Outcome) {
        let (kind, asked) = self.calls.remove(&call).unzip();
        self.identities_due = true;
        let mut outcome = outcome;
        if let (Outcome::Answered(answer, _), Some(asked)) = (&mut outcome, asked) {
            answer.age(self.around.clock.now().run.left(asked));
        }
        if let Some(state) = self.workers.get_mut(worker) {
            let was_busy = state.is_busy();
            state.calls_out = state.calls_out.saturating_sub(1);
            self.pump_due |= was_busy && !state.is_busy();
            // Numbers of a former life of the worker cannot be compared with those of this one, and what it did is in
            // this one's reports: it counts as an answer that did not come.
            let today = state.view.as_ref().is_some_and(|view| view.incarnation() == incarnation);
            let numbered = !matches!(
                kind,
                Some(
                    CallKind::Calendar(_)
                        | CallKind::Pause(_)
                        | CallKind::Elsewhere(_)
                        | CallKind::Room(_)
                        | CallKind::Look { .. }
                        | CallKind::Withdraw { .. }
                )
            );
            if matches!(outcome, Outcome::Answered(..)) && !today && numbered {
                outcome = Outcome::Lost;
            }
        }
        match kind {
            None => {}
            Some(CallKind::Calendar(reply)) => self.calendar_answered(worker, outcome, reply),
            Some(CallKind::Elsewhere(resources)) => self.elsewhere_answered(worker, resources, &outcome),
            Some(CallKind::Pause(paused)) => self.pause_answered(worker, paused, &outcome),
            Some(CallKind::Room(reply)) => self.room_answered(worker, outcome, reply),
            Some(CallKind::Look { request, reply }) => self.looked(worker, &request, outcome, reply),
            Some(CallKind::Cancel { request, reply }) => self.cancel_answered(worker, &request, outcome, reply),
            Some(CallKind::Withdraw { request }) => {
                // One that could not be told is told again.
                self.elsewhere.leave(&request, matches!(outcome, Outcome::Answered(..)));
            }
            Some(CallKind::Dispatch { request, attempt }) => {
                self.dispatch_answered(worker, &request, attempt, outcome);
            }
            Some(CallKind::Settle { request, attempt }) => self.settle_answered(worker, &request, attempt, outcome),
            Some(CallKind::Orphan { lease, fence }) => self.orphan_answered(worker, &lease, fence, &outcome),
            Some(CallKind::Renew { id, fence, width, reply }) => {
                if matches!(outcome, Outcome::Lost) {
                    self.table.may_last(&id, self.around.clock.now().run + width);
                }
                self.drop_if_gone(worker, &id, fence, &outcome);
                let result = self.renewed(worker, &id, outcome);
                let _ = reply.send(result);
            }
            Some(CallKind::Release { lease, fence, reply }) => {
                self.drop_if_gone(worker, &lease.id, fence, &outcome);
                let result = self.released(worker, *lease, outcome);
                let _ = reply.send(result);
                self.pump_worker(worker);
            }
        }
    }

    /// A worker that does not know a routed lease has ended it: the route, its requester and its id are free.
    fn drop_if_gone(&mut self, worker: &NodeName, id: &LeaseId, fence: Option<Fence>, outcome: &Outcome) {
        let Outcome::Answered(answer, number) = outcome else { return };
        let unknown = matches!(&**answer, Answer::Refused(refusal) if refusal.code == Code::UnknownLease);
        let Some(route) = self.table.resolve(id).filter(|route| unknown && route.worker == *worker) else { return };
        let lease = route.held.lease.clone();
        // With another fence the worker may have said no to that grant only.
        if fence.is_some_and(|fence| fence != lease.fence) || *number < route.number {
            return;
        }
        if let Some(view) = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut()) {
            view.ended(*number, &lease);
        }
        self.table.remove(id);
        self.forget_leases(vec![(id.clone(), lease)]);
    }

    fn renewed(&mut self, worker: &NodeName, id: &LeaseId, outcome: Outcome) -> Result<RenewedThere, Refusal> {
        match answer_of(worker, outcome, id)? {
            (Answer::Renewed(mut granted), number) => {
                let notices = sensible(std::mem::take(&mut granted.notices));
                self.take_environment(worker, &mut granted, number);
                let mut held = self.held(granted);
                let same_grant = |route: &&Route| route.worker == *worker && route.held.lease.fence == held.lease.fence;
                if let Some(route) = self.table.resolve(id).filter(same_grant) {
                    held.lease.holder = route.held.lease.holder.clone();
                    self.table.enter_as(id.clone(), worker, &held, number);
                }
                if let Some(view) = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut()) {
                    view.answered(number, &held.lease.resource_id.clone(), held);
                }
                let lease = self.fleet_lease(id).ok_or_else(|| resource::unknown_lease(id))?;
                Ok(RenewedThere { lease, notices })
            }
            (other, _) => Err(does_not_fit(worker, &other)),
        }
    }

    fn released(&mut self, worker: &NodeName, lease: FleetLease, outcome: Outcome) -> Result<ReleasedThere, Refusal> {
        match answer_of(worker, outcome, &lease.id)? {
            (Answer::Released { admitted }, number) => {
                if let Some(view) = self.workers.get_mut(worker).and_then(|worker| worker.view.as_mut()) {
                    view.ended(number, &lease.lease);
                }
                let same_grant = |route: &Route| route.worker == *worker && route.held.lease.fence == lease.lease.fence;
                if self.table.resolve(&lease.id).is_some_and(same_grant) {
                    self.table.remove(&lease.id);
                    self.forget_leases(vec![(lease.id.clone(), lease.lease.clone())]);
                }
                let ours = |it: &crate::model::Requester| it.via.as_ref() == Some(&self.around.name);
                let admitted = admitted.map(|it| if ours(&it) { it.bare() } else { it });
                Ok(ReleasedThere { lease, admitted })
            }
            (other, _) => Err(does_not_fit(worker, &other)),
        }
    }
}

/// What a worker may tell of a device: the latest, and no more than a driver says.
fn sensible(mut notices: Vec<Notice>) -> Vec<Notice> {
    notices.drain(..notices.len().saturating_sub(NOTICES_MAX));
    for notice in &mut notices {
        let told = notice.message.chars().filter(|letter| !letter.is_control());
        notice.message = told.take(NOTICE_CHARS_MAX).collect();
    }
    notices
}

/// The worker's answer, if it was no refusal; a refusal is given in the gateway's own name of the lease.
fn answer_of(worker: &NodeName, outcome: Outcome, id: &LeaseId) -> Result<(Answer, u64), Refusal> {
    match outcome {
        Outcome::Answered(answer, number) => match *answer {
            Answer::Refused(refusal) if refusal.code == Code::UnknownLease => Err(resource::unknown_lease(id)),
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok((answer, number)),
        },
        Outcome::NotSent => {
            Err(worker_unreachable(worker, "it has not been asked, and the lease is as it was; ask again"))
        }
        Outcome::Lost => Err(worker_unreachable(worker, "nobody knows whether it was done; ask again")),
    }
}

fn does_not_fit(worker: &NodeName, answer: &Answer) -> Refusal {
    tracing::error!(%worker, ?answer, "an answer does not fit its call");
    Refusal::internal("the worker's answer does not fit")
}
