//! Resources that stand for another phone after their lab file was read again: from the next lease on (SPEC §12).

use std::fs;

use serde_json::json;

use super::{House, bound, lab, model, reaches, resource, take, wait_available, wait_state};
use crate::adb::device::{Device, MOTO_G, PIXEL_8};
use crate::adb::server::AdbServer;
use crate::lab::Lab;
use crate::waiting::{acquire, outcome, release, text, wait};

/// Writes another driver into the lab file, and has the nodes read it.
#[track_caller]
fn reload(lab: &Lab, server: &AdbServer, from: &str, to: &str) {
    let port = server.port.to_string();
    let [from, to] = [from, to].map(|driver| driver.replace("<adb>", &port));
    let text = fs::read_to_string(lab.file()).unwrap();
    assert!(text.contains(&from), "{from} is not in the file");
    fs::write(lab.file(), text.replacen(&from, &to, 1)).unwrap();
    let said = lab.berth(&["config", "reload"]).ok();
    assert!(said.contains("changed: rack-1/phone"), "{said}");
}

fn adb(driver: &str) -> String {
    format!("kind = \"adb\", {driver}")
}

#[test]
fn a_resource_that_becomes_a_phone_is_absent_until_it_is_seen_and_is_there_again_when_it_is_none_any_more() {
    let Some(server) = AdbServer::start() else { return };
    let mut pixel = Device::new(PIXEL_8);
    let (phone, other) = (adb(&bound(&pixel)), "kind = \"command\", health = [\"true\"]");
    let lab = lab(House::Standalone, &server, &[("phone", &bound(&pixel))]);
    let door = lab.door("rack-1");
    wait_state(&door, "phone", "absent", "plug it in");
    reload(&lab, &server, &phone, other);
    wait_state(&door, "phone", "available", "");
    let lease = text(&take(&door, "phone", "one")["id"]);
    release(&door, &lease);
    reload(&lab, &server, other, &phone);
    wait_state(&door, "phone", "absent", "plug it in");
    acquire(&door, "phone", json!({ "requester": "one" })).refused("RESOURCE_UNAVAILABLE", 409);
    server.plug(&pixel);
    wait_available(&door, "phone", &pixel);
    let lease = take(&door, "phone", "one");
    assert_eq!(lease["environment"], reaches(&server, &pixel));
    release(&door, &text(&lease["id"]));
    server.unplug(&mut pixel);
    wait_state(&door, "phone", "absent", "plug it in");
    reload(&lab, &server, &phone, "kind = \"none\"");
    wait_state(&door, "phone", "available", "");
    let lease = take(&door, "phone", "one");
    assert_eq!((&lease["environment"], &lease["labels"]), (&json!({}), &json!({})), "it is no phone any more");
}

#[test]
fn a_leased_phone_stays_what_it_is_and_the_next_lease_has_the_other_one() {
    let Some(server) = AdbServer::start() else { return };
    let (pixel, moto) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    server.plug(&pixel);
    server.plug(&moto);
    let reset = ", reset = [\"sh\", \"-c\", \"echo $ANDROID_SERIAL >> resets\"]";
    let (first, second) = (bound(&pixel) + reset, bound(&moto) + reset);
    let lab = lab(House::Standalone, &server, &[("phone", &first)]);
    let door = lab.door("rack-1");
    wait_available(&door, "phone", &pixel);
    let lease = take(&door, "phone", "one");
    let id = text(&lease["id"]);
    let waits = wait(&door, json!({ "resourceId": "phone", "requester": "next" }));
    reload(&lab, &server, &first, &second);
    // What it was leased as it is, whatever the server says meanwhile.
    let shown = resource(&door, "phone");
    assert_eq!((&shown["state"], shown["reason"].is_null()), (&json!("leased"), true), "{shown}");
    let again = door.get(&format!("/v1/leases/{id}")).expect(200).body["lease"].take();
    assert_eq!((&again["environment"], &again["labels"]), (&lease["environment"], &lease["labels"]));
    assert_eq!(super::notices(&door, &id), []);
    release(&door, &id);
    let granted = outcome(&door, &waits);
    assert_eq!(granted["lease"]["environment"], reaches(&server, &moto), "{granted}");
    assert_eq!(granted["lease"]["labels"]["model"], "moto g(7)");
    assert_eq!(super::written(&lab, "resets"), [pixel.serial()], "the old one was reset");
}

#[test]
fn a_leased_phone_whose_rule_is_another_now_is_adopted_by_it_after_its_release() {
    let Some(server) = AdbServer::start() else { return };
    let pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let (first, second) = (bound(&pixel), model("Pixel 8"));
    let lab = lab(House::Standalone, &server, &[("phone", &first)]);
    let door = lab.door("rack-1");
    wait_available(&door, "phone", &pixel);
    let lease = take(&door, "phone", "one");
    let id = text(&lease["id"]);
    let waits = wait(&door, json!({ "resourceId": "phone", "requester": "next" }));
    reload(&lab, &server, &first, &second);
    assert_eq!(door.get(&format!("/v1/leases/{id}")).body["lease"]["environment"], lease["environment"]);
    release(&door, &id);
    let granted = outcome(&door, &waits);
    assert_eq!(granted["lease"]["environment"], reaches(&server, &pixel), "{granted}");
}
