//! Requests that wait for a place: what they are told, and who hears that they wait (SPEC §2, §7).

use std::collections::HashMap;

use jiff::Timestamp;

use super::dispatch::too_many_wait;
use super::fleet::{Bounds, Open};
use super::front::{FrontState, Watcher};
use super::message::{Asked, FirstGrant};
use super::pump::wish;
use super::view::{Seen, Wish};
use crate::admission::Request;
use crate::admission::ticket::Stub;
use crate::clock::{Now, RunTime};
use crate::model::{DeviceState, Mode, RequestId, Target, Ticket, WaitingFor};

/// A lease request as it is now.
#[derive(Debug, Clone)]
pub struct RequestNow {
    /// What the book has.
    pub request: Request<FirstGrant>,
    /// Where it stands, while it is known to wait.
    pub waiting: Option<WaitingNow>,
}

/// Where a request stands that waits.
#[derive(Debug, Clone)]
pub struct WaitingNow {
    /// Its place among those who wait for the same, from 1.
    pub position: usize,
    /// Why nothing moves; none where nothing is known of what it waits for.
    pub waiting_for: Option<WaitingFor>,
    /// Until when that lasts at the latest.
    pub until: Option<Timestamp>,
    /// The place in line.
    pub ticket: Proof,
}

/// A place in line, signed already or not.
#[derive(Debug, Clone)]
pub enum Proof {
    /// This gateway is to sign it.
    Unsigned(Box<Stub>),
    /// Somebody has signed it.
    Signed(Ticket),
}

impl FrontState {
    /// A request is known to wait: whoever wanted to hear that much, hears it. One too many is refused.
    pub(super) fn start_waiting(&mut self, id: &RequestId) {
        let too_many = self.fleet.waiting() > self.around.waiters_max;
        let Some(open) = self.fleet.get_mut(id).filter(|open| !open.waits) else { return };
        if too_many {
            return self.refuse(id, too_many_wait());
        }
        open.waits = true;
        let position = self.fleet.pool().position(id).unwrap_or(1);
        self.tell_position(id.clone(), position);
        self.tell_waiting(id);
    }

    fn tell_waiting(&mut self, id: &RequestId) {
        let watchers = self.watchers.remove(id).unwrap_or_default();
        let mut staying = Vec::new();
        for watcher in watchers {
            match watcher {
                Watcher::Caller(reply) => drop(reply.send(Ok(Asked::Known(id.clone())))),
                Watcher::Mirror(second) => {
                    for watcher in self.watchers.remove(&second).unwrap_or_default() {
                        match watcher {
                            Watcher::Caller(reply) => drop(reply.send(Ok(Asked::Known(id.clone())))),
                            watcher => self.watchers.entry(second.clone()).or_default().push(watcher),
                        }
                    }
                    staying.push(Watcher::Mirror(second));
                }
                watcher => staying.push(watcher),
            }
        }
        if !staying.is_empty() {
            self.watchers.insert(id.clone(), staying);
        }
    }

    /// Somebody has asked about a request.
    pub(super) fn asked_about(&mut self, id: &RequestId) {
        let now = self.around.clock.now().run;
        let first = self.mirrors.get(id).unwrap_or(id).clone();
        self.fleet.asked_about(&first, now);
    }

    /// Sets when a request is to be looked at next.
    pub(super) fn attend(&mut self, id: &RequestId) {
        let (waiter_ttl, absence_grace) = (self.around.waiting.waiter_ttl, self.around.absence_grace);
        self.fleet.attend(id, Bounds { waiter_ttl, absence_grace });
    }

    /// A request as it is now.
    pub(super) fn request_now(&self, id: &RequestId) -> Option<RequestNow> {
        let request = self.requests.get(id)?.clone();
        let first = self.mirrors.get(id).unwrap_or(id);
        let open = self.fleet.get(first).filter(|open| open.waits || self.is_made_ready_for(open));
        let waiting = open.map(|open| {
            let now = self.around.clock.now();
            let position = self.fleet.pool().position(first).unwrap_or(1);
            self.waiting_now(open, position, self.waits_for(open, now), now)
        });
        Some(RequestNow { request, waiting })
    }

