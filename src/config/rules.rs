//! `[lease]`, `[waiting_room]`, `[events]` and `[limits]`: the numbers that every host goes by.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::given::{Given, Raw};
use super::reader::{GRACE, Reader};
use super::section::Section;
use super::{ConfigError, Origin};
use crate::admission::{CalendarRules, EventRules, LeaseRules, LimitRules, WaitingRules};
use crate::limits;
use crate::model::span::{self, Bounds};

/// The variable that sets `waiting_room.waiter_ttl` in whole seconds, whatever else sets it.
const WAITER_TTL_SECONDS: &str = "LEASE_WAITER_TTL_SECONDS";

/// A width of a lease is told in whole milliseconds, so the shortest is one.
const TTL: Bounds = Bounds { least: Duration::from_millis(1), most: days(365) };
const REQUEST_RETENTION: Bounds = Bounds { least: Duration::from_secs(1), most: days(30) };
/// While it lasts a healthy device serves nobody.
pub(super) const LOCK_DELAY: Bounds = Bounds { least: Duration::ZERO, most: Duration::from_secs(3600) };
const WAITER_TTL: Bounds = Bounds { least: Duration::from_secs(1), most: days(30) };
const PRIORITY_AGING: Bounds = Bounds { least: Duration::from_secs(1), most: days(365) };
const EVENT_RETENTION: Bounds = Bounds { least: Duration::from_secs(1), most: days(3_650) };
const EVENT_COUNT: RangeInclusive<u32> = 1..=100_000_000;
/// Each stops everybody else, so there are few.
const HOLDS_PER_PRINCIPAL: usize = 10_000;

pub(super) const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 3600)
}

/// `[lease]`; no width and no total contradicts another. Beside its numbers: the lock delay of a resource that has none
/// of its own.
pub(super) fn lease<'d>(
    reader: &mut Reader<'d>,
    mut section: Section<'d>,
) -> Result<(LeaseRules, Duration), ConfigError> {
    let default = LeaseRules::default();
    let (default_ttl, default_at) = reader.duration(&mut section, "default_ttl", default.default_ttl, TTL)?;
    let (max_ttl, max_at) = reader.duration(&mut section, "max_ttl", default.max_ttl, TTL)?;
    in_order("lease", (default_ttl, default_at), (max_ttl, max_at))?;
    let max_total = optional(reader, &mut section, "max_total", TTL)?;
    if let Some((max_total, at)) = max_total.as_ref().filter(|(max_total, _)| *max_total < default_ttl) {
        let (short, long) = (span::written(*max_total), span::written(default_ttl));
        let why = format!(
            "lease.max_total ({short}) is shorter than lease.default_ttl ({long}); \
             raise it, lower lease.default_ttl, or leave it out for leases that may be renewed without end"
        );
        return Err(ConfigError::Value { at: at.clone(), key: section.key("max_total"), why });
    }
    let requesters = 1..=limits::RESOURCES_MAX as u32;
    let max_per_requester =
        count(reader, &mut section, "max_per_requester", default.max_per_requester as u64, requesters)? as usize;
    let (request_retention, _) =
        reader.duration(&mut section, "request_retention", default.request_retention, REQUEST_RETENTION)?;
    let (uplink_grace, _) = reader.duration(&mut section, "uplink_grace", default.uplink_grace, GRACE)?;
    let (lock_delay, _) = reader.duration(&mut section, "lock_delay", Duration::ZERO, LOCK_DELAY)?;
    let max_total = max_total.map(|(max_total, _)| max_total);
    let rules = LeaseRules { default_ttl, max_ttl, max_total, max_per_requester, request_retention, uplink_grace };
    Ok((rules, lock_delay))
}

/// `[waiting_room]`.
pub(super) fn waiting_room<'d>(reader: &mut Reader<'d>, mut section: Section<'d>) -> Result<WaitingRules, ConfigError> {
    let default = WaitingRules::default();
    let waiter_ttl = waiter_ttl(reader, &mut section, default.waiter_ttl)?;
    let (admission_grace, _) = reader.duration(&mut section, "admission_grace", default.admission_grace, GRACE)?;
    let priority_aging = optional(reader, &mut section, "priority_aging", PRIORITY_AGING)?.map(|(aging, _)| aging);
    let (return_grace, _) = reader.duration(&mut section, "return_grace", default.return_grace, GRACE)?;
    Ok(WaitingRules { waiter_ttl, admission_grace, priority_aging, return_grace })
}

