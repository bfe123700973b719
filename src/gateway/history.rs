//! What the gateway tells of itself and of the fleet's requests (SPEC §9 Operators, §10).
//!
//! Every request that passes the checks has one `lease.requested` and ends in one `request.granted` or `lease.rejected`. One
//! that is refused by checks 3 or 4 has the `lease.rejected` alone; one that is another under its key has nothing of
//! its own. What is still owed from former runs is in `former`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::fleet::Open;
use super::front::FrontState;
use super::message::FirstGrant;
use super::relayed::{Claim, Claimed, lease_named};
use crate::admission::{EventRules, RequestState};
use crate::clock::RunTime;
use crate::model::{Ask, Code, Event, EventKind, LeaseId, NodeName, Refusal, RequestId, Requester, WaitPolicy};
use crate::store::{Journal, JournalFull, OpenRequest, Past, RelayedPage, Relays};

/// How often what is old is looked for.
const PRUNE_EVERY: Duration = Duration::from_secs(1);

/// What a gateway tells with, and what it has to tell yet.
#[derive(Debug)]
pub struct History {
    journal: Journal,
    relays: Relays,
    rules: EventRules,
    incarnation: u64,
    /// When the last run told something last.
    pub(super) last_own: Option<Timestamp>,
    /// Requests of former runs whose end is to be told.
    pub(super) unsettled: BTreeMap<RequestId, OpenRequest>,
    prune_at: RunTime,
}

impl History {
    /// The history of a gateway that has opened its journal.
    pub fn new(journal: Journal, relays: Relays, past: Past, rules: EventRules) -> Self {
        let Past { incarnation, open, last_own } = past;
        Self {
            journal,
            relays,
            rules,
            incarnation,
            last_own,
            unsettled: open.into_iter().map(|open| (open.id.clone(), open)).collect(),
            prune_at: RunTime::default(),
        }
    }

    /// Which run of the gateway this is; it grows with each start, and is at least the Unix time in ms.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// What is kept from now on.
    pub(super) fn set_rules(&mut self, rules: EventRules) {
        self.rules = rules;
    }

    /// How far each worker's log is stored.
    pub(super) fn relays(&self) -> Relays {
        self.relays.clone()
    }
}

impl FrontState {
    /// Tells those who want to know later what has happened.
    pub(super) fn emit(&self, event: Event) {
        tracing::debug!(event = %event.kind, payload = ?event.payload, "happened");
        self.must(self.around.history.journal.append(event, self.around.clock.now().wall));
    }

    /// The same for the end of a request that may have been told by a former run.
    pub(super) fn emit_if_untold(&self, event: Event) {
        self.must(self.around.history.journal.append_if_untold(event, self.around.clock.now().wall));
    }

    /// A gateway whose history cannot be written ends: nothing is lost silently.
    fn must(&self, taken: Result<(), JournalFull>) {
        if let Err(error) = taken {
            tracing::error!("{error}; the gateway ends");
            self.myself.stop(Some(error.to_string()));
        }
    }

    /// Requests are admitted from here on.
    pub(super) fn tell_started(&self) {
        let event = Event::new(EventKind::NodeStarted).with("version", env!("CARGO_PKG_VERSION"));
        self.emit(event.with("incarnation", self.around.history.incarnation));
    }

