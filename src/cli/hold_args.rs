//! The arguments of `berth lease holds` and `berth holds`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::slot_args::SlotArgs;
use super::span;
use crate::model::Ttl;
use crate::model::{HoldId, IdempotencyKey, Note, ResourceAddress};
use crate::service::calendar::ask::HoldBody;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  berth lease holds create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m --ttl 5m
  berth lease holds confirm hold_… --token-file token --note 'order 4711'
  berth lease holds release hold_… --token-file - < token")]
pub(super) enum HoldCommand {
    /// Hold a slot for a short while, and print the token that confirms it
    Create(CreateHold),
    /// List the holds of a resource
    List {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
    /// Show one hold
    Show {
        /// Which hold
        #[arg(value_name = "HOLD")]
        hold: HoldId,
    },
    /// Turn a hold into a booking of its holder
    #[command(after_help = "\
Examples:
  berth lease holds confirm hold_… --token-file token --note 'order 4711'
  jq -r .token hold.json | berth lease holds confirm hold_… --token-file -")]
    Confirm {
        /// Which hold
        #[arg(value_name = "HOLD")]
        hold: HoldId,
        /// The file that has its token, or - for the standard input
        #[arg(long, value_name = "FILE")]
        token_file: PathBuf,
        /// Free text for the booking
        #[arg(long, value_name = "TEXT")]
        note: Option<Note>,
    },
    /// Give a hold back
    Release {
        /// Which hold
        #[arg(value_name = "HOLD")]
        hold: HoldId,
        /// The file that has its token, or - for the standard input; an admin needs none
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth lease holds create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m
  berth lease holds create bench-1 --starts-at '2026-08-28T10:00[Europe/Warsaw]' --duration 2h \\
      --json > hold.json

The token is shown this once. Under the same key a second try gets the same hold with a new token.")]
pub(super) struct CreateHold {
    /// Its id, or WORKER/ID where two workers have the same
    pub(super) resource: ResourceAddress,
    #[command(flatten)]
    slot: SlotArgs,
    /// How long the hold lasts, such as 5m
    #[arg(long, value_name = "DURATION", value_parser = span::ttl)]
    ttl: Option<Ttl>,
    /// Names this attempt: under the same key, a retry gets the same hold
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
}

impl CreateHold {
    /// The body of a hold.
    pub(super) fn body(&self) -> HoldBody {
        HoldBody {
            starts_at: self.slot.starts_at.at,
            duration_ms: self.slot.length.duration_ms(),
            ends_at: self.slot.length.ends_at(),
            ttl_ms: self.ttl,
            requester: None,
            idempotency_key: self.idempotency_key.clone(),
        }
    }
}

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  berth holds pause               no new holds; those that are there can be confirmed and released
  berth holds pause bench-1       on this resource only
  berth doctor && berth holds resume")]
pub(super) enum HoldsCommand {
    /// Stop new holds
    Pause {
        /// On this resource only; its id, or WORKER/ID where two workers have the same
        resource: Option<ResourceAddress>,
    },
    /// Have new holds made again; refused while something is wrong with those that are there
    Resume {
        /// On this resource only; its id, or WORKER/ID where two workers have the same
        resource: Option<ResourceAddress>,
    },
}
