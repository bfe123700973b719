//! How a lease request comes in: the order of checks of SPEC §2.

use ractor::RpcReplyPort;

use super::desk::{DeskState, OpKind, Watcher};
use super::message::{FirstGrant, Grant, Origin, Said};
use crate::admission::resource::Command;
use crate::admission::{Admitted, Request, RequestState, Speaker};
use crate::clock::RunTime;
use crate::model::{Ask, Code, Fence, LeaseId, LeaseRecord, Refusal, RequestId, ResourceId, Target};

impl DeskState {
    /// Checks a request, reserves what it names, and hands it to a resource.
    pub(super) async fn request(&mut self, ask: Ask, origin: Origin, reply: RpcReplyPort<Said<Grant>>) {
        if reply.is_closed() {
            // Whoever asked has given up meanwhile, and nothing has been begun.
            return;
        }
        if self.stopping {
            self.say(reply, Err(Refusal::new(Code::Stopping, "this node is going down; ask again when it is back")));
            return;
        }
        match origin {
            Origin::Client => self.admit(ask, origin, Speaker::Requester, reply).await,
            Origin::Gateway { attempt, .. } => {
                let Some(reply) = self.seen_attempt(&ask.id, attempt, reply) else { return };
                self.attempts.take(&ask.id, attempt);
                self.admit(ask, origin, Speaker::Gateway, reply).await;
            }
        }
    }

    /// Answers a dispatch that is none: one that comes twice, one that was settled as refused, one of a request that
    /// holds a lease here. The reply comes back when the dispatch is a new try.
    fn seen_attempt(
        &mut self,
        id: &RequestId,
        attempt: u32,
        reply: RpcReplyPort<Said<Grant>>,
    ) -> Option<RpcReplyPort<Said<Grant>>> {
        let state = self.requests.get(id).map(|request| &request.state);
        let alive = match state {
            Some(RequestState::Open) => true,
            Some(RequestState::Granted(first)) => {
                let live = self.find_lease(&first.lease.id);
                live.is_some_and(|grant| grant.lease.fence == first.lease.fence)
            }
            Some(RequestState::Failed(_)) | None => false,
        };
        let too_late = || Refusal::new(Code::Stopping, "this attempt comes too late");
        if self.attempts.is_cancelled(id, attempt) {
            self.say(reply, Err(too_late()));
        } else if self.attempts.is_taken(id, attempt) && state.is_some() {
            self.replay(id, reply);
        } else if alive {
            // Another attempt holds a lease: the gateway asks about that one before it sends a new one.
            self.say(reply, Err(too_late()));
        } else {
            return Some(reply);
        }
        None
    }

    async fn admit(&mut self, ask: Ask, origin: Origin, speaker: Speaker, reply: RpcReplyPort<Said<Grant>>) {
        match self.ledger.admit(&ask, speaker) {
            Err(refusal) => self.say(reply, Err(refusal)),
            Ok(Admitted::Replay(first)) => self.attach(&ask, &first, reply),
            Ok(Admitted::New) => match self.place(&ask) {
                Err(refusal) => {
                    self.ledger.refuse(&ask.id);
                    self.say(reply, Err(refusal));
                }
                Ok(resource) => {
                    let now = self.clock.now();
                    self.requests.open(ask.id.clone(), ask.requester.clone(), ask.key.clone(), now.wall);
                    self.watchers.insert(ask.id.clone(), vec![Watcher::Caller(reply)]);
                    let kind = OpKind::Acquire { request: ask.id.clone(), mode: ask.mode };
                    let (door, lease) = (ask.door, Box::new(proposed(ask, &resource, &origin)));
                    self.send(&resource, kind, Command::Acquire { door, lease }).await;
                }
            },
        }
    }

    /// The key of `ask` stands for `first`: both end alike.
    fn attach(&mut self, ask: &Ask, first: &RequestId, reply: RpcReplyPort<Said<Grant>>) {
        if self.requests.get(first).is_some_and(|request| request.state == RequestState::Open) {
            // It has an id of its own, because the caller may ask about it before the first is settled.
            self.requests.open(ask.id.clone(), ask.requester.clone(), None, self.clock.now().wall);
            self.watchers.insert(ask.id.clone(), vec![Watcher::Caller(reply)]);
            self.watchers.entry(first.clone()).or_default().push(Watcher::Mirror(ask.id.clone()));
        } else {
            self.replay(first, reply);
        }
    }

    /// Which resource a request is for.
    fn place(&self, ask: &Ask) -> Result<ResourceId, Refusal> {
        match &ask.target {
            Target::Resource(address) => self.resolve(address),
            Target::Select(selector) => self.directory.choose(selector, ask.mode),
        }
    }

    /// Gives the answer of a request that is known already, now or when there is one.
    fn replay(&mut self, id: &RequestId, reply: RpcReplyPort<Said<Grant>>) {
        match self.requests.get(id).map(|request| &request.state) {
            Some(RequestState::Open) => {
                self.watchers.entry(id.clone()).or_default().push(Watcher::Caller(reply));
            }
            Some(RequestState::Granted(first)) => {
                let grant = self.first_grant_now(first);
                self.say(reply, Ok(grant));
            }
            Some(RequestState::Failed(refusal)) => {
                let refusal = refusal.clone();
                self.say(reply, Err(refusal));
            }
            None => self.say(reply, Err(Refusal::internal("a key stands for a request that is not known"))),
        }
    }

