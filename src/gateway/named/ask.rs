//! What is asked of a worker about one that waits there, about a waiting room, or for draining a resource.

use std::time::Duration;

use ractor::RpcReplyPort;

use super::super::calendar::refused;
use super::super::dispatch::worker_unreachable;
use super::super::elsewhere::Kind;
use super::super::front::{CallKind, FrontState};
use super::super::message::{FleetResource, RoomSaid};
use super::super::session::Outcome;
use crate::admission::RequestState;
use crate::admission::cancel::not_cancellable;
use crate::clock::RunTime;
use crate::limits::CALL_BOUND;
use crate::model::{Code, NodeName, Refusal, RequestId, ResourceAddress, WaitingFor};
use crate::wire::call::{Answer, Call};
use crate::wire::requests::Place;
use crate::wire::room::{RoomAnswer, RoomAsk};

/// A worker that is here ends a wait whose time is over; only when it does not does the gateway, after this.
const TIMEOUT_SLACK: Duration = CALL_BOUND;

impl FrontState {
    /// Where a request stands that waits at a worker. Asking keeps it alive there.
    pub(in super::super) fn place_there(&mut self, id: &RequestId, reply: RpcReplyPort<Option<Place>>) {
        let id = self.first_of(id);
        self.elsewhere.claim(&id);
        let Some(waits) = self.elsewhere.get(&id) else { return drop(reply.send(None)) };
        let worker = waits.worker.clone();
        if self.workers.get(&worker).is_some_and(|state| state.takes_requests() && !state.is_busy()) {
            let call = Call::Look { request: id.clone() };
            return self.ask(&worker, CallKind::Look { request: id, reply }, call, CALL_BOUND);
        }
        let _ = reply.send(self.last_place(&id));
    }

    /// The place that was told last, of one whose worker cannot be asked now.
    fn last_place(&self, id: &RequestId) -> Option<Place> {
        let place = self.elsewhere.get(id)?.place.clone()?;
        Some(Place { waiting_for: Some(WaitingFor::Absent), until_ms: None, ..place })
    }

    pub(in super::super) fn looked(
        &mut self,
        worker: &NodeName,
        id: &RequestId,
        outcome: Outcome,
        reply: RpcReplyPort<Option<Place>>,
    ) {
        let answer = match outcome {
            Outcome::Answered(answer, _) => match *answer {
                Answer::Waiting(place) => {
                    if let Some(waits) = self.elsewhere.get_mut(id).filter(|waits| waits.worker == *worker) {
                        waits.place = Some(place.clone());
                    }
                    Some(place)
                }
                // It does not wait any more; how it ended is on its way.
                _ => self.elsewhere.get(id).and_then(|waits| waits.place.clone()),
            },
            Outcome::NotSent | Outcome::Lost => self.last_place(id),
        };
        let _ = reply.send(answer);
    }

    /// An owner cancels one that waits at a worker, which it may have got its lease from meanwhile. One whose worker cannot
    /// be asked is given up: what it may have got is released as soon as it is found.
    pub(in super::super) fn cancel_there(&mut self, id: &RequestId, reply: RpcReplyPort<Result<(), Refusal>>) {
        let Some(waits) = self.elsewhere.get(id) else { return };
        let worker = waits.worker.clone();
        if self.workers.get(&worker).is_some_and(super::super::front::Worker::takes_requests) {
            let call = Call::Cancel { request: id.clone() };
            self.ask(&worker, CallKind::Cancel { request: id.clone(), reply }, call, CALL_BOUND);
        } else {
            self.give_up_there(id, reply);
        }
    }

