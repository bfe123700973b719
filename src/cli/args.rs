//! The tree of commands and their arguments, apart from those of `berth lease`.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use super::exec_args::ExecArgs;
use super::hold_args::HoldsCommand;
use super::join_args::{JoinArgs, PkiCommand};
use super::lease_args::{LeaseArgs, LeaseCommand};
use super::lease_exec::LeaseExecArgs;
use super::span;
use crate::client::discovery::NodeAddress;
use crate::model::{EventKind, NodeName, Principal, ResourceAddress, Role, Selector, SubName, TokenId};

const EXAMPLES: &str = "\
Examples:
  berth up                                  run the lab of the built-in file
  berth lease --platform android --os '>=14'
  berth lease acquire pixel-8-a --poll      stand in the waiting room until it is free
  berth exec --platform android -- adb shell   lease, run, release
  berth lease list
  berth lease release lse_…
  berth lease bookings create imx8-1 --starts-at '2026-08-28T10:00[Europe/Warsaw]' --duration 2h

Environment:
  BERTH_URL        a node's URL; without it the node that runs on this machine is found
  BERTH_TOKEN      the token for BERTH_URL; never an argument
  BERTH_NODE       LAB@NODE, which node of this machine
  BERTH_REQUESTER  the sub-requester to act for

Exit codes:
  0 success   1 no answer, or a fault   2 wrong use   3 not allowed
  10 waited too long   11 held, or booked   12 unknown, or no match   13 already leased, or taken
  14 lost a lease that it held     130 Ctrl-C";

/// Leases the devices of a lab, one holder at a time.
#[derive(Debug, Parser)]
#[command(name = "berth", version, max_term_width = 100, after_help = EXAMPLES)]
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

