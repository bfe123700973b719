//! Holds: short claims on a slot, with a secret token, before they become bookings (SPEC §6).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::booking::{is_calendar_id, names_of_a_worker};
use super::id::{InvalidId, checked_text};
use super::{BookingId, IdempotencyKey, Requester, ResourceId, Window};

checked_text!(
    /// Names a hold: `hold_<uuid>`, or `<worker>.hold_<uuid>` through a gateway. It is no secret.
    HoldId,
    "hold id",
    "'hold_' and a UUID, before it the worker's name and a dot where it came through a gateway",
    |t| is_calendar_id("hold_", t)
);

names_of_a_worker!(HoldId, "hold_");

/// What has become of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldStatus {
    /// Its slot is nobody else's.
    Active,
    /// It has become a booking.
    Confirmed,
    /// It was given back.
    Released,
    /// Its time has passed.
    Expired,
}

impl HoldStatus {
    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            HoldStatus::Active => "active",
            HoldStatus::Confirmed => "confirmed",
            HoldStatus::Released => "released",
            HoldStatus::Expired => "expired",
        }
    }

    /// The status of that word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [HoldStatus::Active, HoldStatus::Confirmed, HoldStatus::Released, HoldStatus::Expired];
        all.into_iter().find(|status| status.as_str() == word)
    }
}

/// What is kept of a hold's token: its SHA-256. Two are compared in constant time.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash of a token's text.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    /// As it is stored.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for TokenHash {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// A hold as its worker keeps it, but its deadline: that runs on boot time while the node runs and on wall time on disk,
/// so whoever keeps a hold keeps the deadline beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Its name on its worker.
    pub id: HoldId,
    /// On which resource.
    pub resource_id: ResourceId,
    /// Whose it is.
    pub holder: Requester,
    /// The window of its slot.
    pub window: Window,
    /// What has become of it.
    pub status: HoldStatus,
    /// How long it was made for.
    pub ttl: Duration,
    /// The key under which it was asked for.
    pub key: Option<IdempotencyKey>,
    /// What is kept of its token.
    pub token: TokenHash,
    /// The booking that it has become.
    pub booking: Option<BookingId>,
    /// When it was made, wall time.
    pub created_at: Timestamp,
    /// When it was confirmed, released or expired, wall time.
    pub settled_at: Option<Timestamp>,
}
