//! Names that stand for nothing, or for more than one thing.

use serde_json::json;

use super::{BOTH, acquire, fleet, hold, id, refused_as, request};

#[test]
fn an_unknown_resource_is_refused_and_the_command_suggests_the_nearest() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        for resource in ["pixel-z", "rack-9/pixel-a", "rack-2/pixel-a", "Pixel-a"] {
            for told in [
                acquire(&door, resource, json!({})),
                request(&door, json!({ "resourceId": resource })),
                door.get(&format!("/v1/resources/{}", resource.replace('/', "%2F"))),
            ] {
                let told = told.refused("UNKNOWN_RESOURCE", 404);
                assert_eq!(told.details(), &json!({ "resourceId": resource }));
                assert!(told.message().contains("`berth resource list`"), "{}", told.body);
            }
        }
    }
    for (command, hint) in [
        (&["lease", "acquire", "pixel-aa"][..], "did you mean pixel-a?"),
        (&["lease", "--resource", "benhc"], "did you mean bench?"),
        (&["resource", "show", "rack-1/twni"], "did you mean rack-1/twin?"),
        (&["resource", "show", "toaster"], "`berth resource list` shows what there is"),
    ] {
        let said = lab.berth(command).failed(12);
        assert_eq!(refused_as("UNKNOWN_RESOURCE", &said).1, hint, "{said}");
    }
}

#[test]
fn a_selector_that_nothing_can_satisfy_is_refused_with_the_nearest_misses() {
    let lab = fleet();
    let misses = |words: &str| {
        ["15, 13", "13, 15"].iter().any(|os| words.ends_with(&format!("2 match platform=android; their os is {os}")))
    };
    for node in BOTH {
        let door = lab.door(node);
        let told = request(&door, json!({ "select": "platform=android,os>=16" })).refused("NO_MATCHING_RESOURCE", 422);
        assert!(misses(told.message()), "{}", told.body);
        request(&door, json!({ "select": "platform=ios" })).refused("NO_MATCHING_RESOURCE", 422);
        // What could match but is held is another answer.
        let lease = hold(&door, "pixel-a", "r1");
        request(&door, json!({ "select": "os=15" })).refused("NO_CAPACITY", 503);
        door.delete(&format!("/v1/leases/{}", id(&lease))).expect(200);
    }
    let said = lab.berth(&["lease", "--platform", "android", "--os", ">=16"]).failed(12);
    let (words, _) = refused_as("NO_MATCHING_RESOURCE", &said);
    assert!(misses(words), "{said}");
}

#[test]
fn an_id_that_two_workers_have_is_ambiguous_until_the_worker_is_named() {
    let lab = fleet();
    let door = lab.door("gateway");
    for told in [
        acquire(&door, "twin", json!({})),
        request(&door, json!({ "resourceId": "twin" })),
        door.get("/v1/resources/twin"),
    ] {
        let told = told.refused("AMBIGUOUS_RESOURCE", 422);
        assert!(told.details().to_string().contains(r#"["rack-1/twin","rack-2/twin"]"#), "{}", told.body);
        assert!(told.message().contains("name one of rack-1/twin, rack-2/twin"), "{}", told.body);
    }
    let said = lab.berth(&["lease", "acquire", "twin"]).failed(12);
    refused_as("AMBIGUOUS_RESOURCE", &said);
    let said = lab.berth(&["lease", "acquire", "rack-1/twin"]).ok();
    assert!(said.starts_with("leased rack-1.lse_"), "{said}");
    let second = acquire(&door, "rack-2/twin", json!({ "requester": "r2" })).expect(201);
    assert_eq!(second.body["lease"]["worker"]["id"], "rack-2");
    acquire(&lab.door("rack-2"), "twin", json!({ "requester": "r3" })).refused("RESOURCE_UNAVAILABLE", 409);
}

#[test]
fn a_lease_that_has_ended_or_never_was_is_unknown_and_so_is_a_former_grant_of_its_id() {
    let lab = fleet();
    for node in BOTH {
        let door = lab.door(node);
        let ask = json!({ "leaseId": "mine" });
        let former = acquire(&door, "pixel-a", ask.clone()).expect(201).body["lease"]["fence"].as_u64().unwrap();
        door.delete("/v1/leases/mine").expect(200);
        for lease in ["mine", "rack-1.lse_00000000-0000-4000-8000-000000000000", "never-was"] {
            let path = format!("/v1/leases/{lease}");
            for told in [door.get(&path), door.delete(&path), door.post_text(&format!("{path}/renew"), "")] {
                let told = told.refused("UNKNOWN_LEASE", 404);
                assert_eq!(told.details()["leaseId"], lease);
                assert_eq!(told.details().get("rebuilding"), None, "every worker has reported");
            }
        }
        let now = acquire(&door, "pixel-a", ask).expect(201).body["lease"]["fence"].as_u64().unwrap();
        assert!(now > former);
        door.post("/v1/leases/mine/renew", &json!({ "fence": former })).refused("UNKNOWN_LEASE", 404);
        door.delete(&format!("/v1/leases/mine?fence={former}")).refused("UNKNOWN_LEASE", 404);
        door.post("/v1/leases/mine/renew", &json!({ "fence": now })).expect(200);
        door.delete(&format!("/v1/leases/mine?fence={now}")).expect(200);
    }
    for command in [&["lease", "renew", "mine"][..], &["lease", "release", "mine"], &["lease", "show", "mine"]] {
        let said = lab.berth(command).failed(12);
        let (words, _) = refused_as("UNKNOWN_LEASE", &said);
        assert!(words.contains("`berth lease list`"), "{said}");
    }
}
