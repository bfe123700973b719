//! What a killed node owes its holders (SPEC §8, §9): every lease that was answered is there again, under its id, its
//! fence and its deadline, and soon.

mod load;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::{Answer, Call, Door};
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};

const NODES: [&str; 3] = ["gateway", "rack-1", "rack-2"];
/// After an absence shorter than this the workers are back within as long; they notice at their next packet.
const SHORT: Duration = Duration::from_secs(2);
/// After a longer one, a worker may have to wait out its longest redial and one dial.
const LONG: Duration = Duration::from_secs(7);

/// Takes `resource`, and answers the lease.
fn acquire(door: &Door, resource: &str) -> Value {
    let told = door.post(&format!("/v1/resources/{resource}/leases"), &json!({ "requester": resource }));
    told.expect(201).body["lease"].take()
}

/// Renews until that works. Until then the lease is unknown, and it is said that this may change.
fn renew(door: &Door, lease: &Value) -> Answer {
    let path = format!("/v1/leases/{}/renew", lease["id"].as_str().unwrap());
    eventually("the lease is renewed", BOUND, || {
        let told = door.post(&path, &json!({ "fence": lease["fence"] }));
        if told.status == 200 {
            return Some(told);
        }
        may_turn_up(told);
        None
    })
}

#[track_caller]
fn may_turn_up(told: Answer) {
    let told = told.refused("UNKNOWN_LEASE", 404);
    assert_eq!(told.details()["rebuilding"], true, "{}", told.body);
    let again: u64 = told.header("retry-after").expect("when to ask again").parse().expect("in seconds");
    assert!((1..=10).contains(&again), "{again}");
    assert!(told.message().contains("ask again"), "{}", told.body);
}

/// Kills the gateway, leaves it dead for `pause`, and renews the leases as soon as it listens again.
fn outlive_the_gateway(pause: Duration) {
    let mut lab = Lab::apart(FLEET, &NODES);
    let door = lab.door("gateway");
    let leases = [acquire(&door, "pixel-a"), acquire(&door, "bench")];
    lab.kill_9("gateway");
    let killed = Instant::now();
    std::thread::sleep(pause);
    lab.start("gateway");
    lab.wait_listening("gateway");
    let (away, listening) = (killed.elapsed(), Instant::now());
    for lease in &leases {
        let renewed = renew(&door, lease).body["lease"].take();
        for key in ["id", "fence", "resourceId", "holderId", "grantedAt"] {
            assert_eq!(renewed[key], lease[key], "{key}");
        }
    }
    let took = listening.elapsed();
    let bound = if away < SHORT { SHORT } else { LONG };
    assert!(took <= bound, "renewed {took:?} after the gateway listened again; it was away for {away:?}");
    for lease in &leases {
        let released = door.delete(&format!("/v1/leases/{}", lease["id"].as_str().unwrap())).expect(200).body;
        assert_eq!(released["resourceId"], lease["resourceId"]);
    }
    assert_eq!(door.get("/v1/leases").expect(200).body, json!({ "leases": [] }));
    acquire(&door, "pixel-a");
}

#[test]
fn a_lease_is_renewed_within_two_seconds_of_a_killed_gateway_s_return() {
    outlive_the_gateway(Duration::ZERO);
}

#[test]
fn a_lease_is_renewed_within_seven_seconds_when_the_gateway_was_away_for_longer() {
    // Past the links' idle limit of 5 s: the workers have given up their links, and redial at their slowest.
    outlive_the_gateway(Duration::from_secs(6));
}

#[test]
fn a_lease_may_turn_up_until_every_worker_has_reported_and_a_foreign_id_is_unknown_after_that() {
    let mut lab = Lab::apart(FLEET, &NODES);
    let door = lab.door("gateway");
    let lease = acquire(&door, "bench");
    let path = format!("/v1/leases/{}", lease["id"].as_str().unwrap());
    lab.kill_9("gateway");
    // Its worker lives, but says nothing: the gateway must not claim to know.
    lab.signal("rack-2", Signal::STOP);
    lab.start("gateway");
    lab.wait_listening("gateway");
    may_turn_up(door.post(&format!("{path}/renew"), &json!({})));
    may_turn_up(door.delete(&path));
    may_turn_up(door.get(&path));
    eventually("only the silent one is waited for", BOUND, || {
        let waiting = door.get("/v1/readyz");
        assert_eq!((waiting.status, &waiting.body["ready"]), (503, &json!(false)));
        (waiting.body["reasons"] == json!(["waiting for the report of rack-2"])).then_some(())
    });
    let said = lab.berth(&["lease", "renew", "never-was"]).failed(12);
    let words = "no active lease never-was is known yet: rack-2 has not reported yet; ask again";
    assert_eq!(said.trim_end(), format!("error UNKNOWN_LEASE: {words}"));

    lab.signal("rack-2", Signal::CONT);
    assert_eq!(renew(&door, &lease).body["lease"]["fence"], lease["fence"]);
    lab.wait_ready("gateway");
    let told = door.delete("/v1/leases/never-was").refused("UNKNOWN_LEASE", 404);
    assert_eq!((told.details().get("rebuilding"), told.header("retry-after")), (None, None), "{}", told.body);
    door.delete(&path).expect(200);
}

