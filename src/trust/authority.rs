//! The lab's own certificate authority, made at the first start of a lab that lives on one machine.
//!
//! It lies in the state directory: `ca.crt` and `ca.key`, which no node's directory can be called. Each node has
//! `<state_dir>/<node>/node.crt` and `node.key`.
//! Keys have mode 0600. Several nodes may start at once: a file lock lets one of them make the authority.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData, SanType, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::KeyUsage;

use super::file::{make_private_dir, replace_private_file};
use super::{PeerName, PeerVerifier, PkiFiles, PublicKey, Sha256Print, TrustError};
use crate::model::{LabName, NodeName, NodeRole};

/// How long a certificate is valid.
const VALID_YEARS: i16 = 10;

/// A lab's authority, able to certify nodes.
pub struct Authority {
    lab: LabName,
    /// Its certificate's file.
    certificate: PathBuf,
    key: KeyPair,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its key is never shown.
        f.debug_struct("Authority").field("lab", &self.lab).finish_non_exhaustive()
    }
}

impl Authority {
    /// Opens the authority of a lab under `state_dir`, or makes it.
    pub fn open(state_dir: &Path, lab: &LabName, now: Timestamp) -> Result<Self, TrustError> {
        let directory = state_dir.to_owned();
        let (certificate, key_file) = (directory.join("ca.crt"), directory.join("ca.key"));
        write(&directory, make_private_dir)?;
        let lock = directory.join("ca.lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let _held = file
            .and_then(|file| file.lock().map(|()| file))
            .map_err(|source| TrustError::Write { path: lock, source })?;
        // The certificate is written last: where it is, the key is too.
        if certificate.exists() {
            return Self::of_files(certificate, &key_file, lab);
        }
        let key = KeyPair::generate()?;
        let made = authority_params(lab, now)?.self_signed(&key)?;
        write(&key_file, |path| replace_private_file(path, key.serialize_pem().as_bytes()))?;
        write(&certificate, |path| replace_private_file(path, made.pem().as_bytes()))?;
        tracing::info!(%lab, path = %directory.display(), "made the lab's certificate authority");
        Ok(Self { lab: lab.clone(), certificate, key })
    }

    /// The authority whose certificate and key lie in these files; Berth has made them.
    ///
    /// # Errors
    /// The key cannot be read, or holds something else.
    pub fn of_files(certificate: PathBuf, key: &Path, lab: &LabName) -> Result<Self, TrustError> {
        let pem = fs::read_to_string(key).map_err(|source| TrustError::Read { path: key.to_owned(), source })?;
        let key = KeyPair::from_pem(&pem)
            .map_err(|error| TrustError::Content { path: key.to_owned(), why: format!("holds no key ({error})") })?;
        Ok(Self { lab: lab.clone(), certificate, key })
    }

    /// True where `directory` has an authority.
    pub fn is_in(directory: &Path) -> bool {
        directory.join("ca.crt").exists()
    }

    /// A certificate for a worker that has proved to have `key`, and that of the authority, both PEM.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub fn certify_worker(
        &self,
        worker: &NodeName,
        key: &PublicKey,
        now: Timestamp,
    ) -> Result<(String, String), TrustError> {
        let name = PeerName { lab: self.lab.clone(), role: NodeRole::Worker, node: worker.clone() };
        let made = self.sign(&name, key, now)?;
        let (authority, _) = self.verified(&made)?;
        Ok((made.pem(), authority))
    }

    /// The fingerprint of the authority's certificate, if what it signs holds.
    ///
    /// # Errors
    /// The certificate cannot be read, or is of another lab or key.
    pub fn check(&self, now: Timestamp) -> Result<Sha256Print, TrustError> {
        let node = "anybody".parse().expect("the word is a node name");
        let name = PeerName { lab: self.lab.clone(), role: NodeRole::Worker, node };
        let made = self.sign(&name, &KeyPair::generate()?, now)?;
        Ok(Sha256Print::of_certificate(&self.verified(&made)?.1))
    }

    /// The authority's certificate, if it is what holds `made`.
    fn verified(&self, made: &rcgen::Certificate) -> Result<(String, CertificateDer<'static>), TrustError> {
        let path = &self.certificate;
        let text = fs::read_to_string(path).map_err(|source| TrustError::Read { path: path.clone(), source })?;
        let wrong = |error: String| TrustError::Content {
            path: path.clone(),
            why: format!("is not the CA of lab {}, or not of the key beside it ({error})", self.lab),
        };
        let anchor = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let verifier = PeerVerifier::new(&anchor, self.lab.clone(), NodeRole::Worker, None);
        let verifier = verifier.map_err(|error| wrong(error.to_string()))?;
        let checked = verifier.check(made.der(), &[], UnixTime::now(), KeyUsage::client_auth());
        checked.map_err(|error| wrong(error.to_string()))?;
        Ok((text, anchor))
    }

