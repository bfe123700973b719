//! Local time: IANA time zones, and what a clock on the wall there shows over a change of DST (SPEC §5).
//!
//! One rule for every local time that is asked for: one that a change of DST skips is moved to the end of the skipped
//! hour, and of one that comes twice the first is meant.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, fmt::temporal::DateTimeParser};
use serde::{Deserialize, Serialize};

use super::id::InvalidId;

/// A time zone of the IANA database, such as `Europe/Warsaw`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(TimeZone);

impl Zone {
    /// The name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// What a clock on the wall shows there at `at`.
    pub fn local(&self, at: Timestamp) -> DateTime {
        self.0.to_datetime(at)
    }

    /// When a clock on the wall there shows `local`.
    ///
    /// # Errors
    /// When that is beyond what a timestamp can say.
    pub fn instant(&self, local: DateTime) -> Result<Timestamp, String> {
        let ambiguous = self.0.to_ambiguous_timestamp(local);
        let found = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier(),
            AmbiguousOffset::Gap { .. } => ambiguous.later().map(|later| self.end_of_gap(later)),
        };
        found.map_err(|_| format!("{local} in {self} is no time that can be written down"))
    }

    /// The change of DST at or just before `later`, which lies as far behind it as the skipped time was into the gap.
    fn end_of_gap(&self, later: Timestamp) -> Timestamp {
        let behind = later.checked_add(jiff::SignedDuration::from_nanos(1)).unwrap_or(later);
        self.0.preceding(behind).next().map_or(later, |change| change.timestamp())
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Zone {
    type Err = InvalidId;

    fn from_str(name: &str) -> Result<Self, InvalidId> {
        let zone = (name.len() <= 64).then(|| TimeZone::get(name).ok()).flatten();
        let known = zone.filter(|zone| zone.iana_name().is_some());
        known.map(Self).ok_or_else(|| InvalidId::new("time zone", "an IANA name such as Europe/Warsaw or UTC", name))
    }
}

impl TryFrom<String> for Zone {
    type Error = InvalidId;

    fn try_from(name: String) -> Result<Self, InvalidId> {
        name.parse()
    }
}

impl From<Zone> for String {
    fn from(it: Zone) -> String {
        it.name().to_owned()
    }
}

/// An instant as people write it: RFC 3339 with any offset, or a local time with its zone in brackets,
/// `2026-10-25T02:30[Europe/Warsaw]`. The zone comes back beside it where one was named.
///
/// # Errors
/// What is wrong, and how a right one looks.
pub fn parse_instant(text: &str) -> Result<(Timestamp, Option<Zone>), String> {
    let shown: String = text.chars().take(60).collect();
    let wrong = |why: &str| {
        format!("{shown:?} {why}; write 2026-08-28T08:00:00Z, with any offset, or 2026-08-28T10:00[Europe/Warsaw]")
    };
    let Some((local, zone)) = text.split_once('[') else {
        return text.parse::<Timestamp>().map(|at| (at, None)).map_err(|_| wrong("is no instant"));
    };
    let name = zone.strip_suffix(']').ok_or_else(|| wrong("has no closing bracket"))?;
    let zone: Zone = name.parse().map_err(|error: InvalidId| error.to_string())?;
    if let Ok(at) = local.parse::<Timestamp>() {
        // An offset says already which of two is meant; one that the zone does not have there is a mistake.
        // With Z it names none, and a local time cannot be read from it.
        let given = |text| DateTimeParser::new().parse_datetime(text).is_ok_and(|given| zone.local(at) == given);
        let fits = local.ends_with(['Z', 'z']) || given(local);
        return if fits { Ok((at, Some(zone))) } else { Err(wrong("has an offset that the zone does not have then")) };
    }
    let local: DateTime = local.parse().map_err(|_| wrong("is no local time"))?;
    Ok((zone.instant(local)?, Some(zone)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> String {
        parse_instant(text).unwrap().0.to_string()
    }

    #[test]
    fn an_instant_is_read_with_any_offset_or_with_its_zone() {
        for (text, instant) in [
            ("2026-08-28T08:00:00Z", "2026-08-28T08:00:00Z"),
            ("2026-08-28T10:00:00+02:00", "2026-08-28T08:00:00Z"),
            ("2026-08-28T13:45+05:45", "2026-08-28T08:00:00Z"),
            ("2026-08-28T10:00[Europe/Warsaw]", "2026-08-28T08:00:00Z"),
            ("2026-08-28T10:00+02:00[Europe/Warsaw]", "2026-08-28T08:00:00Z"),
            ("2026-08-28T08:00Z[Europe/Warsaw]", "2026-08-28T08:00:00Z"),
            ("2026-01-28T10:00[Europe/Warsaw]", "2026-01-28T09:00:00Z"),
        ] {
            assert_eq!(at(text), instant, "{text}");
        }
    }

    #[test]
    fn a_skipped_local_time_moves_to_the_end_of_the_gap() {
        let end = "2026-03-29T01:00:00Z";
        for skipped in ["02:00", "02:30", "02:59:59"] {
            assert_eq!(at(&format!("2026-03-29T{skipped}[Europe/Warsaw]")), end, "{skipped}");
        }
        assert_eq!(at("2026-03-29T03:00[Europe/Warsaw]"), end);
        assert_eq!(at("2026-03-29T01:59[Europe/Warsaw]"), "2026-03-29T00:59:00Z");
        assert_eq!(at("2026-10-04T02:10[Australia/Lord_Howe]"), "2026-10-03T15:30:00Z", "a gap of half an hour");
    }

    #[test]
    fn of_a_doubled_local_time_the_first_is_meant_unless_an_offset_says_otherwise() {
        assert_eq!(at("2026-10-25T02:30[Europe/Warsaw]"), "2026-10-25T00:30:00Z");
        assert_eq!(at("2026-10-25T02:30+01:00[Europe/Warsaw]"), "2026-10-25T01:30:00Z");
        assert_eq!(at("2026-10-25T03:00[Europe/Warsaw]"), "2026-10-25T02:00:00Z");
    }

    #[test]
    fn what_is_no_instant_is_refused_with_an_example() {
        for text in [
            "",
            "tomorrow",
            "2026-08-28",
            "2026-08-28T08:00",
            "2026-13-01T00:00:00Z",
            "2026-08-28T10:00[Europe/Warsaw",
            "2026-08-28T10:00+05:00[Europe/Warsaw]",
            "[Europe/Warsaw]",
        ] {
            assert!(parse_instant(text).unwrap_err().contains("2026-08-28T08:00:00Z"), "{text}");
        }
        assert!(parse_instant("2026-08-28T10:00[Mars/Olympus]").unwrap_err().contains("Europe/Warsaw"));
    }
}
