//! Tools that a holder may run on the machine that owns its device (SPEC §7).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Fence, ToolName};

/// Arguments of one tool.
pub const TOOL_ARGS_MAX: usize = 256;
/// The longest of them.
pub const TOOL_ARG_BYTES_MAX: usize = 32 * 1024;
/// All of them together.
pub const TOOL_ARGS_BYTES_MAX: usize = 64 * 1024;

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

/// What a holder asks to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecAsk {
    /// Which of the allowed tools.
    pub tool: ToolName,
    /// Its arguments, behind those that the lab file gives it.
    pub args: ToolArgs,
    /// The grant that is meant; none means whichever there is.
    pub fence: Option<Fence>,
}

/// The arguments of a tool: at most [`TOOL_ARGS_MAX`], each of at most [`TOOL_ARG_BYTES_MAX`] and all together of at most
/// [`TOOL_ARGS_BYTES_MAX`] bytes, without NUL, which no program can be given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct ToolArgs(Vec<String>);

/// Why a list is no list of arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidArgs {
    /// Too many.
    #[error("a tool takes at most {TOOL_ARGS_MAX} arguments, not {0}; send the rest through its stdin")]
    TooMany(usize),
    /// One is too long, or all together are.
    #[error(
        "an argument has at most {TOOL_ARG_BYTES_MAX} bytes, and all together at most {TOOL_ARGS_BYTES_MAX}; send what is \
         longer through the tool's stdin"
    )]
    TooLong,
    /// One holds a NUL.
    #[error("no program can be given an argument with a NUL")]
    Nul,
}

impl ToolArgs {
    /// The arguments in their order.
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }
}

impl TryFrom<Vec<String>> for ToolArgs {
    type Error = InvalidArgs;

    fn try_from(args: Vec<String>) -> Result<Self, InvalidArgs> {
        if args.len() > TOOL_ARGS_MAX {
            return Err(InvalidArgs::TooMany(args.len()));
        }
        let longest = args.iter().map(String::len).max().unwrap_or_default();
        if longest > TOOL_ARG_BYTES_MAX || args.iter().map(String::len).sum::<usize>() > TOOL_ARGS_BYTES_MAX {
            return Err(InvalidArgs::TooLong);
        }
        if args.iter().any(|arg| arg.contains('\0')) {
            return Err(InvalidArgs::Nul);
        }
        Ok(Self(args))
    }
}

impl From<ToolArgs> for Vec<String> {
    fn from(args: ToolArgs) -> Self {
        args.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_their_bounds() {
        let of = |list: Vec<String>| ToolArgs::try_from(list).map(|args| args.as_slice().len());
        assert_eq!(of(vec![String::new(); TOOL_ARGS_MAX]), Ok(TOOL_ARGS_MAX));
        assert_eq!(of(vec![String::new(); TOOL_ARGS_MAX + 1]), Err(InvalidArgs::TooMany(TOOL_ARGS_MAX + 1)));
        let long = "x".repeat(TOOL_ARG_BYTES_MAX);
        assert_eq!(of(vec![long.clone(); 2]), Ok(2));
        assert_eq!(of(vec![long.clone(), long.clone(), "x".to_owned()]), Err(InvalidArgs::TooLong));
        assert_eq!(of(vec![format!("{long}x")]), Err(InvalidArgs::TooLong));
        assert_eq!(of(vec!["a\0b".to_owned()]), Err(InvalidArgs::Nul));
    }

    #[test]
    fn signals_read_back_by_their_names() {
        let words = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "KILL"];
        for (signal, name) in ExecSignal::ALL.into_iter().zip(words) {
            let word = serde_json::to_string(&signal).unwrap();
            assert_eq!((word.as_str(), serde_json::from_str(&word).unwrap()), (&*format!("\"{name}\""), signal));
        }
        assert!(serde_json::from_str::<ExecSignal>("\"STOP\"").is_err());
    }
}
