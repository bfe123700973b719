//! How a lease request comes in: the order of checks of SPEC §2.

use ractor::RpcReplyPort;

use super::asked::LeaveReply;
use super::desk::{DeskState, Note, OpKind, Watcher};
use super::directory::{Choice, all_held};
use super::message::{Asked, FirstGrant, Grant, Origin, Said};
use super::open::OpenRequest;
use super::read::grant;
use crate::admission::resource::{Change, Command, Held, Otherwise, Rejection};
use crate::admission::{Admitted, Attendance, Joined, Rank, RequestState, Speaker, Waiter};
use crate::limits::WATCHERS_MAX;
use crate::model::{
    Ask, Code, Door, NodeName, Proposal, Refusal, RequestId, ResourceAddress, ResourceId, Selector, Target, WaitPolicy,
};

impl DeskState {
    /// Checks a request, reserves what it names, and hands it to a resource or to the pool.
    pub(super) fn request(&mut self, ask: Ask, origin: Origin, reply: RpcReplyPort<Said<Asked>>) {
        if reply.is_closed() {
            // Whoever asked has given up meanwhile, and nothing has been begun.
            return;
        }
        if self.stopping {
            self.say(reply, Err(Refusal::new(Code::Stopping, "this node is going down; ask again when it is back")));
            return;
        }
        match origin {
            Origin::Client => self.admit(ask, origin, Speaker::Requester, reply),
            Origin::Gateway { attempt, .. } => {
                let known = self.requests.get(&ask.id).map(|request| &request.requester);
                if known.or_else(|| self.ledger.requester_of(&ask.id)).is_some_and(|known| *known != ask.requester) {
                    let why = "names a request of another requester on this worker; draw a new id";
                    return self.say(reply, Err(Refusal::bad_field("request", why)));
                }
                let Some(reply) = self.seen_attempt(&ask.id, attempt, reply) else { return };
                self.attempts.take(&ask.id, attempt);
                self.admit(ask, origin, Speaker::Gateway, reply);
            }
        }
    }

    /// Answers a dispatch that is none: one that comes twice, one that was settled as refused, one of a request that
    /// waits or holds a lease here. The reply comes back when the dispatch is a new try.
    fn seen_attempt(
        &mut self,
        id: &RequestId,
        attempt: u32,
        reply: RpcReplyPort<Said<Asked>>,
    ) -> Option<RpcReplyPort<Said<Asked>>> {
        let state = self.requests.get(id).map(|request| &request.state);
        let alive = match state {
            Some(RequestState::Open) => true,
            Some(RequestState::Granted(first)) => {
                let live = self.find_lease(&first.lease.id);
                live.is_some_and(|grant| grant.lease.fence == first.lease.fence)
            }
            Some(RequestState::Failed(_) | RequestState::Cancelled) | None => false,
        };
        let too_late = || Refusal::new(Code::Stopping, "this attempt comes too late");
        if self.attempts.is_cancelled(id, attempt) {
            self.say(reply, Err(too_late()));
        } else if self.attempts.is_taken(id, attempt) && state.is_some() {
            match (state, self.place_of(id)) {
                (Some(RequestState::Open), Some(place)) => {
                    self.asked_about(id);
                    self.say(reply, Ok(Asked::Pending(place)));
                }
                (Some(RequestState::Open), None) => self.add_watcher(id, Watcher::Gateway(reply)),
                _ => self.replay(id, reply),
            }
        } else if alive {
            // Another attempt waits or holds a lease: the gateway asks about that one before it sends a new one.
            self.say(reply, Err(too_late()));
        } else {
            return Some(reply);
        }
        None
    }

    fn admit(&mut self, ask: Ask, origin: Origin, speaker: Speaker, reply: RpcReplyPort<Said<Asked>>) {
        let named = match &ask.target {
            Target::Resource(address) if ask.door == Door::Acquire => self.resolve(address).ok(),
            _ => None,
        };
        if ask.wait == WaitPolicy::JoinWaitingRoom
            && let Some(grant) = named.as_ref().and_then(|resource| self.given_by_booking(resource, &ask))
        {
            return self.say(reply, Ok(Asked::Granted(grant)));
        }
        let room = named.map(|id| ResourceAddress { worker: None, id });
        match self.ledger.admit(&ask, speaker, room.as_ref()) {
            Ok(Admitted::Replay(first)) => match self.open.get(&first).map(|open| open.wait) {
                // It may come to stand in the waiting room, which its key does not stand for.
                Some(WaitPolicy::JoinWaitingRoom) => self.queue_behind(&first, ask, origin, reply),
                _ => self.replay(&first, reply),
            },
            Ok(Admitted::Behind(first)) => self.queue_behind(&first, ask, origin, reply),
            Ok(Admitted::New | Admitted::Again) => self.begin(ask, &origin, speaker, reply),
            Err(refusal) => match refusal.code {
                Code::RequesterAlreadyLeased => {
                    self.reject(&ask, &origin, Rejection::AlreadyLeased, refusal, reply);
                }
                Code::LeaseIdTaken => self.reject(&ask, &origin, Rejection::LeaseIdTaken, refusal, reply),
                _ => self.say(reply, Err(refusal)),
            },
        }
    }

