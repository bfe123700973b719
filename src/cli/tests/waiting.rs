use serde_json::{Value, json};

use super::node::{Node, Say};
use super::{REQUEST, Ran};
use crate::client::fake;

const LEASED: &str = "leased mine pixel-8-a until 2026-01-01T00:15:00Z\n";
const ANDROID: [&str; 3] = ["lease", "--platform", "android"];

fn waiting(position: usize, ticket: &str) -> Value {
    let place = json!({"position": position, "waitingFor": "leased", "until": "2026-01-01T00:10:00.000000Z",
        "ticket": ticket});
    fake::request("waiting", &place)
}

fn granted() -> Value {
    fake::request("granted", &json!({"lease": fake::lease("mine", "pixel-8-a")}))
}

fn failed(code: &str) -> Value {
    fake::request("failed", &json!({"error": {"code": code, "message": "no"}}))
}

fn refused(status: u16, code: &str, details: &Value) -> Say {
    Say::Json(status, fake::error(code, "no", details))
}

#[tokio::test]
async fn a_request_is_followed_until_it_is_settled_and_tells_its_place_when_that_changes() {
    let node = Node::new(|number, _| match number {
        0 => Say::Json(201, waiting(2, "t1")),
        1 | 2 => Say::Json(200, waiting(2, "t1")),
        3 => Say::Json(200, fake::request("waiting", &json!({"position": 1, "waitingFor": "reserved"}))),
        _ => Say::Json(200, granted()),
    })
    .await;
    let ran = node.run(&ANDROID).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, LEASED));
    insta::assert_snapshot!(ran.err, @r"
    lease request req_01900000-0000-7000-8000-000000000000 waits since 2026-01-01T00:00:00Z
    position 2, leased until 2026-01-01T00:10:00Z
    position 1, reserved
    ");
    let asked = node.asked();
    assert_eq!(asked.len(), 5);
    assert!(asked[1..].iter().all(|asked| *asked == format!("GET /v1/lease-requests/{REQUEST}?wait=1")), "{asked:?}");
    let key = node.body(0)["idempotencyKey"].as_str().unwrap().to_owned();
    assert!(key.starts_with("cli-"), "{key}");
}

#[tokio::test]
async fn a_request_that_fails_later_is_printed_as_its_refusal() {
    for (code, exit) in [("NO_CAPACITY", 11), ("QUEUE_TIMEOUT", 10)] {
        let node = Node::new(move |number, _| match number {
            0 => Say::Json(201, waiting(1, "t1")),
            _ => Say::Json(200, failed(code)),
        })
        .await;
        let ran = node.run(&["lease", "--platform", "android", "--json"]).await;
        let line = format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"no\"}}}}\n");
        assert_eq!(ran, Ran { exit, out: String::new(), err: line });
    }
}

#[tokio::test]
async fn after_a_restart_it_asks_again_with_the_ticket_under_the_same_key() {
    type Meanwhile = fn() -> Say;
    let forgotten: Meanwhile = || refused(404, "UNKNOWN_LEASE_REQUEST", &json!({}));
    let restarted: Meanwhile = || Say::Json(200, failed("NODE_RESTARTED"));
    for meanwhile in [forgotten, restarted] {
        for key in [None, Some("mine")] {
            let node = Node::new(move |number, _| match number {
                0 => Say::Json(201, waiting(2, "t1")),
                1 => Say::Broken,
                2 => refused(503, "STOPPING", &json!({})),
                3 => meanwhile(),
                4 => Say::Broken,
                _ => Say::Json(201, granted()),
            })
            .await;
            let mut line = ANDROID.to_vec();
            line.extend(key.iter().flat_map(|key| ["--idempotency-key", key]));
            let ran = node.run(&line).await;
            assert_eq!((ran.exit, ran.out.as_str()), (0, LEASED), "{}", ran.err);
            assert!(ran.err.contains("the node was restarted; asking again"), "{}", ran.err);
            let first = node.body(0);
            let mut again = first.clone();
            again["ticket"] = json!("t1");
            assert!(first.get("ticket").is_none());
            assert_eq!((node.body(4), node.body(5)), (again.clone(), again));
            assert!(key.is_none_or(|key| first["idempotencyKey"] == key));
        }
    }
}

