//! The objects that views travel in: one per answer, named after what it holds (SPEC §13).

use serde::{Deserialize, Serialize};

use super::views::{EventView, LeaseView, RequestView, ResourceView, WorkerView};
pub use crate::model::Notice;
use crate::model::{Mode, ResourceId, Ticket};
use crate::trust::{Secret, TokenInfo};

/// Answer to an acquire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Acquired {
    /// The lease is held.
    Active {
        /// It.
        lease: Box<LeaseView>,
    },
    /// It stands in the waiting room.
    Pending(Pending),
}

/// A place in the waiting room of a resource (SPEC §3). Asking again keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pending {
    /// What is waited for.
    pub resource_id: ResourceId,
    /// Alone or shared.
    pub mode: Mode,
    /// The place over the whole queue, from 1.
    pub waiting_position: usize,
    /// The place in line, for a node that was restarted meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<Ticket>,
}

/// Answer to a renew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Renewed {
    /// The lease.
    pub lease: LeaseView,
    /// What happened to the device since the last renew.
    pub notices: Vec<Notice>,
}

/// Answer to leaving a waiting room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// False when the caller did not stand in it.
    pub left: bool,
}

/// Events in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// They.
    pub events: Vec<EventView>,
    /// The number to go on after: that of the last event here, else of the last there is.
    pub last_seq: u64,
}

/// Answer to a token's creation: the only time its secret is seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenCreated {
    /// The token.
    pub token: TokenInfo,
    /// What a client sends; whoever has it is the principal.
    #[serde(with = "secret")]
    pub secret: Secret,
}

/// A secret in JSON: only in that one answer.
mod secret {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Secret;

    pub(super) fn serialize<S: Serializer>(secret: &Secret, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(secret.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        Secret::parse(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("no secret of a token"))
    }
}

macro_rules! holders {
    ($($(#[$doc:meta])* $name:ident { $field:ident: $inner:ty })*) => {
        $($(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            /// What it holds.
            pub $field: $inner,
        })*
    };
}

holders! {
    /// One lease.
    OneLease { lease: LeaseView }
    /// Leases.
    Leases { leases: Vec<LeaseView> }
    /// One lease request.
    OneRequest { request: RequestView }
    /// One resource.
    OneResource { resource: ResourceView }
    /// Resources.
    Resources { resources: Vec<ResourceView> }
    /// Workers.
    Workers { workers: Vec<WorkerView> }
    /// Open lease requests.
    Requests { requests: Vec<RequestView> }
    /// One token.
    OneToken { token: TokenInfo }
    /// Tokens.
    Tokens { tokens: Vec<TokenInfo> }
}
