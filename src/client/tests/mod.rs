mod calendar;
mod streams;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Client, ClientError, Endpoint, Secret, fake};
use crate::model::{Code, Fence};
use crate::service::ask::{AcquireBody, RequestBody};
use crate::service::views::RequestState;

#[tokio::test]
async fn a_refusal_keeps_its_code_details_and_when_to_ask_again() {
    let refuse = || async {
        let body = fake::error("NO_CAPACITY", "both are held", &json!({"matching": 2}));
        ([("Retry-After", "7")], fake::json(503, &body)).into_response()
    };
    let directory = tempfile::tempdir().unwrap();
    let routes = Router::new().route("/v1/lease-requests", post(refuse));
    for client in [fake::over_tcp(routes.clone()).await, fake::over_unix(routes, directory.path())] {
        let error = client.request(&RequestBody::default()).await.unwrap_err();
        let refusal = error.refusal().unwrap();
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::NoCapacity, "both are held"));
        assert_eq!(refusal.details.as_ref().unwrap()["matching"], 2);
        assert_eq!(refusal.retry_after, Some(7));
    }
}

#[tokio::test]
async fn each_call_goes_to_its_route_with_its_credential_and_requester() {
    let echo = |headers: HeaderMap, request: Request| async move {
        let said =
            [request.method().as_str(), &request.uri().to_string(), &fake::text(&headers, "authorization")].join(" ");
        let said = format!("{said} {}", fake::text(&headers, "berth-requester"));
        fake::json(404, &fake::error("NOT_FOUND", said.trim_end(), &json!({})))
    };
    let url = fake::url_of(Router::new().fallback(any(echo))).await;
    let client = |path: &str, token| Client::new(Endpoint::Http { url: format!("{url}{path}"), token }).unwrap();
    let plain = client("", None);
    let heard = |error: ClientError| error.refusal().unwrap().message.clone();

    let lease = "rack-1.lse_1".parse().unwrap();
    assert_eq!(heard(plain.lease(&lease).await.unwrap_err()), "GET /v1/leases/rack-1.lse_1");
    assert_eq!(
        heard(plain.release(&lease, Some(Fence(5))).await.unwrap_err()),
        "DELETE /v1/leases/rack-1.lse_1?fence=5"
    );
    let board = "rack-1/board".parse().unwrap();
    assert_eq!(
        heard(plain.acquire(&board, &AcquireBody::default()).await.unwrap_err()),
        "POST /v1/resources/rack-1%2Fboard/leases"
    );
    let select = "model=Pixel 8,os>=14".parse().unwrap();
    assert_eq!(
        heard(plain.resources(Some(&select)).await.unwrap_err()),
        "GET /v1/resources?select=model%3DPixel+8%2Cos%3E%3D14"
    );
    let request = "req_01900000-0000-7000-8000-000000000000".parse().unwrap();
    assert_eq!(
        heard(plain.lease_request(&request, Duration::from_secs(900)).await.unwrap_err()),
        format!("GET /v1/lease-requests/{request}?wait=60")
    );
    let full = client("/berth/", Some(Secret::new("bth_x\n"))).acting_for("job-17".parse().unwrap());
    assert_eq!(heard(full.status().await.unwrap_err()), "GET /berth/v1/status Bearer bth_x job-17");
}

#[tokio::test]
async fn a_granted_request_carries_its_lease_and_unknown_fields_do_not_disturb() {
    let granted = fake::request("granted", &json!({ "lease": fake::lease("mine", "pixel"), "ticket": "x" }));
    let routes = Router::new().route("/v1/lease-requests", post(move || async move { fake::json(201, &granted) }));
    let request = fake::over_tcp(routes).await.request(&RequestBody::default()).await.unwrap();
    assert_eq!(request.state, RequestState::Granted);
    assert_eq!(request.lease.unwrap().id.as_str(), "mine");
}

#[tokio::test]
async fn a_node_that_is_not_ready_is_an_answer_and_one_that_stops_is_a_refusal() {
    let body = json!({"ready": false, "reasons": ["rebuilding"], "workers": {"configured": 2, "reported": 1}});
    let routes = Router::new().route("/v1/readyz", get(move || async move { fake::json(503, &body) }));
    let readiness = fake::over_tcp(routes).await.ready().await.unwrap();
    assert_eq!((readiness.ready, readiness.reasons), (false, vec!["rebuilding".to_owned()]));

    let body = fake::error("STOPPING", "going down", &json!({}));
    let routes = Router::new().route("/v1/readyz", get(move || async move { fake::json(503, &body) }));
    let error = fake::over_tcp(routes).await.ready().await.unwrap_err();
    assert_eq!(error.refusal().unwrap().code, Code::Stopping);
}

