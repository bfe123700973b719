//! A node's own certificate and key.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use webpki::KeyUsage;

use super::{PeerName, PeerVerifier, Sha256Print};
use crate::model::{LabName, NodeName, NodeRole};

/// Where a node's certificate, its key and the lab's CA certificate lie, as PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PkiFiles {
    /// The lab's CA certificate.
    pub ca: PathBuf,
    /// The node's certificate.
    pub cert: PathBuf,
    /// The node's key.
    pub key: PathBuf,
}

/// Why a node cannot prove who it is.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A file is not there or not readable.
    #[error("cannot read {path}: check that it is there and that this user may read it")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file or directory cannot be written.
    #[error("cannot write {path}: check that this user may write there")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong and what would be right.
        why: String,
    },
    /// A key or certificate cannot be made.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

/// What a node shows of itself, and what it expects of its peers.
#[derive(Debug)]
pub struct Identity {
    name: PeerName,
    authority: CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads and checks a node's files: the certificate must name this node, and be signed by the CA.
    pub fn load(files: &PkiFiles, lab: &LabName, role: NodeRole, node: &NodeName) -> Result<Self, TrustError> {
        let content = |path: &Path, why: String| TrustError::Content { path: path.into(), why };
        let authority = CertificateDer::from_pem_slice(&read(&files.ca)?)
            .map_err(|error| content(&files.ca, format!("holds no PEM certificate ({error})")))?;
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&read(&files.cert)?)
            .collect::<Result<_, _>>()
            .map_err(|error| content(&files.cert, format!("holds no PEM certificate ({error})")))?;
        let first = chain.first().ok_or_else(|| content(&files.cert, "holds no PEM certificate".to_owned()))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?)
            .map_err(|error| content(&files.key, format!("holds no PEM private key ({error})")))?;
        let name = PeerName::of(first).map_err(|why| content(&files.cert, why))?;
        let expected = PeerName { lab: lab.clone(), role, node: node.clone() };
        if name != expected {
            return Err(content(&files.cert, format!("is the certificate of {name}; this node is {expected}")));
        }
        let identity = Self { name, authority, chain, key };
        identity.check_own_files(files)?;
        Ok(identity)
    }

    /// The certificate's name.
    pub fn name(&self) -> &PeerName {
        &self.name
    }

    /// The fingerprint of the lab's CA.
    pub fn authority(&self) -> Sha256Print {
        Sha256Print::of_certificate(&self.authority)
    }

    /// TLS for a gateway: any worker of the lab may come, and whoever shows no certificate at all. What those may say
    /// depends on the protocol, of which `alpn` lists the names, and is for the listener to enforce. The CA is shown too:
    /// a machine that joins knows nothing but its fingerprint.
    pub fn server_tls(&self, alpn: &[&[u8]]) -> Result<rustls::ServerConfig, rustls::Error> {
        let peers = self.verifier(NodeRole::Worker, None)?;
        let mut chain = self.chain.clone();
        if !chain.contains(&self.authority) {
            chain.push(self.authority.clone());
        }
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(peers)
            .with_single_cert(chain, self.key.clone_key())?;
        tls.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        // A resumed session would bring back a certificate that has expired since.
        tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        Ok(tls)
    }

    /// TLS for a worker: only the lab's gateway of that name will do.
    pub fn client_tls(&self, alpn: &[u8], gateway: &NodeName) -> Result<rustls::ClientConfig, rustls::Error> {
        let peers = self.verifier(NodeRole::Gateway, Some(gateway.clone()))?;
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(peers)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())?;
        tls.alpn_protocols = vec![alpn.to_vec()];
        tls.enable_sni = false;
        tls.resumption = rustls::client::Resumption::disabled();
        Ok(tls)
    }

    /// 32 bytes that are the same at every start of this node and tell nothing of its key. `purpose` keeps two uses
    /// apart.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(b"berth derived key\0");
        digest.update(purpose);
        digest.update(b"\0");
        digest.update(self.key.secret_der());
        digest.finalize().into()
    }

    fn verifier(&self, role: NodeRole, node: Option<NodeName>) -> Result<Arc<PeerVerifier>, rustls::Error> {
        PeerVerifier::new(&self.authority, self.name.lab.clone(), role, node)
            .map_err(|error| rustls::Error::General(error.to_string()))
    }

    /// Finds a key that does not fit its certificate, a foreign CA and an expired certificate before a port opens.
    fn check_own_files(&self, files: &PkiFiles) -> Result<(), TrustError> {
        let signer = provider().key_provider.load_private_key(self.key.clone_key());
        let fits = signer.and_then(|key| rustls::sign::CertifiedKey::new(self.chain.clone(), key).keys_match());
        fits.map_err(|error| TrustError::Content {
            path: files.key.clone(),
            why: format!("does not fit the certificate {} ({error})", files.cert.display()),
        })?;
        let wrong = |error: String| TrustError::Content {
            path: files.cert.clone(),
            why: format!("is not a valid certificate of the CA {} ({error}); issue a new one", files.ca.display()),
        };
        let verifier = self.verifier(self.name.role, None).map_err(|error| wrong(error.to_string()))?;
        let now = rustls::pki_types::UnixTime::now();
        // A gateway is dialled, a worker dials.
        let usage = match self.name.role {
            NodeRole::Gateway => KeyUsage::server_auth(),
            NodeRole::Worker => KeyUsage::client_auth(),
        };
        verifier.check(&self.chain[0], &self.chain[1..], now, usage).map_err(|error| wrong(error.to_string()))
    }
}

/// The cryptography of every connection; given to each configuration, never installed for the process.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn read(path: &Path) -> Result<Vec<u8>, TrustError> {
    fs::read(path).map_err(|source| TrustError::Read { path: path.into(), source })
}
