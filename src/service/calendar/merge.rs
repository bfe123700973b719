//! Pages of several workers as one, in one order: by the start, then by the gateway's name of a booking. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{Booking, Cursor};

/// A page that comes together.
#[derive(Debug)]
pub(super) struct Merged {
    limit: usize,
    /// Everything is behind this; what a worker says all the same is not taken.
    after: Option<Cursor>,
    bookings: BTreeMap<Cursor, Arc<Booking>>,
    /// Up to where every worker has said all that it has; none while each has said everything.
    known: Option<Cursor>,
    /// True when there is something behind what is kept here.
    more: bool,
}

impl Merged {
    /// An empty page of at most `limit` bookings behind `after`.
    pub fn new(limit: usize, after: Option<Cursor>) -> Self {
        Self { limit, after, bookings: BTreeMap::new(), known: None, more: false }
    }

    /// Adds the page of one worker; `more` when it has others behind.
    pub fn add(&mut self, mut bookings: Vec<Arc<Booking>>, more: bool) {
        if let Some(after) = &self.after {
            bookings.retain(|booking| Cursor::behind(booking) > *after);
        }
        if more && let Some(last) = bookings.last().map(|last| Cursor::behind(last)) {
            self.known = Some(self.known.take().map_or(last.clone(), |known| known.min(last)));
            self.more = true;
        }
        self.bookings.extend(bookings.into_iter().map(|booking| (Cursor::behind(&booking), booking)));
        // Of no use any more: what another worker may have before it, and what does not fit the page.
        if let Some(known) = &self.known {
            let beyond = |(at, _): &(&Cursor, &Arc<Booking>)| *at > known;
            let first = self.bookings.iter().find(beyond).map(|(at, _)| at.clone());
            first.map(|first| self.bookings.split_off(&first));
        }
        while self.bookings.len() > self.limit {
            self.bookings.pop_last();
            self.more = true;
        }
    }

    /// The page, and where the next begins.
    pub fn page(self) -> (Vec<Arc<Booking>>, Option<Cursor>) {
        let next = self.bookings.last_key_value().map(|(last, _)| last.clone()).filter(|_| self.more);
        (self.bookings.into_values().collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::model::{BookingId, BookingStatus, NodeName, Window};

    fn booking(worker: &NodeName, start: i64) -> Arc<Booking> {
        Arc::new(Booking {
            id: BookingId::generate().through(worker).unwrap(),
            resource_id: "pixel".parse().unwrap(),
            holder: "ci".parse().unwrap(),
            window: Window::try_from((start, start + 1)).unwrap(),
            status: BookingStatus::Scheduled,
            claims: true,
            note: None,
            lease_id: None,
            series: None,
            created_at: Timestamp::UNIX_EPOCH,
            settled_at: None,
        })
    }

    /// The page of one worker behind a cursor, as long as it gives one out.
    fn page(all: &[Arc<Booking>], after: Option<&Cursor>, most: usize) -> (Vec<Arc<Booking>>, bool) {
        let behind = |booking: &&Arc<Booking>| after.is_none_or(|after| Cursor::behind(booking) > *after);
        let mut left: Vec<_> = all.iter().filter(behind).cloned().collect();
        left.sort_by_key(|booking| Cursor::behind(booking));
        let more = left.len() > most;
        left.truncate(most);
        (left, more)
    }

    #[test]
    fn a_worker_that_begins_anew_whatever_it_is_asked_holds_up_nobody() {
        let names: [NodeName; 2] = ["rack-1", "rack-2"].map(|name| name.parse().unwrap());
        let again: Vec<_> = (0..4).map(|start| booking(&names[0], start)).collect();
        let sound: Vec<_> = (0..9).map(|start| booking(&names[1], start)).collect();
        let (mut read, mut after) = (Vec::new(), None);
        for _ in 0..20 {
            let mut merged = Merged::new(3, after.clone());
            merged.add(again.clone(), true);
            let (bookings, more) = page(&sound, after.as_ref(), 3);
            merged.add(bookings, more);
            let (bookings, next) = merged.page();
            read.extend(bookings);
            assert!(next.is_none() || next > after, "it goes on");
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((read.len(), after), (again.len() + sound.len(), None), "each once, and then an end");
    }

    proptest! {
        #[test]
        fn read_page_by_page_every_booking_comes_once_and_in_order(
            workers in prop::collection::vec(prop::collection::vec(0i64..4, 0..12), 0..4),
            limit in 1usize..6,
            most in 1usize..6,
        ) {
            let of_worker = |(index, starts): (usize, Vec<i64>)| {
                let name: NodeName = format!("rack-{index}").parse().unwrap();
                starts.into_iter().map(|start| booking(&name, start)).collect::<Vec<_>>()
            };
            let workers: Vec<Vec<Arc<Booking>>> = workers.into_iter().enumerate().map(of_worker).collect();
            let mut expected: Vec<_> = workers.concat();
            expected.sort_by_key(|booking| Cursor::behind(booking));
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let mut merged = Merged::new(limit, after.clone());
                for all in &workers {
                    let (bookings, more) = page(all, after.as_ref(), most.min(limit));
                    merged.add(bookings, more);
                }
                let (bookings, next) = merged.page();
                prop_assert!(bookings.len() <= limit);
                prop_assert!(next.is_none() || !bookings.is_empty());
                read.extend(bookings);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            prop_assert_eq!(read, expected);
        }
    }
}
