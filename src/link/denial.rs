//! Why one of two nodes does not let the other in: what the TLS handshake tells of it, in words that say what to do.
//!
//! The dialler's handshake ends before the listener has judged its certificate, so a denial of the gateway's comes as the
//! end of a connection that was there already.

use std::fmt;

use super::{DialError, LinkError};

/// A TLS alert about a certificate travels as a QUIC error: this, and its number.
const CRYPTO_ERROR: u64 = 0x100;

/// One node does not let the other in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    /// True when it is this node that refuses the peer.
    by_us: bool,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    OtherAuthority,
    OutOfTime,
    Revoked,
    OtherName,
    NoCertificate,
    OtherProtocol,
}

impl Denial {
    /// The denial behind the failure of a worker's dial, if it is one.
    pub fn of(error: &DialError) -> Option<Self> {
        let DialError::Link(error) = error else { return None };
        let ended = match error {
            LinkError::Connection(ended) => ended,
            LinkError::Stream(error) => of_stream(error)?,
            _ => return None,
        };
        let (by_us, code) = match ended {
            quinn::ConnectionError::TransportError(error) => (true, u64::from(error.code)),
            quinn::ConnectionError::ConnectionClosed(close) => (false, u64::from(close.error_code)),
            _ => return None,
        };
        let why = match code.checked_sub(CRYPTO_ERROR)? {
            // No usable certificate, none at all.
            42 | 43 | 46 | 116 => Why::NoCertificate,
            44 => Why::Revoked,
            45 => Why::OutOfTime,
            48 => Why::OtherAuthority,
            // What the verifier of peers says of a name comes as a failed handshake.
            40 | 49 => Why::OtherName,
            120 => Why::OtherProtocol,
            _ => return None,
        };
        Some(Self { by_us, why })
    }
}

fn of_stream(error: &std::io::Error) -> Option<&quinn::ConnectionError> {
    let inner = error.get_ref()?;
    if let Some(quinn::ReadError::ConnectionLost(ended)) = inner.downcast_ref() {
        return Some(ended);
    }
    match inner.downcast_ref() {
        Some(quinn::WriteError::ConnectionLost(ended)) => Some(ended),
        _ => None,
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.by_us, self.why) {
            (true, Why::OtherAuthority) => {
                "this worker refuses the gateway: its certificate is of another CA; check gateway.address, and that both \
                 machines have the same lab's ca.crt"
            }
            (true, Why::OutOfTime) => {
                "this worker refuses the gateway: its certificate has expired or is not valid yet; renew it on the \
                 gateway, and compare the clocks of both machines"
            }
            (true, Why::OtherName) => {
                "this worker refuses the gateway: its certificate is not that of this lab's gateway of the configured \
                 name; check gateway.name and gateway.address"
            }
            (true, Why::NoCertificate | Why::Revoked) => {
                "this worker refuses the gateway: it shows no usable certificate; make a new one on the gateway"
            }
            (false, Why::OtherAuthority) => {
                "the gateway refuses this worker: its certificate is of a CA that the gateway does not know; let the \
                 worker join anew (`berth worker invite` there, `berth join` here)"
            }
            (false, Why::OutOfTime) => {
                "the gateway refuses this worker: its certificate has expired or is not valid yet; let it join anew \
                 (`berth worker invite` there, `berth join` here), and compare the clocks of both machines"
            }
            (false, Why::Revoked) => {
                "the gateway refuses this worker: its certificate is revoked; let it join anew (`berth worker invite` \
                 there, `berth join` here)"
            }
            (false, Why::OtherName) => {
                "the gateway refuses this worker: its certificate is of another lab, or no worker's; let it join anew \
                 (`berth worker invite` there, `berth join` here)"
            }
            (false, Why::NoCertificate) => {
                "the gateway refuses this worker: it shows no usable certificate; let it join anew (`berth worker \
                 invite` there, `berth join` here)"
            }
            (_, Why::OtherProtocol) => {
                "what listens there is no gateway of Berth; check gateway.address"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use quinn::{ConnectionClose, ConnectionError, TransportErrorCode};

    use super::*;

    fn closed(code: TransportErrorCode) -> ConnectionError {
        ConnectionError::ConnectionClosed(ConnectionClose { error_code: code, frame_type: None, reason: "".into() })
    }

    #[test]
    fn every_alert_about_a_certificate_has_words_that_say_what_to_do() {
        for (alert, word) in [
            (42, "no usable certificate"),
            (44, "revoked"),
            (45, "expired"),
            (48, "does not know"),
            (49, "another lab"),
            (116, "no usable certificate"),
        ] {
            let ended = closed(TransportErrorCode::crypto(alert));
            let lost = io::Error::from(quinn::ReadError::ConnectionLost(ended.clone()));
            let unsent = io::Error::from(quinn::WriteError::ConnectionLost(ended.clone()));
            for error in [LinkError::Connection(ended), LinkError::Stream(lost), LinkError::Stream(unsent)] {
                let said = Denial::of(&error.into()).expect("a denial").to_string();
                assert!(said.contains(word) && said.contains("berth join"), "{alert}: {said}");
            }
        }
        let elsewhere = LinkError::Connection(closed(TransportErrorCode::crypto(120)));
        assert!(Denial::of(&elsewhere.into()).unwrap().to_string().contains("check gateway.address"));
    }

    #[test]
    fn what_is_no_denial_is_none() {
        for error in [
            LinkError::Timeout,
            LinkError::Connection(ConnectionError::TimedOut),
            LinkError::Connection(closed(TransportErrorCode::NO_ERROR)),
            LinkError::Connection(closed(TransportErrorCode::crypto(80))),
            LinkError::Stream(io::Error::other("no connection's")),
        ] {
            assert_eq!(Denial::of(&error.into()), None);
        }
        assert_eq!(Denial::of(&DialError::Refused("no".to_owned())), None);
    }
}
