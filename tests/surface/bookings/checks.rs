//! What is asked for and cannot be: each refusal names the field that is wrong, and nothing comes of it.

use serde_json::{Value, json};

use super::{HOUR, after, ahead, book, booked, listed, path, shown, window, written};
use crate::http::{Answer, Call, Door};
use crate::waiting::{agents, events, host};

const NOBODY_S: &str = "/v1/bookings/book_0198f3a0-0000-4000-8000-000000000000";

#[track_caller]
fn names(told: Answer, field: &str) -> Answer {
    let told = told.refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], field, "{}", told.body);
    assert!(told.message().starts_with(&format!("{field}: ")), "{}", told.body);
    told
}

#[test]
fn a_window_that_cannot_be_is_refused_with_the_field_that_is_wrong() {
    let lab = host("[bookings]\nmax_duration = \"2h\"\nhorizon = \"10d\"");
    let [ci] = agents(&lab, ["ci"]);
    let noon = ahead(86_400);
    let until = |ends_at| json!({ "startsAt": written(noon), "endsAt": written(ends_at) });
    let days = |days: i64| ahead(days * 86_400);
    for (body, field, words) in [
        (window(ahead(-2), HOUR), "startsAt", "lies in the past"),
        (window(ahead(-86_400), 1), "startsAt", "lies in the past"),
        (until(noon), "endsAt", "empty"),
        (until(after(noon, -1)), "endsAt", "empty"),
        (window(noon, 2 * HOUR + 1), "durationMs", "at most 2h here (bookings.max_duration)"),
        (until(after(noon, 2 * HOUR + 1)), "endsAt", "at most 2h here (bookings.max_duration)"),
        (window(days(11), 1), "startsAt", "bookings.horizon"),
        (window(after(days(10), -HOUR), 2 * HOUR), "durationMs", "bookings.horizon"),
    ] {
        let told = names(book(&ci, "board", &body), field);
        assert!(told.message().contains(words), "{body}: {}", told.body);
    }
    assert_eq!(listed(&ci, "board", ""), Vec::<Value>::new());
    assert_eq!(events(&lab.door("host"), "booking.created"), Vec::<Value>::new());
    // The widest and the farthest that are allowed.
    booked(&ci, "board", noon, 2 * HOUR);
    booked(&ci, "board", after(days(10), -HOUR), HOUR / 2);
    book(&ci, "board", &json!({ "startsAt": written(after(noon, -1)), "endsAt": written(noon) })).expect(201);
}

#[test]
fn without_limits_of_its_own_a_lab_takes_windows_of_30_days_up_to_a_year_ahead() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    const DAY: i64 = 24 * HOUR;
    names(book(&ci, "board", &window(ahead(60), 30 * DAY + 1)), "durationMs");
    names(book(&ci, "board", &window(ahead(365 * 86_400 + 60), 1)), "startsAt");
    booked(&ci, "board", ahead(60), 30 * DAY);
    booked(&ci, "board", ahead(364 * 86_400), HOUR);
}