#[tokio::test]
async fn a_refused_connection_is_unanswered_and_known_to_have_done_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let socket = Endpoint::Unix(tempfile::tempdir().unwrap().path().join("berth.sock"));
    for endpoint in [Endpoint::Http { url, token: None }, socket] {
        let error = Client::new(endpoint).unwrap().status().await.unwrap_err();
        assert!(matches!(error, ClientError::Unanswered { reached: false, .. }), "{error:?}");
    }
}

#[tokio::test]
async fn a_node_that_takes_too_long_is_unanswered_and_nobody_knows() {
    let routes = Router::new().route("/v1/status", get(std::future::pending::<()>));
    let client = fake::over_tcp(routes).await.bounded(Duration::from_millis(50));
    let error = client.status().await.unwrap_err();
    assert!(matches!(error, ClientError::Unanswered { reached: true, .. }), "{error:?}");
}

#[tokio::test]
async fn a_node_that_dies_before_its_answer_is_unanswered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 8]).await.unwrap();
    });
    let error = Client::new(Endpoint::Http { url, token: None }).unwrap().status().await.unwrap_err();
    assert!(matches!(error, ClientError::Unanswered { reached: true, .. }), "{error:?}");
}

#[tokio::test]
async fn what_is_not_the_contract_says_what_is_wrong_with_it() {
    let routes = Router::new()
        .route("/v1/status", get(|| async { "<html>hello</html>" }))
        .route("/v1/leases", get(|| async { fake::json(200, &json!({"leases": [{"id": 1}]})) }))
        .route("/v1/workers", get(|| async { (axum::http::StatusCode::BAD_GATEWAY, "upstream") }));
    let client = fake::over_tcp(routes).await;
    let status = client.status().await.unwrap_err().to_string();
    assert!(status.contains("none of Berth's"), "{status}");
    let leases = client.leases().await.unwrap_err().to_string();
    assert!(leases.contains("leases[0].id"), "{leases}");
    let workers = client.workers().await.unwrap_err().to_string();
    assert!(workers.contains("502"), "{workers}");
}

#[tokio::test]
async fn an_endless_answer_is_refused_at_its_bound() {
    let endless = || async {
        let chunks = futures_util::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024]));
        Body::from_stream(chunks)
    };
    let client = fake::over_tcp(Router::new().route("/v1/leases", get(endless))).await;
    let error = client.leases().await.unwrap_err();
    assert!(matches!(&error, ClientError::BadAnswer { why, .. } if why.contains("larger")), "{error:?}");
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_credential() {
    let routes = Router::new()
        .route("/v1/status", get(|| async { axum::response::Redirect::temporary("/v1/elsewhere") }))
        .route("/v1/elsewhere", get(|| async { fake::json(200, &json!({})) }));
    let error = fake::over_tcp(routes).await.status().await.unwrap_err();
    assert!(matches!(&error, ClientError::BadAnswer { why, .. } if why.contains("307")), "{error:?}");
}

#[tokio::test]
async fn a_created_token_shows_its_secret_once_and_in_no_debug_text() {
    let id = "tok_00000000-0000-4000-8000-000000000000";
    let token = json!({"id": id, "name": "ci", "role": "agent", "createdAt": "2026-01-01T00:00:00.000000Z"});
    let body = json!({"token": token, "secret": fake::SECRET});
    let routes = Router::new().route("/v1/tokens", post(move || async move { fake::json(201, &body) }));
    let asked = crate::service::ask::TokenBody { name: "ci".parse().unwrap(), role: crate::model::Role::Agent };
    let created = fake::over_tcp(routes).await.create_token(&asked).await.unwrap();
    assert_eq!(created.secret.expose(), fake::SECRET);
    assert!(!format!("{created:?}").contains(&fake::SECRET[4..]));
    assert!(serde_json::to_string(&created).unwrap().contains(fake::SECRET));
}

#[tokio::test]
async fn half_an_answer_is_unanswered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 8]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"leases\"").await.unwrap();
    });
    let error = Client::new(Endpoint::Http { url, token: None }).unwrap().leases().await.unwrap_err();
    assert!(matches!(error, ClientError::Unanswered { reached: true, .. }), "{error:?}");
}
