//! Phones that are pulled out and put back, while somebody has them and while nobody has.

use serde_json::json;

use super::{House, bound, lab, model, moves, notices, reaches, resource, wait_available, wait_state};
use crate::adb::device::{Device, MOTO_G, PIXEL_8};
use crate::adb::server::AdbServer;
use crate::patience::{BOUND, eventually};
use crate::sse::Stream;
use crate::waiting::{acquire, outcome, release, state, text, wait};

fn pulled_out_under_its_holder(house: House) {
    let Some(server) = AdbServer::start() else { return };
    let mut pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let mut lab = lab(house, &server, &[("phone", &bound(&pixel))]);
    let door = lab.door(house.front());
    wait_available(&door, "phone", &pixel);
    let mut keep = lab.command();
    keep.args(["lease", "--platform", "android", "--model", "Pixel 8", "--ttl", "3s", "--keep", "--requester", "kept"]);
    lab.run("keep", keep);
    let shown = eventually("it is leased", BOUND, || {
        Some(resource(&door, "phone")).filter(|shown| shown["leases"][0]["id"].is_string())
    });
    let lease = text(&shown["leases"][0]["id"]);
    let mut stream = Stream::open(&door, &format!("/v1/leases/{lease}/events"));
    stream.start();
    let mut told = |word: &str| loop {
        // Renewals are told too.
        let next = stream.next().expect("the lease goes on");
        if next.event != "renewed" {
            assert_eq!(next.event, word, "{next:?}");
            return next.data;
        }
    };
    let waits = wait(&door, json!({ "resourceId": "phone", "requester": "next" }));

    server.unplug(&mut pixel);
    let why = format!("the device {} is not among those of the adb server on port {}", pixel.serial(), server.port);
    let shown = wait_state(&door, "phone", "leased", &why);
    assert_eq!(shown["leases"][0]["id"], lease, "the lease is kept");
    let data = told("device_unhealthy");
    assert!(text(&data["reason"]).starts_with(&why), "{data}");
    eventually("its keeper is told", BOUND, || lab.said("keep").contains(&why).then_some(()));
    assert_eq!(state(&door, &waits)["waitingFor"], "leased", "nobody else gets it");
    assert_eq!(moves(&door, "phone"), ["absent → available", "available → leased"], "leased it stays");

    server.replug(&mut pixel);
    told("device_recovered");
    eventually("its keeper is told", BOUND, || lab.said("keep").contains("it is there again").then_some(()));
    let shown = resource(&door, "phone");
    assert_eq!((&shown["leases"][0]["id"], shown["reason"].is_null()), (&json!(lease), true), "{shown}");
    release(&door, &lease);
    assert_eq!(lab.wait_end("keep").code(), Some(14));
    let granted = outcome(&door, &waits);
    assert_eq!(granted["lease"]["environment"], reaches(&server, &pixel), "{granted}");
}

#[test]
fn a_phone_that_is_pulled_out_under_its_holder_stays_leased_and_the_holder_is_told_at_a_standalone_worker() {
    pulled_out_under_its_holder(House::Standalone);
}

#[test]
fn a_phone_that_is_pulled_out_under_its_holder_stays_leased_and_the_holder_is_told_through_a_gateway() {
    pulled_out_under_its_holder(House::Fleet);
}

#[test]
fn what_a_holder_was_not_told_yet_it_hears_with_its_next_renewal_once() {
    let Some(server) = AdbServer::start() else { return };
    let mut pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let lab = lab(House::Standalone, &server, &[("phone", &model("Pixel 8"))]);
    let door = lab.door("rack-1");
    wait_available(&door, "phone", &pixel);
    let lease = text(&super::take(&door, "phone", "one")["id"]);
    assert_eq!(notices(&door, &lease), []);
    server.power_off(&mut pixel);
    wait_state(&door, "phone", "leased", "is offline");
    server.replug(&mut pixel);
    eventually("it is back", BOUND, || resource(&door, "phone")["reason"].is_null().then_some(()));
    let told = notices(&door, &lease);
    assert_eq!(told.first().map(|(event, _)| event.as_str()), Some("device_unhealthy"), "{told:?}");
    assert!(told[0].1.contains("is offline"), "{told:?}");
    let last = told.last().expect("it is told");
    assert_eq!((last.0.as_str(), last.1.as_str()), ("device_recovered", "it is there again"));
    assert_eq!(notices(&door, &lease), [], "nothing is told twice");
}

fn pulled_out_while_free(house: House) {
    let Some(server) = AdbServer::start() else { return };
    let (mut pixel, moto) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    server.plug(&pixel);
    server.plug(&moto);
    let lab = lab(house, &server, &[("phone", &model("Pixel 8")), ("other", &bound(&moto))]);
    let door = lab.door(house.front());
    wait_available(&door, "phone", &pixel);
    wait_available(&door, "other", &moto);
    server.unplug(&mut pixel);
    let shown = wait_state(&door, "phone", "absent", "is not there any more, and no other of the adb server on port");
    assert_eq!(shown["labels"]["model"], "Pixel 8", "what it was is still known");

    let by_name = wait(&door, json!({ "resourceId": "phone", "requester": "a", "ttlMs": 60_000 }));
    let by_model = wait(&door, json!({ "select": "model=Pixel 8", "requester": "b", "ttlMs": 60_000 }));
    for waits in [&by_name, &by_model] {
        assert_eq!(state(&door, waits)["waitingFor"], "absent");
    }
    let now = json!({ "select": "model=Pixel 8", "requester": "c", "noWait": true });
    let refused = door.post("/v1/lease-requests", &now);
    assert_eq!(refused.code(), "NO_CAPACITY", "{}", refused.body);
    assert_eq!(acquire(&door, "phone", json!({ "requester": "c" })).code(), "RESOURCE_UNAVAILABLE");

    server.replug(&mut pixel);
    let granted = outcome(&door, &by_name);
    assert_eq!(granted["state"], "granted", "{granted}");
    assert_eq!(granted["lease"]["environment"], reaches(&server, &pixel), "{granted}");
    release(&door, &text(&granted["lease"]["id"]));
    let granted = outcome(&door, &by_model);
    assert_eq!(granted["lease"]["environment"], reaches(&server, &pixel), "{granted}");
    assert_eq!(moves(&door, "other"), ["absent → available"], "nothing has happened to the other one");
}

#[test]
fn who_waits_for_a_phone_that_is_away_is_told_so_and_served_when_it_is_back_at_a_standalone_worker() {
    pulled_out_while_free(House::Standalone);
}

#[test]
fn who_waits_for_a_phone_that_is_away_is_told_so_and_served_when_it_is_back_through_a_gateway() {
    pulled_out_while_free(House::Fleet);
}
