//! Waiting on a single host, as its users meet it (SPEC §2, §3, §8): the waiting room, requests that the node grants by
//! itself, one order for both, and what a restart leaves of them.

mod drain;
mod grace;
mod leases;
mod log;
mod order;
mod races;
mod requests;
mod restart;
mod room;
pub mod storm;
mod streams;
mod tickets;

use serde_json::{Value, json};

use crate::http::{Answer, Call, Door};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

/// A worker without a gateway: one board, a bench for two, and two phones of different versions.
pub const HOST: &str = r#"
[lab]
name = "test"

[[worker]]
name = "host"
api = "127.0.0.1:<host>"

[[worker.resource]]
id = "board"
labels = { platform = "linux" }

[[worker.resource]]
id = "bench"
labels = { platform = "bench" }
max_shared = 2

[[worker.resource]]
id = "pixel-a"
labels = { platform = "android", os = "15" }

[[worker.resource]]
id = "pixel-b"
labels = { platform = "android", os = "13" }
"#;

/// The host, ready, with more lines in its lab file.
pub fn host(settings: &str) -> Lab {
    Lab::apart(&format!("{HOST}\n{settings}"), &["host"])
}

/// A new principal's door.
#[track_caller]
pub fn principal(lab: &Lab, name: &str, role: &str) -> Door {
    let made = lab.door("host").post("/v1/tokens", &json!({ "name": name, "role": role })).expect(201);
    Door::tcp(lab.port("host")).with_token(made.body["secret"].as_str().expect("the secret is shown once"))
}

/// Doors of new agents.
#[track_caller]
pub fn agents<const N: usize>(lab: &Lab, names: [&str; N]) -> [Door; N] {
    names.map(|name| principal(lab, name, "agent"))
}

/// Asks for one resource, at the first door of SPEC §2.
pub fn acquire(door: &Door, resource: &str, body: Value) -> Answer {
    door.post(&format!("/v1/resources/{resource}/leases"), &body)
}

/// The same, ready to stand in the waiting room.
pub fn join(door: &Door, resource: &str, mut body: Value) -> Answer {
    body["onConflict"] = json!("join-waiting-room");
    acquire(door, resource, body)
}

/// Stands in the waiting room, at this place.
#[track_caller]
pub fn joins_at(place: u64, door: &Door, resource: &str) {
    let told = join(door, resource, json!({})).expect(202);
    assert_eq!(told.body["waitingPosition"], place, "{}", told.body);
}

/// Takes a resource; the id of the lease.
#[track_caller]
pub fn hold(door: &Door, resource: &str) -> String {
    text(&acquire(door, resource, json!({})).expect(201).body["lease"]["id"])
}

/// Gives a lease back; who was taken first of those who wait.
#[track_caller]
pub fn release(door: &Door, lease: &str) -> Value {
    door.delete(&format!("/v1/leases/{lease}")).expect(200).body["admittedWaiter"].take()
}

/// Asks for a lease, at the second door of SPEC §2.
pub fn request(door: &Door, body: Value) -> Answer {
    door.post("/v1/lease-requests", &body)
}

/// Asks for a lease and waits; the request as it was answered.
#[track_caller]
pub fn wait(door: &Door, body: Value) -> Value {
    let made = request(door, body).expect(201).body["request"].take();
    assert_eq!(made["state"], "waiting", "{made}");
    made
}

/// A lease request as it is, once it has changed or some seconds have passed.
#[track_caller]
pub fn outcome(door: &Door, request: &Value) -> Value {
    let path = format!("/v1/lease-requests/{}?wait=15", text(&request["id"]));
    door.get(&path).expect(200).body["request"].take()
}

/// A lease request as it is now; that counts as asking about it.
#[track_caller]
pub fn state(door: &Door, request: &Value) -> Value {
    door.get(&format!("/v1/lease-requests/{}", text(&request["id"]))).expect(200).body["request"].take()
}

/// Who waits for a resource by its name, in their order.
#[track_caller]
pub fn room(lab: &Lab, resource: &str) -> Value {
    lab.door("host").get(&format!("/v1/resources/{resource}/waiting-room")).expect(200).body
}

/// The names of those who wait for a resource.
#[track_caller]
pub fn names(lab: &Lab, resource: &str) -> Vec<String> {
    room(lab, resource)["waiters"].as_array().unwrap().iter().map(|waiter| text(&waiter["holderId"])).collect()
}

/// Who holds a resource.
#[track_caller]
pub fn holders(lab: &Lab, resource: &str) -> Vec<String> {
    let leases =
        lab.door("host").get(&format!("/v1/resources/{resource}")).expect(200).body["resource"]["leases"].take();
    leases.as_array().unwrap().iter().map(|lease| text(&lease["holderId"])).collect()
}

/// The events of one kind, in their order.
#[track_caller]
pub fn events(door: &Door, kind: &str) -> Vec<Value> {
    let mut page = door.get(&format!("/v1/events?limit=1000&event={kind}")).expect(200).body;
    page["events"].as_array_mut().unwrap().drain(..).collect()
}

/// Waits for an event of this kind about somebody; its payload.
#[track_caller]
pub fn event_about(lab: &Lab, kind: &str, requester: &str) -> Value {
    let door = lab.door("host");
    eventually(&format!("{kind} of {requester}"), BOUND, || {
        events(&door, kind).into_iter().map(|event| event["payload"].clone()).find(|it| it["requester"] == requester)
    })
}

/// `DELETE` that must be answered.
pub fn cancel(door: &Door, request: &Value) -> Answer {
    door.send(&Call {
        method: "DELETE",
        path: &format!("/v1/lease-requests/{}", text(&request["id"])),
        ..Call::default()
    })
}

/// A text in JSON.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// A time in JSON.
#[track_caller]
pub fn time(value: &Value) -> jiff::Timestamp {
    let text = text(value);
    assert_eq!((text.len(), text.chars().last()), (27, Some('Z')), "RFC 3339 in UTC with microseconds: {text}");
    text.parse().unwrap()
}

/// True when two times are the same but for the trembling of two clocks that are read one after the other.
#[track_caller]
pub fn close(one: &Value, other: &Value) -> bool {
    time(one).duration_since(time(other)).abs() < jiff::SignedDuration::from_millis(100)
}
