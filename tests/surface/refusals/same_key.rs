//! Idempotency keys: the same attempt again is the same answer, another one under the same key is refused (SPEC §2).

use serde_json::{Value, json};

use super::{BOTH, acquire, fleet, hold, id, refused_as, request};

/// `body` under the key `k`.
fn keyed(body: Value) -> Value {
    let mut body = body;
    body["idempotencyKey"] = json!("k");
    body
}

#[test]
fn the_same_attempt_again_gets_the_same_lease_whatever_its_terms() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let first = acquire(&door, "pixel-a", keyed(json!({ "ttlMs": 60_000 }))).expect(201).body["lease"].take();
        let other_terms = keyed(json!({ "ttlMs": 120_000, "priority": 5, "note": "again", "mode": "exclusive" }));
        let again = acquire(&door, "pixel-a", other_terms).expect(201).body["lease"].take();
        for key in ["id", "fence", "requestId", "ttlMs", "grantedAt", "holderId"] {
            assert_eq!(again[key], first[key], "{key}");
        }
        let path = format!("/v1/leases/{}", id(&first));
        door.delete(&path).expect(200);
        // The stored answer, also when the lease has ended: a late retry never makes a second one.
        let late = acquire(&door, "pixel-a", keyed(json!({}))).expect(201).body["lease"].take();
        assert_eq!((&late["id"], &late["fence"]), (&first["id"], &first["fence"]));
        door.get(&path).refused("UNKNOWN_LEASE", 404);
        assert_eq!(door.get("/v1/leases").body, json!({ "leases": [] }));
    }
}

#[test]
fn a_request_by_selector_comes_back_under_its_key_and_under_its_own_id() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let ask = keyed(json!({ "select": "platform=android, os=15" }));
        let first = request(&door, ask).expect(201);
        let location = first.header("location").expect("where it can be read").to_owned();
        // The same set of terms, written another way.
        let again = request(&door, keyed(json!({ "select": "os=15,platform=android" }))).expect(201);
        assert_eq!(again.body["request"]["id"], first.body["request"]["id"]);
        assert_eq!(again.body["request"]["lease"]["id"], first.body["request"]["lease"]["id"]);
        let read = door.get(&location).expect(200).body["request"].take();
        assert_eq!((&read["id"], read["state"].as_str()), (&first.body["request"]["id"], Some("granted")));
        door.delete(&format!("/v1/leases/{}", id(&read["lease"]))).expect(200);
    }
}

#[test]
fn another_attempt_under_the_same_key_is_a_conflict() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let table = [
            (json!({ "leaseId": "myid" }), json!({ "leaseId": "other" })),
            (json!({ "leaseId": "myid" }), json!({})),
            (json!({}), json!({ "leaseId": "myid" })),
            (json!({}), json!({ "mode": "shared" })),
        ];
        for (number, (first, second)) in table.into_iter().enumerate() {
            let with = |mut body: Value| {
                body["requester"] = json!(format!("r{number}"));
                keyed(body)
            };
            let lease = acquire(&door, "pixel-a", with(first)).expect(201).body["lease"].take();
            let told = acquire(&door, "pixel-a", with(second)).refused("IDEMPOTENCY_CONFLICT", 409);
            assert!(told.message().contains("key"), "{}", told.body);
            acquire(&door, "pixel-b", with(json!({}))).refused("IDEMPOTENCY_CONFLICT", 409);
            let by_selector = json!({ "select": "platform=android" });
            request(&door, with(by_selector)).refused("IDEMPOTENCY_CONFLICT", 409);
            door.delete(&format!("/v1/leases/{}", id(&lease))).expect(200);
        }
    }
    let attempt = |select: &str| {
        let key = ["--idempotency-key", "k", "--requester", "job-1"];
        lab.berth(&[&["lease", "--select", select][..], &key].concat())
    };
    let first = attempt("os=13").ok();
    assert_eq!(attempt("os=13").ok(), first);
    refused_as("IDEMPOTENCY_CONFLICT", &attempt("os=15").failed(2));
}

#[test]
fn a_key_is_its_requester_s_own_and_a_refusal_leaves_it_free() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let lease = hold(&door, "pixel-a", "r1");
        let ask = |requester: &str| keyed(json!({ "requester": requester }));
        acquire(&door, "pixel-a", ask("r2")).refused("RESOURCE_UNAVAILABLE", 409);
        acquire(&door, "toaster", ask("r2")).refused("UNKNOWN_RESOURCE", 404);
        let none = json!({ "requester": "r2", "select": "platform=ios" });
        request(&door, keyed(none)).refused("NO_MATCHING_RESOURCE", 422);
        door.delete(&format!("/v1/leases/{}", id(&lease))).expect(200);
        let second = acquire(&door, "pixel-a", ask("r2")).expect(201).body["lease"].take();
        let third = acquire(&door, "pixel-b", ask("r3")).expect(201).body["lease"].take();
        assert_ne!(second["id"], third["id"]);
        for lease in [&second, &third] {
            door.delete(&format!("/v1/leases/{}", id(lease))).expect(200);
        }
    }
}
