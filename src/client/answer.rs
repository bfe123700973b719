//! The objects that views travel in: one per answer, named after what it holds (SPEC §13).

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::Secret;
use crate::model::time::{instant, instant_option};
use crate::model::{Principal, Role, TokenId};
use crate::service::views::{LeaseView, RequestView, ResourceView, WorkerView};

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

/// A token as lists show it; its secret is not among what is known later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenView {
    /// Names it.
    pub id: TokenId,
    /// The principal that it authenticates.
    pub name: Principal,
    /// What that may do.
    pub role: Role,
    /// When it was made.
    #[serde(with = "instant")]
    pub created_at: Timestamp,
    /// When it was revoked.
    #[serde(with = "instant_option", default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Body of `POST /v1/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenBody {
    /// The principal's name; it can never be used twice.
    pub name: Principal,
    /// What it may do.
    pub role: Role,
}

/// Answer to a token's creation: the only time its secret is seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenCreated {
    /// The token.
    pub token: TokenView,
    /// What a client sends; whoever has it is the principal.
    #[serde(serialize_with = "shown_once")]
    pub secret: Secret,
}

fn shown_once<S: Serializer>(secret: &Secret, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(secret.expose())
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
    /// One token.
    OneToken { token: TokenView }
    /// Tokens.
    Tokens { tokens: Vec<TokenView> }
}
