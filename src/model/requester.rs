//! Who asks (SPEC, table of words): principals, roles, sub-requesters, and the gateway in between.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::id::{InvalidId, checked_text};
use super::{Code, NodeName, Refusal};

/// The principal of a machine's own operator.
pub const ADMIN: &str = "admin";

checked_text!(
    /// Who authenticated: a token's name, or `admin`.
    Principal,
    "token name",
    "1 to 63 lower-case letters, digits, '.', '_' and '-', first a letter or digit",
    |t| {
        let bytes = t.as_bytes();
        bytes.len() <= 63
            && bytes.first().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
    }
);

checked_text!(
    /// The name of one of a principal's sub-requesters, such as a CI job.
    SubName,
    "requester sub-name",
    "1 to 64 letters, digits, '.', '_', ':' and '-', first a letter or digit",
    |t| {
        let bytes = t.as_bytes();
        bytes.len() <= 64
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))
    }
);

impl Principal {
    /// The machine's own operator.
    pub fn admin() -> Self {
        ADMIN.parse().expect("the word passes the pattern")
    }
}

/// The identity that asks: `ci`, `ci/job-17`, or on a worker `gw:gateway:ci/job-17`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Requester {
    /// The gateway that speaks for it. Only a gateway's own link may say so (SPEC §9).
    pub via: Option<NodeName>,
    /// Who authenticated; what permissions compare.
    pub principal: Principal,
    /// For whom the principal acts.
    pub sub: Option<SubName>,
}

impl Requester {
    /// A requester of this node.
    pub fn local(principal: Principal, sub: Option<SubName>) -> Self {
        Self { via: None, principal, sub }
    }

    /// The same requester as a worker sees it, coming through `gateway`.
    pub fn through(&self, gateway: &NodeName) -> Self {
        Self { via: Some(gateway.clone()), ..self.clone() }
    }

    /// The same requester as its own gateway shows it.
    pub fn bare(&self) -> Self {
        Self { via: None, ..self.clone() }
    }

    /// The owner: the requester without its sub-name.
    pub fn owner(&self) -> Self {
        Self { sub: None, ..self.clone() }
    }
}

impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gateway) = &self.via {
            write!(f, "gw:{gateway}:")?;
        }
        self.principal.fmt(f)?;
        match &self.sub {
            Some(sub) => write!(f, "/{sub}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Requester {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let (via, rest) = match text.strip_prefix("gw:").and_then(|rest| rest.split_once(':')) {
            Some((gateway, rest)) => (Some(gateway.parse()?), rest),
            None => (None, text),
        };
        let (principal, sub) = match rest.split_once('/') {
            Some((principal, sub)) => (principal, Some(sub.parse()?)),
            None => (rest, None),
        };
        Ok(Self { via, principal: principal.parse()?, sub })
    }
}

impl TryFrom<String> for Requester {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<Requester> for String {
    fn from(it: Requester) -> String {
        it.to_string()
    }
}

/// What a principal may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sees, changes nothing.
    Viewer,
    /// Its own leases and requests.
    Agent,
    /// Everything.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 3] = [Role::Viewer, Role::Agent, Role::Admin];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Agent => "agent",
            Role::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = InvalidId;

    fn from_str(word: &str) -> Result<Self, InvalidId> {
        let known = Role::ALL.into_iter().find(|role| role.as_str() == word);
        known.ok_or_else(|| InvalidId::new("role", "viewer, agent or admin", word))
    }
}

/// Who authenticated at a front door, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its name.
    pub principal: Principal,
    /// Its role.
    pub role: Role,
}

impl Caller {
    /// The machine's own operator.
    pub fn admin() -> Self {
        Self { principal: Principal::admin(), role: Role::Admin }
    }

    /// True when it may read what belongs to `holder`.
    pub fn may_read(&self, holder: &Requester) -> bool {
        self.role != Role::Agent || self.owns(holder)
    }

    /// True when it may change what belongs to `holder`.
    pub fn may_change(&self, holder: &Requester) -> bool {
        match self.role {
            Role::Viewer => false,
            Role::Agent => self.owns(holder),
            Role::Admin => true,
        }
    }

    /// True when it may do something at the device of `holder`'s lease: its owner alone, no admin either (SPEC §7).
    pub fn may_use(&self, holder: &Requester) -> bool {
        self.role != Role::Viewer && self.owns(holder)
    }

