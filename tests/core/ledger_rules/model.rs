//! What the ledger is to know, in the fewest words.

use berth::admission::Speaker;
use berth::model::{Ask, Code, Fingerprint, IdempotencyKey, LeaseId, RequestId, Requester};
use serde_json::{Value, json};

/// A request as the checks see it, and how it stands.
#[derive(Debug, Clone)]
pub struct Open {
    pub id: RequestId,
    pub requester: Requester,
    pub lease: Option<LeaseId>,
    pub granted: bool,
}

/// What the ledger is to know.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub open: Vec<Open>,
    pub keys: Vec<(Requester, IdempotencyKey, RequestId, Fingerprint)>,
}

/// How a request comes through.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    New,
    Replay(RequestId),
    Refused(Code, Option<Value>),
}

impl Model {
    pub fn check(&self, max: usize, ask: &Ask, speaker: Speaker) -> Outcome {
        let own = speaker == Speaker::Requester;
        let known = self.keys.iter().find(|(who, key, ..)| *who == ask.requester && Some(key) == ask.key.as_ref());
        let held: Vec<_> = self.open.iter().filter(|open| open.requester == ask.requester).collect();
        let lease = ask.lease_id.clone().map(LeaseId::from);
        match known {
            Some((.., first, print)) if own && *print == ask.fingerprint() => return Outcome::Replay(first.clone()),
            Some(_) if own => return Outcome::Refused(Code::IdempotencyConflict, None),
            _ => {}
        }
        if own && held.len() >= max {
            let mut details = json!({ "requesterId": ask.requester });
            if let Some(Open { lease: Some(lease), .. }) = held.iter().find(|open| open.granted) {
                details["existingLeaseId"] = json!(lease);
            }
            if let Some(Open { id, .. }) = held.iter().find(|open| !open.granted) {
                details["existingRequestId"] = json!(id);
            }
            return Outcome::Refused(Code::RequesterAlreadyLeased, Some(details));
        }
        if lease.is_some() && self.open.iter().any(|open| open.lease == lease) {
            return Outcome::Refused(Code::LeaseIdTaken, Some(json!({ "leaseId": lease })));
        }
        Outcome::New
    }

    /// What is told is a fact, however many leases that makes. Another lease of that id is over; a request that asked for
    /// the id will not get it, but is a request until it ends.
    pub fn restore(
        &mut self,
        id: RequestId,
        requester: Requester,
        lease: LeaseId,
        key: Option<(IdempotencyKey, Fingerprint)>,
    ) {
        self.open.retain(|open| open.id != id && !(open.granted && open.lease.as_ref() == Some(&lease)));
        for open in self.open.iter_mut().filter(|open| open.lease.as_ref() == Some(&lease)) {
            open.lease = None;
        }
        if let Some((key, print)) = key {
            self.keys.retain(|(who, other, ..)| (who, other) != (&requester, &key));
            self.keys.push((requester.clone(), key, id.clone(), print));
        }
        self.open.push(Open { id, requester, lease: Some(lease), granted: true });
    }

    pub fn enter(&mut self, ask: &Ask, speaker: Speaker) {
        let lease = ask.lease_id.clone().map(LeaseId::from);
        let (id, requester) = (ask.id.clone(), ask.requester.clone());
        if let (Some(key), Speaker::Requester) = (&ask.key, speaker) {
            self.keys.push((requester.clone(), key.clone(), id.clone(), ask.fingerprint()));
        }
        self.open.push(Open { id, requester, lease, granted: false });
    }
}
