//! Durations as people write them: `10m`, `1h30m`, `300s` (SPEC §1).

use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{SignedDuration, SpanRelativeTo};

use crate::model::Ttl;
use crate::model::time::whole_ms;

/// The longest that can be asked for; what a node grants is bounded far below.
const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A duration of 1 ms to 10 years in whole milliseconds; a day has 24 hours.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = |why: &str| format!("{why}; write it like 10m, 1h30m or 300s");
    let span = SpanParser::new().parse_span(text).map_err(|_| wrong("is no duration"))?;
    let length: SignedDuration = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| wrong("months and years have no fixed length"))?;
    let length = Duration::try_from(length).map_err(|_| wrong("is negative"))?;
    if length.is_zero() || length > MAX {
        return Err(wrong("is not between 1 ms and 10 years"));
    }
    if length.subsec_nanos() % 1_000_000 != 0 {
        return Err(wrong("is no whole number of milliseconds"));
    }
    Ok(length)
}

/// A lease's width.
pub(super) fn ttl(text: &str) -> Result<Ttl, String> {
    Ttl::try_from(whole_ms(duration(text)?)).map_err(|error| error.to_string())
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
        for bad in ["", "300", "ten", "-5m", "5m ago", "0s", "1us", "1mo", "1y", "99999d"] {
            let error = duration(bad).unwrap_err();
            assert!(error.ends_with("write it like 10m, 1h30m or 300s"), "{bad}: {error}");
        }
    }

    #[test]
    fn the_time_left_is_shown_in_two_units() {
        for (seconds, shown) in [(9, "9s"), (899, "14m59s"), (900, "15m"), (7_500, "2h5m"), (274_000, "3d4h")] {
            assert_eq!(short(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(short(Duration::from_millis(300)), "300ms");
    }
}
