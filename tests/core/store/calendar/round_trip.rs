//! What was written of a calendar is what the next start finds.

use std::time::Duration;

use berth::admission::calendar::{BookingMove, CalendarChange, HoldMove, Miss};
use berth::admission::resource::Change;
use berth::model::{Booking, BookingStatus, EventKind, Hold, HoldStatus, LeaseRecord, SeriesId, TokenHash};
use berth::store::{CommitError, EventFilter};

use super::{
    BENCH, EXPIRES_MS, booked, booking, booking_id, cancelled, confirmed, expired, found, held, hold, hold_id,
    hold_released, of_booking, of_hold, rescheduled, settled_booking, settled_hold, window,
};
use crate::sample;
use crate::store::{Database, granted};

/// With everything that a booking may have.
fn wordy(number: usize) -> Booking {
    Booking {
        note: Some(sample::text("für die Nacht")),
        holder: sample::text("gw:gateway:ci/job-17"),
        series: Some("series_00000000-0000-4000-8000-000000000001".parse::<SeriesId>().unwrap()),
        ..booking(number, window(60, 90))
    }
}

#[tokio::test]
async fn a_booking_is_found_as_it_was_after_everything_that_can_happen_to_it() {
    let database = Database::new();
    let made = wordy(1);
    let (open, rows) = found(&database, database.open(), vec![booked(&made)]).await;
    assert_eq!(rows.bookings, std::slice::from_ref(&made));
    let (open, rows) = found(&database, open, vec![rescheduled(&made, window(100, 120))]).await;
    let moved = Booking { window: window(100, 120), ..made };
    assert_eq!(rows.bookings, std::slice::from_ref(&moved));
    let taken =
        Booking { lease_id: Some(sample::text("lse_1")), ..settled_booking(&moved, BookingStatus::Fulfilled, true) };
    let (open, rows) = found(&database, open, vec![of_booking(&taken, BookingMove::Fulfilled)]).await;
    assert_eq!(rows.bookings, std::slice::from_ref(&taken));
    let freed = Booking { claims: false, ..taken };
    let (open, rows) = found(&database, open, vec![of_booking(&freed, BookingMove::Freed)]).await;
    assert_eq!(rows.bookings, std::slice::from_ref(&freed));

    let (given_up, nobody_came) = (booking(2, window(10, 20)), booking(3, window(20, 30)));
    let missed = settled_booking(&nobody_came, BookingStatus::Missed, false);
    let changes = vec![
        booked(&given_up),
        booked(&nobody_came),
        cancelled(&given_up),
        of_booking(&missed, BookingMove::Missed(Miss::NoShow)),
    ];
    let (_, rows) = found(&database, open, changes).await;
    let given_up = settled_booking(&given_up, BookingStatus::Cancelled, false);
    assert_eq!(rows.bookings, [given_up, missed, freed], "in the order of their windows");
}

#[tokio::test]
async fn a_hold_is_found_as_it_was_with_its_deadline_after_everything_that_can_happen_to_it() {
    let database = Database::new();
    let made = Hold { key: Some(sample::text("k-1")), ..hold(1, window(60, 90)) };
    let (open, rows) = found(&database, database.open(), vec![held(&made)]).await;
    assert_eq!(rows.holds, [(made.clone(), sample::wall(EXPIRES_MS))]);
    let other = Hold { token: TokenHash::of("another"), ..made };
    let (open, rows) = found(&database, open, vec![of_hold(&other, HoldMove::Reissued, EXPIRES_MS)]).await;
    assert_eq!(rows.holds, [(other.clone(), sample::wall(EXPIRES_MS))]);
    let (open, rows) = found(&database, open, vec![of_hold(&other, HoldMove::Rewritten, 7_000)]).await;
    assert_eq!(rows.holds, [(other.clone(), sample::wall(7_000))]);
    let (open, rows) = found(&database, open, confirmed(&other, 1)).await;
    let became = settled_hold(&other, HoldStatus::Confirmed, Some(booking_id(1)));
    assert_eq!(rows.holds, [(became.clone(), sample::wall(EXPIRES_MS))]);
    assert_eq!(rows.bookings, [Booking { holder: other.holder.clone(), ..booking(1, window(60, 90)) }]);

    let (given_back, too_late) = (hold(2, window(10, 20)), hold(3, window(20, 30)));
    let changes = vec![held(&given_back), held(&too_late), hold_released(&given_back), expired(&too_late)];
    let (_, rows) = found(&database, open, changes).await;
    let ended = [
        settled_hold(&given_back, HoldStatus::Released, None),
        settled_hold(&too_late, HoldStatus::Expired, None),
        became,
    ];
    assert_eq!(rows.holds, ended.map(|hold| (hold, sample::wall(EXPIRES_MS))));
}

#[tokio::test]
async fn what_is_over_is_forgotten_and_what_is_not_stays() {
    let database = Database::new();
    let open = database.open();
    let (over, given_up, ahead) = (booking(1, window(1, 2)), booking(2, window(5, 6)), booking(3, window(2, 3)));
    let (gone, lives) = (hold(1, window(3, 4)), hold(2, window(4, 5)));
    let made = vec![booked(&over), booked(&given_up), booked(&ahead), held(&gone), held(&lives)];
    open.calendar(made).await.unwrap();
    open.calendar(vec![cancelled(&given_up), hold_released(&gone)]).await.unwrap();
    let forget = |bookings: &[usize], holds: &[usize]| {
        let bookings = bookings.iter().map(|number| booking_id(*number)).collect();
        let holds = holds.iter().map(|number| hold_id(*number)).collect();
        vec![Change::Calendar(CalendarChange::Forgotten { bookings, holds })]
    };
    // Two minutes after the beginning: the first has just ended, the third begins.
    let at = 2 * super::MINUTE_MS;
    for stays in [forget(&[1, 3], &[]), forget(&[], &[1, 2]), forget(&[9], &[]), forget(&[], &[9])] {
        let refused = open.commit_at(at, Some(BENCH), stays).await;
        assert!(matches!(refused, Err(CommitError::Constraint(_))), "{refused:?}");
    }
    open.commit_at(at, Some(BENCH), forget(&[1, 2], &[1])).await.unwrap();
    let rows = &database.reopened(open).await.loaded.resources[0];
    assert_eq!(rows.bookings, [ahead]);
    assert_eq!(rows.holds, [(lives, sample::wall(EXPIRES_MS))]);
}

