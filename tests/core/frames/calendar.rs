//! Calls about bookings and holds, and their answers.

use std::sync::Arc;

use berth::model::{
    Asker, Booking, BookingFilter, BookingStatus, Cursor, Every, HoldStatus, Rebooking, Repeat, Role, Slot, SlotLength,
    TokenHash, Window,
};
use berth::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall, HoldSeen};
use jiff::Timestamp;

use super::*;

const BOOKING: &str = "book_00000000-0000-4000-8000-000000000001";
const HOLD: &str = "hold_00000000-0000-4000-8000-000000000002";
const SERIES: &str = "series_00000000-0000-4000-8000-000000000003";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn slot() -> Slot {
    Slot { starts_at: at(0), length: SlotLength::Lasting(Duration::from_secs(60)) }
}

pub fn call(ask: CalendarAsk) -> CalendarCall {
    CalendarCall { asker: Asker { requester: sample::text("gw:gateway:ci/job-17"), role: Role::Agent }, ask }
}

/// One of each.
pub fn asks() -> Vec<CalendarAsk> {
    let resource = || sample::text("pixel-8-a");
    let (booking, hold) = (|| sample::text(BOOKING), || sample::text(HOLD));
    let repeat = Repeat { every: Every::Week, until: sample::text("2026-02-01"), tz: sample::text("Europe/Warsaw") };
    let to = Rebooking { starts_at: Some(at(0)), length: Some(SlotLength::Until(at(90))) };
    let filter = BookingFilter {
        from: Some(at(0)),
        status: Some(BookingStatus::Scheduled),
        owner: Some(sample::text("gw:gateway:ci")),
        after: Some(Cursor::new(at(0), booking())),
        ..BookingFilter::default()
    };
    let token = TokenHash::of("bht_");
    vec![
        CalendarAsk::Book { resource: resource(), slot: slot(), repeat: Some(repeat), note: Some(sample::text("n")) },
        CalendarAsk::Reschedule { booking: booking(), to },
        CalendarAsk::Cancel { booking: booking(), following: true },
        CalendarAsk::Booking(booking()),
        CalendarAsk::Bookings { resource: Some(resource()), filter, limit: 100 },
        CalendarAsk::Hold {
            resource: resource(),
            slot: slot(),
            ttl_ms: Some(60_000),
            key: Some(sample::text("k-1")),
            token,
        },
        CalendarAsk::Confirm { hold: hold(), token, note: None },
        CalendarAsk::Release { hold: hold(), token: None },
        CalendarAsk::OneHold(hold()),
        CalendarAsk::Holds(resource()),
        CalendarAsk::PauseHolds { resource: None, paused: true },
    ]
}

fn booking() -> Arc<Booking> {
    Arc::new(Booking {
        id: sample::text(BOOKING),
        resource_id: sample::text("pixel-8-a"),
        holder: sample::text("gw:gateway:ci/job-17"),
        window: Window::new(at(0), at(60)).unwrap(),
        status: BookingStatus::Fulfilled,
        claims: true,
        note: Some(sample::text("n")),
        lease_id: Some(sample::text("lse_1")),
        series: Some(sample::text(SERIES)),
        created_at: at(0),
        settled_at: Some(at(1)),
    })
}

fn hold() -> HoldSeen {
    HoldSeen {
        id: sample::text(HOLD),
        resource_id: sample::text("pixel-8-a"),
        holder: sample::text("gw:gateway:ci/job-17"),
        window: Window::new(at(0), at(60)).unwrap(),
        status: HoldStatus::Active,
        expires_at: at(600),
        booking: None,
    }
}

/// One of each.
pub fn answers() -> Vec<CalendarAnswer> {
    let next = Some(Cursor::behind(&booking()));
    vec![
        CalendarAnswer::Booked { series: Some(sample::text(SERIES)), bookings: vec![booking(), booking()] }.packed(),
        CalendarAnswer::Booking(booking()),
        CalendarAnswer::Cancelled { booking: booking(), following: Vec::new() },
        CalendarAnswer::Bookings { bookings: Vec::new(), next },
        CalendarAnswer::Hold(hold()),
        CalendarAnswer::Holds(vec![hold()]),
        CalendarAnswer::Paused(true),
    ]
}
