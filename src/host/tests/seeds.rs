//! Randomness that can be had again: a failing test prints its seed, and `BERTH_TEST_SEED` runs that one alone.
//! `BERTH_TEST_ROUNDS` multiplies the number of rounds.

use std::time::Duration;

/// A small generator of numbers that are random enough.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of 0 to `bound` − 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in so many times.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    pub(super) fn ms(&mut self, from: u64, below: u64) -> Duration {
        Duration::from_millis(from + self.below(below - from))
    }

    /// Gives the others between none and some turns.
    pub(super) async fn turns(&mut self) {
        for _ in 0..self.below(8) {
            tokio::task::yield_now().await;
        }
    }
}

/// The seeds of a test that has `count` of them.
pub(super) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse::<u64>().expect("a whole number"));
    let one = number("BERTH_TEST_SEED");
    let count = count * number("BERTH_TEST_ROUNDS").unwrap_or(1);
    one.map_or(0..count, |seed| seed..seed + 1)
}

/// Says on the way out of a failing test which seed it was.
pub(super) struct Seed(pub(super) u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: run again with BERTH_TEST_SEED={}", self.0, self.0);
        }
    }
}
