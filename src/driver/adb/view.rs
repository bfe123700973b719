//! What is known of one adb server, and what its resources are told of it: a rule without clock or server.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::assignment::{Assignment, Listed, Wish};
use super::serial::Serial;
use crate::driver::Sighting;
use crate::model::{AdbWhich, DeviceFacts, Labels, ResourceId};

/// What is known of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum View {
    /// It cannot be asked; why.
    Away(String),
    /// Its devices.
    Devices(BTreeMap<Serial, Status>),
}

/// What is known of a device that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    /// It has just been plugged in, and its properties are being read.
    Reading,
    /// It can be used.
    Ready(Arc<DeviceFacts>),
    /// It cannot: the end of a sentence that begins with the device.
    Unusable(String),
}

impl Status {
    /// The labels of the device itself, while they are known.
    fn labels(&self) -> Option<&Labels> {
        match self {
            Status::Ready(facts) => Some(&facts.labels),
            Status::Reading | Status::Unusable(_) => None,
        }
    }
}

/// One server and the resources that stand for its devices.
#[derive(Debug, Default)]
pub(super) struct Bench {
    /// The port of the server.
    pub port: u16,
    /// What is known of it; nothing before its first word.
    pub view: Option<View>,
    assignment: Assignment,
    /// What each resource was told last.
    told: BTreeMap<ResourceId, Sighting>,
}

impl Bench {
    pub(super) fn new(port: u16) -> Self {
        Self { port, ..Self::default() }
    }

    /// Takes a resource over from another server; what it is told meanwhile.
    pub(super) fn take_over(&mut self, resource: &ResourceId) -> Sighting {
        let sighting = Sighting::Absent(format!("the adb server on port {} is being asked for its device", self.port));
        self.told.insert(resource.clone(), sighting.clone());
        sighting
    }

    /// Forgets what a resource was told, so that it is told again.
    pub(super) fn forget(&mut self, resource: &ResourceId) {
        self.told.remove(resource);
    }

    /// What has changed for the resources, in their order.
    pub(super) fn look(&mut self, wishes: &BTreeMap<ResourceId, Wish>) -> Vec<(ResourceId, Sighting)> {
        self.told.retain(|resource, _| wishes.contains_key(resource));
        let mut news = Vec::new();
        let given = match &self.view {
            // Who has which device is as it was.
            None | Some(View::Away(_)) => BTreeMap::new(),
            Some(View::Devices(devices)) => self.assignment.assign(wishes, &listed(devices)),
        };
        for (resource, wish) in wishes {
            let told = self.told.get(resource);
            let Some(sighting) = self.sighting(resource, wish, &given, told) else { continue };
            if told != Some(&sighting) {
                self.told.insert(resource.clone(), sighting.clone());
                news.push((resource.clone(), sighting));
            }
        }
        news
    }

    /// What is to be said of a resource; none when nothing is known that was not known before.
    fn sighting(
        &self,
        resource: &ResourceId,
        wish: &Wish,
        given: &BTreeMap<ResourceId, Serial>,
        told: Option<&Sighting>,
    ) -> Option<Sighting> {
        let devices = match self.view.as_ref()? {
            View::Away(why) => return Some(Sighting::Absent(why.clone())),
            View::Devices(devices) => devices,
        };
        let Some(serial) = given.get(resource) else {
            // A match may be among those that are being read.
            let reading = devices.values().any(|status| *status == Status::Reading);
            return (told.is_some() || !reading).then(|| Sighting::Absent(self.without(resource, wish, given)));
        };
        match devices.get(serial) {
            Some(Status::Ready(facts)) => Some(Sighting::Present(DeviceFacts::clone(facts))),
            Some(Status::Unusable(why)) => Some(Sighting::Absent(format!("the device {serial} {why}"))),
            Some(Status::Reading) => match told {
                Some(Sighting::Present(facts)) if !is(facts, serial) => {
                    Some(Sighting::Absent(format!("the device {serial} is being asked what it is: it takes a moment")))
                }
                // It was there a moment ago, or is about to be.
                _ => None,
            },
            None => Some(Sighting::Absent(format!(
                "the device {serial} is not among those of the adb server on port {}: plug it in",
                self.port
            ))),
        }
    }

    /// Why a resource has no device.
    fn without(&self, resource: &ResourceId, wish: &Wish, given: &BTreeMap<ResourceId, Serial>) -> String {
        let own = match (&wish.pinned, &wish.which) {
            (Some(pinned), _) => pinned.as_str(),
            (None, AdbWhich::Serial(serial)) => serial,
            (None, AdbWhich::Match(asked)) => {
                let others = match self.assignment.last(resource) {
                    Some(last) => format!("the device {last} is not there any more, and no other"),
                    None => "no device".to_owned(),
                };
                let asked = in_words(asked);
                return format!(
                    "{others} of the adb server on port {} has {asked} and is free: plug one in",
                    self.port
                );
            }
        };
        match given.iter().find(|(_, serial)| serial.as_str() == own) {
            Some((other, _)) => format!("the device {own} stands for the resource {other}"),
            // Only what is no serial is nobody's.
            None => format!("{own:?} cannot be the serial of a device: correct it in the lab file"),
        }
    }
}

