//! Phones that are plugged in and do not answer.

use serde_json::json;

use super::{House, bound, lab, notices, resource, take, wait_available, wait_state};
use crate::adb::device::{Device, Mood, PIXEL_8};
use crate::adb::server::AdbServer;
use crate::http::Door;
use crate::patience::{BOUND, eventually};
use crate::sse::Stream;
use crate::waiting::{events, outcome, state, text, wait};

/// A phone that is looked at often, and has a second to answer.
fn often(device: &Device) -> String {
    bound(device) + ", health = [\"true\"], health_timeout = \"1s\", health_interval = \"1s\""
}

#[test]
fn a_phone_that_falls_silent_is_quarantined_after_two_checks_until_an_operator_clears_it() {
    let Some(server) = AdbServer::start() else { return };
    let pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let lab = lab(House::Fleet, &server, &[("phone", &often(&pixel))]);
    let door = lab.door("gateway");
    wait_available(&door, "phone", &pixel);
    pixel.set(Mood::Hangs);
    let why = format!("health got no answer from the device {}", pixel.serial());
    let shown = wait_state(&door, "phone", "quarantined", &why);
    assert!(text(&shown["reason"]).ends_with("; it is tried again by itself"), "{shown}");
    let waits = wait(&door, json!({ "select": "model=Pixel 8", "requester": "one" }));
    assert_eq!(state(&door, &waits)["waitingFor"], "quarantined");

    pixel.set(Mood::Well);
    let said = lab.berth(&["resource", "clear", "phone"]);
    // Whoever waited has it at once.
    let said = said.ok();
    assert!(["phone is leased\n", "phone is available\n"].contains(&said.as_str()), "{said}");
    let granted = outcome(&door, &waits);
    assert_eq!(granted["state"], "granted", "{granted}");
    let told = |door: &Door| -> Vec<(String, String, String)> {
        let moves = events(door, "resource.state-changed").into_iter().map(|event| event["payload"].clone());
        moves.map(|it| (text(&it["from"]), text(&it["to"]), text(&it["reason"]))).collect()
    };
    let moves = eventually("the gateway has all of it", BOUND, || {
        Some(told(&door)).filter(|moves| moves.iter().any(|(.., reason)| reason == "cleared by an operator"))
    });
    let into = moves.iter().find(|(_, to, _)| to == "quarantined").expect("it was told");
    assert!(into.0 == "available" && into.2.starts_with(&why), "{into:?}");
}

#[test]
fn a_leased_phone_that_falls_silent_stays_leased_and_its_holder_hears_of_its_illness_and_of_its_recovery() {
    let Some(server) = AdbServer::start() else { return };
    let pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let lab = lab(House::Standalone, &server, &[("phone", &often(&pixel))]);
    let door = lab.door("rack-1");
    wait_available(&door, "phone", &pixel);
    let lease = text(&take(&door, "phone", "one")["id"]);
    let mut stream = Stream::open(&door, &format!("/v1/leases/{lease}/events"));
    stream.start();
    pixel.set(Mood::Confused);
    let data = stream.expect("device_unhealthy");
    assert!(text(&data["reason"]).contains("got another answer"), "{data}");
    let shown = resource(&door, "phone");
    assert_eq!((&shown["state"], &shown["leases"][0]["id"]), (&json!("leased"), &json!(lease)));
    assert_eq!(shown["failure"]["hook"], "health", "{shown}");
    pixel.set(Mood::Well);
    stream.expect("device_recovered");
    let told: Vec<String> = notices(&door, &lease).into_iter().map(|(event, _)| event).collect();
    assert_eq!(told, ["device_unhealthy", "device_recovered"]);
    assert!(resource(&door, "phone")["reason"].is_null());
}
