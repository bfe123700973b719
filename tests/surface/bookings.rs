//! Bookings on a single host, as its users meet them (SPEC §5): made, listed, moved and given up, and what they mean for
//! leases where the operator wants that.

mod access;
mod checks;
mod enforced;
mod pages;
mod reschedule;
mod restart;
mod seed;
mod series;
mod start;

use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use crate::http::{Answer, Door};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::text;

/// A minute and an hour, as bodies name them.
pub const MINUTE: i64 = 60_000;
pub const HOUR: i64 = 60 * MINUTE;

/// A full second, so many seconds ahead of this one.
pub fn ahead(seconds: i64) -> Timestamp {
    let second = Timestamp::now().as_second();
    Timestamp::from_second(second + seconds).expect("it is no distant time")
}

/// An instant that is so many milliseconds ahead.
pub fn soon(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(Timestamp::now().as_millisecond() + ms).expect("it is no distant time")
}

/// So many milliseconds after `at`.
pub fn after(at: Timestamp, ms: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_millis(ms)).expect("it is no distant time")
}

/// A time as answers write it.
pub fn written(at: Timestamp) -> String {
    format!("{at:.6}")
}

/// A window in a body.
pub fn window(starts_at: Timestamp, ms: i64) -> Value {
    json!({ "startsAt": written(starts_at), "durationMs": ms })
}

/// Asks for a booking.
pub fn book(door: &Door, resource: &str, body: &Value) -> Answer {
    door.post(&format!("/v1/resources/{resource}/bookings"), body)
}

/// Makes a booking; it as it was answered.
#[track_caller]
pub fn booked(door: &Door, resource: &str, starts_at: Timestamp, ms: i64) -> Value {
    book(door, resource, &window(starts_at, ms)).expect(201).body["booking"].take()
}

/// Where a booking is.
pub fn path(booking: &Value) -> String {
    format!("/v1/bookings/{}", text(&booking["id"]))
}

/// A booking as it is now.
#[track_caller]
pub fn shown(door: &Door, booking: &Value) -> Value {
    door.get(&path(booking)).expect(200).body["booking"].take()
}

/// The bookings of a resource.
#[track_caller]
pub fn listed(door: &Door, resource: &str, query: &str) -> Vec<Value> {
    let page = door.get(&format!("/v1/resources/{resource}/bookings{query}")).expect(200).body["bookings"].take();
    page.as_array().expect("a list").clone()
}

/// Waits until a booking has a status; it then.
#[track_caller]
pub fn comes_to(door: &Door, booking: &Value, status: &str) -> Value {
    eventually(&format!("the booking is {status}"), BOUND, || {
        let now = shown(door, booking);
        (now["status"] == status).then_some(now)
    })
}

/// Waits until the clock on the wall shows `at`.
#[track_caller]
pub fn until(at: Timestamp) {
    eventually("time passes", 2 * BOUND, || (Timestamp::now() >= at).then_some(()));
}

/// The database of a lab's host.
pub fn database(lab: &Lab) -> PathBuf {
    lab.state("host").join("berth.db")
}

/// The host's database, to be read beside the host.
pub fn reader(lab: &Lab) -> Connection {
    Connection::open_with_flags(database(lab), OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the database can be read")
}

/// What claims a window: the resource, its start and its end, and the id of what claims it.
pub type Claim = (String, i64, i64, String);

/// The active holds and the bookings that keep a window, as the database has them, in order.
#[track_caller]
pub fn claims(database: &Connection) -> Vec<Claim> {
    let select = "\
        SELECT resource_id, starts_at, ends_at, id FROM booking WHERE claims = 1
        UNION ALL
        SELECT resource_id, starts_at, ends_at, id FROM hold WHERE status = 'active'
        ORDER BY 1, 2";
    let mut statement = database.prepare_cached(select).expect("the tables are there");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
    rows.expect("they can be read").map(|row| row.expect("a row")).collect()
}

/// Panics when two claims of a resource overlap: invariant I9.
#[track_caller]
pub fn no_overlap(database: &Connection) -> Vec<Claim> {
    let claims = claims(database);
    for pair in claims.windows(2) {
        let overlap = pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2;
        assert!(!overlap, "{:?} overlaps {:?}", pair[0], pair[1]);
    }
    claims
}
