//! The contract of a node, spoken: typed calls over HTTP (SPEC §12, §13).
//!
//! A [`Client`] talks to one node, over TCP or over the node's Unix socket. Every call has a bound, every answer a
//! largest size. A call ends in one of four ways: an answer; [`ClientError::Refused`], the node said no;
//! [`ClientError::Unanswered`], nobody knows whether it happened; [`ClientError::BadAnswer`], what came back was
//! not the contract. What takes longer than an answer is an [`EventStream`], or a tool at a
//! device ([`ExecOutput`]). [`discovery`] finds the nodes that run on this machine.

mod calendar;
mod calls;
mod config;
pub mod discovery;
mod endpoint;
mod error;
mod exec;
mod messages;
mod streams;
mod transport;
mod workers;

pub use endpoint::{Endpoint, InvalidEndpoint, Secret};
pub use error::ClientError;
pub use exec::{ExecInput, ExecNews, ExecOutput};
pub use streams::{EventStream, LeaseNews, Place, RequestNews};
pub use transport::Client;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
