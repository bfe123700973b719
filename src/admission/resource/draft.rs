//! A state with the changes that are being decided, without copying the queue.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;

use super::change::apply_to_device;
use super::device::{Device, Work};
use super::{
    Around, Change, Departure, DeviceChange, EndReason, Held, Rank, Reservation, ResourceState, Rivals, Waiter, booked,
    uplink, work,
};
use crate::admission::calendar::{self, Calendar, Doors};
use crate::clock::RunTime;
use crate::model::{Code, DeviceState, Fence, LeaseRecord, Mode, Proposal, RequestId, Requester};

/// What would be true after `changes`.
pub(super) struct Draft<'a> {
    pub(super) state: &'a ResourceState,
    pub(super) around: &'a Around<'a>,
    /// Those of `around`, while nobody else is asked.
    pub(super) rivals: Rivals,
    pub(super) held: Vec<Held>,
    pub(super) reserved: Vec<Reservation>,
    pub(super) drained: bool,
    pub(super) device: Device,
    /// The state that was told last.
    told: DeviceState,
    pub(super) calendar: Calendar,
    /// What the calendar leaves of it.
    pub(super) doors: Doors,
    fence: Fence,
    /// Waiters that have gone.
    gone: HashSet<RequestId>,
    /// Waiters that have come.
    come: Vec<Waiter>,
    pub(super) changes: Vec<Change>,
    /// True when somebody may be admitted: there is more room than before.
    pub(super) freed: bool,
    /// Whether the first in line could be served, when this was last asked.
    head_fitted: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn new(state: &'a ResourceState, around: &'a Around<'a>) -> Self {
        let mut draft = Self {
            state,
            around,
            rivals: around.rivals,
            held: state.held.clone(),
            reserved: state.reserved.clone(),
            drained: state.drained,
            device: state.device.clone(),
            told: state.device(around.node),
            calendar: state.calendar.clone(),
            doors: state.doors(around.spec, around.now.wall),
            fence: state.fence,
            gone: HashSet::new(),
            come: Vec::new(),
            changes: Vec::new(),
            freed: false,
            head_fitted: true,
        };
        draft.head_fitted = draft.head_fits();
        draft
    }

    /// What time has done.
    pub(super) fn settle_time(&mut self) {
        let now = self.around.now;
        self.expire();
        work::settle_time(self);
        let lapsed: Vec<_> = self.reserved.iter().filter(|kept| kept.until <= now.run).cloned().collect();
        for reservation in lapsed {
            self.push(Change::Unreserved { holder: reservation.holder });
            self.freed = true;
        }
        let state = self.state;
        let fleet_asks_since = self.around.node.fleet_asks_since();
        for waiter in state.queue.stale(now.run, self.around.rules.waiter_ttl, fleet_asks_since) {
            self.leave(waiter.clone(), Departure::Pruned);
        }
    }

    /// Ends the leases and holds whose time has passed.
    pub(super) fn expire(&mut self) {
        let now = self.around.now;
        let (spec, node) = (self.around.spec, self.around.node);
        let is_over = |held: &&Held| uplink::end_of(held, spec, &self.calendar, node, now) <= now.run;
        let expired: Vec<_> = self.held.iter().filter(is_over).cloned().collect();
        for held in expired {
            self.end(held.lease, EndReason::Expired);
        }
        for change in self.calendar.expired(now) {
            self.push(Change::Calendar(change));
        }
    }

    /// Takes a fact in.
    pub(super) fn push(&mut self, change: Change) {
        match &change {
            Change::Granted { lease, deadline, last_end, .. } => {
                self.fence = lease.fence;
                self.come.retain(|waiter| waiter.proposal.request != lease.request_id);
                self.gone.insert(lease.request_id.clone());
                self.held.push(Held { lease: lease.clone(), deadline: *deadline, last_end: *last_end });
            }
            Change::Renewed { lease, deadline, .. } => {
                if let Some(held) = self.held.iter_mut().find(|held| held.lease.id == lease.id) {
                    held.renew(lease.clone(), *deadline);
                }
            }
            Change::Ended { lease, .. } => {
                self.held.retain(|held| held.lease.id != lease.id);
                self.freed = true;
            }
            Change::Device(change) => {
                if let DeviceChange::Work { work: Work::Preparing(claim), .. } = change
                    && let Some(request) = claim.request()
                {
                    self.come.retain(|waiter| waiter.proposal.request != *request);
                    self.gone.insert(request.clone());
                }
                apply_to_device(&mut self.device, change.clone());
            }
            Change::Joined { waiter, .. } => self.come.push(waiter.clone()),
            Change::Moved { former, waiter } => {
                self.gone.insert(former.clone());
                self.come.push(waiter.clone());
            }
            Change::Left { waiter, .. } => {
                self.come.retain(|other| other.proposal.request != waiter.proposal.request);
                self.gone.insert(waiter.proposal.request.clone());
            }
            Change::Reserved(reservation) => {
                self.reserved.retain(|kept| kept.holder != reservation.holder);
                self.reserved.push(reservation.clone());
            }
            Change::Unreserved { holder } => self.reserved.retain(|kept| kept.holder != *holder),
            Change::Drained { drained, .. } => self.drained = *drained,
            Change::Calendar(change) => {
                self.freed |= booked::makes_room(self.around.spec.bookings, change);
                calendar::apply(&mut self.calendar, change.clone());
                self.doors = self.calendar.doors(self.around.spec.bookings, self.around.now.wall);
            }
            Change::Requested { .. }
            | Change::Queued { .. }
            | Change::Seen { .. }
            | Change::Rejected { .. }
            | Change::Declined { .. }
            | Change::StateChanged { .. }
            | Change::Noticed { .. }
            | Change::NodeHoldsPaused(_)
            | Change::NodeDrained(_)
            | Change::Violated { .. } => {}
        }
        self.changes.push(change);
    }

    pub(super) fn leave(&mut self, waiter: Waiter, why: Departure) {
        self.push(Change::Left { waiter: Box::new(waiter), why, at: self.around.now.wall });
    }

    /// Grants a lease. With it, what was kept for its holder has been used, and a booking of its holder that has begun is
    /// fulfilled. Where a booking of somebody else is in the way, it is cut to fit.
    pub(super) fn grant(&mut self, proposal: &Proposal) -> Held {
        let now = self.around.now;
        let room = booked::room(self, &proposal.holder, proposal.by_admin);
        let ttl = room.fitted(proposal.ttl, proposal.allow_shorter, now.wall).unwrap_or(proposal.ttl);
        self.grant_within(proposal, ttl, self.next_fence())
    }

    /// Grants the lease of a claim, cut to fit where a booking has come in its way meanwhile; none where there is no room
    /// at all any more.
    pub(super) fn grant_claimed(&mut self, proposal: &Proposal, fence: Fence) -> Option<Held> {
        let room = booked::room(self, &proposal.holder, proposal.by_admin);
        let ttl = room.fitted(proposal.ttl, true, self.around.now.wall)?;
        Some(self.grant_within(proposal, ttl, fence))
    }

    fn grant_within(&mut self, proposal: &Proposal, ttl: Duration, fence: Fence) -> Held {
        let now = self.around.now;
        let last_end = self.around.max_total.map(|longest| now.run + longest);
        let deadline = (now.run + ttl).min(last_end.unwrap_or(now.run + ttl));
        self.grant_until(proposal, ttl, deadline, last_end, fence)
    }

    /// Grants the holder of a booking its lease.
    pub(super) fn grant_for(&mut self, proposal: &Proposal, deadline: RunTime, fence: Fence) -> Held {
        let last_end = self.around.max_total.map(|longest| (self.around.now.run + longest).max(deadline));
        self.grant_until(proposal, proposal.ttl, deadline, last_end, fence)
    }

    /// The fence of the latest grant.
    pub(super) fn fence(&self) -> Fence {
        self.fence
    }

    /// The fence of the next one. That of a claim is spent, whatever becomes of it.
    pub(super) fn next_fence(&self) -> Fence {
        self.fence.max(self.device.fence).next(self.around.now.wall)
    }

    fn grant_until(
        &mut self,
        proposal: &Proposal,
        ttl: Duration,
        deadline: RunTime,
        last_end: Option<RunTime>,
        fence: Fence,
    ) -> Held {
        let now = self.around.now;
        if self.is_reserved_for(&proposal.holder) {
            self.push(Change::Unreserved { holder: proposal.holder.clone() });
        }
        let mut lease = proposal.granted(&self.around.spec.id, fence, now.wall);
        lease.asked_ttl = (ttl != proposal.ttl).then_some(proposal.ttl);
        lease.ttl = ttl;
        let held = Held { lease: lease.clone(), deadline, last_end };
        let expires_at = now.wall_at(deadline);
        self.push(Change::Granted { lease: lease.clone(), deadline, last_end, expires_at });
        booked::fulfil(self, &lease);
        self.note_state("lease granted");
        held
    }

    /// Ends a lease. After the last one the device is brought back.
    pub(super) fn end(&mut self, lease: LeaseRecord, reason: EndReason) {
        self.push(Change::Ended { lease: lease.clone(), reason, at: self.around.now.wall });
        booked::free(self, &lease);
        if self.held.is_empty() {
            let (why, unclean) = work::end_of(reason);
            work::after_use(self, work::of_lease(&lease), unclean, why);
        }
    }

    /// What the resource is doing.
    fn state_now(&self) -> DeviceState {
        self.device.state(self.is_drained(), !self.held.is_empty())
    }

    /// Tells that it does something else than what was told last. Of a resource without a driver its leases tell all there
    /// is, unless it is left alone.
    pub(super) fn note_state(&mut self, reason: &str) {
        self.note(reason, None);
    }

    /// The same after a hook has failed.
    pub(super) fn note_failure(&mut self) {
        let Some(failure) = self.device.failure.clone() else { return };
        let output = Some(failure.output.clone()).filter(|output| !output.is_empty());
        self.note(&failure.to_string(), output);
    }

    fn note(&mut self, reason: &str, output: Option<String>) {
        let (from, to) = (self.told, self.state_now());
        let is_plain = |state| matches!(state, DeviceState::Available | DeviceState::Leased | DeviceState::Drained);
        self.told = to;
        if from != to && (self.around.spec.driver.is_some() || !is_plain(from) || !is_plain(to)) {
            let at = self.around.now.wall;
            self.push(Change::StateChanged { from, to, reason: reason.to_owned(), output, at });
        }
    }

    /// Since when it is free to be claimed.
    pub(super) fn free_since(&self) -> Option<Timestamp> {
        let is_free = self.held.is_empty() && !self.is_out();
        // What a start says counts only where it was free then; otherwise it has just become so.
        let was_free = self.state.held.is_empty() && !self.state.drained && self.state.device.is_ready();
        let since = self.around.node.free_since(self.state.free_since);
        is_free.then(|| since.filter(|_| was_free).unwrap_or(self.around.now.wall))
    }

    pub(super) fn declined(&mut self, proposal: &Proposal, code: Code) {
        self.push(Change::Declined { proposal: proposal.clone(), code });
    }

    pub(super) fn drain(&mut self, drained: bool) {
        if drained == self.drained {
            return;
        }
        // While the whole worker is out, that is what it is, whatever becomes of the resource.
        let undrained = self.device.state(self.around.node.drained, !self.held.is_empty());
        let (from, to) = if drained { (undrained, DeviceState::Drained) } else { (DeviceState::Drained, undrained) };
        self.push(Change::Drained { drained, from, to, at: self.around.now.wall });
        self.told = to;
        self.freed |= !drained;
    }

    /// True when an operator has taken the resource out, or the whole worker.
    pub(super) fn is_drained(&self) -> bool {
        self.drained || self.around.node.drained
    }

    /// True when nothing is granted: an operator has taken it out, or its device is not ready.
    pub(super) fn is_out(&self) -> bool {
        self.is_drained() || !self.device.is_ready()
    }

    /// True for one that waits for its gateway to come back, and is passed over meanwhile.
    pub(super) fn is_away(&self, waiter: &Waiter) -> bool {
        self.around.node.is_away(&waiter.proposal.holder)
    }

    /// True when a lease of `mode` could be granted to `holder`.
    pub(super) fn fits(&self, mode: Mode, holder: &Requester) -> bool {
        super::fits(&self.held, &self.reserved, self.is_out(), self.around.spec, mode, Some(holder))
    }

    /// True when the resource is kept for `holder`.
    pub(super) fn is_reserved_for(&self, holder: &Requester) -> bool {
        self.reserved.iter().any(|kept| kept.holder == *holder)
    }

    /// True when what `waiter` wants is kept for its holder; a seat among others is not the whole resource.
    pub(super) fn is_its_seat(&self, waiter: &Waiter) -> bool {
        let kept = self.reserved.iter().find(|kept| kept.holder == waiter.proposal.holder);
        kept.is_some_and(|kept| kept.mode == Mode::Exclusive || waiter.proposal.mode == Mode::Shared)
    }

    /// The waiters behind `after`, in their order.
    pub(super) fn queue(&self, after: Option<Rank>) -> impl Iterator<Item = &Waiter> {
        let bound = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut stayed = self.state.queue.from(bound).filter(|waiter| !self.gone.contains(&waiter.proposal.request));
        let mut come: Vec<&Waiter> =
            self.come.iter().filter(|waiter| after.is_none_or(|after| waiter.rank > after)).collect();
        come.sort_by_key(|waiter| std::cmp::Reverse(waiter.rank));
        let mut next = stayed.next();
        std::iter::from_fn(move || match (next, come.last()) {
            (Some(waiter), Some(newcomer)) if newcomer.rank < waiter.rank => come.pop(),
            (Some(waiter), _) => {
                next = stayed.next();
                Some(waiter)
            }
            (None, _) => come.pop(),
        })
    }

    /// The waiter of `request`.
    pub(super) fn waiter(&self, request: &RequestId) -> Option<&Waiter> {
        let come = self.come.iter().find(|waiter| waiter.proposal.request == *request);
        come.or_else(|| self.state.queue.get(request).filter(|_| !self.gone.contains(request)))
    }

    /// The unattended waiter of `holder`.
    pub(super) fn unattended_of(&self, holder: &Requester) -> Option<&Waiter> {
        let waiter = self.state.queue.unattended_of(holder)?;
        (!self.gone.contains(&waiter.proposal.request)).then_some(waiter)
    }

    /// The 1-based place of `rank` over the whole queue.
    pub(super) fn position(&self, rank: Rank) -> usize {
        let before = self.state.queue.position(rank);
        let gone = (self.gone.iter()).filter_map(|request| self.state.queue.get(request));
        let come = self.come.iter().filter(|waiter| waiter.rank < rank).count();
        before - gone.filter(|waiter| waiter.rank < rank).count() + come
    }

    fn head_fits(&self) -> bool {
        let mut queue = self.queue(None);
        let head = queue.find(|waiter| !self.is_away(waiter) && booked::admits(self, &waiter.proposal));
        head.is_none_or(|head| self.fits(head.proposal.mode, &head.proposal.holder))
    }

    /// True when there is more room than when this was last asked: something ended, or whoever stood in the way has
    /// gone.
    pub(super) fn take_freed(&mut self) -> bool {
        let fits = self.head_fits();
        let freed = std::mem::take(&mut self.freed) || (fits && !self.head_fitted);
        self.head_fitted = fits;
        freed
    }
}