#[test]
fn a_killed_worker_comes_back_with_its_leases_their_fences_and_their_deadlines() {
    let mut lab = Lab::apart(FLEET, &NODES);
    let door = lab.door("gateway");
    let through = door.post("/v1/resources/pixel-a/leases", &json!({ "leaseId": "ad-7f3a", "ttlMs": 600_000 }));
    through.expect(201);
    // A lease of the worker's own client is the worker's as well.
    let own = json!({ "ttlMs": 300_000, "note": "night run" });
    lab.door("rack-1").post("/v1/resources/pixel-b/leases", &own).expect(201);
    let at_worker = |lab: &Lab| lab.socket("rack-1").get("/v1/leases").expect(200).body["leases"].take();
    let before = at_worker(&lab);
    assert_eq!(before.as_array().map(Vec::len), Some(2));

    lab.kill_9("rack-1");
    lab.start("rack-1");
    lab.wait_ready("rack-1");
    assert_same(&before, &at_worker(&lab));
    let call = Call::json("/v1/leases/ad-7f3a/renew", "{}");
    let renewed = eventually("the gateway has its worker again", BOUND, || {
        let told = door.send(&call);
        if told.status == 200 {
            return Some(told);
        }
        // The gateway never guesses that a lease is gone.
        told.refused("WORKER_UNREACHABLE", 503);
        None
    });
    let held = before.as_array().unwrap().iter().find(|lease| lease["id"] == "ad-7f3a").unwrap();
    assert_eq!(renewed.body["lease"]["fence"], held["fence"]);
    let fence =
        |lab: &Lab| lab.socket("rack-1").get("/v1/resources/pixel-a").expect(200).body["resource"]["fence"].as_u64();
    let former = fence(&lab);
    door.delete("/v1/leases/ad-7f3a").expect(200);
    acquire(&door, "pixel-a");
    assert!(fence(&lab) > former, "the next grant has a higher fence");
}

/// The same leases. A deadline lies on the wall clock while its node is down, and may be a little off when it is read.
fn assert_same(before: &Value, after: &Value) {
    let by_id = |leases: &Value| {
        let mut leases: Vec<Value> = leases.as_array().unwrap().clone();
        leases.sort_by_key(|lease| lease["id"].to_string());
        leases
    };
    let (before, after) = (by_id(before), by_id(after));
    assert_eq!(before.len(), after.len(), "{after:?}");
    for (mut before, mut after) in before.into_iter().zip(after) {
        let expires = |lease: &mut Value| -> jiff::Timestamp {
            lease["expiresInMs"].take();
            lease["expiresAt"].take().as_str().unwrap().parse().unwrap()
        };
        let off = expires(&mut before).duration_since(expires(&mut after)).abs();
        assert!(off < jiff::SignedDuration::from_millis(250), "the deadline moved by {off}");
        assert_eq!(before, after);
    }
}

#[test]
fn after_a_restart_keys_ids_and_requesters_are_taken_as_before() {
    let mut lab = Lab::apart(FLEET, &NODES);
    for (node, other) in [("gateway", "bench"), ("rack-1", "pixel-b")] {
        let door = lab.door(node);
        let resources = "/v1/resources/pixel-a/leases";
        let ask = json!({ "requester": "r1", "leaseId": "mine", "idempotencyKey": "k" });
        let first = door.post(resources, &ask).expect(201).body["lease"].take();
        lab.kill_9(node);
        lab.start(node);
        lab.wait_ready(node);
        let again = door.post(resources, &ask).expect(201).body["lease"].take();
        for key in ["id", "fence", "requestId", "grantedAt", "holderId"] {
            assert_eq!(again[key], first[key], "{key}");
        }
        let elsewhere = format!("/v1/resources/{other}/leases");
        for (body, code) in [
            (json!({ "requester": "r1", "idempotencyKey": "k" }), "IDEMPOTENCY_CONFLICT"),
            (json!({ "requester": "r1" }), "REQUESTER_ALREADY_LEASED"),
            (json!({ "requester": "r2", "leaseId": "mine" }), "LEASE_ID_TAKEN"),
        ] {
            door.post(&elsewhere, &body).refused(code, 409);
        }
        door.delete("/v1/leases/mine").expect(200);
        door.post(&elsewhere, &json!({ "requester": "r1", "leaseId": "mine" })).expect(201);
        door.delete("/v1/leases/mine").expect(200);
    }
}
