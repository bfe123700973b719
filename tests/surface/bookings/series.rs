//! Windows that come again: local time is kept over a change of DST, all of them are booked or none, and one or the rest
//! is given up.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

use super::{HOUR, MINUTE, ahead, book, booked, listed, no_overlap, path, reader, shown, window, written};
use crate::http::Door;
use crate::waiting::{agents, events, host, text};

const WARSAW: &str = "Europe/Warsaw";

/// A lab that looks so far ahead that both changes of DST lie before it.
const FAR: &str = "[bookings]\nhorizon = \"500d\"";

fn warsaw() -> TimeZone {
    TimeZone::get(WARSAW).expect("the zone is known")
}

/// The day of the next change of DST in Warsaw whose clocks go forward, or back.
fn change(forward: bool) -> jiff::civil::Date {
    let warsaw = warsaw();
    let mut changes = warsaw.following(ahead(14 * 86_400)).filter(|change| change.dst().is_dst() == forward);
    let at = changes.next().expect("clocks change every year").timestamp();
    warsaw.to_datetime(at).date()
}

/// What a clock on the wall in Warsaw shows when a booking starts.
fn in_warsaw(booking: &Value) -> String {
    let at: Timestamp = text(&booking["startsAt"]).parse().expect("a time");
    warsaw().to_datetime(at).to_string()
}

/// Books the same local time in Warsaw, from `days` before `day` to as long after it.
fn around(door: &Door, every: &str, day: jiff::civil::Date, days: i64, hour: i8, minute: i8) -> Vec<Value> {
    let first = day.checked_sub(days.days()).unwrap().at(hour, minute, 0, 0);
    let mut body = window(warsaw().to_timestamp(first).unwrap(), 30 * MINUTE);
    body["repeat"] = json!({ "every": every, "until": day.checked_add(days.days()).unwrap(), "tz": WARSAW });
    let mut told = book(door, "board", &body).expect(201).body;
    let series = text(&told["seriesId"]);
    let bookings = told["bookings"].as_array_mut().unwrap().drain(..).collect::<Vec<_>>();
    assert!(series.starts_with("series_") && bookings.iter().all(|booking| booking["seriesId"] == json!(series)));
    bookings
}

#[test]
fn a_weekly_booking_keeps_its_local_time_over_both_changes_of_dst() {
    let lab = host(FAR);
    let [ci] = agents(&lab, ["ci"]);
    for forward in [true, false] {
        let day = change(forward);
        let bookings = around(&ci, "week", day, 7, 9, 0);
        let local: Vec<String> = bookings.iter().map(in_warsaw).collect();
        let expected = [-7, 0, 7].map(|days: i64| format!("{}T09:00:00", day.checked_add(days.days()).unwrap()));
        assert_eq!(local, expected);
        let hours = |booking: &Value| text(&booking["startsAt"])[11..13].parse::<i64>().unwrap();
        let step = hours(&bookings[1]) - hours(&bookings[0]);
        assert_eq!(step, if forward { -1 } else { 1 }, "in UTC the hour is another one from that day on");
        assert_eq!(hours(&bookings[2]), hours(&bookings[1]));
    }
    assert_eq!(listed(&ci, "board", "").len(), 6);
    assert_eq!(events(&ci, "booking.created").len(), 6);
}

#[test]
fn a_start_in_the_skipped_hour_moves_to_its_end_and_in_the_doubled_hour_the_first_is_meant() {
    let lab = host(FAR);
    let [ci] = agents(&lab, ["ci"]);
    // The clocks of Warsaw skip 02:00 to 03:00 in spring, and show it twice in autumn.
    let (spring, autumn) = (change(true), change(false));
    let days = around(&ci, "day", spring, 1, 2, 30);
    let at = |booking: &Value| in_warsaw(booking)[11..16].to_owned();
    assert_eq!(days.iter().map(at).collect::<Vec<_>>(), ["02:30", "03:00", "02:30"]);
    assert_eq!(text(&days[1]["startsAt"])[11..16], *"01:00");
    let days = around(&ci, "day", autumn, 1, 2, 30);
    assert_eq!(days.iter().map(at).collect::<Vec<_>>(), ["02:30", "02:30", "02:30"]);
    assert_eq!(text(&days[1]["startsAt"])[11..16], *"00:30", "summer time is still on");
    assert_eq!(text(&days[2]["startsAt"])[11..16], *"01:30");
}

