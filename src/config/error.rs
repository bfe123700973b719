//! Why a configuration is refused, and where a value came from.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The lab file inside the program.
    Embedded {
        /// 1-based.
        line: usize,
    },
    /// A lab file.
    File {
        /// As it was given.
        path: PathBuf,
        /// 1-based.
        line: usize,
    },
    /// An environment variable of this name.
    Environment(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::Embedded { line } => write!(f, "embedded lab file:{line}"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => f.write_str(name),
        }
    }
}

/// Why a configuration is refused. Each says where, which key, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The lab file cannot be read.
    #[error("cannot read the lab file {}; name one that exists with --config", path.display())]
    Unreadable {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The lab file is not TOML.
    #[error("{at}: not valid TOML: {why}")]
    Syntax {
        /// Where.
        at: Origin,
        /// What was expected.
        why: String,
    },
    /// No such key.
    #[error("{at}: unknown key {key}; {advice}")]
    UnknownKey {
        /// Where.
        at: Origin,
        /// Its full path.
        key: String,
        /// The right names.
        advice: String,
    },
    /// A value is wrong or missing.
    #[error("{at}: {key}: {why}")]
    Value {
        /// The place of the value, or where it is missing.
        at: Origin,
        /// Its full path.
        key: String,
        /// What is wrong, and the fix.
        why: String,
    },
}
