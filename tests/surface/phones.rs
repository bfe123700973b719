//! A lab whose phones are plugged in to a real adb server: leased, driven, pulled out and put back (SPEC §7).
//!
//! Where there is no adb program the tests say so, and test nothing.

mod checked;
mod driven;
mod pinned;
mod pulled;
mod reloaded;
mod reset;
mod server;

use std::fs;

use serde_json::{Value, json};

use crate::adb::device::Device;
use crate::adb::server::AdbServer;
use crate::http::Door;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::text;

/// The doors that a lab has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum House {
    /// A worker that serves its own clients.
    Standalone,
    /// The same behind a gateway, each in a process of its own.
    Fleet,
}

impl House {
    /// The node that clients talk to.
    fn front(self) -> &'static str {
        match self {
            House::Standalone => "rack-1",
            House::Fleet => "gateway",
        }
    }

    fn nodes(self) -> &'static [&'static str] {
        match self {
            House::Standalone => &["rack-1"],
            House::Fleet => &["gateway", "rack-1"],
        }
    }
}

/// A lab of the worker `rack-1`, whose resources have these names and drivers. `<adb>` stands for the port of the server.
fn lab(house: House, server: &AdbServer, resources: &[(&str, &str)]) -> Lab {
    let mut file = "[lab]\nname = \"test\"\n".to_owned();
    if house == House::Fleet {
        file += "\n[gateway]\napi = \"127.0.0.1:<gateway>\"\nlink = \"127.0.0.1:<link>\"\n";
    }
    file += "\n[[worker]]\nname = \"rack-1\"\napi = \"127.0.0.1:<rack-1>\"\n";
    for (id, driver) in resources {
        let driver = driver.replace("<adb>", &server.port.to_string());
        file += &format!("\n[[worker.resource]]\nid = \"{id}\"\ndriver = {{ kind = \"adb\", {driver} }}\n");
    }
    let mut lab = Lab::new(&file);
    // Nodes, hooks and commands come to this server by the plain program, and to no other.
    for (name, value) in server.environment() {
        lab.set(name, &value);
    }
    for node in house.nodes() {
        lab.start(node);
    }
    for node in house.nodes() {
        lab.wait_ready(node);
    }
    lab
}

/// A driver that is bound to this device.
fn bound(device: &Device) -> String {
    format!("port = <adb>, serial = \"{}\"", device.serial())
}

/// A driver that adopts what is of this model.
fn model(name: &str) -> String {
    format!("port = <adb>, match = {{ model = \"{name}\" }}")
}

/// A resource as it is shown.
#[track_caller]
fn resource(door: &Door, id: &str) -> Value {
    door.get(&format!("/v1/resources/{id}")).expect(200).body["resource"].take()
}

/// Waits until a resource is in this state, for a reason that has these words; as it is then.
#[track_caller]
fn wait_state(door: &Door, id: &str, state: &str, words: &str) -> Value {
    let mut last = Value::Null;
    let found = crate::patience::poll(BOUND, || {
        last = resource(door, id);
        let reason = last["reason"].as_str().unwrap_or_default();
        (last["state"] == state && reason.contains(words)).then(|| last.clone())
    });
    found.unwrap_or_else(|| panic!("{id} is never {state} because of {words:?}, but {last}"))
}

/// Waits until a resource is free as this device.
#[track_caller]
fn wait_available(door: &Door, id: &str, device: &Device) -> Value {
    eventually(&format!("{id} is {}", device.serial()), BOUND, || {
        let shown = resource(door, id);
        (shown["state"] == "available" && shown["labels"]["serial"] == device.serial()).then_some(shown)
    })
}

/// What a holder of this device finds in its environment.
fn reaches(server: &AdbServer, device: &Device) -> Value {
    json!({ "ANDROID_SERIAL": device.serial(), "ANDROID_ADB_SERVER_PORT": server.port.to_string() })
}

/// Takes a resource for some time that no test lasts; the lease.
#[track_caller]
fn take(door: &Door, id: &str, requester: &str) -> Value {
    let body = json!({ "requester": requester, "ttlMs": 3_600_000 });
    crate::waiting::acquire(door, id, body).expect(201).body["lease"].take()
}

/// Renews a lease; what its holder is told of the device, as pairs of the event and its words.
#[track_caller]
fn notices(door: &Door, lease: &str) -> Vec<(String, String)> {
    let renewed = door.post(&format!("/v1/leases/{lease}/renew"), &json!({})).expect(200).body;
    let told = renewed["notices"].as_array().expect("a list").clone();
    told.iter().map(|notice| (text(&notice["event"]), text(&notice["message"]))).collect()
}

/// The moves of a resource, as the log has them, in words such as `available → absent`.
#[track_caller]
fn moves(door: &Door, id: &str) -> Vec<String> {
    let told = crate::waiting::events(door, "resource.state-changed").into_iter().map(|event| event["payload"].clone());
    let of_it = told.filter(|payload| payload["resourceId"] == id && payload["from"] != payload["to"]);
    of_it.map(|payload| format!("{} → {}", text(&payload["from"]), text(&payload["to"]))).collect()
}

/// The lines of a file that hooks write to, in the directory of the lab file.
fn written(lab: &Lab, file: &str) -> Vec<String> {
    let text = fs::read_to_string(lab.path(file)).unwrap_or_default();
    text.lines().map(ToOwned::to_owned).collect()
}
