//! The table of examples, row by row.

use serde_json::{Value, json};

use crate::http::Door;
use crate::waiting::{agents, cancel, host, release, request, text};

enum Outcome {
    /// A lease with an id that the host has made.
    Generated,
    /// A lease with exactly this id.
    Lease(&'static str),
    /// No.
    Refused(&'static str, u16),
}

const BAD_REQUEST: Outcome = Outcome::Refused("BAD_REQUEST", 400);
const TAKEN: Outcome = Outcome::Refused("LEASE_ID_TAKEN", 409);
const CONFLICT: Outcome = Outcome::Refused("IDEMPOTENCY_CONFLICT", 409);

const LONGEST: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const TOO_LONG: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

struct Row {
    /// As the table says it.
    what: &'static str,
    /// What was asked before.
    before: Vec<Value>,
    asked: Value,
    outcome: Outcome,
}

/// `R` asks for a phone; more fields are merged in.
fn ask(more: Value) -> Value {
    let mut body = json!({ "requester": "R", "select": "platform=android" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn row(what: &'static str, before: Vec<Value>, asked: Value, outcome: Outcome) -> Row {
    Row { what, before, asked: ask(asked), outcome }
}

fn rows() -> Vec<Row> {
    let of_another = |more: Value| {
        let mut body = ask(more);
        body["requester"] = json!("other");
        body
    };
    let on_board = |requester: &str, id: &str| json!({ "requester": requester, "resourceId": "board", "leaseId": id });
    let keyed = |id: Option<&str>| match id {
        Some(id) => json!({ "idempotencyKey": "K", "leaseId": id }),
        None => json!({ "idempotencyKey": "K" }),
    };
    let mut rows = vec![row("none", vec![], json!({}), Outcome::Generated)];
    let good = ["myid", "ad-7f3a_01", "lse_123", LONGEST];
    rows.extend(good.map(|id| row(id, vec![], json!({ "leaseId": id }), Outcome::Lease(id))));
    let bad = ["", TOO_LONG, "w1.myid", "my id", "-s", "--help", "_x", "ząb"];
    rows.extend(bad.map(|id| row(id, vec![], json!({ "leaseId": id }), BAD_REQUEST)));
    let myid = || json!({ "leaseId": "myid" });
    rows.extend([
        row(
            "MyID while myid is active",
            vec![of_another(myid())],
            json!({ "leaseId": "MyID" }),
            Outcome::Lease("MyID"),
        ),
        row("myid while a lease myid is active", vec![of_another(myid())], myid(), TAKEN),
        row(
            "myid while a request for myid is waiting",
            vec![on_board("holder", "held"), on_board("other", "myid")],
            myid(),
            TAKEN,
        ),
        row(
            "key K first with myid, retried with other",
            vec![ask(keyed(Some("myid")))],
            keyed(Some("other")),
            CONFLICT,
        ),
        row("key K first with myid, retried with none", vec![ask(keyed(Some("myid")))], keyed(None), CONFLICT),
        row("key K first with none, retried with myid", vec![ask(keyed(None))], keyed(Some("myid")), CONFLICT),
    ]);
    for id in ["myid", "other"] {
        let outcome = Outcome::Refused("REQUESTER_ALREADY_LEASED", 409);
        rows.push(row(
            "R holds a lease and asks again with any leaseId",
            vec![ask(myid())],
            json!({ "leaseId": id }),
            outcome,
        ));
    }
    rows
}

/// Gives everything back.
fn clear(door: &Door) {
    for waiting in door.get("/v1/lease-requests").expect(200).body["requests"].as_array().unwrap() {
        cancel(door, waiting).expect(204);
    }
    for lease in door.get("/v1/leases").expect(200).body["leases"].as_array().unwrap() {
        release(door, &text(&lease["id"]));
    }
}

#[test]
fn each_example_of_a_lease_id_comes_out_as_the_table_says() {
    for Row { what, before, asked, outcome } in rows() {
        // A host of its own: keys outlive what they stood for.
        let lab = host("");
        let [ci] = agents(&lab, ["ci"]);
        for body in before {
            request(&ci, body).expect(201);
        }
        let told = request(&ci, asked);
        match outcome {
            Outcome::Refused(code, status) => {
                assert_eq!((told.code(), told.status), (code, status), "{what}: {}", told.body);
                if code == "BAD_REQUEST" {
                    assert_eq!(told.details()["field"], "leaseId", "{what}");
                }
            }
            Outcome::Generated => {
                let lease = &told.expect(201).body["request"]["lease"];
                let uuid = text(&lease["id"]).strip_prefix("lse_").expect("as ever").to_owned();
                assert_eq!((uuid.len(), &lease["idChosenByRequester"]), (36, &json!(false)), "{what}: {lease}");
            }
            Outcome::Lease(id) => {
                let lease = &told.expect(201).body["request"]["lease"];
                assert_eq!(
                    (&lease["id"], &lease["idChosenByRequester"]),
                    (&json!(id), &json!(true)),
                    "{what}: {lease}"
                );
                ci.post_text(&format!("/v1/leases/{id}/renew"), "").expect(200);
                release(&ci, id);
            }
        }
        clear(&ci);
    }
}
