//! One device at two workers: while one has it leased, the others hold it absent (SPEC §7).
//!
//! Who reports which device is in [`identities`](super::identities). A worker is told the whole list of its resources that
//! are leased elsewhere whenever that changes; it forgets the list by itself some time after its link is lost, so a new link
//! begins with nothing told. Until a worker has followed, nothing is placed there all the same. After a restart of the
//! gateway all of this is made anew from the reports.

use std::collections::BTreeMap;

use super::absent::SLACK;
use super::front::{CallKind, FrontState};
use super::session::Outcome;
use crate::limits::{CALL_BOUND, ELSEWHERE_MAX};
use crate::model::{NodeName, ResourceId};
use crate::wire::call::{Answer, Call};

/// What a worker has been told over its link.
#[derive(Debug)]
pub(super) struct ToldElsewhere {
    /// The list that it has; none when nobody knows.
    has: Option<BTreeMap<ResourceId, NodeName>>,
    /// True while it has not answered.
    asked: bool,
}

impl Default for ToldElsewhere {
    fn default() -> Self {
        Self { has: Some(BTreeMap::new()), asked: false }
    }
}

impl FrontState {
    /// A resource has been reported, or is there no more.
    pub(super) fn note_identity(&mut self, worker: &NodeName, resource: &ResourceId) {
        let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
        let seen = view.and_then(|view| view.resources().get(resource));
        self.identities_due = true;
        self.identities.set(worker, resource, seen.and_then(|seen| seen.identity.as_ref()));
    }

    /// All resources of a worker have been reported, or none is known any more.
    pub(super) fn note_identities(&mut self, worker: &NodeName) {
        let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
        let seen = view.iter().flat_map(|view| view.resources());
        self.identities_due = true;
        self.identities.set_all(worker, seen.filter_map(|(id, seen)| Some((id, seen.identity.as_ref()?))));
    }

    /// Sees to it that no worker gives away what another has leased.
    pub(super) fn mind_identities(&mut self) {
        let due = std::mem::take(&mut self.identities_due);
        if !due || !(self.identities.matter() || self.elsewhere_told) {
            return;
        }
        let now = self.around.clock.now().run;
        let grace = self.around.rules.uplink_grace + SLACK;
        let workers = &self.workers;
        let judged = self.identities.judge(|worker, resource| {
            let Some(worker) = workers.get(worker) else { return false };
            let seen = worker.view.as_ref().and_then(|view| view.resources().get(resource));
            // One that is away may have ended it, but not before its deadline for all that is known.
            let lives = |held: &crate::admission::resource::Held| worker.link.is_some() || now <= held.deadline + grace;
            seen.is_some_and(|seen| seen.held.iter().any(lives))
        });
        for (identity, at) in judged.doubled {
            let at: Vec<&str> = at.iter().map(NodeName::as_str).collect();
            let (driver, serial, at) = (&identity.driver, &identity.serial, at.join(", "));
            tracing::warn!(%driver, %serial, %at, "one device is leased at several workers; it stays so until the first ends");
        }
        let mut elsewhere = judged.elsewhere;
        self.elsewhere_told = !elsewhere.is_empty();
        for (name, worker) in &mut self.workers {
            let Some(view) = &mut worker.view else { continue };
            let mut of_worker = elsewhere.remove(name).unwrap_or_default();
            while of_worker.len() > ELSEWHERE_MAX {
                of_worker.pop_last();
            }
            self.pump_due |= view.set_elsewhere(of_worker);
        }
        self.tell_elsewhere();
    }

    fn tell_elsewhere(&mut self) {
        let mut calls = Vec::new();
        for (name, worker) in &mut self.workers {
            let Some(view) = &worker.view else { continue };
            if worker.told_elsewhere.has.as_ref() == Some(view.elsewhere()) {
                continue;
            }
            // Until it has followed, it is looked at again.
            self.elsewhere_told = true;
            let resources = view.elsewhere().clone();
            if worker.takes_requests() && !worker.is_busy() && !worker.told_elsewhere.asked {
                worker.told_elsewhere.asked = true;
                calls.push((name.clone(), resources));
            }
        }
        for (worker, resources) in calls {
            tracing::debug!(%worker, ?resources, "leased elsewhere");
            let call = Call::Elsewhere { resources: resources.clone() };
            self.ask(&worker, CallKind::Elsewhere(resources), call, CALL_BOUND);
        }
    }

    /// What became of telling a worker. One that did not answer is told again with the next tick.
    pub(super) fn elsewhere_answered(
        &mut self,
        worker: &NodeName,
        resources: BTreeMap<ResourceId, NodeName>,
        outcome: &Outcome,
    ) {
        let Some(state) = self.workers.get_mut(worker) else { return };
        state.told_elsewhere.asked = false;
        state.told_elsewhere.has = match outcome {
            Outcome::Answered(answer, _) => {
                if !matches!(**answer, Answer::Elsewhere) {
                    // Nothing is placed there all the same; what its own clients get is its own.
                    tracing::warn!(%worker, ?answer, "a worker does not hold back what is leased elsewhere");
                }
                Some(resources)
            }
            Outcome::NotSent | Outcome::Lost => None,
        };
        self.identities_due = true;
    }
}