    /// The open requests. Where each stands is counted in one walk over all who wait, not in one for each.
    pub(super) fn open_requests(&self) -> Vec<(RequestId, RequestNow)> {
        let positions: HashMap<&RequestId, usize> = self.fleet.pool().positions().collect();
        let mut reasons: HashMap<(String, Mode), (Option<WaitingFor>, Option<RunTime>)> = HashMap::new();
        let now = self.around.clock.now();
        let show = |(id, request): (&RequestId, &Request<FirstGrant>)| {
            let first = self.mirrors.get(id).unwrap_or(id);
            let preparing = |open: &Open| self.is_made_ready_for(open);
            let waiting = self.fleet.get(first).filter(|open| open.waits || preparing(open)).map(|open| {
                let key = (open.ask.target.to_string(), open.ask.mode);
                let reason = match preparing(open) {
                    true => (Some(WaitingFor::Preparing), None),
                    false => *reasons.entry(key).or_insert_with(|| self.waits_for(open, now)),
                };
                self.waiting_now(open, positions.get(first).copied().unwrap_or(1), reason, now)
            });
            (id.clone(), RequestNow { request: request.clone(), waiting })
        };
        self.requests.open_ones().map(show).collect()
    }

    fn waiting_now(
        &self,
        open: &Open,
        position: usize,
        (waiting_for, until): (Option<WaitingFor>, Option<RunTime>),
        now: Now,
    ) -> WaitingNow {
        let stub = Stub::of(&open.waiter(), self.returning.run());
        WaitingNow {
            position,
            waiting_for,
            until: until.map(|until| now.wall_at(until)),
            ticket: Proof::Unsigned(Box::new(stub)),
        }
    }

    /// True when a device is made ready for it at the worker that it is out at, by that worker's reports.
    fn is_made_ready_for(&self, open: &Open) -> bool {
        let Some((worker, _)) = open.out_at() else { return false };
        let view = self.workers.get(worker).filter(|worker| worker.takes_requests()).and_then(|it| it.view.as_ref());
        view.is_some_and(|view| view.made_ready_for(&open.ask.id).is_some())
    }

    /// What one by selector waits for: a lease to end if there is one among its matches, with the earliest of their
    /// deadlines. Workers that are away have nothing to say about that.
    fn waits_for(&self, open: &Open, now: Now) -> (Option<WaitingFor>, Option<RunTime>) {
        if self.is_made_ready_for(open) {
            return (Some(WaitingFor::Preparing), None);
        }
        let Target::Select(selector) = &open.ask.target else { return (None, None) };
        let requester = open.ask.requester.through(&self.around.name);
        let wish = wish(&open.ask, selector, &requester);
        let mut best: Option<(WaitingFor, RunTime, Option<RunTime>)> = None;
        for (worker, view) in self.views().filter(|(worker, _)| worker.takes_requests()) {
            let there = view.resources().values().filter(|seen| seen.grantable && selector.matches(&seen.labels));
            for seen in there {
                let (why, until) =
                    if worker.drained { (WaitingFor::Drained, None) } else { waiting_for(seen, &wish, now.run) };
                let this = (why, until.unwrap_or(RunTime(std::time::Duration::MAX)), until);
                if best.is_none_or(|best| (this.0, this.1) < (best.0, best.1)) {
                    best = Some(this);
                }
            }
        }
        best.map_or((None, None), |(why, _, until)| (Some(why), until))
    }
}

/// Why a resource that matches is not granted, and until when at the latest.
fn waiting_for(seen: &Seen, wish: &Wish<'_>, now: RunTime) -> (WaitingFor, Option<RunTime>) {
    if seen.drained {
        return (WaitingFor::Drained, None);
    }
    if let Some(device) = seen.device.as_ref().filter(|_| seen.held.is_empty()) {
        let why = match device.state {
            DeviceState::Preparing => WaitingFor::Preparing,
            DeviceState::Resetting => WaitingFor::Resetting,
            DeviceState::Cooling => WaitingFor::Cooling,
            DeviceState::Quarantined => WaitingFor::Quarantined,
            _ => WaitingFor::Absent,
        };
        return (why, device.until.filter(|until| *until > now));
    }
    if seen.elsewhere.is_some() && seen.held.is_empty() {
        return (WaitingFor::Absent, None);
    }
    if seen.could_take(wish.mode) && !seen.lets_in(wish, now) {
        return (WaitingFor::Booked, seen.window.as_ref().map(|window| window.ends_at));
    }
    if seen.held.is_empty() || seen.could_take(wish.mode) {
        return (WaitingFor::Reserved, None);
    }
    let beside = wish.mode == Mode::Shared && seen.held.iter().all(|held| held.lease.mode == Mode::Shared);
    let ends = seen.held.iter().map(|held| held.deadline);
    (WaitingFor::Leased, if beside { ends.min() } else { ends.max() })
}