    pub(in super::super) fn cancel_answered(
        &mut self,
        worker: &NodeName,
        id: &RequestId,
        outcome: Outcome,
        reply: RpcReplyPort<Result<(), Refusal>>,
    ) {
        let granted = match outcome {
            Outcome::Answered(answer, _) => match *answer {
                Answer::Refused(refusal) if refusal.code == Code::RequestNotCancellable => Some(refusal),
                _ => None,
            },
            Outcome::NotSent | Outcome::Lost if self.elsewhere.is_at(id, worker) => {
                return self.give_up_there(id, reply);
            }
            Outcome::NotSent | Outcome::Lost => None,
        };
        let result = match granted {
            None => {
                if let Some(waited) = self.elsewhere.remove_at(id, worker) {
                    self.is_cancelled(id, Some(waited));
                }
                Ok(())
            }
            Some(refusal) => {
                let lease = refusal.details.as_ref().and_then(|details| details.get("leaseId")?.as_str()?.parse().ok());
                let lease = match (self.elsewhere.get(id), self.requests.get(id).map(|request| &request.state)) {
                    // The report of its lease has come before this answer.
                    (None, Some(RequestState::Granted(first))) => Some(first.lease.id.clone()),
                    (Some(waits), _) => lease.map(|lease| self.name_there(worker, waits, &lease)),
                    (None, _) => None,
                };
                Err(not_cancellable(id, lease.as_ref()))
            }
        };
        let _ = reply.send(result);
    }

    /// It is cancelled here, and whatever it may still get there is released. Its owner hears so once that is on disk.
    fn give_up_there(&mut self, id: &RequestId, reply: RpcReplyPort<Result<(), Refusal>>) {
        let waited = self.leave_there(id);
        self.is_cancelled(id, waited);
        self.tell_once_given_up(reply);
    }

    /// Ends those whose time to wait is over, where their worker has not.
    pub(in super::super) fn end_timed_out_there(&mut self, now: RunTime) {
        let slack = |worker: &NodeName| {
            let here = self.workers.get(worker).is_some_and(super::super::front::Worker::takes_requests);
            if here { TIMEOUT_SLACK } else { Duration::ZERO }
        };
        for id in self.elsewhere.timed_out(now, slack) {
            let Some(waits) = self.leave_there(&id) else { continue };
            let resource = match &waits.kind {
                Kind::Sent(open) => open.ask.target.to_string(),
                Kind::Unattended | Kind::Found { .. } => waits.resource.to_string(),
            };
            let message = format!("{resource} did not become free in time; ask again, or wait longer");
            let refusal = Refusal::new(Code::QueueTimeout, message).with("requestId", id.as_str());
            self.fails_there(&id, Some(waits), refusal);
        }
    }

    /// Passes a question about a waiting room, or the wish to drain a resource, on to its worker.
    pub(in super::super) fn room(
        &mut self,
        address: &ResourceAddress,
        ask: RoomAsk,
        reply: RpcReplyPort<Result<RoomSaid, Refusal>>,
    ) {
        match self.owner_of(address).and_then(|worker| self.askable(worker)) {
            Ok(worker) => self.ask(&worker, CallKind::Room(reply), Call::Room(ask), CALL_BOUND),
            // A caller that has gone needs no answer.
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    pub(in super::super) fn room_answered(
        &mut self,
        worker: &NodeName,
        outcome: Outcome,
        reply: RpcReplyPort<Result<RoomSaid, Refusal>>,
    ) {
        let now = self.around.clock.now().run;
        let result = match outcome {
            Outcome::Answered(answer, _) => match *answer {
                Answer::Room(RoomAnswer::Waiters { mut waiters, more }) => {
                    for waiter in waiters.iter_mut().filter(|it| it.holder.via.as_ref() == Some(&self.around.name)) {
                        waiter.holder = waiter.holder.bare();
                    }
                    Ok(RoomSaid::Waiters { waiters, more })
                }
                Answer::Room(RoomAnswer::Left(left)) => Ok(RoomSaid::Left(left)),
                Answer::Room(RoomAnswer::Resource(report)) => {
                    let (id, worker) = (report.id.clone(), worker.clone());
                    let seen = super::super::view::Seen::of(report, now);
                    Ok(RoomSaid::Resource(Box::new(FleetResource { worker, id, seen, reachable: true })))
                }
                Answer::Refused(refusal) => Err(outward(refusal, worker)),
                other => {
                    tracing::error!(%worker, ?other, "an answer does not fit its call");
                    Err(Refusal::internal("the worker's answer does not fit"))
                }
            },
            Outcome::NotSent => Err(worker_unreachable(worker, "it has not been asked; ask again")),
            Outcome::Lost => Err(worker_unreachable(worker, "nobody knows whether it was done; ask again")),
        };
        let _ = reply.send(result);
    }
}

/// A worker's refusal in this gateway's names.
pub(super) fn outward(refusal: Refusal, worker: &NodeName) -> Refusal {
    refused(refusal, worker)
}