#[tokio::test]
async fn the_bound_of_the_wait_counts_from_the_first_time() {
    let node = Node::new(|number, _| match number {
        0 => Say::Json(201, waiting(2, "t1")),
        1 => Say::Json(200, failed("NODE_RESTARTED")),
        _ => Say::Json(201, granted()),
    })
    .await;
    let line = ["lease", "--platform", "android", "--timeout", "10s"];
    assert_eq!(node.run(&line).await.exit, 0);
    assert_eq!(node.body(0)["timeoutMs"], 10_000);
    let left = node.body(2)["timeoutMs"].as_u64().unwrap();
    assert!((1..10_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_node_that_stays_away_ends_the_wait_with_1_and_a_hint() {
    let node = Node::new(|number, _| match number {
        0 => Say::Json(201, waiting(2, "t1")),
        _ => Say::Broken,
    })
    .await;
    let ran = node.run(&ANDROID).await;
    assert_eq!((ran.exit, ran.out.as_str()), (1, ""));
    assert!(ran.err.contains("error UNANSWERED: no answer from "), "{}", ran.err);
    assert!(ran.err.ends_with("hint: see whether it was granted with `berth lease list`\n"), "{}", ran.err);
}

#[tokio::test]
async fn a_node_that_stops_at_the_first_question_is_not_waited_for() {
    let node = Node::new(|_, _| refused(503, "STOPPING", &json!({}))).await;
    assert_eq!(node.run(&ANDROID).await.exit, 1);
    assert_eq!(node.asked().len(), 1);
}

#[tokio::test]
async fn ctrl_c_cancels_the_request_that_waits() {
    let node = Node::new(|number, question| match (number, question) {
        (0, _) => Say::Json(201, waiting(2, "t1")),
        (1, _) => Say::Silence,
        _ => Say::Nothing,
    })
    .await;
    let ran = node.run(&ANDROID).await;
    assert_eq!((ran.exit, ran.out.as_str()), (130, ""));
    let last = format!("error INTERRUPTED: interrupted; cancelled lease request {REQUEST}\n");
    assert!(ran.err.ends_with(&last), "{}", ran.err);
    assert_eq!(node.asked()[2], format!("DELETE /v1/lease-requests/{REQUEST}"));
}

#[tokio::test]
async fn ctrl_c_gives_back_what_was_granted_just_then() {
    let released = json!({"leaseId": "mine", "resourceId": "pixel-8-a", "message": "Lease mine released",
        "admittedWaiter": null});
    let node = Node::new(move |number, _| match number {
        0 => Say::Json(201, waiting(2, "t1")),
        1 => Say::Silence,
        2 => refused(409, "REQUEST_NOT_CANCELLABLE", &json!({"leaseId": "mine"})),
        3 => Say::Json(200, granted()),
        _ => Say::Json(200, released.clone()),
    })
    .await;
    let ran = node.run(&ANDROID).await;
    assert_eq!(ran.exit, 130);
    assert!(ran.err.ends_with("error INTERRUPTED: interrupted; Lease mine released\n"), "{}", ran.err);
    assert_eq!(node.asked()[4], "DELETE /v1/leases/mine?fence=1767225600000");
}

#[tokio::test]
async fn a_request_is_cancelled_by_its_id() {
    let node = Node::new(|_, _| Say::Nothing).await;
    let ran = node.run(&["lease", "cancel", REQUEST]).await;
    assert_eq!((ran.exit, ran.out), (0, format!("cancelled lease request {REQUEST}\n")));
    let ran = node.run(&["lease", "cancel", REQUEST, "--json"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape, json!({"requestId": REQUEST, "state": "cancelled"}));
}

fn pending(position: usize) -> Value {
    json!({"status": "pending", "resourceId": "pixel-8-a", "mode": "exclusive", "waitingPosition": position,
        "ticket": "t1"})
}

fn active() -> Value {
    json!({"status": "active", "lease": fake::lease("mine", "pixel-8-a")})
}

#[tokio::test]
async fn an_acquire_that_joins_the_waiting_room_says_its_place_and_ends() {
    let node = Node::new(|_, _| Say::Json(202, pending(3))).await;
    let line = ["lease", "acquire", "pixel-8-a", "--on-conflict", "join-waiting-room"];
    let ran = node.run(&line).await;
    assert_eq!(ran, Ran { exit: 0, out: "pending pixel-8-a position 3\n".to_owned(), err: String::new() });
    assert_eq!(node.body(0), json!({"onConflict": "join-waiting-room"}));
    let ran = node.run(&[&line[..], &["--json"]].concat()).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), pending(3));
}

#[tokio::test]
async fn a_poll_asks_until_it_is_its_turn() {
    let node = Node::new(|number, _| match number {
        0 | 1 => Say::Json(202, pending(2)),
        2 => Say::Broken,
        3 => refused(503, "STOPPING", &json!({})),
        4 => Say::Json(202, pending(1)),
        _ => Say::Json(201, active()),
    })
    .await;
    let ran = node.run(&["lease", "acquire", "pixel-8-a", "--poll"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, LEASED));
    assert_eq!(ran.err, "waiting for pixel-8-a at position 2\nwaiting for pixel-8-a at position 1\n");
    let (mut first, last) = (node.body(0), node.body(5));
    assert_eq!(first["onConflict"], "join-waiting-room");
    assert!(first["idempotencyKey"].as_str().unwrap().starts_with("cli-"));
    first["ticket"] = json!("t1");
    assert_eq!(first, last);
}

#[tokio::test]
async fn a_poll_ends_with_a_refusal_that_does_not_pass_and_with_a_node_that_stays_away() {
    let node = Node::new(|number, _| match number {
        0 => Say::Json(202, pending(2)),
        _ => refused(409, "REQUESTER_ALREADY_LEASED", &json!({})),
    })
    .await;
    assert_eq!(node.run(&["lease", "acquire", "pixel-8-a", "--poll"]).await.exit, 13);
    let node = Node::new(|number, _| if number == 0 { Say::Json(202, pending(2)) } else { Say::Broken }).await;
    assert_eq!(node.run(&["lease", "acquire", "pixel-8-a", "--poll"]).await.exit, 1);
}

#[tokio::test]
async fn ctrl_c_leaves_the_waiting_room() {
    let node = Node::new(|number, question| match (number, question) {
        (0, _) => Say::Json(202, pending(2)),
        (1, _) => Say::Silence,
        _ => Say::Json(200, json!({"left": true})),
    })
    .await;
    let ran = node.run(&["lease", "acquire", "pixel-8-a", "--poll"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (130, ""));
    let last = "error INTERRUPTED: interrupted; left the waiting room of pixel-8-a\n";
    assert!(ran.err.ends_with(last), "{}", ran.err);
    assert_eq!(node.asked()[2], "DELETE /v1/resources/pixel-8-a/waiting-room/me");
}

#[tokio::test]
async fn a_request_that_waits_for_the_end_of_a_booking_says_until_when() {
    let booked = json!({"position": 1, "waitingFor": "booked", "until": "2026-01-01T00:10:00.000000Z"});
    let node = Node::new(move |number, _| match number {
        0 => Say::Json(201, fake::request("waiting", &booked)),
        _ => Say::Json(200, granted()),
    })
    .await;
    let ran = node.run(&ANDROID).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, LEASED));
    assert!(ran.err.ends_with("\nposition 1, booked until 2026-01-01T00:10:00Z\n"), "{}", ran.err);
}

#[tokio::test]
async fn a_lease_that_is_shorter_than_it_was_asked_for_says_so() {
    let mut short = fake::lease("mine", "pixel-8-a");
    short["askedTtlMs"] = json!(14_400_000);
    let node = Node::new(move |_, question| match question.split(' ').next_back().unwrap() {
        "/v1/lease-requests" => Say::Json(201, fake::request("granted", &json!({ "lease": short }))),
        "/v1/leases/mine/renew" => Say::Json(200, json!({"lease": short, "notices": []})),
        "/v1/leases/mine" => Say::Json(200, json!({ "lease": short })),
        _ => Say::Json(201, json!({"status": "active", "lease": short})),
    })
    .await;
    let cut = "until 2026-01-01T00:15:00Z (cut from 4h to fit before a booking)\n";
    for (verb, line) in [
        ("leased", &["lease", "--platform", "android", "--ttl", "4h"][..]),
        ("leased", &["lease", "acquire", "pixel-8-a", "--duration", "4h"]),
        ("renewed", &["lease", "renew", "mine", "--ttl", "4h"]),
    ] {
        let before = node.asked().len();
        let ran = node.run(&[line, &["--allow-shorter"]].concat()).await;
        assert_eq!((ran.exit, ran.out), (0, format!("{verb} mine pixel-8-a {cut}")));
        assert_eq!(node.body(before)["allowShorter"], true);
        node.run(line).await;
        assert_eq!(node.body(before + 1).get("allowShorter"), None, "an older node need not know the word");
    }
    let sheet = node.run(&["lease", "show", "mine"]).await.out;
    assert!(sheet.contains("ttl          15m (cut from 4h to fit before a booking)\n"), "{sheet}");
}
