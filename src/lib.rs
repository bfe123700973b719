//! Berth.
pub mod admission;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod gateway;
pub mod host;
pub mod http;
pub mod limits;
pub mod link;
pub mod model;
pub mod node;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod trust;
pub mod wire;
