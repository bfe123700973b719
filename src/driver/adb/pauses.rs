//! The pauses between tries: 100 ms after the first that failed, twice as long after each further one, up to 5 s.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses between tries.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    failures: u32,
}

impl Pauses {
    /// The next one.
    pub(super) fn next(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let mut pauses = Pauses::default();
        let milliseconds = [(); 8].map(|()| pauses.next().as_millis());
        assert_eq!(milliseconds, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    }
}
