//! Which device stands for which resource: a rule without clock or server.
//!
//! From first to last:
//! 1. A resource that is *pinned* has the device that it is pinned to: somebody has it leased as that device.
//! 2. A resource that is bound to a serial has the device with that serial.
//! 3. A resource with labels keeps the device that it has, and takes the one again that it had last, as long as that is
//!    listed and fits.
//! 4. A resource with labels and without a device adopts one that fits and stands for nobody. The one that asks for most
//!    labels chooses first, so that the choosy do not go without for the sake of others.
//!
//! A device stands for one resource at most, and nothing moves without need: whatever the order in which devices come and
//! go, one that is listed and fits stays where it is, unless it is pinned or bound elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::serial::Serial;
use crate::model::{AdbWhich, Labels, ResourceId};

/// What a resource asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    /// As the lab file says it.
    pub which: AdbWhich,
    /// The device that it has to be while it is leased.
    pub pinned: Option<Serial>,
}

/// The devices that a server lists, each with its labels; without, while nobody can read them.
pub(super) type Listed<'a> = BTreeMap<&'a Serial, Option<&'a Labels>>;

/// The devices of the resources of one server, the last ones of those that are away included.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignment {
    /// The device that a resource has, or had last. No device is here twice.
    last: BTreeMap<ResourceId, Serial>,
}

impl Assignment {
    /// The device of each resource that has one. One that is pinned or bound has it listed or not; one with labels only
    /// while it is listed.
    pub(super) fn assign(
        &mut self,
        wishes: &BTreeMap<ResourceId, Wish>,
        listed: &Listed<'_>,
    ) -> BTreeMap<ResourceId, Serial> {
        self.last.retain(|resource, _| wishes.contains_key(resource));
        let mut given = Given::default();
        for (resource, wish) in wishes {
            if let Some(pinned) = &wish.pinned {
                given.give(resource, pinned);
            }
        }
        let bound: BTreeMap<&ResourceId, Serial> = wishes.iter().filter_map(bound).collect();
        let (had, others): (Vec<_>, Vec<_>) =
            bound.iter().partition(|(resource, serial)| self.last.get(**resource) == Some(*serial));
        for (resource, serial) in had.into_iter().chain(others) {
            if wishes[*resource].pinned.is_none() {
                given.give(resource, serial);
            }
        }
        given.taken.extend(bound.into_values());

        let mut adopting: Vec<(&ResourceId, &Labels)> = wishes.iter().filter_map(adopting).collect();
        for (resource, asked) in &adopting {
            let Some(last) = self.last.get(*resource) else { continue };
            // What cannot be read now is still what it was.
            let fits = listed.get(last).is_some_and(|labels| labels.is_none_or(|labels| fit(asked, labels)));
            if fits {
                given.give(resource, last);
            }
        }
        adopting.sort_by_key(|(_, asked)| Reverse(asked.len()));
        for (resource, asked) in adopting {
            let free = |(serial, labels): &(&&Serial, &Option<&Labels>)| {
                !given.taken.contains(**serial) && labels.is_some_and(|labels| fit(asked, labels))
            };
            if !given.devices.contains_key(resource)
                && let Some((serial, _)) = listed.iter().find(free)
            {
                given.give(resource, serial);
            }
        }
        for (resource, serial) in &given.devices {
            self.last.retain(|other, last| other == resource || last != serial);
            self.last.insert(resource.clone(), serial.clone());
        }
        given.devices
    }

    /// The device that a resource has, or had last.
    pub(super) fn last(&self, resource: &ResourceId) -> Option<&Serial> {
        self.last.get(resource)
    }
}

/// What has been given out so far.
#[derive(Debug, Default)]
struct Given {
    devices: BTreeMap<ResourceId, Serial>,
    /// The devices that nobody else gets.
    taken: BTreeSet<Serial>,
}

impl Given {
    /// Gives a device, unless somebody has it.
    fn give(&mut self, resource: &ResourceId, serial: &Serial) {
        if self.taken.insert(serial.clone()) {
            self.devices.insert(resource.clone(), serial.clone());
        }
    }
}

fn bound<'a>((resource, wish): (&'a ResourceId, &Wish)) -> Option<(&'a ResourceId, Serial)> {
    match &wish.which {
        // What is no serial is no device's.
        AdbWhich::Serial(serial) => Some((resource, serial.parse().ok()?)),
        AdbWhich::Match(_) => None,
    }
}

fn adopting<'a>((resource, wish): (&'a ResourceId, &'a Wish)) -> Option<(&'a ResourceId, &'a Labels)> {
    match (&wish.which, &wish.pinned) {
        (AdbWhich::Match(labels), None) => Some((resource, labels)),
        _ => None,
    }
}

fn fit(asked: &Labels, labels: &Labels) -> bool {
    asked.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
