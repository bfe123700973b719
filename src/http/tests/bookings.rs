use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::calendar::{BOOKING, SERIES, at, booking};
use super::house::House;
use crate::model::{BookingStatus, Code, Cursor, Every, Rebooking, Refusal, Role, Slot, SlotLength};
use crate::wire::calendar::{CalendarAnswer, CalendarAsk};

const CREATE: &str = "/v1/resources/rack-1%2Fpixel/bookings";
const MINUTE: &str = r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":60000}"#;

/// What everyone sees of the sample.
fn bare() -> Value {
    json!({
        "id": BOOKING, "resourceId": "pixel", "startsAt": "1970-01-01T00:00:00.000000Z",
        "endsAt": "1970-01-01T00:01:00.000000Z", "status": "fulfilled"
    })
}

/// What its owner sees of it, and an admin and a viewer.
fn whole(holder: &str) -> Value {
    let mut view = bare();
    view["holderId"] = json!(holder);
    view["note"] = json!("mine");
    view["leaseId"] = json!("lse_1");
    view["seriesId"] = json!(SERIES);
    view
}

#[tokio::test]
async fn a_booking_is_made_with_its_location_for_whom_the_header_or_the_body_names() {
    let house = House::new();
    house.fake.answers(CalendarAnswer::Booked { series: None, bookings: vec![booking("admin/job-1")] });
    let body = r#"{"startsAt":"1970-01-01T02:00:00+02:00","endsAt":"1970-01-01T00:01:00.000001Z","note":"n"}"#;
    let request = Request::post(CREATE).header("content-type", "application/json").header("berth-requester", "job-1");
    let told = house.send(request.body(Body::from(body)).unwrap()).await;
    assert_eq!((told.status.as_u16(), &told.body), (201, &json!({"booking": whole("admin/job-1")})));
    assert_eq!(told.header("location"), format!("/v1/bookings/{BOOKING}"));
    let (worker, asker, ask) = house.fake.called();
    assert_eq!(worker.unwrap().as_str(), "rack-1");
    assert_eq!((asker.requester.to_string().as_str(), asker.role), ("admin/job-1", Role::Admin));
    let CalendarAsk::Book { resource, slot, repeat: None, note } = ask else { panic!("{ask:?}") };
    assert_eq!((resource.as_str(), note.unwrap().as_str()), ("pixel", "n"));
    let ends_at = "1970-01-01T00:01:00.000001Z".parse().unwrap();
    assert_eq!(slot, Slot { starts_at: at(0), length: SlotLength::Until(ends_at) });

    let both = r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"requester":"job-2"}"#;
    let differing = Request::post(CREATE).header("content-type", "application/json").header("berth-requester", "job-1");
    assert_eq!(house.send(differing.body(Body::from(both)).unwrap()).await.field(), "requester");
}

#[tokio::test]
async fn a_series_is_made_with_its_rule_and_shown_in_its_order() {
    let house = House::new();
    let series = Some(SERIES.parse().unwrap());
    house.fake.answers(CalendarAnswer::Booked { series, bookings: vec![booking("ci"), booking("ci")] });
    let body = r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":60000,
        "repeat":{"every":"week","until":"1970-02-01","tz":"Europe/Warsaw"}}"#;
    let told = house.ask("POST", CREATE, &house.agent, body).await;
    assert_eq!(told.status, 201);
    assert_eq!(told.body, json!({"seriesId": SERIES, "bookings": [whole("ci"), whole("ci")]}));
    let CalendarAsk::Book { repeat: Some(repeat), .. } = house.fake.called().2 else { panic!("no rule") };
    assert_eq!(
        (repeat.every, repeat.until.to_string().as_str(), repeat.tz.name()),
        (Every::Week, "1970-02-01", "Europe/Warsaw")
    );
}