    /// Lets admins through.
    ///
    /// # Errors
    /// `INSUFFICIENT_PERMISSIONS`, saying that only an admin may do `what`.
    pub fn must_be_admin(&self, what: &str) -> Result<(), Refusal> {
        match self.role {
            Role::Admin => Ok(()),
            _ => Err(Refusal::new(Code::InsufficientPermissions, format!("only an admin may {what}"))),
        }
    }

    /// True when `holder` is this caller, or one it acts for. What came through a gateway is the gateway's.
    pub fn owns(&self, holder: &Requester) -> bool {
        holder.via.is_none() && holder.principal == self.principal
    }
}

/// On whose word a worker changes a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// A client of this node.
    Client(Caller),
    /// The gateway, for the leases that it asked for itself; it has checked their owner.
    Gateway {
        /// Its name.
        name: NodeName,
        /// True when an admin of the gateway's asks.
        admin: bool,
    },
}

impl Authority {
    /// True when a lease of `holder` may be renewed and released.
    pub fn may_change(&self, holder: &Requester) -> bool {
        match self {
            Authority::Client(caller) => caller.may_change(holder),
            Authority::Gateway { name, .. } => holder.via.as_ref() == Some(name),
        }
    }

    /// True on the word of an admin, whom the bookings of others do not stop.
    pub fn is_admin(&self) -> bool {
        match self {
            Authority::Client(caller) => caller.role == Role::Admin,
            Authority::Gateway { admin, .. } => *admin,
        }
    }
}

/// Who asks something of a calendar, and as what. Through a gateway, that vouches for both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Asker {
    /// The identity.
    pub requester: Requester,
    /// What it may do.
    pub role: Role,
}

impl Asker {
    /// True when `holder` has the same owner.
    pub fn owns(&self, holder: &Requester) -> bool {
        self.requester.via == holder.via && self.requester.principal == holder.principal
    }

    /// True when it may read what belongs to `holder`.
    pub fn may_read(&self, holder: &Requester) -> bool {
        self.role != Role::Agent || self.owns(holder)
    }

    /// True when it may see a hold of `holder` without its token. A viewer sees none (SPEC §12).
    pub fn may_see_hold_of(&self, holder: &Requester) -> bool {
        self.may_change(holder)
    }

    /// True when it may change what belongs to `holder`.
    pub fn may_change(&self, holder: &Requester) -> bool {
        match self.role {
            Role::Viewer => false,
            Role::Agent => self.owns(holder),
            Role::Admin => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(name: &str, role: Role) -> Caller {
        Caller { principal: name.parse().unwrap(), role }
    }

    #[test]
    fn a_requester_reads_back_as_it_was_written() {
        for text in ["ci", "ci/job-17", "ci/a:b", "gw:gateway:ci/job-17", "gw:gw-2:admin"] {
            assert_eq!(text.parse::<Requester>().unwrap().to_string(), text);
        }
        for bad in ["", "/x", "ci/", "gw::ci", "gw:GW:ci", "CI", "ci/job 17", "gw:gateway:"] {
            assert!(bad.parse::<Requester>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_agent_owns_its_subs_but_not_what_came_through_a_gateway() {
        let ci = caller("ci", Role::Agent);
        assert!(ci.may_change(&"ci/job-1".parse().unwrap()));
        assert!(!ci.may_change(&"ci2".parse().unwrap()));
        assert!(!ci.may_read(&"gw:gateway:ci".parse().unwrap()));
        assert!(caller("ops", Role::Viewer).may_read(&"ci".parse().unwrap()));
        assert!(!caller("ops", Role::Viewer).may_change(&"ops".parse().unwrap()));
    }

    #[test]
    fn a_gateway_changes_only_what_it_asked_for_itself() {
        for admin in [false, true] {
            let gateway = Authority::Gateway { name: "gateway".parse().unwrap(), admin };
            assert!(gateway.may_change(&"gw:gateway:ci".parse().unwrap()));
            assert!(!gateway.may_change(&"gw:other:ci".parse().unwrap()));
            assert!(!gateway.may_change(&"ci".parse().unwrap()));
            assert_eq!(gateway.is_admin(), admin);
        }
    }
}
