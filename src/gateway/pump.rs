//! The way of the queue: who is looked at when something may have become free, and in which order.
//!
//! Those who wait by selector are looked at in their order, over all selectors that could be served. What finds nothing
//! free stops all that ask for the same, so that those who wait for what is leased cost one look. A request that cannot be
//! placed now is passed over.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::dispatch::out_of_time;
use super::fleet::{Open, Stage};
use super::front::{FrontState, Worker};
use super::placement::{Candidate, Kept, Place, Placement, no_capacity, pinned_to, place};
use super::view::{View, Wish};
use crate::admission::Waiter;
use crate::clock::RunTime;
use crate::model::{Labels, Mode, NodeName, RequestId, Requester, ResourceId, Selector, Target};

/// What came of placing a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// The next may have more luck.
    On,
    /// Nobody that asks for the same gets anything now.
    Full,
}

impl FrontState {
    /// Goes through the whole queue.
    pub(super) fn pump(&mut self) {
        if !self.rebuilt || self.fleet.waiting() == 0 {
            return;
        }
        self.pump_at = None;
        for id in self.fleet.named_in_order() {
            self.place_now(&id);
        }
        self.seek(|_| true);
    }

    /// Goes through the queue if something has asked for that.
    pub(super) fn pump_if_due(&mut self) {
        loop {
            if std::mem::take(&mut self.pump_due) {
                self.pump();
            } else if let Some(worker) = self.fleet.take_answered() {
                self.pump_worker(&worker);
            } else {
                return;
            }
        }
    }

    /// Looks at those that a resource with these labels could serve.
    pub(super) fn pump_labels(&mut self, labels: &Labels) {
        self.seek(|selector| selector.matches(labels));
    }

    /// Looks at those that what is free on a worker could serve.
    pub(super) fn pump_worker(&mut self, worker: &NodeName) {
        if self.fleet.waiting() == 0 {
            return;
        }
        let Some(view) = self.workers.get(worker).and_then(|worker| worker.view.as_ref()) else { return };
        let free: BTreeSet<Labels> = view.free().map(|(_, seen)| seen.labels.clone()).collect();
        self.seek(|selector| free.iter().any(|labels| selector.matches(labels)));
    }

    /// Sees to it that the queue is gone through at this time.
    pub(super) fn pump_by(&mut self, at: RunTime) {
        self.pump_at = Some(self.pump_at.map_or(at, |known| known.min(at)));
    }

    /// Looks at those whose selectors `could` be served, in their order.
    fn seek(&mut self, could: impl Fn(&Selector) -> bool) {
        if !self.rebuilt {
            return;
        }
        let both = [Mode::Exclusive, Mode::Shared];
        let groups = self.fleet.pool().groups().filter(|(_, selector)| could(selector));
        let groups: Vec<(String, Mode)> = groups.flat_map(|(key, _)| both.map(|mode| (key.to_owned(), mode))).collect();
        let mut next = BinaryHeap::new();
        // Where somebody waited for a worker that is away, everybody is looked at again.
        let walked: Vec<bool> = groups.iter().map(|(key, _)| self.away_groups.contains(key)).collect();
        for (key, _) in &groups {
            self.away_groups.remove(key);
        }
        let head = |state: &Self, index: usize, after| {
            let (key, mode): &(String, Mode) = &groups[index];
            let waiter = state.fleet.pool().next(key, *mode, after)?;
            Some(Reverse((waiter.rank, index, waiter.proposal.request.clone())))
        };
        next.extend((0..groups.len()).filter_map(|index| head(self, index, None)));
        while let Some(Reverse((rank, index, id))) = next.pop() {
            let placed = self.place_now(&id);
            if placed == Placed::On || walked[index] {
                next.extend(head(self, index, Some(rank)));
            }
        }
        // Those who are not to wait hear so, wherever the look at the others has stopped.
        for id in self.fleet.impatient() {
            self.place_now(&id);
        }
    }

    /// Sends one request out, ends it, or leaves it in its place.
    pub(super) fn place_now(&mut self, id: &RequestId) -> Placed {
        let Some(open) = self.fleet.get(id).filter(|open| open.stage == Stage::Waiting) else { return Placed::On };
        if self.nobody_waits(&open.ask) {
            self.refuse(id, out_of_time());
            return Placed::On;
        }
        match &open.ask.target {
            Target::Select(selector) => {
                let selector = selector.clone();
                self.place_by_selector(id, &selector)
            }
            Target::Resource(address) => {
                let address = address.clone();
                self.place_by_name(id, &address);
                Placed::On
            }
        }
    }

    fn place_by_selector(&mut self, id: &RequestId, selector: &Selector) -> Placed {
        let now = self.around.clock.now().run;
        let Some(open) = self.fleet.get(id) else { return Placed::On };
        let requester = open.ask.requester.through(&self.around.name);
        let Place { placement, spare, until } = self.find_place(open, &wish_of(open, selector, &requester), now);
        let (no_wait, next) = (open.ask.no_wait(), open.skips.next(now));
        let on = if spare { Placed::On } else { Placed::Full };
        match placement {
            Placement::To(worker) => {
                self.send_out(id, worker);
                return Placed::On;
            }
            Placement::Later => self.not_away(id),
            Placement::Taken(count) => {
                self.not_away(id);
                if no_wait {
                    let why = format!("all {count} that match {selector} are leased, or not to be had now");
                    self.refuse(id, no_capacity(why));
                } else {
                    for at in [next, until].into_iter().flatten() {
                        self.pump_by(at);
                    }
                    self.start_waiting(id);
                }
            }
            Placement::Away => {
                self.away_groups.insert(selector.canonical());
                self.wait_or_refuse(id, no_capacity(format!("what could serve {selector} is away or drained")), now);
                return Placed::On;
            }
            Placement::NoMatch(refusal) => {
                self.refuse(id, refusal);
                return Placed::On;
            }
        }
        on
    }

