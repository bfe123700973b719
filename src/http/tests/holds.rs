use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use super::calendar::{BOOKING, HOLD, at, booking, hold};
use super::house::{House, Told};
use crate::model::{Code, HoldStatus, Refusal, Slot, SlotLength, TokenHash};
use crate::trust::HoldToken;
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, HoldSeen};

const CREATE: &str = "/v1/resources/pixel/holds";
const MINUTE: &str = r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":60000}"#;

fn view(holder: &str) -> Value {
    json!({
        "id": HOLD, "resourceId": "pixel", "holderId": holder, "startsAt": "1970-01-01T00:00:00.000000Z",
        "endsAt": "1970-01-01T00:01:00.000000Z", "expiresAt": "1970-01-01T00:10:00.000000Z", "status": "active"
    })
}

async fn release(house: &House, secret: &str, token: Option<&str>) -> Told {
    let request = Request::delete(format!("/v1/holds/{HOLD}")).header("authorization", format!("Bearer {secret}"));
    let request = match token {
        Some(token) => request.header("Berth-Hold-Token", token),
        None => request,
    };
    house.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn a_hold_is_made_with_its_location_and_its_token_of_which_only_the_hash_goes_on() {
    let house = House::new();
    house.fake.answers(CalendarAnswer::Hold(hold("ci/job-1")));
    let body =
        r#"{"startsAt":"1970-01-01T00:00:00Z","endsAt":"1970-01-01T00:01:00Z","ttlMs":600000,"requester":"job-1"}"#;
    let request = Request::post(CREATE).header("authorization", format!("Bearer {}", house.agent));
    let request = request.header("content-type", "application/json").header("idempotency-key", "k 1");
    let told = house.send(request.body(Body::from(body)).unwrap()).await;
    assert_eq!((told.status.as_u16(), told.header("location")), (201, format!("/v1/holds/{HOLD}").as_str()));
    assert_eq!(told.header("cache-control"), "no-store");
    let token = told.body["token"].as_str().unwrap();
    assert!(HoldToken::parse(token).is_some(), "the token is in the answer");
    assert_eq!(told.body, json!({"hold": view("ci/job-1"), "token": token}));
    assert_eq!(house.fake.token(), Some(TokenHash::of(token)));
    let (_, asker, CalendarAsk::Hold { resource, slot, ttl_ms, key, .. }) = house.fake.called() else { panic!() };
    assert_eq!((asker.requester.to_string().as_str(), resource.as_str()), ("ci/job-1", "pixel"));
    assert_eq!(slot, Slot { starts_at: at(0), length: SlotLength::Until(at(60)) });
    assert_eq!((ttl_ms, key.unwrap().as_str()), (Some(600_000), "k 1"));
    house.fake.answers(CalendarAnswer::Hold(hold("ci")));
    let again = house.ask("POST", CREATE, &house.agent, MINUTE).await;
    assert_ne!(again.body["token"], told.body["token"], "no token is given out twice");
}

#[tokio::test]
async fn a_hold_that_is_refused_tells_no_token_and_every_loser_the_same() {
    let house = House::new();
    let mut told = Vec::new();
    for (secret, code) in [(&house.agent, Code::HoldConflict), (&house.admin, Code::HoldConflict)] {
        house.fake.refuses(Refusal::new(code, "the slot cannot be held"));
        let lost = house.ask("POST", CREATE, secret, MINUTE).await;
        assert_eq!((lost.code(), lost.header("location")), (code, ""));
        assert!(!lost.body.to_string().contains("bht_"), "{lost:?}");
        told.push((lost.body, lost.headers));
    }
    assert_eq!(told[0], told[1]);
}

#[tokio::test]
async fn a_hold_is_seen_by_its_holder_and_an_admin_and_never_with_its_token() {
    let house = House::new();
    let path = format!("/v1/holds/{HOLD}");
    for (secret, holder, seen) in [
        (&house.agent, "ci/job-1", true),
        (&house.agent, "other", false),
        (&house.agent, "gw:gateway:ci", false),
        (&house.admin, "other", true),
    ] {
        house.fake.answers(CalendarAnswer::Hold(hold(holder)));
        let told = house.ask("GET", &path, secret, "").await;
        match seen {
            true => assert_eq!(told.body, json!({"hold": view(holder)})),
            false => assert_eq!(told.code(), Code::InsufficientPermissions),
        }
        assert!(!told.body.to_string().contains("bht_"));
        house.fake.answers(CalendarAnswer::Holds(vec![hold(holder)]));
        let told = house.ask("GET", CREATE, secret, "").await;
        let shown = if seen { json!([view(holder)]) } else { json!([]) };
        assert_eq!(told.body, json!({"holds": shown}), "an agent lists its own");
    }
    for path in [path.as_str(), CREATE] {
        let told = house.ask("GET", path, &house.viewer, "").await;
        assert_eq!(told.code(), Code::InsufficientPermissions, "{path}");
    }
}

#[tokio::test]
async fn a_hold_is_confirmed_and_given_back_by_whoever_shows_its_token() {
    let house = House::new();
    let token = HoldToken::generate().unwrap();
    house.fake.answers(CalendarAnswer::Booking(booking("ci")));
    let body = json!({"token": token.expose(), "note": "n"}).to_string();
    let told = house.ask("POST", &format!("/v1/holds/{HOLD}/confirm"), &house.agent, &body).await;
    assert_eq!((told.status.as_u16(), &told.body["booking"]["id"]), (200, &json!(BOOKING)));
    assert_eq!(house.fake.token(), Some(token.hash()));
    let CalendarAsk::Confirm { hold: id, note, .. } = house.fake.called().2 else { panic!("no confirmation") };
    assert_eq!((id.as_str(), note.unwrap().as_str()), (HOLD, "n"));

    let released = HoldSeen { status: HoldStatus::Confirmed, booking: Some(BOOKING.parse().unwrap()), ..hold("ci") };
    house.fake.answers(CalendarAnswer::Hold(released));
    let told = release(&house, &house.agent, Some(token.expose())).await;
    let mut expected = view("ci");
    expected["status"] = json!("confirmed");
    expected["bookingId"] = json!(BOOKING);
    assert_eq!((told.status.as_u16(), told.body), (200, json!({"hold": expected})));
    assert_eq!(house.fake.token(), Some(token.hash()));
    house.fake.answers(CalendarAnswer::Hold(hold("ci")));
    assert_eq!(release(&house, &house.admin, None).await.status, 200);
    assert_eq!(house.fake.token(), None);
}

#[tokio::test]
async fn a_token_of_another_shape_is_a_wrong_one_and_no_wrong_request() {
    let house = House::new();
    for text in ["", "x", "bht_", "bth_0000"] {
        let refusal = Refusal::new(Code::InsufficientPermissions, "that is not the token");
        house.fake.refuses(refusal.clone());
        let body = json!({"token": text}).to_string();
        let told = house.ask("POST", &format!("/v1/holds/{HOLD}/confirm"), &house.agent, &body).await;
        assert_eq!(told.code(), Code::InsufficientPermissions);
        assert_eq!(house.fake.token(), Some(TokenHash::of(text)));
        house.fake.refuses(refusal);
        assert_eq!(release(&house, &house.agent, Some(text)).await.code(), Code::InsufficientPermissions);
    }
}

#[tokio::test]
async fn new_holds_are_stopped_and_made_again_by_an_admin_on_one_resource_or_on_all() {
    let house = House::new();
    for (path, resource, paused) in [
        ("/v1/holds/pause", None, true),
        ("/v1/holds/resume", None, false),
        ("/v1/resources/rack-1%2Fpixel/holds/pause", Some("pixel"), true),
        ("/v1/resources/rack-1%2Fpixel/holds/resume", Some("pixel"), false),
    ] {
        house.fake.answers(CalendarAnswer::Paused(paused));
        let told = house.ask("POST", path, &house.admin, "").await;
        assert_eq!((told.status.as_u16(), told.body), (200, json!({"paused": paused})), "{path}");
        let (worker, _, CalendarAsk::PauseHolds { resource: asked, paused: to }) = house.fake.called() else {
            panic!()
        };
        assert_eq!(asked.as_ref().map(|id| id.as_str()), resource);
        assert_eq!((worker.is_some(), to), (resource.is_some(), paused));
        for secret in [&house.agent, &house.viewer] {
            assert_eq!(house.ask("POST", path, secret, "").await.code(), Code::InsufficientPermissions, "{path}");
        }
    }
    assert_eq!(house.fake.calendar.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn an_admin_has_the_database_looked_at() {
    let house = House::new();
    let told = house.get("/v1/doctor").await;
    assert_eq!(told.status, 200);
    assert_eq!(told.body, json!({"ok": false, "holdsPaused": true, "violations": ["two bookings of pixel overlap"]}));
    for secret in [&house.agent, &house.viewer] {
        assert_eq!(house.ask("GET", "/v1/doctor", secret, "").await.code(), Code::InsufficientPermissions);
    }
}

#[tokio::test]
async fn a_wrong_hold_is_refused_with_the_field_by_its_name() {
    let house = House::new();
    let confirm = format!("/v1/holds/{HOLD}/confirm");
    let table = [
        ("POST", CREATE, "{}", "startsAt"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z"}"#, "durationMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"ttlMs":0}"#, "ttlMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"ttlMs":null}"#, "ttlMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"note":"n"}"#, "note"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"idempotencyKey":""}"#, "idempotencyKey"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"token":"bht_1"}"#, "token"),
        ("POST", confirm.as_str(), "{}", "token"),
        ("POST", confirm.as_str(), r#"{"token":null}"#, "token"),
        ("POST", confirm.as_str(), r#"{"token":"x","note":null}"#, "note"),
        ("POST", confirm.as_str(), r#"{"token":"x","key":"y"}"#, "key"),
        ("POST", "/v1/holds/hold_1/confirm", r#"{"token":"x"}"#, "holdId"),
        ("GET", "/v1/holds/mine", "", "holdId"),
        ("DELETE", "/v1/holds/mine", "", "holdId"),
        ("GET", "/v1/resources/pixel/holds?mine=true", "", "mine"),
    ];
    for (method, path, body, field) in table {
        assert_eq!(house.ask(method, path, &house.agent, body).await.field(), field, "{method} {path} {body}");
    }
    let twice = Request::delete(format!("/v1/holds/{HOLD}")).header("Berth-Hold-Token", "a");
    let twice = twice.header("Berth-Hold-Token", "b").body(Body::empty()).unwrap();
    assert_eq!(house.send(twice).await.field(), "Berth-Hold-Token");
    assert!(house.fake.calendar.lock().unwrap().is_empty(), "nothing wrong reached the calendars");
}

#[tokio::test]
async fn a_viewer_holds_nothing_confirms_nothing_and_gives_nothing_back() {
    let house = House::new();
    for (method, path, body) in [
        ("POST", CREATE.to_owned(), MINUTE),
        ("POST", format!("/v1/holds/{HOLD}/confirm"), r#"{"token":"x"}"#),
        ("DELETE", format!("/v1/holds/{HOLD}"), ""),
    ] {
        let told = house.ask(method, &path, &house.viewer, body).await;
        assert_eq!(told.code(), Code::InsufficientPermissions, "{method} {path}");
    }
    assert!(house.fake.calendar.lock().unwrap().is_empty());
}

/// All that is logged, of every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn no_log_and_no_refusal_repeats_a_token() {
    let log = Log::default();
    let all = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone()).finish();
    let _here = tracing::subscriber::set_default(all);
    // With one subscriber alone, whether a line is of interest is asked of the thread that comes by it first, and that may be
    // another test's, which has none.
    let sink = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(io::sink).finish();
    let _second = tracing::Dispatch::new(sink);
    let house = House::new();
    house.get("/v1/status").await;
    tracing::callsite::rebuild_interest_cache();
    let token = "bht_5ec2e70000000000000000000000000000000000000000000000000000005ec2e7";
    let confirm = format!("/v1/holds/{HOLD}/confirm");
    let bodies = [
        json!({"token": token}),
        json!({"token": [token]}),
        json!({"token": {"token": token}}),
        json!({"token": token, "note": 5}),
        json!({"token": token, "more": token}),
        json!({"tokens": token}),
        json!([token]),
    ];
    let broken = [format!(r#"{{"token":"{token}"#), format!(r#"{{"token":"{token}","token":"{token}"}}"#)];
    for body in bodies.iter().map(Value::to_string).chain(broken) {
        house.fake.refuses(Refusal::new(Code::InsufficientPermissions, "that is not the token"));
        let told = house.ask("POST", &confirm, &house.agent, &body).await;
        assert!(!format!("{told:?}").contains("5ec2e7"), "{told:?}");
    }
    let told = house.ask("POST", &confirm, &house.agent, r#"{"token":5327335}"#).await;
    assert!(!format!("{told:?}").contains("5327335"), "{told:?}");
    for shown in [token, "bht_5ec2e7 é"] {
        house.fake.refuses(Refusal::new(Code::InsufficientPermissions, "that is not the token"));
        let request = Request::delete(format!("/v1/holds/{HOLD}")).header("Berth-Hold-Token", shown.as_bytes());
        let told = house.send(request.body(Body::empty()).unwrap()).await;
        assert!(!format!("{told:?}").contains("5ec2e7"), "{told:?}");
    }
    house.fake.booked.lock().unwrap().clear();
    house.fake.answers(CalendarAnswer::Hold(hold("ci")));
    let made = house.ask("POST", CREATE, &house.agent, MINUTE).await;
    let made = made.body["token"].as_str().unwrap();
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains(&confirm), "the log is watched: {log}");
    assert!(!log.contains("5ec2e7") && !log.contains("5327335") && !log.contains(&made[4..]), "{log}");
}

#[tokio::test]
async fn whoever_shows_the_token_of_anothers_hold_does_not_hear_whose_it_is() {
    let house = House::new();
    let token = HoldToken::generate().unwrap();
    for (secret, holder, named) in [
        (&house.agent, "ci", true),
        (&house.agent, "ci/job-9", true),
        (&house.agent, "other", false),
        (&house.agent, "gw:gateway:ci", false),
        (&house.admin, "other", true),
    ] {
        house.fake.answers(CalendarAnswer::Hold(hold(holder)));
        let told = release(&house, secret, Some(token.expose())).await;
        let mut expected = view(holder);
        if !named {
            expected.as_object_mut().unwrap().remove("holderId");
        }
        assert_eq!(told.body, json!({ "hold": expected }), "{holder}");
    }
}
