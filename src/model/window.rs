//! Windows of wall time, half-open: from their start up to, and without, their end (SPEC §5).

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::time::remaining;

/// `[starts_at, ends_at)`, never empty. Two that meet end to start do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(i64, i64)", into = "(i64, i64)")]
pub struct Window {
    starts_at: Timestamp,
    ends_at: Timestamp,
}

impl Window {
    /// The window between two instants, in whole microseconds; none when it would be empty or reversed.
    pub fn new(starts_at: Timestamp, ends_at: Timestamp) -> Option<Self> {
        Self::try_from((starts_at.as_microsecond(), ends_at.as_microsecond())).ok()
    }

    /// Its first instant.
    pub fn starts_at(&self) -> Timestamp {
        self.starts_at
    }

    /// The first instant after it.
    pub fn ends_at(&self) -> Timestamp {
        self.ends_at
    }

    /// How long it is.
    pub fn width(&self) -> Duration {
        remaining(self.starts_at, self.ends_at)
    }

    /// True when `at` lies in it.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.starts_at <= at && at < self.ends_at
    }

    /// True when the two have an instant in common.
    pub fn overlaps(&self, other: &Window) -> bool {
        self.starts_at < other.ends_at && other.starts_at < self.ends_at
    }

    /// True when it has passed.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.ends_at <= now
    }
}

impl TryFrom<(i64, i64)> for Window {
    type Error = &'static str;

    fn try_from((starts_at, ends_at): (i64, i64)) -> Result<Self, Self::Error> {
        let instant = |us| Timestamp::from_microsecond(us).map_err(|_| "a window's edge is no instant");
        match (instant(starts_at)?, instant(ends_at)?) {
            (starts_at, ends_at) if starts_at < ends_at => Ok(Self { starts_at, ends_at }),
            _ => Err("a window ends after it starts"),
        }
    }
}

impl From<Window> for (i64, i64) {
    fn from(it: Window) -> Self {
        (it.starts_at.as_microsecond(), it.ends_at.as_microsecond())
    }
}

/// A window as a caller names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// When it starts.
    #[serde(with = "super::time::micros")]
    pub starts_at: Timestamp,
    /// How far it goes.
    pub length: SlotLength,
}

/// How far a window goes, as a caller names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlotLength {
    /// So long: `durationMs`.
    Lasting(#[serde(with = "super::time::millis")] Duration),
    /// Up to this instant: `endsAt`.
    Until(#[serde(with = "super::time::micros")] Timestamp),
}

impl SlotLength {
    /// The field in which it was named.
    pub fn field(&self) -> &'static str {
        match self {
            SlotLength::Lasting(_) => "durationMs",
            SlotLength::Until(_) => "endsAt",
        }
    }
}

/// Another window for a booking; what is left out stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rebooking {
    /// Another start.
    #[serde(with = "super::time::micros_option")]
    pub starts_at: Option<Timestamp>,
    /// Another length or end.
    pub length: Option<SlotLength>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from: i64, to: i64) -> Window {
        Window::try_from((from, to)).unwrap()
    }

    #[test]
    fn windows_that_meet_end_to_start_do_not_overlap() {
        let noon = window(10, 20);
        assert!(!noon.overlaps(&window(20, 30)) && !window(20, 30).overlaps(&noon));
        assert!(!noon.overlaps(&window(0, 10)));
        for other in [window(19, 21), window(0, 11), window(12, 13), window(0, 30), noon] {
            assert!(noon.overlaps(&other) && other.overlaps(&noon), "{other:?}");
        }
    }

    #[test]
    fn a_window_has_its_start_and_not_its_end() {
        let noon = window(10, 20);
        let at = |us| Timestamp::from_microsecond(us).unwrap();
        assert!(noon.contains(at(10)) && noon.contains(at(19)) && !noon.contains(at(20)) && !noon.contains(at(9)));
        assert!(noon.is_over(at(20)) && !noon.is_over(at(19)));
    }

    #[test]
    fn no_window_is_empty_or_reversed() {
        assert!(Window::try_from((10, 10)).is_err() && Window::try_from((11, 10)).is_err());
        assert!(Window::try_from((0, i64::MAX)).is_err(), "no instant");
    }
}
