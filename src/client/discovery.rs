//! Which nodes run on this machine, so that a command needs no address (SPEC §12).
//!
//! A node writes one file `<lab>@<node>.json` into `<state home>/berth/.live/` (0700) once its socket listens, and
//! removes it when it stops. A file proves nothing: a node counts as live when its socket answers a connect. What
//! a killed node left behind is removed by whoever finds that its socket refuses.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::model::{InvalidId, LabName, NodeName, NodeRole};

/// A socket that does not answer a connect within this is passed over.
const CONNECT_BOUND: Duration = Duration::from_millis(500);
/// Files that are looked at.
const ENTRIES_MAX: usize = 1_024;
/// The largest file that is read.
const ENTRY_BYTES_MAX: u64 = 16 * 1024;

/// A node that runs on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveNode {
    /// Its lab.
    pub lab: LabName,
    /// Its name in the lab.
    pub node: NodeName,
    /// What it is for.
    pub role: NodeRole,
    /// Its Unix socket; an absolute path.
    pub socket: PathBuf,
    /// Its process.
    pub pid: u32,
}

impl LiveNode {
    /// `LAB@NODE`.
    pub fn address(&self) -> NodeAddress {
        NodeAddress { lab: self.lab.clone(), node: self.node.clone() }
    }
}

/// Names a node among those of one machine: `LAB@NODE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// Its lab.
    pub lab: LabName,
    /// Its name there.
    pub node: NodeName,
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.lab, self.node)
    }
}

/// Why a text names no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// No `@`.
    #[error("a node is named LAB@NODE")]
    Shape,
    /// One side is no name.
    #[error(transparent)]
    Name(#[from] InvalidId),
}

impl FromStr for NodeAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        let (lab, node) = text.split_once('@').ok_or(InvalidAddress::Shape)?;
        Ok(Self { lab: lab.parse()?, node: node.parse()? })
    }
}

/// Why no node was found.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// Nothing runs.
    #[error("no node runs on this machine; start one with `berth up`, or set BERTH_URL to one elsewhere")]
    NoneLive,
    /// The one that was asked for does not run.
    #[error("{wanted} does not run on this machine{}", live_ones(live))]
    NotLive {
        /// Which.
        wanted: NodeAddress,
        /// What runs instead.
        live: Vec<LiveNode>,
    },
    /// It is not clear which is meant.
    #[error(
        "several nodes run on this machine: {}; name one with --via LAB@NODE or BERTH_NODE, or set BERTH_URL",
        listed(candidates)
    )]
    Several {
        /// Those that could be meant.
        candidates: Vec<LiveNode>,
    },
    /// Neither `XDG_STATE_HOME` nor `HOME` says where nodes register.
    #[error(
        "neither XDG_STATE_HOME nor HOME is set to an absolute path, so running nodes cannot be found; set BERTH_URL"
    )]
    NoStateHome,
    /// The directory cannot be read.
    #[error("{} cannot be read", directory.display())]
    Unreadable {
        /// Where nodes register.
        directory: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn listed(nodes: &[LiveNode]) -> String {
    let names: Vec<String> = nodes.iter().map(|node| format!("{} ({})", node.address(), node.role)).collect();
    names.join(", ")
}

fn live_ones(nodes: &[LiveNode]) -> String {
    if nodes.is_empty() { "; no node does".to_owned() } else { format!("; these do: {}", listed(nodes)) }
}

/// Where programs of this user keep their state: `$XDG_STATE_HOME`, else `~/.local/state`. A relative path does not
/// count, as XDG has it. `variable` reads the environment.
pub fn state_home(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
}

/// Registers a node of this user; see [`Directory::register`].
///
/// # Errors
/// There is no state home, or the disk refuses.
pub fn register(node: &LiveNode) -> io::Result<Registration> {
    let home = state_home(|name| std::env::var_os(name));
    let home = home.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "neither XDG_STATE_HOME nor HOME is set"))?;
    Directory::in_state_home(&home).register(node)
}

/// Where nodes register.
#[derive(Debug, Clone)]
pub struct Directory(PathBuf);

impl Directory {
    /// The one under a state home. No lab is named `.live`, so it is in no lab's way.
    pub fn in_state_home(state_home: &Path) -> Self {
        Self(state_home.join("berth").join(".live"))
    }

