//! A network of its own for each node, so that links can be cut: a bridge, and a namespace for each node that a pair of
//! virtual cables joins to it. Needs root, `ip` and `nft`. All names carry the number of this process and of the
//! network, and everything is removed at the end, also when the test fails.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// The nodes' networks.
pub struct Network {
    /// Unique among those that run on this machine; short, because interfaces have short names.
    tag: String,
    /// Of the addresses.
    subnet: String,
    nodes: Vec<String>,
}

/// What comes from whom the set names is dropped at the door: the sender notices nothing.
const RULES: [&str; 4] = [
    "add table inet chaos",
    "add set inet chaos cut { type ipv4_addr; }",
    "add chain inet chaos input { type filter hook input priority 0; }",
    "add rule inet chaos input meta l4proto udp ip saddr @cut drop",
];

impl Network {
    /// Builds one.
    ///
    /// # Errors
    /// Why there can be none on this machine.
    pub fn new(nodes: &[&str]) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("only root may make network namespaces".to_owned());
        }
        let number = std::process::id().wrapping_mul(8).wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed) % 8);
        let tag = format!("bc{:x}", number & 0x00ff_ffff);
        let subnet = format!("10.{}.{}", 192 + (number >> 8) % 62, number % 256);
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let network = Self { tag, subnet, nodes };
        let bridge = network.bridge();
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("addr add {}.254/24 dev {bridge}", network.subnet))?;
        ip(&format!("link set {bridge} up"))?;
        for (index, node) in network.nodes.iter().enumerate() {
            let (space, cable) = (network.space(node), format!("{}v{index}", network.tag));
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {cable} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {cable} master {bridge} up"))?;
            for command in
                [&format!("addr add {}/24 dev eth0", network.address(node)), "link set eth0 up", "link set lo up"]
            {
                ip(&format!("-n {space} {command}"))?;
            }
            RULES.iter().try_for_each(|rule| network.nft(node, rule))?;
        }
        Ok(network)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.tag)
    }

    fn space(&self, node: &str) -> String {
        format!("{}-{node}", self.tag)
    }

    /// Where a node is reached.
    pub fn address(&self, node: &str) -> String {
        let index = self.nodes.iter().position(|other| other == node).expect("it is one of the network's");
        format!("{}.{}", self.subnet, index + 1)
    }

    /// The same command, inside the node's network.
    pub fn inside(&self, node: &str, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.space(node)]).arg(command.get_program()).args(command.get_args());
        Self::like(&mut inside, command);
        inside
    }

    /// Runs `command` where `other` would run, and with its variables.
    pub fn like(command: &mut Command, other: &Command) {
        if let Some(directory) = other.get_current_dir() {
            command.current_dir(directory);
        }
        for (name, value) in other.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Lets nothing of `from` reach `to` by UDP any more, or again.
    pub fn cut(&self, from: &str, to: &str, cut: bool) {
        let verb = if cut { "add" } else { "delete" };
        let rule = format!("{verb} element inet chaos cut {{ {} }}", self.address(from));
        self.nft(to, &rule).expect("a rule is set as rules were set before");
    }

    fn nft(&self, node: &str, rule: &str) -> Result<(), String> {
        run(Command::new("ip").args(["netns", "exec", &self.space(node), "nft", rule]))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A part may not have been made. Cables go with their namespaces.
        for node in &self.nodes {
            let _ = ip(&format!("netns del {}", self.space(node)));
        }
        let _ = ip(&format!("link del {}", self.bridge()));
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    run(Command::new("ip").args(arguments.split(' ')))
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{shown}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{shown}: {}", said.trim())) }
}
