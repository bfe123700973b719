//! What is asked of a worker's calendars, by its own clients and by the gateway alike.
//!
//! A [`CalendarCall`] says who asks and as what; a worker takes a requester of a gateway only from that gateway's link.
//! Names are the worker's own: a resource without its worker's name, `book_…` and `hold_…` without a prefix. Of the token of
//! a hold only the hash is ever said.
//!
//! An answer fits a frame. A page has at most [`BOOKINGS_PER_FRAME_MAX`] bookings, whatever was asked for, and says where
//! the next begins. Bookings that were made together have one note, and it is said once, with the first of them. A list of
//! holds has at most [`BOOKINGS_PAGE_MAX`].

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::limits::{BOOKINGS_PAGE_MAX, BOOKINGS_PER_FRAME_MAX, FRAME_BYTES_MAX};
use crate::model::{
    Asker, Booking, BookingFilter, BookingId, Cursor, Hold, HoldId, HoldStatus, IdempotencyKey, Note, OCCURRENCES_MAX,
    Rebooking, Repeat, Requester, ResourceId, SeriesId, Slot, TokenHash, Window,
};

/// A booking without its note, or a hold, takes less than this: names, two requesters' worth of text, and times.
const ROW_BYTES_MAX: usize = 1_000;
/// A note of 512 characters of 4 bytes.
const NOTE_BYTES_MAX: usize = 512 * 4 + 3;
const _: () = assert!(BOOKINGS_PER_FRAME_MAX * (ROW_BYTES_MAX + NOTE_BYTES_MAX) + 128 * 1024 < FRAME_BYTES_MAX);
const _: () = assert!(OCCURRENCES_MAX * ROW_BYTES_MAX + NOTE_BYTES_MAX + 128 * 1024 < FRAME_BYTES_MAX);
const _: () = assert!(BOOKINGS_PAGE_MAX * ROW_BYTES_MAX + 128 * 1024 < FRAME_BYTES_MAX);

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
        /// At most so many; never more than [`BOOKINGS_PAGE_MAX`].
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

impl CalendarAnswer {
    /// As it is sent, so that it fits a frame: what [`Self::unpacked`] makes whole again.
    pub fn packed(self) -> Self {
        match self {
            CalendarAnswer::Booked { series, mut bookings } => {
                if let Some((first, rest)) = bookings.split_first_mut() {
                    rest.iter_mut().for_each(|booking| take_note(booking, first.note.as_ref()));
                }
                CalendarAnswer::Booked { series, bookings }
            }
            CalendarAnswer::Cancelled { booking, mut following } => {
                following.iter_mut().for_each(|later| take_note(later, booking.note.as_ref()));
                CalendarAnswer::Cancelled { booking, following }
            }
            other => other,
        }
    }

    /// The whole of what was sent.
    pub fn unpacked(self) -> Self {
        let give = |later: &mut Arc<Booking>, note: Option<&Note>| {
            if later.note.is_none() && note.is_some() {
                Arc::make_mut(later).note = note.cloned();
            }
        };
        match self {
            CalendarAnswer::Booked { series, mut bookings } => {
                if let Some((first, rest)) = bookings.split_first_mut() {
                    rest.iter_mut().for_each(|later| give(later, first.note.as_ref()));
                }
                CalendarAnswer::Booked { series, bookings }
            }
            CalendarAnswer::Cancelled { booking, mut following } => {
                following.iter_mut().for_each(|later| give(later, booking.note.as_ref()));
                CalendarAnswer::Cancelled { booking, following }
            }
            other => other,
        }
    }
}

/// Leaves a note out that is said already.
fn take_note(booking: &mut Arc<Booking>, said: Option<&Note>) {
    if booking.note.is_some() && booking.note.as_ref() == said {
        Arc::make_mut(booking).note = None;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BookingStatus;
    use crate::wire::call::{Answer, AnswerFrame};
    use crate::wire::frame::{decode, encode};

    /// A booking with the longest texts that there may be.
    fn longest(second: usize) -> Arc<Booking> {
        let at = |second: usize| Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        let holder = format!("gw:{}:{}/{}", "g".repeat(63), "p".repeat(63), "s".repeat(64));
        Arc::new(Booking {
            id: BookingId::generate(),
            resource_id: "r".repeat(128).parse().unwrap(),
            holder: holder.parse().unwrap(),
            window: Window::new(at(second), at(second + 1)).unwrap(),
            status: BookingStatus::Cancelled,
            claims: true,
            note: Some("\u{1f512}".repeat(512).parse().unwrap()),
            lease_id: Some("l".repeat(128).parse().unwrap()),
            series: Some(SeriesId::generate()),
            created_at: at(200_000_000_000),
            settled_at: Some(at(200_000_000_000)),
        })
    }

    fn read_back(answer: CalendarAnswer) -> CalendarAnswer {
        let sent = AnswerFrame { id: u64::MAX, number: u64::MAX, answer: Answer::Calendar(answer.packed()) };
        match decode::<AnswerFrame>(&encode(&sent).unwrap()).unwrap().answer {
            Answer::Calendar(answer) => answer.unpacked(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_longest_page_and_the_longest_series_fit_a_frame_and_are_read_back_whole() {
        let many = |count: usize| (0..count).map(longest).collect::<Vec<_>>();
        let bookings = many(BOOKINGS_PER_FRAME_MAX);
        let next = bookings.last().map(|last| Cursor::behind(last));
        let page = CalendarAnswer::Bookings { bookings, next };
        assert_eq!(read_back(page.clone()), page);
        let bookings = many(OCCURRENCES_MAX);
        let mut following = bookings.clone();
        let booked = CalendarAnswer::Booked { series: Some(SeriesId::generate()), bookings };
        assert_eq!(read_back(booked.clone()), booked);
        let cancelled = CalendarAnswer::Cancelled { booking: following.remove(0), following };
        assert_eq!(read_back(cancelled.clone()), cancelled);
    }

    #[test]
    fn the_longest_list_of_holds_fits_a_frame() {
        let holds = (0..BOOKINGS_PAGE_MAX).map(longest).map(|booking| HoldSeen {
            id: HoldId::generate(),
            resource_id: booking.resource_id.clone(),
            holder: booking.holder.clone(),
            window: booking.window,
            status: HoldStatus::Confirmed,
            expires_at: booking.window.ends_at(),
            booking: Some(booking.id.clone()),
        });
        let holds = CalendarAnswer::Holds(holds.collect());
        assert_eq!(read_back(holds.clone()), holds);
    }
}
