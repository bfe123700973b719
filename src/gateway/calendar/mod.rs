//! Bookings and holds through the gateway: they live on the workers, so each call goes straight to the one that has the
//! resource, the booking or the hold, and is answered there, in one order with the worker's own clients.

pub(super) mod names;
pub mod pause;

use ractor::RpcReplyPort;

pub(super) use self::names::refused;
use self::names::{inward, outward};
use super::dispatch::worker_unreachable;
use super::front::{CallKind, FrontState};
use super::message::Presence;
use super::read::ambiguous_resource;
use super::session::Outcome;
use crate::admission::calendar::{unknown_booking, unknown_hold};
use crate::limits::CALL_BOUND;
use crate::model::{Code, LeaseId, NodeName, Refusal, ResourceAddress, ResourceId};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall};
use crate::wire::call::{Answer, Call};

type Reply = RpcReplyPort<Result<CalendarAnswer, Refusal>>;

impl FrontState {
    /// Passes a call on to the worker that it is for. `named` is the one that a resource's address names.
    pub(super) fn calendar(&mut self, named: Option<NodeName>, call: CalendarCall, reply: Reply) {
        match self.calendar_way(named, &call.ask) {
            Ok(worker) => {
                let call = CalendarCall { ask: inward(call.ask, &worker), ..call };
                self.ask(&worker, CallKind::Calendar(reply), Call::Calendar(call), CALL_BOUND);
            }
            // A caller that has gone needs no answer.
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// The worker that a call is for, if it can be asked.
    fn calendar_way(&self, named: Option<NodeName>, ask: &CalendarAsk) -> Result<NodeName, Refusal> {
        if self.stopping && matches!(ask, CalendarAsk::Book { .. } | CalendarAsk::Hold { .. }) {
            return Err(Refusal::new(Code::Stopping, "the gateway is going down; ask again when it is back"));
        }
        let worker = match ask.resource() {
            Some(id) => self.owner_of(&ResourceAddress { worker: named, id: id.clone() })?,
            None => self.named_in(named, ask)?,
        };
        self.askable(worker)
    }

    /// The worker, if it can be asked now.
    pub(super) fn askable(&self, worker: NodeName) -> Result<NodeName, Refusal> {
        match self.workers.get(&worker) {
            Some(state) if state.takes_requests() && state.is_busy() => {
                let full = Refusal::new(Code::QueueFull, format!("worker {worker} has too much to do; ask again"));
                Err(full.retry_after(std::time::Duration::from_secs(1)))
            }
            Some(state) if state.takes_requests() => Ok(worker),
            _ => Err(worker_unreachable(&worker, "it has not been asked; ask again later")),
        }
    }

    /// The worker that has a resource, as an acquire finds it.
    pub(super) fn owner_of(&self, address: &ResourceAddress) -> Result<NodeName, Refusal> {
        match self.owners(address).as_slice() {
            [owner] => Ok(owner.clone()),
            [] => {
                let unheard = self.unheard();
                let could_have = |name: &&NodeName| address.worker.as_ref().is_none_or(|asked| asked == *name);
                match unheard.iter().find(could_have) {
                    Some(worker) => Err(worker_unreachable(worker, "it has not reported yet; ask again later")),
                    None => Err(self.unknown_resource(address)),
                }
            }
            several => Err(ambiguous_resource(address, several)),
        }
    }

    /// The worker that a booking's or a hold's name names. One without is of no worker that a gateway knows.
    fn named_in(&self, named: Option<NodeName>, ask: &CalendarAsk) -> Result<NodeName, Refusal> {
        let known = |worker: Option<NodeName>| worker.filter(|worker| self.workers.contains_key(worker));
        match ask {
            CalendarAsk::Reschedule { booking, .. }
            | CalendarAsk::Cancel { booking, .. }
            | CalendarAsk::Booking(booking) => known(booking.of_worker().0).ok_or_else(|| unknown_booking(booking)),
            CalendarAsk::Confirm { hold, .. } | CalendarAsk::Release { hold, .. } | CalendarAsk::OneHold(hold) => {
                known(hold.of_worker().0).ok_or_else(|| unknown_hold(hold))
            }
            _ => known(named).ok_or_else(|| Refusal::internal("the call is for no worker")),
        }
    }

    /// What became of a call. What a former life of the worker has answered holds: it is on that worker's disk.
    pub(super) fn calendar_answered(&self, worker: &NodeName, outcome: Outcome, reply: Reply) {
        let result = match outcome {
            Outcome::Answered(answer, _) => match *answer {
                Answer::Calendar(answer) => {
                    let lease = |resource: &ResourceId, lease: &LeaseId| self.name_of(worker, resource, lease);
                    outward(answer.unpacked(), worker, lease).ok_or_else(|| {
                        tracing::error!(%worker, "a worker says a name that is not one of its own");
                        does_not_fit()
                    })
                }
                Answer::Refused(refusal) => Err(refused(refusal, worker)),
                other => {
                    tracing::error!(%worker, ?other, "an answer does not fit its call");
                    Err(does_not_fit())
                }
            },
            Outcome::NotSent => Err(worker_unreachable(worker, "it has not been asked; ask again")),
            Outcome::Lost => {
                Err(worker_unreachable(worker, "nobody knows whether it was done; look at the lists, and ask again"))
            }
        };
        let _ = reply.send(result);
    }

    /// This gateway's name of a worker's lease, as the list of leases has it; of one that is over, the long one.
    fn name_of(&self, worker: &NodeName, resource: &ResourceId, lease: &LeaseId) -> LeaseId {
        let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
        let seen = view.and_then(|view| view.resources().get(resource));
        let held = seen.and_then(|seen| seen.held.iter().find(|held| held.lease.id == *lease));
        held.map_or_else(|| LeaseId::through(worker, lease), |held| self.table.name(worker, &held.lease))
    }

    /// Which workers can be asked now.
    pub(super) fn presence(&self) -> Presence {
        let mut presence = Presence::default();
        for (name, worker) in &self.workers {
            let side = if worker.takes_requests() { &mut presence.here } else { &mut presence.away };
            side.push(name.clone());
        }
        presence
    }
}

fn does_not_fit() -> Refusal {
    Refusal::internal("the worker's answer does not fit")
}
