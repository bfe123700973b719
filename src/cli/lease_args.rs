//! The arguments of `berth lease` and its subcommands.

use clap::{Args, Subcommand, ValueEnum};

use super::booking_args::BookingCommand;
use super::hold_args::HoldCommand;
use super::lease_exec::LeaseExecArgs;
use super::{select, span};
use crate::model::{
    ChosenLeaseId, Fence, IdempotencyKey, LeaseId, Mode, Note, Priority, RequestId, ResourceAddress, Selector, Timeout,
    Ttl,
};
use crate::service::ask::{AcquireBody, OnConflict, RenewBody, RequestBody};

const EXAMPLES: &str = "\
Examples:
  berth lease --platform android --model 'Pixel 8' --os '>=14' --ttl 30m
  berth lease --select 'board=imx8,rack in (a,b)' --no-wait
  berth lease --resource pixel-8-a --lease-id ad-7f3a --note 'nightly run'
  berth lease --platform android --timeout 10m --priority 5
  berth lease --platform android --keep          until Ctrl-C
  berth lease renew ad-7f3a
  berth lease release ad-7f3a";

#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub(super) struct LeaseArgs {
    #[command(subcommand)]
    pub(super) command: Option<LeaseCommand>,
    #[command(flatten)]
    pub(super) request: RequestArgs,
    /// Stay, renew the lease, and release it on Ctrl-C
    #[arg(long)]
    pub(super) keep: bool,
}

impl LeaseArgs {
    /// True when a subcommand is asked for two things that exclude each other.
    pub(super) fn contradicts_itself(&self) -> bool {
        matches!(&self.command, Some(LeaseCommand::Acquire(args)) if args.contradicts_itself())
    }

    /// True when a booking is to come again and nobody says by whose clock.
    pub(super) fn lacks_a_zone(&self) -> bool {
        let Some(LeaseCommand::Bookings { command: BookingCommand::Create(args) }) = &self.command else {
            return false;
        };
        args.lacks_a_zone()
    }

