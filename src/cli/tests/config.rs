use serde_json::{Value, json};

use super::Ran;
use super::node::{Node, Say};

fn reloaded(body: Value) -> impl Fn(usize, &str) -> Say {
    move |_, _| Say::Json(200, json!({ "reload": body.clone() }))
}

#[tokio::test]
async fn a_reload_says_what_has_changed_on_a_line_of_its_own() {
    let many: Vec<String> = (1..=23).map(|n| format!("rack-1/r{n}")).collect();
    let node = Node::new(reloaded(json!({
        "added": many, "changed": ["rack-1/a"], "gone": ["rack-1/b"], "rules": ["lease.max_ttl", "exec.timeout"],
        "needsRestart": ["gateway.api"], "aWordOfANewerVersion": 1
    })))
    .await;
    let ran = node.run(&["config", "reload"]).await;
    insta::assert_snapshot!(ran.out, @"
    added: rack-1/r1, rack-1/r2, rack-1/r3, rack-1/r4, rack-1/r5, rack-1/r6, rack-1/r7, rack-1/r8, rack-1/r9, rack-1/r10, rack-1/r11, rack-1/r12, rack-1/r13, rack-1/r14, rack-1/r15, rack-1/r16, rack-1/r17, rack-1/r18, rack-1/r19, rack-1/r20 and 3 more
    changed: rack-1/a
    gone: rack-1/b
    in force: exec.timeout, lease.max_ttl
    only after a restart: gateway.api
    ");
    assert_eq!((ran.exit, ran.err.as_str()), (0, ""));
    assert_eq!(node.asked(), ["POST /v1/config/reload"]);
    let ran = node.run(&["config", "reload", "--json"]).await;
    let shape: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(shape["reload"]["added"].as_array().unwrap().len(), 23);
    assert_eq!(shape["reload"]["needsRestart"], json!(["gateway.api"]));
}

#[tokio::test]
async fn a_reload_that_changes_nothing_says_so_and_one_that_is_refused_ends_with_its_code() {
    let nothing = json!({ "added": [], "changed": [], "gone": [], "rules": [], "needsRestart": [] });
    let same = Node::new(reloaded(nothing)).await;
    let ran = same.run(&["config", "reload"]).await;
    assert_eq!(ran, Ran { exit: 0, out: "nothing has changed\n".to_owned(), err: String::new() });
    let message = "lab.toml:3: unknown key leese; did you mean lease?; nothing has changed";
    let bad =
        Node::new(move |_, _| Say::Json(400, json!({"error": {"code": "BAD_REQUEST", "message": message}}))).await;
    let ran = bad.run(&["config", "reload"]).await;
    assert_eq!(ran, Ran { exit: 2, out: String::new(), err: format!("error BAD_REQUEST: {message}\n") });
}
