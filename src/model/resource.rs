//! A resource as the lab file describes it.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Labels, ResourceId};

/// The settings of one resource; they change only when its worker starts anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSpec {
    /// Its name on its worker.
    pub id: ResourceId,
    /// What selectors see.
    pub labels: Labels,
    /// How many shared leases may coexist.
    pub max_shared: NonZeroU32,
    /// What its bookings mean.
    pub bookings: BookingPolicy,
}

/// What the bookings of a resource mean (SPEC §5). The default is a coordination calendar and no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BookingPolicy {
    /// Whether they stop others.
    pub mode: BookingMode,
    /// Whether the node grants the holder its lease at the start.
    pub auto_acquire: bool,
    /// A booking that nobody has claimed so long is missed, and the rest of its window is free.
    pub no_show_after: Option<Duration>,
}

/// Whether bookings stop others (`bookings.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BookingMode {
    /// They stop other bookings only.
    #[default]
    Advisory,
    /// They stop the leases of others in their window, and those that would run into it.
    Enforced,
}

impl BookingMode {
    /// The word in the lab file.
    pub fn as_str(self) -> &'static str {
        match self {
            BookingMode::Advisory => "advisory",
            BookingMode::Enforced => "enforced",
        }
    }
}

/// What a resource is doing (SPEC §7). Only an available one is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// Free.
    Available,
    /// Held by at least one lease.
    Leased,
    /// Taken out by an operator: what is leased stays so, nothing new is granted.
    Drained,
}

impl DeviceState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceState::Available => "available",
            DeviceState::Leased => "leased",
            DeviceState::Drained => "drained",
        }
    }
}

/// Why a waiter is not served (SPEC §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitingFor {
    /// Others hold it.
    Leased,
    /// It is kept for somebody who is next.
    Reserved,
    /// A booking or a hold of somebody else is in the way.
    Booked,
    /// An operator has taken it out.
    Drained,
    /// Its worker is away.
    Absent,
}

impl WaitingFor {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitingFor::Leased => "leased",
            WaitingFor::Reserved => "reserved",
            WaitingFor::Booked => "booked",
            WaitingFor::Drained => "drained",
            WaitingFor::Absent => "absent",
        }
    }
}
