//! The pauses between dials (SPEC §9 Link): 100 ms after the first that failed, twice as long after each further one, up to
//! 5 s, each with jitter in its upper half, so that the workers of a lab do not come all at once.

use std::time::Duration;

/// The pause after the first failed dial, and the longest.
const REDIAL_FIRST: Duration = Duration::from_millis(100);
const REDIAL_LONGEST: Duration = Duration::from_secs(5);

/// Pauses between dials.
#[derive(Debug, Default)]
pub(super) struct Redial {
    failures: u32,
}

impl Redial {
    /// The next pause. `random` is uniform over all 32-bit numbers.
    pub(super) fn pause(&mut self, random: u32) -> Duration {
        let base = REDIAL_FIRST.saturating_mul(1 << self.failures.min(10)).min(REDIAL_LONGEST);
        self.failures = self.failures.saturating_add(1);
        base / 2 + (base / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// The longest pause from now on.
    pub(super) fn slow(&mut self) {
        self.failures = self.failures.max(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redials_double_up_to_five_seconds_with_jitter_in_the_upper_half() {
        let mut redial = Redial::default();
        for expected in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let expected = Duration::from_millis(expected);
            let least = Redial { failures: redial.failures }.pause(0);
            assert_eq!(least, expected / 2);
            assert_eq!(redial.pause(u32::MAX), expected);
        }
    }

    #[test]
    fn at_the_longest_pause_the_dials_of_a_lab_are_still_spread_over_half_of_it() {
        let mut redial = Redial::default();
        redial.slow();
        for _ in 0..100 {
            let pauses = [0, u32::MAX / 2, u32::MAX].map(|random| Redial { failures: redial.failures }.pause(random));
            assert_eq!([pauses[0], pauses[2]], [REDIAL_LONGEST / 2, REDIAL_LONGEST]);
            assert!((3_700..3_800).contains(&pauses[1].as_millis()), "{pauses:?}");
            redial.pause(0);
        }
    }
}