    /// The lease that a booking has given to one who asks again for a place in the waiting room: it waited for that.
    fn given_by_booking(&self, resource: &ResourceId, ask: &Ask) -> Option<Grant> {
        let entry = self.directory.get(resource)?;
        let own = |held: &&Held| held.lease.holder == ask.requester && held.lease.mode == ask.mode;
        let held = entry.state.held.iter().find(own)?;
        let booked = !entry.state.calendar.fulfilled_by(&held.lease.id).is_empty();
        booked.then(|| grant(held, entry, self.clock.now()))
    }

    /// Refuses one who did not pass the checks. Nothing is stored of it but the event.
    fn reject(
        &mut self,
        ask: &Ask,
        origin: &Origin,
        reason: Rejection,
        refusal: Refusal,
        reply: RpcReplyPort<Said<Asked>>,
    ) {
        let change = self.rejection(proposal(ask, origin), origin, reason, &refusal);
        self.note(vec![change], Note::Rejected { reply, refusal });
    }

    /// What is written of a refusal. One of the gateway's goes on there.
    fn rejection(&self, proposal: Proposal, origin: &Origin, reason: Rejection, refusal: &Refusal) -> Change {
        match origin {
            Origin::Gateway { .. } => Change::Declined { proposal, code: refusal.code },
            Origin::Client => {
                let at = self.clock.now().wall;
                Change::Rejected { proposal, reason, refusal: refusal.clone(), waited: false, at }
            }
        }
    }

    /// The second ask to join a waiting room, while the first is under way, comes after that.
    fn queue_behind(&mut self, first: &RequestId, ask: Ask, origin: Origin, reply: RpcReplyPort<Said<Asked>>) {
        let behind = self.behind.entry(first.clone()).or_default();
        if behind.len() < WATCHERS_MAX {
            behind.push_back((ask, origin, reply));
        } else {
            let message = "too many of the same ask are under way; wait for their answers";
            let refusal = Refusal::new(Code::QueueFull, message).retry_after(std::time::Duration::from_secs(1));
            self.say(reply, Err(refusal));
        }
    }

    /// A request that has passed the checks 2 to 4.
    fn begin(&mut self, ask: Ask, origin: &Origin, speaker: Speaker, reply: RpcReplyPort<Said<Asked>>) {
        let now = self.clock.now();
        let id = ask.id.clone();
        self.requests.open(id.clone(), ask.requester.clone(), ask.key.clone(), now.wall);
        self.open.insert(id.clone(), OpenRequest::new(ask.wait, speaker == Speaker::Gateway, now.run));
        let watcher = match origin {
            Origin::Client => Watcher::Caller(reply),
            Origin::Gateway { .. } => Watcher::Gateway(reply),
        };
        self.watchers.insert(id.clone(), vec![watcher]);
        let not_on = if let Origin::Gateway { not_on, .. } = origin { not_on.clone() } else { None };
        let waiter = Waiter { not_on, ..self.newcomer(&ask, proposal(&ask, origin)) };
        self.requests.stands_for(&id, waiter.proposal.fingerprint);
        match &ask.target {
            Target::Resource(address) => match self.resolve(address) {
                Ok(resource) => self.ask_resource(&resource, &ask, waiter, speaker),
                Err(refusal) => self.refuse(&id, refusal),
            },
            Target::Select(selector) => self.place(selector, waiter, origin, speaker),
        }
    }

