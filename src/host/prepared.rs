//! Requests for whose lease a device is made ready first (SPEC §7): a claim, and what becomes of it.
//!
//! How a named request ends whose device could not be made ready is the resource's to write. One by selector may have another
//! device, once: that is found here, where all devices are known. One of the gateway's goes back there.

use super::desk::{DeskState, Note, OpKind};
use super::directory::Choice;
use super::open::{OpenRequest, Stage};
use crate::admission::Waiter;
use crate::admission::resource::{Change, Command, Rejection, withdrawn_from};
use crate::model::{Refusal, RequestId, Requester, ResourceId, Target, WaitPolicy};

impl DeskState {
    /// A resource is made ready for a request that has just come in.
    pub(super) fn claimed(&mut self, resource: &ResourceId, id: &RequestId, stored: bool) {
        if stored {
            self.requests.store(id);
        }
        let Some(open) = self.open.get_mut(id) else { return };
        open.stage = Stage::Room(resource.clone());
        let taken_back = open.taken_back.is_some();
        if let WaitPolicy::Wait { .. } = open.wait {
            self.start_waiting(id, Stage::Room(resource.clone()));
        }
        if self.withdraw_as_asked(id) {
            return;
        }
        if taken_back {
            self.withdraw(id, Rejection::TakenBack, None);
        } else if self.stopping {
            self.give_up_claim(id);
        }
    }

    /// The node goes down, and nothing is made ready any more: whoever stands at the door for it is told so. Those who are ready
    /// to wait hear it after the start, and have a ticket.
    pub(super) fn give_up_claims(&mut self) {
        let claims = self.directory.iter().filter_map(|entry| entry.state.device.claim()?.request().cloned());
        for id in claims.collect::<Vec<RequestId>>() {
            self.give_up_claim(&id);
        }
    }

    fn give_up_claim(&mut self, id: &RequestId) {
        let waits = |open: &OpenRequest| open.fleet || matches!(open.wait, WaitPolicy::Wait { .. });
        if self.open.get(id).is_some_and(|open| !waits(open)) {
            self.withdraw(id, Rejection::DaemonRestarted, None);
        }
    }

    /// The same for one that was offered the resource. Tells whom it was offered to.
    pub(super) fn offer_claimed(&mut self, resource: &ResourceId, id: &RequestId, stored: bool) -> Option<Requester> {
        let open = self.open.get_mut(id)?;
        let Stage::Offered(waiter) = std::mem::replace(&mut open.stage, Stage::Room(resource.clone())) else {
            return None;
        };
        self.claimed(resource, id, stored);
        self.waiter_left_pool(&waiter);
        Some(waiter.proposal.holder.clone())
    }

    /// A device could not be made ready for a request.
    pub(super) fn unprepared(&mut self, resource: &ResourceId, mut waiter: Waiter, stored: bool, refusal: Refusal) {
        let id = waiter.proposal.request.clone();
        let Some(open) = self.open.get_mut(&id) else { return };
        // What was sent to the resource meanwhile finds nothing there.
        open.leaving = false;
        let first = open.failed.replace(refusal.clone()).is_none() && !open.fleet;
        let wait = open.wait;
        let Target::Select(selector) = waiter.proposal.target.clone() else {
            return self.refuse(&id, refusal);
        };
        let other = self.directory.iter().filter(|entry| entry.grantable && entry.spec.id != *resource);
        let has_other = other.into_iter().any(|entry| selector.matches(&entry.spec.labels));
        if !first || !has_other {
            self.fail_for_good(waiter, refusal);
            return;
        }
        tracing::warn!(%resource, request = %id, %refusal, "a device could not be made ready; the request goes to another");
        waiter.not_on = Some(resource.clone());
        if let WaitPolicy::Wait { .. } = wait {
            self.set_stage(&id, Stage::Pool);
            self.pool.join(waiter);
            self.attend(&id);
            if !self.withdraw_as_asked(&id) {
                self.seek(&id);
            }
            return;
        }
        match self.choose(&selector, &waiter) {
            Ok(Choice::Free(next)) => {
                self.set_stage(&id, Stage::Offered(Box::new(waiter.clone())));
                let kind = OpKind::Offer { request: id, mode: waiter.proposal.mode, parked: None };
                self.send(&next, kind, Command::Offer { waiter: Box::new(waiter), stored });
            }
            _ => {
                self.fail_for_good(waiter, refusal);
            }
        }
    }

    /// No device was made ready for a request, and it has had its second.
    pub(super) fn fail_for_good(&mut self, waiter: Waiter, refusal: Refusal) -> Option<Requester> {
        let id = waiter.proposal.request.clone();
        if self.open.get(&id)?.fleet {
            let change = Change::Declined { proposal: waiter.proposal, code: refusal.code };
            self.note(vec![change], Note::Refused { request: id, refusal });
        } else {
            self.leave_pool(&id, waiter, Rejection::DeviceFailed, refusal);
        }
        None
    }

    /// A resource was told to let a request go, and has: or it had not got it any more.
    pub(super) fn withdrawn(&mut self, id: &RequestId, why: Rejection, left: bool) {
        let Some(open) = self.open.get_mut(id) else { return };
        let Stage::Room(resource) = &open.stage else {
            // Its device could not be made ready meanwhile, and it went on to another.
            return self.withdraw(id, why, None);
        };
        if !left {
            // It has its lease, or a claim by its booking: either will end it, and until then it can be asked again.
            open.leaving = false;
        } else {
            let refusal = withdrawn_from(id, resource.as_str(), why, &self.rules.waiting);
            self.end_without_lease(id, why, refusal);
        }
    }

    fn set_stage(&mut self, id: &RequestId, stage: Stage) {
        if let Some(open) = self.open.get_mut(id) {
            open.stage = stage;
        }
    }
}
