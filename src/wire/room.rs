//! What is asked of a waiting room and of a resource by its name, besides leases.
//!
//! Names are the worker's own. Who waits there is told in pages, so that an answer fits a frame.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::report::ResourceReport;
use crate::limits::{FRAME_BYTES_MAX, WAITERS_PER_FRAME_MAX};
use crate::model::time::micros;
use crate::model::{Mode, Priority, Requester, ResourceId};

/// One who waits takes less than this: a requester and numbers.
const ROW_BYTES_MAX: usize = 400;
const _: () = assert!(WAITERS_PER_FRAME_MAX * ROW_BYTES_MAX + 64 * 1024 < FRAME_BYTES_MAX);

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RoomAsk {
    /// Who waits for a resource, local clients included. Answer: `waiters`.
    Waiters {
        /// Which resource.
        resource: ResourceId,
        /// How many at the front are known already.
        after: u64,
    },
    /// Take an unattended waiter of this gateway's out. Answer: `left`.
    Leave {
        /// Of which resource.
        resource: ResourceId,
        /// `gw:<gateway>:<requester>`.
        requester: Requester,
    },
    /// Take a resource out, or bring it back. Answer: `resource`.
    Drain {
        /// Which.
        resource: ResourceId,
        /// Which of the two.
        drained: bool,
    },
    /// Bring a device in quarantine back. Answer: `resource`.
    Clear {
        /// Which resource.
        resource: ResourceId,
    },
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "read, handed on and dropped: few at a time")]
pub enum RoomAnswer {
    /// Those who wait, in their order.
    Waiters {
        /// At most [`WAITERS_PER_FRAME_MAX`].
        waiters: Vec<WaiterRow>,
        /// True when there are more behind them.
        more: bool,
    },
    /// Whether it stood there.
    Left(bool),
    /// The resource as it now is.
    Resource(ResourceReport),
}

/// One who waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaiterRow {
    /// Who; of this gateway's with its prefix.
    pub holder: Requester,
    /// Since when.
    #[serde(with = "micros")]
    pub joined_at: Timestamp,
    /// When it last asked, or was asked about.
    #[serde(with = "micros")]
    pub last_seen: Timestamp,
    /// Alone or shared.
    pub mode: Mode,
    /// Its rank.
    pub priority: Priority,
}
