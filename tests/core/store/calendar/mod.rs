//! Bookings and holds on disk: what is written is found, and no slot is claimed twice, whoever writes.

mod bypass;
mod crash;
mod full_disk;
mod guards;
mod monitor;
mod random;
mod round_trip;

use std::sync::Arc;
use std::time::Duration;

use berth::admission::calendar::{BookingMove, CalendarChange, HoldMove};
use berth::admission::resource::Change;
use berth::model::{Booking, BookingId, BookingStatus, Hold, HoldId, HoldStatus, TokenHash, Window};
use berth::store::{CommitError, StoredResource};

use super::{Database, Open};
use crate::sample;

/// The resource of these tests.
pub(super) const BENCH: &str = "bench-1";

const MINUTE_MS: u64 = 60_000;

/// From one minute up to another, after the tests' common beginning.
pub(super) fn window(from: u64, to: u64) -> Window {
    Window::new(sample::wall(from * MINUTE_MS), sample::wall(to * MINUTE_MS)).unwrap()
}

fn booking_id(number: usize) -> BookingId {
    sample::text(&format!("book_00000000-0000-4000-8000-{number:012}"))
}

fn hold_id(number: usize) -> HoldId {
    sample::text(&format!("hold_00000000-0000-4000-8000-{number:012}"))
}

/// A scheduled booking of [`BENCH`].
pub(super) fn booking(number: usize, window: Window) -> Booking {
    Booking {
        id: booking_id(number),
        resource_id: sample::text(BENCH),
        holder: sample::text("ci/job-17"),
        window,
        status: BookingStatus::Scheduled,
        claims: true,
        note: None,
        lease_id: None,
        series: None,
        created_at: sample::wall(number as u64),
        settled_at: None,
    }
}

/// An active hold of [`BENCH`], for ten minutes.
pub(super) fn hold(number: usize, window: Window) -> Hold {
    Hold {
        id: hold_id(number),
        resource_id: sample::text(BENCH),
        holder: sample::text("ops"),
        window,
        status: HoldStatus::Active,
        ttl: Duration::from_secs(600),
        key: None,
        token: TokenHash::of("a token"),
        booking: None,
        created_at: sample::wall(number as u64),
        settled_at: None,
    }
}

fn settled_booking(booking: &Booking, status: BookingStatus, claims: bool) -> Booking {
    Booking { status, claims, settled_at: Some(sample::wall(5_000)), ..booking.clone() }
}

fn settled_hold(hold: &Hold, status: HoldStatus, booking: Option<BookingId>) -> Hold {
    Hold { status, booking, settled_at: Some(sample::wall(5_000)), ..hold.clone() }
}

/// What happened to a booking.
fn of_booking(booking: &Booking, what: BookingMove) -> Change {
    Change::Calendar(CalendarChange::Booking { booking: Arc::new(booking.clone()), what })
}

pub(super) fn booked(booking: &Booking) -> Change {
    of_booking(booking, BookingMove::Created)
}

/// Another window for a booking.
fn rescheduled(booking: &Booking, to: Window) -> Change {
    of_booking(&Booking { window: to, ..booking.clone() }, BookingMove::Rescheduled(booking.window))
}

fn cancelled(booking: &Booking) -> Change {
    let given_up = settled_booking(booking, BookingStatus::Cancelled, false);
    of_booking(&given_up, BookingMove::Cancelled { by_admin: false })
}

/// What happened to a hold, which ends `expires_ms` after the beginning.
fn of_hold(hold: &Hold, what: HoldMove, expires_ms: u64) -> Change {
    let (deadline, expires_at) = (sample::run(expires_ms), sample::wall(expires_ms));
    Change::Calendar(CalendarChange::Hold { hold: Arc::new(hold.clone()), what, deadline, expires_at })
}

const EXPIRES_MS: u64 = 600_000;

pub(super) fn held(hold: &Hold) -> Change {
    of_hold(hold, HoldMove::Created, EXPIRES_MS)
}

fn expired(hold: &Hold) -> Change {
    of_hold(&settled_hold(hold, HoldStatus::Expired, None), HoldMove::Expired, EXPIRES_MS)
}

fn hold_released(hold: &Hold) -> Change {
    let what = HoldMove::Released { by_admin: false };
    of_hold(&settled_hold(hold, HoldStatus::Released, None), what, EXPIRES_MS)
}

/// A hold becomes the booking of that number: both changes.
fn confirmed(hold: &Hold, number: usize) -> Vec<Change> {
    let made = Booking { holder: hold.holder.clone(), ..booking(number, hold.window) };
    let hold = settled_hold(hold, HoldStatus::Confirmed, Some(made.id.clone()));
    vec![of_hold(&hold, HoldMove::Confirmed, EXPIRES_MS), booked(&made)]
}

impl Open {
    /// Commits changes of [`BENCH`], decided at the beginning.
    async fn calendar(&self, changes: Vec<Change>) -> Result<(), CommitError> {
        self.commit_at(0, Some(BENCH), changes).await
    }
}

/// Commits, opens the file anew, and tells what is found of [`BENCH`]: the same as when its actor had died.
async fn found(database: &Database, open: Open, changes: Vec<Change>) -> (Open, StoredResource) {
    open.calendar(changes).await.unwrap();
    let (sent, read) = tokio::sync::oneshot::channel();
    open.store.close(sample::text(BENCH), 0, None, move |rows| drop(sent.send(rows)));
    let (rows, _) = super::within_bound(read).await.unwrap().unwrap();
    let open = database.reopened(open).await;
    assert_eq!(open.loaded.resources, std::slice::from_ref(&rows));
    (open, rows)
}
