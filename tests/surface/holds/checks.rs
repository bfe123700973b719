//! What is asked for and cannot be: every refusal about holds names what is wrong, and nothing comes of it.

use serde_json::{Value, json};

use super::{held, hold, listed};
use crate::bookings::{HOUR, after, ahead, claims, path, reader, soon, window, written};
use crate::http::{Answer, Call, Door};
use crate::waiting::{agents, host};

const NOBODY_S: &str = "hold_0198f3a0-0000-4000-8000-000000000000";

#[test]
fn a_slot_has_the_bounds_of_a_booking_s_window() {
    let lab = host("[bookings]\nmax_duration = \"2h\"\nhorizon = \"10d\"");
    let [ci] = agents(&lab, ["ci"]);
    let noon = ahead(86_400);
    let until = |ends_at| json!({ "startsAt": written(noon), "endsAt": written(ends_at) });
    for (body, field) in [
        (window(ahead(-2), HOUR), "startsAt"),
        (until(noon), "endsAt"),
        (until(after(noon, -1)), "endsAt"),
        (until(after(noon, 2 * HOUR + 1)), "endsAt"),
        (window(noon, 2 * HOUR + 1), "durationMs"),
        (window(ahead(11 * 86_400), 1), "startsAt"),
    ] {
        let told = hold(&ci, "board", &body).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], field, "{body}: {}", told.body);
    }
    assert_eq!(listed(&ci, "board"), Vec::<Value>::new());
    held(&ci, "board", noon, 2 * HOUR);
}

