//! `[bookings]` and `[holds]`, and what one resource says about its own bookings.

use std::time::Duration;

use super::given::Given;
use super::reader::{Reader, inner_table};
use super::rules::{days, in_order, optional};
use super::section::Section;
use super::{ConfigError, Origin};
use crate::admission::CalendarRules;
use crate::limits::WINDOW_MAX;
use crate::model::span::{Bounds, written};
use crate::model::{BookingMode, BookingPolicy};

/// What `[[worker.resource]]` may say instead of `[bookings]`.
const OF_A_RESOURCE: &[&str] = &["mode", "auto_acquire", "no_show_after"];

const MAX_DURATION: Bounds = Bounds { least: Duration::from_secs(60), most: WINDOW_MAX };
const HORIZON: Bounds = Bounds { least: Duration::from_secs(3600), most: days(3_660) };
const NO_SHOW_AFTER: Bounds = Bounds { least: Duration::from_secs(1), most: days(30) };
/// A hold is short: it stops everybody else and nobody has confirmed it.
const HOLD_TTL: Bounds = Bounds { least: Duration::from_secs(1), most: days(1) };
const CHECK_INTERVAL: Bounds = Bounds { least: Duration::from_secs(1), most: Duration::from_secs(3600) };

/// `[bookings]`: its numbers go into `rules`, what bookings mean is the answer.
pub(super) fn bookings<'d>(
    reader: &mut Reader<'d>,
    mut section: Section<'d>,
    rules: &mut CalendarRules,
) -> Result<BookingPolicy, ConfigError> {
    let default = BookingPolicy::default();
    let (mode, origin) = match section.take("mode") {
        Some(given) => (mode(&given)?, given.origin),
        None => (default.mode, Origin::Default),
    };
    reader.note_text(&section.key("mode"), mode.as_str(), origin);
    let auto_acquire = flag(reader, &mut section, "auto_acquire", default.auto_acquire)?;
    (rules.max_duration, _) = reader.duration(&mut section, "max_duration", rules.max_duration, MAX_DURATION)?;
    (rules.horizon, _) = reader.duration(&mut section, "horizon", rules.horizon, HORIZON)?;
    let no_show_after = optional(reader, &mut section, "no_show_after", NO_SHOW_AFTER)?.map(|(after, _)| after);
    Ok(BookingPolicy { mode, auto_acquire, no_show_after })
}

/// `[holds]`; the default of their ttl is not above its maximum.
pub(super) fn holds<'d>(
    reader: &mut Reader<'d>,
    mut section: Section<'d>,
    rules: &mut CalendarRules,
) -> Result<(), ConfigError> {
    rules.holds_enabled = flag(reader, &mut section, "enabled", rules.holds_enabled)?;
    let (default_ttl, default_at) = reader.duration(&mut section, "default_ttl", rules.hold_ttl, HOLD_TTL)?;
    let (max_ttl, max_at) = reader.duration(&mut section, "max_ttl", rules.hold_ttl_max, HOLD_TTL)?;
    in_order("holds", (default_ttl, default_at), (max_ttl, max_at))?;
    (rules.hold_ttl, rules.hold_ttl_max) = (default_ttl, max_ttl);
    (rules.check_interval, _) =
        reader.duration(&mut section, "check_interval", rules.check_interval, CHECK_INTERVAL)?;
    Ok(())
}

/// `bookings` of one resource: what it leaves out is as `[bookings]` says.
pub(super) fn of_resource<'d>(
    reader: &mut Reader<'d>,
    given: &Given<'d>,
    common: BookingPolicy,
) -> Result<BookingPolicy, ConfigError> {
    let table = inner_table(given)
        .map_err(|_| given.refuse("must be a table, such as { mode = \"enforced\", auto_acquire = true }"))?;
    let mut section =
        Section::open(reader.document, &given.key, given.origin.clone(), Some(table), None, OF_A_RESOURCE)?;
    let mut policy = common;
    if let Some(given) = section.take("mode") {
        policy.mode = mode(&given)?;
        reader.note_text(&given.key, policy.mode.as_str(), given.origin);
    }
    if let Some(given) = section.take("auto_acquire") {
        policy.auto_acquire = given.flag()?;
        reader.note(given.key, policy.auto_acquire.to_string(), given.origin);
    }
    if let Some(given) = section.take("no_show_after") {
        let after = given.duration(NO_SHOW_AFTER)?;
        policy.no_show_after = Some(after);
        reader.note_text(&given.key, &written(after), given.origin);
    }
    Ok(policy)
}

fn mode(given: &Given<'_>) -> Result<BookingMode, ConfigError> {
    let text = given.text()?;
    let known = [BookingMode::Advisory, BookingMode::Enforced].into_iter().find(|mode| mode.as_str() == text);
    known.ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        given.refuse(format!("must be \"advisory\" or \"enforced\", not {shown:?}"))
    })
}

/// A flag, or its default; takes note of it.
fn flag<'d>(reader: &mut Reader<'d>, section: &mut Section<'d>, key: &str, default: bool) -> Result<bool, ConfigError> {
    let (flag, origin) = match section.take(key) {
        Some(given) => (given.flag()?, given.origin),
        None => (default, Origin::Default),
    };
    reader.note(section.key(key), flag.to_string(), origin);
    Ok(flag)
}
