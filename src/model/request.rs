//! One attempt to get a lease, after its shape and bounds have been checked (SPEC §2).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::id::InvalidId;
use super::{
    ChosenLeaseId, IdempotencyKey, LeaseId, Mode, NodeName, Note, Proposal, RequestId, Requester, ResourceId, Selector,
    Ticket, WaitPolicy,
};

/// What a request is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// Exactly this resource.
    Resource(ResourceAddress),
    /// Any resource whose labels match.
    Select(Selector),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Resource(address) => address.fmt(f),
            Target::Select(selector) => selector.fmt(f),
        }
    }
}

/// A resource's id, with its worker where two workers have the same id: `rack-1/pixel-8-a`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceAddress {
    /// The worker that has it; none when the bare id is enough.
    pub worker: Option<NodeName>,
    /// Its id on that worker.
    pub id: ResourceId,
}

impl fmt::Display for ResourceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.worker {
            Some(worker) => write!(f, "{worker}/{}", self.id),
            None => self.id.fmt(f),
        }
    }
}

impl FromStr for ResourceAddress {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let (worker, id) = match text.split_once('/') {
            Some((worker, id)) => (Some(worker.parse()?), id),
            None => (None, text),
        };
        Ok(Self { worker, id: id.parse()? })
    }
}

impl TryFrom<String> for ResourceAddress {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<ResourceAddress> for String {
    fn from(it: ResourceAddress) -> String {
        it.to_string()
    }
}

/// Which of the two doors of SPEC §2 a request came through. They differ in the words of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// `POST /v1/resources/{id}/leases`: what is held is `RESOURCE_UNAVAILABLE`.
    Acquire,
    /// `POST /v1/lease-requests`: what is held is `NO_CAPACITY`.
    Request,
}

/// A request's rank among those that wait: −1000 to 1000, higher goes first.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Priority(f64);

impl Eq for Priority {}

impl TryFrom<f64> for Priority {
    type Error = InvalidId;

    fn try_from(number: f64) -> Result<Self, InvalidId> {
        if number.is_finite() && (-1000.0..=1000.0).contains(&number) {
            // Adding zero turns −0 into 0, so equal ranks are equal.
            Ok(Self(number + 0.0))
        } else {
            Err(InvalidId::new("priority", "a number from -1000 to 1000", &number.to_string()))
        }
    }
}

impl From<Priority> for f64 {
    fn from(it: Priority) -> f64 {
        it.0
    }
}

/// A lease's width as a caller may ask for it: at least 1 ms; the upper bound is the node's `lease.max_ttl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Ttl(u64);

impl Ttl {
    /// The longest that can be written down: 10 years. What a node grants is bounded far below.
    const MAX_MS: u64 = 10 * 365 * 24 * 3600 * 1000;

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<u64> for Ttl {
    type Error = InvalidId;

    fn try_from(ms: u64) -> Result<Self, InvalidId> {
        if (1..=Self::MAX_MS).contains(&ms) {
            Ok(Self(ms))
        } else {
            Err(InvalidId::new("ttl", "whole milliseconds, at least 1", &ms.to_string()))
        }
    }
}

impl From<Ttl> for u64 {
    fn from(it: Ttl) -> u64 {
        it.0
    }
}

/// How long a request is ready to wait: 1 ms to 30 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Timeout(u64);

impl Timeout {
    const MAX_MS: u64 = 30 * 24 * 3600 * 1000;

    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl TryFrom<u64> for Timeout {
    type Error = InvalidId;

    fn try_from(ms: u64) -> Result<Self, InvalidId> {
        if (1..=Self::MAX_MS).contains(&ms) {
            Ok(Self(ms))
        } else {
            Err(InvalidId::new("timeout", "whole milliseconds, 1 to 2592000000 (30 days)", &ms.to_string()))
        }
    }
}

impl From<Timeout> for u64 {
    fn from(it: Timeout) -> u64 {
        it.0
    }
}

/// What a key stands for: a digest of target, mode and lease id. The same key with another fingerprint is
/// `IDEMPOTENCY_CONFLICT`; ttl, priority and note are not compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The digest of what is compared. Each part is preceded by its length, so no two differ only in where one
    /// part ends.
    pub fn of(target: &Target, mode: Mode, lease_id: Option<&ChosenLeaseId>) -> Self {
        let (kind, target) = match target {
            Target::Resource(address) => ("resource", address.to_string()),
            Target::Select(selector) => ("select", selector.canonical()),
        };
        let mut digest = Sha256::new();
        for part in [kind, &target, mode.as_str(), lease_id.map_or("", ChosenLeaseId::as_str)] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let mut short = [0; 16];
        short.copy_from_slice(&digest.finalize()[..16]);
        Self(short)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refused = || InvalidId::new("fingerprint", "32 hexadecimal digits", text);
        if text.len() != 32 || !text.is_ascii() {
            return Err(refused());
        }
        let mut bytes = [0; 16];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Fingerprint> for String {
    fn from(it: Fingerprint) -> String {
        it.to_string()
    }
}

/// A lease request whose shape and bounds are checked.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Its name.
    pub id: RequestId,
    /// Where it came in.
    pub door: Door,
    /// Who asks.
    pub requester: Requester,
    /// For what.
    pub target: Target,
    /// Alone or shared.
    pub mode: Mode,
    /// How long one renew lasts; at most the node's `lease.max_ttl`.
    pub ttl: Duration,
    /// Its rank among those that wait.
    pub priority: Priority,
    /// The lease id that the requester chose.
    pub lease_id: Option<ChosenLeaseId>,
    /// What to do when it cannot be granted now.
    pub wait: WaitPolicy,
    /// Free text for the lease.
    pub note: Option<Note>,
    /// The caller's name for this attempt.
    pub key: Option<IdempotencyKey>,
    /// A place in line from an earlier run of the node.
    pub ticket: Option<Ticket>,
    /// Rather a shorter lease than none, where a booking is in the way.
    pub allow_shorter: bool,
    /// True for an admin, whom no booking stops.
    pub by_admin: bool,
    /// What the caller left to the node; an unattended waiter that asks again keeps it as it was.
    pub left_out: LeftOut,
}

/// The fields that a caller did not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// `mode`.
    pub mode: bool,
    /// `ttlMs`.
    pub ttl: bool,
    /// `priority`.
    pub priority: bool,
}

impl Ask {
    /// What the key stands for.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.target, self.mode, self.lease_id.as_ref())
    }

