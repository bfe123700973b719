//! The network between nodes: QUIC links with mutual TLS (the protocol is in [`wire`](crate::wire)).
//!
//! A worker [dials](dial), a gateway [listens](listen). Over a link the gateway [asks](ask) and the worker
//! [serves](serve); a tool at a device has a stream of its own ([exec]).

pub mod ask;
mod denial;
pub mod dial;
mod endpoint;
mod error;
pub mod exec;
pub mod join;
pub mod listen;
pub mod serve;
mod stream;

pub use denial::Denial;
pub use endpoint::Udp;
pub use error::{DialError, LinkError};
pub use stream::{FrameReader, FrameWriter, read, write};
