//! The events of a fleet at its gateway's door (SPEC §9 Operators, §10), with gateways and workers that are killed.

use std::time::Duration;

use berth::model::EventKind;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::sse::Stream;
use crate::waiting::{acquire, events, request, text};

const NODES: [&str; 3] = ["gateway", "rack-1", "rack-2"];

/// A new principal's door at the gateway.
fn agent(lab: &Lab, name: &str) -> Door {
    let made = lab.door("gateway").post("/v1/tokens", &json!({ "name": name, "role": "agent" })).expect(201);
    Door::tcp(lab.port("gateway")).with_token(made.body["secret"].as_str().expect("the secret is shown once"))
}

/// Everything in the log.
fn log(door: &Door) -> Vec<Value> {
    door.get("/v1/events?limit=1000").expect(200).body["events"].as_array_mut().unwrap().drain(..).collect()
}

/// The gateway's own words about a request, in their order.
fn story(door: &Door, request: &str) -> Vec<String> {
    let own = |event: &&Value| event.get("workerId").is_none() && event["payload"]["requestId"] == request;
    log(door).iter().filter(own).map(|event| text(&event["event"])).collect()
}

fn ends(story: &[String]) -> usize {
    story.iter().filter(|word| matches!(word.as_str(), "request.granted" | "lease.rejected")).count()
}

#[test]
fn through_a_gateway_a_second_request_for_an_id_held_by_a_lease_emits_lease_rejected_and_is_not_forwarded() {
    let lab = Lab::apart(FLEET, &NODES);
    let (holder, asker) = (agent(&lab, "holder"), agent(&lab, "asker"));
    acquire(&holder, "pixel-a", json!({ "leaseId": "ad-7f3a" })).expect(201);
    for told in [
        request(&asker, json!({ "select": "platform=linux", "leaseId": "ad-7f3a" })),
        acquire(&asker, "bench", json!({ "leaseId": "ad-7f3a" })),
    ] {
        let told = told.refused("LEASE_ID_TAKEN", 409);
        assert_eq!(told.message(), "lease ID ad-7f3a is already in use");
    }
    let rejected = eventually("both are told", BOUND, || {
        let told = events(&asker, "lease.rejected");
        (told.len() == 2).then_some(told)
    });
    for event in rejected {
        let payload = &event["payload"];
        assert_eq!((&payload["reason"], &payload["code"]), (&json!("lease-id-taken"), &json!("LEASE_ID_TAKEN")));
        assert_eq!((&payload["requester"], &event["node"]), (&json!("asker"), &json!("gateway")));
        assert!(!event.to_string().contains("ad-7f3a"), "{event}");
        assert_eq!(story(&asker, &text(&payload["requestId"])), ["lease.rejected"], "no beginning, and no dispatch");
    }
    assert_eq!(events(&asker, "request.dispatched"), Vec::<Value>::new());
    let at_worker = |worker: &str| {
        let door = lab.door(worker);
        ["lease.granted", "lease.requested", "lease.declined"].map(|kind| events(&door, kind).len())
    };
    assert_eq!(at_worker("rack-2"), [0; 3], "no worker has heard of it");
    assert_eq!(at_worker("rack-1"), [1, 0, 0], "but of the first");
}

#[test]
fn a_holder_is_told_at_the_gateway_what_happens_to_its_lease() {
    let lab = Lab::apart(FLEET, &NODES);
    let ci = agent(&lab, "ci");
    let made = request(&ci, json!({ "select": "platform=linux" })).expect(201).body["request"].take();
    let lease = text(&made["lease"]["id"]);
    assert!(lease.starts_with("rack-2.lse_"), "{lease}");
    let mut of_request = Stream::open(&ci, &format!("/v1/lease-requests/{}/events", text(&made["id"])));
    assert_eq!(of_request.expect("granted")["lease"]["id"], lease.as_str());
    assert_eq!(of_request.next(), None);
    let mut of_lease = Stream::open(&ci, &format!("/v1/leases/{lease}/events"));
    let mut of_all = Stream::open(&ci, "/v1/events/stream");
    let begin = of_all.start();
    of_lease.start();
    ci.post(&format!("/v1/leases/{lease}/renew"), &json!({})).expect(200);
    assert_eq!(of_lease.expect("renewed")["leaseId"], lease.as_str());
    ci.delete(&format!("/v1/leases/{lease}")).expect(200);
    assert_eq!(of_lease.expect("lost"), json!({ "reason": "explicit" }));
    assert_eq!(of_lease.next(), None);
    let seen = loop {
        let told = of_all.next().expect("the log goes on");
        if told.event == "lease.released" {
            break told.data;
        }
    };
    assert_eq!((&seen["workerId"], &seen["node"]), (&json!("rack-2"), &json!("gateway")));
    assert_eq!((&seen["payload"]["leaseId"], &seen["payload"]["requester"]), (&json!(lease), &json!("ci")));
    let mut again = Stream::resume(&ci, "/v1/events/stream?event=lease.released", begin);
    again.start();
    assert_eq!(again.expect("lease.released"), seen);
    // Another agent's is another's.
    assert_eq!(log(&agent(&lab, "other")), Vec::<Value>::new());
    let said = lab.berth(&["events", "--event", "lease.released"]).ok();
    assert!(said.contains(&format!("leaseId={lease}")) && said.trim_end().ends_with("worker=rack-2"), "{said}");
}