    /// True when it is never to wait.
    pub fn no_wait(&self) -> bool {
        matches!(self.wait, WaitPolicy::Fail | WaitPolicy::NoWait)
    }

    /// The lease that it would get. An id that the requester did not choose is made here.
    pub fn proposal(&self, fingerprint: Fingerprint) -> Proposal {
        Proposal {
            request: self.id.clone(),
            holder: self.requester.clone(),
            target: self.target.clone(),
            mode: self.mode,
            priority: self.priority,
            ttl: self.ttl,
            lease: self.lease_id.clone().map_or_else(LeaseId::generate, LeaseId::from),
            id_chosen_by_requester: self.lease_id.is_some(),
            note: self.note.clone(),
            key: self.key.clone(),
            fingerprint,
            allow_shorter: self.allow_shorter,
            by_admin: self.by_admin,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_tells_target_mode_and_lease_id_apart_and_nothing_else() {
        let pixel = Target::Resource("pixel".parse().unwrap());
        let mine: ChosenLeaseId = "mine".parse().unwrap();
        let base = Fingerprint::of(&pixel, Mode::Exclusive, None);
        assert_eq!(base, Fingerprint::of(&pixel, Mode::Exclusive, None));
        assert_ne!(base, Fingerprint::of(&pixel, Mode::Shared, None));
        assert_ne!(base, Fingerprint::of(&pixel, Mode::Exclusive, Some(&mine)));
        assert_ne!(base, Fingerprint::of(&Target::Resource("rack-1/pixel".parse().unwrap()), Mode::Exclusive, None));
        assert_ne!(base, Fingerprint::of(&Target::Select("pixel".parse().unwrap()), Mode::Exclusive, None));
        let forth = Target::Select("a=1,b=2".parse().unwrap());
        let back = Target::Select("b = 2, a=1".parse().unwrap());
        assert_eq!(
            Fingerprint::of(&forth, Mode::Exclusive, None),
            Fingerprint::of(&back, Mode::Exclusive, None),
            "two ways to write one selector ask for the same"
        );
        assert_eq!(base.to_string().parse::<Fingerprint>().unwrap(), base);
    }

    #[test]
    fn a_priority_is_a_finite_number_within_its_bounds() {
        for good in [-1000.0, -0.5, 0.0, 1000.0] {
            assert!(Priority::try_from(good).is_ok(), "{good}");
        }
        for bad in [f64::NAN, f64::INFINITY, -1000.1, 1e9] {
            assert!(Priority::try_from(bad).is_err(), "{bad}");
        }
        assert_eq!(Priority::try_from(-0.0).unwrap(), Priority::default());
    }
}
