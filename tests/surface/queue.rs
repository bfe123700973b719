//! Those who wait at a gateway by selector: on the command line, over HTTP, and through a restart of the gateway.

use serde_json::{Value, json};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::waiting::{cancel, outcome, request, state, text, wait};

fn fleet() -> Lab {
    Lab::apart(FLEET, &["rack-1", "rack-2", "gateway"])
}

fn agent(lab: &Lab, name: &str) -> Door {
    let made = lab.door("gateway").post("/v1/tokens", &json!({ "name": name, "role": "agent" })).expect(201);
    Door::tcp(lab.port("gateway")).with_token(made.body["secret"].as_str().expect("the secret is shown once"))
}

/// Leases both phones; the leases, for an hour.
fn take_phones(lab: &Lab) -> Vec<String> {
    let take = |requester: &str| {
        let body = json!({ "select": "platform=android", "requester": requester, "ttlMs": 3_600_000, "noWait": true });
        text(&request(&lab.door("gateway"), body).expect(201).body["request"]["lease"]["id"])
    };
    ["holder-1", "holder-2"].map(take).into()
}

fn release(lab: &Lab, lease: &str) {
    lab.door("gateway").delete(&format!("/v1/leases/{lease}")).expect(200);
}

fn android() -> Value {
    json!({ "select": "platform=android" })
}

/// `berth lease` at the gateway, in the background.
fn lease_in_the_background(lab: &mut Lab, name: &str) {
    let mut command = lab.command();
    command.args(["lease", "--platform", "android", "--requester", name]);
    lab.run(name, command);
    eventually("it says that it waits", BOUND, || lab.said(name).contains("position").then_some(()));
}

/// What a request is told that waits, once the gateway admits requests.
fn waiting_requests(lab: &Lab) -> Vec<Value> {
    let mut listed = lab.door("gateway").get("/v1/lease-requests").expect(200).body;
    listed["requests"].as_array_mut().expect("a list").drain(..).collect()
}

#[test]
fn berth_lease_waits_through_the_gateway_and_is_served_when_a_phone_is_given_back() {
    let mut lab = fleet();
    let phones = take_phones(&lab);
    lease_in_the_background(&mut lab, "patient");
    let said = lab.said("patient");
    assert!(said.contains("waits since") && said.contains("position 1, leased until"), "{said}");
    release(&lab, &phones[1]);
    assert_eq!(lab.wait_end("patient").code(), Some(0));
    let said = lab.said("patient");
    assert!(said.lines().any(|line| line.starts_with("leased rack-1.lse_")), "{said}");
}

#[test]
fn berth_lease_keeps_its_place_when_the_gateway_is_killed_while_it_waits() {
    let mut lab = fleet();
    let phones = take_phones(&lab);
    for name in ["first", "second"] {
        lease_in_the_background(&mut lab, name);
    }
    eventually("it is on disk that somebody waits", BOUND, || {
        let marked = std::fs::read_to_string(lab.state("gateway").join("run.state")).ok()?;
        marked.contains("platform=android").then_some(())
    });
    lab.kill_9("gateway");
    lab.start("gateway");
    eventually("both are back", BOUND, || {
        lab.wait_ready("gateway");
        let waiting = waiting_requests(&lab);
        (waiting.len() == 2 && waiting.iter().all(|request| request["position"].is_u64())).then_some(())
    });
    for name in ["first", "second"] {
        assert!(lab.said(name).contains("asking again"), "{}", lab.said(name));
    }
    release(&lab, &phones[0]);
    assert_eq!(lab.wait_end("first").code(), Some(0));
    assert!(lab.said("first").contains("leased rack-1.lse_"), "{}", lab.said("first"));
    assert_eq!(waiting_requests(&lab).len(), 1, "the other has the place behind it");
    release(&lab, &phones[1]);
    assert_eq!(lab.wait_end("second").code(), Some(0));
}

#[test]
fn a_waiting_request_shows_its_place_its_reason_and_its_ticket_and_can_be_cancelled() {
    let lab = fleet();
    let phones = take_phones(&lab);
    let [first, second] = ["first", "second"].map(|name| agent(&lab, name));
    let waits = wait(&first, android());
    assert_eq!((&waits["position"], &waits["waitingFor"]), (&json!(1), &json!("leased")));
    assert!(waits["until"].is_string() && waits["ticket"].is_string(), "{waits}");
    let behind = wait(&second, android());
    assert_eq!(behind["position"], 2);
    request(&second, android()).refused("REQUESTER_ALREADY_LEASED", 409);
    cancel(&second, &waits).refused("INSUFFICIENT_PERMISSIONS", 403);
    cancel(&first, &waits).expect(204);
    assert_eq!(state(&first, &waits)["state"], "cancelled");
    assert_eq!(state(&second, &behind)["position"], 1);
    let listed = second.get("/v1/lease-requests").expect(200).body;
    assert_eq!(listed["requests"].as_array().map(Vec::len), Some(1), "{listed}");
    release(&lab, &phones[0]);
    let granted = outcome(&second, &behind);
    assert_eq!(granted["state"], "granted", "{granted}");
    assert_eq!(granted["lease"]["resourceId"], "pixel-a");
}

#[test]
fn a_request_that_a_restart_of_the_gateway_has_forgotten_is_unknown_and_its_ticket_keeps_the_place() {
    let mut lab = fleet();
    let phones = take_phones(&lab);
    let [first, second] = ["first", "second"].map(|name| agent(&lab, name));
    let (before_first, before_second) = (wait(&first, android()), wait(&second, android()));
    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    let path = format!("/v1/lease-requests/{}", text(&before_first["id"]));
    first.get(&path).refused("UNKNOWN_LEASE_REQUEST", 404);
    let back = |door: &Door, before: &Value| {
        let mut body = android();
        body["ticket"] = before["ticket"].clone();
        wait(door, body)
    };
    let second_again = back(&second, &before_second);
    let first_again = back(&first, &before_first);
    assert_eq!((&first_again["position"], &state(&second, &second_again)["position"]), (&json!(1), &json!(2)));
    release(&lab, &phones[1]);
    assert_eq!(outcome(&first, &first_again)["state"], "granted");
    cancel(&second, &second_again).expect(204);
    let forged = back(&second, &before_first);
    assert_eq!(forged["position"], 1, "another's ticket is ignored");
}
