//! Recurring windows: the same local time every day or week (SPEC §5).

use jiff::civil::Date;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use super::Zone;

/// The most occurrences of one series.
pub const OCCURRENCES_MAX: usize = 400;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Every {
    /// Each day.
    Day,
    /// Each seventh day.
    Week,
}

/// A rule by which a window comes again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeat {
    /// How often.
    pub every: Every,
    /// The last day, there, on which one may start.
    #[serde(deserialize_with = "day")]
    pub until: Date,
    /// Whose clock keeps the time of day.
    pub tz: Zone,
}

/// A day, as `2026-12-18` and in no other way: a time of day beside it would be dropped without a word.
fn day<'de, D: Deserializer<'de>>(from: D) -> Result<Date, D::Error> {
    let text = String::deserialize(from)?;
    let is_day = text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() });
    let wrong = || D::Error::custom("must be a day, as 2026-12-18 is");
    if is_day { text.parse().map_err(|_| wrong()) } else { Err(wrong()) }
}

impl Repeat {
    /// When each occurrence starts, the first of them at `first`. Over a change of DST the local time stays; where that
    /// is skipped or comes twice, the rule of [`super::zone`] holds.
    ///
    /// # Errors
    /// The field of the rule that is wrong, and why: it ends before it begins, or goes on for too long.
    pub fn starts(&self, first: Timestamp) -> Result<Vec<Timestamp>, (&'static str, String)> {
        let local = self.tz.local(first);
        if self.until < local.date() {
            let why = format!("the first is on {}; let it end then or later", local.date());
            return Err(("repeat.until", why));
        }
        let step = match self.every {
            Every::Day => 1,
            Every::Week => 7,
        };
        let mut starts = vec![first];
        let beyond = |_| ("repeat.until", "it goes beyond what can be written down".to_owned());
        for index in 1_i64.. {
            let next = local.checked_add(Span::new().days(index * step)).map_err(beyond)?;
            if next.date() > self.until {
                break;
            }
            if starts.len() == OCCURRENCES_MAX {
                let why = format!("a series has at most {OCCURRENCES_MAX} occurrences; let it end sooner");
                return Err(("repeat.until", why));
            }
            starts.push(self.tz.instant(next).map_err(|why| ("repeat.until", why))?);
        }
        Ok(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(every: Every, first: &str, until: &str, tz: &str) -> Vec<String> {
        let repeat = Repeat { every, until: until.parse().unwrap(), tz: tz.parse().unwrap() };
        let starts = repeat.starts(first.parse().unwrap()).unwrap();
        starts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn local_time_is_kept_over_both_changes_of_dst() {
        let weeks = starts(Every::Week, "2026-03-23T09:00:00Z", "2026-04-06", "Europe/Warsaw");
        assert_eq!(weeks, ["2026-03-23T09:00:00Z", "2026-03-30T08:00:00Z", "2026-04-06T08:00:00Z"]);
        let days = starts(Every::Day, "2026-10-24T08:00:00Z", "2026-10-26", "Europe/Warsaw");
        assert_eq!(days, ["2026-10-24T08:00:00Z", "2026-10-25T09:00:00Z", "2026-10-26T09:00:00Z"]);
    }

    #[test]
    fn a_skipped_occurrence_moves_and_a_doubled_one_is_the_first() {
        let spring = starts(Every::Day, "2026-03-28T01:30:00Z", "2026-03-30", "Europe/Warsaw");
        assert_eq!(spring, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        let autumn = starts(Every::Day, "2026-10-24T00:30:00Z", "2026-10-26", "Europe/Warsaw");
        assert_eq!(autumn, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    }

    #[test]
    fn the_last_day_counts_and_a_series_has_an_end() {
        let one = starts(Every::Week, "2026-03-23T09:00:00Z", "2026-03-23", "UTC");
        assert_eq!(one.len(), 1);
        let utc: Zone = "UTC".parse().unwrap();
        let first = "2026-01-01T00:00:00Z".parse().unwrap();
        let until = |date: &str| Repeat { every: Every::Day, until: date.parse().unwrap(), tz: utc.clone() };
        assert_eq!(until("2027-02-04").starts(first).unwrap().len(), OCCURRENCES_MAX);
        assert_eq!(until("2027-02-05").starts(first).unwrap_err().0, "repeat.until");
        assert_eq!(until("2025-12-31").starts(first).unwrap_err().0, "repeat.until");
        assert_eq!(until("9999-12-31").starts(first).unwrap_err().0, "repeat.until");
    }
}