    /// The stored result of a grant: never recomputed, also when the lease has moved on or ended.
    fn first_grant_now(&self, first: &FirstGrant) -> Grant {
        let deadline = self.clock.now().run_at(first.expires_at, first.lease.ttl);
        let FirstGrant { lease, expires_at, labels } = first.clone();
        Grant { lease, deadline, expires_at, labels }
    }

    /// Settles a dispatch whose answer was lost (SPEC §9 In doubt).
    pub(super) fn settle_attempt(
        &mut self,
        request: RequestId,
        attempt: u32,
        reply: RpcReplyPort<Said<Option<Grant>>>,
    ) {
        match self.requests.get(&request).map(|request| &request.state) {
            Some(RequestState::Open) => {
                // It is settled as soon as its commit is; no other outcome is possible any more.
                self.watchers.entry(request).or_default().push(Watcher::Settler(reply));
            }
            Some(RequestState::Granted(first)) => {
                let grant = self.find_lease(&first.lease.id).filter(|grant| grant.lease.fence == first.lease.fence);
                if grant.is_none() {
                    self.attempts.cancel(&request, attempt);
                }
                self.say(reply, Ok(grant));
            }
            Some(RequestState::Failed(_)) | None => {
                self.attempts.cancel(&request, attempt);
                self.say(reply, Ok(None));
            }
        }
    }

    /// Answers when the request is settled, at once if it is.
    pub(super) fn watch(&mut self, id: RequestId, reply: RpcReplyPort<Option<Request<FirstGrant>>>) {
        match self.requests.get(&id) {
            Some(Request { state: RequestState::Open, .. }) => {
                let watchers = self.watchers.entry(id).or_default();
                watchers.retain(|watcher| !matches!(watcher, Watcher::Reader(reply) if reply.is_closed()));
                watchers.push(Watcher::Reader(reply));
            }
            known => {
                let _ = reply.send(known.cloned());
            }
        }
    }

    /// Tells everybody who waits for a request how it ended.
    pub(super) fn tell_watchers(&mut self, id: &RequestId, result: &Result<Grant, Refusal>) {
        for watcher in self.watchers.remove(id).unwrap_or_default() {
            match watcher {
                Watcher::Caller(reply) => self.say(reply, result.clone()),
                Watcher::Mirror(second) => self.end_second(&second, id, result),
                Watcher::Settler(reply) => self.say(reply, Ok(result.clone().ok())),
                Watcher::Reader(reply) => {
                    let _ = reply.send(self.requests.get(id).cloned());
                }
            }
        }
    }

    /// A second request under the key of `first` ends as that did. It holds nothing itself.
    fn end_second(&mut self, second: &RequestId, first: &RequestId, result: &Result<Grant, Refusal>) {
        let now = self.clock.now().run;
        match (result, self.requests.get(first).map(|request| request.state.clone())) {
            (Err(refusal), _) => self.requests.fail(second, refusal.clone(), now),
            (Ok(_), Some(RequestState::Granted(grant))) => {
                self.requests.grant(second, grant);
                self.requests.end(second, now);
            }
            (Ok(_), _) => {}
        }
        self.tell_watchers(second, result);
    }

    /// Drops requests whose retention is over, here and on disk.
    pub(super) fn forget_old_requests(&mut self, now: RunTime) {
        let dropped = self.requests.prune(now);
        for request in &dropped {
            if let Some(key) = &request.key {
                self.ledger.forget(&request.requester, key, &request.id);
            }
        }
        // What failed has no row.
        let stored: Vec<RequestId> =
            dropped.into_iter().filter(|request| request.granted).map(|request| request.id).collect();
        if !stored.is_empty() {
            self.store.forget(stored);
        }
    }

    /// Answers, with the number of the last change. A caller that has gone finds the answer under its key.
    pub(super) fn say<T: ractor::Message>(&self, reply: RpcReplyPort<Said<T>>, result: Result<T, Refusal>) {
        let _ = reply.send(Said { result, number: self.reporter.number() });
    }
}

/// The lease that a request gets if it is granted.
fn proposed(ask: Ask, resource: &ResourceId, origin: &Origin) -> LeaseRecord {
    let fingerprint = match origin {
        Origin::Client => ask.fingerprint(),
        Origin::Gateway { fingerprint, .. } => *fingerprint,
    };
    LeaseRecord {
        id_chosen_by_requester: ask.lease_id.is_some(),
        id: ask.lease_id.map_or_else(LeaseId::generate, LeaseId::from),
        request_id: ask.id,
        resource_id: resource.clone(),
        mode: ask.mode,
        holder: ask.requester,
        granted_at: jiff::Timestamp::UNIX_EPOCH,
        renewed_at: jiff::Timestamp::UNIX_EPOCH,
        ttl: ask.ttl,
        fence: Fence::default(),
        note: ask.note,
        idempotency_key: ask.key,
        fingerprint,
    }
}