    /// Writes the node's file whole or not at all. Call it when the socket listens.
    ///
    /// # Errors
    /// What the disk says.
    pub fn register(&self, node: &LiveNode) -> io::Result<Registration> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        fs::set_permissions(&self.0, Permissions::from_mode(0o700))?;
        let content = serde_json::to_vec(node).map_err(io::Error::other)?;
        let path = self.0.join(format!("{}.json", node.address()));
        let draft = self.0.join(format!("{}.{}.new", node.address(), node.pid));
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft);
        let written = opened.and_then(|mut file| file.write_all(&content)).and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
        Ok(Registration { path, content })
    }

    /// The registered nodes whose socket answers, by name. Takes at most about 500 ms.
    ///
    /// # Errors
    /// The directory is there and cannot be read. A single bad file is passed over.
    pub async fn live(&self) -> io::Result<Vec<LiveNode>> {
        let mut live: Vec<LiveNode> =
            join_all(self.entries()?.into_iter().map(Entry::if_live)).await.into_iter().flatten().collect();
        live.sort_by_key(|node| node.address().to_string());
        Ok(live)
    }

    /// The node that a command without an address means: the one that was `wanted`, else the gateway, else the only
    /// worker.
    ///
    /// # Errors
    /// There is none or there are several, and what to do then.
    pub async fn find(&self, wanted: Option<&NodeAddress>) -> Result<LiveNode, DiscoveryError> {
        let unreadable = |source| DiscoveryError::Unreadable { directory: self.0.clone(), source };
        let live = self.live().await.map_err(unreadable)?;
        if let Some(wanted) = wanted {
            let found = live.iter().find(|node| node.address() == *wanted).cloned();
            return found.ok_or_else(|| DiscoveryError::NotLive { wanted: wanted.clone(), live });
        }
        let gateways: Vec<LiveNode> = live.iter().filter(|node| node.role == NodeRole::Gateway).cloned().collect();
        let mut candidates = if gateways.is_empty() { live } else { gateways };
        match candidates.len() {
            0 => Err(DiscoveryError::NoneLive),
            1 => Ok(candidates.remove(0)),
            _ => Err(DiscoveryError::Several { candidates }),
        }
    }

    /// One live node of each process of this machine that runs nodes, by name.
    ///
    /// # Errors
    /// There is none, or the directory cannot be read.
    pub async fn processes(&self) -> Result<Vec<LiveNode>, DiscoveryError> {
        let unreadable = |source| DiscoveryError::Unreadable { directory: self.0.clone(), source };
        let mut seen = HashSet::new();
        let mut live = self.live().await.map_err(unreadable)?;
        live.retain(|node| seen.insert(node.pid));
        if live.is_empty() { Err(DiscoveryError::NoneLive) } else { Ok(live) }
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let files = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let paths = files.filter_map(|file| Some(file.ok()?.path()));
        let named = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        Ok(named.take(ENTRIES_MAX).filter_map(Entry::read).collect())
    }
}

/// One file of the directory.
struct Entry {
    path: PathBuf,
    content: Vec<u8>,
    node: LiveNode,
}

impl Entry {
    fn read(path: PathBuf) -> Option<Self> {
        let content = content_of(&path)?;
        let node: LiveNode = serde_json::from_slice(&content).ok()?;
        node.socket.is_absolute().then_some(Self { path, content, node })
    }

    async fn if_live(self) -> Option<LiveNode> {
        match tokio::time::timeout(CONNECT_BOUND, UnixStream::connect(&self.node.socket)).await {
            Ok(Ok(_)) => Some(self.node),
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                remove_if_still(&self.path, &self.content);
                None
            }
            // The socket is gone, or not ours to speak to, or its node is too busy: no proof that it is dead.
            Ok(Err(_)) | Err(_) => None,
        }
    }
}

fn content_of(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path).ok()?.take(ENTRY_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(content)
}

/// A node that started again meanwhile has written another process id, and keeps its file.
fn remove_if_still(path: &Path, content: &[u8]) {
    if content_of(path).as_deref() == Some(content) {
        let _ = fs::remove_file(path);
    }
}

/// A node's entry; dropping it removes the file.
#[derive(Debug)]
#[must_use = "the node is registered only as long as this lives"]
pub struct Registration {
    path: PathBuf,
    content: Vec<u8>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        remove_if_still(&self.path, &self.content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    struct Machine {
        directory: Directory,
        root: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            Self { directory: Directory::in_state_home(root.path()), root }
        }

        fn node(&self, address: &str, role: NodeRole) -> LiveNode {
            let NodeAddress { lab, node } = address.parse().unwrap();
            LiveNode { socket: self.root.path().join(format!("{address}.sock")), lab, node, role, pid: 7 }
        }

        fn start(&self, address: &str, role: NodeRole) -> (UnixListener, Registration) {
            let node = self.node(address, role);
            (UnixListener::bind(&node.socket).unwrap(), self.directory.register(&node).unwrap())
        }

        async fn found(&self, wanted: Option<&str>) -> String {
            let wanted: Option<NodeAddress> = wanted.map(|text| text.parse().unwrap());
            match self.directory.find(wanted.as_ref()).await {
                Ok(node) => node.address().to_string(),
                Err(error) => error.to_string(),
            }
        }
    }

    use NodeRole::{Gateway, Worker};

