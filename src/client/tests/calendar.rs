//! Bookings and holds.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use axum::routing::{any, get, post};
use serde_json::{Value, json};

use super::super::{Client, ClientError, fake};
use crate::model::{BookingStatus, Code, HoldStatus};
use crate::service::calendar::ask::{BookBody, BookingQuery, ConfirmBody, HoldBody, RescheduleBody};
use crate::service::calendar::views::Booked;
use crate::trust::HoldToken;

const TOKEN: &str = "bht_7777777777777777777777777777777777777777777777777777777777777777";
const BOOKING: &str = "rack-1.book_00000000-0000-4000-8000-000000000001";
const HOLD: &str = "hold_00000000-0000-4000-8000-000000000002";

fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Code {
    answer.unwrap_err().refusal().unwrap().code
}

fn booked(starts_at: &str) -> BookBody {
    let body = json!({"startsAt": starts_at, "durationMs": 3_600_000});
    serde_json::from_value(body).unwrap()
}

fn held(starts_at: &str) -> HoldBody {
    serde_json::from_value(json!({"startsAt": starts_at, "endsAt": "2026-08-28T09:00:00Z", "ttlMs": 60_000})).unwrap()
}

/// A node that refuses everything, and writes down what it was asked.
async fn deaf() -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = asked.clone();
    let refuse = move |request: Request| {
        let heard = heard.clone();
        async move {
            let token = fake::text(request.headers(), "berth-hold-token");
            let question = format!("{} {}", request.method(), request.uri());
            let body = axum::body::to_bytes(request.into_body(), 4096).await.unwrap();
            let line = format!("{question} {} {token}", String::from_utf8_lossy(&body));
            heard.lock().unwrap().push(line.trim().to_owned());
            fake::json(404, &fake::error("NOT_FOUND", "no", &json!({})))
        }
    };
    (fake::over_tcp(Router::new().fallback(any(refuse))).await, asked)
}

#[tokio::test]
async fn each_call_about_bookings_and_holds_goes_to_its_route() {
    let (client, asked) = deaf().await;
    let (bench, booking, hold) = ("rack-1/bench".parse().unwrap(), BOOKING.parse().unwrap(), HOLD.parse().unwrap());
    let token = HoldToken::parse(TOKEN).unwrap();
    let at = "2026-08-28T08:00:00Z";
    let mut got = vec![refused(client.book(&bench, &booked(at)).await)];
    let all = BookingQuery::default();
    got.push(refused(client.bookings(None, &all).await));
    let some = BookingQuery {
        from: Some(at.parse().unwrap()),
        to: Some("2026-08-29T08:00:00Z".parse().unwrap()),
        status: Some(BookingStatus::Scheduled),
        mine: true,
        after: Some(format!("7-{BOOKING}").parse().unwrap()),
        limit: Some(7),
    };
    got.push(refused(client.bookings(Some(&bench), &some).await));
    got.push(refused(client.booking(&booking).await));
    let body = RescheduleBody { starts_at: Some(at.parse().unwrap()), ..RescheduleBody::default() };
    got.push(refused(client.reschedule(&booking, &body).await));
    got.push(refused(client.cancel_booking(&booking, false).await));
    got.push(refused(client.cancel_booking(&booking, true).await));
    got.push(refused(client.hold_slot(&bench, &held(at)).await));
    got.push(refused(client.holds(&bench).await));
    got.push(refused(client.hold(&hold).await));
    let body = ConfirmBody { token: token.clone(), note: Some("order 7".parse().unwrap()) };
    got.push(refused(client.confirm(&hold, &body).await));
    got.push(refused(client.release_hold(&hold, Some(&token)).await));
    got.push(refused(client.release_hold(&hold, None).await));
    for paused in [true, false] {
        got.push(refused(client.pause_holds(None, paused).await));
        got.push(refused(client.pause_holds(Some(&bench), paused).await));
    }
    got.push(refused(client.doctor().await));
    assert!(got.iter().all(|code| *code == Code::NotFound));
    insta::assert_snapshot!(asked.lock().unwrap().join("\n"), @r#"
    POST /v1/resources/rack-1%2Fbench/bookings {"startsAt":"2026-08-28T08:00:00.000000Z","durationMs":3600000}
    GET /v1/bookings
    GET /v1/resources/rack-1%2Fbench/bookings?from=2026-08-28T08%3A00%3A00.000000Z&to=2026-08-29T08%3A00%3A00.000000Z&status=scheduled&mine=true&after=7-rack-1.book_00000000-0000-4000-8000-000000000001&limit=7
    GET /v1/bookings/rack-1.book_00000000-0000-4000-8000-000000000001
    PATCH /v1/bookings/rack-1.book_00000000-0000-4000-8000-000000000001 {"startsAt":"2026-08-28T08:00:00.000000Z"}
    DELETE /v1/bookings/rack-1.book_00000000-0000-4000-8000-000000000001
    DELETE /v1/bookings/rack-1.book_00000000-0000-4000-8000-000000000001?following=true
    POST /v1/resources/rack-1%2Fbench/holds {"startsAt":"2026-08-28T08:00:00.000000Z","endsAt":"2026-08-28T09:00:00.000000Z","ttlMs":60000}
    GET /v1/resources/rack-1%2Fbench/holds
    GET /v1/holds/hold_00000000-0000-4000-8000-000000000002
    POST /v1/holds/hold_00000000-0000-4000-8000-000000000002/confirm {"token":"bht_7777777777777777777777777777777777777777777777777777777777777777","note":"order 7"}
    DELETE /v1/holds/hold_00000000-0000-4000-8000-000000000002  bht_7777777777777777777777777777777777777777777777777777777777777777
    DELETE /v1/holds/hold_00000000-0000-4000-8000-000000000002
    POST /v1/holds/pause
    POST /v1/resources/rack-1%2Fbench/holds/pause
    POST /v1/holds/resume
    POST /v1/resources/rack-1%2Fbench/holds/resume
    GET /v1/doctor
    "#);
}

#[tokio::test]
async fn a_text_that_no_header_can_carry_is_no_token_and_nothing_is_asked() {
    let (client, asked) = deaf().await;
    for text in ["bht_7\n", "a\r\nBerth-Requester: b", "\0", "\u{7f}"] {
        let refused = client.release_hold(&HOLD.parse().unwrap(), Some(&HoldToken::shown(text.to_owned()))).await;
        let error = refused.unwrap_err();
        assert_eq!(error.refusal().unwrap().code, Code::BadRequest);
        assert!(!error.to_string().contains(text), "{error}");
    }
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());
}

