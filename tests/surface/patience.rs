//! Waiting for something to become true, never for time to pass.

use std::thread;
use std::time::{Duration, Instant};

/// A node that has not done what it was asked for within this is stuck.
pub const BOUND: Duration = Duration::from_secs(20);

/// Waits until there is something, at most for `bound`.
#[track_caller]
pub fn eventually<T>(what: &str, bound: Duration, look: impl FnMut() -> Option<T>) -> T {
    match poll(bound, look) {
        Some(found) => found,
        None => panic!("not within {bound:?}: {what}"),
    }
}

/// The same, without a panic.
pub fn poll<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match look() {
            Some(found) => return Some(found),
            None if begun.elapsed() > bound => return None,
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
}
