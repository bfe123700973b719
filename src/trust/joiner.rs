//! A machine that joins: its key, the proof that it has it, and whom it takes for the gateway (SPEC §9 Joining).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{KeyPair, PublicKeyData, SignatureAlgorithm, SigningKey};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::verify_tls13_signature;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, PeerIncompatible, SignatureScheme};
use webpki::KeyUsage;

use super::file::{make_private_dir, replace_private_file};
use super::fingerprint::{from_hex, to_hex};
use super::identity::provider;
use super::{Invitation, PeerVerifier, PkiFiles, Sha256Print, TrustError};
use crate::model::NodeRole;

/// What a proof is made over besides the connection, so that it is good for nothing else.
const PROOF: &[u8] = b"berth-join/1 proof\0";
/// An uncompressed point of P-256.
const POINT_BYTES: usize = 65;
/// A signature of P-256 in DER takes less.
const PROOF_BYTES_MAX: usize = 80;

/// The key that a machine joins with, until it has joined. The one that its node may have stays in use meanwhile.
const PENDING: &str = "join.key";
const KEPT: &str = "node.key";

/// The key of a machine that joins. It never leaves the machine.
pub struct JoinerKey(KeyPair);

impl JoinerKey {
    /// The key of an earlier try in `node_dir`, else the key of the node there, unless it is to be made `anew`; else a new
    /// one, which is on disk when this returns.
    ///
    /// # Errors
    /// A file cannot be read or written, or holds something else.
    pub fn open(node_dir: &Path, anew: bool) -> Result<Self, TrustError> {
        let (pending, kept) = (node_dir.join(PENDING), node_dir.join(KEPT));
        if pending.exists() {
            return Self::read(&pending);
        }
        if kept.exists() && !anew {
            return Self::read(&kept);
        }
        let write = |source| TrustError::Write { path: pending.clone(), source };
        make_private_dir(node_dir).map_err(write)?;
        let key = KeyPair::generate()?;
        replace_private_file(&pending, key.serialize_pem().as_bytes()).map_err(write)?;
        Ok(Self(key))
    }

    /// Removes the key of an earlier try, which will never be let in: the next try has another.
    ///
    /// # Errors
    /// The file is there and cannot be removed.
    pub fn forget_try(node_dir: &Path) -> Result<(), TrustError> {
        let path = node_dir.join(PENDING);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(TrustError::Write { path, source }),
            _ => Ok(()),
        }
    }

    fn read(path: &Path) -> Result<Self, TrustError> {
        let text = fs::read_to_string(path).map_err(|source| TrustError::Read { path: path.to_owned(), source })?;
        let content = |why: String| TrustError::Content { path: path.to_owned(), why };
        let key = KeyPair::from_pem(&text).map_err(|error| content(format!("holds no key ({error})")))?;
        if !key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
            let why = "is a key of another kind than Berth makes; use --new-key to make another";
            return Err(content(why.to_owned()));
        }
        Ok(Self(key))
    }

    /// What the gateway is told of it.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.der_bytes().to_vec())
    }

    /// Proves on one connection to have the key. `bound` is what only the two ends of that connection know.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn prove(&self, bound: &[u8]) -> Result<String, TrustError> {
        Ok(to_hex(&self.0.sign(&[PROOF, bound].concat())?))
    }
}

impl std::fmt::Debug for JoinerKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinerKey(…)")
    }
}

/// The public half: a point of P-256.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// As it is sent.
    pub fn to_hex(&self) -> String {
        to_hex(&self.0)
    }

    /// What a peer says is its key, if its proof holds on this connection.
    pub fn proven(text: &str, proof: &str, bound: &[u8]) -> Option<Self> {
        if text.len() != 2 * POINT_BYTES || proof.len() > 2 * PROOF_BYTES_MAX {
            return None;
        }
        let (point, proof) = (from_hex(text)?, from_hex(proof)?);
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &point);
        key.verify(&[PROOF, bound].concat(), &proof).ok()?;
        Some(Self(point))
    }

    /// The fingerprint that a certificate of this key has.
    pub fn fingerprint(&self) -> Sha256Print {
        Sha256Print::of(&self.subject_public_key_info())
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// Takes for the gateway only whoever shows a certificate of the invitation's CA, in that role and under that name.
#[derive(Debug)]
struct Host {
    invitation: Invitation,
}

/// TLS for a machine that has nothing but an invitation.
///
/// # Errors
/// TLS cannot be set up.
pub fn joiner_tls(invitation: &Invitation, alpn: &[u8]) -> Result<rustls::ClientConfig, rustls::Error> {
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Host { invitation: invitation.clone() }))
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.enable_sni = false;
    tls.resumption = rustls::client::Resumption::disabled();
    Ok(tls)
}

