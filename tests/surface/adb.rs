//! Android devices: a real adb server, with small devices plugged in that speak adb's transport (SPEC §7).
//!
//! Where there is no adb program the tests say so, and test nothing.

pub mod device;
pub mod server;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use berth::driver::adb::{AdbProgram, Watcher};
use berth::driver::{Drivers, Hands, Job, Outcome, Sighting};
use berth::model::{AdbDevice, AdbWhich, DeviceFacts, Driver, DriverKind, Hook, HookKind, Labels, ResourceId};
use tokio_util::sync::CancellationToken;

use self::device::{Device, MOTO_G, Mood, PIXEL_8};
use self::server::AdbServer;
use crate::patience::{BOUND, eventually};

/// What the resources of a node were told, one behind the other.
#[derive(Debug, Clone, Default)]
struct Told(Arc<Mutex<Vec<(ResourceId, Sighting)>>>);

impl Told {
    fn last(&self, name: &str) -> Option<Sighting> {
        let told = self.0.lock().unwrap();
        told.iter().rfind(|(resource, _)| resource.as_str() == name).map(|(_, sighting)| sighting.clone())
    }

    /// Waits until a resource is told that this device is there.
    #[track_caller]
    fn present(&self, name: &str, device: &Device) -> DeviceFacts {
        let is_it = |facts: &DeviceFacts| facts.identity.as_ref().is_some_and(|it| it.serial == device.serial());
        eventually(&format!("{name} is {}; it was told {:?}", device.serial(), self.0), BOUND, || {
            match self.last(name) {
                Some(Sighting::Present(facts)) if is_it(&facts) => Some(facts),
                _ => None,
            }
        })
    }

    /// Waits until a resource is told that it is absent, in words that have these.
    #[track_caller]
    fn absent(&self, name: &str, words: &str) {
        eventually(&format!("{name} is absent: {words}; it was told {:?}", self.0), BOUND, || match self.last(name) {
            Some(Sighting::Absent(why)) => why.contains(words).then_some(()),
            _ => None,
        });
    }

    /// How often a resource was told something.
    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(resource, _)| resource.as_str() == name).count()
    }
}

fn watch(program: AdbProgram) -> (Watcher, Told) {
    let told = Told::default();
    let telling = told.clone();
    (Watcher::start(program, move |resource, sighting| telling.0.lock().unwrap().push((resource, sighting))), told)
}

fn resource(name: &str) -> ResourceId {
    name.parse().unwrap()
}

fn bound(server: &AdbServer, device: &Device) -> AdbDevice {
    AdbDevice { port: server.port, which: AdbWhich::Serial(device.serial()) }
}

fn adopts(server: &AdbServer, labels: &[(&str, &str)]) -> AdbDevice {
    let labels: Labels = labels.iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect();
    AdbDevice { port: server.port, which: AdbWhich::Match(labels) }
}

