//! Waiting rooms of the fleet at its gateway's door and by the command line (SPEC §9 Named resources).

use serde_json::{Value, json};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::waiting::{acquire, cancel, events, hold, join, outcome, release, text, wait};

/// The fleet, where an unattended waiter has time to come back for what is free.
fn fleet() -> Lab {
    let file = format!("{FLEET}\n[waiting_room]\nadmission_grace = \"15s\"\n");
    Lab::apart(&file, &["gateway", "rack-1", "rack-2"])
}

/// A new agent's door at the gateway.
fn agent(lab: &Lab, name: &str) -> Door {
    let made = lab.door("gateway").post("/v1/tokens", &json!({ "name": name, "role": "agent" })).expect(201);
    Door::tcp(lab.port("gateway")).with_token(made.body["secret"].as_str().expect("the secret is shown once"))
}

/// The gateway's own words about a request.
fn story(door: &Door, request: &Value) -> Vec<String> {
    let mut page = door.get("/v1/events?limit=1000").expect(200).body;
    let all = page["events"].as_array_mut().unwrap().drain(..);
    let own = all.filter(|event| event.get("workerId").is_none() && event["payload"]["requestId"] == request["id"]);
    own.map(|event| text(&event["event"])).collect()
}

#[test]
fn rooms_of_two_workers_are_joined_listed_and_drained_at_the_gateway() {
    let lab = fleet();
    let (admin, holder, next, third) =
        (lab.door("gateway"), agent(&lab, "holder"), agent(&lab, "next"), agent(&lab, "third"));
    let twin = "rack-1%2Ftwin";
    acquire(&holder, "twin", json!({})).refused("AMBIGUOUS_RESOURCE", 422);
    let lease = hold(&holder, twin);
    let told = join(&next, twin, json!({})).expect(202).body;
    assert_eq!((&told["status"], &told["waitingPosition"]), (&json!("pending"), &json!(1)), "{told}");
    assert!(told["ticket"].is_string(), "{told}");
    let told = ["lease.requested", "request.dispatched"].into_iter().flat_map(|kind| events(&admin, kind));
    let of_next = told.filter(|it| it["payload"]["requester"] == "next");
    let own: Vec<Value> = of_next.filter(|event| event.get("workerId").is_none()).collect();
    assert_eq!(own, Vec::<Value>::new(), "one that only stands there has no request");
    let waiting = wait(&third, json!({ "resourceId": "rack-1/twin" }));
    assert_eq!((&waiting["position"], &waiting["waitingFor"]), (&json!(2), &json!("leased")), "{waiting}");
    let room = format!("/v1/resources/{twin}/waiting-room");
    next.get(&room).refused("INSUFFICIENT_PERMISSIONS", 403);
    let listed = admin.get(&room).expect(200).body;
    let names: Vec<_> = listed["waiters"].as_array().unwrap().iter().map(|it| text(&it["holderId"])).collect();
    assert_eq!(names, ["next", "third"]);
    assert_eq!(release(&holder, &lease), "next");
    let lease = text(&join(&next, twin, json!({})).expect(201).body["lease"]["id"]);
    assert_eq!(release(&next, &lease), "third");
    let granted = outcome(&third, &waiting);
    assert_eq!(granted["state"], "granted", "{granted}");
    let refused = cancel(&third, &waiting).refused("REQUEST_NOT_CANCELLABLE", 409);
    assert_eq!(refused.body["error"]["details"]["leaseId"], granted["lease"]["id"], "{}", refused.body);
    let told = eventually("its story is told", BOUND, || {
        let told = story(&admin, &waiting);
        told.iter().any(|word| word == "request.granted").then_some(told)
    });
    let once = |word: &str| told.iter().filter(|it| *it == word).count();
    assert_eq!(
        ["lease.requested", "lease.queued", "request.granted", "lease.rejected"].map(once),
        [1, 1, 1, 0],
        "{told:?}"
    );
    let drained = admin.post(&format!("/v1/resources/{twin}/drain"), &json!({})).expect(200).body;
    assert_eq!(drained["resource"]["worker"], "rack-1", "{drained}");
    third.delete(&format!("/v1/leases/{}", text(&granted["lease"]["id"]))).expect(200);
    admin.delete(&format!("/v1/resources/{twin}/drain")).expect(200);
    hold(&holder, twin);
}

#[test]
fn the_command_line_waits_by_name_through_the_gateway() {
    let mut lab = fleet();
    let holder = agent(&lab, "holder");
    let lease = hold(&holder, "bench");
    for (name, arguments) in [
        ("poll", &["lease", "acquire", "rack-2/bench", "--on-conflict", "join-waiting-room", "--poll"][..]),
        ("wait", &["lease", "--resource", "bench", "--requester", "other"][..]),
    ] {
        let mut command = lab.command();
        command.args(arguments);
        lab.run(name, command);
        let room = "/v1/resources/bench/waiting-room";
        let wanted = if name == "poll" { 1 } else { 2 };
        let door = lab.door("gateway");
        eventually("it waits", BOUND, || (door.get(room).expect(200).body["count"] == wanted).then_some(()));
    }
    release(&holder, &lease);
    assert!(lab.wait_end("poll").success(), "{}", lab.said("poll"));
    let admin = lab.door("gateway");
    let leases = admin.get("/v1/leases").expect(200).body;
    admin.delete(&format!("/v1/leases/{}", text(&leases["leases"][0]["id"]))).expect(200);
    assert!(lab.wait_end("wait").success(), "{}", lab.said("wait"));
}
