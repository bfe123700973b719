//! The two kinds of node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a node is for. A node has one role for good; its certificate says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// Owns no resources and fronts the workers.
    Gateway,
    /// Owns resources and the truth about them.
    Worker,
}

impl NodeRole {
    /// The word on the wire and in certificates.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeRole::Gateway => "gateway",
            NodeRole::Worker => "worker",
        }
    }
}

impl std::str::FromStr for NodeRole {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "gateway" => Ok(NodeRole::Gateway),
            "worker" => Ok(NodeRole::Worker),
            _ => Err("a node is a gateway or a worker".to_owned()),
        }
    }
}

impl fmt::Display for NodeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