#[test]
fn a_request_that_is_out_when_the_gateway_is_killed_ends_once_and_as_its_worker_says() {
    let mut lab = Lab::apart(FLEET, &NODES);
    let door = lab.door("gateway");
    let before =
        request(&door, json!({ "select": "platform=linux", "mode": "shared", "requester": "before" })).expect(201);
    let before = text(&before.body["request"]["id"]);
    // Its worker hears nothing and answers nothing while it is stopped.
    lab.signal("rack-1", Signal::STOP);
    let out =
        request(&door, json!({ "select": "platform=android", "requester": "out", "leaseId": "mine" })).expect(201);
    assert_eq!(out.body["request"]["state"], "waiting", "{}", out.body);
    let out = text(&out.body["request"]["id"]);
    eventually("it is out", BOUND, || (story(&door, &out) == ["lease.requested", "request.dispatched"]).then_some(()));
    let last = log(&door).last().unwrap()["seq"].as_u64().unwrap();
    lab.kill_9("gateway");
    lab.signal("rack-1", Signal::CONT);
    lab.start("gateway");
    lab.wait_ready("gateway");
    let end = eventually("its end is told", BOUND, || {
        let told = story(&door, &out);
        (ends(&told) > 0).then_some(told)
    });
    let mut stream = Stream::resume(&door, "/v1/events/stream?event=node.started", last);
    stream.start();
    let started = stream.expect("node.started");
    assert_eq!(started.get("workerId"), None, "a follower goes on behind what it had: {started}");
    // Longer than anything would take that could tell it again.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(story(&door, &out), end);
    assert_eq!(ends(&end), 1, "{end:?}");
    let leased = door.get("/v1/leases/mine").status == 200;
    assert_eq!(end.last().unwrap() == "request.granted", leased, "{end:?}");
    assert_eq!(story(&door, &before), ["lease.requested", "request.dispatched", "request.granted"]);
    // And so for the next life.
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    for request in [&out, &before] {
        assert_eq!(ends(&story(&door, request)), 1);
    }
    let own: Vec<u64> = eventually("three lives are told of", BOUND, || {
        let runs = events(&door, "node.started");
        let own = runs.iter().filter(|event| event.get("workerId").is_none());
        let own: Vec<u64> = own.map(|event| event["payload"]["incarnation"].as_u64().unwrap()).collect();
        (own.len() == 3).then_some(own)
    });
    assert!(own.is_sorted_by(|one, next| one < next), "{own:?}");
}

#[test]
fn a_full_life_of_requests_ends_once_each_though_the_gateway_is_killed_again_and_again() {
    let mut lab = Lab::apart(FLEET, &NODES);
    let door = lab.door("gateway");
    let mut made = Vec::new();
    for round in 0..3 {
        for (index, select) in ["platform=android", "platform=linux"].into_iter().enumerate() {
            let requester = format!("job-{round}-{index}");
            let told = request(&door, json!({ "select": select, "requester": requester, "mode": "shared" }));
            let granted = told.expect(201).body["request"].take();
            assert_eq!(granted["state"], "granted", "{granted}");
            made.push(granted);
        }
        // At once: what is told of them may not be on disk.
        lab.kill_9("gateway");
        lab.start("gateway");
        lab.wait_ready("gateway");
        for granted in made.iter().rev().take(2) {
            let path = format!("/v1/leases/{}", text(&granted["lease"]["id"]));
            door.delete(&path).expect(200);
        }
    }
    for granted in &made {
        let request = text(&granted["id"]);
        let told = eventually("its end is told", BOUND, || {
            let told = story(&door, &request);
            (ends(&told) > 0).then_some(told)
        });
        assert_eq!((ends(&told), told.last().map(String::as_str)), (1, Some("request.granted")), "{told:?}");
        let lease = &granted["lease"]["id"];
        eventually("what its worker did is told", BOUND, || {
            let of_lease = |event: &&Value| event.get("workerId").is_some() && event["payload"]["leaseId"] == *lease;
            let words: Vec<String> = log(&door).iter().filter(of_lease).map(|event| text(&event["event"])).collect();
            (words == ["lease.granted", "lease.released"]).then_some(())
        });
    }
    for event in log(&door) {
        let kind: EventKind = text(&event["event"]).parse().unwrap();
        let payload = event["payload"].as_object().unwrap();
        let told = |field: &&str| field.ends_with('?') || payload.contains_key(*field);
        assert!(kind.fields().iter().all(told), "{event}");
        let known = |name: &String| kind.fields().iter().any(|field| field.trim_end_matches('?') == name);
        assert!(payload.keys().all(known), "{event}");
        assert_eq!(event["node"], "gateway");
    }
}