#[test]
fn a_body_that_is_none_is_refused_with_the_field_that_is_wrong() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let at = written(ahead(7_200));
    let with = |rest: &str| format!(r#"{{"startsAt":"{at}",{rest}}}"#);
    let create = "/v1/resources/board/holds".to_owned();
    let confirm = format!("/v1/holds/{NOBODY_S}/confirm");
    let long_key = with(&format!(r#""durationMs":1,"idempotencyKey":"{}""#, "x".repeat(201)));
    for (path, body, field) in [
        (&create, "{}".to_owned(), "startsAt"),
        (&create, format!(r#"{{"startsAt":"{at}"}}"#), "durationMs"),
        (&create, with(r#""durationMs":0"#), "durationMs"),
        (&create, with(r#""durationMs":1,"endsAt":"2030-01-01T00:00:00Z""#), "endsAt"),
        (&create, with(r#""durationMs":1,"ttlMs":0"#), "ttlMs"),
        (&create, with(r#""durationMs":1,"ttlMs":-1"#), "ttlMs"),
        (&create, with(r#""durationMs":1,"ttlMs":"10m""#), "ttlMs"),
        (&create, with(r#""durationMs":1,"ttlMs":null"#), "ttlMs"),
        (&create, with(r#""durationMs":1,"ttlMs":1800001"#), "ttlMs"),
        (&create, with(r#""durationMs":1,"note":"n""#), "note"),
        (&create, with(r#""durationMs":1,"token":"bht_1""#), "token"),
        (&create, with(r#""durationMs":1,"requester":"a/b""#), "requester"),
        (&create, with(r#""durationMs":1,"idempotencyKey":"""#), "idempotencyKey"),
        (&create, long_key, "idempotencyKey"),
        (&create, with(r#""durationMs":1,"repeat":{"every":"day"}"#), "repeat"),
        (&confirm, "{}".to_owned(), "token"),
        (&confirm, r#"{"token":null}"#.to_owned(), "token"),
        (&confirm, r#"{"token":7}"#.to_owned(), "token"),
        (&confirm, r#"{"token":"x","note":"a\u0007b"}"#.to_owned(), "note"),
        (&confirm, r#"{"token":"x","holder":"y"}"#.to_owned(), "holder"),
    ] {
        let told = ci.post_text(path, &body).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], field, "{body}: {}", told.body);
    }
    assert_eq!(listed(&ci, "board"), Vec::<Value>::new());
}

#[test]
fn what_is_not_there_is_unknown_by_its_own_code_whatever_token_is_shown() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let path = format!("/v1/holds/{NOBODY_S}");
    let unknown = |told: Answer| assert_eq!(told.refused("UNKNOWN_HOLD", 404).details()["holdId"], NOBODY_S);
    for door in [&ci, &lab.door("host")] {
        unknown(door.get(&path));
        unknown(door.delete(&path));
        let delete = Call { method: "DELETE", path: &path, ..Call::default() };
        unknown(door.send(&delete.header("Berth-Hold-Token", "bht_1")));
        unknown(door.post(&format!("{path}/confirm"), &json!({ "token": "bht_1" })));
        hold(door, "none", &window(ahead(60), 1)).refused("UNKNOWN_RESOURCE", 404);
        door.get("/v1/resources/none/holds").refused("UNKNOWN_RESOURCE", 404);
    }
    for id in ["hold_1", "mine", "book_0198f3a0-0000-4000-8000-000000000000"] {
        let told = ci.get(&format!("/v1/holds/{id}")).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], "holdId");
    }
}

#[test]
fn without_a_token_of_the_node_nobody_holds_or_looks_whatever_token_of_a_hold_it_has() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let made = held(&ci, "board", ahead(7_200), HOUR);
    let stranger = Door::tcp(lab.port("host"));
    for told in [
        hold(&stranger, "bench", &window(ahead(60), 1)),
        stranger.get("/v1/resources/board/holds"),
        stranger.get(&made.path()),
        made.confirm(&stranger),
        made.release(&stranger),
        stranger.post("/v1/holds/pause", &json!({})),
        stranger.get("/v1/doctor"),
    ] {
        told.refused("UNAUTHENTICATED", 401);
    }
    assert_eq!(made.shown(&ci)["status"], "active");
}

#[test]
fn one_principal_has_so_many_active_holds_and_is_told_when_to_ask_again() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let noon = ahead(86_400);
    let mut body = window(noon, 1_000);
    let mut made = Vec::new();
    for slot in 0..8 {
        body["startsAt"] = json!(written(after(noon, slot * 1_000)));
        body["requester"] = json!(format!("job-{slot}"));
        made.push(super::Held::told(&hold(&ci, "board", &body).expect(201)));
    }
    let limited = |told: Answer| {
        let told = told.refused("RATE_LIMITED", 429);
        assert!(told.message().contains("you hold 8 slots"), "{}", told.body);
        let again: u64 = told.header("retry-after").expect("when to ask again").parse().expect("in seconds");
        assert!((1..=3_600).contains(&again), "{again}");
    };
    limited(hold(&ci, "bench", &window(noon, 1_000)));
    held(&other, "bench", noon, 1_000);
    // One that is confirmed, given back or over counts no more.
    let booking = made[0].confirm(&ci).expect(200).body["booking"].take();
    body["startsAt"] = json!(written(soon(60_000)));
    body["ttlMs"] = json!(1);
    hold(&ci, "board", &body).expect(201);
    made[1].release(&ci).expect(200);
    held(&ci, "pixel-a", noon, 1_000);
    crate::patience::eventually("the short one is over", crate::patience::BOUND, || {
        (hold(&ci, "pixel-b", &window(noon, 1_000)).status == 201).then_some(())
    });
    limited(hold(&ci, "pixel-b", &window(after(noon, 1_000), 1_000)));
    ci.delete(&path(&booking)).expect(200);
    assert_eq!(claims(&reader(&lab)).len(), 9);
}

#[test]
fn where_holds_are_off_in_the_lab_file_none_is_made() {
    let lab = host("[holds]\nenabled = false");
    let [ci] = agents(&lab, ["ci"]);
    let told = hold(&ci, "board", &window(ahead(7_200), HOUR)).refused("HOLDS_PAUSED", 503);
    assert!(told.header("retry-after").is_some());
    crate::bookings::booked(&ci, "board", ahead(7_200), HOUR);
    lab.door("host").get("/v1/readyz").expect(200);
}
