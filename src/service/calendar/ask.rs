//! The bodies of bookings and holds (SPEC §5, §6), and their way to a checked [`CalendarAsk`].

use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use super::super::ask::{Headers, given, one_of};
use crate::limits::BOOKINGS_PAGE_MAX;
use crate::model::time::instant_option;
use crate::model::{
    BookingId, BookingStatus, Cursor, HoldId, IdempotencyKey, Note, Rebooking, Refusal, Repeat, ResourceId, Slot,
    SlotLength, SubName, TokenHash, Ttl,
};
use crate::trust::HoldToken;
use crate::wire::calendar::CalendarAsk;

/// Bookings on a page, if the caller names no number.
const PAGE_DEFAULT: usize = 100;

/// Body of `POST /v1/resources/{id}/bookings`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BookBody {
    /// When it starts, or the first of them.
    #[serde(serialize_with = "crate::model::time::instant::serialize", deserialize_with = "moment")]
    pub starts_at: Timestamp,
    /// How long it lasts, in ms, at least 1; either this or `endsAt`.
    #[serde(default, deserialize_with = "duration_given", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When it ends; either this or `durationMs`.
    #[serde(
        default,
        serialize_with = "instant_option::serialize",
        deserialize_with = "moment_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub ends_at: Option<Timestamp>,
    /// How it comes again.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// Free text.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The sub-name for whom the caller acts.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub requester: Option<SubName>,
}

/// Body of `PATCH /v1/bookings/{id}`: what is left out stays, and at least one is there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RescheduleBody {
    /// Another start.
    #[serde(
        default,
        serialize_with = "instant_option::serialize",
        deserialize_with = "moment_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub starts_at: Option<Timestamp>,
    /// Another length, in ms, at least 1; either this or `endsAt`.
    #[serde(default, deserialize_with = "duration_given", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Another end; either this or `durationMs`.
    #[serde(
        default,
        serialize_with = "instant_option::serialize",
        deserialize_with = "moment_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub ends_at: Option<Timestamp>,
}

/// Body of `POST /v1/resources/{id}/holds`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldBody {
    /// When the slot starts.
    #[serde(serialize_with = "crate::model::time::instant::serialize", deserialize_with = "moment")]
    pub starts_at: Timestamp,
    /// How long the slot lasts, in ms, at least 1; either this or `endsAt`.
    #[serde(default, deserialize_with = "duration_given", skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// When the slot ends; either this or `durationMs`.
    #[serde(
        default,
        serialize_with = "instant_option::serialize",
        deserialize_with = "moment_given",
        skip_serializing_if = "Option::is_none"
    )]
    pub ends_at: Option<Timestamp>,
    /// How long the hold lasts; default `holds.default_ttl`.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<Ttl>,
    /// The sub-name for whom the caller acts.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub requester: Option<SubName>,
    /// The caller's name for this attempt.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
}

/// Body of `POST /v1/holds/{id}/confirm`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfirmBody {
    /// What the caller shows.
    #[serde(with = "shown")]
    pub token: HoldToken,
    /// Free text for the booking.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
}

/// Which bookings a list is to have; the parameters of its query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BookingQuery {
    /// Those that end after this.
    pub from: Option<Timestamp>,
    /// Those that start before this.
    pub to: Option<Timestamp>,
    /// Those of this status.
    pub status: Option<BookingStatus>,
    /// The caller's own.
    pub mine: bool,
    /// Those behind this one.
    pub after: Option<Cursor>,
    /// At most so many, 1 to [`BOOKINGS_PAGE_MAX`]; default 100.
    pub limit: Option<usize>,
}

impl BookBody {
    /// Checks what spans several fields.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the field.
    pub fn into_ask(self, resource: ResourceId) -> Result<CalendarAsk, Refusal> {
        let slot = slot(self.starts_at, self.duration_ms, self.ends_at)?;
        Ok(CalendarAsk::Book { resource, slot, repeat: self.repeat, note: self.note })
    }
}

impl RescheduleBody {
    /// Checks what spans several fields.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the field.
    pub fn into_ask(self, booking: BookingId) -> Result<CalendarAsk, Refusal> {
        let to = Rebooking { starts_at: self.starts_at, length: length(self.duration_ms, self.ends_at)? };
        if to == Rebooking::default() {
            return Err(Refusal::bad_field("startsAt", "is missing; name startsAt, durationMs or endsAt"));
        }
        Ok(CalendarAsk::Reschedule { booking, to })
    }
}

