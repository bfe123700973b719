//! Every "no" of the first two doors and of a lease's life: its code, its status, the exit code of the command, and
//! words that say what to do (SPEC §2, §4, §11).

mod access;
mod away;
mod bad_request;
mod chosen_id;
mod held;
mod same_key;
mod unknown;

use serde_json::{Value, json};

use crate::http::{Answer, Door};
use crate::lab::{FLEET, Lab};

/// The whole fleet in one process, ready.
fn fleet() -> Lab {
    Lab::joined(FLEET, "gateway")
}

/// The doors that must answer alike: the gateway's, and that of a worker for clients on its machine.
const BOTH: [&str; 2] = ["gateway", "rack-1"];

/// Asks for one resource, at the first door of SPEC §2.
fn acquire(door: &Door, resource: &str, body: Value) -> Answer {
    door.post(&format!("/v1/resources/{}/leases", resource.replace('/', "%2F")), &body)
}

/// Asks for any resource, at the second door, and would rather be refused than wait.
fn request(door: &Door, mut body: Value) -> Answer {
    body["noWait"] = json!(true);
    door.post("/v1/lease-requests", &body)
}

/// Takes a resource for a requester of its own, and answers the lease.
#[track_caller]
fn hold(door: &Door, resource: &str, requester: &str) -> Value {
    acquire(door, resource, json!({ "requester": requester })).expect(201).body["lease"].take()
}

/// The id of a lease.
fn id(lease: &Value) -> &str {
    lease["id"].as_str().unwrap_or_else(|| panic!("{lease}"))
}

/// Panics unless a command was refused with this code, and answers its words and its hint.
#[track_caller]
fn refused_as<'a>(code: &str, said: &'a str) -> (&'a str, &'a str) {
    let (line, rest) = said.split_once('\n').unwrap_or_else(|| panic!("{said}"));
    let words = line.strip_prefix(&format!("error {code}: ")).unwrap_or_else(|| panic!("{said}"));
    (words, rest.strip_prefix("hint: ").unwrap_or_default().trim_end())
}
