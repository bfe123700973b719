//! How a lease request comes in at the gateway, and who hears how it ends.
//!
//! The checks are those of the ledger, in the order of SPEC §2. During the rebuild requests are taken in but neither
//! checked nor refused.

use ractor::RpcReplyPort;

use super::dispatch::out_of_time;
use super::front::{FrontState, Watcher};
use super::message::{FirstGrant, FleetLease};
use crate::admission::cancel::was_cancelled;
use crate::admission::{Admitted, Request, RequestState, Speaker};
use crate::limits::{OPEN_REQUESTS_MAX, WATCHERS_MAX};
use crate::model::{Ask, Code, Door, Refusal, RequestId};

impl FrontState {
    /// Takes a request in. During the rebuild it is neither checked nor refused.
    pub(super) fn request(&mut self, ask: Ask, reply: RpcReplyPort<Result<FleetLease, Refusal>>) {
        let refusal = if self.stopping {
            Refusal::new(Code::Stopping, "the gateway is going down; ask again when it is back")
        } else if self.fleet.len() + self.held_back.len() >= OPEN_REQUESTS_MAX {
            let full = Refusal::new(Code::QueueFull, "the gateway has too many open requests; ask again");
            full.retry_after(std::time::Duration::from_secs(1))
        } else if self.rebuilt {
            return self.admit_now(ask, reply);
        } else {
            // Its key is not in the book before it has been checked.
            let now = self.around.clock.now();
            self.requests.open(ask.id.clone(), ask.requester.clone(), None, now.wall);
            self.watchers.insert(ask.id.clone(), vec![Watcher::Caller(reply)]);
            self.held_back.push(ask);
            return;
        };
        // A caller that has gone hears nothing.
        let _ = reply.send(Err(refusal));
    }

    /// Checks a request; one that is refused leaves nothing behind.
    fn admit_now(&mut self, ask: Ask, reply: RpcReplyPort<Result<FleetLease, Refusal>>) {
        match self.ledger.admit(&ask, Speaker::Requester, None) {
            Ok(Admitted::New | Admitted::Again) => {
                // What waited before has found no place, and finds none because of this one.
                let id = ask.id.clone();
                self.let_in(ask, Some(reply));
                self.place_now(&id, &mut self.fleet.outstanding());
            }
            Ok(Admitted::Replay(first) | Admitted::Behind(first)) => {
                match self.requests.get(&first).map(|request| request.state.clone()) {
                    Some(RequestState::Open) => self.attach(&ask, &first, reply),
                    Some(RequestState::Granted(grant)) => drop(reply.send(Ok(grant.lease))),
                    Some(RequestState::Failed(refusal)) => drop(reply.send(Err(refusal))),
                    Some(RequestState::Cancelled) => drop(reply.send(Err(was_cancelled(&first)))),
                    None => drop(reply.send(Err(Refusal::internal("a key stands for a request that is not known")))),
                }
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// Checks a request that was held back during the rebuild. Its caller may know it by its id.
    pub(super) fn admit_held_back(&mut self, ask: Ask) {
        if self.nobody_waits(&ask) {
            return self.end_second(&ask.id, Err(out_of_time()));
        }
        match self.ledger.admit(&ask, Speaker::Requester, None) {
            Ok(Admitted::New | Admitted::Again) => self.let_in(ask, None),
            Ok(Admitted::Replay(first) | Admitted::Behind(first)) => {
                match self.requests.get(&first).map(|request| request.state.clone()) {
                    Some(RequestState::Open) => {
                        self.watchers.entry(first).or_default().push(Watcher::Mirror(ask.id));
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
            Err(refusal) => self.end_second(&ask.id, Err(refusal)),
        }
    }

    fn let_in(&mut self, ask: Ask, reply: Option<RpcReplyPort<Result<FleetLease, Refusal>>>) {
        let now = self.around.clock.now();
        self.requests.open(ask.id.clone(), ask.requester.clone(), ask.key.clone(), now.wall);
        if let Some(reply) = reply {
            self.watchers.insert(ask.id.clone(), vec![Watcher::Caller(reply)]);
        }
        self.fleet.add(ask, now.run);
    }

    /// The key of `ask` stands for `first`, which is open: both end alike. It has an id of its own, because its caller
    /// may ask about it before that.
    fn attach(&mut self, ask: &Ask, first: &RequestId, reply: RpcReplyPort<Result<FleetLease, Refusal>>) {
        let watchers = self.watchers.entry(first.clone()).or_default();
        if watchers.len() >= WATCHERS_MAX {
            let refusal = Refusal::new(Code::QueueFull, "too many wait under this key already; ask again later");
            drop(reply.send(Err(refusal.retry_after(std::time::Duration::from_secs(1)))));
            return;
        }
        watchers.push(Watcher::Mirror(ask.id.clone()));
        let now = self.around.clock.now();
        self.requests.open(ask.id.clone(), ask.requester.clone(), None, now.wall);
        self.watchers.insert(ask.id.clone(), vec![Watcher::Caller(reply)]);
    }

    /// Settles a request that holds nothing in the ledger.
    pub(super) fn end_second(&mut self, id: &RequestId, result: Result<FirstGrant, Refusal>) {
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
            Watcher::Reader(reply) => !reply.is_closed(),
            Watcher::Mirror(second) => self.is_awaited(second),
        })
    }

    /// Answers when the request is settled, at once if it is.
    pub(super) fn watch(&mut self, id: RequestId, reply: RpcReplyPort<Option<Request<FirstGrant>>>) {
        match self.requests.get(&id) {
            Some(Request { state: RequestState::Open, .. }) => {
                let watchers = self.watchers.entry(id).or_default();
                watchers.retain(|watcher| !matches!(watcher, Watcher::Reader(reply) if reply.is_closed()));
                watchers.push(Watcher::Reader(reply));
            }
            known => drop(reply.send(known.cloned())),
        }
    }

    pub(super) fn tell_watchers(&mut self, id: &RequestId, result: &Result<FirstGrant, Refusal>) {
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            // A caller that has gone finds the answer under its key.
            match watcher {
                Watcher::Caller(reply) => {
                    drop(reply.send(result.clone().map(|first| first.lease)));
                }
                Watcher::Reader(reply) => drop(reply.send(self.requests.get(id).cloned())),
                Watcher::Mirror(second) => self.end_second(&second, result.clone()),
            }
        }
    }
}
