//! Recurring windows against a plain calendar of one zone: Warsaw, of whose year the two changes are written down here.

use std::time::Duration;

use berth::model::{Every, Repeat};
use jiff::{Span, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::sample;

const SPRING: &str = "2026-03-29T01:00:00Z";
const AUTUMN: &str = "2026-10-25T01:00:00Z";
const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;

fn second(at: &str) -> i64 {
    sample::text::<Timestamp>(at).as_second()
}

/// What a clock on the wall shows, in seconds.
fn local(utc: i64) -> i64 {
    utc + if (second(SPRING)..second(AUTUMN)).contains(&utc) { 7_200 } else { 3_600 }
}

/// The first instant at which it shows that; where it never does, the end of what is skipped.
fn first_instant(shown: i64) -> i64 {
    let found = [shown - 7_200, shown - 3_600].into_iter().find(|utc| local(*utc) == shown);
    found.unwrap_or(second(SPRING))
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_series_keeps_its_local_time_over_both_changes_of_dst(
        weekly in any::<bool>(),
        day in prop_oneof![0..300i64, 80..90i64, 290..300i64],
        minute in prop_oneof![0..1_440i64, 0..200i64],
        days in 0..60i64,
    ) {
        let first = second("2026-01-01T00:00:00Z") + day * DAY + minute * MINUTE;
        let at = |utc: i64| Timestamp::from_second(utc).unwrap();
        let every = if weekly { Every::Week } else { Every::Day };
        let last = at(local(first)).checked_add(Span::new().hours(24 * days)).unwrap();
        let until = sample::text(&last.to_string()[..10]);
        let starts = Repeat { every, until, tz: sample::text("Europe/Warsaw") }.starts(at(first)).unwrap();

        let step = if weekly { 7 } else { 1 };
        let expected: Vec<_> = (0..=days / step)
            .map(|index| if index == 0 { first } else { first_instant(local(first) + index * step * DAY) })
            .map(at)
            .collect();
        prop_assert_eq!(&starts, &expected);
        prop_assert!(starts.windows(2).all(|two| two[1].duration_since(two[0]).as_hours() >= 22));
    }
}

#[test]
fn a_start_in_the_skipped_hour_moves_to_its_end_and_in_the_doubled_hour_the_first_is_meant() {
    let starts = |first: &str, until: &str| {
        let repeat = Repeat { every: Every::Week, until: sample::text(until), tz: sample::text("Europe/Warsaw") };
        repeat.starts(sample::text(first)).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(starts("2026-03-22T01:15:00Z", "2026-03-29"), ["2026-03-22T01:15:00Z", SPRING]);
    assert_eq!(starts("2026-10-18T00:15:00Z", "2026-10-25"), ["2026-10-18T00:15:00Z", "2026-10-25T00:15:00Z"]);
}

#[test]
fn a_series_that_goes_on_for_too_long_is_refused_and_never_cut() {
    let repeat = |until: &str| Repeat { every: Every::Day, until: sample::text(until), tz: sample::text("UTC") };
    let first = sample::text("2026-01-01T09:00:00Z");
    assert_eq!(repeat("2027-02-04").starts(first).unwrap().len(), 400);
    assert!(repeat("2027-02-05").starts(first).is_err());
    let wide = Duration::from_secs(400 * 24 * 3600);
    assert!(repeat("2027-02-04").starts(first.checked_add(wide).unwrap()).is_err(), "it ends before it begins");
}
