//! The numbers that the operator sets for leases; one lab file sets them for every node.

use std::time::Duration;

/// `[lease]` of the lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRules {
    /// A lease's width when the caller names none.
    pub default_ttl: Duration,
    /// The widest lease a caller may ask for.
    pub max_ttl: Duration,
    /// Active leases and open requests of one requester.
    pub max_per_requester: usize,
    /// How long a settled request is remembered after its lease ended.
    pub request_retention: Duration,
}

impl Default for LeaseRules {
    fn default() -> Self {
        Self {
            default_ttl: Duration::from_secs(15 * 60),
            max_ttl: Duration::from_secs(4 * 3600),
            max_per_requester: 1,
            request_retention: Duration::from_secs(10 * 60),
        }
    }
}
