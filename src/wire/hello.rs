//! The first words on the control stream.
//!
//! 1. The worker sends [`Hello`].
//! 2. The gateway answers [`Welcome`]: `accepted` with the version that both speak, or a reason why not, after which
//!    it closes the link. Until `accepted` has come the worker sends nothing else, and the link is not up: a QUIC
//!    connection alone proves nothing, because the dialler's handshake ends before the listener has judged its
//!    certificate.
//! 3. The worker sends a snapshot and then deltas ([`report`](super::report)); the gateway opens the call stream.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ProtocolRange, ProtocolVersion};

/// What a worker says of itself. Its name is in its certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// The protocol versions it speaks.
    pub protocol: ProtocolRange,
    /// Its version of Berth, for people; at most 64 characters.
    pub version: String,
    /// Drawn anew at each start of the process.
    pub run: Uuid,
    /// Grows with each start of the worker. A report of an older incarnation than the last is refused.
    pub incarnation: u64,
}

/// The gateway's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Welcome {
    /// The link is up.
    #[serde(rename_all = "camelCase")]
    Accepted {
        /// What both speak from here on.
        protocol: ProtocolVersion,
        /// True when an operator has taken the whole worker out: the worker stores it, and grants nothing new at any
        /// door until it hears otherwise.
        drained: bool,
        /// The number of the last of this worker's events that the gateway has stored; the worker goes on behind it
        /// ([`report`](super::report)). None when it has none.
        events_after: Option<u64>,
    },
    /// No common version; the worker shows both ranges to its operator and dials again at its slowest pace.
    Incompatible {
        /// What the gateway speaks.
        protocol: ProtocolRange,
    },
    /// The gateway will not have this worker.
    Refused {
        /// For the worker's operator.
        why: String,
    },
}
