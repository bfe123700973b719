//! Protocol versions.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The ALPN of a link, for good: frames and [`Hello`](super::hello::Hello) never change, so that any two versions can
/// at least tell each other that they do not fit.
pub const ALPN: &[u8] = b"berth/1";

/// A version of what is said after `Hello` and `Welcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ProtocolVersion(pub u16);

impl ProtocolVersion {
    /// The first: snapshots, deltas, dispatch, settle, renew, release.
    pub const V1: Self = Self(1);
    /// Requests that wait at the worker, waiting rooms, draining, digests, events, settled requests.
    pub const V2: Self = Self(2);
    /// Tools that run at a device ([`exec`](super::exec)), each on a stream of its own.
    pub const V3: Self = Self(3);
}

/// The versions that a node speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// The oldest.
    pub min: ProtocolVersion,
    /// The newest.
    pub max: ProtocolVersion,
}

/// The versions that this Berth speaks.
pub const PROTOCOL: ProtocolRange = ProtocolRange { min: ProtocolVersion::V2, max: ProtocolVersion::V3 };

impl ProtocolRange {
    /// The newest version that both speak.
    pub fn common(self, other: ProtocolRange) -> Option<ProtocolVersion> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min.0) } else { write!(f, "{}-{}", self.min.0, self.max.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: u16, max: u16) -> ProtocolRange {
        ProtocolRange { min: ProtocolVersion(min), max: ProtocolVersion(max) }
    }

    #[test]
    fn two_nodes_speak_the_newest_version_that_both_know() {
        assert_eq!(range(1, 3).common(range(2, 5)), Some(ProtocolVersion(3)));
        assert_eq!(range(2, 5).common(range(1, 3)), Some(ProtocolVersion(3)));
        assert_eq!(range(1, 1).common(range(2, 2)), None);
        assert_eq!(range(3, 2).common(range(1, 9)), None, "a range that is none has nothing in common");
    }
}
