//! What a gateway asks of a request that waits here by name, attended or unattended (SPEC §9 Named resources): where it
//! stands, and to take it out. An unattended waiter has no open request; it is found by the entry that it is.

use ractor::RpcReplyPort;

use super::desk::{DeskState, OpKind, Watcher};
use super::message::{Grant, PendingNow, Said};
use crate::admission::RequestState;
use crate::admission::cancel::unknown_request;
use crate::admission::resource::Command;
use crate::model::{NodeName, Refusal, RequestId, Requester, ResourceAddress, ResourceId, Target};

/// Who hears that an unattended waiter was taken out.
#[derive(Debug)]
pub(super) enum LeaveReply {
    /// Whoever wanted to know whether it stood there.
    Left(RpcReplyPort<Said<bool>>),
    /// A gateway that has cancelled it.
    Cancelled(RpcReplyPort<Said<()>>),
    /// A gateway that has taken its attempt back.
    TakenBack(RpcReplyPort<Said<Option<Grant>>>),
    /// Nobody: the gateway has had its answer.
    Nobody,
}

impl DeskState {
    /// Takes an unattended waiter out.
    pub(super) fn leave(&mut self, resource: &ResourceId, holder: Requester, reply: LeaveReply) {
        let kind = OpKind::Leave { holder: holder.clone(), reply };
        self.send(resource, kind, Command::Leave { holder });
    }

    /// The same by the resource's address.
    pub(super) fn leave_at(&mut self, address: &ResourceAddress, holder: Requester, reply: RpcReplyPort<Said<bool>>) {
        match self.resolve(address) {
            Ok(resource) => self.leave(&resource, holder, LeaveReply::Left(reply)),
            Err(refusal) => self.say(reply, Err(refusal)),
        }
    }

    /// It has been taken out, or was not there.
    pub(super) fn say_left(&self, reply: LeaveReply, answer: Result<bool, Refusal>) {
        match reply {
            LeaveReply::Left(reply) => self.say(reply, answer),
            LeaveReply::Cancelled(reply) => self.say(reply, answer.map(|_| ())),
            LeaveReply::TakenBack(reply) => self.say(reply, answer.map(|_| None)),
            LeaveReply::Nobody => {}
        }
    }

    /// The entry of an unattended waiter of this gateway's: where it stands, and whose it is.
    pub(super) fn waits_for_gateway(&self, id: &RequestId, gateway: &NodeName) -> Option<(ResourceId, Requester)> {
        let (room, holder) = self.ledger.waits_for(id)?;
        (holder.via.as_ref() == Some(gateway)).then(|| (room.id.clone(), holder.clone()))
    }

    /// Where a request of this gateway's stands. Asking keeps it alive.
    pub(super) fn look(&mut self, id: &RequestId, gateway: &NodeName, reply: RpcReplyPort<Said<PendingNow>>) {
        let request = self.requests.get(id).filter(|request| request.requester.via.as_ref() == Some(gateway));
        if request.is_some_and(|request| request.state == RequestState::Open) {
            self.asked_about(id);
            match self.place_of(id) {
                Some(place) => self.say(reply, Ok(place)),
                // It is on its way: whether it waits is known in a moment.
                None => self.add_watcher(id, Watcher::Looker(reply)),
            }
        } else if let Some((resource, _)) = self.waits_for_gateway(id, gateway) {
            let request = id.clone();
            self.send(&resource, OpKind::See { request: request.clone(), reply }, Command::See { request });
        } else {
            self.say(reply, Err(unknown_request(id)));
        }
    }

    /// Where an attended request stands that waits by name, as its gateway is told.
    pub(super) fn place_of(&self, id: &RequestId) -> Option<PendingNow> {
        let (waiter, _) = self.open.get(id).and_then(|open| self.standing(id, &open.stage))?;
        let Target::Resource(address) = &waiter.proposal.target else { return None };
        let (resource, mode) = (address.id.clone(), waiter.proposal.mode);
        let now = self.request_now(id)?.waiting?;
        Some(PendingNow {
            resource,
            mode,
            position: now.position,
            waiting_for: Some(now.waiting_for),
            until: now.until,
            place: now.place,
        })
    }
}
