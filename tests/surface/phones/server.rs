//! An adb server that dies under the phones of a lab.

use super::{House, bound, lab, model, notices, resource, take, wait_available, wait_state};
use crate::adb::device::{Device, MOTO_G, PIXEL_8};
use crate::adb::server::AdbServer;
use crate::patience::{BOUND, eventually};
use crate::waiting::text;

#[test]
fn a_server_that_dies_takes_its_phones_with_it_and_another_brings_them_back() {
    let Some(mut server) = AdbServer::start() else { return };
    let (pixel, moto) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    server.plug(&pixel);
    server.plug(&moto);
    let lab = lab(House::Standalone, &server, &[("pixel", &bound(&pixel)), ("moto", &model("moto g(7)"))]);
    let door = lab.door("rack-1");
    wait_available(&door, "pixel", &pixel);
    wait_available(&door, "moto", &moto);
    let lease = text(&take(&door, "moto", "one")["id"]);

    server.kill_9();
    // The node starts another, which has no phones yet.
    wait_state(&door, "pixel", "absent", "plug it in");
    wait_state(&door, "moto", "leased", "plug it in");
    let told = notices(&door, &lease);
    let gone = format!("the adb server on port {} has gone", server.port);
    assert!(told.iter().any(|(event, why)| event == "device_unhealthy" && why.contains(&gone)), "{told:?}");

    server.plug(&pixel);
    server.plug(&moto);
    wait_available(&door, "pixel", &pixel);
    eventually("the leased one is back", BOUND, || resource(&door, "moto")["reason"].is_null().then_some(()));
    assert_eq!(resource(&door, "moto")["leases"][0]["id"], lease);
    assert_eq!(notices(&door, &lease).pop().expect("it is told").0, "device_recovered");
}