    /// True when options of a request stand beside a subcommand, which would ignore them.
    pub(super) fn mixes_two_commands(&self) -> bool {
        self.command.is_some() && (self.keep || self.request != RequestArgs::default())
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum LeaseCommand {
    /// Lease one resource at once, be refused, or stand in its waiting room
    Acquire(AcquireArgs),
    /// Move a lease's deadline to now plus its width
    Renew {
        /// Which lease
        #[arg(value_name = "ID")]
        lease: LeaseId,
        /// A new width, such as 15m
        #[arg(long, value_name = "DURATION", value_parser = span::ttl)]
        ttl: Option<Ttl>,
        /// Rather shorter than not at all, where a booking is in the way
        #[arg(long)]
        allow_shorter: bool,
        /// Only if it is still the grant with this fence
        #[arg(long, value_parser = fence)]
        fence: Option<Fence>,
    },
    /// End a lease
    Release {
        /// Which lease
        #[arg(value_name = "ID")]
        lease: LeaseId,
        /// Only if it is still the grant with this fence
        #[arg(long, value_parser = fence)]
        fence: Option<Fence>,
    },
    /// Run a tool at the device of a lease, on the machine that owns it
    Exec(LeaseExecArgs),
    /// Show who waits for a resource
    WaitingRoom {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
    /// Leave the waiting room of a resource
    Leave {
        /// Its id, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
    },
    /// End a lease request that waits
    Cancel {
        /// Which lease request
        #[arg(value_name = "REQUEST")]
        request: RequestId,
    },
    /// Book windows of a resource, and look after bookings
    Bookings {
        #[command(subcommand)]
        command: BookingCommand,
    },
    /// Hold a slot for a short while, and confirm or release it
    Holds {
        #[command(subcommand)]
        command: HoldCommand,
    },
    /// List the active leases
    List,
    /// Show one active lease
    Show {
        /// Which lease
        #[arg(value_name = "ID")]
        lease: LeaseId,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth lease acquire pixel-8-a --duration 10m
  berth lease acquire pixel-8-a --on-conflict join-waiting-room   ask again with the same words
  berth lease acquire pixel-8-a --poll                            stay until it is your turn")]
pub(super) struct AcquireArgs {
    /// Its id, or WORKER/ID where two workers have the same
    pub(super) resource: ResourceAddress,
    /// How long the lease lasts without a renew, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = span::ttl)]
    duration: Option<Ttl>,
    /// What to do while others hold it [default: fail]
    #[arg(long, value_name = "WHAT", value_enum)]
    on_conflict: Option<Conflict>,
    /// Stand in the waiting room and ask again until it is this caller's turn; Ctrl-C leaves
    #[arg(long)]
    pub(super) poll: bool,
    #[command(flatten)]
    terms: Terms,
    /// Names this attempt: under the same key, a retry gets the same lease
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
}

/// What `--on-conflict` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Conflict {
    /// Be refused
    Fail,
    /// Stand in the waiting room, and ask again
    JoinWaitingRoom,
}

impl AcquireArgs {
    /// True when it is to stay, and also to be refused.
    pub(super) fn contradicts_itself(&self) -> bool {
        self.poll && self.on_conflict == Some(Conflict::Fail)
    }

    /// The body of an acquire.
    pub(super) fn body(self) -> AcquireBody {
        let on_conflict = match self.on_conflict {
            Some(Conflict::Fail) => Some(OnConflict::Fail),
            Some(Conflict::JoinWaitingRoom) => Some(OnConflict::JoinWaitingRoom),
            None => self.poll.then_some(OnConflict::JoinWaitingRoom),
        };
        AcquireBody {
            on_conflict,
            mode: self.terms.mode(),
            ttl_ms: self.duration,
            priority: self.terms.priority,
            lease_id: self.terms.lease_id,
            note: self.terms.note,
            idempotency_key: self.idempotency_key,
            allow_shorter: self.terms.allow_shorter,
            ..AcquireBody::default()
        }
    }
}

/// A wish for a lease that is waited for.
#[derive(Debug, Default, PartialEq, Args)]
pub(super) struct RequestArgs {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// How long the lease lasts without a renew, such as 15m
    #[arg(long, value_name = "DURATION", value_parser = span::ttl)]
    ttl: Option<Ttl>,
    #[command(flatten)]
    terms: Terms,
    /// Wait at most so long, such as 5m; without it for as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = span::timeout, conflicts_with = "no_wait")]
    timeout: Option<Timeout>,
    /// Be refused rather than wait
    #[arg(long)]
    no_wait: bool,
    /// Names this attempt: under the same key, a retry gets the same lease
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<IdempotencyKey>,
}

/// What is asked for; at least one of them.
#[derive(Debug, Default, PartialEq, Args)]
#[group(required = true, multiple = true)]
pub(super) struct TargetArgs {
    /// Any resource of this platform
    #[arg(long, value_name = "P", value_parser = select::value)]
    pub(super) platform: Option<String>,
    /// Any resource of this model
    #[arg(long, value_name = "M", value_parser = select::value)]
    pub(super) model: Option<String>,
    /// Any resource with this system version: 15, or '>=14'
    #[arg(long, value_name = "V", value_parser = select::value)]
    pub(super) os: Option<String>,
    /// Any resource whose labels match, such as 'platform=android,os>=14'
    #[arg(long, value_name = "SELECTOR", conflicts_with_all = ["platform", "model", "os", "resource"])]
    pub(super) select: Option<Selector>,
    /// This resource
    #[arg(long, value_name = "RESOURCE", conflicts_with_all = ["platform", "model", "os"])]
    pub(super) resource: Option<ResourceAddress>,
}

/// What both doors take.
#[derive(Debug, Default, PartialEq, Args)]
pub(super) struct Terms {
    /// The id that the lease is to have
    #[arg(long, value_name = "ID")]
    lease_id: Option<ChosenLeaseId>,
    /// Free text for the lease
    #[arg(long, value_name = "TEXT")]
    note: Option<Note>,
    /// Share the resource with others
    #[arg(long)]
    shared: bool,
    /// Rather a shorter lease than none, where a booking is in the way
    #[arg(long)]
    allow_shorter: bool,
    /// Rank among those that wait, -1000 to 1000; higher goes first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = priority)]
    priority: Option<Priority>,
}

impl Terms {
    fn mode(&self) -> Option<Mode> {
        self.shared.then_some(Mode::Shared)
    }
}

impl RequestArgs {
    /// True when the caller names the attempt, so that its lease may be one of before.
    pub(super) fn has_key(&self) -> bool {
        self.idempotency_key.is_some()
    }

    /// The body of a lease request.
    ///
    /// # Errors
    /// Platform, model or os make no selector.
    pub(super) fn body(self) -> Result<RequestBody, select::Unselectable> {
        Ok(RequestBody {
            select: self.target.selector()?,
            resource_id: self.target.resource,
            no_wait: self.no_wait,
            timeout_ms: self.timeout,
            mode: self.terms.mode(),
            ttl_ms: self.ttl,
            priority: self.terms.priority,
            lease_id: self.terms.lease_id,
            note: self.terms.note,
            idempotency_key: self.idempotency_key,
            allow_shorter: self.terms.allow_shorter,
            ..RequestBody::default()
        })
    }
}

/// The body of a renew.
pub(super) fn renew(ttl: Option<Ttl>, fence: Option<Fence>, allow_shorter: bool) -> RenewBody {
    RenewBody { ttl_ms: ttl, fence, allow_shorter }
}

pub(super) fn fence(text: &str) -> Result<Fence, std::num::ParseIntError> {
    text.parse().map(Fence)
}

fn priority(text: &str) -> Result<Priority, String> {
    let number: f64 = text.parse().map_err(|_| "a priority is a number from -1000 to 1000".to_owned())?;
    Priority::try_from(number).map_err(|error| error.to_string())
}
