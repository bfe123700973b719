//! The pool of those who wait by selector, and the resources that have room: who is first for whom.

use std::collections::BTreeSet;

use super::desk::{DeskState, Note};
use super::directory::{Choice, Entry};
use super::open::Stage;
use crate::admission::Waiter;
use crate::admission::resource::{Around, Change, Place, Reply, Rivals, could_take};
use crate::model::{Mode, Refusal, RequestId, Requester, ResourceId, Selector, Target, WaitPolicy};

impl DeskState {
    /// Writes down that a request waits in the pool. It stands there as soon as that is durable.
    pub(super) fn join_pool(&mut self, waiter: Waiter) {
        let id = waiter.proposal.request.clone();
        let Target::Select(selector) = &waiter.proposal.target else { return };
        let position = self.pool.position_of(selector, waiter.rank);
        let Some(open) = self.open.get_mut(&id) else { return };
        let changes = vec![
            Change::Requested {
                proposal: waiter.proposal.clone(),
                wait: open.wait,
                place: Some(Place::of(&waiter)),
                returns: waiter.returns.clone(),
            },
            Change::Queued { request: id.clone(), requester: waiter.proposal.holder.clone(), position },
        ];
        open.stage = Stage::Joining(Box::new(waiter));
        self.note(changes, Note::Joined { request: id });
    }

    /// It is durable that a request waits in the pool, or it could not be written.
    pub(super) fn joined_pool(&mut self, id: &RequestId, written: Result<(), Refusal>) {
        let Some(open) = self.open.get_mut(id) else { return };
        let Stage::Joining(waiter) = std::mem::replace(&mut open.stage, Stage::Pool) else { return };
        if let Err(refusal) = written {
            self.unclaim(&waiter);
            return self.refuse(id, refusal);
        }
        let returns = waiter.returns.clone();
        self.pool.join(*waiter);
        self.start_waiting(id, Stage::Pool);
        self.came_back(returns.as_ref());
        if !self.withdraw_as_asked(id) {
            self.seek(id);
        }
    }

    /// Lets a resource go on that has room for one of the pool.
    pub(super) fn seek(&mut self, id: &RequestId) {
        let Some(waiter) = self.pool.get(id) else { return };
        let Target::Select(selector) = &waiter.proposal.target else { return };
        let mode = waiter.proposal.mode;
        let its_turn = |entry: &Entry| entry.out.is_none() && !entry.paused && self.would_take(entry, waiter);
        if let Ok(Choice::Free(resource)) = self.directory.choose(selector, mode, self.link.node(), its_turn) {
            self.to_pump.insert(resource);
        }
    }

    /// The one of the pool whose turn it is on a resource that has no command out, if there is room for it. What else is
    /// asked of the resource comes later, so it takes no room yet.
    pub(super) fn first_for(&self, resource: &ResourceId) -> Option<Waiter> {
        let entry = self.directory.get(resource)?;
        if self.pool.is_empty() {
            return None;
        }
        // What has been asked of it meanwhile, and not been carried out, comes after whoever waits.
        let fitting =
            [Mode::Exclusive, Mode::Shared].into_iter().filter(|mode| entry.has_room(self.link.node(), *mode));
        let returning = self.returning.first_for(&entry.spec).is_some();
        let heads = fitting.filter_map(|mode| self.first_of_pool(entry, mode, returning));
        let first = heads.min_by_key(|waiter| waiter.rank)?;
        self.would_take(entry, first).then(|| first.clone())
    }

    /// The first of the pool for a resource. While those who waited at the restart are expected, the others do not count.
    fn first_of_pool(&self, entry: &Entry, mode: Mode, returning: bool) -> Option<&Waiter> {
        // Whom a booking stops, stops nobody.
        let now = self.clock.now().wall;
        let doors = entry.state.doors(&entry.spec, now);
        let admits = |waiter: &Waiter| doors.admit(&entry.state.calendar, &waiter.proposal, now);
        let passes = |waiter: &Waiter| (!returning || waiter.returns.is_some()) && admits(waiter);
        self.pool
            .first(&entry.spec.labels, mode, |waiter| waiter.not_on.as_ref() != Some(&entry.spec.id) && passes(waiter))
    }

    /// True when the resource, as it is known here, would grant to `waiter`.
    pub(super) fn would_take(&self, entry: &Entry, waiter: &Waiter) -> bool {
        let around = Around {
            spec: &entry.spec,
            rules: &self.rules.waiting,
            max_total: self.rules.lease.max_total,
            calendar: &self.rules.calendar,
            holds_paused: false,
            fresh: None,
            driver: &entry.lease_driver,
            unsettled: &BTreeSet::new(),
            rivals: self.rivals(entry),
            node: self.link.node(),
            now: self.clock.now(),
        };
        could_take(&entry.state, &around, waiter)
    }

    /// Who else could have the resource.
    pub(super) fn rivals(&self, entry: &Entry) -> Rivals {
        let returning = self.returning.first_for(&entry.spec);
        if self.pool.is_empty() {
            return Rivals { returning, ..Rivals::default() };
        }
        let first = |mode| self.first_of_pool(entry, mode, returning.is_some()).map(|waiter| waiter.rank);
        Rivals { exclusive: first(Mode::Exclusive), shared: first(Mode::Shared), pinned: self.pinned(entry), returning }
    }

