//! Why a node does not start.

use std::path::PathBuf;

use crate::host::HostError;
use crate::http::BindError;
use crate::limits::WORKERS_MAX;
use crate::link::LinkError;
use crate::model::NodeName;
use crate::store::OpenError;
use crate::trust::roster::RosterError;
use crate::trust::{TokenError, TrustError};

/// Why a node does not start. Each names the key or the file, and says the fix.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The lab file has no such node.
    #[error("the lab file has no node {asked}; it has {}", there.join(", "))]
    NoSuchNode {
        /// What was asked for.
        asked: NodeName,
        /// What there is.
        there: Vec<String>,
    },
    /// One certificate cannot stand for several nodes.
    #[error("pki.{key} is one file for every node of the file; write {{node}} in its path, or start one with --node")]
    SharedCertificate {
        /// `cert` or `key`.
        key: &'static str,
    },
    /// Its directory cannot be made private.
    #[error("cannot use {path} as the directory of a node; check lab.state_dir and who may write there")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The node runs already.
    #[error(
        "node {node} is already running on this machine, it holds {path}; stop it, or choose another lab.state_dir"
    )]
    AlreadyRunning {
        /// Which.
        node: NodeName,
        /// Its lock.
        path: PathBuf,
    },
    /// It cannot run programs.
    #[error("node {node} cannot find its own program, which guards the programs that it runs; see to its file")]
    Guard {
        /// Which.
        node: NodeName,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its certificate cannot be used.
    #[error("node {node}: {source}")]
    Trust {
        /// Which.
        node: NodeName,
        /// Why.
        source: TrustError,
    },
    /// Its tokens cannot be used.
    #[error("node {node}: {source}")]
    Tokens {
        /// Which.
        node: NodeName,
        /// Why.
        source: TokenError,
    },
    /// A gateway does not know whether new holds are stopped.
    #[error("node {node}: it cannot be read whether new holds are stopped: {source}")]
    Holds {
        /// Which.
        node: NodeName,
        /// Why.
        source: std::io::Error,
    },
    /// A gateway cannot keep its history.
    #[error("node {node}: {source}")]
    History {
        /// Which.
        node: NodeName,
        /// Why.
        source: OpenError,
    },
    /// What a gateway keeps of its last run cannot be read, or this run cannot be written down.
    #[error("node {node}: its last run cannot be read, or this one not be written down: {source}")]
    State {
        /// Which.
        node: NodeName,
        /// Why.
        source: std::io::Error,
    },
    /// A gateway does not know which workers there are.
    #[error("node {node}: {source}")]
    Roster {
        /// Which.
        node: NodeName,
        /// Why.
        source: RosterError,
    },
    /// There are more workers than a lab may have.
    #[error(
        "node {node}: the lab file and those that have joined are {workers} workers, a lab has at most {WORKERS_MAX}; \
         take some out of the lab file, or remove some with `berth worker remove`"
    )]
    RosterFull {
        /// Which.
        node: NodeName,
        /// How many there would be.
        workers: usize,
    },
    /// Its HTTP door cannot be opened.
    #[error("{key}: {source}")]
    Http {
        /// The key of the lab file.
        key: String,
        /// Why.
        source: BindError,
    },
    /// Its UDP port cannot be opened.
    #[error("{key}: {source}; another process may listen there: stop it or change the key")]
    Link {
        /// The key of the lab file.
        key: String,
        /// Why.
        source: LinkError,
    },
    /// The host does not start.
    #[error("node {node}: {source}")]
    Host {
        /// Which.
        node: NodeName,
        /// Why.
        source: HostError,
    },
    /// The actor system refused.
    #[error("cannot start an actor")]
    Spawn(#[from] ractor::SpawnErr),
}

impl StartError {
    /// True when the operator can mend it in the lab file or on the machine; false for a fault of Berth or of the disk.
    pub fn is_configuration(&self) -> bool {
        match self {
            StartError::History { source, .. } => {
                matches!(source, OpenError::TooNew { .. } | OpenError::InUse { .. } | OpenError::Sqlite { .. })
            }
            StartError::Host { source, .. } => {
                use OpenError::{InUse, Sqlite, TooNew};
                matches!(source, HostError::Store(TooNew { .. } | InUse { .. } | Sqlite { .. }))
            }
            StartError::Spawn(_) => false,
            _ => true,
        }
    }
}
