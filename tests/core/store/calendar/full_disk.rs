//! A hold that meets a full disk has not happened: no row, no event, and its slot is free.

use super::{BENCH, booked, booking, confirmed, held, hold, window};
use crate::store::disk::{Full, filled};
use crate::store::{Database, Open, alone, block_on};

use berth::model::HoldStatus;
use berth::store::{CommitError, EVENTS_READ_MAX, EventFilter, StoredResource};

/// The kinds of the events that are about bookings and holds.
async fn told(open: &Open) -> Vec<&'static str> {
    let all = EventFilter { private: true, ..EventFilter::default() };
    let events = open.events.read(0, EVENTS_READ_MAX, &all).await.unwrap();
    events.iter().map(|event| event.kind.as_str()).filter(|kind| !kind.starts_with("lease")).collect()
}

fn bench(open: &Open) -> Option<&StoredResource> {
    open.loaded.resources.iter().find(|resource| resource.id.as_str() == BENCH)
}

#[test]
fn a_hold_whose_commit_fails_leaves_no_row_and_no_event_and_its_slot_is_free() {
    if !alone("calendar::full_disk::a_hold_whose_commit_fails_leaves_no_row_and_no_event_and_its_slot_is_free") {
        return;
    }
    block_on(async {
        let database = Database::new();
        let open = database.open();
        filled(&open, 40).await;
        let log = std::fs::metadata(database.folder.path().join("berth.db-wal")).unwrap().len();
        let full = Full::at(log);
        let refused = open.calendar(vec![held(&hold(1, window(10, 20)))]).await;
        assert!(matches!(refused, Err(CommitError::Disk(_))), "{refused:?}");
        drop(full);
        assert_eq!(told(&open).await, Vec::<&str>::new());
        let open = database.reopened(open).await;
        assert_eq!(bench(&open), None);
        // Nobody is stopped by what has not happened.
        open.calendar(vec![held(&hold(2, window(15, 25)))]).await.unwrap();
        assert_eq!(told(&open).await, ["hold.created"]);
    });
}

#[test]
fn a_hold_whose_conversion_fails_is_active_and_books_nothing() {
    if !alone("calendar::full_disk::a_hold_whose_conversion_fails_is_active_and_books_nothing") {
        return;
    }
    block_on(async {
        let database = Database::new();
        let open = database.open();
        let held_slot = hold(1, window(10, 20));
        open.calendar(vec![held(&held_slot)]).await.unwrap();
        filled(&open, 40).await;
        let log = std::fs::metadata(database.folder.path().join("berth.db-wal")).unwrap().len();
        let full = Full::at(log);
        let refused = open.calendar(confirmed(&held_slot, 1)).await;
        assert!(matches!(refused, Err(CommitError::Disk(_))), "{refused:?}");
        drop(full);
        let open = database.reopened(open).await;
        let rows = bench(&open).unwrap();
        assert_eq!((rows.holds[0].0.status, rows.bookings.as_slice()), (HoldStatus::Active, &[][..]));
        let refused = open.calendar(vec![booked(&booking(2, window(10, 20)))]).await;
        assert_eq!(refused, Err(CommitError::Constraint("no_booking_over_a_hold".to_owned())));
        open.calendar(confirmed(&held_slot, 1)).await.unwrap();
        assert_eq!(told(&open).await, ["hold.created", "hold.confirmed", "booking.created"]);
    });
}
