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
        let speaker = match &origin {
            Origin::Client => Speaker::Requester,
            Origin::Gateway { attempt, .. } => {
                if self.attempts.is_cancelled(&ask.id, *attempt) {
                    let refusal = Refusal::new(Code::Stopping, "this attempt has been settled as refused");
                    self.say(reply, Err(refusal));
                    return;
                }
                // The same dispatch again: it gets the same answer.
                if self.requests.get(&ask.id).is_some_and(|known| !matches!(known.state, RequestState::Failed(_))) {
                    self.replay(&ask.id, reply);
                    return;
                }
                Speaker::Gateway
            }
        };
        match self.ledger.admit(&ask, speaker) {
            Err(refusal) => self.say(reply, Err(refusal)),
            Ok(Admitted::Replay(request)) => self.replay(&request, reply),
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
                    let command =
                        Command::Acquire { door: ask.door, lease: Box::new(proposed(ask, &resource, &origin)) };
                    self.send(&resource, kind, command).await;
                }
            },
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
        Grant { lease: first.lease.clone(), deadline, labels: first.labels.clone() }
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
                self.say(reply, Ok(grant));
            }
            Some(RequestState::Failed(_)) | None => {
                self.attempts.cancel(request, attempt);
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
                Watcher::Settler(reply) => self.say(reply, Ok(result.clone().ok())),
                Watcher::Reader(reply) => {
                    let _ = reply.send(self.requests.get(id).cloned());
                }
            }
        }
    }

    /// Drops requests whose retention is over, here and on disk.
    pub(super) fn forget_old_requests(&mut self, now: RunTime) {
        let dropped = self.requests.prune(now);
        for request in &dropped {
            if let Some(key) = &request.key {
                self.ledger.forget(&request.requester, key, &request.id);
            }
        }
        if !dropped.is_empty() {
            self.store.forget(dropped.into_iter().map(|request| request.id).collect());
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
