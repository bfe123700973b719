//! How a lease request comes in at the gateway, and who hears how it ends.
//!
//! The checks are those of the ledger, in the order of SPEC §2. During the rebuild requests are taken in but neither
//! checked nor refused.

use ractor::RpcReplyPort;

use super::dispatch::out_of_time;
use super::front::{FrontState, Watcher};
use super::message::{Asked, FirstGrant, FleetLease, Joined};
use super::waiting::RequestNow;
use crate::admission::cancel::{not_cancellable, was_cancelled};
use crate::admission::{Admitted, Request, RequestState, Speaker};
use crate::limits::{OPEN_REQUESTS_MAX, WATCHERS_MAX};
use crate::model::{Ask, Code, Door, Refusal, RequestId};

impl FrontState {
    /// Takes a request in. During the rebuild it is neither checked nor refused.
    pub(super) fn request(&mut self, ask: Ask, reply: RpcReplyPort<Result<Asked, Refusal>>) {
        self.take_in(ask, Watcher::Caller(reply));
    }

    /// The same for either door; `watcher` hears what comes of it.
    pub(super) fn take_in(&mut self, ask: Ask, watcher: Watcher) {
        let refusal = if self.stopping {
            Refusal::new(Code::Stopping, "the gateway is going down; ask again when it is back")
        } else if self.fleet.len() + self.elsewhere.len() + self.held_back.len() >= OPEN_REQUESTS_MAX {
            let full = Refusal::new(Code::QueueFull, "the gateway has too many open requests; ask again");
            full.retry_after(std::time::Duration::from_secs(1))
        } else if self.rebuilt {
            return self.admit_now(ask, watcher);
        } else {
            // Its key is not in the book before it has been checked.
            let now = self.around.clock.now();
            self.requests.open(ask.id.clone(), ask.requester.clone(), None, now.wall);
            self.watchers.insert(ask.id.clone(), vec![watcher]);
            self.held_back.push(ask);
            return;
        };
        watcher.tell(Err(refusal));
    }

    /// Checks a request; one that is refused leaves nothing behind.
    fn admit_now(&mut self, ask: Ask, watcher: Watcher) {
        match self.check(&ask) {
            Ok(Admitted::New | Admitted::Again) => {
                // What waited before has found no place, and finds none because of this one.
                let id = ask.id.clone();
                self.let_in(ask, Some(watcher));
                self.place_now(&id);
            }
            Ok(Admitted::Replay(first) | Admitted::Behind(first)) => {
                match self.requests.get(&first).map(|request| request.state.clone()) {
                    Some(RequestState::Open) => self.attach(&ask, &first, watcher),
                    Some(RequestState::Granted(grant)) => watcher.tell(Ok(grant.lease)),
                    Some(RequestState::Failed(refusal)) => watcher.tell(Err(refusal)),
                    Some(RequestState::Cancelled) => watcher.tell(Err(was_cancelled(&first))),
                    None => watcher.tell(Err(Refusal::internal("a key stands for a request that is not known"))),
                }
            }
            Err(refusal) => {
                self.tell_not_admitted(&ask, &refusal);
                watcher.tell(Err(refusal));
            }
        }
    }

    /// The checks of SPEC §2. Whoever comes with the ticket of a request that waits at a worker is behind that.
    fn check(&mut self, ask: &Ask) -> Result<Admitted, Refusal> {
        if let Some(first) = self.claim_by_ticket(ask) {
            return Ok(Admitted::Replay(first));
        }
        let room = self.room_of(ask);
        self.ledger.admit(ask, Speaker::Requester, room.as_ref())
    }

    /// Checks a request that was held back during the rebuild. Its caller may know it by its id.
    pub(super) fn admit_held_back(&mut self, ask: Ask) {
        if self.nobody_waits(&ask) {
            return self.end_second(&ask.id, Err(out_of_time()));
        }
        match self.check(&ask) {
            Ok(Admitted::New | Admitted::Again) => self.let_in(ask, None),
            Ok(Admitted::Replay(first) | Admitted::Behind(first)) => {
                match self.requests.get(&first).map(|request| request.state.clone()) {
                    Some(RequestState::Open) => {
                        self.elsewhere.claim(&first);
                        self.mirror(ask.id, &first);
                        self.tell_if_there(&first);
                    }
                    Some(RequestState::Granted(grant)) => self.end_second(&ask.id, Ok(grant)),
                    Some(RequestState::Failed(refusal)) => self.end_second(&ask.id, Err(refusal)),
                    Some(RequestState::Cancelled) => self.end_second(&ask.id, Err(was_cancelled(&first))),
                    None => {
                        let refusal = Refusal::internal("a key stands for a request that is not known");
                        self.end_second(&ask.id, Err(refusal));
                    }
                }
            }
            Err(refusal) => {
                self.tell_not_admitted(&ask, &refusal);
                self.end_second(&ask.id, Err(refusal));
            }
        }
    }

    fn let_in(&mut self, ask: Ask, watcher: Option<Watcher>) {
        let now = self.around.clock.now();
        self.requests.open(ask.id.clone(), ask.requester.clone(), ask.key.clone(), now.wall);
        if let Some(watcher) = watcher {
            self.watchers.insert(ask.id.clone(), vec![watcher]);
        }
        self.tell_requested(&ask);
        let restored = self.returning.claim(&ask, now, |former| self.requests.get(former).is_some());
        let id = ask.id.clone();
        self.fleet.add(ask, now, restored);
        self.attend(&id);
    }

