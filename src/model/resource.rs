//! A resource as the lab file describes it.

use std::num::NonZeroU32;

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
    /// An operator has taken it out.
    Drained,
}

impl WaitingFor {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            WaitingFor::Leased => "leased",
            WaitingFor::Reserved => "reserved",
            WaitingFor::Drained => "drained",
        }
    }
}
