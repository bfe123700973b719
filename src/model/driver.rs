//! What happens around the leases of a resource, as the lab file says it (SPEC §7).

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Labels;

/// The driver of a resource. Its hooks are programs that run on the machine of the worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// How the device is seen.
    pub kind: DriverKind,
    /// Runs before the lease exists.
    pub prepare: Option<Hook>,
    /// Runs after the last holder has gone.
    pub reset: Option<Hook>,
    /// Runs again and again; beside what the kind itself checks.
    pub health: Option<Hook>,
    /// How long after the end of one check the next begins.
    pub health_interval: Duration,
    /// Where the hooks run: the directory of the lab file, unless the driver names one. The node's own working directory
    /// when there is none.
    pub directory: Option<PathBuf>,
    /// True for that of a resource which the lab file did not name when the node started: nobody knows what it is, and what
    /// is to be done after a lease waits until the file says so.
    pub is_unknown: bool,
}

impl Driver {
    /// The driver of a resource that the lab file does not name.
    pub fn unknown() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }

    /// The hook of that kind.
    pub fn hook(&self, kind: HookKind) -> Option<&Hook> {
        match kind {
            HookKind::Prepare => self.prepare.as_ref(),
            HookKind::Reset => self.reset.as_ref(),
            HookKind::Health => self.health.as_ref(),
        }
    }

    /// True when something looks at the device again and again.
    pub fn checks(&self) -> bool {
        self.health.is_some() || matches!(self.kind, DriverKind::Adb(_))
    }

    /// True when the resource has a driver at all.
    pub fn is_some(&self) -> bool {
        self.kind != DriverKind::None
    }
}

/// How the device of a resource is seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DriverKind {
    /// Not at all: it is there, and always as it should be. It has no hooks.
    #[default]
    None,
    /// By the hooks alone.
    Command,
    /// By an adb server.
    Adb(AdbDevice),
}

impl DriverKind {
    /// The word in the lab file and in reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            DriverKind::None => "none",
            DriverKind::Command => "command",
            DriverKind::Adb(_) => "adb",
        }
    }
}

/// An Android device, as an adb server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdbDevice {
    /// The port of the adb server on this machine.
    pub port: u16,
    /// Which of its devices.
    pub which: AdbWhich,
}

/// Which device of an adb server a resource stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdbWhich {
    /// The one with this serial.
    Serial(String),
    /// One that has these labels and that no other resource stands for. The resource keeps it while it is plugged in, and
    /// takes it again before others when it comes back.
    Match(Labels),
}

/// A program that the worker runs: no shell. It reads nothing, and what it leaves running is killed when it ends, daemons
/// too: one that is to stay (an adb server, say) is started by the system. A name with a slash is a path that counts from
/// the driver's directory; one without is looked up in `PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    /// The program and its arguments; at least the program.
    pub argv: Vec<String>,
    /// After so long it is killed, with everything that it has started.
    pub timeout: Duration,
}

/// When a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookKind {
    /// Before the lease.
    Prepare,
    /// After it.
    Reset,
    /// From time to time.
    Health,
}

impl HookKind {
    /// The word in the lab file.
    pub fn as_str(self) -> &'static str {
        match self {
            HookKind::Prepare => "prepare",
            HookKind::Reset => "reset",
            HookKind::Health => "health",
        }
    }
}

impl fmt::Display for HookKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a hook, or a check of the device, has failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HookFailure {
    /// Which.
    pub hook: HookKind,
    /// In words, such as `exited with 3` or `took longer than 60s and was killed`.
    pub why: String,
    /// The end of what it wrote, both streams as they came; at most [`OUTPUT_BYTES_MAX`], and no control characters but
    /// line ends.
    pub output: String,
}

/// What is kept of a failed hook's output, in bytes.
pub const OUTPUT_BYTES_MAX: usize = 2 * 1024;

impl HookFailure {
    /// The same if it is as it should be: what another node says is a claim.
    pub fn bounded(self) -> Option<Self> {
        let is_plain = |text: &str| !text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t'));
        let fits = self.why.len() <= OUTPUT_BYTES_MAX && self.output.len() <= OUTPUT_BYTES_MAX;
        (fits && is_plain(&self.why) && is_plain(&self.output)).then_some(self)
    }
}

impl fmt::Display for HookFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.hook, self.why)
    }
}

/// What a driver knows of the device itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceFacts {
    /// Labels beside those of the lab file, which go first.
    pub labels: Labels,
    /// What a holder needs to reach it, such as `ANDROID_SERIAL`.
    pub environment: BTreeMap<String, String>,
    /// What tells the device from every other; none where nobody can tell.
    pub identity: Option<DeviceIdentity>,
}

/// What tells one device from every other, whichever worker sees it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceIdentity {
    /// The driver that has seen it.
    pub driver: String,
    /// Its serial number there.
    pub serial: String,
}
