//! The life of a lease on a host: its end as its owner hears of it, its fence, its longest length (SPEC §4).

use serde_json::json;

use super::{acquire, agents, event_about, host, principal, release, time};
use crate::patience::{BOUND, eventually};

#[test]
fn whoever_owned_a_lease_hears_when_and_why_it_ended_and_nobody_else_does() {
    let lab = host("");
    let [owner, other] = agents(&lab, ["owner", "other"]);
    let viewer = principal(&lab, "wall", "viewer");
    let admin = lab.door("host");
    let ends: [(&str, &str, &dyn Fn()); 3] = [
        ("given-back", "explicit", &|| drop(release(&owner, "given-back"))),
        ("taken", "admin", &|| drop(release(&admin, "taken"))),
        ("expired", "expired", &|| drop(event_about(&lab, "lease.expired", "owner"))),
    ];
    for (id, reason, end) in ends {
        let ttl = if reason == "expired" { 200 } else { 600_000 };
        let lease = acquire(&owner, "board", json!({ "leaseId": id, "ttlMs": ttl })).expect(201).body["lease"].take();
        end();
        let path = format!("/v1/leases/{id}");
        for told in [
            owner.get(&path),
            owner.delete(&path),
            owner.post_text(&format!("{path}/renew"), ""),
            admin.post_text(&format!("{path}/renew"), ""),
        ] {
            let told = told.refused("UNKNOWN_LEASE", 404);
            assert_eq!((&told.details()["leaseId"], &told.details()["reason"]), (&json!(id), &json!(reason)));
            assert!(time(&told.details()["endedAt"]) >= time(&lease["grantedAt"]), "{}", told.body);
            assert!(told.message().contains("is over since"), "{}", told.body);
        }
        for told in
            [other.get(&path), other.delete(&path), other.post_text(&format!("{path}/renew"), ""), viewer.get(&path)]
        {
            let told = told.refused("UNKNOWN_LEASE", 404);
            assert_eq!(told.details(), &json!({ "leaseId": id }));
        }
    }
}

#[test]
fn a_new_lease_of_an_old_id_is_told_apart_by_its_fence() {
    let lab = host("");
    let [owner, next] = agents(&lab, ["owner", "next"]);
    let mut former = 0;
    for door in [&owner, &next, &owner] {
        let lease = acquire(door, "board", json!({ "leaseId": "mine" })).expect(201).body["lease"].take();
        let fence = lease["fence"].as_u64().unwrap();
        assert!(fence > former, "{fence} after {former}");
        assert_eq!(door.get("/v1/resources/board").body["resource"]["fence"], fence);
        door.post("/v1/leases/mine/renew", &json!({ "fence": former })).refused("UNKNOWN_LEASE", 404);
        door.delete(&format!("/v1/leases/mine?fence={former}")).refused("UNKNOWN_LEASE", 404);
        door.post("/v1/leases/mine/renew", &json!({ "fence": fence })).expect(200);
        door.delete(&format!("/v1/leases/mine?fence={fence}")).expect(200);
        former = fence;
    }
}

#[test]
fn no_renewal_goes_past_the_longest_that_a_lease_may_last() {
    let lab = host("[lease]\ndefault_ttl = \"1s\"\nmax_total = \"2s\"");
    let [owner] = agents(&lab, ["owner"]);
    let whole =
        acquire(&owner, "pixel-a", json!({ "ttlMs": 60_000, "requester": "other" })).expect(201).body["lease"].take();
    let lease = acquire(&owner, "board", json!({ "leaseId": "mine" })).expect(201).body["lease"].take();
    let last = time(&lease["grantedAt"]).checked_add(jiff::SignedDuration::from_secs(2)).unwrap();
    let within = |lease: &serde_json::Value, last: jiff::Timestamp| {
        let over = time(&lease["expiresAt"]).duration_since(last);
        assert!(over < jiff::SignedDuration::from_millis(100), "{over} too long: {lease}");
    };
    within(&whole, time(&whole["grantedAt"]).checked_add(jiff::SignedDuration::from_secs(2)).unwrap());
    let over = eventually("it cannot be kept alive for ever", BOUND, || {
        let told = owner.post("/v1/leases/mine/renew", &json!({ "ttlMs": 60_000 }));
        if told.status == 200 {
            within(&told.body["lease"], last);
            return None;
        }
        Some(told)
    });
    let over = over.refused("UNKNOWN_LEASE", 404);
    assert_eq!(over.details()["reason"], "expired");
    acquire(&owner, "board", json!({ "leaseId": "mine" })).expect(201);
}