fn booking(extra: &Value) -> Value {
    let mut booking = json!({"id": BOOKING, "resourceId": "bench", "startsAt": "2026-08-28T08:00:00.000000Z",
        "endsAt": "2026-08-28T09:00:00.000000Z", "status": "scheduled", "fieldOfANewerVersion": 1});
    booking.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    booking
}

async fn answering(path: &str, status: u16, body: Value) -> Client {
    let body = Arc::new(body);
    let say = move || {
        let body = body.clone();
        async move { fake::json(status, &body) }
    };
    fake::over_tcp(Router::new().route(path, get(say.clone()).merge(post(say.clone())).delete(say))).await
}

#[tokio::test]
async fn one_booking_and_a_series_are_told_apart() {
    let bench = "bench".parse().unwrap();
    let body = booked("2026-08-28T08:00:00Z");
    let route = "/v1/resources/bench/bookings";
    let one = json!({"booking": booking(&json!({"holderId": "ci/job-17", "note": "nightly"}))});
    let Booked::One { booking: one } = answering(route, 201, one).await.book(&bench, &body).await.unwrap() else {
        panic!("one")
    };
    assert_eq!(one.note.unwrap().as_str(), "nightly");
    let series = "series_00000000-0000-4000-8000-000000000003";
    let made = json!({"seriesId": series, "bookings": [booking(&json!({"seriesId": series}))]});
    let answer = answering(route, 201, made).await.book(&bench, &body).await.unwrap();
    let Booked::Series { series_id, bookings } = answer else { panic!("a series") };
    assert_eq!((series_id.as_str(), bookings.len()), (series, 1));
}

#[tokio::test]
async fn a_booking_of_somebody_else_has_no_holder_and_a_page_says_where_the_next_begins() {
    let page = json!({"bookings": [booking(&json!({}))], "next": format!("7-{BOOKING}")});
    let answer = answering("/v1/bookings", 200, page).await.bookings(None, &BookingQuery::default()).await.unwrap();
    assert_eq!(answer.next.as_ref().map(ToString::to_string), Some(format!("7-{BOOKING}")));
    let seen = &answer.bookings[0];
    assert_eq!(
        (seen.status, &seen.holder_id, &seen.note, &seen.lease_id),
        (BookingStatus::Scheduled, &None, &None, &None)
    );
    let gone = json!({"booking": booking(&json!({"status": "cancelled"}))});
    let client = answering("/v1/bookings/{id}", 200, gone).await;
    let cancelled = client.cancel_booking(&BOOKING.parse().unwrap(), false).await.unwrap();
    assert_eq!((cancelled.booking.status, cancelled.following), (BookingStatus::Cancelled, None));
}

#[tokio::test]
async fn a_hold_comes_with_its_token_which_is_not_printed_by_accident() {
    let hold = json!({"id": HOLD, "resourceId": "bench", "holderId": "ci", "startsAt": "2026-08-28T08:00:00.000000Z",
        "endsAt": "2026-08-28T09:00:00.000000Z", "expiresAt": "2026-08-28T07:10:00.000000Z", "status": "active"});
    let answer = json!({"hold": hold, "token": TOKEN});
    let client = answering("/v1/resources/bench/holds", 201, answer).await;
    let made = client.hold_slot(&"bench".parse().unwrap(), &held("2026-08-28T08:00:00Z")).await.unwrap();
    assert_eq!((made.token.expose(), made.hold.status), (TOKEN, HoldStatus::Active));
    assert!(!format!("{made:?}").contains(TOKEN));
    assert!(serde_json::to_string(&made).unwrap().contains(TOKEN));
}

#[tokio::test]
async fn what_a_doctor_finds_is_an_answer() {
    let found = json!({"ok": false, "holdsPaused": true, "violations": ["two holds overlap"]});
    let found = answering("/v1/doctor", 200, found).await.doctor().await.unwrap();
    assert_eq!((found.ok, found.holds_paused, found.violations), (false, true, vec!["two holds overlap".to_owned()]));
}