#[test]
fn a_body_that_is_none_is_refused_with_the_field_that_is_wrong() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let create = "/v1/resources/board/bookings";
    let booking = booked(&ci, "bench", ahead(7_200), HOUR);
    let at = written(ahead(7_200));
    let with = |rest: &str| format!(r#"{{"startsAt":"{at}",{rest}}}"#);
    let note = format!(r#""durationMs":1,"note":"{}""#, "x".repeat(513));
    let repeat = |repeat: &str| with(&format!(r#""durationMs":1,"repeat":{repeat}"#));
    let table = [
        ("{}".to_owned(), "startsAt"),
        (r#"{"durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":null,"durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":1767225600,"durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":"tomorrow","durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":"2030-01-01","durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":"2030-01-01T00:00:00","durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":"2030-13-01T00:00:00Z","durationMs":1}"#.to_owned(), "startsAt"),
        (r#"{"startsAt":"2030-01-01T00:00:00.0000001Z","durationMs":1}"#.to_owned(), "startsAt"),
        (format!(r#"{{"startsAt":"{at}"}}"#), "durationMs"),
        (with(r#""durationMs":0"#), "durationMs"),
        (with(r#""durationMs":-1"#), "durationMs"),
        (with(r#""durationMs":1.5"#), "durationMs"),
        (with(r#""durationMs":"1h""#), "durationMs"),
        (with(r#""durationMs":null"#), "durationMs"),
        (with(r#""durationMs":NaN"#), "durationMs"),
        (with(r#""durationMs":18446744073709551615"#), "durationMs"),
        (with(r#""durationMs":18446744073709551616"#), "durationMs"),
        (with(r#""endsAt":null"#), "endsAt"),
        (with(r#""endsAt":"later""#), "endsAt"),
        (with(r#""durationMs":1,"endsAt":"2030-01-01T00:00:00Z""#), "endsAt"),
        (with(&note), "note"),
        (with(r#""durationMs":1,"note":"a\u0007b""#), "note"),
        (with(r#""durationMs":1,"note":null"#), "note"),
        (with(r#""durationMs":1,"requester":"a b""#), "requester"),
        (with(r#""durationMs":1,"status":"fulfilled""#), "status"),
        (with(r#""durationMs":1,"holderId":"root""#), "holderId"),
        (with(r#""durationMs":1,"durationMs":1"#), "durationMs"),
        (repeat("null"), "repeat"),
        (repeat(r#"{"every":"month","until":"2030-01-01","tz":"UTC"}"#), "repeat.every"),
        (repeat(r#"{"every":"day","until":"2030-01-01T00:00:00Z","tz":"UTC"}"#), "repeat.until"),
        (repeat(r#"{"every":"day","until":"2030-01-01","tz":"Mars/Olympus"}"#), "repeat.tz"),
        (repeat(r#"{"every":"day","until":"2020-01-01","tz":"UTC"}"#), "repeat.until"),
        (repeat(r#"{"every":"day","until":"2030-01-01","tz":"UTC","count":4}"#), "repeat.count"),
    ];
    for (body, field) in &table {
        let told = ci.post_text(create, body).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], *field, "{body}: {}", told.body);
    }
    let patch = |body: &str| ci.send(&Call { method: "PATCH", ..Call::json(&path(&booking), body) });
    for (body, field) in [
        ("{}", "startsAt"),
        (r#"{"note":"n"}"#, "note"),
        (r#"{"durationMs":0}"#, "durationMs"),
        (r#"{"startsAt":null}"#, "startsAt"),
        (r#"{"durationMs":1,"endsAt":"2030-01-01T00:00:00Z"}"#, "endsAt"),
    ] {
        let told = patch(body).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], field, "{body}: {}", told.body);
    }
    assert_eq!(shown(&ci, &booking), booking);
    assert_eq!(listed(&ci, "board", ""), Vec::<Value>::new());
}

#[test]
fn a_header_names_the_requester_and_the_widest_values_are_taken() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let mut body = window(ahead(7_200), HOUR);
    body["note"] = json!("ż".repeat(512));
    let (create, text) = ("/v1/resources/board/bookings", body.to_string());
    let told = ci.send(&Call::json(create, &text).header("Berth-Requester", &"x".repeat(64))).expect(201).body;
    assert_eq!(told["booking"]["note"], body["note"]);
    assert_eq!(told["booking"]["holderId"], json!(format!("ci/{}", "x".repeat(64))));
    for wrong in ["job 1", "", "ci/job"] {
        let told = ci.send(&Call::json(create, &text).header("Berth-Requester", wrong)).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], "Berth-Requester");
    }
    let both = Call::json(create, r#"{"startsAt":"2030-01-01T00:00:00Z","durationMs":1,"requester":"a"}"#);
    let told = ci.send(&both.header("Berth-Requester", "b")).refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], "requester");
    ci.post_text(create, &" ".repeat(64 * 1024 + 1)).refused("PAYLOAD_TOO_LARGE", 413);
    let plain = Call { headers: vec![("Content-Type", "text/plain")], ..Call::json(create, &text) };
    ci.send(&plain).refused("UNSUPPORTED_MEDIA_TYPE", 415);
}

#[test]
fn a_query_that_is_none_is_refused_with_the_parameter_that_is_wrong() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    for (query, parameter) in [
        ("from=tomorrow", "from"),
        ("to=1767225600", "to"),
        ("status=open", "status"),
        ("mine=yes", "mine"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=-1", "limit"),
        ("after=x", "after"),
        ("holderId=ci", "holderId"),
        ("mine=true&mine=true", "mine"),
    ] {
        for path in ["/v1/bookings", "/v1/resources/board/bookings"] {
            let told = ci.get(&format!("{path}?{query}")).refused("BAD_REQUEST", 400);
            assert_eq!(told.details()["field"], parameter, "{query}: {}", told.body);
        }
    }
    let told = ci.delete(&format!("{NOBODY_S}?following=all")).refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], "following");
}

#[test]
fn what_is_not_there_is_unknown_by_its_own_code() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let admin = lab.door("host");
    let unknown = |told: Answer, code: &str, key: &str, value: &str| {
        assert_eq!(told.refused(code, 404).details()[key], value);
    };
    let at_all_doors = |door: &Door| {
        let id = NOBODY_S.rsplit_once('/').unwrap().1;
        unknown(door.get(NOBODY_S), "UNKNOWN_BOOKING", "bookingId", id);
        unknown(door.delete(NOBODY_S), "UNKNOWN_BOOKING", "bookingId", id);
        unknown(door.patch(NOBODY_S, &json!({ "durationMs": 1 })), "UNKNOWN_BOOKING", "bookingId", id);
        unknown(book(door, "none", &window(ahead(60), 1)), "UNKNOWN_RESOURCE", "resourceId", "none");
        unknown(door.get("/v1/resources/none/bookings"), "UNKNOWN_RESOURCE", "resourceId", "none");
        door.get(&format!("/v1/bookings/elsewhere.{id}")).refused("UNKNOWN_BOOKING", 404);
    };
    at_all_doors(&ci);
    at_all_doors(&admin);
    for id in ["book_1", "mine", "hold_0198f3a0-0000-4000-8000-000000000000"] {
        let told = ci.get(&format!("/v1/bookings/{id}")).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], "bookingId");
    }
}

#[test]
fn one_principal_has_so_many_scheduled_bookings_and_a_resource_so_many_in_all() {
    let lab = host("[limits]\nbookings_per_principal = 2\nbookings = 3");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let limited = |told: Answer, words: &str| {
        let told = told.refused("RATE_LIMITED", 429);
        assert!(told.message().contains(words), "{}", told.body);
        let again: u64 = told.header("retry-after").expect("when to ask again").parse().expect("in seconds");
        assert!((1..=3_600).contains(&again), "{again}");
    };
    let first = booked(&ci, "board", ahead(7_200), 1_000);
    // A sub-requester is the same principal.
    let mut body = window(ahead(7_300), 1_000);
    body["requester"] = json!("job-1");
    book(&ci, "board", &body).expect(201);
    body["startsAt"] = json!(written(ahead(7_400)));
    limited(book(&ci, "board", &body), "as many scheduled bookings as one may have");
    limited(book(&ci, "bench", &window(ahead(7_200), 1_000)), "as many scheduled bookings as one may have");
    booked(&other, "board", ahead(7_500), 1_000);
    limited(book(&other, "board", &window(ahead(7_600), 1_000)), "board has 3 bookings and holds");
    // What is cancelled does not count.
    ci.delete(&path(&first)).expect(200);
    booked(&other, "board", ahead(7_600), 1_000);
    booked(&ci, "bench", ahead(7_200), 1_000);
    limited(book(&ci, "bench", &window(ahead(7_300), 1_000)), "as many scheduled bookings as one may have");
}
