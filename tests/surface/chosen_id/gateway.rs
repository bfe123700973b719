//! The lines of the same document that begin with "through a gateway", with a gateway and workers of their own each.
//! What no client can bring about is in the cluster tests and beside the routing table.

use serde_json::{Value, json};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::waiting::{acquire, cancel, events, outcome, request, text, wait};

fn fleet() -> Lab {
    Lab::apart(FLEET, &["gateway", "rack-1", "rack-2"])
}

/// Doors of new agents at the gateway.
fn agents<const N: usize>(lab: &Lab, names: [&str; N]) -> [Door; N] {
    names.map(|name| {
        let made = lab.door("gateway").post("/v1/tokens", &json!({ "name": name, "role": "agent" })).expect(201);
        Door::tcp(lab.port("gateway")).with_token(made.body["secret"].as_str().expect("the secret is shown once"))
    })
}

/// The refusals of a requester, once there are so many. What a gateway tells of itself comes in its order, a little
/// later: whatever came before them is in the log, too.
fn rejected(door: &Door, count: usize) -> Vec<Value> {
    eventually("the refusals are told", BOUND, || {
        let told = events(door, "lease.rejected");
        (told.len() >= count).then_some(told)
    })
}

/// How often a worker has said each of these of itself.
fn heard(lab: &Lab, worker: &str) -> [usize; 3] {
    ["lease.requested", "lease.granted", "lease.declined"].map(|kind| events(&lab.door(worker), kind).len())
}

/// The workers that lease requests went to.
fn dispatched(door: &Door) -> Vec<Value> {
    events(door, "request.dispatched").into_iter().map(|event| event["payload"]["worker"].clone()).collect()
}

#[test]
fn through_a_gateway_a_caller_chosen_id_comes_back_with_no_worker_prefix() {
    let lab = fleet();
    let [by_name, by_selector] = agents(&lab, ["by-name", "by-selector"]);
    let named = acquire(&by_name, "bench", json!({ "leaseId": "ad-7f3a" })).expect(201).body["lease"].take();
    let asked = json!({ "select": "platform=android", "leaseId": "lse_123" });
    let selected = request(&by_selector, asked).expect(201).body["request"]["lease"].take();
    for (lease, id, worker) in [(named, "ad-7f3a", "rack-2"), (selected, "lse_123", "rack-1")] {
        assert_eq!((&lease["id"], &lease["idChosenByRequester"]), (&json!(id), &json!(true)), "{lease}");
        assert_eq!(lease["worker"], json!({ "id": worker }));
        let there = lab.door(worker).get(&format!("/v1/leases/{id}")).expect(200);
        assert_eq!(there.body["lease"]["fence"], lease["fence"], "its worker knows it by the same id");
    }
}

#[test]
fn through_a_gateway_a_request_without_lease_id_gets_worker_lse_as_today() {
    let lab = fleet();
    let [by_name, by_selector] = agents(&lab, ["by-name", "by-selector"]);
    let named = acquire(&by_name, "bench", json!({})).expect(201).body["lease"].take();
    let asked = json!({ "select": "platform=android" });
    let selected = request(&by_selector, asked).expect(201).body["request"]["lease"].take();
    for (lease, worker) in [(named, "rack-2"), (selected, "rack-1")] {
        let id = text(&lease["id"]);
        let there = id.strip_prefix(&format!("{worker}.")).unwrap_or_else(|| panic!("{id} has no worker"));
        let uuid = there.strip_prefix("lse_").unwrap_or_else(|| panic!("{id} is not as ever"));
        assert_eq!((uuid.len(), &lease["idChosenByRequester"]), (36, &json!(false)), "{lease}");
        lab.door(worker).get(&format!("/v1/leases/{there}")).expect(200);
        lab.door("gateway").post_text(&format!("/v1/leases/{id}/renew"), "").expect(200);
    }
}

#[test]
fn through_a_gateway_renew_and_release_by_a_caller_chosen_id_reach_the_right_worker() {
    let lab = fleet();
    let [one, two] = agents(&lab, ["one", "two"]);
    acquire(&one, "pixel-a", json!({ "leaseId": "first" })).expect(201);
    acquire(&two, "bench", json!({ "leaseId": "second" })).expect(201);
    two.post("/v1/leases/second/renew", &json!({ "ttlMs": 7_200_000 })).expect(200);
    let width = |worker: &str, id: &str| {
        lab.door(worker).get(&format!("/v1/leases/{id}")).expect(200).body["lease"]["ttlMs"].take()
    };
    assert_eq!(width("rack-2", "second"), json!(7_200_000));
    assert_ne!(width("rack-1", "first"), json!(7_200_000));
    one.delete("/v1/leases/first").expect(200);
    lab.door("rack-1").get("/v1/leases/first").refused("UNKNOWN_LEASE", 404);
    lab.door("rack-2").get("/v1/leases/second").expect(200);
    let ids = |worker: &str, kind: &str| -> Vec<Value> {
        events(&lab.door(worker), kind).into_iter().map(|event| event["payload"]["leaseId"].clone()).collect()
    };
    assert_eq!((ids("rack-1", "lease.renewed"), ids("rack-1", "lease.released")), (vec![], vec![json!("first")]));
    assert_eq!((ids("rack-2", "lease.renewed"), ids("rack-2", "lease.released")), (vec![json!("second")], vec![]));
}