#[tokio::test]
async fn what_does_not_stand_any_more_becomes_nothing_else() {
    let database = Database::new();
    let open = database.open();
    let (given_up, given_back) = (booking(1, window(1, 2)), hold(1, window(2, 3)));
    open.calendar(vec![booked(&given_up), held(&given_back)]).await.unwrap();
    open.calendar(vec![cancelled(&given_up), hold_released(&given_back)]).await.unwrap();
    let stale = [
        vec![cancelled(&given_up)],
        vec![rescheduled(&given_up, window(7, 8))],
        vec![hold_released(&given_back)],
        confirmed(&given_back, 2),
        vec![rescheduled(&booking(9, window(1, 2)), window(7, 8))],
    ];
    for changes in stale {
        let refused = open.calendar(changes).await;
        assert!(matches!(&refused, Err(CommitError::Constraint(why)) if why.contains("not as it was")), "{refused:?}");
        assert_eq!(refused.unwrap_err().repeats(), None, "no rule");
    }
    // Nor can the calendar of one resource change another's.
    let stands = booking(3, window(1, 2));
    open.calendar(vec![booked(&stands)]).await.unwrap();
    let elsewhere = Booking { resource_id: sample::text("pixel-8-a"), ..stands };
    let refused = open.commit_at(0, Some("pixel-8-a"), vec![cancelled(&elsewhere)]).await;
    assert!(matches!(refused, Err(CommitError::Constraint(_))), "{refused:?}");
}

#[tokio::test]
async fn a_pause_of_holds_outlives_the_node_with_its_reason() {
    let database = Database::new();
    let paused = |paused| Change::Calendar(CalendarChange::HoldsPaused(paused));
    let (open, rows) = found(&database, database.open(), vec![paused(true)]).await;
    assert!(rows.holds_paused);
    assert_eq!(open.loaded.holds_paused, None, "of the node that says nothing");
    let (open, rows) = found(&database, open, vec![paused(false)]).await;
    assert!(!rows.holds_paused);
    open.close().await;

    let why = "booking a overlaps booking b";
    for (change, expected) in
        [(Change::NodeHoldsPaused(Some(why.to_owned())), Some(why)), (Change::NodeHoldsPaused(None), None)]
    {
        let open = database.reopened(open_with(&database, change).await).await;
        assert_eq!(open.loaded.holds_paused.as_deref(), expected);
        assert!(!open.loaded.resources[0].holds_paused, "of a resource that says nothing");
        open.close().await;
    }
    let all = EventFilter { private: true, ..EventFilter::default() };
    let told = database.open().events.read(0, 100, &all).await.unwrap();
    let told: Vec<_> = told.iter().map(|it| (it.kind, it.payload.get("reason").and_then(|it| it.as_str()))).collect();
    let (stopped, goes_on) = (EventKind::HoldsPaused, EventKind::HoldsResumed);
    let by_admin = [(stopped, Some("admin")), (goes_on, None)];
    assert_eq!(told, [by_admin, [(stopped, Some(why)), (goes_on, None)]].concat());

    async fn open_with(database: &Database, change: Change) -> crate::store::Open {
        let open = database.open();
        open.commit_at(0, None, vec![change]).await.unwrap();
        open
    }
}

#[tokio::test]
async fn a_lease_that_was_cut_keeps_the_width_that_it_was_asked_for() {
    let database = Database::new();
    let open = database.open();
    let cut = LeaseRecord { asked_ttl: Some(Duration::from_secs(3_600)), ..sample::lease("mine", BENCH, 1) };
    open.commit(vec![granted(&cut)]).await.unwrap();
    let open = database.reopened(open).await;
    assert_eq!(open.loaded.resources[0].leases[0].0, cut);
    let whole = LeaseRecord { asked_ttl: None, ..cut };
    let (deadline, expires_at) = (sample::run(90_000), sample::wall(90_000));
    open.commit(vec![Change::Renewed { lease: whole.clone(), deadline, expires_at, told: true }]).await.unwrap();
    assert_eq!(database.reopened(open).await.loaded.resources[0].leases[0].0, whole);
}

/// Whoever wrote it: the row is named, and neither its holder's secret nor what is kept of it is shown.
#[tokio::test]
async fn a_row_that_does_not_read_back_is_named_by_its_table_and_its_id() {
    let id = hold_id(1).to_string();
    for (table, wrong, id) in [
        ("booking", "UPDATE booking SET holder = 'CI Job'", booking_id(1).to_string()),
        ("hold", "UPDATE hold SET holder = 'CI Job'", id.clone()),
        ("hold", "UPDATE hold SET expires_at = 9223372036854775807", id),
    ] {
        let database = Database::new();
        let open = database.open();
        open.calendar(vec![booked(&booking(1, window(1, 2))), held(&hold(1, window(2, 3)))]).await.unwrap();
        open.close().await;
        database.foreign().execute(wrong, []).unwrap();
        let words = database.open_at(sample::at(0)).err().expect("it is refused").to_string();
        assert!(words.contains(&format!("`{table}`")) && words.contains(&id), "{words}");
    }
}