#[tokio::test]
async fn only_its_owner_an_admin_and_a_viewer_see_whose_a_booking_is() {
    let house = House::new();
    let page = || CalendarAnswer::Bookings { bookings: vec![booking("ci/job-9"), booking("other")], next: None };
    for (secret, own, foreign) in [
        (&house.agent, whole("ci/job-9"), bare()),
        (&house.viewer, whole("ci/job-9"), whole("other")),
        (&house.admin, whole("ci/job-9"), whole("other")),
    ] {
        house.fake.answers(page());
        let told = house.ask("GET", "/v1/resources/pixel/bookings", secret, "").await;
        assert_eq!(told.body, json!({"bookings": [own, foreign]}));
        for (holder, view) in [("ci/job-9", &own), ("other", &foreign)] {
            house.fake.answers(CalendarAnswer::Booking(booking(holder)));
            let told = house.ask("GET", &format!("/v1/bookings/{BOOKING}"), secret, "").await;
            assert_eq!(told.body, json!({"booking": view}), "{holder}");
        }
    }
    // One of the same name that came through a gateway is another.
    house.fake.answers(CalendarAnswer::Booking(booking("gw:gateway:ci")));
    let told = house.ask("GET", &format!("/v1/bookings/{BOOKING}"), &house.agent, "").await;
    assert_eq!(told.body, json!({"booking": bare()}));
}

#[tokio::test]
async fn a_list_is_asked_for_by_its_filters_and_page_by_page() {
    let house = House::new();
    let next: Cursor = format!("60000000-{BOOKING}").parse().unwrap();
    house.fake.answers(CalendarAnswer::Bookings { bookings: vec![booking("ci")], next: Some(next.clone()) });
    let query = format!(
        "from=1970-01-01T00:00:00Z&to=1970-01-02T00:00:00%2B02:00&status=missed&mine=true&limit=1&after=0-{BOOKING}"
    );
    let told = house.ask("GET", &format!("/v1/resources/pixel/bookings?{query}"), &house.agent, "").await;
    assert_eq!(told.body, json!({"bookings": [whole("ci")], "next": next.to_string()}));
    let (_, _, CalendarAsk::Bookings { resource, filter, limit }) = house.fake.called() else { panic!("no list") };
    assert_eq!((resource.unwrap().as_str(), limit), ("pixel", 1));
    assert_eq!((filter.from, filter.to), (Some(at(0)), Some(at(79_200))));
    assert_eq!((filter.status, filter.owner), (Some(BookingStatus::Missed), Some("ci".parse().unwrap())));
    assert_eq!(filter.after.unwrap().to_string(), format!("0-{BOOKING}"));

    for (secret, query, owner) in [
        (&house.agent, "", Some("ci")),
        (&house.viewer, "", None),
        (&house.admin, "", None),
        (&house.admin, "?mine=true", Some("admin")),
        (&house.admin, "?mine=false", None),
    ] {
        house.fake.answers(CalendarAnswer::Bookings { bookings: Vec::new(), next: None });
        assert_eq!(house.ask("GET", &format!("/v1/bookings{query}"), secret, "").await.body, json!({"bookings": []}));
        let (worker, _, CalendarAsk::Bookings { resource, filter, limit }) = house.fake.called() else { panic!() };
        assert_eq!((worker, resource, limit), (None, None, 100));
        assert_eq!(filter.owner.map(|owner| owner.to_string()).as_deref(), owner);
    }
}