    /// A waiter who joins now, or takes over the place that its ticket says.
    fn newcomer(&mut self, ask: &Ask, proposal: Proposal) -> Waiter {
        let now = self.clock.now();
        self.arrivals += 1;
        let mut joined = Joined { run: self.incarnation, at_us: Joined::micros(now.run), arrival: self.arrivals };
        let (mut joined_at, mut returns) = (now.wall, None);
        if let Some((former, place, at)) = self.returning.claim(ask, now) {
            (joined, joined_at, returns) = (place, at, Some(former));
        }
        Waiter {
            rank: Rank::new(ask.priority, joined, self.rules.waiting.priority_aging),
            proposal,
            joined_at,
            attendance: match ask.wait {
                WaitPolicy::JoinWaitingRoom => Attendance::Unattended { last_seen: now.run },
                _ => Attendance::Attended,
            },
            returns,
            restored: false,
            not_on: None,
        }
    }

    fn ask_resource(&mut self, resource: &ResourceId, ask: &Ask, waiter: Waiter, speaker: Speaker) {
        let full = self.waiting_room_is_full();
        let otherwise = match ask.wait {
            WaitPolicy::Fail | WaitPolicy::NoWait => Otherwise::Refuse(ask.wait),
            // Whoever stands there already needs no more room.
            WaitPolicy::JoinWaitingRoom if full && !self.stands_in(resource, &ask.requester) => {
                Otherwise::Decline(ask.wait)
            }
            WaitPolicy::JoinWaitingRoom => Otherwise::Join,
            WaitPolicy::Wait { .. } if full => Otherwise::Decline(ask.wait),
            WaitPolicy::Wait { .. } => Otherwise::Wait(ask.wait),
        };
        let kind = OpKind::Ask { waiter: Box::new(waiter.clone()), speaker };
        let command = Command::Ask { waiter: Box::new(waiter), otherwise, left_out: ask.left_out, speaker };
        self.send(resource, kind, command);
    }

    fn stands_in(&self, resource: &ResourceId, requester: &crate::model::Requester) -> bool {
        self.directory.get(resource).is_some_and(|entry| entry.state.queue.unattended_of(requester).is_some())
    }

    /// Finds a free resource for a selector; where there is none, it waits or is refused.
    fn place(&mut self, selector: &Selector, waiter: Waiter, origin: &Origin, speaker: Speaker) {
        let id = waiter.proposal.request.clone();
        let wait = self.open.get(&id).map_or(WaitPolicy::NoWait, |open| open.wait);
        match self.choose(selector, &waiter) {
            Ok(Choice::Free(resource)) => {
                let kind = OpKind::Ask { waiter: Box::new(waiter.clone()), speaker };
                let (waiter, otherwise) = (Box::new(waiter), Otherwise::Decline(wait));
                self.send(&resource, kind, Command::Ask { waiter, otherwise, left_out: Default::default(), speaker });
            }
            Ok(Choice::Busy(matching)) => self.wait_in_pool(waiter, matching, speaker),
            Err(refusal) => {
                self.unclaim(&waiter);
                let change = self.rejection(waiter.proposal, origin, Rejection::NoMatch, &refusal);
                self.note(vec![change], Note::Refused { request: id, refusal });
            }
        }
    }

    /// The free match for a newcomer. One that it need not be shorter for goes before one that it must.
    pub(super) fn choose(&self, selector: &Selector, waiter: &Waiter) -> Result<Choice, Refusal> {
        let best = |waiter: &Waiter| {
            let its_turn = |entry: &super::directory::Entry| self.would_take(entry, waiter);
            self.directory.choose(selector, waiter.proposal.mode, self.link.node(), its_turn)
        };
        if waiter.proposal.allow_shorter {
            let mut whole = waiter.clone();
            whole.proposal.allow_shorter = false;
            if let Ok(Choice::Free(resource)) = best(&whole) {
                return Ok(Choice::Free(resource));
            }
        }
        best(waiter)
    }

    /// One whose matches are all taken waits in the pool, unless it does not want to.
    pub(super) fn wait_in_pool(&mut self, waiter: Waiter, matching: usize, speaker: Speaker) {
        let id = waiter.proposal.request.clone();
        let Target::Select(selector) = &waiter.proposal.target else { return };
        let Some(open) = self.open.get(&id) else { return };
        let wait = open.wait;
        if let WaitPolicy::Wait { .. } = wait {
            if self.waiting_room_is_full() {
                self.unclaim(&waiter);
                return self.refuse(&id, self.queue_is_full());
            }
            return self.join_pool(waiter);
        }
        self.unclaim(&waiter);
        let refusal = all_held(selector, matching);
        let changes = match speaker {
            Speaker::Gateway => vec![Change::Declined { proposal: waiter.proposal, code: refusal.code }],
            Speaker::Requester => {
                let (proposal, at) = (waiter.proposal, self.clock.now().wall);
                let requested = Change::Requested { proposal: proposal.clone(), wait, place: None, returns: None };
                let (reason, refusal) = (Rejection::NoWait, refusal.clone());
                vec![requested, Change::Rejected { proposal, reason, refusal, waited: false, at }]
            }
        };
        self.note(changes, Note::Refused { request: id, refusal });
    }

