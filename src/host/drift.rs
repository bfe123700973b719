//! Deadlines on disk are wall time. When somebody has set the wall clock they are written anew, so that a restart
//! neither ends nor prolongs a lease (SPEC §1). A step of the clock concerns every lease at once, so they are written in
//! groups, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;

use crate::clock::{Now, RunTime};
use crate::limits::STORE_GROUP_MAX;
use crate::model::ResourceId;

/// The wall and the run clock may drift apart by this much.
pub(super) const DRIFT_MAX: SignedDuration = SignedDuration::from_secs(5);
/// The pause after one could not be written.
const PAUSE: Duration = Duration::from_secs(1);

/// Which deadlines are to be written anew.
#[derive(Debug)]
pub(super) struct Drift {
    /// What the wall clock was ahead of the run clock when it was last looked at.
    skew: SignedDuration,
    waiting: BTreeSet<ResourceId>,
    /// How many of the group are not settled.
    out: usize,
    not_before: RunTime,
}

impl Drift {
    /// At start, with the resources whose deadlines on disk are not what this run has made of them.
    pub(super) fn new(now: Now, waiting: BTreeSet<ResourceId>) -> Self {
        Self { skew: skew(now), waiting, out: 0, not_before: RunTime::default() }
    }

    /// True when the clock has been set since this was last asked.
    pub(super) fn was_set(&mut self, now: Now) -> bool {
        let skew = skew(now);
        let by = skew.saturating_sub(self.skew);
        let set = by.abs() > DRIFT_MAX;
        if set {
            tracing::warn!(by = %by, "the wall clock was set; deadlines on disk are written anew");
            self.skew = skew;
        }
        set
    }

    /// These are to be written anew.
    pub(super) fn add(&mut self, resources: impl Iterator<Item = ResourceId>) {
        self.waiting.extend(resources);
    }

    /// It is there no more.
    pub(super) fn forget(&mut self, resource: &ResourceId) {
        self.waiting.remove(resource);
    }

    /// The next group; none while one is out. Each of them is to be [settled](Self::settled).
    pub(super) fn next_group(&mut self, now: RunTime) -> Vec<ResourceId> {
        if self.out > 0 || now < self.not_before {
            return Vec::new();
        }
        let mut group = Vec::new();
        while group.len() < STORE_GROUP_MAX
            && let Some(resource) = self.waiting.pop_first()
        {
            group.push(resource);
        }
        self.out = group.len();
        group
    }

    /// One of the group is written, or is to be tried again.
    pub(super) fn settled(&mut self, resource: &ResourceId, written: bool, now: RunTime) {
        self.out = self.out.saturating_sub(1);
        if !written {
            self.waiting.insert(resource.clone());
            self.not_before = now + PAUSE;
        }
    }
}

/// How far the wall clock is ahead of the run clock, from an arbitrary point.
fn skew(now: Now) -> SignedDuration {
    let run = SignedDuration::try_from(now.run.0).unwrap_or(SignedDuration::MAX);
    SignedDuration::from_micros(now.wall.as_microsecond()).saturating_sub(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(wall_s: i64, run_s: u64) -> Now {
        let wall = jiff::Timestamp::from_second(wall_s).unwrap();
        Now { wall, run: RunTime(Duration::from_secs(run_s)) }
    }

    fn names(count: usize) -> impl Iterator<Item = ResourceId> {
        (0..count).map(|index| format!("r{index}").parse().unwrap())
    }

    #[test]
    fn a_clock_that_runs_is_not_one_that_was_set() {
        let mut drift = Drift::new(at(1_000, 10), BTreeSet::new());
        assert!(!drift.was_set(at(2_000, 1_010)));
        assert!(!drift.was_set(at(2_005, 1_010)), "five seconds of drift are borne");
        assert!(drift.was_set(at(2_006, 1_010)));
        assert!(!drift.was_set(at(2_007, 1_011)), "said once");
        assert!(drift.was_set(at(0, 1_012)), "back as well, also to the beginning of time");
    }

    #[test]
    fn one_group_follows_the_other_and_what_was_not_written_comes_again_after_a_pause() {
        let mut drift = Drift::new(at(0, 0), BTreeSet::new());
        drift.add(names(STORE_GROUP_MAX + 1));
        let now = RunTime(Duration::from_secs(5));
        let group = drift.next_group(now);
        assert_eq!(group.len(), STORE_GROUP_MAX);
        assert!(drift.next_group(now).is_empty(), "the first is out");
        group.iter().for_each(|resource| drift.settled(resource, *resource != group[7], now));
        assert!(drift.next_group(now).is_empty(), "the pause");
        let rest = drift.next_group(now + PAUSE);
        assert_eq!(rest.len(), 2);
        assert!(rest.contains(&group[7]));
    }
}