    /// The gateway is told to stop: it takes no more requests.
    pub(super) fn stop_admitting(&mut self) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.emit(Event::new(EventKind::NodeStopping));
        }
    }

    /// A request has passed the checks. One that only asks for a place in a waiting room is none before it gets a lease.
    pub(super) fn tell_requested(&self, ask: &Ask) {
        if ask.wait != WaitPolicy::JoinWaitingRoom {
            self.tell_begun(ask);
        }
    }

    fn tell_begun(&self, ask: &Ask) {
        let event = Event::new(EventKind::LeaseRequested).about(&ask.requester).with("requestId", ask.id.as_str());
        self.emit(event.with("requestSpec", spec(ask)).with("waitPolicy", ask.wait.shown()));
    }

    /// A request is refused by the checks. Only 3 and 4 leave something behind.
    pub(super) fn tell_not_admitted(&mut self, ask: &Ask, refusal: &Refusal) {
        if matches!(refusal.code, Code::RequesterAlreadyLeased | Code::LeaseIdTaken) {
            self.tell_rejected(ask, reason_of(refusal, false), refusal.code);
        }
    }

    /// A request waits, at this place from 1.
    pub(super) fn tell_position(&mut self, id: RequestId, position: usize) {
        let Some(Open { ask, .. }) = self.fleet.get(&id) else { return };
        if ask.wait == WaitPolicy::JoinWaitingRoom {
            return;
        }
        let mut event = Event::new(EventKind::LeaseQueued).with("requestId", id.as_str()).with("position", position);
        event.owner = Some(ask.requester.clone());
        self.emit(event);
    }

    /// A request goes to a worker. One that only asks for a place has not begun, and who polls asks often.
    pub(super) fn tell_dispatched(&self, ask: &Ask, worker: &NodeName, attempt: u32) {
        if ask.wait == WaitPolicy::JoinWaitingRoom {
            return;
        }
        let event = Event::new(EventKind::RequestDispatched).about(&ask.requester).with("requestId", ask.id.as_str());
        self.emit(event.with("worker", worker.as_str()).with("attempt", attempt));
    }

    /// A request of this run has got its lease.
    pub(super) fn tell_granted(&mut self, id: &RequestId, ask: Option<&Ask>, first: &FirstGrant) {
        if let Some(ask) = ask.filter(|ask| ask.wait == WaitPolicy::JoinWaitingRoom) {
            self.tell_begun(ask);
        }
        self.emit(granted(id, first));
    }

    /// A request of this run got nothing.
    pub(super) fn tell_refused(&mut self, ask: &Ask, refusal: &Refusal) {
        if ask.wait == WaitPolicy::JoinWaitingRoom {
            return;
        }
        // An acquire whose caller has gone is not carried out.
        let reason = if self.nobody_waits(ask) { "abandoned" } else { reason_of(refusal, ask.no_wait()) };
        self.tell_rejected(ask, reason, refusal.code);
    }

    /// The same for a reason of the gateway's own.
    pub(super) fn tell_rejected(&mut self, ask: &Ask, reason: &str, code: Code) {
        self.emit(rejected(&ask.id, &ask.requester, spec(ask), reason, code));
    }

    /// What time alone makes the history do.
    pub(super) fn keep_history(&mut self, now: RunTime) {
        self.settle_former(now);
        if now >= self.around.history.prune_at {
            let history = &mut self.around.history;
            history.prune_at = now + PRUNE_EVERY;
            let before = self.around.clock.now().wall.checked_sub(history.rules.retention).unwrap_or(Timestamp::MIN);
            let taken = history.journal.prune(before, history.rules.count_max);
            self.must(taken);
        }
    }

    /// A worker relays some of its events: `taken` is told the number of the last once all are stored.
    pub(super) fn relayed(&mut self, worker: NodeName, page: Claimed, taken: mpsc::Sender<u64>) {
        let Claimed { upto, events } = page;
        let named = |Claim { mut event, request }: Claim| {
            if let Some(lease) = event.lease.take() {
                let name = self.name_in_event(&worker, request.as_ref(), &lease);
                event.payload.insert("leaseId".to_owned(), name.as_str().into());
                event.lease = Some(name);
            }
            event
        };
        let events = events.into_iter().map(named).collect();
        let page = RelayedPage { worker, upto, events };
        let stored = move |upto| {
            // A link that has gone is told at its next welcome.
            let _ = taken.try_send(upto);
        };
        self.must(self.around.history.journal.relay(page, self.around.clock.now().wall, stored));
    }

    /// This gateway's name of a lease that a worker tells of, whose end it may never have seen.
    fn name_in_event(&self, worker: &NodeName, request: Option<&RequestId>, lease: &LeaseId) -> LeaseId {
        let through = LeaseId::through(worker, lease);
        let bare = lease.as_chosen().map(LeaseId::from);
        if let Some(request) = request {
            if let Some(open) = self.fleet.get(request) {
                let forwarded = open.ask.lease_id.clone().map(LeaseId::from);
                return bare.filter(|bare| Some(bare) == forwarded.as_ref()).unwrap_or(through);
            }
            if let Some(RequestState::Granted(first)) = self.requests.get(request).map(|request| &request.state) {
                let same = first.lease.worker == *worker && first.lease.lease.id == *lease;
                return if same { first.lease.id.clone() } else { through };
            }
        }
        match bare.as_ref().and_then(|bare| self.table.resolve(bare)) {
            // Whatever it says of a lease of another worker's is about one of its own.
            Some(route) if route.worker != *worker => through,
            Some(_) => bare.unwrap_or(through),
            None => lease_named(worker, lease),
        }
    }
}

