//! What can go wrong on a link.

use std::net::SocketAddr;

use crate::wire::ProtocolRange;
use crate::wire::frame::FrameError;

/// Why a link ended, or could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The port cannot be opened.
    #[error("cannot listen on {address} (UDP)")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The connection ended.
    #[error("the connection ended")]
    Connection(#[from] quinn::ConnectionError),
    /// A stream ended in the middle of a frame or was reset.
    #[error("a stream broke")]
    Stream(#[from] std::io::Error),
    /// A frame is not what the protocol says.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer said something out of turn.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The peer was silent for too long.
    #[error("the peer did not answer in time")]
    Timeout,
}

/// Why a dial did not end in a link.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The gateway's name does not resolve.
    #[error("cannot resolve {address}")]
    Resolve {
        /// What was looked up.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// No common protocol version.
    #[error("the gateway speaks protocol {theirs}, this worker {ours}: upgrade the older one")]
    Incompatible {
        /// The gateway's.
        theirs: ProtocolRange,
        /// Ours.
        ours: ProtocolRange,
    },
    /// The gateway will not have this worker.
    #[error("the gateway refused this worker: {0}")]
    Refused(String),
}
