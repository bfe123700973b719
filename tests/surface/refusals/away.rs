//! A worker that is away (SPEC §9): its leases are neither gone nor guessed at.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::{acquire, hold, id, refused_as, request};
use crate::http::{Answer, Call};
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};

fn apart() -> Lab {
    Lab::apart(FLEET, &["gateway", "rack-1", "rack-2"])
}

#[track_caller]
fn unreachable(told: Answer) -> Answer {
    let told = told.refused("WORKER_UNREACHABLE", 503);
    assert!(told.header("retry-after").is_some(), "{}", told.body);
    assert!(told.message().contains("ask again"), "{}", told.body);
    told
}

#[test]
fn a_killed_worker_s_leases_can_neither_be_renewed_nor_released_and_are_there_when_it_is_back() {
    let mut lab = apart();
    let door = lab.door("gateway");
    let lease = hold(&door, "pixel-a", "r1");
    let path = format!("/v1/leases/{}", id(&lease));
    lab.kill_9("rack-1");
    // The first call may still go out on the old link; then nobody knows what became of it.
    let told = unreachable(door.post_text(&format!("{path}/renew"), ""));
    assert!(told.message().contains("rack-1"), "{}", told.body);
    let gone = || door.get("/v1/workers").body["workers"][0]["connection"] == "disconnected";
    eventually("the gateway knows that its worker is away", BOUND, || gone().then_some(()));
    for told in [
        door.post_text(&format!("{path}/renew"), ""),
        door.delete(&path),
        acquire(&door, "pixel-b", json!({ "requester": "r2" })),
        request(&door, json!({ "resourceId": "pixel-b", "requester": "r2" })),
    ] {
        assert_eq!(unreachable(told).details()["worker"], "rack-1");
    }
    // By selector it is a matter of capacity: another worker might have had one.
    request(&door, json!({ "select": "platform=android", "requester": "r2" })).refused("NO_CAPACITY", 503);
    for command in
        [&["lease", "renew", id(&lease)][..], &["lease", "release", id(&lease)], &["lease", "acquire", "pixel-b"]]
    {
        let said = lab.berth(command).failed(1);
        refused_as("WORKER_UNREACHABLE", &said);
    }
    // Its requester still has it, and the rest of the lab goes on.
    acquire(&door, "bench", json!({ "requester": "r1" })).refused("REQUESTER_ALREADY_LEASED", 409);
    assert_eq!(door.get(&path).expect(200).body["lease"]["fence"], lease["fence"]);
    assert_eq!(door.get("/v1/resources/pixel-a").body["resource"]["reachable"], false);
    hold(&door, "bench", "r3");

    lab.start("rack-1");
    let call = Call { method: "DELETE", path: &path, ..Call::default() };
    let released = eventually("the lease is released", BOUND, || {
        let told = door.send(&call);
        if told.status == 200 {
            return Some(told);
        }
        unreachable(told);
        None
    });
    assert_eq!(released.body["leaseId"], lease["id"]);
    hold(&door, "pixel-a", "r1");
}

#[test]
fn what_a_silent_worker_was_asked_is_settled_when_it_speaks_again_and_leaves_no_lease_behind() {
    let lab = apart();
    let door = lab.door("gateway");
    let lease = hold(&door, "pixel-a", "r1");
    lab.signal("rack-1", Signal::STOP);
    // The links are up, so both are sent; the acquire may be carried out by the worker, but too late for its caller.
    let told = unreachable(acquire(&door, "pixel-b", json!({ "requester": "r2" })));
    assert!(told.message().contains("has not answered"), "{}", told.body);
    let told = acquire(&door, "bench", json!({ "requester": "r2" })).refused("REQUESTER_ALREADY_LEASED", 409);
    assert!(told.details()["existingRequestId"].as_str().is_some_and(|it| it.starts_with("req_")), "{}", told.body);
    unreachable(door.delete(&format!("/v1/leases/{}", id(&lease))));

    lab.signal("rack-1", Signal::CONT);
    let renew = format!("/v1/leases/{}/renew", id(&lease));
    eventually("the lease is renewed", BOUND, || {
        let told = door.post_text(&renew, "");
        let back = told.status == 200;
        if !back {
            unreachable(told);
        }
        back.then_some(())
    });
    eventually("the requester of the acquire that came to nothing is free", Duration::from_secs(40), || {
        let told = acquire(&door, "pixel-b", json!({ "requester": "r2" }));
        (told.status == 201).then_some(())
    });
    let leases = door.get("/v1/leases").expect(200).body["leases"].take();
    assert_eq!(leases.as_array().map(Vec::len), Some(2), "{leases}");
}

#[test]
fn an_acquire_that_was_not_carried_out_in_time_is_not_carried_out_later() {
    // A starting gateway holds requests back until its workers have reported, here for longer than an acquire waits.
    let patient = FLEET.replacen("[gateway]\n", "[gateway]\nrebuild_wait = \"1m\"\n", 1);
    let mut lab = Lab::apart(&patient, &["gateway", "rack-1", "rack-2"]);
    let door = lab.door("gateway");
    lab.kill_9("gateway");
    lab.signal("rack-2", Signal::STOP);
    lab.start("gateway");
    lab.wait_listening("gateway");
    let told = unreachable(acquire(&door, "pixel-a", json!({ "requester": "r1" })));
    let asked = told.details()["requestId"].as_str().expect("what to look for").to_owned();
    lab.signal("rack-2", Signal::CONT);
    lab.wait_ready("gateway");
    let seen = door.get(&format!("/v1/lease-requests/{asked}")).expect(200).body["request"].take();
    assert_eq!((&seen["state"], &seen["error"]["code"]), (&json!("failed"), &json!("WORKER_UNREACHABLE")), "{seen}");
    assert_eq!(door.get("/v1/leases").expect(200).body, json!({ "leases": [] }));
    hold(&door, "pixel-a", "r1");
}
