//! The lab file (SPEC §14): one TOML file names the gateway, the workers and their resources.
//!
//! The file is strict. A key that is unknown, of the wrong type or out of bounds is an error that names the key, the
//! line and the fix; the first one found ends the reading. A variable `BERTH_<SECTION>__<KEY>` takes the place of the
//! file's `section.key` and is held to the same rules; workers are set in the file only. One key has a second variable:
//! `LEASE_WAITER_TTL_SECONDS`, in whole seconds, sets `waiting_room.waiter_ttl` whatever else does. [`Effective`] also
//! keeps where each value came from, for `berth config check`.

mod argv;
mod calendar;
mod check;
mod diff;
mod driver;
mod error;
mod exec;
mod given;
mod load;
mod reader;
mod rules;
mod section;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use diff::Differences;
pub use error::{ConfigError, Origin};
pub use load::{Source, environment};
pub use reader::default_state_dir;

use crate::admission::Rules;
use crate::model::{LabName, NodeName, ResourceSpec};

/// A lab: its nodes, and what holds for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lab {
    /// Its name; part of every certificate's role.
    pub name: LabName,
    /// Where the nodes keep their state; absolute.
    pub state_dir: PathBuf,
    /// The gateway; none for a standalone worker.
    pub gateway: Option<GatewayConfig>,
    /// Where the certificates are; none when they are made under `state_dir`.
    pub pki: Option<PkiPaths>,
    /// Plain HTTP is allowed off loopback.
    pub insecure: bool,
    /// The numbers that every host goes by.
    pub rules: Rules,
    /// The workers, at least one, in the order of the file.
    pub workers: Vec<WorkerConfig>,
}

impl Lab {
    /// The directory of one node.
    pub fn node_dir(&self, node: &NodeName) -> PathBuf {
        self.state_dir.join(node.as_str())
    }
}

/// `[gateway]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Its name.
    pub name: NodeName,
    /// Where it listens for clients, TCP.
    pub api: SocketAddr,
    /// Where it listens for workers, UDP.
    pub link: SocketAddr,
    /// What workers dial, `host:port`. Its port is 0 only when `link` has port 0 and no address is given.
    pub address: String,
    /// How long a starting gateway waits for the reports of its workers.
    pub rebuild_wait: Duration,
    /// How long a request waits for a worker that is away.
    pub absence_grace: Duration,
}

/// `[pki]`. A relative path counts from the current directory; `{node}` in one stands for the node's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PkiPaths {
    /// The certificate of the lab's authority.
    pub ca: PathBuf,
    /// The node's certificate.
    pub cert: PathBuf,
    /// The node's key.
    pub key: PathBuf,
    /// The authority's key, with which a gateway certifies those that it has invited.
    pub ca_key: Option<PathBuf>,
}

impl PkiPaths {
    /// The paths of one node.
    pub fn of(&self, node: &NodeName) -> PkiPaths {
        let of = |path: &PathBuf| PathBuf::from(path.to_string_lossy().replace("{node}", node.as_str()));
        let ca_key = self.ca_key.as_ref().map(of);
        PkiPaths { ca: of(&self.ca), cert: of(&self.cert), key: of(&self.key), ca_key }
    }
}

/// `[[worker]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Its name.
    pub name: NodeName,
    /// Where it listens for clients, TCP; none when it has no such door.
    pub api: Option<SocketAddr>,
    /// Its resources, `count` expanded, in the order of the file.
    pub resources: Vec<ResourceSpec>,
}

/// A lab, and where each of its values came from.
#[derive(Debug, Clone)]
pub struct Effective {
    /// The lab.
    pub lab: Lab,
    /// Every value that is in force, in the order of SPEC §14. An optional key that nobody sets has none.
    pub values: Vec<Value>,
}

/// One value of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// Its full path, such as `lease.max_ttl` or `worker.rack-1.api`.
    pub key: String,
    /// As it would be written in the file.
    pub value: String,
    /// Where it came from.
    pub origin: Origin,
}

#[cfg(test)]
mod tests;