/// A program that only fails, where a server has to stay away.
fn no_program() -> AdbProgram {
    AdbProgram::new("/nowhere/adb")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_are_seen_with_what_they_say_of_themselves() {
    let Some(server) = AdbServer::start() else { return };
    let (pixel, moto) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    server.plug(&pixel);
    let (watcher, told) = watch(no_program());
    watcher.set([
        (resource("pixel"), bound(&server, &pixel)),
        (resource("moto"), adopts(&server, &[("model", "moto g(7)")])),
    ]);
    let facts = told.present("pixel", &pixel);
    let shown: BTreeMap<_, _> = facts.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let serial = pixel.serial();
    let expected = [("platform", "android"), ("serial", &*serial), ("model", "Pixel 8"), ("os", "14"), ("sdk", "34")];
    assert_eq!(shown, expected.into());
    let port = server.port.to_string();
    let expected = [("ANDROID_SERIAL", serial), ("ANDROID_ADB_SERVER_PORT", port)];
    assert_eq!(facts.environment, expected.map(|(name, value)| (name.to_owned(), value)).into());

    told.absent("moto", "no device");
    server.plug(&moto);
    let facts = told.present("moto", &moto);
    assert_eq!(facts.labels.iter().find(|(key, _)| key.as_str() == "os").unwrap().1.as_str(), "10");
    assert_eq!(told.count("pixel"), 1, "nothing has changed there: {told:?}");
    watcher.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_unplugged_is_absent_and_comes_back_to_its_resource() {
    let Some(server) = AdbServer::start() else { return };
    let (mut first, mut second) = (Device::new(PIXEL_8), Device::new(PIXEL_8));
    let (watcher, told) = watch(no_program());
    watcher.set(
        ["a", "b"].map(|name| (resource(name), adopts(&server, &[("platform", "android"), ("model", "Pixel 8")]))),
    );
    server.plug(&first);
    told.present("a", &first);
    server.plug(&second);
    told.present("b", &second);

    server.power_off(&mut first);
    told.absent("a", "is offline");
    server.unplug(&mut first);
    told.absent("a", "is not there any more");
    server.unplug(&mut second);
    told.absent("b", "is not there any more");
    // The other one comes back first, and does not move up.
    server.replug(&mut second);
    told.present("b", &second);
    server.replug(&mut first);
    told.present("a", &first);
    assert!(told.0.lock().unwrap().iter().all(|(name, sighting)| match sighting {
        Sighting::Present(facts) => {
            (name.as_str() == "a") == (facts.identity.as_ref().unwrap().serial == first.serial())
        }
        Sighting::Absent(_) => true,
    }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_resource_gets_no_other_device_than_the_one_it_was_leased_as() {
    let Some(server) = AdbServer::start() else { return };
    let (mut leased, spare) = (Device::new(PIXEL_8), Device::new(PIXEL_8));
    server.plug(&leased);
    let (watcher, told) = watch(no_program());
    watcher.set([(resource("a"), adopts(&server, &[]))]);
    let facts = told.present("a", &leased);
    watcher.pin(&resource("a"), facts.identity.as_ref());
    server.unplug(&mut leased);
    told.absent("a", &leased.serial());
    server.plug(&spare);
    watcher.set([(resource("a"), adopts(&server, &[])), (resource("b"), adopts(&server, &[]))]);
    told.present("b", &spare);
    server.replug(&mut leased);
    told.present("a", &leased);
    server.unplug(&mut leased);
    watcher.set([(resource("a"), adopts(&server, &[]))]);
    watcher.pin(&resource("a"), None);
    told.present("a", &spare);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_does_not_trust_this_machine_is_absent_with_what_to_do() {
    let Some(server) = AdbServer::start() else { return };
    let device = Device::new(PIXEL_8);
    device.set(Mood::Distrusts);
    let (watcher, told) = watch(no_program());
    watcher.set([(resource("a"), bound(&server, &device))]);
    told.absent("a", "plug it in");
    server.introduce(&device);
    told.absent("a", "allow USB debugging");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_does_not_say_what_it_is_is_absent_until_it_does() {
    let Some(server) = AdbServer::start() else { return };
    let device = Device::new(PIXEL_8);
    device.set(Mood::Hangs);
    server.plug(&device);
    let (watcher, told) = watch(no_program());
    watcher.set([(resource("a"), bound(&server, &device))]);
    told.absent("a", "does not say what it is");
    device.set(Mood::Well);
    told.present("a", &device);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_takes_its_devices_with_it_and_another_is_started() {
    let Some(mut server) = AdbServer::start() else { return };
    let device = Device::new(PIXEL_8);
    server.plug(&device);
    let (watcher, told) = watch(AdbProgram::new(server.program()));
    watcher.set([(resource("a"), bound(&server, &device))]);
    told.present("a", &device);
    server.kill_9();
    told.absent("a", &format!("the adb server on port {} has gone", server.port));
    // The watcher has started another, which knows no device yet.
    told.absent("a", "plug it in");
    server.plug(&device);
    told.present("a", &device);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_server_can_be_started_the_devices_are_absent_until_somebody_starts_one() {
    let Some(mut server) = AdbServer::none() else { return };
    let device = Device::new(PIXEL_8);
    let (watcher, told) = watch(no_program());
    watcher.set([(resource("a"), bound(&server, &device))]);
    told.absent("a", &format!("no adb server on port {} and no adb program to start one", server.port));
    server.run();
    server.plug(&device);
    told.present("a", &device);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_follows_the_server_that_it_is_moved_to_until_nobody_watches() {
    let (Some(here), Some(there)) = (AdbServer::start(), AdbServer::start()) else { return };
    let (first, mut second) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    here.plug(&first);
    let (watcher, told) = watch(no_program());
    watcher.set([(resource("a"), adopts(&here, &[]))]);
    told.present("a", &first);
    watcher.set([(resource("a"), adopts(&there, &[]))]);
    told.absent("a", &format!("no device of the adb server on port {}", there.port));
    there.plug(&second);
    let facts = told.present("a", &second);
    assert_eq!(facts.environment["ANDROID_ADB_SERVER_PORT"], there.port.to_string());
    watcher.stop().await;
    let count = told.count("a");
    there.unplug(&mut second);
    assert_eq!(told.count("a"), count, "nobody is told any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_forgotten_what_it_was_told_asks_and_is_told_again() {
    let Some(server) = AdbServer::start() else { return };
    let (first, second) = (Device::new(PIXEL_8), Device::new(MOTO_G));
    server.plug(&first);
    server.plug(&second);
    let (watcher, told) = watch(no_program());
    watcher.set([(resource("a"), bound(&server, &first)), (resource("b"), bound(&server, &second))]);
    told.present("a", &first);
    told.present("b", &second);
    let count = (told.count("a"), told.count("b"));
    watcher.ask(&resource("a"), &bound(&server, &first));
    eventually("it is told again", BOUND, || (told.count("a") == count.0 + 1).then_some(()));
    told.present("a", &first);
    // Asked for another device it hears of that one only.
    watcher.ask(&resource("a"), &adopts(&server, &[("model", "Pixel 8")]));
    eventually("it is told again", BOUND, || (told.count("a") == count.0 + 2).then_some(()));
    assert_eq!(told.count("b"), count.1, "nobody has asked for that one");
}

#[test]
fn the_adb_program_itself_believes_in_the_device() {
    let Some(server) = AdbServer::start() else { return };
    let device = Device::new(MOTO_G);
    server.plug(&device);
    assert_eq!(server.shell(&device, "getprop ro.product.model"), (Some(0), "moto g(7)\n".to_owned()));
    let missing = "/system/bin/sh: nothing: not found\n".to_owned();
    assert_eq!(server.shell(&device, "nothing"), (Some(127), missing));
}

/// Whoever runs programs: none here.
#[derive(Debug, Default)]
struct Programs(Mutex<Vec<HookKind>>);

#[async_trait]
impl Hands for Programs {
    async fn run(&self, job: Job, _: CancellationToken) -> Outcome {
        self.0.lock().unwrap().push(job.hook);
        Outcome::Done
    }
}

/// Looks at a device once, within `timeout`.
async fn look(server: &AdbServer, device: &Device, timeout: Duration) -> (Outcome, usize) {
    let programs = Arc::new(Programs::default());
    let health = Some(Hook { argv: vec!["true".to_owned()], timeout });
    let driver = Driver { kind: DriverKind::Adb(bound(server, device)), health, ..Driver::default() };
    let identity = berth::model::DeviceIdentity { driver: "adb".to_owned(), serial: device.serial() };
    let facts = DeviceFacts { identity: Some(identity), ..DeviceFacts::default() };
    let job = Job {
        resource: resource("a"),
        hook: HookKind::Health,
        driver: Arc::new(driver),
        facts: Arc::new(facts),
        environment: BTreeMap::new(),
    };
    let outcome = Drivers { programs: programs.clone() }.run(job, CancellationToken::new()).await;
    (outcome, programs.0.lock().unwrap().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_device_finds_out_whether_it_answers() {
    let Some(mut server) = AdbServer::start() else { return };
    let mut device = Device::new(PIXEL_8);
    server.plug(&device);
    let long = Duration::from_secs(60);
    let failed = |(outcome, programs)| match outcome {
        Outcome::Failed(failure) if programs == 0 => failure.to_string(),
        other => panic!("{other:?}, and {programs} programs have run"),
    };
    assert_eq!(look(&server, &device, long).await, (Outcome::Done, 1), "the configured hook runs behind");

    device.set(Mood::Confused);
    assert!(failed(look(&server, &device, long).await).contains("got another answer"));

    device.set(Mood::Hangs);
    let begun = Instant::now();
    let why = failed(look(&server, &device, Duration::from_millis(700)).await);
    assert!(why.contains("no answer within 700ms"), "{why}");
    assert!((700..5_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());

    server.power_off(&mut device);
    let why = failed(look(&server, &device, long).await);
    assert!(why.contains("is offline"), "{why}");
    server.unplug(&mut device);
    let why = failed(look(&server, &device, long).await);
    assert!(why.contains("is not plugged in"), "{why}");
    server.kill_9();
    let why = failed(look(&server, &device, long).await);
    assert!(why.contains("nobody listens"), "{why}");
}