    /// The request `second` ends as `first` does.
    fn mirror(&mut self, second: RequestId, first: &RequestId) {
        self.watchers.entry(first.clone()).or_default().push(Watcher::Mirror(second.clone()));
        self.mirrors.insert(second, first.clone());
    }

    /// The key of `ask` stands for `first`, which is open: who asks hears of that one as soon as it is known to wait.
    /// Until then this has an id of its own, because its caller may ask about it before; both end alike.
    fn attach(&mut self, ask: &Ask, first: &RequestId, watcher: Watcher) {
        self.asked_about(first);
        self.elsewhere.claim(first);
        let waits = self.elsewhere.get(first).is_some() || self.fleet.get(first).is_some_and(|open| open.waits);
        if waits && let Watcher::Caller(reply) = watcher {
            if ask.door == Door::Request {
                drop(reply.send(Ok(Asked::Known(first.clone()))));
                return;
            }
            return self.attach_anew(ask, first, Watcher::Caller(reply));
        }
        self.attach_anew(ask, first, watcher);
    }

    fn attach_anew(&mut self, ask: &Ask, first: &RequestId, watcher: Watcher) {
        let watchers = self.watchers.entry(first.clone()).or_default();
        if watchers.len() >= WATCHERS_MAX {
            let refusal = Refusal::new(Code::QueueFull, "too many wait under this key already; ask again later");
            return watcher.tell(Err(refusal.retry_after(std::time::Duration::from_secs(1))));
        }
        self.mirror(ask.id.clone(), first);
        let now = self.around.clock.now();
        self.requests.open(ask.id.clone(), ask.requester.clone(), None, now.wall);
        self.watchers.insert(ask.id.clone(), vec![watcher]);
        self.tell_if_there(first);
    }

    /// Settles a request that holds nothing in the ledger.
    pub(super) fn end_second(&mut self, id: &RequestId, result: Result<FirstGrant, Refusal>) {
        self.mirrors.remove(id);
        let now = self.around.clock.now().run;
        match &result {
            Ok(first) => {
                self.requests.grant(id, first.clone());
                self.requests.end(id, now);
            }
            Err(refusal) => self.requests.fail(id, refusal.clone(), false, now),
        }
        self.tell_watchers(id, &result);
    }

    /// True when an acquire's caller has gone. (A request of the other door is asked about by its id.)
    pub(super) fn nobody_waits(&self, ask: &Ask) -> bool {
        ask.door == Door::Acquire && !self.is_awaited(&ask.id)
    }

    /// True while somebody is there to hear how a request ends.
    fn is_awaited(&self, id: &RequestId) -> bool {
        let watchers = self.watchers.get(id).map_or(&[][..], Vec::as_slice);
        watchers.iter().any(|watcher| match watcher {
            Watcher::Caller(reply) => !reply.is_closed(),
            Watcher::Joiner(reply) => !reply.is_closed(),
            Watcher::Reader(reply) => !reply.is_closed(),
            Watcher::Mirror(second) => self.is_awaited(second),
            Watcher::Canceller(_) => false,
        })
    }

    /// Answers when the request is settled, at once if it is. One more than may wait is dropped unanswered: it looks at
    /// the request as it then is.
    pub(super) fn watch(&mut self, id: RequestId, reply: RpcReplyPort<Option<RequestNow>>) {
        self.asked_about(&id);
        self.elsewhere.claim(&self.mirrors.get(&id).unwrap_or(&id).clone());
        let is_open = self.requests.get(&id).is_some_and(|request| matches!(request.state, RequestState::Open));
        if !is_open {
            return drop(reply.send(self.request_now(&id)));
        }
        let watchers = self.watchers.entry(id).or_default();
        watchers.retain(|watcher| !matches!(watcher, Watcher::Reader(reply) if reply.is_closed()));
        if watchers.len() < WATCHERS_MAX {
            watchers.push(Watcher::Reader(reply));
        }
    }

    pub(super) fn tell_watchers(&mut self, id: &RequestId, result: &Result<FirstGrant, Refusal>) {
        let cancelled = matches!(self.requests.get(id), Some(Request { state: RequestState::Cancelled, .. }));
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            // A caller that has gone finds the answer under its key.
            match watcher {
                Watcher::Caller(reply) if cancelled => drop(reply.send(Ok(Asked::Known(id.clone())))),
                watcher @ (Watcher::Caller(_) | Watcher::Joiner(_)) => {
                    watcher.tell(result.clone().map(|first| first.lease));
                }
                Watcher::Reader(reply) => drop(reply.send(self.request_now(id))),
                Watcher::Mirror(second) => self.end_second(&second, result.clone()),
                Watcher::Canceller(reply) => {
                    // Whoever cancelled wanted no lease; unless there is one, all is well.
                    let lease = result.as_ref().ok().map(|first| &first.lease.id);
                    let _ = reply.send(lease.map_or(Ok(()), |lease| Err(not_cancellable(id, Some(lease)))));
                }
            }
        }
    }
}

impl Watcher {
    /// Tells whoever asked how it has ended. One that has gone hears nothing.
    pub(super) fn tell(self, result: Result<FleetLease, Refusal>) {
        match self {
            Watcher::Caller(reply) => drop(reply.send(result.map(|lease| Asked::Granted(Box::new(lease))))),
            Watcher::Joiner(reply) => drop(reply.send(result.map(|lease| Joined::Granted(Box::new(lease))))),
            Watcher::Reader(_) | Watcher::Canceller(_) | Watcher::Mirror(_) => {}
        }
    }
}
