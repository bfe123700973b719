//! How times and durations look in JSON: RFC 3339 UTC with microseconds, integer milliseconds (SPEC §1).

use std::time::Duration;

use jiff::Timestamp;

/// `at` as RFC 3339 in UTC with exactly six fractional digits.
pub fn rfc3339(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// Whole milliseconds, at most `u64::MAX`.
pub fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A duration without what is less than a millisecond.
pub fn whole(span: Duration) -> Duration {
    Duration::from_millis(whole_ms(span))
}

/// `at` and `span` added, or the last instant there is.
pub fn later(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// How far `at` lies after `from`; zero when it does not.
pub fn remaining(from: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(from)).unwrap_or(Duration::ZERO)
}

/// Serde form of an instant.
pub mod instant {
    use super::{Timestamp, rfc3339};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes RFC 3339.
    pub fn serialize<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&rfc3339(*at))
    }

    /// Reads RFC 3339.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        Timestamp::deserialize(from)
    }
}

/// Serde form of an instant that may be missing.
pub mod instant_option {
    use super::{Timestamp, rfc3339};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes RFC 3339 or null.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, out: S) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => out.serialize_some(&rfc3339(*at)),
            None => out.serialize_none(),
        }
    }

    /// Reads RFC 3339 or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Option::<Timestamp>::deserialize(from)
    }
}

/// Serde form of an instant between nodes: Unix microseconds.
pub mod micros {
    use super::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes microseconds.
    pub fn serialize<S: Serializer>(at: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_i64(at.as_microsecond())
    }

    /// Reads microseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        Timestamp::from_microsecond(i64::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The same of an instant that may be missing.
pub mod micros_option {
    use super::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    /// Writes microseconds or nothing.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, out: S) -> Result<S::Ok, S::Error> {
        at.map(Timestamp::as_microsecond).serialize(out)
    }

    /// Reads microseconds or nothing.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        let us = Option::<i64>::deserialize(from)?;
        us.map(Timestamp::from_microsecond).transpose().map_err(D::Error::custom)
    }
}

/// Serde form of a duration as whole milliseconds.
pub mod millis {
    use super::{Duration, whole_ms};
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes milliseconds.
    pub fn serialize<S: Serializer>(span: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_u64(whole_ms(*span))
    }

    /// Reads milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

/// Serde form of a duration that may be missing, as whole milliseconds.
pub mod millis_option {
    use super::{Duration, whole_ms};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes milliseconds or null.
    pub fn serialize<S: Serializer>(span: &Option<Duration>, out: S) -> Result<S::Ok, S::Error> {
        span.map(whole_ms).serialize(out)
    }

    /// Reads milliseconds or null.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_always_shows_six_fractional_digits() {
        let at: Timestamp = "2026-08-28T06:29:48Z".parse().unwrap();
        assert_eq!(rfc3339(at), "2026-08-28T06:29:48.000000Z");
    }

    #[test]
    fn nothing_remains_of_a_past_instant() {
        let now: Timestamp = "2026-08-28T06:29:48Z".parse().unwrap();
        assert_eq!(remaining(now, later(now, Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(remaining(later(now, Duration::from_secs(3)), now), Duration::ZERO);
    }
}
