//! Streams of events, as a client reads them.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse;
use axum::routing::{any, delete, get};
use serde_json::json;

use super::super::{Client, ClientError, LeaseNews, RequestNews, fake};
use crate::model::{EventKind, WaitingFor};
use crate::service::views::RequestState;

const REQUEST: &str = "req_01900000-0000-7000-8000-000000000000";

/// A node whose every answer is a stream of these pieces.
async fn streaming(pieces: &[&str]) -> Client {
    let pieces: Vec<String> = pieces.iter().map(|&piece| piece.to_owned()).collect();
    let answer = move || {
        let pieces = pieces.clone().into_iter().map(Ok::<_, std::io::Error>);
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        std::future::ready(([("content-type", "text/event-stream")], body))
    };
    fake::over_tcp(Router::new().fallback(any(answer))).await
}

#[tokio::test]
async fn events_are_read_however_they_are_cut_and_say_where_to_resume() {
    let told = format!("id: 4\n\n:\n\n{}event: lease.from-2030\nid: 8\ndata: {{}}\n\n{}", fake::told(7), fake::told(9));
    let crlf = told.replace('\n', "\r\n");
    let bytes: Vec<&str> = told.split_inclusive(|_: char| true).collect();
    for pieces in [&[told.as_str()][..], &[crlf.as_str()], &bytes] {
        let mut stream = streaming(pieces).await.event_stream(None, None).await.unwrap();
        assert_eq!(stream.last_seq(), None);
        let first = stream.next().await.unwrap().unwrap();
        assert_eq!((first.seq, first.event, stream.last_seq()), (7, EventKind::LeaseExpired, Some(7)));
        let second = stream.next().await.unwrap().unwrap();
        assert_eq!(second.seq, 9, "an event that only a newer version knows is passed over");
        assert_eq!(stream.next().await.unwrap(), None);
        assert_eq!(stream.last_seq(), Some(9));
    }
    let mut begun =
        streaming(&["id: 4\n\n", "id: 5\nevent: lease.exp"]).await.event_stream(Some(3), None).await.unwrap();
    assert_eq!(begun.last_seq(), Some(3));
    assert_eq!(begun.next().await.unwrap(), None, "half an event is none");
}

#[tokio::test]
async fn a_request_tells_its_places_and_its_end() {
    let place = json!({"position": 2, "waitingFor": "leased", "ticket": "t1"});
    let granted = fake::request("granted", &json!({"lease": fake::lease("mine", "pixel")}))["request"].clone();
    let told = format!("event: waiting\ndata: {place}\n\nevent: granted\ndata: {granted}\n\n");
    let mut stream = streaming(&[&told]).await.request_events(&REQUEST.parse().unwrap()).await.unwrap();
    let Some(RequestNews::Waiting(place)) = stream.next().await.unwrap() else { panic!("it waits first") };
    assert_eq!((place.position, place.waiting_for, place.until), (Some(2), Some(WaitingFor::Leased), None));
    assert_eq!(place.ticket.unwrap().as_str(), "t1");
    let Some(RequestNews::Settled(request)) = stream.next().await.unwrap() else { panic!("it is settled") };
    assert_eq!((request.state, request.lease.unwrap().id.as_str()), (RequestState::Granted, "mine"));
    assert_eq!(stream.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_lease_tells_that_it_is_lost() {
    let told = "id: 1\nevent: renewed\ndata: {}\n\nid: 2\nevent: lost\ndata: {\"reason\":\"expired\"}\n\n";
    let mut stream = streaming(&[told]).await.lease_events(&"mine".parse().unwrap(), None).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), Some(LeaseNews::Renewed));
    assert_eq!(stream.next().await.unwrap(), Some(LeaseNews::Lost { reason: "expired".to_owned() }));
}

