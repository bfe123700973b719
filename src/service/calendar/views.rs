//! The shapes of the answers about bookings and holds (SPEC §13), and what of a booking is for whose eyes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::time::instant;
use crate::model::{
    Asker, Booking, BookingId, BookingStatus, Cursor, HoldId, HoldStatus, LeaseId, NodeName, Note, Requester,
    ResourceId, SeriesId,
};
use crate::trust::HoldToken;
use crate::wire::calendar::HoldSeen;

/// A booking. Everyone sees when it is; what is about its holder only the holder, an admin and a viewer (SPEC §5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BookingView {
    /// Its name at this node.
    pub id: BookingId,
    /// On which resource.
    pub resource_id: ResourceId,
    /// When it starts.
    #[serde(with = "instant")]
    pub starts_at: Timestamp,
    /// The first instant after it.
    #[serde(with = "instant")]
    pub ends_at: Timestamp,
    /// What has become of it.
    pub status: BookingStatus,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_id: Option<Requester>,
    /// Free text of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Note>,
    /// The lease that fulfils it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    /// The series that it is one of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series_id: Option<SeriesId>,
}

impl BookingView {
    /// What `asker` may see of a booking.
    pub fn new(booking: &Booking, asker: &Asker) -> Self {
        let shown = asker.may_read(&booking.holder);
        Self {
            id: booking.id.clone(),
            resource_id: booking.resource_id.clone(),
            starts_at: booking.window.starts_at(),
            ends_at: booking.window.ends_at(),
            status: booking.status,
            holder_id: shown.then(|| named(&booking.holder, asker)),
            note: booking.note.clone().filter(|_| shown),
            lease_id: booking.lease_id.clone().filter(|_| shown),
            series_id: booking.series.clone().filter(|_| shown),
        }
    }
}

/// A hold: for its holder and an admin, and for whoever has shown its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldView {
    /// Its name at this node.
    pub id: HoldId,
    /// On which resource.
    pub resource_id: ResourceId,
    /// Whose it is; only for its owner and admins, not for others who show its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_id: Option<Requester>,
    /// When its slot starts.
    #[serde(with = "instant")]
    pub starts_at: Timestamp,
    /// The first instant after its slot.
    #[serde(with = "instant")]
    pub ends_at: Timestamp,
    /// When the hold ends, by the node's wall clock.
    #[serde(with = "instant")]
    pub expires_at: Timestamp,
    /// What has become of it.
    pub status: HoldStatus,
    /// The booking that it has become.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booking_id: Option<BookingId>,
}

impl HoldView {
    /// A hold as `asker` is shown it.
    pub fn new(hold: HoldSeen, asker: &Asker) -> Self {
        Self {
            holder_id: asker.may_see_hold_of(&hold.holder).then(|| named(&hold.holder, asker)),
            id: hold.id,
            resource_id: hold.resource_id,
            starts_at: hold.window.starts_at(),
            ends_at: hold.window.ends_at(),
            expires_at: hold.expires_at,
            status: hold.status,
            booking_id: hold.booking,
        }
    }
}

/// A holder as the door names it that `asker` came in by: those of its own are bare.
fn named(holder: &Requester, asker: &Asker) -> Requester {
    if holder.via == asker.requester.via { holder.bare() } else { holder.clone() }
}

/// Answer to a booking: one, or those that a rule makes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Booked {
    /// One.
    One {
        /// It.
        booking: BookingView,
    },
    /// A series.
    Series {
        /// What they are together.
        series_id: SeriesId,
        /// They, in their order.
        bookings: Vec<BookingView>,
    },
}

/// One booking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneBooking {
    /// It.
    pub booking: BookingView,
}

/// A page of bookings, in the order of their windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bookings {
    /// They.
    pub bookings: Vec<BookingView>,
    /// The cursor of the next page; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// The workers of a lab whose bookings are not here, because they are not connected or have not reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<NodeName>,
}

/// Answer to giving a booking up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// It.
    pub booking: BookingView,
    /// Later ones of its series that went with it; only where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub following: Option<Vec<BookingView>>,
}

/// Answer to a hold: the only time its token is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldCreated {
    /// The hold.
    pub hold: HoldView,
    /// Whoever has it may confirm the hold, or give it back.
    #[serde(with = "token")]
    pub token: HoldToken,
}

/// A token in JSON: only in that one answer.
mod token {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::HoldToken;

    pub(super) fn serialize<S: Serializer>(token: &HoldToken, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(token.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<HoldToken, D::Error> {
        HoldToken::parse(&String::deserialize(from)?).ok_or_else(|| D::Error::custom("no token of a hold"))
    }
}

/// One hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneHold {
    /// It.
    pub hold: HoldView,
}

/// Holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// They.
    pub holds: Vec<HoldView>,
}

/// Whether new holds are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// True when they are.
    pub paused: bool,
}

/// What a look at the node's database has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorView {
    /// True when there is nothing that must not be.
    pub ok: bool,
    /// True when no new holds are made on the node.
    pub holds_paused: bool,
    /// What must not be, in words.
    pub violations: Vec<String>,
}
