use axum::body::Body;
use axum::http::Request;

use super::super::door::Peer;
use super::fake::{Fake, REQUEST};
use super::house::House;
use crate::limits;
use crate::model::Code;

#[tokio::test]
async fn a_wrong_body_is_refused_with_the_field_by_its_name() {
    let house = House::new();
    let acquire = "/v1/resources/pixel/leases";
    let long = format!(r#"{{"note":"{}"}}"#, "x".repeat(513));
    let table = [
        (acquire, "", "body"),
        (acquire, "[]", "body"),
        (acquire, "[\"fail\"]", "body"),
        (acquire, "null", "body"),
        (acquire, "\"x\"", "body"),
        (acquire, "{", "body"),
        (acquire, "{} {}", "body"),
        (acquire, "{}]", "body"),
        (acquire, "{'a':1}", "body"),
        (acquire, r#"{"ttlMs":NaN}"#, "ttlMs"),
        (acquire, r#"{"priority":1e999}"#, "priority"),
        (acquire, r#"{"priority":1001}"#, "priority"),
        (acquire, r#"{"priority":"high"}"#, "priority"),
        (acquire, r#"{"ttlMs":"15m"}"#, "ttlMs"),
        (acquire, r#"{"ttlMs":0}"#, "ttlMs"),
        (acquire, r#"{"ttlMs":-1}"#, "ttlMs"),
        (acquire, r#"{"ttlMs":1.5}"#, "ttlMs"),
        (acquire, r#"{"ttlMs":14400001}"#, "ttlMs"),
        (acquire, r#"{"ttl_ms":1}"#, "ttl_ms"),
        (acquire, r#"{"timeoutMs":1,"x":2}"#, "timeoutMs"),
        (acquire, r#"{"ticket":""}"#, "ticket"),
        (acquire, r#"{"ticket":"a b"}"#, "ticket"),
        (acquire, r#"{"ttlMs":1,"ttlMs":2}"#, "ttlMs"),
        (acquire, r#"{"mode":"both"}"#, "mode"),
        (acquire, r#"{"mode":1}"#, "mode"),
        (acquire, r#"{"onConflict":"wait"}"#, "onConflict"),
        (acquire, r#"{"leaseId":"w1.mine"}"#, "leaseId"),
        (acquire, r#"{"leaseId":""}"#, "leaseId"),
        (acquire, r#"{"requester":"a/b"}"#, "requester"),
        (acquire, r#"{"note":"a\nb"}"#, "note"),
        (acquire, &long, "note"),
        (acquire, r#"{"idempotencyKey":""}"#, "idempotencyKey"),
        ("/v1/lease-requests", "{}", "select"),
        ("/v1/lease-requests", r#"{"select":"a=1","resourceId":"b"}"#, "select"),
        ("/v1/lease-requests", r#"{"select":"a ="}"#, "select"),
        ("/v1/lease-requests", r#"{"resourceId":"a/b/c"}"#, "resourceId"),
        ("/v1/lease-requests", r#"{"resourceId":"a","noWait":1}"#, "noWait"),
        ("/v1/lease-requests", r#"{"resourceId":"a","timeoutMs":0}"#, "timeoutMs"),
        ("/v1/lease-requests", r#"{"resourceId":"a","timeoutMs":2592000001}"#, "timeoutMs"),
        ("/v1/lease-requests", r#"{"resourceId":"a","timeoutMs":1,"noWait":true}"#, "timeoutMs"),
        ("/v1/lease-requests", r#"{"resourceId":"a","onConflict":"fail"}"#, "onConflict"),
        ("/v1/leases/mine/renew", r#"{"fence":"7"}"#, "fence"),
        ("/v1/leases/mine/renew", r#"{"ttlMs":14400001}"#, "ttlMs"),
        ("/v1/tokens", r#"{"name":"ci2"}"#, "role"),
        ("/v1/tokens", r#"{"name":"ci2","role":"boss"}"#, "role"),
        ("/v1/tokens", r#"{"name":"CI","role":"agent"}"#, "name"),
        ("/v1/tokens", r#"{"name":"admin","role":"agent"}"#, "name"),
        ("/v1/tokens", r#"{"name":"ci","role":"agent"}"#, "name"),
    ];
    for (path, body, field) in table {
        assert_eq!(house.post(path, body).await.field(), field, "{path} {body}");
    }
    for path in ["/v1/events/stream", "/v1/leases/mine/events"] {
        for value in ["", "x", "-1", "18446744073709551616"] {
            let request = Request::get(path).header("Last-Event-ID", value).body(Body::empty()).unwrap();
            assert_eq!(house.send(request).await.field(), "Last-Event-ID", "{path} {value}");
        }
    }
    let twice = Request::get("/v1/events/stream").header("Last-Event-ID", "1").header("Last-Event-ID", "2");
    assert_eq!(house.send(twice.body(Body::empty()).unwrap()).await.field(), "Last-Event-ID");
    assert!(house.fake.asked.lock().unwrap().is_empty(), "nothing wrong reached the coordinator");
}

#[tokio::test]
async fn a_wrong_id_query_or_header_is_refused_by_its_name() {
    let house = House::new();
    let table = [
        ("GET", "/v1/leases/a%20b".to_owned(), "leaseId"),
        ("GET", "/v1/leases/%ff".to_owned(), "leaseId"),
        ("DELETE", "/v1/leases/-x".to_owned(), "leaseId"),
        ("GET", "/v1/lease-requests/mine".to_owned(), "requestId"),
        ("GET", "/v1/resources/a%2Fb%2Fc".to_owned(), "resourceId"),
        ("DELETE", "/v1/tokens/ci".to_owned(), "tokenId"),
        ("GET", "/v1/leases?holder=ci".to_owned(), "holder"),
        ("GET", "/v1/healthz?verbose".to_owned(), "verbose"),
        ("GET", "/v1/resources?selector=a".to_owned(), "selector"),
        ("GET", "/v1/resources?select=a&select=b".to_owned(), "select"),
        ("GET", "/v1/resources?select=a%20%3D".to_owned(), "select"),
        ("GET", format!("/v1/lease-requests/{REQUEST}?wait=61"), "wait"),
        ("GET", format!("/v1/lease-requests/{REQUEST}?wait=1m"), "wait"),
        ("GET", format!("/v1/lease-requests/{REQUEST}?wait="), "wait"),
        ("DELETE", "/v1/leases/mine?fence=-1".to_owned(), "fence"),
        ("DELETE", "/v1/leases/mine?wait=1".to_owned(), "wait"),
        ("DELETE", "/v1/lease-requests/mine".to_owned(), "requestId"),
        ("GET", "/v1/lease-requests/mine/events".to_owned(), "requestId"),
        ("GET", format!("/v1/lease-requests/{REQUEST}/events?wait=1"), "wait"),
        ("GET", "/v1/leases/a%20b/events".to_owned(), "leaseId"),
        ("GET", "/v1/leases/mine/events?after=1".to_owned(), "after"),
        ("GET", "/v1/resources/-x/waiting-room".to_owned(), "resourceId"),
        ("GET", "/v1/resources/pixel/waiting-room?limit=1".to_owned(), "limit"),
        ("DELETE", "/v1/resources/-x/waiting-room/me".to_owned(), "resourceId"),
        ("POST", "/v1/resources/-x/drain".to_owned(), "resourceId"),
        ("DELETE", "/v1/resources/pixel/drain?force=1".to_owned(), "force"),
        ("GET", "/v1/events?limit=0".to_owned(), "limit"),
        ("GET", "/v1/events?limit=1001".to_owned(), "limit"),
        ("GET", "/v1/events?limit=all".to_owned(), "limit"),
        ("GET", "/v1/events?after=-1".to_owned(), "after"),
        ("GET", "/v1/events?after=%2B1".to_owned(), "after"),
        ("GET", "/v1/events?after=9223372036854775808".to_owned(), "after"),
        ("GET", "/v1/events?event=lease.lost".to_owned(), "event"),
        ("GET", "/v1/events?since=1".to_owned(), "since"),
        ("GET", "/v1/events/stream?limit=1".to_owned(), "limit"),
        ("GET", "/v1/events/stream?after=".to_owned(), "after"),
        ("GET", "/v1/events/stream?event=".to_owned(), "event"),
    ];
    for (method, path, field) in table {
        assert_eq!(house.call(method, &path).await.field(), field, "{method} {path}");
    }
    for (name, value) in [("Berth-Requester", "a b"), ("Idempotency-Key", ""), ("Idempotency-Key", "\u{e9}")] {
        let request = Request::post("/v1/resources/pixel/leases").header("content-type", "application/json");
        let request = request.header(name, value.as_bytes()).body(Body::from("{}")).unwrap();
        assert_eq!(house.send(request).await.field(), name);
    }
    assert!(house.fake.asked.lock().unwrap().is_empty(), "nothing wrong reached the coordinator");
}

#[tokio::test]
async fn no_such_route_and_no_such_method_have_codes_too() {
    let house = House::new();
    for path in ["/", "/v1", "/v2/leases", "/v1/leases/", "/v1/leases/a/b", "/index.html"] {
        assert_eq!(house.get(path).await.code(), Code::NotFound, "{path}");
    }
    let told = house.call("PUT", "/v1/leases/mine").await;
    assert_eq!(told.code(), Code::MethodNotAllowed);
    let allowed = told.header("allow");
    assert!(["GET", "DELETE"].iter().all(|method| allowed.contains(method)), "{allowed:?}");
    assert_eq!(house.call("OPTIONS", "/v1/leases").await.code(), Code::MethodNotAllowed);
}

#[tokio::test]
async fn a_body_that_is_too_large_or_no_json_is_refused_as_such() {
    let house = House::new();
    let padded = |bytes: usize| format!("{{}}{}", " ".repeat(bytes - 2));
    let path = "/v1/resources/pixel/leases";
    assert_eq!(house.post(path, &padded(limits::BODY_BYTES_MAX)).await.status, 201);
    let told = house.post(path, &padded(limits::BODY_BYTES_MAX + 1)).await;
    assert_eq!(told.code(), Code::PayloadTooLarge);
    let huge = Request::post(path).header("content-type", "application/json").header("content-length", "9999999999");
    assert_eq!(house.send(huge.body(Body::empty()).unwrap()).await.code(), Code::PayloadTooLarge);

    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonp")] {
        let mut request = Request::post(path);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let told = house.send(request.body(Body::from("{}")).unwrap()).await;
        assert_eq!(told.code(), Code::UnsupportedMediaType, "{kind:?}");
    }
}

#[tokio::test]
async fn over_the_network_only_a_valid_bearer_token_comes_in() {
    let house = House::new();
    let agent = &house.agent;
    let bad = [String::new(), "Bearer".to_owned(), "Bearer ".to_owned(), "Bearer bth_x".to_owned(), agent.clone()];
    for authorization in bad.iter().map(String::as_str).chain([format!("Basic {agent}").as_str()]) {
        let told = house.with_token("GET", "/v1/leases", authorization).await;
        assert_eq!(told.code(), Code::Unauthenticated, "{authorization}");
        assert_eq!(told.header("www-authenticate"), "Bearer");
    }
    let mut bare = Request::get("/v1/leases").body(Body::empty()).unwrap();
    bare.extensions_mut().insert(Peer::Network);
    assert_eq!(house.send(bare).await.code(), Code::Unauthenticated);
    for (scheme, secret, holder) in
        [("Bearer", agent, "ci"), ("bearer", agent, "ci"), ("Bearer", &house.admin, "admin")]
    {
        let told = house.with_token("GET", "/v1/leases", &format!("{scheme} {secret}")).await;
        assert_eq!(told.body["leases"][0]["holderId"], holder);
    }
}

#[tokio::test]
async fn on_the_socket_another_user_is_refused_and_a_token_counts_as_itself() {
    let house = House::new();
    let mut stranger = Request::get("/v1/leases").header("authorization", format!("Bearer {}", house.admin));
    stranger = stranger.extension(Peer::Stranger);
    assert_eq!(house.send(stranger.body(Body::empty()).unwrap()).await.code(), Code::Unauthenticated);
    let agent = Request::get("/v1/leases").header("authorization", format!("Bearer {}", house.agent));
    let told = house.send(agent.extension(Peer::Operator).body(Body::empty()).unwrap()).await;
    assert_eq!(told.body["leases"][0]["holderId"], "ci");
    let wrong = Request::get("/v1/leases").header("authorization", "Bearer bth_0");
    assert_eq!(house.send(wrong.body(Body::empty()).unwrap()).await.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn a_viewer_changes_nothing_and_only_an_admin_sees_tokens() {
    let house = House::new();
    let viewer = format!("Bearer {}", house.viewer);
    let agent = format!("Bearer {}", house.agent);
    for (method, path) in [
        ("POST", "/v1/resources/pixel/leases"),
        ("POST", "/v1/lease-requests"),
        ("POST", "/v1/leases/mine/renew"),
        ("DELETE", "/v1/leases/mine"),
        ("DELETE", "/v1/lease-requests/req_0198f3a0-0000-7000-8000-000000000000"),
        ("DELETE", "/v1/resources/pixel/waiting-room/me"),
        ("POST", "/v1/resources/pixel/drain"),
        ("DELETE", "/v1/resources/pixel/drain"),
        ("POST", "/v1/tokens"),
    ] {
        let told = house.with_token(method, path, &viewer).await;
        assert_eq!(told.code(), Code::InsufficientPermissions, "{method} {path}");
    }
    assert!(house.fake.asked.lock().unwrap().is_empty());
    assert_eq!(house.with_token("GET", "/v1/leases", &viewer).await.status, 200);
    for (method, path) in [
        ("GET", "/v1/resources/pixel/waiting-room"),
        ("POST", "/v1/resources/pixel/drain"),
        ("DELETE", "/v1/resources/pixel/drain"),
    ] {
        let told = house.with_token(method, path, &agent).await;
        assert_eq!(told.code(), Code::InsufficientPermissions, "{method} {path}");
    }
    let id = house.get("/v1/tokens").await.body["tokens"][0]["id"].as_str().unwrap().to_owned();
    for (method, path) in [("GET", "/v1/tokens".to_owned()), ("DELETE", format!("/v1/tokens/{id}"))] {
        let told = house.with_token(method, &path, &agent).await;
        assert_eq!(told.code(), Code::InsufficientPermissions, "{method} {path}");
    }
    assert_eq!(house.app.tokens.list().iter().filter(|token| token.revoked_at.is_some()).count(), 0);
}

#[tokio::test]
async fn a_refusal_of_the_coordinator_keeps_its_code_and_details() {
    let house = House::new();
    assert_eq!(house.post("/v1/resources/gone/leases", "{}").await.code(), Code::UnknownResource);
    let told = house.post("/v1/resources/held/leases", "{}").await;
    assert_eq!(told.code(), Code::ResourceUnavailable);
    assert_eq!(told.body["error"]["details"]["availableAt"], "soon");
    assert_eq!(house.call("DELETE", "/v1/leases/gone").await.code(), Code::UnknownLease);
    assert_eq!(house.get("/v1/leases/gone/events").await.code(), Code::UnknownLease);
    let unknown = "/v1/tokens/tok_0198f3a0-0000-7000-8000-000000000000";
    assert_eq!(house.call("DELETE", unknown).await.code(), Code::UnknownToken);
}

#[tokio::test]
async fn a_panic_in_a_handler_is_an_internal_error_and_the_door_goes_on() {
    let house = House::new();
    assert_eq!(house.get("/v1/resources/boom").await.code(), Code::Internal);
    assert_eq!(house.get("/v1/resources/pixel").await.status, 200);
}

#[tokio::test]
async fn one_request_too_many_at_once_is_told_to_come_again() {
    let house = House::with(Fake { ready: true, ..Fake::default() }, 1);
    let held = house.get("/v1/workers");
    let meanwhile = async {
        house.fake.polled.notified().await;
        let told = house.get("/v1/leases").await;
        house.fake.release.notify_one();
        told
    };
    let (first, second) = tokio::join!(held, meanwhile);
    assert_eq!(first.status, 200);
    assert_eq!(second.code(), Code::QueueFull);
    assert_eq!(second.header("retry-after"), "1");
    assert_eq!(house.get("/v1/leases").await.status, 200);
}
