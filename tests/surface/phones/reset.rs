//! Phones that are brought back after a lease.

use serde_json::Value;

use super::{House, bound, lab, take, wait_available, wait_state, written};
use crate::adb::device::{Device, PIXEL_8};
use crate::adb::server::AdbServer;
use crate::patience::{BOUND, eventually};
use crate::waiting::{release, text};

/// A reset that asks the device who it is, by the plain adb program, and writes down whose lease it ends.
fn asking(device: &Device) -> String {
    let script = "adb shell getprop ro.product.model >> resets && echo $ANDROID_SERIAL $BERTH_LEASE >> resets";
    bound(device) + &format!(", reset = [\"sh\", \"-c\", \"{script}\"]")
}

fn expected(device: &Device, leases: &[&Value]) -> Vec<String> {
    let of = |lease: &&Value| ["Pixel 8".to_owned(), format!("{} {}", device.serial(), text(&lease["id"]))];
    leases.iter().flat_map(of).collect()
}

#[test]
fn a_reset_reaches_the_phone_and_one_that_is_due_while_it_is_away_runs_when_it_is_back() {
    let Some(server) = AdbServer::start() else { return };
    let mut pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let mut lab = lab(House::Standalone, &server, &[("phone", &asking(&pixel))]);
    let door = lab.door("rack-1");
    wait_available(&door, "phone", &pixel);
    let first = take(&door, "phone", "one");
    release(&door, &text(&first["id"]));
    wait_available(&door, "phone", &pixel);
    assert_eq!(written(&lab, "resets"), expected(&pixel, &[&first]));

    let second = take(&door, "phone", "two");
    server.unplug(&mut pixel);
    wait_state(&door, "phone", "leased", "plug it in");
    release(&door, &text(&second["id"]));
    wait_state(&door, "phone", "absent", "plug it in");
    assert_eq!(written(&lab, "resets"), expected(&pixel, &[&first]), "there is nothing to reset");
    // That it is due is not forgotten with the node.
    lab.kill_9("rack-1");
    lab.start("rack-1");
    lab.wait_ready("rack-1");
    wait_state(&door, "phone", "absent", "plug it in");

    server.replug(&mut pixel);
    wait_available(&door, "phone", &pixel);
    assert_eq!(written(&lab, "resets"), expected(&pixel, &[&first, &second]));
}

#[test]
fn a_reset_that_runs_when_the_phone_is_pulled_out_is_stopped_and_runs_again() {
    let Some(server) = AdbServer::start() else { return };
    let mut pixel = Device::new(PIXEL_8);
    server.plug(&pixel);
    let script = "echo begun >> resets; test -e go || exec sleep 300; echo done >> resets";
    let driver = bound(&pixel) + &format!(", reset = [\"sh\", \"-c\", \"{script}\"]");
    let lab = lab(House::Standalone, &server, &[("phone", &driver)]);
    let door = lab.door("rack-1");
    wait_available(&door, "phone", &pixel);
    let lease = take(&door, "phone", "one");
    release(&door, &text(&lease["id"]));
    eventually("it begins", BOUND, || (written(&lab, "resets") == ["begun"]).then_some(()));
    let shown = wait_state(&door, "phone", "resetting", &text(&lease["id"]));
    assert!(shown["until"].is_string(), "{shown}");
    server.unplug(&mut pixel);
    wait_state(&door, "phone", "absent", "plug it in");
    std::fs::write(lab.path("go"), "").unwrap();
    server.replug(&mut pixel);
    wait_available(&door, "phone", &pixel);
    assert_eq!(written(&lab, "resets"), ["begun", "begun", "done"]);
}
