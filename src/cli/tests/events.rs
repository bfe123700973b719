use serde_json::{Value, json};

use super::Ran;
use super::node::{Node, Say};
use crate::client::fake;

fn page(first: u64, last: u64) -> Say {
    let events: Vec<Value> = (first..=last).map(fake::event).collect();
    Say::Json(200, json!({"events": events, "lastSeq": last}))
}

#[tokio::test]
async fn events_are_one_line_each_and_read_to_the_end_of_the_log() {
    let node = Node::new(|number, _| match number {
        0 => page(1, 1_000),
        _ => page(1_001, 1_002),
    })
    .await;
    let ran = node.run(&["events"]).await;
    assert_eq!((ran.exit, ran.out.lines().count(), ran.err.as_str()), (0, 1_002, ""));
    let line = "2026-01-01T00:00:00Z  lease.expired           fence=1002 leaseId=mine";
    assert_eq!(ran.out.lines().last().unwrap(), line);
    assert_eq!(node.asked(), ["GET /v1/events?after=0&limit=1000", "GET /v1/events?after=1000&limit=1000"]);
}

#[tokio::test]
async fn a_program_gets_one_object_with_the_number_to_go_on_after() {
    let node = Node::new(|_, _| page(8, 9)).await;
    let ran = node.run(&["--json", "events", "--since", "7", "--event", "lease.expired"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape, json!({"events": [fake::event(8), fake::event(9)], "lastSeq": 9}));
    assert_eq!(node.asked(), ["GET /v1/events?after=7&limit=1000&event=lease.expired"]);
    let none = Node::new(|_, _| Say::Json(200, json!({"events": [], "lastSeq": 9}))).await;
    let ran = none.run(&["--json", "events"]).await;
    assert_eq!(serde_json::from_str::<Value>(&ran.out).unwrap(), json!({"events": [], "lastSeq": 9}));
    let ran = none.run(&["events"]).await;
    assert_eq!(ran, Ran { exit: 0, out: String::new(), err: "no events\n".to_owned() });
    let away = Node::new(|_, _| Say::Json(403, fake::error("INSUFFICIENT_PERMISSIONS", "no", &json!({})))).await;
    let ran = away.run(&["--json", "events"]).await;
    assert_eq!((ran.exit, ran.out.as_str()), (3, ""), "nothing of the object is written before there is one");
}

#[tokio::test]
async fn a_stream_that_is_cut_off_goes_on_where_it_was() {
    let node = Node::new(|number, _| match number {
        0 => Say::Stream(format!("id: 5\n\n{}", fake::told(6))),
        1 => Say::Stream(":\n\n".to_owned()),
        2 => Say::Json(503, fake::error("STOPPING", "no", &json!({}))),
        3 => Say::Stream(fake::told(7)),
        _ => Say::Json(401, fake::error("UNAUTHENTICATED", "the token is revoked", &json!({}))),
    })
    .await;
    let ran = node.run(&["events", "--follow", "--json", "--event", "lease.expired"]).await;
    assert_eq!(ran.exit, 3);
    let seen: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen, [fake::event(6), fake::event(7)]);
    let path = "GET /v1/events/stream?event=lease.expired";
    let after = |last: &str| format!("{path} {last}").trim().to_owned();
    assert_eq!(node.asked(), [after(""), after("6"), after("6"), after("6"), after("7")]);
}

#[tokio::test]
async fn a_node_that_stays_away_ends_a_stream_with_1() {
    let node = Node::new(|number, _| if number == 0 { Say::Stream(fake::told(6)) } else { Say::Broken }).await;
    let ran = node.run(&["events", "--follow", "--since", "5"]).await;
    assert_eq!(ran.exit, 1);
    assert_eq!(ran.out, "2026-01-01T00:00:00Z  lease.expired           fence=6 leaseId=mine\n");
    assert_eq!(node.asked()[0], "GET /v1/events/stream 5");
    let away = Node::new(|_, _| Say::Broken).await;
    assert_eq!(away.run(&["events", "--follow"]).await.exit, 1);
    assert_eq!(away.asked().len(), 1, "one that was never there is not waited for");
}