    fn waiting_room_is_full(&self) -> bool {
        self.directory.waiters() + self.pool.len() >= self.rules.limits.waiters_max
    }

    /// `QUEUE_FULL` for a node where as many wait as may.
    pub(super) fn queue_is_full(&self) -> Refusal {
        let most = self.rules.limits.waiters_max;
        let message =
            format!("{most} wait on this node already, and that is the most (limits.waiters); ask again later");
        Refusal::new(Code::QueueFull, message).retry_after(std::time::Duration::from_secs(5))
    }

    /// Gives the answer of a request that is known already. One that is open is waited for by its id.
    fn replay(&mut self, id: &RequestId, reply: RpcReplyPort<Said<Asked>>) {
        self.asked_about(id);
        let answer = match self.requests.get(id).map(|request| &request.state) {
            Some(RequestState::Open) => Ok(Asked::Open(id.clone())),
            Some(RequestState::Granted(first)) => Ok(Asked::Granted(self.first_grant_now(first))),
            Some(RequestState::Failed(refusal)) => Err(refusal.clone()),
            Some(RequestState::Cancelled) => Ok(Asked::Cancelled(id.clone())),
            None => Err(Refusal::internal("a key stands for a request that is not known")),
        };
        self.say(reply, answer);
    }

    /// The stored result of a grant: never recomputed, also when the lease has moved on or ended.
    fn first_grant_now(&self, first: &FirstGrant) -> Grant {
        let deadline = self.clock.now().run_at(first.expires_at, first.lease.ttl);
        let FirstGrant { lease, expires_at, labels, environment } = first.clone();
        Grant { lease, deadline, expires_at, labels, environment, notices: Vec::new() }
    }

    /// Settles a dispatch whose answer was lost (SPEC §9 In doubt).
    pub(super) fn settle_attempt(
        &mut self,
        request: RequestId,
        attempt: u32,
        gateway: &NodeName,
        reply: RpcReplyPort<Said<Option<Grant>>>,
    ) {
        let own = self.requests.get(&request).filter(|request| request.requester.via.as_ref() == Some(gateway));
        match own.map(|request| &request.state) {
            Some(RequestState::Open) => {
                // What is being written is settled as soon as it is; one that waits is taken out.
                self.add_watcher(&request, Watcher::Settler(reply));
                self.take_back(&request, attempt);
            }
            Some(RequestState::Granted(first)) => {
                let grant = self.find_lease(&first.lease.id).filter(|grant| grant.lease.fence == first.lease.fence);
                if grant.is_none() {
                    self.attempts.cancel(&request, attempt);
                }
                self.say(reply, Ok(grant));
            }
            Some(RequestState::Failed(_) | RequestState::Cancelled) | None => {
                self.attempts.cancel(&request, attempt);
                match self.waits_for_gateway(&request, gateway) {
                    Some((resource, holder)) => self.leave(&resource, holder, LeaveReply::TakenBack(reply)),
                    None => self.say(reply, Ok(None)),
                }
            }
        }
    }

    /// Drops requests whose retention is over, here and on disk.
    pub(super) fn forget_old_requests(&mut self, now: crate::clock::RunTime) {
        let dropped = self.requests.prune(now);
        let mut stored = Vec::new();
        for request in dropped {
            if let Some(key) = &request.key {
                self.ledger.forget(&request.requester, key, &request.id);
            }
            if let Some(first) = &request.lease
                && self.ended.get(&first.lease.id) == Some(&request.id)
            {
                self.ended.remove(&first.lease.id);
            }
            self.returning.is_back(&request.id);
            if request.stored {
                stored.push(request.id);
            }
        }
        if !stored.is_empty() {
            self.store.forget(stored);
        }
    }
}

/// What a request gets if it is granted.
fn proposal(ask: &Ask, origin: &Origin) -> Proposal {
    ask.proposal(match origin {
        Origin::Client => ask.fingerprint(),
        Origin::Gateway { fingerprint, .. } => *fingerprint,
    })
}
