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
}