/// A daily series of an hour each, from tomorrow on.
fn daily(days: i64) -> Value {
    let first = ahead(86_400);
    let last = TimeZone::UTC.to_datetime(first).date().checked_add((days - 1).days()).unwrap();
    let mut body = window(first, HOUR);
    body["repeat"] = json!({ "every": "day", "until": last, "tz": "UTC" });
    body
}

#[test]
fn a_series_is_booked_whole_or_not_at_all() {
    let lab = host("[bookings]\nhorizon = \"30d\"");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let third = booked(&other, "board", ahead(86_400 * 3 + 600), HOUR);
    let told = book(&ci, "board", &daily(5)).refused("BOOKING_CONFLICT", 409);
    assert_eq!(*told.details(), json!({ "bookingId": third["id"] }));
    other.delete(&path(&third)).expect(200);
    other.post("/v1/resources/board/holds", &window(ahead(86_400 * 4), 1_000)).expect(201);
    book(&ci, "board", &daily(5)).refused("SLOT_HELD", 409);
    // Every one of them lies within the horizon, and none reaches into the next.
    let told = book(&ci, "bench", &daily(40)).refused("BAD_REQUEST", 400);
    assert!(told.message().contains("bookings.horizon"), "{}", told.body);
    let mut long = daily(3);
    long["durationMs"] = json!(25 * HOUR);
    let told = book(&ci, "bench", &long).refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], "durationMs", "{}", told.body);
    assert_eq!(listed(&ci, "board", "?status=scheduled"), Vec::<Value>::new());
    assert_eq!(listed(&ci, "bench", ""), Vec::<Value>::new());
    assert_eq!(events(&ci, "booking.created"), Vec::<Value>::new());
    let told = book(&ci, "board", &daily(3)).expect(201).body;
    assert_eq!(told["bookings"].as_array().map(Vec::len), Some(3));
    no_overlap(&reader(&lab));
}

#[test]
fn a_series_has_at_most_400_occurrences() {
    let lab = host(FAR);
    let [ci] = agents(&lab, ["ci"]);
    let told = book(&ci, "board", &daily(401)).refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], "repeat.until", "{}", told.body);
    let told = book(&ci, "board", &daily(400)).expect(201).body;
    assert_eq!(told["bookings"].as_array().map(Vec::len), Some(400));
    // A series counts as one booking of its principal.
    book(&ci, "bench", &daily(2)).expect(201);
    assert_eq!(no_overlap(&reader(&lab)).len(), 402);
}

#[test]
fn one_of_a_series_is_cancelled_or_it_and_all_that_follow() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let bookings = book(&ci, "board", &daily(5)).expect(201).body["bookings"].take();
    let alone = booked(&ci, "board", ahead(86_400 * 3 + 2 * 3_600), HOUR);
    let statuses = || {
        let of = |booking: &Value| text(&shown(&ci, booking)["status"]);
        bookings.as_array().unwrap().iter().map(of).collect::<Vec<_>>().join(" ")
    };
    let told = ci.delete(&path(&bookings[1])).expect(200).body;
    assert_eq!((&told["booking"]["status"], told.get("following")), (&json!("cancelled"), None));
    assert_eq!(statuses(), "scheduled cancelled scheduled scheduled scheduled");
    other.delete(&format!("{}?following=true", path(&bookings[2]))).refused("INSUFFICIENT_PERMISSIONS", 403);
    let told = ci.delete(&format!("{}?following=true", path(&bookings[2]))).expect(200).body;
    let ids = |list: &Value| list.as_array().unwrap().iter().map(|it| text(&it["id"])).collect::<Vec<_>>();
    assert_eq!(told["booking"]["id"], bookings[2]["id"]);
    assert_eq!(ids(&told["following"]), [text(&bookings[3]["id"]), text(&bookings[4]["id"])]);
    assert_eq!(statuses(), "scheduled cancelled cancelled cancelled cancelled");
    assert_eq!(shown(&ci, &alone)["status"], "scheduled", "it is none of them");
    assert_eq!(events(&ci, "booking.cancelled").len(), 4);
    // Without a series there is nothing that follows.
    let told = ci.delete(&format!("{}?following=true", path(&alone))).expect(200).body;
    assert_eq!(told["following"], json!([]));
    // What was given up is free.
    let again = ci.patch(&path(&bookings[0]), &json!({ "startsAt": written(ahead(86_400 * 4)) })).expect(200);
    assert_eq!(again.body["booking"]["seriesId"], bookings[0]["seriesId"]);
}
