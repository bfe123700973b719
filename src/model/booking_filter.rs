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

    /// Behind a booking of that id whose window starts then.
    pub fn new(starts_at: Timestamp, id: BookingId) -> Self {
        Self(starts_at, id)
    }

    /// When the window of that booking starts.
    pub fn starts_at(&self) -> Timestamp {
        self.0
    }

    /// Its id.
    pub fn id(&self) -> &BookingId {
        &self.1
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
        // An instant before 1970 begins with a sign.
        let sign = usize::from(text.starts_with('-'));
        let end = sign + text[sign..].find('-').ok_or(wrong)?;
        let at = text[..end].parse().ok().and_then(|us| Timestamp::from_microsecond(us).ok()).ok_or(wrong)?;
        Ok(Self(at, text[end + 1..].parse().map_err(|_| wrong)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_also_as_a_gateway_writes_it() {
        let id = BookingId::generate();
        for id in [id.clone(), id.through(&"rack-1".parse().unwrap()).unwrap()] {
            for us in [0, 1_767_225_600_000_001, -5] {
                let cursor = Cursor::new(Timestamp::from_microsecond(us).unwrap(), id.clone());
                assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
            }
        }
        for bad in ["", "-", "5", "-book_1", "x-book_1", "5-hold_1", "--", "é-"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