    fn find_place(&self, open: &Open, wish: &Wish<'_>, now: RunTime) -> Place {
        let id = &open.ask.id;
        let candidates = self.workers.iter().map(|(name, worker)| Candidate {
            name,
            takes_requests: worker.serves_fleet(),
            view: worker.view.as_ref(),
            outstanding: self.fleet.outstanding(name),
            busy: worker.is_busy(),
            settling: self.orphans.releases(id, name),
            skipped: open.skips.has(name, now) || self.orphans.is_given_up(id, name),
            excluded: open.skips.lacks_a_match(name),
        });
        let pinned = self.pinned_before(open);
        let returning = self.returning.expected().filter(|_| open.returns.is_none());
        let kept = Kept { pinned: Some(&pinned), returning, failed: open.failed.as_ref() };
        place(wish, kept, now, candidates)
    }

    /// The resources that those who are ahead of one who would share are to get alone.
    fn pinned_before(&self, open: &Open) -> BTreeSet<(NodeName, ResourceId)> {
        if open.ask.mode == Mode::Exclusive {
            return BTreeSet::new();
        }
        let serving = || {
            let serving = self.workers.iter().filter(|(_, worker)| worker.serves_fleet());
            serving.filter_map(|(name, worker)| Some((name, worker.view.as_ref()?)))
        };
        let ahead = self.fleet.pool().heads(Mode::Exclusive).filter(|(_, waiter)| waiter.rank < open.rank);
        ahead.filter_map(|(selector, _)| pinned_to(selector, serving())).collect()
    }

    /// True when a free resource that `open` asks for by its name is another's first: one that waits ahead of it by
    /// selector would take it, or those may who waited at the end of the last run.
    pub(super) fn is_contended(&self, open: &Open, worker: &NodeName, resource: &ResourceId) -> bool {
        let now = self.around.clock.now().run;
        let view = self.workers.get(worker).and_then(|worker| worker.view.as_ref());
        let Some(seen) = view.and_then(|view| view.resources().get(resource)) else { return false };
        if !seen.could_take(open.ask.mode) {
            return false;
        }
        let expected = self.returning.expected().is_some_and(|waited| waited.covers(&seen.labels));
        let would_take = |waiter: &Waiter| {
            let Some(other) = self.fleet.get(&waiter.proposal.request).filter(|_| waiter.rank < open.rank) else {
                return false;
            };
            let Target::Select(selector) = &other.ask.target else { return false };
            let requester = other.ask.requester.through(&self.around.name);
            let free = !other.skips.has(worker, now) && !other.has_failed_on(worker, resource);
            free && seen.fits(&wish_of(other, selector, &requester), now)
        };
        let serves = self.workers.get(worker).is_some_and(Worker::serves_fleet);
        let both = [Mode::Exclusive, Mode::Shared];
        expected || serves && both.iter().any(|mode| self.fleet.pool().first(&seen.labels, *mode, would_take).is_some())
    }

    /// It waits for no worker that is away, or not any more.
    fn not_away(&mut self, id: &RequestId) {
        let Some(open) = self.fleet.get_mut(id) else { return };
        if open.away_since.take().is_some() {
            self.attend(id);
        }
    }

    /// A worker that is away may come back; a request that will not wait, or has waited enough, is refused.
    pub(super) fn wait_or_refuse(&mut self, id: &RequestId, refusal: crate::model::Refusal, now: RunTime) {
        let grace = self.around.absence_grace;
        let Some(open) = self.fleet.get_mut(id) else { return };
        let since = *open.away_since.get_or_insert(now);
        let next = open.skips.next(now);
        if open.ask.no_wait() || now >= since + grace {
            self.refuse(id, refusal);
        } else {
            next.into_iter().for_each(|at| self.pump_by(at));
            self.attend(id);
            self.start_waiting(id);
        }
    }

    /// A report of a worker has come: those that skip it may ask it again if it shows something for them.
    pub(super) fn reported(&mut self, worker: &NodeName, number: u64, changed: bool) {
        let now = self.around.clock.now().run;
        let Some(view) = self.workers.get(worker).and_then(|worker| worker.view.as_ref()) else { return };
        let gateway = &self.around.name;
        let fits = |open: &Open| {
            let Target::Select(selector) = &open.ask.target else { return true };
            let requester = open.ask.requester.through(gateway);
            let mut free = view.free().filter(|(resource, _)| !open.has_failed_on(worker, resource));
            free.any(|(_, seen)| seen.fits(&wish_of(open, selector, &requester), now))
        };
        if self.fleet.reported(worker, number, changed, fits) {
            self.pump_due = true;
        }
    }

    /// The views of workers that could serve a request by selector, or will again.
    pub(super) fn views(&self) -> impl Iterator<Item = (&Worker, &View)> {
        self.workers.values().filter_map(|worker| Some((worker, worker.view.as_ref()?)))
    }
}

/// What a request needs of a resource, said in the worker's words.
pub(super) fn wish<'a>(ask: &crate::model::Ask, selector: &'a Selector, requester: &'a Requester) -> Wish<'a> {
    Wish { selector, mode: ask.mode, ttl: ask.ttl, requester, allow_shorter: ask.allow_shorter, by_admin: ask.by_admin }
}

fn wish_of<'a>(open: &Open, selector: &'a Selector, requester: &'a Requester) -> Wish<'a> {
    wish(&open.ask, selector, requester)
}