/// `[events]`.
pub(super) fn events<'d>(reader: &mut Reader<'d>, mut section: Section<'d>) -> Result<EventRules, ConfigError> {
    let default = EventRules::default();
    let (retention, _) = reader.duration(&mut section, "retention", default.retention, EVENT_RETENTION)?;
    let count_max = count(reader, &mut section, "max_count", default.count_max, EVENT_COUNT)?;
    Ok(EventRules { retention, count_max })
}

/// `[limits]`; what bounds the calendar of one resource goes into `calendar`.
pub(super) fn limits<'d>(
    reader: &mut Reader<'d>,
    mut section: Section<'d>,
    calendar: &mut CalendarRules,
) -> Result<LimitRules, ConfigError> {
    let default = LimitRules::default();
    let mut most = |key, default: usize, most: usize| {
        count(reader, &mut section, key, default as u64, 1..=most as u32).map(|number| number as usize)
    };
    let waiters_max = most("waiters", default.waiters_max, limits::WAITERS_MAX)?;
    calendar.bookings_max = most("bookings", calendar.bookings_max, limits::BOOKINGS_MAX)?;
    let bookings_per_principal = most("bookings_per_principal", default.bookings_per_principal, limits::BOOKINGS_MAX)?;
    let holds_per_principal = most("holds_per_principal", default.holds_per_principal, HOLDS_PER_PRINCIPAL)?;
    Ok(LimitRules { waiters_max, bookings_per_principal, holds_per_principal })
}

/// `waiting_room.waiter_ttl`, whose second variable takes the place of the file and of the first one.
fn waiter_ttl<'d>(
    reader: &mut Reader<'d>,
    section: &mut Section<'d>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    const KEY: &str = "waiter_ttl";
    let Some(text) = reader.env.get(WAITER_TTL_SECONDS) else {
        return Ok(reader.duration(section, KEY, default, WAITER_TTL)?.0);
    };
    let origin = Origin::Environment(WAITER_TTL_SECONDS.to_owned());
    let given = Given { key: section.key(KEY), origin, raw: Raw::Text(text) };
    let length = given.seconds(WAITER_TTL)?;
    reader.note_text(&given.key, &span::written(length), given.origin);
    Ok(length)
}

/// Refuses a `default_ttl` of a section that is longer than its `max_ttl`.
pub(super) fn in_order(
    section: &str,
    (default_ttl, default_at): (Duration, Origin),
    (max_ttl, max_at): (Duration, Origin),
) -> Result<(), ConfigError> {
    if default_ttl <= max_ttl {
        return Ok(());
    }
    // The one that somebody set is the one to look at.
    let (at, key) = match default_at {
        Origin::Default => (max_at, format!("{section}.max_ttl")),
        at => (at, format!("{section}.default_ttl")),
    };
    let (short, long) = (span::written(max_ttl), span::written(default_ttl));
    let why = format!("{section}.default_ttl ({long}) is longer than {section}.max_ttl ({short}); change one of them");
    Err(ConfigError::Value { at, key, why })
}

/// A duration that nothing stands for when nobody sets it; there is no value to take note of then.
pub(super) fn optional<'d>(
    reader: &mut Reader<'d>,
    section: &mut Section<'d>,
    key: &str,
    bounds: Bounds,
) -> Result<Option<(Duration, Origin)>, ConfigError> {
    let Some(given) = section.take(key) else {
        return Ok(None);
    };
    let length = given.duration(bounds)?;
    reader.note_text(&given.key, &span::written(length), given.origin.clone());
    Ok(Some((length, given.origin)))
}

fn count<'d>(
    reader: &mut Reader<'d>,
    section: &mut Section<'d>,
    key: &str,
    default: u64,
    bounds: RangeInclusive<u32>,
) -> Result<u64, ConfigError> {
    let (number, origin) = match section.take(key) {
        Some(given) => (u64::from(given.whole(bounds)?), given.origin),
        None => (default, Origin::Default),
    };
    reader.note(section.key(key), number.to_string(), origin);
    Ok(number)
}
