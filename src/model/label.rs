//! Labels: what a selector asks about (SPEC §1).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::id::{InvalidId, checked_text};

checked_text!(
    /// A label's name. Well-known: `platform`, `model`, `os`.
    LabelKey,
    "label key",
    "1 to 63 lower-case letters, digits, '.', '_' and '-', first a letter",
    |t| {
        let bytes = t.as_bytes();
        bytes.len() <= 63
            && bytes.first().is_some_and(u8::is_ascii_lowercase)
            && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-'))
    }
);

checked_text!(
    /// A label's value.
    LabelValue,
    "label value",
    "at most 128 characters, none of them a control character",
    |t| t.chars().count() <= 128 && !t.chars().any(char::is_control)
);

/// The labels of one resource, in the order of their keys.
pub type Labels = BTreeMap<LabelKey, LabelValue>;