    #[tokio::test]
    async fn without_a_node_the_user_hears_how_to_start_one() {
        let machine = Machine::new();
        assert!(machine.found(None).await.contains("start one with `berth up`"));
        let missing = machine.found(Some("lab@w1")).await;
        assert_eq!(missing, "lab@w1 does not run on this machine; no node does");
    }

    #[tokio::test]
    async fn one_node_of_each_process_is_enough_for_what_concerns_them_all() {
        let machine = Machine::new();
        assert!(matches!(machine.directory.processes().await, Err(DiscoveryError::NoneLive)));
        let (_gw, _w1) = (machine.start("lab@gw", Gateway), machine.start("lab@w1", Worker));
        let node = LiveNode { pid: 8, ..machine.node("lab@w2", Worker) };
        let (_listener, _w2) = (UnixListener::bind(&node.socket).unwrap(), machine.directory.register(&node).unwrap());
        let live = machine.directory.processes().await.unwrap();
        let names: Vec<_> = live.iter().map(|node| node.address().to_string()).collect();
        assert_eq!(names, ["lab@gw", "lab@w2"]);
    }

    #[tokio::test]
    async fn the_gateway_is_meant_when_there_is_one() {
        let machine = Machine::new();
        let _w1 = machine.start("lab@w1", Worker);
        assert_eq!(machine.found(None).await, "lab@w1", "a worker alone is meant as well");
        let _gw = machine.start("lab@gw", Gateway);
        assert_eq!(machine.found(None).await, "lab@gw");
        assert_eq!(machine.found(Some("lab@w1")).await, "lab@w1");
        let wrong = machine.found(Some("lab@w2")).await;
        assert_eq!(wrong, "lab@w2 does not run on this machine; these do: lab@gw (gateway), lab@w1 (worker)");
    }

    #[tokio::test]
    async fn among_several_the_user_has_to_choose_and_hears_how() {
        let machine = Machine::new();
        let _nodes = (machine.start("lab@w2", Worker), machine.start("lab@w1", Worker));
        let several = machine.found(None).await;
        assert!(several.contains("lab@w1 (worker), lab@w2 (worker); name one with --via LAB@NODE"), "{several}");
        let _gateways = (machine.start("a@gw", Gateway), machine.start("b@gw", Gateway));
        let several = machine.found(None).await;
        assert!(several.contains(": a@gw (gateway), b@gw (gateway);"), "{several}");
    }

    #[tokio::test]
    async fn a_stopped_node_leaves_no_trace_and_a_killed_one_is_cleared_away() {
        let machine = Machine::new();
        let file = machine.directory.0.join("lab@w1.json");
        let (listener, registration) = machine.start("lab@w1", Worker);
        assert!(file.exists());
        drop((listener, registration));
        assert!(!file.exists());

        fs::remove_file(machine.node("lab@w1", Worker).socket).unwrap();
        let (listener, registration) = machine.start("lab@w1", Worker);
        std::mem::forget(registration);
        drop(listener);
        assert!(machine.directory.live().await.unwrap().is_empty());
        assert!(!file.exists(), "its socket refused");
    }

    #[tokio::test]
    async fn an_entry_whose_socket_is_gone_or_whose_file_is_damaged_is_passed_over_but_kept() {
        let machine = Machine::new();
        let _gone = machine.directory.register(&machine.node("lab@gone", Worker)).unwrap();
        let damaged = machine.directory.0.join("lab@damaged.json");
        fs::write(&damaged, b"{").unwrap();
        assert!(machine.directory.live().await.unwrap().is_empty());
        assert!(damaged.exists() && machine.directory.0.join("lab@gone.json").exists());
    }

    #[test]
    fn the_former_process_of_a_node_does_not_remove_the_entry_of_the_next() {
        let machine = Machine::new();
        let former = machine.directory.register(&machine.node("lab@w1", Worker)).unwrap();
        let next = LiveNode { pid: 8, ..machine.node("lab@w1", Worker) };
        let _next = machine.directory.register(&next).unwrap();
        drop(former);
        assert!(machine.directory.0.join("lab@w1.json").exists());
    }

    #[test]
    fn entries_are_readable_by_their_owner_only() {
        let machine = Machine::new();
        let _entry = machine.directory.register(&machine.node("lab@w1", Worker)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&machine.directory.0), 0o700);
        assert_eq!(mode(&machine.directory.0.join("lab@w1.json")), 0o600);
    }

    #[test]
    fn the_state_home_is_the_one_of_xdg_unless_that_is_relative() {
        let home = |xdg: Option<&str>, home: Option<&str>| {
            state_home(|name| if name == "HOME" { home } else { xdg }.map(OsString::from))
        };
        assert_eq!(home(Some("/s"), Some("/h")), Some("/s".into()));
        assert_eq!(home(Some("s"), Some("/h")), Some("/h/.local/state".into()));
        assert_eq!(home(None, Some("/h")), Some("/h/.local/state".into()));
        assert_eq!(home(None, None), None);
    }
}