#[tokio::test]
async fn each_stream_is_asked_for_at_its_route_and_a_refusal_is_one() {
    let echo = |request: Request| async move {
        let after = fake::text(request.headers(), "last-event-id");
        let said = format!("{} {} {after}", request.method(), request.uri());
        fake::json(404, &fake::error("NOT_FOUND", said.trim_end(), &json!({})))
    };
    let client = fake::over_tcp(Router::new().fallback(any(echo))).await;
    let heard = |error: Option<ClientError>| error.unwrap().refusal().unwrap().message.clone();
    let told = client.event_stream(Some(7), Some(EventKind::LeaseGranted)).await;
    assert_eq!(heard(told.err()), "GET /v1/events/stream?event=lease.granted 7");
    assert_eq!(heard(client.event_stream(None, None).await.err()), "GET /v1/events/stream");
    let told = client.request_events(&REQUEST.parse().unwrap()).await;
    assert_eq!(heard(told.err()), format!("GET /v1/lease-requests/{REQUEST}/events"));
    let told = client.lease_events(&"rack-1.lse_1".parse().unwrap(), Some(9)).await;
    assert_eq!(heard(told.err()), "GET /v1/leases/rack-1.lse_1/events 9");

    let pixel = "rack-1/pixel".parse().unwrap();
    assert_eq!(heard(client.waiting_room(&pixel).await.err()), "GET /v1/resources/rack-1%2Fpixel/waiting-room");
    assert_eq!(heard(client.leave(&pixel).await.err()), "DELETE /v1/resources/rack-1%2Fpixel/waiting-room/me");
    assert_eq!(heard(client.drain(&pixel).await.err()), "POST /v1/resources/rack-1%2Fpixel/drain");
    assert_eq!(heard(client.undrain(&pixel).await.err()), "DELETE /v1/resources/rack-1%2Fpixel/drain");
    assert_eq!(heard(client.events(7, 10, None).await.err()), "GET /v1/events?after=7&limit=10");
    let told = client.cancel(&REQUEST.parse().unwrap()).await;
    assert_eq!(heard(told.err()), format!("DELETE /v1/lease-requests/{REQUEST}"));
}

#[tokio::test]
async fn a_cancelled_request_has_an_answer_without_a_body() {
    let cancelled = delete(|| async { axum::http::StatusCode::NO_CONTENT });
    let client = fake::over_tcp(Router::new().route("/v1/lease-requests/{id}", cancelled)).await;
    client.cancel(&REQUEST.parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn what_is_no_stream_and_what_has_no_end_are_bad_answers() {
    let page = get(|| async { ([("content-type", "text/html")], "<html>").into_response() });
    let client = fake::over_tcp(Router::new().route("/v1/events/stream", page)).await;
    let error = client.event_stream(None, None).await.err().unwrap();
    assert!(matches!(&error, ClientError::BadAnswer { why, .. } if why.contains("no stream")), "{error:?}");

    let long = "x".repeat(300_000);
    let line = [&long[..]; 5];
    let data = format!("data: {long}\n");
    let event = [&data[..]; 5];
    for pieces in [&line, &event] {
        let mut stream = streaming(&pieces[..]).await.event_stream(None, None).await.unwrap();
        let error = stream.next().await.unwrap_err();
        assert!(matches!(&error, ClientError::BadAnswer { why, .. } if why.contains("larger")), "{error:?}");
    }
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_unanswered() {
    let quiet = get(|| async {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>());
        ([("content-type", "text/event-stream")], body)
    });
    let client = fake::over_tcp(Router::new().route("/v1/events/stream", quiet)).await;
    let mut stream = client.event_stream(None, None).await.unwrap();
    tokio::time::pause();
    let error = stream.next().await.unwrap_err();
    assert!(matches!(&error, ClientError::Unanswered { reached: true, .. }), "{error:?}");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "nothing was heard for 45 s");

    let never = get(std::future::pending::<()>);
    let client = fake::over_tcp(Router::new().route("/v1/events/stream", never)).await;
    let error = client.event_stream(None, None).await.err().unwrap();
    assert!(matches!(&error, ClientError::Unanswered { reached: true, .. }), "{error:?}");
}
