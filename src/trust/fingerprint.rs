//! SHA-256 fingerprints of keys and of certificates, as 64 hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use webpki::EndEntityCert;

/// A SHA-256 that names something public: a node's key, or the lab's CA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Print([u8; 32]);

impl Sha256Print {
    /// The fingerprint of the key in a certificate: over its SubjectPublicKeyInfo, so that it stays the same when the
    /// key gets another certificate.
    ///
    /// # Errors
    /// What is wrong with the certificate.
    pub fn of_key_in(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let certificate = EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        Ok(Self::of(certificate.subject_public_key_info().as_ref()))
    }

    /// The fingerprint of a whole certificate.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Self {
        Self::of(certificate)
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Sha256Print {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Print {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Sha256Print {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "a fingerprint is 64 hexadecimal digits".to_owned();
        let bytes = from_hex(text).ok_or_else(refused)?;
        Ok(Self(bytes.try_into().map_err(|_| refused())?))
    }
}

impl TryFrom<String> for Sha256Print {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Sha256Print> for String {
    fn from(print: Sha256Print) -> String {
        print.to_string()
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that hexadecimal digits stand for.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.bytes().map(|digit| char::from(digit).to_digit(16));
    let digits: Option<Vec<u8>> = digits.map(|digit| digit.and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_back_and_nothing_else_is_one() {
        let print = Sha256Print::of(b"x");
        assert_eq!(print.to_string().parse(), Ok(print));
        let long = format!("{print}00");
        for bad in ["", "00", &print.to_string()[1..], &long, "é", &"zz".repeat(32)] {
            assert!(bad.parse::<Sha256Print>().is_err(), "{bad}");
        }
    }
}
