//! How a machine gets its certificate (SPEC §9 Joining). ALPN `berth-join/1` on the port of the links.
//!
//! A machine that joins has nothing but its invitation, which names the lab, the gateway, the fingerprint of the lab's CA
//! and a secret. It shows no certificate. It takes for the gateway only whoever shows a certificate of a CA with exactly
//! that fingerprint, in the gateway's role and name; the gateway's chain holds the CA.
//!
//! 1. The machine makes its key, a key of P-256, and keeps it. It opens one stream and sends one frame, [`JoinAsk`], at
//!    most [`JOIN_ASK_BYTES_MAX`] long. Its proof is an ECDSA signature (SHA-256, DER) over the bytes
//!    `berth-join/1 proof\0` and 32 bytes that TLS exports of this connection under the label [`JOIN_PROOF_LABEL`]
//!    without a context, so that nobody else can use it.
//! 2. The gateway judges the secret, which it keeps as a hash. The first key that shows it is written down as the
//!    worker's before anything is answered; then it is certified. The same key may ask again and is certified again.
//!    The answer is one frame, [`JoinAnswer`].
//! 3. The machine closes the connection.
//!
//! ```text
//! → {"worker": "rack-3", "secret": "bji_…", "publicKey": "04…", "proof": "3045…"}
//! ← {"joined": {"certificate": "-----BEGIN CERTIFICATE-----…", "authority": "-----BEGIN CERTIFICATE-----…"}}
//! ← {"refused": {"reason": "invitation-spent", "why": "the invitation for rack-3 was used by another machine…"}}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::NodeName;

/// The protocol's name in TLS.
pub const JOIN_ALPN: &[u8] = b"berth-join/1";
/// The label of what a proof is made over.
pub const JOIN_PROOF_LABEL: &[u8] = b"EXPORTER-berth-join-1";
/// The longest question of a machine that nobody knows.
pub const JOIN_ASK_BYTES_MAX: usize = 4 * 1024;

/// What a machine asks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinAsk {
    /// The name that it is invited under.
    pub worker: NodeName,
    /// The invitation's secret.
    pub secret: String,
    /// An uncompressed point, 130 hexadecimal digits.
    pub public_key: String,
    /// The signature, hexadecimal digits.
    pub proof: String,
}

impl fmt::Debug for JoinAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The secret is never shown.
        f.debug_struct("JoinAsk").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// What the gateway answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JoinAnswer {
    /// The machine is a worker of the lab.
    Joined {
        /// Its certificate, PEM.
        certificate: String,
        /// The lab's CA, PEM.
        authority: String,
    },
    /// It is not.
    Refused {
        /// One stable word, such as `invitation-spent`.
        reason: String,
        /// For the machine's operator.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::{decode, encode};

    #[test]
    fn a_question_reads_back_fits_its_bound_and_never_shows_its_secret() {
        let ask = JoinAsk {
            worker: "r".repeat(63).parse().unwrap(),
            secret: format!("bji_{}", "5".repeat(64)),
            public_key: "04".repeat(65),
            proof: "30".repeat(72),
        };
        let frame = encode(&ask).unwrap();
        assert!(frame.len() < JOIN_ASK_BYTES_MAX / 2);
        assert_eq!(decode::<JoinAsk>(&frame).unwrap(), ask);
        assert!(!format!("{ask:?}").contains("55"));
    }
}
