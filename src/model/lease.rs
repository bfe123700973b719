//! A lease as its worker stores it (SPEC §4).

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Fingerprint, IdempotencyKey, LeaseId, Note, RequestId, Requester, ResourceId, Ttl};

/// Whether a holder shares the resource with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nobody else.
    #[default]
    Exclusive,
    /// Beside other shared holders, up to the resource's `max_shared`.
    Shared,
}

impl Mode {
    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        }
    }
}

/// A number that grows with every grant of a resource; a stale holder is told apart by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence of the next grant: larger than every former one, also of one lost with a restored backup,
    /// because it never lags behind the wall clock (SPEC §4).
    pub fn next(self, now: Timestamp) -> Fence {
        let clock = u64::try_from(now.as_millisecond()).unwrap_or(0);
        Fence(clock.max(self.0 + 1))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a renew asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RenewAsk {
    /// A new width; none leaves the lease its own.
    pub ttl: Option<Ttl>,
    /// The grant that is meant; none means whichever there is.
    pub fence: Option<Fence>,
    /// Rather a shorter renewal than none, where a booking is in the way.
    pub allow_shorter: bool,
}

/// What a worker knows of one lease, but its deadline: that runs on boot time while the node runs and on wall
/// time on disk, so whoever holds a record keeps the deadline beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// Its name on this worker.
    pub id: LeaseId,
    /// The request that got it.
    pub request_id: RequestId,
    /// What it holds.
    pub resource_id: ResourceId,
    /// Alone or shared.
    pub mode: Mode,
    /// Whose it is, with the gateway it came through.
    pub holder: Requester,
    /// When it was granted, wall time.
    #[serde(with = "super::time::instant")]
    pub granted_at: Timestamp,
    /// When it was last renewed, wall time; the grant counts.
    #[serde(with = "super::time::instant")]
    pub renewed_at: Timestamp,
    /// Its width: how long one renew lasts when no other is named.
    #[serde(with = "super::time::millis")]
    pub ttl: Duration,
    /// The fence of the grant.
    pub fence: Fence,
    /// Free text of the holder.
    pub note: Option<Note>,
    /// True when the requester chose `id`.
    #[serde(default)]
    pub id_chosen_by_requester: bool,
    /// The key the request came under.
    pub idempotency_key: Option<IdempotencyKey>,
    /// What the request asked for; compared when the key comes again.
    pub fingerprint: Fingerprint,
    /// The width that was asked for, where a booking has cut it.
    #[serde(default, with = "super::time::millis_option", skip_serializing_if = "Option::is_none")]
    pub asked_ttl: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_grows_even_when_the_clock_stands_still_or_falls_back() {
        let now = Timestamp::from_millisecond(1_000).unwrap();
        let first = Fence::default().next(now);
        assert_eq!(first, Fence(1_000));
        assert_eq!(first.next(now), Fence(1_001));
        assert_eq!(first.next(Timestamp::from_millisecond(5).unwrap()), Fence(1_001));
        assert_eq!(first.next(Timestamp::from_millisecond(9_000).unwrap()), Fence(9_000));
    }
}
