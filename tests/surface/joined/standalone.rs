//! A worker without a gateway, and the end of a lease by its deadline.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};

const STANDALONE: &str = r#"
[lab]
name = "test"

[[worker]]
name = "bench-pc"
api = "127.0.0.1:<bench-pc>"

[[worker.resource]]
id = "board-{n}"
count = 2
labels = { platform = "linux" }
"#;

#[test]
fn a_worker_without_a_gateway_serves_leases_by_itself_and_keeps_them() {
    let mut lab = Lab::joined(STANDALONE, "bench-pc");
    let said = lab.berth(&["lease", "--platform", "linux"]).ok();
    let lease = said.split_whitespace().nth(1).unwrap().to_owned();
    assert!(lease.starts_with("lse_"), "no gateway, no prefix: {said}");
    lab.berth(&["lease", "acquire", "board-2", "--lease-id", "mine", "--requester", "job-1"]).ok();
    let said = lab.berth(&["lease", "--platform", "linux", "--no-wait", "--requester", "job-2"]).failed(11);
    assert!(said.starts_with("error NO_CAPACITY: "), "{said}");
    let said = lab.berth(&["worker", "list"]).failed(2);
    assert!(said.starts_with("error UNSUPPORTED_ON_WORKER: "), "{said}");
    let status = lab.berth(&["status"]).ok();
    assert!(status.contains("bench-pc (worker), ready") && status.contains("2: 0 available, 2 leased"), "{status}");

    lab.kill_9("all");
    lab.start_all();
    lab.wait_ready("bench-pc");
    for lease in [&lease, "mine"] {
        lab.berth(&["lease", "renew", lease]).ok();
        lab.berth(&["lease", "release", lease]).ok();
    }
}

#[test]
fn a_lease_ends_at_its_deadline_and_not_before_and_the_resource_is_free_again() {
    for (file, node, resource) in [(STANDALONE, "bench-pc", "board-1"), (FLEET, "gateway", "pixel-a")] {
        let lab = Lab::joined(file, node);
        let door = lab.door(node);
        let path = format!("/v1/resources/{resource}/leases");
        let lease = |requester: &str, ttl: u64| {
            door.post(&path, &json!({ "requester": requester, "ttlMs": ttl, "leaseId": requester }))
        };
        let sent = Instant::now();
        let first = lease("r1", 1_000).expect(201).body["lease"].take();
        let second = eventually("the resource is free again", BOUND, || {
            let told = lease("r2", 60_000);
            if told.status == 201 {
                return Some(told);
            }
            told.refused("RESOURCE_UNAVAILABLE", 409);
            None
        });
        let second = second.body["lease"].clone();
        let time = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
        let late = time(&second["grantedAt"]).duration_since(time(&first["expiresAt"]));
        assert!(late >= jiff::SignedDuration::from_millis(-5), "granted {late} before the deadline of the first");
        // Within 1 s of the deadline (SPEC §4), and a second for a machine that is busy with other tests.
        assert!(sent.elapsed() < Duration::from_secs(3), "free only {:?} after a lease of 1 s", sent.elapsed());
        assert!(second["fence"].as_u64() > first["fence"].as_u64());
        door.get("/v1/leases/r1").refused("UNKNOWN_LEASE", 404);
        door.post_text("/v1/leases/r1/renew", "").refused("UNKNOWN_LEASE", 404);
        // Its requester and its id are free as well.
        door.delete("/v1/leases/r2").expect(200);
        lease("r1", 60_000).expect(201);
    }
}

#[test]
fn a_lease_that_is_renewed_outlives_its_first_deadline() {
    let lab = Lab::joined(STANDALONE, "bench-pc");
    let door = lab.door("bench-pc");
    door.post("/v1/resources/board-1/leases", &json!({ "leaseId": "kept", "ttlMs": 1_000 })).expect(201);
    door.post("/v1/resources/board-2/leases", &json!({ "leaseId": "left", "ttlMs": 1_000, "requester": "r2" }))
        .expect(201);
    let renewed = door.post("/v1/leases/kept/renew", &json!({ "ttlMs": 60_000 })).expect(200);
    assert_eq!(renewed.body["lease"]["ttlMs"], 60_000);
    eventually("the lease that was not renewed has ended", BOUND, || {
        (door.get("/v1/leases/left").status == 404).then_some(())
    });
    door.get("/v1/leases/kept").expect(200);
}

#[test]
fn a_lease_whose_deadline_passed_while_its_worker_was_down_is_over_when_it_is_back() {
    let mut lab = Lab::joined(STANDALONE, "bench-pc");
    let door = lab.door("bench-pc");
    let body = json!({ "leaseId": "short", "ttlMs": 1_000 });
    let lease = door.post("/v1/resources/board-1/leases", &body).expect(201).body["lease"].take();
    lab.kill_9("all");
    let ends: Timestamp = lease["expiresAt"].as_str().unwrap().parse().unwrap();
    eventually("its time is up", BOUND, || (now() > ends).then_some(()));
    lab.start_all();
    lab.wait_ready("bench-pc");
    door.get("/v1/leases/short").refused("UNKNOWN_LEASE", 404);
    let next = door.post("/v1/resources/board-1/leases", &body).expect(201);
    assert!(next.body["lease"]["fence"].as_u64() > lease["fence"].as_u64());
}

/// The wall clock, which runs on while no node does.
fn now() -> Timestamp {
    Timestamp::now()
}
