//! What is held: by others, by oneself, and how far a resource can be shared.

use serde_json::json;

use super::{BOTH, acquire, fleet, hold, id, refused_as, request};

/// Panics when an answer tells whose something is.
#[track_caller]
fn tells_nothing(text: &str, lease: &serde_json::Value) {
    for secret in [id(lease), lease["holderId"].as_str().unwrap(), "secret"] {
        assert!(!text.contains(secret), "{text} tells {secret}");
    }
}

#[test]
fn a_held_resource_is_unavailable_until_its_holder_s_deadline_and_nobody_hears_whose_it_is() {
    let lab = fleet();
    let agent = lab.berth(&["token", "create", "--name", "ci", "--role", "agent"]).ok();
    for (node, resource) in [("gateway", "pixel-a"), ("rack-1", "pixel-b")] {
        let door = lab.door(node);
        let body = json!({ "requester": "secret-agent", "note": "secret", "ttlMs": 600_000 });
        let lease = acquire(&door, resource, body).expect(201).body["lease"].take();
        // A worker has tokens of its own, and the gateway's are none of them.
        let asker = if node == "gateway" { door.with_token(agent.trim()) } else { door.clone() };
        let told = acquire(&asker, resource, json!({ "requester": "r2" })).refused("RESOURCE_UNAVAILABLE", 409);
        let time = |text: &serde_json::Value| text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        let off = time(&told.details()["availableAt"]).duration_since(time(&lease["expiresAt"])).abs();
        assert!(off < jiff::SignedDuration::from_secs(1), "{}", told.body);
        assert!(told.message().contains("or ask for another"), "{}", told.body);
        tells_nothing(&told.body.to_string(), &lease);
        // The other door, for this one resource.
        let told = request(&asker, json!({ "resourceId": resource, "requester": "r2" })).refused("NO_CAPACITY", 503);
        assert!(told.header("retry-after").is_some());
        tells_nothing(&told.body.to_string(), &lease);
    }
    let said = lab.berth(&["lease", "acquire", "pixel-a"]).failed(11);
    let (words, _) = refused_as("RESOURCE_UNAVAILABLE", &said);
    assert!(words.starts_with("pixel-a is leased until "), "{said}");
    // Asking in vain costs nothing: the requester is free.
    hold(&lab.door("gateway"), "bench", "r2");
}

#[test]
fn without_a_free_match_there_is_no_capacity_and_a_time_to_ask_again() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let leases = [hold(&door, "pixel-a", "r1"), hold(&door, "pixel-b", "r2")];
        let told = request(&door, json!({ "select": "platform=android" })).refused("NO_CAPACITY", 503);
        let again: u64 = told.header("retry-after").expect("a time").parse().expect("seconds");
        assert!(again >= 1, "{again}");
        let next = if node == "gateway" { "ask again later" } else { "ask without noWait to wait" };
        assert!(told.message().contains(next), "{}", told.body);
        if node == "gateway" {
            let said = lab.berth(&["lease", "--platform", "android", "--no-wait"]).failed(11);
            refused_as("NO_CAPACITY", &said);
        }
        for lease in &leases {
            door.delete(&format!("/v1/leases/{}", id(lease))).expect(200);
        }
        let told = request(&door, json!({ "select": "platform=android" })).expect(201);
        door.delete(&format!("/v1/leases/{}", id(&told.body["request"]["lease"]))).expect(200);
    }
}

#[test]
fn a_requester_that_has_its_lease_is_told_which_it_is_even_when_it_repeats_its_own_id() {
    let lab = fleet();
    for (node, other) in [("gateway", "bench"), ("rack-1", "pixel-b")] {
        let door = lab.door(node);
        acquire(&door, "pixel-a", json!({ "requester": "job-1", "leaseId": "mine" })).expect(201);
        let again = json!({ "requester": "job-1", "leaseId": "mine" });
        let by_selector = json!({ "requester": "job-1", "select": "platform" });
        for told in
            [acquire(&door, other, again.clone()), acquire(&door, "pixel-a", again), request(&door, by_selector)]
        {
            let told = told.refused("REQUESTER_ALREADY_LEASED", 409);
            assert_eq!(told.details(), &json!({ "requesterId": "admin/job-1", "existingLeaseId": "mine" }));
        }
        // It is one lease for each requester, not for each principal.
        acquire(&door, other, json!({ "leaseId": "principal-s-own" })).expect(201);
        door.delete("/v1/leases/principal-s-own").expect(200);
        // Release, then acquire, is never refused for the old one.
        door.delete("/v1/leases/mine").expect(200);
        acquire(&door, "pixel-a", json!({ "requester": "job-1", "leaseId": "mine" })).expect(201);
        if node == "gateway" {
            let said = lab.berth(&["lease", "acquire", "bench", "--requester", "job-1"]).failed(13);
            let (words, hint) = refused_as("REQUESTER_ALREADY_LEASED", &said);
            assert!(words.contains("admin/job-1"), "{said}");
            assert!(hint.contains("`berth lease release mine`"), "{said}");
        }
        door.delete("/v1/leases/mine").expect(200);
    }
}

#[test]
fn a_resource_is_shared_by_as_many_as_its_lab_file_says_and_never_beside_an_exclusive_holder() {
    let lab = fleet();
    for node in ["gateway", "rack-2"] {
        let door = lab.door(node);
        let ask = |requester: &str, mode: &str| {
            acquire(&door, "bench", json!({ "requester": requester, "mode": mode, "leaseId": requester }))
        };
        let first = ask("r1", "shared").expect(201).body["lease"]["fence"].as_u64();
        let second = ask("r2", "shared").expect(201).body["lease"]["fence"].as_u64();
        assert!(second > first, "every grant has its own fence");
        ask("r3", "shared").refused("RESOURCE_UNAVAILABLE", 409);
        ask("r3", "exclusive").refused("RESOURCE_UNAVAILABLE", 409);
        let third = json!({ "requester": "r3", "select": "board=imx8", "mode": "shared" });
        request(&door, third.clone()).refused("NO_CAPACITY", 503);
        let shown = door.get("/v1/resources/bench").expect(200).body["resource"].take();
        assert_eq!((shown["maxShared"].as_u64(), shown["leases"].as_array().map(Vec::len)), (Some(2), Some(2)));

        door.delete("/v1/leases/r1").expect(200);
        ask("r3", "exclusive").refused("RESOURCE_UNAVAILABLE", 409);
        let told = request(&door, third).expect(201);
        assert_eq!(told.body["request"]["lease"]["mode"], "shared");
        door.delete(&format!("/v1/leases/{}", id(&told.body["request"]["lease"]))).expect(200);
        door.delete("/v1/leases/r2").expect(200);
        ask("r4", "exclusive").expect(201);
        ask("r5", "shared").refused("RESOURCE_UNAVAILABLE", 409);
        door.delete("/v1/leases/r4").expect(200);
    }
    lab.berth(&["lease", "acquire", "bench", "--shared"]).ok();
    lab.berth(&["lease", "--resource", "bench", "--shared", "--requester", "r2"]).ok();
    let said = lab.berth(&["lease", "acquire", "bench", "--shared", "--requester", "r3"]).failed(11);
    refused_as("RESOURCE_UNAVAILABLE", &said);
}
