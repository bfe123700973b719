//! Berth.
pub mod admission;
pub mod clock;
pub mod limits;
pub mod model;
pub mod service;
pub mod store;
