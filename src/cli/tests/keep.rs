use serde_json::{Value, json};

use super::Ran;
use super::node::{Node, Say};
use crate::client::fake;

const KEEP: [&str; 4] = ["lease", "--platform", "android", "--keep"];
const LEASED: &str = "leased mine pixel-8-a until 2999-01-01T00:00:00Z\n";

/// A lease with a short width, which ends so long after the answer.
fn lease(expires_in_ms: u64) -> Value {
    let mut lease = fake::lease("mine", "pixel-8-a");
    lease["ttlMs"] = json!(60);
    lease["expiresAt"] = json!("2999-01-01T00:00:00.000000Z");
    lease["expiresInMs"] = json!(expires_in_ms);
    lease
}

fn granted(expires_in_ms: u64) -> Say {
    Say::Json(201, fake::request("granted", &json!({ "lease": lease(expires_in_ms) })))
}

fn renewed(notices: &Value) -> Say {
    Say::Json(200, json!({"lease": lease(60_000), "notices": notices}))
}

fn refused(status: u16, code: &str, details: &Value) -> Say {
    Say::Json(status, fake::error(code, "no active lease mine", details))
}

fn released() -> Say {
    let body = json!({"leaseId": "mine", "resourceId": "pixel-8-a", "message": "Lease mine released",
        "admittedWaiter": null});
    Say::Json(200, body)
}

#[tokio::test]
async fn a_kept_lease_is_renewed_with_its_fence_and_released_on_ctrl_c() {
    let notice = json!([{"at": "2026-01-01T00:00:00.000000Z", "event": "device_unhealthy", "message": "it fell"}]);
    let node = Node::new(move |number, _| match number {
        0 => granted(60_000),
        1 => renewed(&notice),
        2 => renewed(&json!([])),
        3 => Say::Silence,
        _ => released(),
    })
    .await;
    let ran = node.run(&KEEP).await;
    let err = "notice: 2026-01-01T00:00:00Z it fell\nLease mine released\n".to_owned();
    assert_eq!(ran, Ran { exit: 0, out: LEASED.to_owned(), err });
    for number in 1..=3 {
        assert_eq!(node.asked()[number], r#"POST /v1/leases/mine/renew {"fence":1767225600000}"#);
    }
    assert_eq!(node.asked()[4], "DELETE /v1/leases/mine?fence=1767225600000");
}

#[tokio::test]
async fn a_lease_that_is_over_ends_the_command_with_14() {
    let node = Node::new(|number, _| match number {
        0 => granted(60_000),
        _ => refused(404, "UNKNOWN_LEASE", &json!({"reason": "admin"})),
    })
    .await;
    let err = "error LEASE_LOST: lease mine is lost: no active lease mine\n".to_owned();
    assert_eq!(node.run(&KEEP).await, Ran { exit: 14, out: LEASED.to_owned(), err });
}

#[tokio::test]
async fn what_may_pass_is_tried_again() {
    let node = Node::new(|number, _| match number {
        0 => granted(60_000),
        1 => Say::Broken,
        2 => refused(503, "WORKER_UNREACHABLE", &json!({})),
        3 => refused(404, "UNKNOWN_LEASE", &json!({"rebuilding": true})),
        4 => renewed(&json!([])),
        5 => Say::Silence,
        _ => released(),
    })
    .await;
    let ran = node.run(&KEEP).await;
    assert_eq!((ran.exit, ran.out.as_str()), (0, LEASED));
    assert!(ran.err.contains("lease mine is not renewed yet (WORKER_UNREACHABLE"), "{}", ran.err);
    assert!(ran.err.ends_with("lease mine is renewed again\nLease mine released\n"), "{}", ran.err);
}

#[tokio::test]
async fn a_lease_whose_deadline_passes_unrenewed_is_lost() {
    let node = Node::new(|number, _| match number {
        0 => granted(100),
        _ => Say::Broken,
    })
    .await;
    let ran = node.run(&KEEP).await;
    assert_eq!((ran.exit, ran.out.as_str()), (14, LEASED));
    let last = ran.err.lines().last().unwrap();
    assert!(last.starts_with("error LEASE_LOST: lease mine is lost: its deadline has passed"), "{last}");
}

#[tokio::test]
async fn a_release_that_is_not_answered_is_tried_again() {
    let node = Node::new(|number, _| match number {
        0 => granted(60_000),
        1 => Say::Silence,
        2 => Say::Broken,
        3 => refused(503, "WORKER_UNREACHABLE", &json!({})),
        _ => released(),
    })
    .await;
    assert_eq!(node.run(&KEEP).await.exit, 0);
    assert_eq!(node.asked().len(), 5);
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_on_the_way_is_a_release() {
    for (details, exit) in [(json!({"reason": "explicit"}), 0), (json!({}), 0), (json!({"reason": "expired"}), 14)] {
        let node = Node::new(move |number, _| match number {
            0 => granted(60_000),
            1 => Say::Silence,
            2 => Say::Broken,
            _ => refused(404, "UNKNOWN_LEASE", &details),
        })
        .await;
        let ran = node.run(&KEEP).await;
        assert_eq!((ran.exit, ran.err.contains("Lease mine released\n")), (exit, exit == 0), "{}", ran.err);
    }
}

#[tokio::test]
async fn a_lease_that_may_be_shorter_is_renewed_up_to_the_booking() {
    let node = Node::new(move |number, _| match number {
        0 => granted(60_000),
        1 => renewed(&json!([])),
        2 => Say::Silence,
        _ => released(),
    })
    .await;
    let ran = node.run(&[&KEEP[..], &["--allow-shorter"]].concat()).await;
    assert_eq!(ran.exit, 0, "{}", ran.err);
    assert_eq!(node.asked()[1], r#"POST /v1/leases/mine/renew {"fence":1767225600000,"allowShorter":true}"#);
}
