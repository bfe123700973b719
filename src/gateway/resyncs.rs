//! How often a worker is asked for its whole picture anew, when what it reports does not fit together (SPEC §9
//! Reports). Pure.

use std::time::Duration;

use crate::clock::RunTime;

/// Right after a snapshot it is asked again only after this, which doubles each time.
const FIRST: Duration = Duration::from_secs(30);
/// The longest.
const LONGEST: Duration = Duration::from_secs(10 * 60);

/// What has been asked of one worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resyncs {
    /// When the last snapshot came that was asked for so.
    since: Option<RunTime>,
    /// How many came in a row, and none was right for long.
    in_row: u32,
    /// True from the asking to the snapshot.
    waiting: bool,
}

impl Resyncs {
    /// True when it may be asked now.
    pub fn is_due(&self, now: RunTime) -> bool {
        !self.waiting && self.since.is_none_or(|since| now >= since + self.pause())
    }

    /// It is being asked.
    pub fn asked(&mut self, now: RunTime) {
        // One after a long time of peace is the first again.
        let quiet = self.since.is_none_or(|since| now >= since + LONGEST + self.pause());
        self.in_row = if quiet { 0 } else { self.in_row.saturating_add(1) };
        self.waiting = true;
    }

    /// A snapshot has come.
    pub fn snapshot(&mut self, now: RunTime) {
        if std::mem::take(&mut self.waiting) {
            self.since = Some(now);
        }
    }

    fn pause(&self) -> Duration {
        FIRST.saturating_mul(1 << self.in_row.min(10)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> RunTime {
        RunTime(Duration::from_secs(seconds))
    }

    #[test]
    fn right_after_a_snapshot_it_is_asked_again_after_thirty_seconds_doubling_to_ten_minutes() {
        let mut resyncs = Resyncs::default();
        let mut now = 5;
        assert!(resyncs.is_due(at(now)));
        for pause in [30, 60, 120, 240, 480, 600, 600] {
            resyncs.asked(at(now));
            assert!(!resyncs.is_due(at(now + 10_000)), "one is on its way");
            resyncs.snapshot(at(now));
            assert!(!resyncs.is_due(at(now + pause - 1)), "{pause}");
            now += pause;
            assert!(resyncs.is_due(at(now)), "{pause}");
        }
    }

    #[test]
    fn after_a_long_peace_the_count_begins_again() {
        let mut resyncs = Resyncs::default();
        for now in [0, 30, 90] {
            resyncs.asked(at(now));
            resyncs.snapshot(at(now));
        }
        resyncs.asked(at(10_000));
        resyncs.snapshot(at(10_000));
        assert!(resyncs.is_due(at(10_030)));
    }

    #[test]
    fn a_snapshot_that_nobody_asked_for_puts_nothing_off() {
        let mut resyncs = Resyncs::default();
        resyncs.snapshot(at(7));
        assert!(resyncs.is_due(at(7)));
    }
}
