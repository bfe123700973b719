//! What drivers see by themselves: devices that are plugged in, and are not (SPEC §7).

use std::sync::Arc;

use super::desk::DeskState;
use super::directory::{Entry, Life};
use super::message::DeskMessage;
use crate::admission::resource::{Reply, unseen};
use crate::driver::Sighting;
use crate::driver::adb::{AdbProgram, Watcher};
use crate::model::{AdbDevice, AdbWhich, DeviceFacts, DriverKind, Labels, ResourceId, ResourceSpec};

impl DeskState {
    /// A driver says how it sees the device of a resource.
    pub(super) fn sighted(&mut self, resource: &ResourceId, sighting: Sighting) {
        if self.directory.get(resource).is_none_or(|entry| !entry.may_be(&sighting)) {
            // It was said before the driver heard what the resource stands for now.
            return;
        }
        let unseen = match sighting {
            Sighting::Present(facts) => {
                self.learn(resource, facts);
                None
            }
            Sighting::Absent(why) => Some(why.into()),
        };
        if let Some(entry) = self.directory.get_mut(resource) {
            entry.unseen = unseen;
        }
        self.say_presence(resource);
    }

    /// Watches the devices of the resources that there are. One that is in use stays the device that it is.
    pub(super) fn watch_devices(&mut self) {
        let devices: Vec<(ResourceId, AdbDevice)> = self.directory.iter().filter_map(adb_device).collect();
        if devices.is_empty() && self.watcher.is_none() {
            return;
        }
        let desk = self.myself.clone();
        let watcher = self.watcher.get_or_insert_with(|| {
            Watcher::start(AdbProgram::default(), move |resource, sighting| {
                // A desk that is gone takes the whole node with it.
                let _ = desk.cast(DeskMessage::Sighted(resource, sighting));
            })
        });
        for entry in self.directory.iter().filter(|entry| entry.is_in_use()) {
            watcher.pin(&entry.spec.id, entry.state.device.identity.as_ref());
        }
        watcher.set(devices);
    }

    /// Keeps the device of a resource for as long as it is in use.
    pub(super) fn pin_device(&self, resource: &ResourceId) {
        if let (Some(watcher), Some(entry)) = (&self.watcher, self.directory.get(resource)) {
            watcher.pin(resource, entry.state.device.identity.as_ref().filter(|_| entry.is_in_use()));
        }
    }

    /// Nothing is known of a device before its driver has seen it.
    pub(super) fn expect_device(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        entry.unseen = unseen(entry.kind());
        let is_idle = matches!(entry.life, Life::Idle);
        let absent = self.absence_of(resource);
        if let Some(entry) = self.directory.get_mut(resource) {
            entry.state.device.absent = absent;
        }
        if !is_idle {
            // Its actor has a state of its own.
            self.say_presence(resource);
        }
        self.ask_for_device(resource);
        self.report_resource(resource);
    }

    /// Has the driver say again how it sees the device of a resource.
    pub(super) fn ask_for_device(&self, resource: &ResourceId) {
        let entry = self.directory.get(resource);
        if let (Some(watcher), Some((resource, device))) = (&self.watcher, entry.and_then(adb_device)) {
            watcher.ask(&resource, &device);
        }
    }

    /// The resource stands for another device from now on.
    pub(super) fn forget_device(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        entry.facts = Arc::default();
        entry.unseen = unseen(&entry.spec.driver.kind);
        entry.lease_driver = Arc::clone(&entry.spec.driver);
        self.merge_labels(resource);
    }

    /// What is known of a device. Of one that is away it goes on being known; what the lab file says goes first.
    fn learn(&mut self, resource: &ResourceId, facts: DeviceFacts) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        if *entry.facts != facts {
            entry.facts = Arc::new(facts);
            self.merge_labels(resource);
            self.report_resource(resource);
            self.to_pump.insert(resource.clone());
        }
    }

    /// Shows the labels that the driver has found beside those of the lab file.
    pub(super) fn merge_labels(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get_mut(resource) else { return };
        let mut labels: Labels = entry.facts.labels.clone();
        labels.extend(entry.given.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
        if labels != entry.spec.labels {
            entry.spec = Arc::new(ResourceSpec { labels, ..ResourceSpec::clone(&entry.spec) });
        }
    }

    /// A resource has taken in whether its device is there. What could not be written is said again.
    pub(super) fn sighting_settled(&mut self, resource: &ResourceId, reply: &Reply) {
        if let Reply::Refused(refusal) = reply {
            tracing::warn!(%resource, %refusal, "that a device has come or gone was not written; it is said again");
            self.say_presence_again(resource);
        }
    }
}

impl Entry {
    /// True when what is said can be of the device that it stands for.
    fn may_be(&self, sighting: &Sighting) -> bool {
        let (DriverKind::Adb(device), Sighting::Present(facts)) = (self.kind(), sighting) else { return true };
        let leased_as = self.state.device.identity.as_ref().filter(|_| self.is_in_use());
        match (leased_as, &device.which) {
            (Some(_), _) => facts.identity.as_ref() == leased_as,
            (None, AdbWhich::Serial(serial)) => facts.identity.as_ref().is_some_and(|it| it.serial == *serial),
            (None, AdbWhich::Match(asked)) => asked.iter().all(|(key, value)| facts.labels.get(key) == Some(value)),
        }
    }
}

fn adb_device(entry: &Entry) -> Option<(ResourceId, AdbDevice)> {
    match entry.kind() {
        DriverKind::Adb(device) => Some((entry.spec.id.clone(), device.clone())),
        DriverKind::None | DriverKind::Command => None,
    }
}
