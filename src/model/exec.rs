//! Tools that a holder may run on the machine that owns its device (SPEC §7).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ToolName;

/// `[exec]` of the lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRules {
    /// After so long a tool is killed.
    pub timeout: Duration,
    /// The tools that there are, each with the arguments that its own come after. In an argument, `{env.NAME}` stands for
    /// that value of the lease's environment. None by default.
    pub allow: BTreeMap<ToolName, Vec<String>>,
}

impl Default for ExecRules {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10 * 60), allow: BTreeMap::new() }
    }
}

/// A signal that a holder may send to its tool; the word is that of `{"signal":"INT"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ExecSignal {
    /// The interrupt key.
    Int,
    /// A polite end.
    Term,
    /// The terminal has gone.
    Hup,
    /// The quit key.
    Quit,
    /// Whatever the tool makes of it.
    Usr1,
    /// Whatever the tool makes of it.
    Usr2,
    /// The end, at once.
    Kill,
}

impl ExecSignal {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Int, Self::Term, Self::Hup, Self::Quit, Self::Usr1, Self::Usr2, Self::Kill];
}
