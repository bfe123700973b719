//! Durations as people write them: `10m`, `1h30m`, `300s` (SPEC §1).

use std::time::Duration;

use crate::model::span::{Bounds, parse};
use crate::model::time::whole_ms;
use crate::model::{Timeout, Ttl};

/// What can be asked for; what a node grants is bounded far below.
const BOUNDS: Bounds = Bounds { least: Duration::from_millis(1), most: Duration::from_secs(10 * 365 * 24 * 3600) };

/// A duration of 1 ms to 10 years in whole milliseconds; a day has 24 hours.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let length = parse(text, BOUNDS)?;
    if length.subsec_nanos() % 1_000_000 == 0 {
        Ok(length)
    } else {
        Err("is no whole number of milliseconds".to_owned())
    }
}

/// A lease's width.
pub(super) fn ttl(text: &str) -> Result<Ttl, String> {
    Ttl::try_from(whole_ms(duration(text)?)).map_err(|error| error.to_string())
}

/// The bound of a wait.
pub(super) fn timeout(text: &str) -> Result<Timeout, String> {
    Timeout::try_from(whole_ms(duration(text)?)).map_err(|_| "is out of bounds; at most 30d".to_owned())
}

/// Roughly `span`, in its two largest units: `14m59s`, `3d4h`, `15m`.
pub(super) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes, rest) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let (large, small) = match (days, hours, minutes) {
        (0, 0, 0) if rest == 0 => return format!("{}ms", span.as_millis()),
        (0, 0, 0) => return format!("{rest}s"),
        (0, 0, _) => ((minutes, 'm'), (rest, 's')),
        (0, _, _) => ((hours, 'h'), (minutes, 'm')),
        _ => ((days, 'd'), (hours, 'h')),
    };
    match small {
        (0, _) => format!("{}{}", large.0, large.1),
        (count, unit) => format!("{}{}{count}{unit}", large.0, large.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in [("10m", 600), ("1h30m", 5400), ("300s", 300), ("1h 30m", 5400), ("2d", 172_800)] {
            assert_eq!(duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
    }

    #[test]
    fn what_is_no_duration_says_how_one_looks() {
        assert!(duration("1us").is_err() && duration("1500us").is_err(), "whole milliseconds");
        assert!(duration("99999d").unwrap_err().contains("at most 3650d"));
    }

    #[test]
    fn the_time_left_is_shown_in_two_units() {
        for (seconds, shown) in [(9, "9s"), (899, "14m59s"), (900, "15m"), (7_500, "2h5m"), (274_000, "3d4h")] {
            assert_eq!(short(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(short(Duration::from_millis(300)), "300ms");
    }
}
