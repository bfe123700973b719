//! Phones of two models, leased by what they are and driven by the plain adb program.

use serde_json::{Value, json};

use super::{House, bound, lab, model, reaches, resource, wait_available};
use crate::adb::device::{Device, MOTO_G, PIXEL_8};
use crate::adb::server::AdbServer;

fn leased_by_model_and_driven(house: House) {
    let Some(server) = AdbServer::start() else { return };
    let (pixel, moto) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    server.plug(&pixel);
    server.plug(&moto);
    let lab = lab(house, &server, &[("bound", &bound(&pixel)), ("adopting", &model("moto g(7)"))]);
    let door = lab.door(house.front());
    let shown = wait_available(&door, "bound", &pixel);
    let labels =
        json!({ "platform": "android", "serial": pixel.serial(), "model": "Pixel 8", "os": "14", "sdk": "34" });
    assert_eq!((&shown["labels"], &shown["reason"]), (&labels, &Value::Null));
    let shown = wait_available(&door, "adopting", &moto);
    assert_eq!((&shown["labels"]["model"], &shown["labels"]["os"]), (&json!("moto g(7)"), &json!("10")));

    let said = lab.berth(&["--json", "lease", "--platform", "android", "--model", "Pixel 8", "--requester", "one"]);
    let answer: Value = serde_json::from_str(&said.ok()).expect("JSON");
    let lease = &answer["request"]["lease"];
    assert_eq!((&lease["resourceId"], &lease["labels"]), (&json!("bound"), &labels));
    assert_eq!(lease["environment"], reaches(&server, &pixel));
    let id = lease["id"].as_str().expect("it has an id");
    let again = door.get(&format!("/v1/leases/{id}")).expect(200);
    assert_eq!(again.body["lease"]["environment"], reaches(&server, &pixel), "whoever asks again is told the same");

    // The device itself answers, and it is the one that was left.
    let exec = ["exec", "--platform", "android", "--requester", "two", "--", "adb", "shell"];
    let echo = lab.berth(&[&exec[..], &["echo hi; getprop ro.product.model"]].concat());
    assert_eq!(echo.ok(), "hi\nmoto g(7)\n");
    assert_eq!(lab.berth(&[&exec[..], &["nothing"]].concat()).exit, 127, "the exit code of the device's shell");
    let old = lab.berth(&["lease", "--select", "platform=android,os<14", "--requester", "three", "--no-wait"]).ok();
    assert!(old.contains(" adopting until "), "{old}");
    assert_eq!(resource(&door, "bound")["state"], "leased");
}

#[test]
fn phones_are_leased_by_their_model_and_reached_by_adb_at_a_standalone_worker() {
    leased_by_model_and_driven(House::Standalone);
}

#[test]
fn phones_are_leased_by_their_model_and_reached_by_adb_through_a_gateway() {
    leased_by_model_and_driven(House::Fleet);
}
