//! Durations as people write them: `90s`, `15m`, `1h30m`, `2d`. A day has 24 hours.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo, Unit};

/// How short and how long a duration may be; both ends count.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The shortest that is taken.
    pub least: Duration,
    /// The longest that is taken.
    pub most: Duration,
}

/// A duration from text.
///
/// # Errors
/// What is wrong, and how a right one looks.
pub fn parse(text: &str, bounds: Bounds) -> Result<Duration, String> {
    let shown: String = text.chars().take(40).collect();
    let span: Span = text.trim().parse().map_err(|_| {
        format!("{shown:?} is no duration; write numbers with units, such as \"90s\", \"15m\", \"1h30m\" or \"2d\"")
    })?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(format!("{shown:?} counts in months or years, which differ in length; count in days"));
    }
    let length = span
        .to_duration(SpanRelativeTo::days_are_24_hours())
        .map_err(|_| format!("{shown:?} is longer than any duration; at most {}", written(bounds.most)))?;
    let within = Duration::try_from(length).ok().filter(|it| (bounds.least..=bounds.most).contains(it));
    within.ok_or_else(|| {
        let (least, most) = (written(bounds.least), written(bounds.most));
        format!("{shown:?} is out of bounds; at least {least}, at most {most}")
    })
}

/// `length` as it is written in a lab file; what is less than a microsecond is left out.
pub fn written(length: Duration) -> String {
    if length.is_zero() {
        return "0s".to_owned();
    }
    let rounded = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
    let days = length.as_secs() / 86_400;
    if length.subsec_nanos() == 0 && days > 0 && length.as_secs().is_multiple_of(86_400) {
        return format!("{days}d");
    }
    let rounded = rounded.round(Unit::Microsecond).unwrap_or(rounded);
    format!("{rounded:#}").replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { least: Duration::from_millis(1), most: Duration::from_secs(30 * 86_400) };

    #[test]
    fn durations_are_read_as_people_write_them_and_written_back_short() {
        let table = [
            ("300s", 300_000, "5m"),
            ("15m", 900_000, "15m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("1h 30m", 5_400_000, "1h30m"),
            ("90 minutes", 5_400_000, "1h30m"),
            ("2d", 172_800_000, "2d"),
            ("1w", 604_800_000, "7d"),
            ("1d12h", 129_600_000, "36h"),
            ("250ms", 250, "250ms"),
        ];
        for (text, ms, back) in table {
            let length = parse(text, BOUNDS).unwrap();
            assert_eq!((length.as_millis(), written(length).as_str()), (ms, back), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_an_example() {
        for text in ["", "15", "15 parsecs", "m", "-", "ten minutes", "1h30"] {
            let why = parse(text, BOUNDS).unwrap_err();
            assert!(why.contains("\"15m\""), "{text}: {why}");
        }
        for text in ["0s", "-5m", "31d", "5m ago", "9999999h"] {
            let why = parse(text, BOUNDS).unwrap_err();
            assert!(why.contains("at most 30d"), "{text}: {why}");
        }
        for text in ["1mo", "1y"] {
            assert!(parse(text, BOUNDS).unwrap_err().contains("count in days"), "{text}");
        }
    }
}
