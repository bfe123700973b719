//! A node that says what a test tells it to, over real sockets.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};

use super::{Client, Endpoint};

/// Serves `routes` on a port of its own.
pub(crate) async fn over_tcp(routes: Router) -> Client {
    Client::new(Endpoint::Http { url: url_of(routes).await, token: None }).unwrap()
}

/// Serves `routes` on a port of its own, and says where.
pub(crate) async fn url_of(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

/// Serves `routes` on a Unix socket in `directory`.
pub(crate) fn over_unix(routes: Router, directory: &std::path::Path) -> Client {
    let path = directory.join("berth.sock");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Client::new(Endpoint::Unix(path)).unwrap()
}

/// An answer.
pub(crate) fn json(status: u16, body: &Value) -> Response {
    let content = [(header::CONTENT_TYPE, "application/json")];
    (StatusCode::from_u16(status).unwrap(), content, body.to_string()).into_response()
}

/// A header as text.
pub(crate) fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

/// A lease as a gateway shows it.
pub(crate) fn lease(id: &str, resource: &str) -> Value {
    json!({
        "id": id, "requestId": "req_01900000-0000-7000-8000-000000000000", "resourceId": resource,
        "mode": "exclusive", "holderId": "ci/job-17", "ownerId": "ci",
        "grantedAt": "2026-01-01T00:00:00.000000Z", "renewedAt": "2026-01-01T00:00:00.000000Z",
        "ttlMs": 900_000, "expiresAt": "2026-01-01T00:15:00.250000Z", "expiresInMs": 899_500,
        "idChosenByRequester": true, "fence": 1_767_225_600_000_u64,
        "labels": {"platform": "android", "model": "Pixel 8"}, "environment": {"ANDROID_SERIAL": "R5"},
        "worker": {"id": "rack-1"}, "fieldOfANewerVersion": 1,
    })
}

/// A free resource as a gateway shows it.
pub(crate) fn resource(id: &str, worker: &str) -> Value {
    json!({
        "id": id, "labels": {"platform": "android", "os": "15"}, "state": "available", "fence": 0, "maxShared": 1,
        "queueLength": 0,
        "worker": worker, "reachable": true, "leases": [],
    })
}

/// A lease request.
pub(crate) fn request(state: &str, rest: &Value) -> Value {
    let mut request = json!({
        "id": "req_01900000-0000-7000-8000-000000000000", "state": state,
        "createdAt": "2026-01-01T00:00:00.000000Z",
    });
    request.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    json!({ "request": request })
}

/// The body of an error.
pub(crate) fn error(code: &str, message: &str, details: &Value) -> Value {
    json!({ "error": { "code": code, "message": message, "details": details } })
}

/// An event.
pub(crate) fn event(seq: u64) -> Value {
    json!({
        "id": "evt_01900000-0000-7000-8000-000000000000", "seq": seq, "timestamp": "2026-01-01T00:00:00.000000Z",
        "event": "lease.expired", "payload": {"leaseId": "mine", "fence": seq}, "node": "rack-1",
    })
}

/// The same as a stream tells it.
pub(crate) fn told(seq: u64) -> String {
    format!("id: {seq}\nevent: lease.expired\ndata: {}\n\n", event(seq))
}

/// A text of the shape of a token's secret.
pub(crate) const SECRET: &str = "bth_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
