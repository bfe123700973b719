//! Bookings: future windows on a resource (SPEC §5).

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::id::{InvalidId, checked_text};
use super::time::{micros, micros_option};
use super::{LeaseId, NodeName, Note, Requester, ResourceId, Window};

checked_text!(
    /// Names a booking: `book_<uuid>`, or `<worker>.book_<uuid>` through a gateway.
    BookingId,
    "booking id",
    "'book_' and a UUID, before it the worker's name and a dot where it came through a gateway",
    |t| is_calendar_id("book_", t)
);

checked_text!(
    /// Names the bookings that were made together by one `repeat`: `series_<uuid>`.
    SeriesId,
    "series id",
    "'series_' and a UUID",
    |t| is_calendar_id("series_", t)
);

/// True for the prefix and a UUID, after a worker's name and a dot if there is one.
pub(super) fn is_calendar_id(prefix: &str, text: &str) -> bool {
    let (worker, bare) = split_worker(text);
    worker.is_none_or(|worker| worker.parse::<NodeName>().is_ok())
        && bare.strip_prefix(prefix).is_some_and(|uuid| uuid.len() <= 36 && Uuid::try_parse(uuid).is_ok())
}

/// The worker's name before an id, if it has one, and the id as that worker calls it. A UUID has no dot.
pub(super) fn split_worker(text: &str) -> (Option<&str>, &str) {
    text.split_once('.').map_or((None, text), |(worker, bare)| (Some(worker), bare))
}

macro_rules! names_of_a_worker {
    ($name:ident, $prefix:literal) => {
        impl $name {
            /// A new id.
            pub fn generate() -> Self {
                format!(concat!($prefix, "{}"), uuid::Uuid::new_v4()).parse().expect("it has the shape")
            }

            /// The gateway's name for what `worker` calls this; none for a name that has a worker's in front already.
            pub fn through(&self, worker: &crate::model::NodeName) -> Option<Self> {
                format!("{worker}.{self}").parse().ok()
            }

            /// The worker that it came from, if it is a gateway's name, and that worker's own name for it.
            pub fn of_worker(&self) -> (Option<crate::model::NodeName>, Self) {
                let (worker, bare) = crate::model::booking::split_worker(self.as_str());
                let worker = worker.map(|worker| worker.parse().expect("it has the shape"));
                (worker, bare.parse().expect("it has the shape"))
            }
        }
    };
}
pub(super) use names_of_a_worker;

names_of_a_worker!(BookingId, "book_");
names_of_a_worker!(SeriesId, "series_");

/// What has become of a booking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BookingStatus {
    /// It stands. With the default mode it stays so when its window has passed.
    Scheduled,
    /// Its holder or an admin has cancelled it.
    Cancelled,
    /// Its holder has had its lease in it.
    Fulfilled,
    /// Nobody came.
    Missed,
}

impl BookingStatus {
    /// Every status.
    pub const ALL: [BookingStatus; 4] =
        [BookingStatus::Scheduled, BookingStatus::Cancelled, BookingStatus::Fulfilled, BookingStatus::Missed];

    /// The word on the wire and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            BookingStatus::Scheduled => "scheduled",
            BookingStatus::Cancelled => "cancelled",
            BookingStatus::Fulfilled => "fulfilled",
            BookingStatus::Missed => "missed",
        }
    }
}

impl fmt::Display for BookingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BookingStatus {
    type Err = InvalidId;

    fn from_str(word: &str) -> Result<Self, InvalidId> {
        let known = BookingStatus::ALL.into_iter().find(|status| status.as_str() == word);
        known.ok_or_else(|| InvalidId::new("booking status", "scheduled, cancelled, fulfilled or missed", word))
    }
}

/// A booking as its worker keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Booking {
    /// Its name on its worker.
    pub id: BookingId,
    /// On which resource.
    pub resource_id: ResourceId,
    /// Whose it is.
    pub holder: Requester,
    /// When.
    pub window: Window,
    /// What has become of it.
    pub status: BookingStatus,
    /// True while nobody else can have its window: it is scheduled, or the lease that fulfils it is not over.
    pub claims: bool,
    /// Free text of the holder.
    pub note: Option<Note>,
    /// The lease that fulfils it.
    pub lease_id: Option<LeaseId>,
    /// The series that it is one of.
    pub series: Option<SeriesId>,
    /// When it was made, wall time.
    #[serde(with = "micros")]
    pub created_at: Timestamp,
    /// When it was cancelled, fulfilled or missed, wall time.
    #[serde(with = "micros_option")]
    pub settled_at: Option<Timestamp>,
}

impl Booking {
    /// Since when nothing can become of it any more, or from when on.
    pub fn over_at(&self) -> Timestamp {
        match (self.status, self.settled_at) {
            (BookingStatus::Cancelled, Some(at)) => at,
            _ => self.window.ends_at(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_which_worker_it_is_of() {
        let bare = BookingId::generate();
        assert_eq!(bare.of_worker(), (None, bare.clone()));
        let rack: NodeName = "rack-1".parse().unwrap();
        let seen = bare.through(&rack).unwrap();
        assert!(seen.as_str().starts_with("rack-1.book_"));
        assert_eq!(seen.through(&rack), None, "one name is of one worker");
        assert_eq!(seen.of_worker(), (Some(rack), bare));
    }

    #[test]
    fn what_is_no_booking_id_is_refused() {
        let uuid = Uuid::new_v4();
        for bad in ["book_", "book_1", &format!("hold_{uuid}"), &format!("a.b.book_{uuid}"), &format!("A.book_{uuid}")]
        {
            assert!(bad.parse::<BookingId>().is_err(), "{bad}");
        }
    }
}
