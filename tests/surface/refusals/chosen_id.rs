//! Lease ids that requesters choose: the examples of the seed, on a worker and through a gateway (SPEC §1, §9 Names).

use serde_json::json;

use super::{BOTH, acquire, fleet, hold, id, refused_as, request};

#[test]
fn a_chosen_id_is_taken_exactly_as_it_is_or_refused() {
    let lab = fleet();
    let (longest, too_long) = ("a".repeat(64), "a".repeat(65));
    for node in BOTH {
        let door = lab.door(node);
        for good in ["myid", "ad-7f3a_01", "lse_123", &longest, "0", "MyID"] {
            let told = acquire(&door, "pixel-a", json!({ "leaseId": good })).expect(201);
            assert_eq!(told.body["lease"]["id"], good, "bare, also through a gateway");
            assert_eq!(told.body["lease"]["idChosenByRequester"], true);
            door.post_text(&format!("/v1/leases/{good}/renew"), "").expect(200);
            let shown = door.get(&format!("/v1/leases/{good}")).expect(200);
            assert_eq!(shown.body["lease"]["resourceId"], "pixel-a");
            door.delete(&format!("/v1/leases/{good}")).expect(200);
        }
        for bad in ["", &too_long, "w1.myid", "my id", "-s", "--help", "_x", "ząb", "a/b", "a\n"] {
            for told in [
                acquire(&door, "pixel-a", json!({ "leaseId": bad })),
                request(&door, json!({ "resourceId": "pixel-a", "leaseId": bad })),
            ] {
                let told = told.refused("BAD_REQUEST", 400);
                assert_eq!(told.details()["field"], "leaseId", "{bad:?}");
                assert!(told.message().contains("first a letter or digit; no dot"), "{}", told.body);
            }
        }
    }
    for bad in ["", &too_long, "w1.myid", "my id", "-s", "--help", "_x", "ząb"] {
        let argument = format!("--lease-id={bad}");
        let said = lab.berth(&["lease", "acquire", "pixel-a", &argument]).failed(2);
        assert!(said.starts_with("error") && said.contains("--lease-id"), "{bad:?}: {said}");
    }
    assert_eq!(lab.door("rack-1").get("/v1/leases").body, json!({ "leases": [] }));
}

#[test]
fn without_a_chosen_id_a_lease_has_a_generated_one_with_its_worker_s_name_at_the_gateway() {
    let lab = fleet();
    let at_gateway = hold(&lab.door("gateway"), "pixel-a", "r1");
    let inner = id(&at_gateway).strip_prefix("rack-1.lse_").expect("the worker's name before the worker's id");
    assert_eq!((inner.len(), at_gateway["idChosenByRequester"].as_bool()), (36, Some(false)), "a UUID");
    assert_eq!(at_gateway["worker"], json!({ "id": "rack-1" }));
    let at_worker = hold(&lab.door("rack-1"), "pixel-b", "r1");
    assert!(id(&at_worker).starts_with("lse_"), "{at_worker}");
    assert_eq!(at_worker.get("worker"), None);
}

#[test]
fn an_id_that_is_in_use_is_taken_and_case_matters() {
    let lab = fleet();
    for (node, other) in [("gateway", "bench"), ("rack-1", "pixel-b")] {
        let door = lab.door(node);
        let first = acquire(&door, "pixel-a", json!({ "requester": "r1", "leaseId": "myid" })).expect(201).body;
        // Another resource, at the gateway one of another worker: the name is taken all the same.
        for told in [
            acquire(&door, other, json!({ "requester": "r2", "leaseId": "myid" })),
            request(&door, json!({ "requester": "r2", "leaseId": "myid", "resourceId": other })),
        ] {
            let told = told.refused("LEASE_ID_TAKEN", 409);
            assert_eq!(told.message(), "lease ID myid is already in use");
            assert_eq!(told.details(), &json!({ "leaseId": "myid" }), "and nothing about whose");
        }
        acquire(&door, other, json!({ "requester": "r2", "leaseId": "MyID" })).expect(201);
        door.delete("/v1/leases/MyID").expect(200);
        assert_eq!(door.get("/v1/leases/myid").body["lease"]["fence"], first["lease"]["fence"]);
        door.delete("/v1/leases/myid").expect(200);
        acquire(&door, other, json!({ "requester": "r2", "leaseId": "myid" })).expect(201);
        door.delete("/v1/leases/myid").expect(200);
    }
}

#[test]
fn the_command_says_which_id_is_taken_and_ends_with_13() {
    let lab = fleet();
    let said = lab.berth(&["lease", "--platform", "android", "--lease-id", "ad-7f3a"]).ok();
    assert!(said.starts_with("leased ad-7f3a pixel-"), "{said}");
    let other = ["lease", "--platform", "android", "--lease-id", "ad-7f3a", "--requester", "other"];
    let said = lab.berth(&other).failed(13);
    assert_eq!(said.lines().next(), Some("error LEASE_ID_TAKEN: lease ID ad-7f3a is already in use"));
    let (_, hint) = refused_as("LEASE_ID_TAKEN", &said);
    assert!(hint.contains("`berth lease release ad-7f3a`"), "{said}");
    let said = lab.berth(&[&["--json"], &other[..]].concat()).failed(13);
    let line: serde_json::Value = serde_json::from_str(said.trim_end()).expect("one line of JSON");
    assert_eq!(
        line,
        json!({ "error": {
            "code": "LEASE_ID_TAKEN",
            "message": "lease ID ad-7f3a is already in use",
            "details": { "leaseId": "ad-7f3a" },
        } })
    );
}

#[test]
fn an_id_that_a_worker_s_own_client_holds_is_taken_through_the_gateway_too() {
    let lab = fleet();
    acquire(&lab.door("rack-1"), "pixel-a", json!({ "leaseId": "local" })).expect(201);
    let door = lab.door("gateway");
    acquire(&door, "pixel-b", json!({ "leaseId": "local" })).refused("LEASE_ID_TAKEN", 409);
    let by_selector = json!({ "select": "platform=android", "leaseId": "local" });
    request(&door, by_selector).refused("LEASE_ID_TAKEN", 409);
    // What was refused holds nothing: the same requester gets a lease under another name, and elsewhere under this.
    acquire(&door, "pixel-b", json!({ "leaseId": "mine" })).expect(201);
    door.delete("/v1/leases/mine").expect(200);
    acquire(&door, "bench", json!({ "leaseId": "local" })).expect(201);
}