#[tokio::test]
async fn a_booking_gets_another_window_and_is_given_up_alone_or_with_those_behind_it() {
    let house = House::new();
    let path = format!("/v1/bookings/{BOOKING}");
    house.fake.answers(CalendarAnswer::Booking(booking("ci")));
    let told = house.ask("PATCH", &path, &house.agent, r#"{"durationMs":1}"#).await;
    assert_eq!((told.status.as_u16(), told.body), (200, json!({"booking": whole("ci")})));
    let CalendarAsk::Reschedule { booking: id, to } = house.fake.called().2 else { panic!("no other window") };
    let length = Some(SlotLength::Lasting(std::time::Duration::from_millis(1)));
    assert_eq!((id.as_str(), to), (BOOKING, Rebooking { starts_at: None, length }));

    for (query, following) in [("", false), ("?following=false", false), ("?following=true", true)] {
        house.fake.answers(CalendarAnswer::Cancelled { booking: booking("ci"), following: Vec::new() });
        let told = house.ask("DELETE", &format!("{path}{query}"), &house.agent, "").await;
        let mut expected = json!({"booking": whole("ci")});
        if following {
            expected["following"] = json!([]);
        }
        assert_eq!(told.body, expected);
        assert!(matches!(house.fake.called().2, CalendarAsk::Cancel { following: asked, .. } if asked == following));
    }
}

#[tokio::test]
async fn a_wrong_booking_is_refused_with_the_field_by_its_name() {
    let house = House::new();
    let own = format!("/v1/bookings/{BOOKING}");
    let table = [
        ("POST", CREATE, "", "body"),
        ("POST", CREATE, "{}", "startsAt"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z"}"#, "durationMs"),
        (
            "POST",
            CREATE,
            r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"endsAt":"1970-01-02T00:00:00Z"}"#,
            "endsAt",
        ),
        ("POST", CREATE, r#"{"startsAt":null,"durationMs":1}"#, "startsAt"),
        ("POST", CREATE, r#"{"startsAt":0,"durationMs":1}"#, "startsAt"),
        ("POST", CREATE, r#"{"startsAt":"tomorrow","durationMs":1}"#, "startsAt"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00","durationMs":1}"#, "startsAt"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00.0000001Z","durationMs":1}"#, "startsAt"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":0}"#, "durationMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1.5}"#, "durationMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":-1}"#, "durationMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":"1h"}"#, "durationMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":null}"#, "durationMs"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","endsAt":null}"#, "endsAt"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"note":"a\nb"}"#, "note"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"note":null}"#, "note"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"requester":"a/b"}"#, "requester"),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"repeat":null}"#, "repeat"),
        (
            "POST",
            CREATE,
            r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"repeat":{"every":"day","until":"1970-01-02"}}"#,
            "repeat.tz",
        ),
        (
            "POST",
            CREATE,
            r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"repeat":{"every":"year","until":"1970-01-02","tz":"UTC"}}"#,
            "repeat.every",
        ),
        (
            "POST",
            CREATE,
            r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"repeat":{"every":"day","until":"1970-01-02","tz":"Mars"}}"#,
            "repeat.tz",
        ),
        (
            "POST",
            CREATE,
            r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"repeat":{"every":"day","until":"soon","tz":"UTC"}}"#,
            "repeat.until",
        ),
        (
            "POST",
            CREATE,
            r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"repeat":{"every":"day","until":"1970-01-02","tz":"UTC","x":1}}"#,
            "repeat.x",
        ),
        ("POST", CREATE, r#"{"startsAt":"1970-01-01T00:00:00Z","durationMs":1,"ttlMs":1}"#, "ttlMs"),
        ("PATCH", own.as_str(), "{}", "startsAt"),
        ("PATCH", own.as_str(), r#"{"durationMs":1,"endsAt":"1970-01-02T00:00:00Z"}"#, "endsAt"),
        ("PATCH", own.as_str(), r#"{"startsAt":null}"#, "startsAt"),
        ("PATCH", own.as_str(), r#"{"note":"n"}"#, "note"),
        ("PATCH", "/v1/bookings/mine", MINUTE, "bookingId"),
        ("GET", "/v1/bookings/book_1", "", "bookingId"),
        ("DELETE", "/v1/bookings/A.book_1", "", "bookingId"),
        ("POST", "/v1/resources/-x/bookings", MINUTE, "resourceId"),
        ("GET", "/v1/bookings?from=yesterday", "", "from"),
        ("GET", "/v1/bookings?from=1970-01-01T00:00:00.0000001Z", "", "from"),
        ("GET", "/v1/bookings?to=1970-01-01T00:00:00Z%5BUTC%5D", "", "to"),
        ("GET", "/v1/bookings?to=1", "", "to"),
        ("GET", "/v1/bookings?status=open", "", "status"),
        ("GET", "/v1/bookings?mine=1", "", "mine"),
        ("GET", "/v1/bookings?limit=0", "", "limit"),
        ("GET", "/v1/bookings?limit=501", "", "limit"),
        ("GET", "/v1/bookings?after=x", "", "after"),
        ("GET", "/v1/bookings?following=true", "", "following"),
        ("GET", "/v1/resources/pixel/bookings?limit=0", "", "limit"),
        ("GET", "/v1/resources/pixel/bookings?holder=ci", "", "holder"),
        ("GET", "/v1/bookings/book_1?mine=true", "", "mine"),
    ];
    for (method, path, body, field) in table {
        assert_eq!(house.ask(method, path, &house.agent, body).await.field(), field, "{method} {path} {body}");
    }
    assert_eq!(house.ask("DELETE", &format!("{own}?following=yes"), &house.agent, "").await.field(), "following");
    assert!(house.fake.calendar.lock().unwrap().is_empty(), "nothing wrong reached the calendars");
}

#[tokio::test]
async fn a_time_is_an_instant_in_microseconds_and_a_day_is_a_day_and_neither_is_more() {
    let house = House::new();
    let own = format!("/v1/bookings/{BOOKING}");
    for time in [
        "1970-01-01T01:00:00+01:00[Europe/Warsaw]",
        "1970-01-01T00:00:00Z[UTC]",
        "1970-01-01T00:00:00[UTC]",
        "1970-01-01T00:00:00Z[u-ca=gregory]",
        "1970-01-01T00:00:00.0000001Z",
        "1970-01-01T00:00:00.0000000Z",
        "1970-01-01T00:00:00,1234567Z",
    ] {
        for (method, path, field, body) in [
            ("POST", CREATE, "startsAt", json!({"startsAt": time, "durationMs": 1})),
            ("POST", CREATE, "endsAt", json!({"startsAt": "1970-01-01T00:00:00Z", "endsAt": time})),
            ("POST", "/v1/resources/pixel/holds", "startsAt", json!({"startsAt": time, "durationMs": 1})),
            (
                "POST",
                "/v1/resources/pixel/holds",
                "endsAt",
                json!({"startsAt": "1970-01-01T00:00:00Z", "endsAt": time}),
            ),
            ("PATCH", own.as_str(), "startsAt", json!({"startsAt": time})),
            ("PATCH", own.as_str(), "endsAt", json!({"endsAt": time})),
        ] {
            let told = house.ask(method, path, &house.agent, &body.to_string()).await;
            assert_eq!(told.field(), field, "{method} {path} {body}");
        }
    }
    let until = |day: &str| {
        let repeat = json!({"every": "day", "until": day, "tz": "UTC"});
        json!({"startsAt": "1970-01-01T00:00:00.123456Z", "durationMs": 1, "repeat": repeat}).to_string()
    };
    for day in [
        "1970-01-02T10:00",
        "1970-01-02T10:00:00Z",
        "19700102",
        "+001970-01-02",
        "1970-1-02",
        "1970-02-30",
        " 1970-01-02",
    ] {
        assert_eq!(house.ask("POST", CREATE, &house.agent, &until(day)).await.field(), "repeat.until", "{day}");
    }
    assert!(house.fake.calendar.lock().unwrap().is_empty());
    house.fake.answers(CalendarAnswer::Booked { series: None, bookings: vec![booking("ci")] });
    assert_eq!(house.ask("POST", CREATE, &house.agent, &until("1970-01-02")).await.status, 201);
}

#[tokio::test]
async fn a_conflict_names_the_booking_and_nothing_else_of_it() {
    let house = House::new();
    house.fake.refuses(Refusal::new(Code::BookingConflict, "it is taken").with("bookingId", BOOKING));
    let told = house.ask("POST", CREATE, &house.agent, MINUTE).await;
    assert_eq!((told.code(), told.status.as_u16()), (Code::BookingConflict, 409));
    assert_eq!(told.body["error"]["details"], json!({"bookingId": BOOKING}));
    assert_eq!(told.header("location"), "");
}

#[tokio::test]
async fn a_viewer_books_nothing_and_changes_no_booking() {
    let house = House::new();
    let own = format!("/v1/bookings/{BOOKING}");
    for (method, path, body) in
        [("POST", CREATE, MINUTE), ("PATCH", own.as_str(), r#"{"durationMs":1}"#), ("DELETE", own.as_str(), "")]
    {
        let told = house.ask(method, path, &house.viewer, body).await;
        assert_eq!(told.code(), Code::InsufficientPermissions, "{method} {path}");
    }
    assert!(house.fake.calendar.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_a_fault_and_says_nothing_more() {
    let house = House::new();
    house.fake.answers(CalendarAnswer::Paused(true));
    assert_eq!(house.get(&format!("/v1/bookings/{BOOKING}")).await.code(), Code::Internal);
}