#[test]
fn through_a_gateway_a_second_request_for_an_id_held_by_a_waiting_gateway_request_fails_and_is_not_forwarded() {
    let lab = fleet();
    let [a, b, first, second] = agents(&lab, ["a", "b", "first", "second"]);
    acquire(&a, "pixel-a", json!({})).expect(201);
    let held = text(&acquire(&b, "pixel-b", json!({})).expect(201).body["lease"]["id"]);
    let asked = || json!({ "select": "platform=android", "leaseId": "ad-7f3a" });
    let waiting = wait(&first, asked());
    let before = ["rack-1", "rack-2"].map(|worker| heard(&lab, worker));
    for told in [
        request(&second, asked()),
        // There would be room for these two.
        request(&second, json!({ "select": "platform=linux", "leaseId": "ad-7f3a" })),
        acquire(&second, "bench", json!({ "leaseId": "ad-7f3a" })),
    ] {
        let told = told.refused("LEASE_ID_TAKEN", 409);
        assert_eq!(told.details(), &json!({ "leaseId": "ad-7f3a" }));
    }
    let reasons: Vec<Value> = rejected(&second, 3).iter().map(|event| event["payload"]["reason"].clone()).collect();
    assert_eq!(reasons, vec![json!("lease-id-taken"); 3]);
    assert_eq!(dispatched(&second), Vec::<Value>::new());
    assert_eq!(["rack-1", "rack-2"].map(|worker| heard(&lab, worker)), before, "no worker has heard of it");
    b.delete(&format!("/v1/leases/{held}")).expect(200);
    assert_eq!(outcome(&first, &waiting)["lease"]["id"], "ad-7f3a", "the first still gets it");
    // With the end of a request that waits its id is free.
    let other = wait(&second, json!({ "select": "platform=android", "leaseId": "other" }));
    cancel(&second, &other).expect(204);
    acquire(&second, "bench", json!({ "leaseId": "other" })).expect(201);
}

#[test]
fn through_a_gateway_a_worker_s_lease_id_taken_is_passed_to_the_caller_and_no_other_worker_is_tried() {
    let lab = fleet();
    let [ci] = agents(&lab, ["ci"]);
    acquire(&lab.door("rack-1"), "twin", json!({ "leaseId": "local" })).expect(201);
    // Both workers match; the one with more that is free is asked.
    let told = request(&ci, json!({ "select": "platform", "leaseId": "local" })).refused("LEASE_ID_TAKEN", 409);
    assert_eq!((told.message(), told.details()), ("lease ID local is already in use", &json!({ "leaseId": "local" })));
    let rejected = rejected(&ci, 1);
    assert_eq!((rejected.len(), &rejected[0]["payload"]["reason"]), (1, &json!("lease-id-taken")));
    assert_eq!(dispatched(&ci), [json!("rack-1")]);
    assert_eq!(heard(&lab, "rack-2"), [0; 3]);
    assert_eq!(events(&lab.door("rack-1"), "lease.declined").len(), 1);
}

#[test]
fn after_a_gateway_restart_a_caller_chosen_lease_is_rebuilt_under_its_bare_id() {
    let mut lab = fleet();
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let lease = acquire(&ci, "bench", json!({ "leaseId": "ad-7f3a" })).expect(201).body["lease"].take();
    let plain = text(&acquire(&other, "pixel-a", json!({})).expect(201).body["lease"]["id"]);
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    let shown = ci.get("/v1/leases/ad-7f3a").expect(200).body["lease"].take();
    for key in ["id", "fence", "worker", "holderId", "requestId", "idChosenByRequester"] {
        assert_eq!(shown[key], lease[key], "{key}");
    }
    assert_eq!(other.get("/v1/leases").expect(200).body["leases"][0]["id"], json!(plain), "the other has its prefix");
    acquire(&other, "pixel-b", json!({ "leaseId": "ad-7f3a" })).refused("REQUESTER_ALREADY_LEASED", 409);
    let [third] = agents(&lab, ["third"]);
    acquire(&third, "pixel-b", json!({ "leaseId": "ad-7f3a" })).refused("LEASE_ID_TAKEN", 409);
    ci.post_text("/v1/leases/ad-7f3a/renew", "").expect(200);
    ci.delete("/v1/leases/ad-7f3a").expect(200);
}

#[test]
fn the_gateway_answers_unknown_lease_for_a_renew_of_an_id_missing_from_its_index() {
    let lab = fleet();
    let [ci] = agents(&lab, ["ci"]);
    acquire(&lab.door("rack-1"), "pixel-a", json!({ "leaseId": "local" })).expect(201);
    // A worker's own client holds the second; the gateway does not ask around for it.
    for id in ["nobody", "local", "rack-1.local", "rack-9.lse_1"] {
        for door in [&ci, &lab.door("gateway")] {
            door.post_text(&format!("/v1/leases/{id}/renew"), "").refused("UNKNOWN_LEASE", 404);
            door.delete(&format!("/v1/leases/{id}")).refused("UNKNOWN_LEASE", 404);
        }
    }
    lab.door("rack-1").get("/v1/leases/local").expect(200);
    assert_eq!(events(&lab.door("rack-1"), "lease.renewed"), Vec::<Value>::new());
}
