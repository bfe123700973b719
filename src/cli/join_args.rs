//! Arguments of the commands that make a node's key and certificate: `berth join` and `berth pki`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::model::{LabName, NodeName, NodeRole};

/// Arguments of `berth join`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "\
Examples:
  berth worker invite rack-3 | ssh rack-3.lab.example berth join
  berth join                                  paste the line, then press Enter
  berth join /run/secrets/invitation --config /etc/berth/lab.toml

The line is a secret, so it comes from a file or the standard input and never from an argument. The key is
made here and stays here. Joining again with the same line is safe.")]
pub struct JoinArgs {
    /// The file with the invitation; the standard input when left out, or for -
    #[arg(value_name = "FILE")]
    pub invitation: Option<PathBuf>,
    /// Where to write this machine's lab file; one that is there is left as it is
    #[arg(long, value_name = "FILE", default_value = "lab.toml")]
    pub config: PathBuf,
    /// Where this machine's nodes keep their state [default: as for `berth up`]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Make another key, for a machine whose key was revoked
    #[arg(long)]
    pub new_key: bool,
    /// The global `--json`.
    #[arg(skip)]
    pub json: bool,
}

/// `berth pki`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum PkiCommand {
    /// Make a lab's certificate authority
    #[command(after_help = "Example:\n  berth pki init --lab berlin --dir pki")]
    Init(PkiArgs),
    /// Make a node's key and certificate
    #[command(after_help = "\
Examples:
  berth pki issue gateway gateway --lab berlin --dir pki
  berth pki issue worker rack-3 --lab berlin --dir pki

Bring ca.crt and the node's directory to its machine and name them in the lab file:
  [pki]
  ca = \"/etc/berth/ca.crt\"
  cert = \"/etc/berth/{node}/node.crt\"
  key = \"/etc/berth/{node}/node.key\"
  ca_key = \"/etc/berth/ca.key\"     on the gateway's machine only, if it is to invite workers")]
    Issue {
        /// What the node is: gateway or worker
        role: NodeRole,
        /// Its name
        name: NodeName,
        /// Where the authority is.
        #[command(flatten)]
        args: PkiArgs,
    },
}

/// Where a lab's authority is.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PkiArgs {
    /// The lab's name, as in its lab file
    #[arg(long, value_name = "LAB")]
    pub lab: LabName,
    /// The directory of the authority; nodes have directories below it
    #[arg(long, value_name = "DIR", default_value = "pki")]
    pub dir: PathBuf,
}
