//! Which bookings of a list are wanted, page by page.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Booking, BookingId, BookingStatus, Requester};

/// Which bookings are asked for. The default is all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BookingFilter {
    /// Those that end after this.
    #[serde(with = "crate::model::time::micros_option")]
    pub from: Option<Timestamp>,
    /// Those that start before this.
    #[serde(with = "crate::model::time::micros_option")]
    pub to: Option<Timestamp>,
    /// Those of this status.
    pub status: Option<BookingStatus>,
    /// Those of this one and its sub-requesters.
    pub owner: Option<Requester>,
    /// Those behind this one.
    pub after: Option<Cursor>,
}

impl BookingFilter {
    /// True for one of them, its place in the list aside.
    pub fn shows(&self, booking: &Booking) -> bool {
        self.from.is_none_or(|from| booking.window.ends_at() > from)
            && self.status.is_none_or(|status| booking.status == status)
            && self.owner.as_ref().is_none_or(|owner| booking.holder.owner() == owner.owner())
    }
}

/// The last booking of a page; the next page begins behind it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cursor(Timestamp, BookingId);

impl Cursor {
    /// Behind this booking.
    pub fn behind(booking: &Booking) -> Self {
        Self(booking.window.starts_at(), booking.id.clone())
    }

    /// When the window of that booking starts.
    pub fn starts_at(&self) -> Timestamp {
        self.0
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.as_microsecond(), self.1)
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "is no cursor; take it from the field next of the page before";
        let (at, id) = text.split_once("-book_").ok_or(wrong)?;
        let at = at.parse().ok().and_then(|us| Timestamp::from_microsecond(us).ok()).ok_or(wrong)?;
        Ok(Self(at, format!("book_{id}").parse().map_err(|_| wrong)?))
    }
}

impl TryFrom<String> for Cursor {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Cursor> for String {
    fn from(it: Cursor) -> String {
        it.to_string()
    }
}
