//! Tools that a holder may run on the machine that owns its device (SPEC §7).

use std::collections::BTreeMap;
use std::time::Duration;

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
