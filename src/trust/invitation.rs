//! An invitation: the one line that brings a machine into the lab (SPEC §9 Joining).
//!
//! `berth-join:1:<lab>/<worker>,<gateway>,<address>,<CA fingerprint>,<secret>`. Whoever reads it can join under that name, once,
//! within an hour. The gateway keeps the secret's hash.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Sha256Print;
use super::fingerprint::{from_hex, to_hex};
use crate::model::{LabName, NodeName, Refusal};

/// How long an invitation may be used for the first time (SPEC §9).
pub const INVITATION_KEPT: Duration = Duration::from_secs(3600);
/// The longest line that is read as an invitation.
pub const INVITATION_BYTES_MAX: usize = 1_024;

const PREFIX: &str = "berth-join:1:";
const SECRET_PREFIX: &str = "bji_";
const SECRET_BYTES: usize = 32;

/// The secret of an invitation. It is never printed by accident: `Debug` hides it and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct InvitationSecret(String);

impl InvitationSecret {
    /// A new one: 256 bits of the operating system's randomness.
    ///
    /// # Errors
    /// `INTERNAL` when the system has no randomness to give.
    pub fn generate() -> Result<Self, Refusal> {
        let mut bytes = [0; SECRET_BYTES];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| Refusal::internal("the system gives no random numbers, so nobody is invited"))?;
        Ok(Self(format!("{SECRET_PREFIX}{}", to_hex(&bytes))))
    }

    /// `text` if it has the shape of a secret.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = from_hex(text.strip_prefix(SECRET_PREFIX)?)?;
        (bytes.len() == SECRET_BYTES).then(|| Self(text.to_owned()))
    }

    /// The text itself, to be handed to whoever may know it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What the gateway keeps of it.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }
}

impl fmt::Debug for InvitationSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InvitationSecret(bji_…)")
    }
}

/// What is kept of an invitation's secret: its SHA-256. Two are compared in constant time.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// The hash of what somebody shows as a secret.
    pub fn of(shown: &str) -> Self {
        Self(Sha256::digest(shown).into())
    }
}

impl PartialEq for SecretHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretHash {}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

impl TryFrom<String> for SecretHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = from_hex(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| "the hash of a secret is 64 hexadecimal digits".to_owned())
    }
}

impl From<SecretHash> for String {
    fn from(SecretHash(bytes): SecretHash) -> String {
        to_hex(&bytes)
    }
}

/// All that a machine must know to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The lab.
    pub lab: LabName,
    /// The name that the machine joins under.
    pub worker: NodeName,
    /// The gateway that has invited it.
    pub gateway: NodeName,
    /// Where the gateway is dialled: `host:port`, UDP.
    pub address: String,
    /// The lab's CA. Whoever shows no certificate of this CA is not the gateway.
    pub authority: Sha256Print,
    /// What the machine shows to be let in.
    pub secret: InvitationSecret,
}

impl Invitation {
    /// The line. It holds the secret.
    pub fn expose(&self) -> String {
        let Self { lab, worker, gateway, address, authority, secret } = self;
        format!("{PREFIX}{lab}/{worker},{gateway},{address},{authority},{}", secret.expose())
    }
}

impl FromStr for Invitation {
    type Err = String;

    /// The error never repeats the line, which may hold a secret.
    fn from_str(line: &str) -> Result<Self, String> {
        let not_one = || {
            "this is no invitation; it is one line that begins with berth-join: and is printed by \
             `berth worker invite NAME` on the gateway"
                .to_owned()
        };
        let broken = |what: &str| format!("the invitation is damaged: {what}; copy the whole line");
        if line.len() > INVITATION_BYTES_MAX {
            return Err(not_one());
        }
        let Some(rest) = line.strip_prefix(PREFIX) else {
            return Err(match line.strip_prefix("berth-join:") {
                Some(_) => "the invitation is of another version of Berth; upgrade the older side".to_owned(),
                None => not_one(),
            });
        };
        let parts: Vec<&str> = rest.split(',').collect();
        let [name, gateway, address, authority, secret] = parts[..] else {
            return Err(broken("it does not have five parts"));
        };
        let (lab, worker) = name.split_once('/').ok_or_else(|| broken("it does not say lab and name"))?;
        let shaped = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && port.parse::<u16>().is_ok_and(|port| port != 0)
                && address.bytes().all(|b| b.is_ascii_graphic())
        });
        if !shaped {
            return Err(broken("its address is no host and port"));
        }
        Ok(Self {
            lab: lab.parse().map_err(|_| broken("its lab is no name"))?,
            worker: worker.parse().map_err(|_| broken("its worker is no name"))?,
            gateway: gateway.parse().map_err(|_| broken("its gateway is no name"))?,
            address: address.to_owned(),
            authority: authority.parse().map_err(|_| broken("it has no fingerprint"))?,
            secret: InvitationSecret::parse(secret).ok_or_else(|| broken("its secret is not whole"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation(address: &str) -> Invitation {
        Invitation {
            lab: "berlin".parse().unwrap(),
            worker: "rack-3".parse().unwrap(),
            gateway: "gateway".parse().unwrap(),
            address: address.to_owned(),
            authority: Sha256Print::of(b"ca"),
            secret: InvitationSecret::generate().unwrap(),
        }
    }

    #[test]
    fn a_line_reads_back_and_shows_its_secret_only_when_it_is_exposed() {
        for address in ["gw.lab.example:4701", "127.0.0.1:1", "[::1]:65535"] {
            let invitation = invitation(address);
            let line = invitation.expose();
            assert_eq!(line.parse::<Invitation>().unwrap(), invitation, "{line}");
            assert!(!line.contains(char::is_whitespace));
            assert!(!format!("{invitation:?}").contains(&invitation.secret.expose()[4..]));
        }
    }

    #[test]
    fn what_is_no_invitation_is_refused_without_being_repeated() {
        let whole = invitation("gw:4701").expose();
        let cut: Vec<&str> = (0..whole.len()).map(|length| &whole[..length]).collect();
        let long = format!("{whole}{}", "0".repeat(INVITATION_BYTES_MAX));
        let later = whole.replace(":1:", ":2:");
        let no_port = whole.replace("gw:4701", "gw:0");
        for bad in cut.into_iter().chain([&long[..], &later, &no_port]) {
            let why = bad.parse::<Invitation>().unwrap_err();
            assert!(!why.contains("bji_"), "{why}");
        }
        assert!(later.parse::<Invitation>().unwrap_err().contains("another version"));
    }

    #[test]
    fn a_hash_is_of_one_secret_alone() {
        let (one, other) = (InvitationSecret::generate().unwrap(), InvitationSecret::generate().unwrap());
        assert_eq!(one.hash(), InvitationSecret::parse(one.expose()).unwrap().hash());
        assert_ne!(one.hash(), other.hash());
        let text = String::from(one.hash());
        assert_eq!(SecretHash::try_from(text).unwrap(), one.hash());
    }
}
