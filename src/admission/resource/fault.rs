//! A fault on purpose, in no program but the one that is built to be caught by the chaos test.

use std::sync::atomic::{AtomicU32, Ordering};

/// One of so many asks that find the resource held is granted it nevertheless.
const ONE_OF: u32 = 10;

/// True once in a while.
pub(super) fn overlooks_the_holder() -> bool {
    static ASKS: AtomicU32 = AtomicU32::new(0);
    ASKS.fetch_add(1, Ordering::Relaxed) % ONE_OF == ONE_OF - 1
}
