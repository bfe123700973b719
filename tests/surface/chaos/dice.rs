//! Numbers that one seed decides (splitmix64), so that a run can be told again from its seed.

use std::ops::Range;
use std::time::Duration;

/// A source of numbers.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of `seed`, apart from those of its other users.
    pub fn new(seed: u64, user: u64) -> Self {
        Self(seed ^ user.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of the range, which is not empty.
    pub fn number(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.number(0..100) < percent
    }

    /// One of them.
    pub fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.number(0..all.len() as u64) as usize]
    }

    /// A time, in milliseconds.
    pub fn ms(&mut self, range: Range<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }
}

#[test]
fn one_seed_throws_the_same_numbers_again_and_another_user_of_it_others() {
    let thrown = |seed, user| {
        let mut dice = Dice::new(seed, user);
        [(); 8].map(|()| dice.number(0..1000))
    };
    assert_eq!(thrown(7, 1), thrown(7, 1));
    assert_ne!(thrown(7, 1), thrown(7, 2));
    assert_ne!(thrown(7, 1), thrown(8, 1));
}
