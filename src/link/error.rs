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
    /// A worker came without a certificate.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The peer was silent for too long.
    #[error("the peer did not answer in time")]
    Timeout,
}

/// QUIC carries TLS alerts as error codes from here on.
const CRYPTO_ERRORS: std::ops::Range<u64> = 0x100..0x200;

/// TLS alerts that say what is wrong with a certificate.
const HANDSHAKE_FAILURE: u8 = 40;
const CERTIFICATE_EXPIRED: u8 = 45;
const UNKNOWN_CA: u8 = 48;
const NO_APPLICATION_PROTOCOL: u8 = 120;

impl LinkError {
    /// The TLS alert with which one side has sent the other away.
    fn alert(&self) -> Option<u8> {
        use quinn::ConnectionError::{ConnectionClosed, TransportError};
        let code = match self {
            LinkError::Connection(TransportError(error)) => u64::from(error.code),
            LinkError::Connection(ConnectionClosed(close)) => u64::from(close.error_code),
            _ => return None,
        };
        CRYPTO_ERRORS.contains(&code).then(|| u8::try_from(code - CRYPTO_ERRORS.start).unwrap_or(u8::MAX))
    }

    /// True when this side has sent the peer away in the handshake, mostly for its certificate.
    pub fn refused_by_us(&self) -> bool {
        matches!(self, LinkError::Connection(quinn::ConnectionError::TransportError(_))) && self.alert().is_some()
    }

    /// True when the peer has sent this side away in the handshake.
    pub fn refused_by_peer(&self) -> bool {
        matches!(self, LinkError::Connection(quinn::ConnectionError::ConnectionClosed(_))) && self.alert().is_some()
    }

    /// Why the connection has ended, in words. What the peer says is a claim.
    pub fn why(&self) -> String {
        use quinn::ConnectionError::{ApplicationClosed, ConnectionClosed, TransportError};
        match (self.alert(), self) {
            (Some(CERTIFICATE_EXPIRED), _) => "its certificate has expired, or is not valid yet".to_owned(),
            (Some(UNKNOWN_CA), _) => "its certificate is of another CA".to_owned(),
            (_, LinkError::Connection(TransportError(error))) if !error.reason.is_empty() => said(&error.reason),
            (_, LinkError::Connection(ConnectionClosed(close))) if !close.reason.is_empty() => text(&close.reason),
            (_, LinkError::Connection(ApplicationClosed(close))) if !close.reason.is_empty() => text(&close.reason),
            (_, LinkError::Connection(error)) => error.to_string(),
            (_, error) => error.to_string(),
        }
    }

    /// Why a peer was sent away, as one stable word; none when the network alone is to blame.
    pub fn rejection(&self) -> Option<&'static str> {
        if self.refused_by_peer() {
            return Some("gateway-not-accepted");
        }
        Some(match (self.alert(), self) {
            (Some(CERTIFICATE_EXPIRED), _) => "certificate-expired",
            (Some(UNKNOWN_CA), _) => "certificate-of-another-ca",
            (Some(HANDSHAKE_FAILURE), _) => "certificate-of-another-name",
            (Some(NO_APPLICATION_PROTOCOL), _) => "unknown-protocol",
            (Some(_), _) => "certificate-not-valid",
            (None, LinkError::NoCertificate) => "no-certificate",
            (None, LinkError::Protocol(_) | LinkError::Frame(_)) => "broken-protocol",
            _ => return None,
        })
    }
}

/// What a peer says when it closes: a claim, cut and without what could garble a terminal.
fn text(reason: &[u8]) -> String {
    said(&String::from_utf8_lossy(reason)).chars().filter(|c| !c.is_control()).take(300).collect()
}

/// Without what rustls puts before a text of ours.
fn said(reason: &str) -> String {
    reason.strip_prefix("unexpected error: ").unwrap_or(reason).to_owned()
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
