//! A resource that adopts what is plugged in stays the phone that it was leased as.

use serde_json::json;

use super::{House, lab, model, reaches, resource, take, wait_available, wait_state};
use crate::adb::device::{Device, PIXEL_8};
use crate::adb::server::AdbServer;
use crate::patience::{BOUND, eventually};
use crate::waiting::{outcome, release, state, text, wait};

fn leased_and_replaced_by_no_spare(house: House) {
    let Some(server) = AdbServer::start() else { return };
    let (mut phone, spare) = (Device::new(PIXEL_8), Device::new(PIXEL_8));
    server.plug(&phone);
    let mut lab = lab(house, &server, &[("a", &model("Pixel 8")), ("b", &model("Pixel 8"))]);
    let door = lab.door(house.front());
    wait_available(&door, "a", &phone);
    wait_state(&door, "b", "absent", "no device of the adb server");
    let lease = text(&take(&door, "a", "holder")["id"]);
    let environment = || door.get(&format!("/v1/leases/{lease}")).expect(200).body["lease"]["environment"].take();

    server.unplug(&mut phone);
    let away = format!("the device {} is not among those", phone.serial());
    wait_state(&door, "a", "leased", &away);
    server.plug(&spare);
    wait_available(&door, "b", &spare);
    assert!(text(&resource(&door, "a")["reason"]).contains(&away), "the spare is not taken for it");
    assert_eq!(environment(), reaches(&server, &phone));

    lab.kill_9("rack-1");
    lab.start("rack-1");
    lab.wait_ready("rack-1");
    // Whatever it finds at its start: the spare is the only one that is there. A gateway shows what it was told last, and
    // says of who waits that the worker is away, until it has heard from it again; so the worker is asked itself.
    let worker = lab.door("rack-1");
    wait_state(&worker, "a", "leased", &away);
    wait_available(&worker, "b", &spare);
    let waits = wait(&door, json!({ "resourceId": "a", "requester": "next" }));
    eventually("it waits for the lease", BOUND, || (state(&door, &waits)["waitingFor"] == "leased").then_some(()));
    wait_state(&door, "a", "leased", &away);
    wait_available(&door, "b", &spare);

    server.replug(&mut phone);
    eventually("it is back", BOUND, || {
        let shown = resource(&door, "a");
        (shown["state"] == "leased" && shown["reason"].is_null()).then_some(())
    });
    assert_eq!(environment(), reaches(&server, &phone), "the holder has what it had");
    assert_eq!(resource(&door, "b")["labels"]["serial"], spare.serial());
    release(&door, &lease);
    let granted = outcome(&door, &waits);
    assert_eq!(granted["lease"]["environment"], reaches(&server, &phone), "{granted}");
}

#[test]
fn a_leased_phone_is_replaced_by_no_spare_also_over_a_kill_of_its_node_at_a_standalone_worker() {
    leased_and_replaced_by_no_spare(House::Standalone);
}

#[test]
fn a_leased_phone_is_replaced_by_no_spare_also_over_a_kill_of_its_node_behind_a_gateway() {
    leased_and_replaced_by_no_spare(House::Fleet);
}

#[test]
fn a_free_resource_takes_the_spare_and_whoever_waits_gets_it() {
    let Some(server) = AdbServer::start() else { return };
    let (mut phone, spare) = (Device::new(PIXEL_8), Device::new(PIXEL_8));
    server.plug(&phone);
    let lab = lab(House::Standalone, &server, &[("a", &model("Pixel 8"))]);
    let door = lab.door("rack-1");
    wait_available(&door, "a", &phone);
    let lease = text(&take(&door, "a", "holder")["id"]);
    server.unplug(&mut phone);
    wait_state(&door, "a", "leased", &phone.serial());
    server.plug(&spare);
    let waits = wait(&door, json!({ "select": "model=Pixel 8", "requester": "next" }));
    release(&door, &lease);
    let granted = outcome(&door, &waits);
    assert_eq!(granted["lease"]["environment"], reaches(&server, &spare), "{granted}");
    assert_eq!(granted["lease"]["labels"]["serial"], spare.serial());
}
