//! What is asked of a worker's calendars, by its own clients and by the gateway alike.
//!
//! A [`CalendarCall`] says who asks and as what; a worker takes a requester of a gateway only from that gateway's link.
//! Names are the worker's own: a resource without its worker's name, `book_…` and `hold_…` without a prefix. Of the token of
//! a hold only the hash is ever said.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{
    Asker, Booking, BookingFilter, BookingId, Cursor, Hold, HoldId, HoldStatus, IdempotencyKey, Note, Rebooking,
    Repeat, Requester, ResourceId, SeriesId, Slot, TokenHash, Window,
};

/// One call, and on whose word.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CalendarCall {
    /// Who asks.
    pub asker: Asker,
    /// For what.
    pub ask: CalendarAsk,
}

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CalendarAsk {
    /// Book a window, or one and its repetitions. Answer: `booked`.
    Book {
        /// Of which resource.
        resource: ResourceId,
        /// The window, or the first.
        slot: Slot,
        /// How it comes again.
        repeat: Option<Repeat>,
        /// Free text.
        note: Option<Note>,
    },
    /// Give a booking another window. Answer: `booking`.
    Reschedule {
        /// Which.
        booking: BookingId,
        /// The window.
        to: Rebooking,
    },
    /// Give a booking up. Answer: `cancelled`.
    Cancel {
        /// Which.
        booking: BookingId,
        /// True for all later ones of its series, too.
        following: bool,
    },
    /// One booking. Answer: `booking`.
    Booking(BookingId),
    /// The bookings of one resource, or of all. Answer: `bookings`.
    Bookings {
        /// Of which resource.
        resource: Option<ResourceId>,
        /// Which of them.
        filter: BookingFilter,
        /// At most so many; never more than [`BOOKINGS_PAGE_MAX`](crate::limits::BOOKINGS_PAGE_MAX).
        limit: usize,
    },
    /// Hold a slot. Answer: `hold`.
    #[serde(rename_all = "camelCase")]
    Hold {
        /// Of which resource.
        resource: ResourceId,
        /// Which.
        slot: Slot,
        /// How long, in ms; default `holds.default_ttl`.
        ttl_ms: Option<u64>,
        /// The caller's name for this attempt.
        key: Option<IdempotencyKey>,
        /// What is kept of the token.
        token: TokenHash,
    },
    /// Turn a hold into a booking. Answer: `booking`.
    Confirm {
        /// Which.
        hold: HoldId,
        /// What the caller shows.
        token: TokenHash,
        /// Free text for the booking.
        note: Option<Note>,
    },
    /// Give a hold back. Answer: `hold`.
    Release {
        /// Which.
        hold: HoldId,
        /// What the caller shows.
        token: Option<TokenHash>,
    },
    /// One hold, for its holder or an admin. Answer: `hold`.
    OneHold(HoldId),
    /// The holds of a resource: an admin's are all, an agent's its own. Answer: `holds`.
    Holds(ResourceId),
    /// Stop new holds, or make them again; for admins. Answer: `paused`.
    PauseHolds {
        /// On which resource; none for all.
        resource: Option<ResourceId>,
        /// Which of the two.
        paused: bool,
    },
}

impl CalendarAsk {
    /// The resource that it names, if it names one.
    pub fn resource(&self) -> Option<&ResourceId> {
        match self {
            CalendarAsk::Book { resource, .. } | CalendarAsk::Hold { resource, .. } | CalendarAsk::Holds(resource) => {
                Some(resource)
            }
            CalendarAsk::Bookings { resource, .. } | CalendarAsk::PauseHolds { resource, .. } => resource.as_ref(),
            CalendarAsk::Reschedule { .. }
            | CalendarAsk::Cancel { .. }
            | CalendarAsk::Booking(_)
            | CalendarAsk::Confirm { .. }
            | CalendarAsk::Release { .. }
            | CalendarAsk::OneHold(_) => None,
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CalendarAnswer {
    /// These are booked.
    Booked {
        /// What they are together, if there is a rule by which they repeat.
        series: Option<SeriesId>,
        /// In their order.
        bookings: Vec<Arc<Booking>>,
    },
    /// A booking as it is now.
    Booking(Arc<Booking>),
    /// A booking is given up.
    Cancelled {
        /// It.
        booking: Arc<Booking>,
        /// Later ones of its series that went with it.
        following: Vec<Arc<Booking>>,
    },
    /// A page of bookings.
    Bookings {
        /// In the order of their windows.
        bookings: Vec<Arc<Booking>>,
        /// Where the next page begins; none after the last.
        next: Option<Cursor>,
    },
    /// A hold as it is now.
    Hold(HoldSeen),
    /// Holds.
    Holds(Vec<HoldSeen>),
    /// Whether new holds are stopped there.
    Paused(bool),
}

/// A hold as it is shown: nothing of its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldSeen {
    /// Its name.
    pub id: HoldId,
    /// On which resource.
    pub resource_id: ResourceId,
    /// Whose it is.
    pub holder: Requester,
    /// The window of its slot.
    pub window: Window,
    /// What has become of it.
    pub status: HoldStatus,
    /// When it ends, wall time.
    #[serde(with = "crate::model::time::micros")]
    pub expires_at: Timestamp,
    /// The booking that it has become.
    pub booking: Option<BookingId>,
}

impl HoldSeen {
    /// A hold that ends then.
    pub fn new(hold: &Hold, expires_at: Timestamp) -> Self {
        Self {
            id: hold.id.clone(),
            resource_id: hold.resource_id.clone(),
            holder: hold.holder.clone(),
            window: hold.window,
            status: hold.status,
            expires_at,
            booking: hold.booking.clone(),
        }
    }
}
