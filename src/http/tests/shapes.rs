use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use super::fake::{Fake, GRANTED, REQUEST};
use super::house::House;
use crate::model::{Code, EventKind};

#[tokio::test]
async fn an_acquire_answers_201_with_the_active_lease() {
    let house = House::new();
    let body = r#"{"leaseId":"mine","ttlMs":60000,"requester":"job-1","onConflict":"fail"}"#;
    let told = house.post("/v1/resources/rack-1%2Fpixel/leases", body).await;
    assert_eq!(told.status, 201);
    assert_eq!(told.body["status"], "active");
    assert_eq!(told.body["lease"]["id"], "mine");
    assert_eq!(told.body["lease"]["holderId"], "admin/job-1");
    assert_eq!(house.fake.last(), "acquire rack-1/pixel for admin/job-1 ttl 60s key -");
    assert_eq!(told.header("cache-control"), "no-store");
}

#[tokio::test]
async fn an_acquire_that_joins_the_waiting_room_answers_202_with_its_place() {
    let house = House::new();
    let body = r#"{"onConflict":"join-waiting-room","mode":"shared","ticket":"tkt.1"}"#;
    let told = house.post("/v1/resources/held/leases", body).await;
    assert_eq!(told.status, 202);
    let pending = json!({
        "status": "pending", "resourceId": "held", "mode": "shared", "waitingPosition": 2, "ticket": "tkt.1"
    });
    assert_eq!(told.body, pending);
    assert_eq!(told.header("location"), "");
}