fn listed(devices: &BTreeMap<Serial, Status>) -> Listed<'_> {
    devices.iter().map(|(serial, status)| (serial, status.labels())).collect()
}

fn is(facts: &DeviceFacts, serial: &Serial) -> bool {
    facts.identity.as_ref().is_some_and(|identity| identity.serial == serial.as_str())
}

fn in_words(labels: &Labels) -> String {
    if labels.is_empty() {
        return "any labels".to_owned();
    }
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 5037;

    fn resource(name: &str) -> ResourceId {
        name.parse().unwrap()
    }

    fn wishes(all: &[(&str, AdbWhich)]) -> BTreeMap<ResourceId, Wish> {
        all.iter().map(|(name, which)| (resource(name), Wish { which: which.clone(), pinned: None })).collect()
    }

    fn bound(serial: &str) -> AdbWhich {
        AdbWhich::Serial(serial.to_owned())
    }

    fn model(name: &str) -> AdbWhich {
        AdbWhich::Match([("model".parse().unwrap(), name.parse().unwrap())].into())
    }

    fn ready(serial: &str, model: &str) -> (Serial, Status) {
        let serial: Serial = serial.parse().unwrap();
        let facts = super::super::properties::facts(PORT, &serial, &format!("{model}\n14\n34\n")).unwrap();
        (serial, Status::Ready(Arc::new(facts)))
    }

    fn with(serial: &str, status: Status) -> (Serial, Status) {
        (serial.parse().unwrap(), status)
    }

    /// What is told when the devices are these: the serial of one that is there, or why not.
    fn look<const N: usize>(
        bench: &mut Bench,
        wishes: &BTreeMap<ResourceId, Wish>,
        devices: [(Serial, Status); N],
    ) -> Vec<String> {
        bench.view = Some(View::Devices(devices.into()));
        said(bench.look(wishes))
    }

    fn said(news: Vec<(ResourceId, Sighting)>) -> Vec<String> {
        let word = |sighting| match sighting {
            Sighting::Present(facts) => facts.identity.unwrap().serial,
            Sighting::Absent(why) => why,
        };
        news.into_iter().map(|(resource, sighting)| format!("{resource}: {}", word(sighting))).collect()
    }

    const NOTHING: [&str; 0] = [];

    #[test]
    fn a_resource_is_told_what_changes_and_only_that() {
        let wishes = wishes(&[("a", bound("S1")), ("b", bound("S2"))]);
        let mut bench = Bench::new(PORT);
        assert_eq!(said(bench.look(&wishes)), NOTHING, "the server has not been heard yet");
        let b_is_away = "b: the device S2 is not among those of the adb server on port 5037: plug it in";
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P")]), ["a: S1", b_is_away]);
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P"), ready("S3", "P")]), NOTHING);
        let offline = Status::Unusable("is offline".to_owned());
        assert_eq!(
            look(&mut bench, &wishes, [with("S1", offline), ready("S2", "P")]),
            ["a: the device S1 is offline", "b: S2"]
        );
        bench.view = Some(View::Away("no adb server".to_owned()));
        assert_eq!(said(bench.look(&wishes)), ["a: no adb server", "b: no adb server"]);
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P"), ready("S2", "P")]), ["a: S1", "b: S2"]);
    }

    #[test]
    fn a_device_that_is_being_read_is_what_it_was() {
        let wishes = wishes(&[("a", bound("S1")), ("b", model("P"))]);
        let mut bench = Bench::new(PORT);
        let reading = || [with("S1", Status::Reading), with("S2", Status::Reading)];
        assert_eq!(look(&mut bench, &wishes, reading()), NOTHING, "at the start it is neither there nor absent");
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P"), ready("S2", "P")]), ["a: S1", "b: S2"]);
        assert_eq!(look(&mut bench, &wishes, reading()), NOTHING);
        let unread = Status::Unusable("does not answer".to_owned());
        assert_eq!(
            look(&mut bench, &wishes, [with("S1", unread), ready("S2", "P")]),
            ["a: the device S1 does not answer"]
        );
    }

    #[test]
    fn who_goes_without_is_told_why() {
        let wishes = wishes(&[("a", bound("S1")), ("b", bound("S1")), ("c", bound("no serial")), ("d", model("P"))]);
        let mut bench = Bench::new(PORT);
        let why = [
            "a: S1",
            "b: the device S1 stands for the resource a",
            "c: \"no serial\" cannot be the serial of a device: correct it in the lab file",
            "d: no device of the adb server on port 5037 has model=P and is free: plug one in",
        ];
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P")]), why);
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P"), ready("S2", "P")]), ["d: S2"]);
        let why = "d: the device S2 is not there any more, and no other of the adb server on port 5037 has model=P and is \
                   free: plug one in";
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P"), ready("S3", "Q")]), [why]);
    }

    #[test]
    fn a_resource_that_comes_from_another_server_is_absent_until_this_one_is_heard() {
        let wishes = wishes(&[("a", bound("S1"))]);
        let mut bench = Bench::new(PORT);
        let told = bench.take_over(&resource("a"));
        assert_eq!(told, Sighting::Absent("the adb server on port 5037 is being asked for its device".to_owned()));
        assert_eq!(said(bench.look(&wishes)), NOTHING);
        assert_eq!(look(&mut bench, &wishes, [ready("S1", "P")]), ["a: S1"]);
    }
}