impl ServerCertVerifier for Host {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Invitation { lab, gateway, authority, .. } = &self.invitation;
        let ca = intermediates.iter().find(|shown| Sha256Print::of_certificate(shown) == *authority);
        let ca = ca.ok_or_else(|| {
            rustls::Error::General(
                "who answers there is not of the lab that made the invitation: its CA has another fingerprint"
                    .to_owned(),
            )
        })?;
        let verifier = PeerVerifier::new(ca, lab.clone(), NodeRole::Gateway, Some(gateway.clone()))
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.check(end_entity, intermediates, now, KeyUsage::server_auth())?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Where the files of a machine that has joined lie: all in its node's directory.
pub fn joined_files(node_dir: &Path) -> PkiFiles {
    let file = |name: &str| node_dir.join(name);
    PkiFiles { ca: file("ca.crt"), cert: file("node.crt"), key: file(KEPT) }
}

/// Keeps what the gateway has answered for `key`, after checking that it is of the invitation's CA; whether it is this
/// machine's is for [`Identity::load`](super::Identity::load) to say.
///
/// # Errors
/// The CA is another, or a file cannot be written.
pub fn keep_answer(
    invitation: &Invitation,
    node_dir: &Path,
    key: &JoinerKey,
    certificate: &str,
    authority: &str,
) -> Result<PkiFiles, TrustError> {
    let files = joined_files(node_dir);
    let shown = CertificateDer::from_pem_slice(authority.as_bytes()).ok();
    if shown.is_none_or(|shown| Sha256Print::of_certificate(&shown) != invitation.authority) {
        let why = "the gateway has answered with another CA than that of the invitation; nothing is kept".to_owned();
        return Err(TrustError::Content { path: files.ca, why });
    }
    let private = key.0.serialize_pem();
    for (path, text) in [(&files.ca, authority), (&files.key, &private), (&files.cert, certificate)] {
        let write = |source| TrustError::Write { path: path.clone(), source };
        replace_private_file(path, text.as_bytes()).map_err(write)?;
    }
    // Last: a crash before this is mended by joining again with the same key.
    match fs::remove_file(node_dir.join(PENDING)) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(TrustError::Write { path: node_dir.join(PENDING), source })
        }
        _ => Ok(files),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_own_key_and_connection_alone() {
        let directory = tempfile::tempdir().unwrap();
        let key = JoinerKey::open(directory.path(), false).unwrap();
        let (public, proof) = (key.public().to_hex(), key.prove(b"this connection").unwrap());
        assert_eq!(PublicKey::proven(&public, &proof, b"this connection"), Some(key.public()));
        assert_eq!(PublicKey::proven(&public, &proof, b"another"), None);
        let elsewhere = tempfile::tempdir().unwrap();
        let another = JoinerKey::open(elsewhere.path(), false).unwrap();
        assert_ne!(another.public(), key.public());
        assert_eq!(PublicKey::proven(&another.public().to_hex(), &proof, b"this connection"), None);
        for bad in ["", "00", &public[2..], &"ff".repeat(POINT_BYTES), &"ff".repeat(100_000)] {
            assert_eq!(PublicKey::proven(bad, &proof, b"this connection"), None);
            assert_eq!(PublicKey::proven(&public, bad, b"this connection"), None);
        }
    }

    #[test]
    fn a_key_is_the_same_at_the_next_try_and_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let key = JoinerKey::open(directory.path(), false).unwrap();
        assert_eq!(JoinerKey::open(directory.path(), true).unwrap().public(), key.public(), "that try is not over");
        assert_eq!(format!("{key:?}"), "JoinerKey(…)");
        fs::write(directory.path().join(PENDING), "nonsense").unwrap();
        assert!(JoinerKey::open(directory.path(), false).unwrap_err().to_string().contains("join.key: holds no key"));
    }

    #[test]
    fn a_new_key_takes_the_place_of_the_old_one_only_with_the_answer() {
        let (directory, lab) = (tempfile::tempdir().unwrap(), "berlin".parse().unwrap());
        let now = crate::clock::Clock::system().now().wall;
        let authority = super::super::Authority::open(&directory.path().join("ca"), &lab, now).unwrap();
        let invitation = Invitation {
            lab,
            worker: "rack-3".parse().unwrap(),
            gateway: "gateway".parse().unwrap(),
            address: "gw:1".to_owned(),
            authority: authority.check(now).unwrap(),
            secret: super::super::InvitationSecret::generate().unwrap(),
        };
        let node_dir = directory.path().join("rack-3");
        let join = |anew| {
            let key = JoinerKey::open(&node_dir, anew).unwrap();
            let (certificate, ca) = authority.certify_worker(&invitation.worker, &key.public(), now).unwrap();
            let files = keep_answer(&invitation, &node_dir, &key, &certificate, &ca).unwrap();
            super::super::Identity::load(&files, &invitation.lab, NodeRole::Worker, &invitation.worker).unwrap();
            key.public()
        };
        let first = join(false);
        assert_eq!(join(false), first, "once more with the same key");
        let kept = fs::read(node_dir.join(KEPT)).unwrap();
        JoinerKey::open(&node_dir, true).unwrap();
        assert_eq!(fs::read(node_dir.join(KEPT)).unwrap(), kept, "nobody has answered for the new one");
        assert_ne!(join(true), first);
        let foreign = Invitation { authority: Sha256Print::of(b"another"), ..invitation.clone() };
        let key = JoinerKey::open(&node_dir, false).unwrap();
        let (certificate, ca) = authority.certify_worker(&invitation.worker, &key.public(), now).unwrap();
        let refused = keep_answer(&foreign, &node_dir, &key, &certificate, &ca).unwrap_err().to_string();
        assert!(refused.contains("another CA than that of the invitation"), "{refused}");
    }
}