#[tokio::test]
async fn headers_stand_for_fields_of_the_body() {
    let house = House::new();
    let request = |body: &str| {
        Request::post("/v1/resources/pixel/leases")
            .header("content-type", "application/json")
            .header("berth-requester", "job-2")
            .header("idempotency-key", "k 1")
            .body(Body::from(body.to_owned()))
            .unwrap()
    };
    assert_eq!(house.send(request("{}")).await.status, 201);
    assert_eq!(house.fake.last(), "acquire pixel for admin/job-2 ttl 900s key k 1");
    assert_eq!(house.send(request(r#"{"idempotencyKey":"k 2"}"#)).await.field(), "idempotencyKey");
}

#[tokio::test]
async fn a_lease_request_answers_201_with_its_location_or_the_error_of_its_refusal() {
    let house = House::new();
    let told = house.post("/v1/lease-requests", r#"{"select":"platform=android"}"#).await;
    assert_eq!(told.status, 201);
    assert_eq!(told.header("location"), format!("/v1/lease-requests/{REQUEST}"));
    assert_eq!(told.body["request"]["state"], "granted");
    assert_eq!(told.body["request"]["lease"]["fence"], 7);
    assert_eq!(house.fake.last(), "request platform=android within 2s");

    let told = house.post("/v1/lease-requests", r#"{"select":"os=busy","noWait":true}"#).await;
    assert_eq!((told.status.as_u16(), &told.body["request"]["state"]), (201, &json!("waiting")));
    let request = &told.body["request"];
    assert_eq!((&request["position"], &request["waitingFor"]), (&json!(3), &json!("leased")));
    assert_eq!((&request["until"], &request["ticket"]), (&json!("1970-01-01T00:00:00.000000Z"), &json!("tkt.1")));
    assert_eq!(house.fake.last(), "request os=busy within 10s");

    let told = house.post("/v1/lease-requests", r#"{"select":"os=none"}"#).await;
    assert_eq!(told.code(), Code::NoCapacity);
    assert_eq!(told.header("retry-after"), "9");
    assert_eq!(told.body["error"]["details"], json!({"availableAt": "soon"}));
}

#[tokio::test]
async fn the_key_of_a_cancelled_request_answers_200_and_makes_nothing() {
    let house = House::new();
    let told = house.post("/v1/lease-requests", r#"{"select":"os=off","idempotencyKey":"k"}"#).await;
    assert_eq!((told.status.as_u16(), told.header("location")), (200, ""));
    assert_eq!(told.body["request"]["state"], "cancelled");
}

#[tokio::test]
async fn a_request_that_waits_is_cancelled_and_a_granted_one_is_not() {
    let house = House::new();
    let told = house.call("DELETE", &format!("/v1/lease-requests/{REQUEST}")).await;
    assert_eq!((told.status.as_u16(), told.header("content-type")), (204, ""));
    assert_eq!(house.fake.last(), format!("cancel {REQUEST}"));
    let told = house.call("DELETE", &format!("/v1/lease-requests/{GRANTED}")).await;
    assert_eq!(told.code(), Code::RequestNotCancellable);
    assert_eq!(told.body["error"]["details"]["leaseId"], "lse_1");
}

#[tokio::test]
async fn a_waiting_room_is_shown_in_its_order_and_left_by_whom_the_header_names() {
    let house = House::new();
    let told = house.get("/v1/resources/rack-1%2Fpixel/waiting-room").await;
    let at = "1970-01-01T00:00:00.000000Z";
    let waiter = json!({"holderId": "ci/job-1", "joinedAt": at, "lastSeen": at, "mode": "shared", "priority": 2.5});
    assert_eq!(told.body, json!({"count": 1, "resourceId": "pixel", "waiters": [waiter]}));

    let told = house.call("DELETE", "/v1/resources/pixel/waiting-room/me").await;
    assert_eq!((told.status.as_u16(), told.body), (200, json!({"left": false})));
    assert_eq!(house.fake.last(), "leave pixel as admin");
    let named = Request::delete("/v1/resources/held/waiting-room/me").header("berth-requester", "job-1");
    assert_eq!(house.send(named.body(Body::empty()).unwrap()).await.body, json!({"left": true}));
    assert_eq!(house.fake.last(), "leave held as admin/job-1");
}

#[tokio::test]
async fn a_resource_is_taken_out_and_brought_back() {
    let house = House::new();
    for (method, state) in [("POST", "drained"), ("DELETE", "available")] {
        let told = house.call(method, "/v1/resources/rack-1%2Fpixel/drain").await;
        assert_eq!((told.status.as_u16(), &told.body["resource"]["state"]), (200, &json!(state)));
        assert_eq!(house.fake.last(), format!("drain rack-1/pixel {}", method == "POST"));
    }
}

#[tokio::test]
async fn events_are_read_in_pages_and_by_their_kind() {
    let house = House::new();
    house.fake.happens(EventKind::NodeStarted, json!({"version": "0"}));
    house.fake.happens(EventKind::LeaseExpired, json!({"leaseId": "lse_1"}));
    house.fake.happens(EventKind::LeaseExpired, json!({"leaseId": "lse_2"}));
    let told = house.get("/v1/events").await;
    assert_eq!(house.fake.last(), "events after 0 limit 100 kind - lease - within 0ns");
    assert_eq!((told.body["events"].as_array().unwrap().len(), &told.body["lastSeq"]), (3, &json!(3)));
    let event = &told.body["events"][0];
    let shape = json!({
        "id": event["id"], "seq": 1, "timestamp": "1970-01-01T00:00:00.000000Z", "event": "node.started",
        "payload": {"version": "0"}, "node": "rack-1"
    });
    assert_eq!(event, &shape);
    let told = house.get("/v1/events?after=1&limit=1&event=lease.expired").await;
    assert_eq!(house.fake.last(), "events after 1 limit 1 kind lease.expired lease - within 0ns");
    assert_eq!((&told.body["events"][0]["payload"]["leaseId"], &told.body["lastSeq"]), (&json!("lse_1"), &json!(2)));
}

#[tokio::test]
async fn a_failed_request_that_is_read_later_is_200_and_shows_its_error() {
    let house = House::new();
    let told = house.get(&format!("/v1/lease-requests/{REQUEST}")).await;
    assert_eq!(told.status, 200);
    let error = json!({"code": "NO_CAPACITY", "message": "all are held", "details": {"availableAt": "soon"}});
    assert_eq!(told.body["request"]["error"], error);
    assert_eq!(told.header("retry-after"), "");
}

#[tokio::test]
async fn a_long_poll_ends_when_the_node_stops() {
    let house = House::new();
    let path = format!("/v1/lease-requests/{REQUEST}?wait=60");
    let poll = house.get(&path);
    let stop = async {
        house.fake.polled.notified().await;
        house.stopping.cancel();
    };
    let (told, ()) = tokio::join!(poll, stop);
    assert_eq!(told.status, 200);
    assert_eq!(house.fake.asked.lock().unwrap().first().unwrap(), &format!("lease_request {REQUEST} 60s"));
    assert_eq!(house.fake.last(), format!("lease_request {REQUEST} 0ns"));
}

#[tokio::test]
async fn lists_and_single_things_are_named_after_what_they_are() {
    let house = House::new();
    for (path, key) in [
        ("/v1/leases", "leases"),
        ("/v1/leases/lse_1", "lease"),
        ("/v1/lease-requests", "requests"),
        ("/v1/resources", "resources"),
        ("/v1/resources/pixel", "resource"),
        ("/v1/tokens", "tokens"),
        ("/v1/status", "node"),
    ] {
        let told = house.get(path).await;
        assert_eq!(told.status, 200, "{path}");
        assert_eq!(told.body[key].is_array(), key.ends_with('s'), "{path}: {}", told.body);
    }
    house.fake.release.notify_one();
    assert_eq!(house.get("/v1/workers").await.body, json!({"workers": []}));
    assert_eq!(house.call("HEAD", "/v1/leases").await.status, 200);
}

#[tokio::test]
async fn a_renew_takes_a_body_or_none_and_a_release_takes_a_fence() {
    let house = House::new();
    let told = house.call("POST", "/v1/leases/mine/renew").await;
    assert_eq!((told.status.as_u16(), &told.body["lease"]["id"]), (200, &json!("mine")));
    assert_eq!(
        told.body["notices"],
        json!([{"at": "1970-01-01T00:00:00.000000Z", "event": "device_unhealthy", "message": "it fell"}])
    );
    assert_eq!(house.fake.last(), "renew mine None None");
    house.post("/v1/leases/rack-1.lse_1/renew", r#"{"ttlMs":5000,"fence":7}"#).await;
    assert_eq!(house.fake.last(), "renew rack-1.lse_1 Some(5s) Some(Fence(7))");
    house.post("/v1/leases/mine/renew", r#"{"allowShorter":true}"#).await;
    assert_eq!(house.fake.last(), "renew mine None None or shorter");

    let told = house.call("DELETE", "/v1/leases/mine?fence=7").await;
    let released = json!({"leaseId": "mine", "resourceId": "pixel", "message": "Lease mine released",
        "admittedWaiter": null});
    assert_eq!(told.body, released);
    assert_eq!(house.fake.last(), "release mine Some(Fence(7))");
    let told = house.call("DELETE", "/v1/leases/wanted").await;
    assert_eq!(house.fake.last(), "release wanted None");
    assert_eq!(told.body["admittedWaiter"], "ci/job-2");
}

#[tokio::test]
async fn a_selector_in_the_query_reaches_the_coordinator() {
    let house = House::new();
    house.get("/v1/resources?select=platform%3Dandroid%2Cos%3E%3D14").await;
    assert_eq!(house.fake.last(), "resources platform=android,os>=14");
}

#[tokio::test]
async fn health_is_open_and_readiness_turns_red_with_the_reason() {
    let house = House::with(Fake::default(), 100);
    let told = house.with_token("GET", "/v1/healthz", "Bearer nonsense").await;
    assert_eq!((told.status.as_u16(), told.body), (200, json!({"ok": true})));
    let told = house.with_token("GET", "/v1/readyz", "").await;
    assert_eq!((told.status.as_u16(), told.body), (503, json!({"ready": false, "reasons": ["rebuilding"]})));
    assert_eq!(House::new().get("/v1/readyz").await.status, 200);
}

#[tokio::test]
async fn a_token_is_made_shown_once_used_and_revoked() {
    let house = House::new();
    let told = house.post("/v1/tokens", r#"{"name":"night","role":"agent"}"#).await;
    assert_eq!(told.status, 201);
    let bearer = format!("Bearer {}", told.body["secret"].as_str().unwrap());
    let id = told.body["token"]["id"].as_str().unwrap();
    assert_eq!(told.body["token"]["role"], "agent");
    let leases = house.with_token("GET", "/v1/leases", &bearer).await;
    assert_eq!(leases.body["leases"][0]["holderId"], "night");
    let list = house.get("/v1/tokens").await.body.to_string();
    assert!(list.contains(id) && !list.contains("bth_"), "{list}");

    let revoked = house.call("DELETE", &format!("/v1/tokens/{id}")).await;
    assert!(revoked.body["token"]["revokedAt"].is_string(), "{revoked:?}");
    assert_eq!(house.with_token("GET", "/v1/leases", &bearer).await.code(), Code::Unauthenticated);
}
