//! A resource as the lab file describes it.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Driver, Labels, ResourceId};

/// The settings of one resource; they change only when the lab file is read anew.
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
    /// What happens around its leases.
    pub driver: Arc<Driver>,
    /// How long it is granted to nobody after a lease that was not released; zero for not at all.
    pub lock_delay: Duration,
}

impl ResourceSpec {
    /// One without anything but its name.
    pub fn bare(id: ResourceId) -> Self {
        Self {
            id,
            labels: Labels::new(),
            max_shared: NonZeroU32::MIN,
            bookings: BookingPolicy::default(),
            driver: Arc::default(),
            lock_delay: Duration::ZERO,
        }
    }
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
    /// It is made ready for a lease that does not exist yet.
    Preparing,
    /// Held by at least one lease.
    Leased,
    /// It is brought back to what it was before the lease.
    Resetting,
    /// A lease has ended that nobody released: it is left alone for a while.
    Cooling,
    /// It has failed, and is granted again after a try that succeeds or when an operator says so.
    Quarantined,
    /// Its driver does not see it, or it is in use elsewhere.
    Absent,
    /// Taken out by an operator: what is leased stays so, nothing new is granted.
    Drained,
}

impl DeviceState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            DeviceState::Available => "available",
            DeviceState::Preparing => "preparing",
            DeviceState::Leased => "leased",
            DeviceState::Resetting => "resetting",
            DeviceState::Cooling => "cooling",
            DeviceState::Quarantined => "quarantined",
            DeviceState::Absent => "absent",
            DeviceState::Drained => "drained",
        }
    }
}

/// Why a waiter is not served (SPEC §7), in the order of what is likely to change first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitingFor {
    /// It is made ready, for this request or for another.
    Preparing,
    /// Others hold it.
    Leased,
    /// It is brought back to what it was before a lease.
    Resetting,
    /// It is left alone for a while after a lease that nobody released.
    Cooling,
    /// It is kept for somebody who is next.
    Reserved,
    /// A booking or a hold of somebody else is in the way.
    Booked,
    /// It has failed.
    Quarantined,
    /// An operator has taken it out.
    Drained,
    /// Its driver does not see it, or its worker is away.
    Absent,
}

impl WaitingFor {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitingFor::Preparing => "preparing",
            WaitingFor::Leased => "leased",
            WaitingFor::Resetting => "resetting",
            WaitingFor::Cooling => "cooling",
            WaitingFor::Reserved => "reserved",
            WaitingFor::Booked => "booked",
            WaitingFor::Quarantined => "quarantined",
            WaitingFor::Drained => "drained",
            WaitingFor::Absent => "absent",
        }
    }
}
