use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use super::super::Server;
use super::fake::{Fake, REQUEST, request, waiting};
use super::house::House;
use crate::limits;
use crate::model::{Code, EventKind, Refusal};
use crate::service::views::RequestState;

const BOUND: Duration = Duration::from_secs(20);

fn events_of(request: &str) -> String {
    format!("/v1/lease-requests/{request}/events")
}

/// An event of a lease, as the streams number and name it.
fn told(seq: &str, event: &str, data: Value) -> (String, String, Value) {
    (seq.to_owned(), event.to_owned(), data)
}

#[tokio::test]
async fn the_log_streams_what_happens_from_now_on() {
    let house = House::new();
    house.fake.happens(EventKind::NodeStarted, json!({}));
    let mut stream = house.open("/v1/events/stream", &[]).await;
    assert_eq!(stream.next().await.unwrap(), "id: 1\n\n", "where to resume, before anything has happened");
    house.fake.happens(EventKind::LeaseExpired, json!({"leaseId": "lse_1"}));
    let (id, event, data) = stream.event().await;
    assert_eq!((id.as_str(), event.as_str()), ("2", "lease.expired"));
    assert_eq!(data, house.get("/v1/events?after=1").await.body["events"][0]);
    house.fake.happens(EventKind::NodeStopping, json!({}));
    assert_eq!(stream.event().await.1, "node.stopping");
}

#[tokio::test]
async fn the_log_resumes_after_the_last_event_or_the_number_given() {
    let house = House::new();
    for _ in 0..250 {
        house.fake.happens(EventKind::LeaseGranted, json!({}));
    }
    house.fake.happens(EventKind::LeaseExpired, json!({}));
    for (path, headers, first) in [
        ("/v1/events/stream?after=0", &[][..], "1"),
        ("/v1/events/stream?after=7", &[], "8"),
        ("/v1/events/stream", &[("Last-Event-ID", "248")], "249"),
        ("/v1/events/stream?after=7", &[("Last-Event-ID", "248")], "249"),
        ("/v1/events/stream?after=7&event=lease.expired", &[], "251"),
    ] {
        let mut stream = house.open(path, headers).await;
        stream.next().await.unwrap();
        assert_eq!(stream.event().await.0, first, "{path} {headers:?}");
    }
    let mut all = house.open("/v1/events/stream?after=0", &[]).await;
    all.next().await.unwrap();
    for seq in 1..=251 {
        assert_eq!(all.event().await.0, seq.to_string(), "none is left out between two pages");
    }
}

