//! Time. The only place that reads a clock; everything else is handed a [`Now`].
//!
//! Two times run side by side (SPEC §1). *Wall time* is what calendars and disks use; it can be set. *Run time*
//! counts from an arbitrary origin, goes on during suspend and never jumps: leases and timeouts run on it.

use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// How long before the boot run time begins on a machine; longer than any grace.
const BEFORE_BOOT: Duration = Duration::from_secs(7 * 24 * 3600);

/// An instant of run time, as the time since the clock's origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunTime(pub Duration);

impl RunTime {
    /// How long until `self`, seen from `now`; zero when it has passed.
    pub fn left(self, now: RunTime) -> Duration {
        self.0.saturating_sub(now.0)
    }
}

impl Add<Duration> for RunTime {
    type Output = RunTime;

    fn add(self, span: Duration) -> RunTime {
        RunTime(self.0.saturating_add(span))
    }
}

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Wall time, whole microseconds.
    pub wall: Timestamp,
    /// Run time.
    pub run: RunTime,
}

impl Now {
    /// The wall time at which the run-time instant `deadline` will come, if nobody sets the clock meanwhile.
    pub fn wall_at(&self, deadline: RunTime) -> Timestamp {
        let span = Duration::abs_diff(deadline.0, self.run.0);
        let moved = if deadline >= self.run { self.wall.checked_add(span) } else { self.wall.checked_sub(span) };
        moved.unwrap_or(Timestamp::MAX)
    }

    /// The run-time instant at which the wall clock will show `at`, if nobody sets it meanwhile; now for one that has
    /// passed.
    pub fn run_of(&self, at: Timestamp) -> RunTime {
        self.run + Duration::try_from(at.duration_since(self.wall)).unwrap_or(Duration::ZERO)
    }

    /// The run-time instant of the wall time `at` of a thing of width `width`. What a disk says is trusted only
    /// within 0 to `width` from now, because the wall clock may have been set in between (SPEC §1).
    pub fn run_at(&self, at: Timestamp, width: Duration) -> RunTime {
        let left = Duration::try_from(at.duration_since(self.wall)).unwrap_or(Duration::ZERO);
        self.run + left.min(width)
    }

    /// The same, which also says how long ago it was. Before the clock's origin there is nothing, and that is long ago.
    pub fn run_at_or_before(&self, at: Timestamp, width: Duration) -> RunTime {
        match Duration::try_from(self.wall.duration_since(at)) {
            Ok(ago) => RunTime(self.run.0.saturating_sub(ago)),
            Err(_) => self.run_at(at, width),
        }
    }
}

/// Where the time comes from.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Tokio { origin: tokio::time::Instant, wall: Timestamp, skew: Arc<std::sync::atomic::AtomicI64> },
}

impl Clock {
    /// The machine's clocks: wall time, and boot time as run time.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// tokio's clock, for tests that pause it; wall time is `wall` now and advances with it.
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads clocks")]
    pub fn tokio(wall: Timestamp) -> Self {
        Self(Source::Tokio { origin: tokio::time::Instant::now(), wall, skew: Arc::default() })
    }

    /// Reads both clocks.
    #[expect(clippy::disallowed_methods, reason = "this is the place that reads clocks")]
    pub fn now(&self) -> Now {
        match &self.0 {
            Source::System => Now { wall: whole_microseconds(Timestamp::now()), run: boot_time() },
            Source::Tokio { origin, wall, skew } => {
                let run = origin.elapsed();
                let skew = jiff::SignedDuration::from_millis(skew.load(std::sync::atomic::Ordering::Relaxed));
                let wall = wall.checked_add(run).and_then(|wall| wall.checked_add(skew)).unwrap_or(Timestamp::MAX);
                Now { wall: whole_microseconds(wall), run: RunTime(run) }
            }
        }
    }

    /// Sets the wall clock of a tokio clock forward or back, as an operator would; all its clones follow.
    ///
    /// # Panics
    /// On the system clock, which is not ours to set.
    pub fn step_wall_ms(&self, by: i64) {
        match &self.0 {
            Source::System => panic!("the system clock is not ours to set"),
            Source::Tokio { skew, .. } => {
                skew.fetch_add(by, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }
}

/// Boot time, from an origin a while before the boot: what has just ended when the machine comes up has an instant too.
fn boot_time() -> RunTime {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    RunTime(BEFORE_BOOT + Duration::new(seconds, nanoseconds))
}

/// Rounds down, so that a time survives JSON and disk unchanged.
fn whole_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_survives_a_trip_through_the_disk() {
        let now = Clock::system().now();
        let hour = Duration::from_secs(3600);
        let deadline = now.run + hour;
        let back = now.run_at(now.wall_at(deadline), hour);
        assert!(back.0.abs_diff(deadline.0) < Duration::from_micros(2));
    }

    #[test]
    fn a_deadline_read_from_disk_is_clamped_to_the_width_of_its_lease() {
        let now = Clock::system().now();
        let width = Duration::from_secs(60);
        let far = now.wall.checked_add(Duration::from_secs(3600 * 24 * 365)).unwrap();
        assert_eq!(now.run_at(far, width), now.run + width);
        let past = now.wall.checked_sub(Duration::from_secs(3600)).unwrap();
        assert_eq!(now.run_at(past, width), now.run);
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_wall_clock_leaves_run_time_alone() {
        let clock = Clock::tokio("2026-01-01T00:00:00Z".parse().unwrap());
        tokio::time::advance(Duration::from_secs(5)).await;
        clock.step_wall_ms(3_600_000);
        assert_eq!(clock.now().run, RunTime(Duration::from_secs(5)));
        assert_eq!(clock.now().wall.to_string(), "2026-01-01T01:00:05Z");
    }
}