impl Cli {
    /// What clap cannot express.
    pub(super) fn check(&self) -> Result<(), clap::Error> {
        let error = |kind, message: &str| Err(Cli::command().error(kind, message));
        let conflict = |message: &str| error(ErrorKind::ArgumentConflict, message);
        match &self.command {
            Command::Lease(args) if args.mixes_two_commands() => {
                conflict("'berth lease' asks for a lease by its options or runs a subcommand, not both")
            }
            Command::Lease(args) if args.contradicts_itself() => {
                conflict("'--poll' stands in the waiting room; it cannot be used with '--on-conflict fail'")
            }
            Command::Lease(args) if args.lacks_a_zone() => error(
                ErrorKind::MissingRequiredArgument,
                "'--repeat' needs to know whose clock the time of day follows; add '--tz ZONE', or name the zone in \
                 '--starts-at', as in '2026-08-28T10:00[Europe/Warsaw]'",
            ),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// Print the answer as JSON, and an error as one line of JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Ask the node at this URL [env: BERTH_URL]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "via")]
    pub(super) url: Option<String>,
    /// Ask this node of this machine [env: BERTH_NODE]
    #[arg(long, global = true, value_name = "LAB@NODE")]
    pub(super) via: Option<NodeAddress>,
    /// Act for this sub-requester [env: BERTH_REQUESTER]
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) requester: Option<SubName>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the nodes of a lab file
    Up(UpArgs),
    /// Get a lease, and look after leases
    Lease(Box<LeaseArgs>),
    /// Run a command for as long as it holds a lease
    Exec(Box<ExecArgs>),
    /// Show what the node is doing
    Status,
    /// Show resources, take them out and bring them back
    Resource {
        #[command(subcommand)]
        command: ResourceCommand,
    },
    /// Show workers, invite them, take them out and remove them
    Worker {
        #[command(subcommand)]
        command: WorkerCommand,
    },
    /// Stop new holds, and have them made again
    Holds {
        #[command(subcommand)]
        command: HoldsCommand,
    },
    /// Have the node look for what must not be; ends with 1 when it finds something
    #[command(after_help = "Example:\n  berth doctor && berth holds resume")]
    Doctor,
    /// Show what has happened
    Events(EventsArgs),
    /// Make, list and revoke tokens
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Make this machine a worker of a lab, with an invitation
    Join(JoinArgs),
    /// Make certificates without a running gateway
    Pki {
        #[command(subcommand)]
        command: PkiCommand,
    },
    /// Check and show the settings, and have them read again
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Wait for the node
    Wait(WaitArgs),
    /// Print the completions of a shell
    #[command(after_help = "Example:\n  berth completions bash > ~/.local/share/bash-completion/completions/berth")]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

impl Command {
    /// The arguments of a tool at a device, if that is what is asked for.
    pub(super) fn into_tool(self) -> Result<LeaseExecArgs, Self> {
        match self {
            Command::Lease(args) => match *args {
                LeaseArgs { command: Some(LeaseCommand::Exec(args)), .. } => Ok(args),
                args => Err(Command::Lease(Box::new(args))),
            },
            command => Err(command),
        }
    }
}

/// Arguments of `berth up`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = "\
Examples:
  berth up                                        every node of the built-in lab, in one process
  berth up --config lab.toml --node rack-1        one node of a lab file")]
pub struct UpArgs {
    /// The lab file; the built-in one when left out
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Run this node alone
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Check the lab file, and show the effective settings and where each comes from
    Check(ConfigArgs),
    /// Show the effective settings of the lab file and where each comes from
    Show(ConfigArgs),
    /// Have the nodes of this machine read their lab file again, and show what has changed
    #[command(after_help = "\
A file with an error changes nothing. Resources and the numbers of [lease], [waiting_room], [bookings], [holds],
[events], [limits] and [exec] count at once; a resource that is leased goes after its release. What counts only after
a restart is named. A node does the same on SIGHUP, and says in its log what came of it.

Example:
  berth config check --config lab.toml && berth config reload")]
    Reload,
}

/// Arguments of `berth config check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ConfigArgs {
    /// The lab file; the built-in one when left out
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The global `--json`.
    #[arg(skip)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum ResourceCommand {
    /// List resources
    #[command(after_help = "Example:\n  berth resource list --select 'platform=android,os>=14'")]
    List {
        /// Only those that match
        #[arg(long, value_name = "SELECTOR")]
        select: Option<Selector>,
    },
    /// Show one resource
    Show {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
    /// Take a resource out: what is leased stays so, nothing new is granted
    Drain {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
    /// Bring a resource back
    Undrain {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
    /// Bring a quarantined resource back: its device is as it should be
    Clear {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  berth events --event lease.expired
  berth events --follow
  berth --json events --since 1767225600000 --follow   one JSON object a line")]
pub(super) struct EventsArgs {
    /// Go on with what happens, until Ctrl-C
    #[arg(long)]
    pub(super) follow: bool,
    /// Only what comes after this number; the JSON of an event has its number as seq
    #[arg(long, value_name = "SEQ")]
    pub(super) since: Option<u64>,
    /// Only this kind, such as lease.granted
    #[arg(long, value_name = "NAME")]
    pub(super) event: Option<EventKind>,
}

#[derive(Debug, Subcommand)]
pub(super) enum WorkerCommand {
    /// List the workers of the lab
    List,
    /// Print the line with which a machine joins the lab, once, within an hour
    #[command(after_help = "\
Examples:
  berth worker invite rack-3 | ssh rack-3.lab.example berth join
  berth worker invite rack-3 > invitation      for `berth join invitation`; the file is a secret")]
    Invite {
        /// The name that the machine gets
        name: NodeName,
    },
    /// Take a whole worker out: what is leased stays so, nothing new is granted
    #[command(after_help = "Example:\n  berth worker drain rack-3 && berth worker list")]
    Drain {
        /// Its name
        name: NodeName,
    },
    /// Bring a worker back
    Undrain {
        /// Its name
        name: NodeName,
    },
    /// Take a worker that is gone for good off the roster
    #[command(after_help = "\
Examples:
  berth worker remove rack-3               it is not connected, and may join again
  berth worker remove rack-3 --revoke      end its link now, and never accept its key again")]
    Remove {
        /// Its name
        name: NodeName,
        /// Also when it is connected; its key is never accepted again
        #[arg(long)]
        revoke: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token, and print its secret this once
    #[command(after_help = "Example:\n  BERTH_TOKEN=$(berth token create --name ci --role agent)")]
    Create {
        /// The principal's name; it can never be used twice
        #[arg(long)]
        name: Principal,
        /// What it may do: viewer, agent or admin
        #[arg(long)]
        role: Role,
    },
    /// List tokens, without their secrets
    List,
    /// Revoke a token
    Revoke {
        /// Its id
        #[arg(value_name = "ID")]
        token: TokenId,
    },
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  berth up & berth wait --ready && berth lease --platform android")]
pub(super) struct WaitArgs {
    /// Until it is there and admits requests
    #[arg(long, required = true)]
    ready: bool,
    /// Give up after this long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = span::duration)]
    pub(super) timeout: Duration,
}
