//! What a holder is told of its device (SPEC §4, §7).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Something that happened to a device while it was leased.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// When.
    #[serde(with = "super::time::instant")]
    pub at: Timestamp,
    /// What.
    pub event: NoticeKind,
    /// The same, for people.
    pub message: String,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// It fails, or is not there any more. The lease goes on.
    DeviceUnhealthy,
    /// It is as it should be again.
    DeviceRecovered,
}

impl NoticeKind {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            NoticeKind::DeviceUnhealthy => "device_unhealthy",
            NoticeKind::DeviceRecovered => "device_recovered",
        }
    }
}

/// Notices that are kept for one lease until it is renewed; the oldest go first.
pub const NOTICES_MAX: usize = 16;
