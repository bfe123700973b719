//! Who goes first (SPEC §2 Order): higher priority, then join time, then arrival. One order for a resource's waiting
//! room and for the pool of those who wait by selector, so that the two can be compared.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::clock::{Now, RunTime};
use crate::model::Priority;

/// When somebody joined, in the order of joining.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Joined {
    /// Which life of the node it was; an earlier one comes first.
    pub run: u64,
    /// Microseconds of this run's clock; negative for one who joined before it began.
    pub at_us: i64,
    /// Counts those who join, so that no two are equal.
    pub arrival: u64,
}

impl Joined {
    /// The time of joining as a time of this run, for `at_us`.
    pub fn micros(at: RunTime) -> i64 {
        i64::try_from(at.0.as_micros()).unwrap_or(i64::MAX)
    }

    /// A place of an earlier run on this run's time, for one who joined at `joined_at`; not later than now, whatever the
    /// wall clock says.
    pub fn on_this_run(self, joined_at: Timestamp, now: Now) -> Self {
        let ago = now.wall.duration_since(joined_at).max(SignedDuration::ZERO);
        let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
        Self { at_us: Self::micros(now.run).saturating_sub(ago), ..self }
    }
}

/// A place in the order. The smallest rank goes first; no two waiters have the same one.
#[derive(Debug, Clone, Copy)]
pub struct Rank {
    /// The priority, and with aging also what waiting adds to it, as seen from the origin of time: the sum grows at
    /// the same rate for everybody, so two waiters never swap.
    height: f64,
    joined: Joined,
}

impl Rank {
    /// The rank of one with `priority` who joined then. With `aging`, a rank grows by one in each such span.
    pub fn new(priority: Priority, joined: Joined, aging: Option<Duration>) -> Self {
        let waited = match aging {
            // Bounds keep this far from where a double loses microseconds.
            Some(interval) => joined.at_us as f64 / interval.as_micros().max(1) as f64,
            None => 0.0,
        };
        Self { height: f64::from(priority) - waited, joined }
    }

    /// When it joined.
    pub fn joined(&self) -> Joined {
        self.joined
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        other.height.total_cmp(&self.height).then_with(|| self.joined.cmp(&other.joined))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Rank {}

/// How many of `waiters` rank before `rank`, which may be one of them. Counts from the nearer end.
pub(super) fn before<T>(waiters: &BTreeMap<Rank, T>, rank: Rank) -> usize {
    let (mut ahead, mut behind) = (waiters.range(..rank), waiters.range(rank..));
    let mut count = 0;
    loop {
        if ahead.next().is_none() {
            return count;
        }
        if behind.next().is_none() {
            return waiters.len() - count;
        }
        count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(priority: f64, at_s: i64, arrival: u64, aging: Option<Duration>) -> Rank {
        let joined = Joined { run: 1, at_us: at_s * 1_000_000, arrival };
        Rank::new(Priority::try_from(priority).unwrap(), joined, aging)
    }

    #[test]
    fn higher_priority_then_join_time_then_arrival() {
        assert!(rank(5.0, 9, 9, None) < rank(0.0, 1, 1, None));
        assert!(rank(0.0, 1, 9, None) < rank(0.0, 2, 1, None));
        assert!(rank(0.0, 1, 1, None) < rank(0.0, 1, 2, None));
        assert_eq!(rank(0.0, 1, 1, None), rank(0.0, 1, 1, None));
    }

    #[test]
    fn a_place_of_an_earlier_run_comes_before_a_later_one_of_equal_priority() {
        let earlier = Rank::new(Priority::default(), Joined { run: 1, at_us: 50, arrival: 7 }, None);
        let later = Rank::new(Priority::default(), Joined { run: 2, at_us: 10, arrival: 1 }, None);
        assert!(earlier < later);
    }

    #[test]
    fn with_aging_whoever_has_waited_ten_intervals_passes_a_newcomer_of_nine_more() {
        let minute = Some(Duration::from_secs(60));
        let old = rank(0.0, 0, 1, minute);
        assert!(old < rank(9.0, 600, 2, minute));
        assert!(rank(11.0, 600, 2, minute) < old);
    }
}
