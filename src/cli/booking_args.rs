//! The arguments of `berth lease bookings`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::civil::Date;

use super::slot_args::{Moment, SlotArgs, moment};
use super::span;
use crate::model::time::whole_ms;
use crate::model::{BookingId, BookingStatus, Every, Note, Repeat, ResourceAddress, Zone};
use crate::service::calendar::ask::BookingQuery;
use crate::service::calendar::ask::{BookBody, RescheduleBody};

const EXAMPLES: &str = "\
Examples:
  berth lease bookings create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m
  berth lease bookings list bench-1 --from 2026-08-28T00:00:00Z
  berth lease bookings reschedule bench-1 --booking book_… --starts-at 2026-08-28T12:00:00Z
  berth lease bookings cancel bench-1 --booking book_…

A local time has its zone in brackets, '2026-08-28T10:00[Europe/Warsaw]'. One that a change to summer
time skips is moved to the end of the skipped hour; of one that comes twice the first is meant.";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum BookingCommand {
    /// Book a window of a resource, or one that comes again
    Create(CreateBooking),
    /// List bookings, in the order of their windows
    List(ListBookings),
    /// Show one booking
    Show {
        /// Which booking
        #[arg(value_name = "ID")]
        booking: BookingId,
    },
    /// Give a booking up
    Cancel {
        /// Its resource, or WORKER/ID where two workers have the same
        resource: ResourceAddress,
        /// Which booking
        #[arg(long, value_name = "ID")]
        booking: BookingId,
        /// And all later ones that were booked together with it
        #[arg(long)]
        following: bool,
    },
    /// Give a booking another window; where that is taken it keeps its own
    Reschedule(RescheduleBooking),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth lease bookings create bench-1 --starts-at 2026-08-28T08:00:00Z --duration 90m
  berth lease bookings create bench-1 --starts-at '2026-08-28T10:00[Europe/Warsaw]' --duration 90m \\
      --repeat weekly --until 2026-12-18 --note 'release tests'

A repeated window keeps its local time when the clocks change. All of it is booked or nothing.")]
pub(super) struct CreateBooking {
    /// Its id, or WORKER/ID where two workers have the same
    pub(super) resource: ResourceAddress,
    #[command(flatten)]
    slot: SlotArgs,
    /// Free text for the booking
    #[arg(long, value_name = "TEXT")]
    note: Option<Note>,
    /// How often it comes again
    #[arg(long, value_name = "HOW", value_enum, requires = "until")]
    repeat: Option<Often>,
    /// The last day on which one may start, such as 2026-12-18
    #[arg(long, value_name = "DATE", value_parser = date, requires = "repeat")]
    until: Option<Date>,
    /// Whose clock the repetitions follow, such as Europe/Warsaw [default: the zone of --starts-at]
    #[arg(long, value_name = "ZONE", requires = "repeat")]
    tz: Option<Zone>,
}

/// What `--repeat` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Often {
    Daily,
    Weekly,
}

impl CreateBooking {
    /// The zone that the repetitions follow.
    fn zone(&self) -> Option<&Zone> {
        self.tz.as_ref().or(self.slot.starts_at.zone.as_ref())
    }

    /// True when a window is to come again, and nobody says by whose clock.
    pub(super) fn lacks_a_zone(&self) -> bool {
        self.repeat.is_some() && self.zone().is_none()
    }

    /// The body of a booking.
    pub(super) fn body(&self) -> BookBody {
        let every = self.repeat.map(|often| match often {
            Often::Daily => Every::Day,
            Often::Weekly => Every::Week,
        });
        let repeat = match (every, self.until, self.zone()) {
            (Some(every), Some(until), Some(tz)) => Some(Repeat { every, until, tz: tz.clone() }),
            _ => None,
        };
        BookBody {
            starts_at: self.slot.starts_at.at,
            duration_ms: self.slot.length.duration_ms(),
            ends_at: self.slot.length.ends_at(),
            repeat,
            note: self.note.clone(),
            requester: None,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  berth lease bookings list bench-1 --from 2026-08-28T00:00:00Z --to 2026-08-29T00:00:00Z
  berth lease bookings list --all --mine --status scheduled")]
pub(super) struct ListBookings {
    /// Its id, or WORKER/ID where two workers have the same
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub(super) resource: Option<ResourceAddress>,
    /// Those of every resource
    #[arg(long)]
    all: bool,
    /// Those that end after this
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Moment>,
    /// Those that start before this
    #[arg(long, value_name = "TIME", value_parser = moment)]
    to: Option<Moment>,
    /// Only scheduled, cancelled, fulfilled or missed ones
    #[arg(long, value_name = "STATUS")]
    status: Option<BookingStatus>,
    /// Only one's own
    #[arg(long)]
    mine: bool,
}

impl ListBookings {
    /// What is asked for, from its first page.
    pub(super) fn query(&self) -> BookingQuery {
        let at = |moment: &Option<Moment>| moment.as_ref().map(|moment| moment.at);
        BookingQuery {
            from: at(&self.from),
            to: at(&self.to),
            status: self.status,
            mine: self.mine,
            ..BookingQuery::default()
        }
    }
}

#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("window").args(["starts_at", "duration", "ends_at"]).required(true).multiple(true)),
    after_help = "\
Examples:
  berth lease bookings reschedule bench-1 --booking book_… --starts-at 2026-08-28T12:00:00Z
  berth lease bookings reschedule bench-1 --booking book_… --duration 2h"
)]
pub(super) struct RescheduleBooking {
    /// Its resource, or WORKER/ID where two workers have the same
    pub(super) resource: ResourceAddress,
    /// Which booking
    #[arg(long, value_name = "ID")]
    pub(super) booking: BookingId,
    /// Another start; its length stays unless another is named
    #[arg(long, value_name = "TIME", value_parser = moment)]
    starts_at: Option<Moment>,
    /// Another length, such as 90m
    #[arg(long, value_name = "DURATION", value_parser = span::duration, conflicts_with = "ends_at")]
    duration: Option<Duration>,
    /// Another end, without that instant itself
    #[arg(long, value_name = "TIME", value_parser = moment)]
    ends_at: Option<Moment>,
}

impl RescheduleBooking {
    /// The body of a reschedule.
    pub(super) fn body(&self) -> RescheduleBody {
        let at = |moment: &Option<Moment>| moment.as_ref().map(|moment| moment.at);
        RescheduleBody {
            starts_at: at(&self.starts_at),
            duration_ms: self.duration.map(whole_ms),
            ends_at: at(&self.ends_at),
        }
    }
}

/// A day and nothing more.
fn date(text: &str) -> Result<Date, String> {
    let day = (text.len() == 10).then(|| text.parse().ok()).flatten();
    day.ok_or_else(|| "is no date; write it as 2026-12-18".to_owned())
}
