//! The real binary.

mod readme;