/// `request.granted`.
pub(super) fn granted(id: &RequestId, FirstGrant { lease, .. }: &FirstGrant) -> Event {
    Event::new(EventKind::RequestGranted)
        .about(&lease.lease.holder.bare())
        .of_lease(&lease.id)
        .with("requestId", id.as_str())
        .with("resourceId", lease.lease.resource_id.as_str())
        .with("worker", lease.worker.as_str())
        .with("fence", lease.lease.fence.0)
}

/// `lease.rejected`.
pub(super) fn rejected(
    id: &RequestId,
    requester: &Requester,
    spec: Map<String, Value>,
    reason: &str,
    code: Code,
) -> Event {
    Event::new(EventKind::LeaseRejected)
        .about(requester)
        .with("requestId", id.as_str())
        .with("requestSpec", spec)
        .with("reason", reason)
        .with("code", code.as_str())
}

/// What was asked for, as events show it; the lease id and the key are never in it.
fn spec(ask: &Ask) -> Map<String, Value> {
    ask.proposal(ask.fingerprint()).spec()
}

/// The reason of `lease.rejected` for a refusal.
pub(super) fn reason_of(refusal: &Refusal, no_wait: bool) -> &'static str {
    let said = refusal.details.as_ref().and_then(|details| details.get("reason")).and_then(Value::as_str);
    match refusal.code {
        Code::QueueTimeout => "timeout",
        Code::NoMatchingResource | Code::UnknownResource | Code::AmbiguousResource => "no-match",
        Code::NoCapacity if said == Some("abandoned") => "abandoned",
        Code::NoCapacity if no_wait => "no-wait",
        Code::ResourceUnavailable | Code::ResourceBooked => "no-wait",
        Code::NoCapacity | Code::WorkerUnreachable => "no-worker",
        Code::RequesterAlreadyLeased => "already-leased",
        Code::LeaseIdTaken => "lease-id-taken",
        Code::NodeRestarted => "daemon-restarted",
        Code::DeviceFailed => "device-failed",
        _ => "worker-failed",
    }
}

/// True for a refusal for which the key goes on standing (SPEC §2, check 2).
pub(super) fn is_remembered(code: Code) -> bool {
    matches!(code, Code::QueueTimeout | Code::DeviceFailed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_request_got_nothing_is_one_of_the_words_of_the_contract() {
        let reason = |code, no_wait| reason_of(&Refusal::new(code, "no"), no_wait);
        assert_eq!(reason(Code::NoCapacity, true), "no-wait");
        assert_eq!(reason(Code::NoCapacity, false), "no-worker");
        assert_eq!(reason_of(&Refusal::new(Code::NoCapacity, "no").with("reason", "abandoned"), false), "abandoned");
        assert_eq!(reason(Code::WorkerUnreachable, true), "no-worker");
        assert_eq!(reason(Code::UnknownResource, true), "no-match");
        assert_eq!(reason(Code::ResourceUnavailable, true), "no-wait");
        assert_eq!(reason(Code::DeviceFailed, true), "device-failed");
        assert_eq!(reason(Code::Internal, false), "worker-failed");
    }
}
