use axum::Router;
use axum::routing::{delete, get, post};
use serde_json::json;

use super::{Ran, answers, run, run_at};
use crate::client::fake;

#[tokio::test]
async fn lists_are_tables_without_borders() {
    let mut long = fake::lease("rack-2.lse_0", "bench-1");
    long["note"] = json!("nightly run");
    let leases = json!({"leases": [fake::lease("mine", "pixel-8-a"), long]});
    let mut held = fake::resource("pixel-8-a", "rack-1");
    held["state"] = json!("leased");
    held["reachable"] = json!(false);
    held["queueLength"] = json!(2);
    held["leases"] = json!([{"id": "mine", "holderId": "ci/job-17", "mode": "exclusive",
        "expiresAt": "2026-01-01T00:15:00.000000Z"}]);
    let mut out = fake::resource("bench-1", "rack-2");
    out["state"] = json!("drained");
    out["reason"] = json!("taken out by an operator");
    let resources = json!({"resources": [out, held]});
    let workers = json!([
        {"name": "rack-1", "connection": "connected", "known": true, "lastSeenAt": "2026-01-01T00:00:01.000000Z",
            "version": "0.1.0", "protocol": "1", "resources": 7, "leases": 1},
        {"name": "rack-2", "connection": "disconnected", "known": false, "resources": 0, "leases": 0},
    ]);
    let node = json!({"name": "gateway", "role": "gateway", "version": "0.1.0",
        "startedAt": "2026-01-01T00:00:00.000000Z", "ready": true});
    let counts = json!({"total": 7, "available": 5, "leased": 1, "drained": 1});
    let status = json!({"node": node, "resources": counts, "leases": 1, "waiting": 3, "workers": workers});
    let routes = Router::new()
        .route("/v1/leases", get(answers(200, leases)))
        .route("/v1/leases/{id}", get(answers(200, json!({"lease": fake::lease("mine", "pixel-8-a")}))))
        .route("/v1/resources", get(answers(200, resources)))
        .route("/v1/status", get(answers(200, status)));
    let url = fake::url_of(routes).await;
    insta::assert_snapshot!(run_at(&url, &["lease", "list"]).await.out, @r"
    LEASE         RESOURCE   WORKER  HOLDER     MODE       LEFT    UNTIL                 NOTE
    mine          pixel-8-a  rack-1  ci/job-17  exclusive  14m59s  2026-01-01T00:15:00Z
    rack-2.lse_0  bench-1    rack-1  ci/job-17  exclusive  14m59s  2026-01-01T00:15:00Z  nightly run
    ");
    insta::assert_snapshot!(run_at(&url, &["lease", "show", "mine"]).await.out, @r"
    lease        mine
    resource     pixel-8-a
    worker       rack-1
    holder       ci/job-17
    mode         exclusive
    granted      2026-01-01T00:00:00Z
    renewed      2026-01-01T00:00:00Z
    until        2026-01-01T00:15:00Z (in 14m59s)
    ttl          15m
    fence        1767225600000
    labels       model=Pixel 8,platform=android
    environment  ANDROID_SERIAL=R5
    ");
    insta::assert_snapshot!(run_at(&url, &["resource", "list"]).await.out, @r"
    RESOURCE   WORKER  STATE    REASON                    QUEUE  LABELS                  LEASES
    bench-1    rack-2  drained  taken out by an operator         os=15,platform=android
    pixel-8-a  rack-1  leased?                            2      os=15,platform=android  mine (ci/job-17)
    ");
    insta::assert_snapshot!(run_at(&url, &["status"]).await.out, @"
    node       gateway (gateway), ready
    version    0.1.0
    started    2026-01-01T00:00:00Z
    resources  7: 5 available, 1 leased, 1 drained
    leases     1
    waiting    3

    WORKER  CONNECTION    RESOURCES  LEASES  WAITING  LAST SEEN             VERSION  PROTOCOL
    rack-1  connected     7          1       0        2026-01-01T00:00:01Z  0.1.0    1
    rack-2  disconnected  ?          ?       ?
    ");
}

#[tokio::test]
async fn an_empty_list_leaves_stdout_empty() {
    let routes = Router::new().route("/v1/leases", get(answers(200, json!({"leases": []}))));
    let ran = run(routes, &["lease", "list"]).await;
    assert_eq!(ran, Ran { exit: 0, out: String::new(), err: "no leases\n".to_owned() });
}

#[tokio::test]
async fn a_waiting_room_is_a_table_and_leaving_it_says_whether_one_stood_in_it() {
    let at = "2026-01-01T00:00:00.000000Z";
    let waiter = |holder: &str, priority: f64| json!({"holderId": holder, "joinedAt": at, "lastSeen": at, "mode": "exclusive", "priority": priority});
    let room = json!({"count": 2, "resourceId": "pixel", "waiters": [waiter("ci/job-1", 2.5), waiter("ann", 0.0)]});
    let empty = json!({"count": 0, "resourceId": "bench", "waiters": []});
    let routes = Router::new()
        .route("/v1/resources/pixel/waiting-room", get(answers(200, room.clone())))
        .route("/v1/resources/bench/waiting-room", get(answers(200, empty)))
        .route("/v1/resources/pixel/waiting-room/me", delete(answers(200, json!({"left": true}))))
        .route("/v1/resources/bench/waiting-room/me", delete(answers(200, json!({"left": false}))));
    let url = fake::url_of(routes).await;
    insta::assert_snapshot!(run_at(&url, &["lease", "waiting-room", "pixel"]).await.out, @r"
    HOLDER    MODE       PRIORITY  JOINED                LAST SEEN
    ci/job-1  exclusive  2.5       2026-01-01T00:00:00Z  2026-01-01T00:00:00Z
    ann       exclusive  0         2026-01-01T00:00:00Z  2026-01-01T00:00:00Z
    ");
    let ran = run_at(&url, &["lease", "waiting-room", "pixel", "--json"]).await;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&ran.out).unwrap(), room);
    let ran = run_at(&url, &["lease", "waiting-room", "bench"]).await;
    assert_eq!(ran, Ran { exit: 0, out: String::new(), err: "nobody waits for bench\n".to_owned() });
    assert_eq!(run_at(&url, &["lease", "leave", "pixel"]).await.out, "left the waiting room of pixel\n");
    assert_eq!(run_at(&url, &["lease", "leave", "bench"]).await.out, "not in the waiting room of bench\n");
    let ran = run_at(&url, &["lease", "leave", "bench", "--json"]).await;
    assert_eq!(ran.out, "{\n  \"left\": false\n}\n");
}

#[tokio::test]
async fn a_resource_is_drained_and_undrained() {
    let mut drained = fake::resource("pixel", "rack-1");
    drained["state"] = json!("drained");
    drained["leases"] = json!([{"id": "mine", "mode": "exclusive", "expiresAt": "2026-01-01T00:15:00.000000Z"}]);
    let back = json!({"resource": fake::resource("pixel", "rack-1")});
    let drain = post(answers(200, json!({"resource": drained}))).delete(answers(200, back));
    let url = fake::url_of(Router::new().route("/v1/resources/{id}/drain", drain)).await;
    let ran = run_at(&url, &["resource", "drain", "pixel"]).await;
    let (out, err) = ("drained pixel\n".to_owned(), "still leased: mine\n".to_owned());
    assert_eq!(ran, Ran { exit: 0, out, err });
    assert_eq!(run_at(&url, &["resource", "undrain", "pixel"]).await.out, "pixel is available\n");
    let ran = run_at(&url, &["resource", "undrain", "pixel", "--json"]).await;
    let shape: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape["resource"]["state"], "available");
}

#[tokio::test]
async fn a_worker_says_how_it_stands_with_its_gateway() {
    let node = json!({"name": "rack-1", "role": "worker", "version": "0.1.0",
        "startedAt": "2026-01-01T00:00:00.000000Z", "ready": true});
    let counts = json!({"total": 7, "available": 7, "leased": 0, "drained": 0});
    let gateway = json!({"name": "gateway", "address": "10.0.0.1:7601", "connection": "refused",
        "since": "2026-01-01T00:00:01.000000Z", "reason": "the gateway refused this worker: rack-1 has another key"});
    let status = json!({"node": node, "resources": counts, "leases": 0, "waiting": 0, "gateway": gateway});
    let url = fake::url_of(Router::new().route("/v1/status", get(answers(200, status)))).await;
    let out = run_at(&url, &["status"]).await.out;
    let line = out.lines().find(|line| line.starts_with("gateway")).expect("a line about the gateway");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(
        words.join(" "),
        "gateway gateway at 10.0.0.1:7601, refused since 2026-01-01T00:00:01Z: the gateway refused this worker: rack-1 \
         has another key"
    );
}
