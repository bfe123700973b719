//! Identifiers. Each is a newtype whose only constructor checks the pattern of SPEC §1.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text is no identifier; says what one looks like.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a {what}: {rule}")]
pub struct InvalidId {
    what: &'static str,
    rule: &'static str,
    given: String,
}

impl InvalidId {
    pub(super) fn new(what: &'static str, rule: &'static str, given: &str) -> Self {
        // The text may be a megabyte of anything; a message shows its beginning.
        Self { what, rule, given: given.chars().take(80).collect() }
    }
}

/// True when `text` is 1 to `max` ASCII bytes, the first accepted by `first` and the others by `rest`.
fn shaped(text: &str, max: usize, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= max && bytes.first().is_some_and(|&b| first(b)) && bytes[1..].iter().all(|&b| rest(b))
}

fn alphanumeric(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

fn lower_or_digit(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let check: fn(&str) -> bool = $check;
                if check(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId::new($what, $rule, text))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(it: $name) -> String {
                it.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
pub(super) use checked_text;

checked_text!(
    /// Names a resource on its worker.
    ResourceId,
    "resource id",
    "1 to 128 letters, digits, '.', '_' and '-', first a letter or digit",
    |t| shaped(t, 128, alphanumeric, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
);

checked_text!(
    /// Names a tool that a holder may run on the machine that owns its device.
    ToolName,
    "tool name",
    "1 to 63 letters, digits, '.', '_' and '-', first a letter or digit",
    |t| shaped(t, 63, alphanumeric, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
);

checked_text!(
    /// Names a node: the gateway or a worker.
    NodeName,
    "node name",
    "1 to 63 lower-case letters, digits and '-', first a letter or digit",
    |t| shaped(t, 63, lower_or_digit, |b| lower_or_digit(b) || b == b'-')
);

checked_text!(
    /// Names a lab; part of every certificate's role.
    LabName,
    "lab name",
    "1 to 63 lower-case letters, digits and '-', first a letter or digit",
    |t| shaped(t, 63, lower_or_digit, |b| lower_or_digit(b) || b == b'-')
);

checked_text!(
    /// A lease id that the requester chose. It holds no dot, so it can never be taken for a worker's lease
    /// seen through a gateway.
    ChosenLeaseId,
    "lease id",
    "1 to 64 ASCII letters, digits, '_' and '-', first a letter or digit; no dot",
    |t| shaped(t, 64, alphanumeric, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
);

checked_text!(
    /// Names a lease: chosen by the requester, `lse_<uuid>`, or `<worker>.lse_<uuid>` through a gateway.
    LeaseId,
    "lease id",
    "1 to 128 ASCII letters, digits, '.', '_' and '-', first a letter or digit",
    |t| shaped(t, 128, alphanumeric, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
);

checked_text!(
    /// Names a lease request: `req_<uuid>`.
    RequestId,
    "lease request id",
    "'req_' and a UUID",
    |t| t.strip_prefix("req_").is_some_and(|rest| rest.len() <= 36 && Uuid::try_parse(rest).is_ok())
);

checked_text!(
    /// Names a token in lists: `tok_<uuid>`. It is no secret.
    TokenId,
    "token id",
    "'tok_' and a UUID",
    |t| t.strip_prefix("tok_").is_some_and(|rest| rest.len() <= 36 && Uuid::try_parse(rest).is_ok())
);

checked_text!(
    /// Names an event: `evt_<uuid>`.
    EventId,
    "event id",
    "'evt_' and a UUID",
    |t| t.strip_prefix("evt_").is_some_and(|rest| rest.len() <= 36 && Uuid::try_parse(rest).is_ok())
);

checked_text!(
    /// A place in line, signed by the node that gave it out (SPEC §2). What it says is checked where it is used; one
    /// that does not verify is ignored.
    Ticket,
    "ticket",
    "1 to 1024 printable ASCII characters, as a node gave it out",
    |t| (1..=1024).contains(&t.len()) && t.bytes().all(|b| (0x21..0x7f).contains(&b))
);

checked_text!(
    /// A caller's own name for one attempt; a retry under the same key gets the first answer (SPEC §2).
    IdempotencyKey,
    "idempotency key",
    "1 to 200 printable ASCII characters",
    |t| (1..=200).contains(&t.len()) && t.bytes().all(|b| (0x20..0x7f).contains(&b))
);

checked_text!(
    /// A free text that its writer attaches to a lease.
    Note,
    "note",
    "at most 512 characters, none of them a control character",
    |t| t.chars().count() <= 512 && !t.chars().any(char::is_control)
);

impl LeaseId {
    /// A new id for a lease whose requester chose none.
    pub fn generate() -> Self {
        Self(format!("lse_{}", Uuid::new_v4()))
    }

    /// The gateway's name for a lease that `worker` calls `inner`.
    pub fn through(worker: &NodeName, inner: &LeaseId) -> Self {
        Self(format!("{worker}.{inner}"))
    }

    /// The same text as a caller-chosen id, where it has that shape.
    pub fn as_chosen(&self) -> Option<ChosenLeaseId> {
        self.0.parse().ok()
    }
}

impl From<ChosenLeaseId> for LeaseId {
    fn from(chosen: ChosenLeaseId) -> Self {
        Self(chosen.0)
    }
}

impl RequestId {
    /// A new id. Version 7: requests sort by the time they were made.
    pub fn generate() -> Self {
        Self(format!("req_{}", Uuid::now_v7()))
    }
}

impl EventId {
    /// A new id.
    pub fn generate() -> Self {
        Self(format!("evt_{}", Uuid::now_v7()))
    }
}

impl TokenId {
    /// A new id.
    pub fn generate() -> Self {
        Self(format!("tok_{}", Uuid::new_v4()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_chosen_lease_id_is_accepted_or_refused_as_the_examples_say() {
        let longest = "a".repeat(64);
        for good in ["myid", "ad-7f3a_01", "lse_123", "MyID", "0", longest.as_str()] {
            assert!(good.parse::<ChosenLeaseId>().is_ok(), "{good}");
        }
        let too_long = "a".repeat(65);
        for bad in ["", too_long.as_str(), "w1.myid", "my id", "-s", "--help", "_x", "ząb", "a\n"] {
            assert!(bad.parse::<ChosenLeaseId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_node_name_has_no_dot_so_a_prefixed_lease_id_splits_in_one_way() {
        assert!("rack.1".parse::<NodeName>().is_err());
        let id = LeaseId::through(&"rack-1".parse().unwrap(), &LeaseId::generate());
        assert!(id.as_str().starts_with("rack-1.lse_"));
        assert_eq!(id.as_chosen(), None);
    }

    #[test]
    fn a_message_shows_only_the_beginning_of_a_huge_text() {
        let error = "é".repeat(100_000).parse::<ResourceId>().unwrap_err();
        assert!(error.to_string().len() < 400);
    }

    #[test]
    fn generated_ids_pass_their_own_check() {
        assert!(LeaseId::generate().as_str().parse::<ChosenLeaseId>().is_ok());
        assert!(RequestId::generate().as_str().parse::<RequestId>().is_ok());
        assert!(TokenId::generate().as_str().parse::<TokenId>().is_ok());
    }
}