#[tokio::test]
async fn a_lease_tells_of_its_renewals_and_ends_with_the_reason() {
    let house = House::new();
    house.fake.happens(EventKind::LeaseRenewed, json!({"leaseId": "mine"}));
    let mut stream = house.open("/v1/leases/mine/events", &[]).await;
    assert_eq!(stream.next().await.unwrap(), "id: 1\n\n");
    house.fake.happens(EventKind::LeaseExpired, json!({"leaseId": "other"}));
    house.fake.happens(EventKind::LeaseRenewed, json!({"leaseId": "mine", "ttlMs": 5}));
    assert_eq!(stream.event().await, told("3", "renewed", json!({"leaseId": "mine", "ttlMs": 5})));
    house.fake.happens(EventKind::LeaseReleased, json!({"leaseId": "mine", "fence": 6, "reason": "explicit"}));
    house.fake.happens(EventKind::LeaseReleased, json!({"leaseId": "mine", "fence": 7, "reason": "admin"}));
    house.fake.happens(EventKind::LeaseRenewed, json!({"leaseId": "mine"}));
    let end = stream.event().await;
    assert_eq!(end, told("5", "lost", json!({"reason": "admin"})), "an earlier lease of the id is another");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_lease_that_ended_meanwhile_still_says_how_to_whoever_comes_back() {
    let house = House::new();
    house.fake.happens(EventKind::LeaseRenewed, json!({"leaseId": "mine"}));
    house.fake.happens(EventKind::LeaseExpired, json!({"leaseId": "mine", "fence": 7}));
    *house.fake.lost.lock().unwrap() = Some(Refusal::new(Code::UnknownLease, "no active lease mine"));
    let mut stream = house.open("/v1/leases/mine/events", &[("Last-Event-ID", "1")]).await;
    stream.next().await.unwrap();
    assert_eq!(stream.event().await, told("2", "lost", json!({"reason": "expired"})));
    assert_eq!(stream.next().await, None);
    assert_eq!(house.get("/v1/leases/mine/events").await.code(), Code::UnknownLease);
    let request = axum::http::Request::get("/v1/leases/mine/events").header("Last-Event-ID", "2");
    let told = house.send(request.body(axum::body::Body::empty()).unwrap()).await;
    assert_eq!(told.code(), Code::UnknownLease, "what it has seen is not told again");
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_end_is_in_no_log_is_lost_all_the_same() {
    let house = House::new();
    let mut stream = house.open("/v1/leases/mine/events", &[]).await;
    stream.next().await.unwrap();
    let rebuilding = Refusal::new(Code::UnknownLease, "not known yet").with("rebuilding", true);
    *house.fake.lost.lock().unwrap() = Some(rebuilding);
    assert_eq!(stream.next().await.unwrap(), ":\n\n", "a gateway that rebuilds does not know");
    *house.fake.lost.lock().unwrap() = Some(Refusal::new(Code::UnknownLease, "gone").with("reason", "admin"));
    assert_eq!(stream.event().await, told("", "lost", json!({"reason": "admin"})));
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_request_tells_its_place_when_it_changes_and_how_it_ends() {
    for (state, word) in
        [(RequestState::Granted, "granted"), (RequestState::Failed, "failed"), (RequestState::Cancelled, "cancelled")]
    {
        let house = House::new();
        house.fake.states.lock().unwrap().extend([waiting(2), waiting(2), waiting(1), request(state)]);
        let mut stream = house.open(&events_of(REQUEST), &[]).await;
        let place = |position: usize| {
            json!({"position": position, "waitingFor": "leased", "until": "1970-01-01T00:00:00.000000Z",
                "ticket": "tkt.1"})
        };
        assert_eq!(stream.event().await, told("", "waiting", place(2)));
        assert_eq!(stream.event().await, told("", "waiting", place(1)));
        let (_, event, data) = stream.event().await;
        assert_eq!((event.as_str(), &data["id"], &data["state"]), (word, &json!(REQUEST), &json!(word)));
        assert_eq!(data["error"].get("retryAfter"), None);
        assert_eq!(stream.next().await, None);
        let asked = house.fake.asked.lock().unwrap().clone();
        assert_eq!(asked, ["0ns", "1s", "1s", "1s"].map(|wait| format!("lease_request {REQUEST} {wait}")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_told_at_most_once_a_second() {
    let house = House::new();
    house.fake.states.lock().unwrap().extend((1..=4).rev().map(waiting));
    let begun = tokio::time::sleep(Duration::ZERO).deadline();
    let mut stream = house.open(&events_of(REQUEST), &[]).await;
    for position in (1..=4).rev() {
        assert_eq!(stream.event().await.2["position"], position);
    }
    let took = tokio::time::sleep(Duration::ZERO).deadline() - begun;
    assert!(took >= Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_comment_keeps_a_quiet_stream_alive() {
    let house = House::new();
    let begun = tokio::time::sleep(Duration::ZERO).deadline();
    let mut stream = house.open("/v1/events/stream", &[]).await;
    stream.next().await.unwrap();
    for _ in 0..3 {
        assert_eq!(stream.next().await.unwrap(), ":\n\n");
    }
    let took = tokio::time::sleep(Duration::ZERO).deadline() - begun;
    assert!((45..60).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn an_open_stream_counts_as_a_request_that_is_served() {
    let house = House::with(Fake { ready: true, ..Fake::default() }, 1);
    let stream = house.open("/v1/events/stream", &[]).await;
    assert_eq!(house.get("/v1/leases").await.code(), Code::QueueFull);
    drop(stream);
    assert_eq!(house.get("/v1/leases").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_ends_its_streams() {
    let house = House::new();
    let bearer = format!("Bearer {}", house.agent);
    let mut stream = house.open("/v1/events/stream", &[("authorization", &bearer)]).await;
    let mut other = house.open("/v1/events/stream", &[]).await;
    stream.next().await.unwrap();
    other.next().await.unwrap();
    let tokens = house.app.tokens.list();
    let id = &tokens.iter().find(|token| token.name.as_str() == "ci").unwrap().id;
    house.app.tokens.revoke(id, house.app.clock.now().wall).unwrap();
    assert_eq!(stream.next().await, None);
    house.fake.happens(EventKind::NodeStopping, json!({}));
    assert_eq!(other.event().await.1, "node.stopping");
}

/// What a connection has brought so far, read until `what` is in it.
async fn until(stream: &mut (impl AsyncReadExt + Unpin), text: &mut String, what: &str) {
    let reading = async {
        let mut buffer = [0; 4096];
        while !text.contains(what) {
            let read = stream.read(&mut buffer).await.unwrap();
            assert_ne!(read, 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    };
    tokio::time::timeout(BOUND, reading).await.unwrap_or_else(|_| panic!("no {what:?}"));
}

#[tokio::test]
async fn a_stop_ends_every_stream_and_is_not_kept_by_one() {
    let house = House::new();
    let any = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(house.app.clone(), Some(any), &house.socket()).await.unwrap();
    house.fake.states.lock().unwrap().push_back(waiting(1));
    let bearer = format!("Authorization: Bearer {}\r\n", house.agent);
    let mut tcp = TcpStream::connect(server.local_addr().unwrap()).await.unwrap();
    let mut unix = UnixStream::connect(house.socket()).await.unwrap();
    let mut request = UnixStream::connect(house.socket()).await.unwrap();
    let get = |path: &str, headers: &str| format!("GET {path} HTTP/1.1\r\nHost: berth\r\n{headers}\r\n");
    tcp.write_all(get("/v1/events/stream", &bearer).as_bytes()).await.unwrap();
    unix.write_all(get("/v1/leases/mine/events", "").as_bytes()).await.unwrap();
    request.write_all(get(&events_of(REQUEST), "").as_bytes()).await.unwrap();
    let (mut first, mut second, mut third) = (String::new(), String::new(), String::new());
    until(&mut tcp, &mut first, "id: 0\n\n").await;
    until(&mut unix, &mut second, "id: 0\n\n").await;
    until(&mut request, &mut third, "event: waiting").await;
    house.fake.happens(EventKind::LeaseRenewed, json!({"leaseId": "mine"}));
    until(&mut tcp, &mut first, "event: lease.renewed\ndata: ").await;
    until(&mut unix, &mut second, "event: renewed").await;

    // Half the bound: no stream must keep the node until it is cut.
    tokio::time::timeout(limits::STOP_BOUND / 2, server.shutdown()).await.expect("the streams end by themselves");
    tcp.read_to_string(&mut first).await.unwrap();
    assert!(first.ends_with("\r\n0\r\n\r\n"), "the stream ends whole: {first}");
}