impl HoldBody {
    /// Checks what spans several fields. `token` is what is kept of the token that the hold gets.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the field.
    pub fn into_ask(
        self,
        resource: ResourceId,
        header: Option<IdempotencyKey>,
        token: TokenHash,
    ) -> Result<CalendarAsk, Refusal> {
        let slot = slot(self.starts_at, self.duration_ms, self.ends_at)?;
        let key = one_of("idempotencyKey", self.idempotency_key, header)?;
        Ok(CalendarAsk::Hold { resource, slot, ttl_ms: self.ttl_ms.map(u64::from), key, token })
    }
}

impl ConfirmBody {
    /// The same as a question; the token itself stays behind.
    pub fn into_ask(self, hold: HoldId) -> CalendarAsk {
        CalendarAsk::Confirm { hold, token: self.token.hash(), note: self.note }
    }
}

impl BookingQuery {
    /// How many bookings a page is to have.
    ///
    /// # Errors
    /// `BAD_REQUEST` naming the parameter.
    pub fn page(&self) -> Result<usize, Refusal> {
        match self.limit.unwrap_or(PAGE_DEFAULT) {
            limit @ 1..=BOOKINGS_PAGE_MAX => Ok(limit),
            _ => Err(Refusal::bad_field("limit", format!("between 1 and {BOOKINGS_PAGE_MAX}; read on with after"))),
        }
    }
}

/// The sub-name of a call that makes something.
pub(super) fn sub_name(body: Option<SubName>, headers: &Headers) -> Result<Option<SubName>, Refusal> {
    one_of("requester", body, headers.requester.clone())
}

fn slot(starts_at: Timestamp, duration_ms: Option<u64>, ends_at: Option<Timestamp>) -> Result<Slot, Refusal> {
    let missing = || Refusal::bad_field("durationMs", "is missing; name durationMs or endsAt");
    Ok(Slot { starts_at, length: length(duration_ms, ends_at)?.ok_or_else(missing)? })
}

fn length(duration_ms: Option<u64>, ends_at: Option<Timestamp>) -> Result<Option<SlotLength>, Refusal> {
    match (duration_ms, ends_at) {
        (Some(_), Some(_)) => Err(Refusal::bad_field("endsAt", "name either durationMs or endsAt, not both")),
        (Some(ms), None) => Ok(Some(SlotLength::Lasting(Duration::from_millis(ms)))),
        (None, Some(at)) => Ok(Some(SlotLength::Until(at))),
        (None, None) => Ok(None),
    }
}

/// The digits of a microsecond.
const FRACTION_DIGITS_MAX: usize = 6;

/// An instant as a caller writes it: with its offset, and in whole microseconds, because what is finer would be lost on
/// the way (SPEC §1). A zone in brackets is for people; nothing here says what it would mean beside another offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Timestamp);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('[') {
            return Err("a time has an offset and no zone in brackets, as 2026-08-28T10:00:00+02:00 has".to_owned());
        }
        let digits = |rest: &str| rest.bytes().take_while(u8::is_ascii_digit).count();
        if text.split(['.', ',']).skip(1).any(|rest| digits(rest) > FRACTION_DIGITS_MAX) {
            return Err(format!("a time has at most {FRACTION_DIGITS_MAX} digits after the second"));
        }
        text.parse().map(Self).map_err(|error: jiff::Error| error.to_string())
    }
}

fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    String::deserialize(from)?.parse().map(|Moment(at)| at).map_err(D::Error::custom)
}

fn moment_given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    moment(from).map(Some)
}

fn duration_given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(from)? {
        0 => Err(D::Error::custom("whole milliseconds, at least 1")),
        ms => Ok(Some(ms)),
    }
}

/// A token that a caller shows. A refusal repeats nothing of what stands in its place.
mod shown {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use serde_json::Value;

    use super::HoldToken;

    pub(super) fn serialize<S: Serializer>(token: &HoldToken, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(token.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HoldToken, D::Error> {
        match Value::deserialize(from)? {
            Value::String(text) => Ok(HoldToken::shown(text)),
            _ => Err(D::Error::custom("must be the token's text")),
        }
    }
}