    /// The first of those who want a resource alone and whose every match is shared just now, if this is the one that
    /// it is to get: the match with the fewest holders.
    fn pinned(&self, entry: &Entry) -> Option<crate::admission::Rank> {
        if !is_shared_now(entry) {
            return None;
        }
        let heads = self.pool.heads(Mode::Exclusive).filter(|(selector, _)| selector.matches(&entry.spec.labels));
        let here = heads.filter(|(selector, _)| self.pinned_to(selector) == Some(&entry.spec.id));
        here.map(|(_, waiter)| waiter.rank).min()
    }

    fn pinned_to(&self, selector: &Selector) -> Option<&ResourceId> {
        // What an operator has taken out is nobody's to wait for just now.
        let there = |entry: &&Entry| entry.grantable && !entry.state.drained;
        let matching = || self.directory.iter().filter(there).filter(|entry| selector.matches(&entry.spec.labels));
        if !matching().all(is_shared_now) {
            return None;
        }
        matching().min_by_key(|entry| (entry.state.held.len(), &entry.spec.id)).map(|entry| &entry.spec.id)
    }

    /// The offered one belongs to the resource until that has answered.
    pub(super) fn take_offered(&mut self, id: &RequestId) {
        let Some(waiter) = self.pool.remove(id) else { return };
        if let Some(open) = self.open.get_mut(id) {
            open.stage = Stage::Offered(Box::new(waiter));
        }
    }

    /// An offer is answered. One that was granted has been told already.
    pub(super) fn offer_settled(&mut self, resource: &ResourceId, id: &RequestId, reply: &Reply) -> Option<Requester> {
        if let Reply::Granted(held) = reply {
            return Some(held.lease.holder.clone());
        }
        if let Reply::Claimed { stored } = reply {
            return self.offer_claimed(resource, id, *stored);
        }
        // Until something changes here it would decline again.
        self.pause(resource);
        let open = self.open.get_mut(id)?;
        if let Stage::Offered(waiter) = std::mem::replace(&mut open.stage, Stage::Pool) {
            match open.failed.clone().filter(|_| !matches!(open.wait, WaitPolicy::Wait { .. })) {
                Some(refusal) => return self.fail_for_good(*waiter, refusal),
                None => self.pool.join(*waiter),
            }
        }
        if !self.withdraw_as_asked(id) {
            self.seek(id);
        }
        None
    }

    /// One of the pool has gone: those who would share what it wanted alone may go on.
    pub(super) fn waiter_left_pool(&mut self, waiter: &Waiter) {
        if waiter.proposal.mode == Mode::Exclusive
            && let Target::Select(selector) = &waiter.proposal.target
        {
            let selector = selector.clone();
            self.serve_shared(&selector);
        }
    }

    /// Something has changed on a resource that was shared: whoever wants one of several alone may now be pinned to another
    /// of them, or to none, and those who would share this one may go on.
    pub(super) fn pins_moved(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get(resource) else { return };
        let heads = self.pool.heads(Mode::Exclusive).filter(|(selector, _)| selector.matches(&entry.spec.labels));
        let selectors: Vec<Selector> = heads.map(|(selector, _)| selector.clone()).collect();
        for selector in selectors {
            self.serve_shared(&selector);
        }
    }

    fn serve_shared(&mut self, selector: &Selector) {
        let matching =
            self.directory.iter().filter(|entry| is_shared_now(entry) && selector.matches(&entry.spec.labels));
        let resources: Vec<ResourceId> = matching.map(|entry| entry.spec.id.clone()).collect();
        for resource in resources {
            self.serve(&resource);
        }
    }

    /// Lets those who wait for a resource try again.
    pub(super) fn serve(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        entry.paused = false;
        entry.admission_declined = false;
        if entry.state.queue.has_attended() {
            let command = crate::admission::resource::Command::Serve { freed: None };
            self.send(resource, super::desk::OpKind::Serve { parked: None, admits: false }, command);
        }
        self.to_pump.insert(resource.clone());
    }

    /// Somebody has come back with its ticket: what it waited for may now go to the next.
    pub(super) fn came_back(&mut self, former: Option<&RequestId>) {
        let Some(former) = former else { return };
        self.returning.is_back(former);
        self.serve_all();
    }

    /// Those who waited at the restart have had their time.
    pub(super) fn stop_expecting(&mut self) {
        self.returning.stop_expecting();
        self.serve_all();
    }

    /// Lets everything go on that has room and somebody who waits for it.
    pub(super) fn serve_all(&mut self) {
        let pool = !self.pool.is_empty();
        let waited_for = |entry: &&Entry| pool || entry.admission_left || !entry.state.queue.is_empty();
        // Whatever is under way on it may have been decided before.
        let node = self.link.node();
        let room = |entry: &&Entry| entry.has_room(node, Mode::Exclusive) || entry.has_room(node, Mode::Shared);
        let resources: Vec<ResourceId> =
            self.directory.iter().filter(waited_for).filter(room).map(|entry| entry.spec.id.clone()).collect();
        for resource in resources {
            self.serve(&resource);
        }
    }

    /// The ask of one who came back has come to nothing; its ticket is as good as before.
    pub(super) fn unclaim(&mut self, waiter: &Waiter) {
        if let Some(former) = &waiter.returns {
            self.returning.unclaim(former);
        }
    }
}

/// True when all that hold it share it.
pub(super) fn is_shared_now(entry: &Entry) -> bool {
    let held = &entry.state.held;
    !entry.state.drained && !held.is_empty() && held.iter().all(|held| held.lease.mode == Mode::Shared)
}
