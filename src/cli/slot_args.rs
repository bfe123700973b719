//! The arguments that name a window, and the instants in them.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;

use super::span;
use crate::model::Zone;
use crate::model::time::whole_ms;
use crate::model::zone::parse_instant;

/// An instant as it was given, and the zone if it names one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) zone: Option<Zone>,
}

/// An instant: RFC 3339 with any offset, or a local time with its zone in brackets.
pub(super) fn moment(text: &str) -> Result<Moment, String> {
    parse_instant(text).map(|(at, zone)| Moment { at, zone })
}

/// A window.
#[derive(Debug, Clone, Args)]
pub(super) struct SlotArgs {
    /// When it starts: 2026-08-28T08:00:00Z, or a local time with its zone, '2026-08-28T10:00[Europe/Warsaw]'
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) starts_at: Moment,
    #[command(flatten)]
    pub(super) length: LengthArgs,
}

/// How far a window goes.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub(super) struct LengthArgs {
    /// How long it is, such as 90m
    #[arg(long, value_name = "DURATION", value_parser = span::duration)]
    duration: Option<Duration>,
    /// When it ends, without that instant itself
    #[arg(long, value_name = "TIME", value_parser = moment)]
    ends_at: Option<Moment>,
}

impl LengthArgs {
    /// The field `durationMs`.
    pub(super) fn duration_ms(&self) -> Option<u64> {
        self.duration.map(whole_ms)
    }

    /// The field `endsAt`.
    pub(super) fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at.as_ref().map(|moment| moment.at)
    }
}
