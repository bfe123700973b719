//! What a node needs before any port opens: its directory, its lock, its certificate, its tokens.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::StartError;
use crate::config::{Lab, PkiPaths};
use crate::model::{NodeName, NodeRole};
use crate::trust::{Authority, Identity, PkiFiles, Tokens, make_private_dir};

/// A node that has proved that it may start.
#[derive(Debug)]
pub struct Prepared {
    /// Its name.
    pub name: NodeName,
    /// Its role.
    pub role: NodeRole,
    /// Its directory, 0700.
    pub directory: PathBuf,
    /// Who it is.
    pub identity: Arc<Identity>,
    /// Certifies those that a gateway invites; none at a worker, and where the CA's key is elsewhere.
    pub issuer: Option<Authority>,
    /// Who may come in.
    pub tokens: Arc<Tokens>,
    /// Held as long as the node runs.
    pub lock: File,
}

impl Prepared {
    /// The nodes of a lab, the gateway first: all of them, or the one named.
    pub fn of(lab: &Lab, only: Option<&NodeName>, now: Timestamp) -> Result<Vec<Self>, StartError> {
        let gateway = lab.gateway.iter().map(|gateway| (&gateway.name, NodeRole::Gateway));
        let all: Vec<_> = gateway.chain(lab.workers.iter().map(|worker| (&worker.name, NodeRole::Worker))).collect();
        let chosen: Vec<_> = all.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)).copied().collect();
        if let (Some(asked), true) = (only, chosen.is_empty()) {
            let there = all.iter().map(|(name, _)| name.to_string()).collect();
            return Err(StartError::NoSuchNode { asked: asked.clone(), there });
        }
        if let (Some(pki), true) = (&lab.pki, chosen.len() > 1) {
            one_for_each(pki)?;
        }
        chosen.into_iter().map(|(name, role)| Self::one(lab, name, role, now)).collect()
    }

    fn one(lab: &Lab, name: &NodeName, role: NodeRole, now: Timestamp) -> Result<Self, StartError> {
        let directory = lab.node_dir(name);
        private(&directory).map_err(|source| StartError::Directory { path: directory.clone(), source })?;
        let lock = lock(&directory, name)?;
        let trust = |source| StartError::Trust { node: name.clone(), source };
        let (files, issuer) = match &lab.pki {
            Some(pki) => {
                let PkiPaths { ca, cert, key, ca_key } = pki.of(name);
                let issues = ca_key.filter(|_| role == NodeRole::Gateway);
                let issuer = issues.map(|key| Authority::of_files(ca.clone(), &key, &lab.name));
                (PkiFiles { ca, cert, key }, issuer.transpose().map_err(trust)?)
            }
            None => {
                let authority = Authority::open(&lab.state_dir, &lab.name, now).map_err(trust)?;
                let files = authority.node_files(&directory, role, name, now).map_err(trust)?;
                (files, (role == NodeRole::Gateway).then_some(authority))
            }
        };
        let identity = Identity::load(&files, &lab.name, role, name).map_err(trust)?;
        let tokens = Tokens::open(&directory).map_err(|source| StartError::Tokens { node: name.clone(), source })?;
        let (identity, tokens) = (Arc::new(identity), Arc::new(tokens));
        Ok(Self { name: name.clone(), role, directory, identity, issuer, tokens, lock })
    }
}

fn one_for_each(pki: &PkiPaths) -> Result<(), StartError> {
    let shared = |path: &Path| !path.to_string_lossy().contains("{node}");
    match (shared(&pki.cert), shared(&pki.key)) {
        (true, _) => Err(StartError::SharedCertificate { key: "cert" }),
        (_, true) => Err(StartError::SharedCertificate { key: "key" }),
        _ => Ok(()),
    }
}

/// Makes the directory, and takes it back from others where an older one was wider.
pub(super) fn private(directory: &Path) -> std::io::Result<()> {
    make_private_dir(directory)?;
    std::fs::set_permissions(directory, Permissions::from_mode(0o700))
}

/// One process for each node: the lock is the kernel's and ends with the process, however it ends.
pub(super) fn lock(directory: &Path, node: &NodeName) -> Result<File, StartError> {
    let path = directory.join("lock");
    let failed = |source| StartError::Directory { path: directory.to_owned(), source };
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StartError::AlreadyRunning { node: node.clone(), path }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}