    fn sign(
        &self,
        name: &PeerName,
        key: &impl PublicKeyData,
        now: Timestamp,
    ) -> Result<rcgen::Certificate, rcgen::Error> {
        let issuer = Issuer::new(authority_params(&self.lab, now)?, &self.key);
        node_params(name, now)?.signed_by(key, &issuer)
    }

    /// The files of a node under `node_dir`, made if they are not there.
    pub fn node_files(
        &self,
        node_dir: &Path,
        role: NodeRole,
        node: &NodeName,
        now: Timestamp,
    ) -> Result<PkiFiles, TrustError> {
        let files =
            PkiFiles { ca: self.certificate.clone(), cert: node_dir.join("node.crt"), key: node_dir.join("node.key") };
        if files.cert.exists() {
            return Ok(files);
        }
        write(node_dir, make_private_dir)?;
        let key = KeyPair::generate()?;
        let name = PeerName { lab: self.lab.clone(), role, node: node.clone() };
        let made = self.sign(&name, &key, now)?;
        write(&files.key, |path| replace_private_file(path, key.serialize_pem().as_bytes()))?;
        write(&files.cert, |path| replace_private_file(path, made.pem().as_bytes()))?;
        Ok(files)
    }
}

fn authority_params(lab: &LabName, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(&format!("berth lab {lab}"), now)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn node_params(name: &PeerName, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut params = params(name.node.as_str(), now)?;
    params.subject_alt_names = vec![SanType::URI(name.to_string().try_into()?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn params(common_name: &str, now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let year = now.to_zoned_datetime(TimeZone::UTC).year();
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, common_name);
    // A year back, because the clocks of a lab's machines differ.
    params.not_before = date_time_ymd(i32::from(year) - 1, 1, 1);
    params.not_after = date_time_ymd(i32::from(year + VALID_YEARS), 1, 1);
    Ok(params)
}

fn write(path: &Path, how: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), TrustError> {
    how(path).map_err(|source| TrustError::Write { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::trust::Identity;

    const ROLE: NodeRole = NodeRole::Worker;

    fn now() -> Timestamp {
        crate::clock::Clock::system().now().wall
    }

    fn made(state: &Path, lab: &str, node: &str) -> PkiFiles {
        let authority = Authority::open(state, &lab.parse().unwrap(), now()).unwrap();
        authority.node_files(&state.join(node), ROLE, &node.parse().unwrap(), now()).unwrap()
    }

    fn load(files: &PkiFiles, node: &str) -> Result<Identity, TrustError> {
        Identity::load(files, &"demo".parse().unwrap(), ROLE, &node.parse().unwrap())
    }

    #[test]
    fn the_first_start_makes_files_and_the_next_finds_them() {
        let state = tempfile::tempdir().unwrap();
        let files = made(state.path(), "demo", "rack-1");
        let first = load(&files, "rack-1").unwrap();
        let again = load(&made(state.path(), "demo", "rack-1"), "rack-1").unwrap();
        assert_eq!(first.derive("x"), again.derive("x"));
        assert_ne!(first.derive("x"), first.derive("y"));
        for path in [&files.key, &state.path().join("ca.key")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        }
    }

    #[test]
    fn a_certificate_of_another_node_another_ca_or_another_key_is_refused_by_name() {
        let (state, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let files = made(state.path(), "demo", "rack-1");
        let other = made(state.path(), "demo", "rack-2");
        let stranger = made(foreign.path(), "demo", "rack-1");
        let refused = |files: PkiFiles, node| load(&files, node).unwrap_err().to_string();
        assert!(refused(files.clone(), "rack-9").contains("this node is berth://demo/worker/rack-9"));
        assert!(refused(PkiFiles { key: other.key, ..files.clone() }, "rack-1").contains("does not fit"));
        assert!(refused(PkiFiles { ca: stranger.ca, ..files.clone() }, "rack-1").contains("not a valid certificate"));
        fs::write(&files.cert, "nonsense").unwrap();
        assert!(refused(files.clone(), "rack-1").contains("node.crt: holds no PEM certificate"));
        fs::remove_file(&files.cert).unwrap();
        assert!(refused(files, "rack-1").contains("cannot read"));
    }
}
