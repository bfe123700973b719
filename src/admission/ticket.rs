//! A place in line, signed by the node that gave it out (SPEC §2 Waiting ticket): the JSON of [`Stub`] and its
//! HMAC-SHA256, both in base64 for URLs, joined by a dot. Whoever waits hands it in again after a restart of the node.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::{Joined, Waiter};
use crate::model::{Fingerprint, RequestId, Requester, Ticket};

/// What a ticket says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stub {
    /// The request that waited.
    pub request: RequestId,
    /// The life of the node in which it waited.
    pub run: u64,
    /// Whose it was.
    pub requester: Requester,
    /// What it waited for: target and mode.
    pub target: Fingerprint,
    /// Its place in the order of joining.
    pub joined: Joined,
    /// When it joined, wall time.
    #[serde(with = "crate::model::time::instant")]
    pub joined_at: Timestamp,
}

impl Stub {
    /// What the ticket of a waiter says in the life `run` of the node.
    pub fn of(waiter: &Waiter, run: u64) -> Self {
        Self {
            request: waiter.proposal.request.clone(),
            run,
            requester: waiter.proposal.holder.clone(),
            target: Fingerprint::of(&waiter.proposal.target, waiter.proposal.mode, None),
            joined: waiter.rank.joined(),
            joined_at: waiter.joined_at,
        }
    }
}

/// Signs tickets, and knows its own again.
#[derive(Debug)]
pub struct TicketKey(hmac::Key);

impl TicketKey {
    /// The key made of the node's secret; the same in every life of the node.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The ticket for a place.
    pub fn issue(&self, stub: &Stub) -> Ticket {
        let stub = serde_json::to_vec(stub).expect("a stub is plain data");
        let tag = hmac::sign(&self.0, &stub);
        let text = format!("{}.{}", URL_SAFE_NO_PAD.encode(&stub), URL_SAFE_NO_PAD.encode(tag));
        text.parse().expect("base64 and a dot pass the pattern, and names are bounded")
    }

    /// The request that a ticket names, whoever gave it out. It is a claim: whoever uses it checks whose the request is.
    pub fn claimed(ticket: &Ticket) -> Option<RequestId> {
        let (stub, _) = ticket.as_str().split_once('.')?;
        let stub: Stub = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(stub).ok()?).ok()?;
        Some(stub.request)
    }

    /// What a ticket says; none when this node did not give it out.
    pub fn read(&self, ticket: &Ticket) -> Option<Stub> {
        let (stub, tag) = ticket.as_str().split_once('.')?;
        let (stub, tag) = (URL_SAFE_NO_PAD.decode(stub).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?);
        hmac::verify(&self.0, &stub, &tag).ok()?;
        serde_json::from_slice(&stub).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Mode, Target};

    fn stub() -> Stub {
        let long = format!("{}/{}", "a".repeat(63), "b".repeat(64));
        Stub {
            request: RequestId::generate(),
            run: u64::MAX,
            requester: format!("gw:{}:{long}", "g".repeat(63)).parse().unwrap(),
            target: Fingerprint::of(&Target::Resource("pixel".parse().unwrap()), Mode::Exclusive, None),
            joined: Joined { run: u64::MAX, at_us: i64::MIN, arrival: u64::MAX },
            joined_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_ticket_reads_back_with_the_key_that_signed_it_and_with_no_other() {
        let (key, other) = (TicketKey::new(&[1; 32]), TicketKey::new(&[2; 32]));
        let ticket = key.issue(&stub());
        assert!(key.read(&ticket).is_some());
        assert_eq!(other.read(&ticket), None);
    }

    #[test]
    fn a_ticket_that_was_touched_is_none() {
        let key = TicketKey::new(&[1; 32]);
        let ticket = key.issue(&stub()).to_string();
        for (index, _) in ticket.char_indices().step_by(7) {
            let mut touched: Vec<u8> = ticket.clone().into_bytes();
            touched[index] = if touched[index] == b'A' { b'B' } else { b'A' };
            let touched: Ticket = String::from_utf8(touched).unwrap().parse().unwrap();
            assert_eq!(key.read(&touched), None, "at {index}");
        }
        for junk in ["x", ".", "a.b", "….…"] {
            assert!(junk.parse::<Ticket>().is_err() || key.read(&junk.parse().unwrap()).is_none());
        }
    }
}
