//! Which peers a node accepts: those that the lab's CA has certified for the right role (SPEC §9 Link).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, PeerIncompatible, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use super::identity::provider;
use crate::model::{LabName, NodeName, NodeRole};

/// What a certificate says of its owner: `berth://<lab>/<role>/<name>`, its one URI name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerName {
    /// The lab.
    pub lab: LabName,
    /// The role.
    pub role: NodeRole,
    /// The node.
    pub node: NodeName,
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "berth://{}/{}/{}", self.lab, self.role, self.node)
    }
}

impl FromStr for PeerName {
    type Err = String;

    fn from_str(uri: &str) -> Result<Self, String> {
        let refused = || format!("{uri:?} is not berth://<lab>/gateway|worker/<name>");
        let mut parts = uri.strip_prefix("berth://").ok_or_else(refused)?.split('/');
        let mut next = || parts.next().ok_or_else(refused);
        let lab = next()?.parse().map_err(|_| refused())?;
        let role = next()?.parse().map_err(|_| refused())?;
        let node = next()?.parse().map_err(|_| refused())?;
        if parts.next().is_some() { Err(refused()) } else { Ok(Self { lab, role, node }) }
    }
}

impl PeerName {
    /// Reads the name in a certificate. It says nothing about who signed it.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let certificate = EndEntityCert::try_from(certificate).map_err(|error| error.to_string())?;
        let mut names = certificate.valid_uri_names();
        let name = names.next().ok_or("the certificate has no URI name")?.parse()?;
        if names.next().is_some() { Err("the certificate has several URI names".to_owned()) } else { Ok(name) }
    }

    /// The name of the peer at the other end of a connection whose handshake has been verified.
    pub fn of_connection(identity: Option<Box<dyn std::any::Any>>) -> Result<Self, String> {
        Self::of(&shown(identity)?)
    }
}

/// The certificate of the peer at the other end of a connection whose handshake has been verified.
///
/// # Errors
/// It has shown none.
pub fn shown(identity: Option<Box<dyn std::any::Any>>) -> Result<CertificateDer<'static>, String> {
    let chain = identity.and_then(|chain| chain.downcast::<Vec<CertificateDer<'static>>>().ok());
    chain.and_then(|chain| chain.into_iter().next()).ok_or_else(|| "the peer showed no certificate".to_owned())
}

/// Accepts a peer of one lab and role, and of one name if that is given.
#[derive(Debug)]
pub struct PeerVerifier {
    anchors: Vec<TrustAnchor<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
    lab: LabName,
    role: NodeRole,
    node: Option<NodeName>,
}

impl PeerVerifier {
    /// A verifier that trusts `authority` alone.
    pub(super) fn new(
        authority: &CertificateDer<'_>,
        lab: LabName,
        role: NodeRole,
        node: Option<NodeName>,
    ) -> Result<Arc<Self>, webpki::Error> {
        let anchors = vec![anchor_from_trusted_cert(authority)?.to_owned()];
        let algorithms = provider().signature_verification_algorithms;
        Ok(Arc::new(Self { anchors, algorithms, lab, role, node }))
    }

    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), rustls::Error> {
        let end = EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
        end.verify_for_usage(self.algorithms.all, &self.anchors, intermediates, now, usage, None, None).map_err(
            |error| match error {
                webpki::Error::CertExpired { .. } => CertificateError::Expired,
                webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
                // Another lab's CA may have the name of this one, but not its key.
                webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                    CertificateError::UnknownIssuer
                }
                _ => CertificateError::ApplicationVerificationFailure,
            },
        )?;
        let name = PeerName::of(certificate).map_err(rustls::Error::General)?;
        let right = name.lab == self.lab
            && name.role == self.role
            && self.node.as_ref().is_none_or(|expected| *expected == name.node);
        if right {
            return Ok(());
        }
        let expected = self.node.as_ref().map_or("<name>", NodeName::as_str);
        let why = format!("the peer is {name}, and berth://{}/{}/{expected} was expected", self.lab, self.role);
        Err(rustls::Error::General(why))
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity, intermediates, now, KeyUsage::server_auth())?;
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
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn client_auth_mandatory(&self) -> bool {
        // A machine that joins has no certificate yet; the listener sends away everybody else without one.
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity, intermediates, now, KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
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
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_and_nothing_else_is_one() {
        let text = "berth://berlin/worker/rack-1";
        assert_eq!(text.parse::<PeerName>().unwrap().to_string(), text);
        for bad in [
            "berth://berlin/worker",
            "berth://berlin/worker/rack-1/x",
            "berth://berlin/admin/rack-1",
            "berth:///worker/rack-1",
            "https://berlin/worker/rack-1",
        ] {
            assert!(bad.parse::<PeerName>().is_err(), "{bad}");
        }
    }
}
