//! The objects that views travel in: one per answer, named after what it holds (SPEC §13).

use serde::{Deserialize, Serialize};

use super::views::{LeaseView, RequestView, ResourceView, WorkerView};
use crate::trust::{Secret, TokenInfo};

/// Answer to an acquire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Acquired {
    /// `active`.
    pub status: AcquireStatus,
    /// What was leased.
    pub lease: LeaseView,
}

/// How an acquire ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcquireStatus {
    /// The lease is held.
    Active,
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
