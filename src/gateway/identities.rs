//! Devices that more than one worker reports, and which of them has one leased (SPEC §7). Pure.
//!
//! While one worker has a live lease on a device, it is in use elsewhere for every other that reports the same device and
//! has no lease on it. Where two have one at once neither is ended: nobody knows which of them has the device, and each
//! lease was given in good faith. The first that ends leaves it to the other.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{DeviceIdentity, NodeName, ResourceId};

/// Where a device is.
type Place = (NodeName, ResourceId);

/// Who reports which device.
#[derive(Debug, Default)]
pub struct Identities {
    of: BTreeMap<Place, DeviceIdentity>,
    places: BTreeMap<DeviceIdentity, BTreeSet<Place>>,
    /// Those that are reported by more than one worker.
    shared: BTreeSet<DeviceIdentity>,
    /// Those that are leased at two workers, and of which that was said.
    doubled: BTreeSet<DeviceIdentity>,
}

/// What follows from who has what leased.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Of each worker the resources whose device another has leased, and which.
    pub elsewhere: BTreeMap<NodeName, BTreeMap<ResourceId, NodeName>>,
    /// Devices that are leased at several workers, and were not before.
    pub doubled: Vec<(DeviceIdentity, Vec<NodeName>)>,
}

impl Identities {
    /// A worker reports this device of a resource, or none.
    pub fn set(&mut self, worker: &NodeName, resource: &ResourceId, identity: Option<&DeviceIdentity>) {
        let place = (worker.clone(), resource.clone());
        if self.of.get(&place) == identity {
            return;
        }
        if let Some(former) = self.of.remove(&place) {
            self.leave(&former, &place);
        }
        if let Some(identity) = identity {
            self.of.insert(place.clone(), identity.clone());
            self.places.entry(identity.clone()).or_default().insert(place);
            self.note_shared(identity);
        }
    }

    /// A worker reports these and no others.
    pub fn set_all<'a>(&mut self, worker: &NodeName, all: impl Iterator<Item = (&'a ResourceId, &'a DeviceIdentity)>) {
        let all: BTreeMap<&ResourceId, &DeviceIdentity> = all.collect();
        let known: Vec<ResourceId> =
            self.of.keys().filter(|(at, _)| at == worker).map(|(_, resource)| resource.clone()).collect();
        for gone in known.iter().filter(|resource| !all.contains_key(resource)) {
            self.set(worker, gone, None);
        }
        for (resource, identity) in all {
            self.set(worker, resource, Some(identity));
        }
    }

    /// True when more than one worker reports some device, or did when this was last judged.
    pub fn matter(&self) -> bool {
        !self.shared.is_empty() || !self.doubled.is_empty()
    }

    /// Says who has what elsewhere.
    pub fn judge(&mut self, is_leased: impl Fn(&NodeName, &ResourceId) -> bool) -> Judged {
        let mut judged = Judged::default();
        let mut doubled = BTreeSet::new();
        for identity in &self.shared {
            let places = self.places.get(identity).into_iter().flatten();
            let (leased, free): (Vec<&Place>, Vec<&Place>) =
                places.partition(|(worker, resource)| is_leased(worker, resource));
            let workers: BTreeSet<&NodeName> = leased.iter().map(|(worker, _)| worker).collect();
            if workers.len() > 1 {
                doubled.insert(identity.clone());
                if !self.doubled.contains(identity) {
                    judged.doubled.push((identity.clone(), workers.iter().copied().cloned().collect()));
                }
            }
            for (worker, resource) in free {
                // What one worker does with a device twice in its lab file is that worker's to say.
                if let Some(holder) = workers.iter().find(|holder| **holder != worker) {
                    let of_worker = judged.elsewhere.entry(worker.clone()).or_default();
                    of_worker.insert(resource.clone(), (*holder).clone());
                }
            }
        }
        self.doubled = doubled;
        judged
    }

    fn leave(&mut self, identity: &DeviceIdentity, place: &Place) {
        if let Some(places) = self.places.get_mut(identity) {
            places.remove(place);
            if places.is_empty() {
                self.places.remove(identity);
            }
        }
        self.note_shared(identity);
    }

    fn note_shared(&mut self, identity: &DeviceIdentity) {
        let places = self.places.get(identity).into_iter().flatten();
        let workers: BTreeSet<&NodeName> = places.map(|(worker, _)| worker).collect();
        if workers.len() > 1 {
            self.shared.insert(identity.clone());
        } else {
            self.shared.remove(identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn id(id: &str) -> ResourceId {
        id.parse().unwrap()
    }

    fn serial(serial: &str) -> DeviceIdentity {
        DeviceIdentity { driver: "adb".to_owned(), serial: serial.to_owned() }
    }

    /// One phone that three workers see, and one that only the first does.
    fn seen() -> Identities {
        let mut identities = Identities::default();
        for worker in ["rack-1", "rack-2", "rack-3"] {
            identities.set(&name(worker), &id("phone"), Some(&serial("A1")));
        }
        identities.set(&name("rack-1"), &id("tablet"), Some(&serial("B2")));
        identities
    }

    /// `worker/resource = holder` for each that is in use elsewhere, with the phone leased at these.
    fn judged(identities: &mut Identities, leased: &[&str]) -> (Vec<String>, usize) {
        let is_leased =
            |worker: &NodeName, resource: &ResourceId| leased.contains(&worker.as_str()) && *resource == id("phone");
        let Judged { elsewhere, doubled } = identities.judge(is_leased);
        let row = |worker: &NodeName, (resource, holder)| format!("{worker}/{resource} = {holder}");
        let rows = elsewhere.iter().flat_map(|(worker, all)| all.iter().map(move |one| row(worker, one)));
        (rows.collect(), doubled.len())
    }

    #[test]
    fn a_device_that_is_leased_at_one_worker_is_elsewhere_for_the_others_that_see_it() {
        let mut identities = seen();
        assert!(identities.matter());
        assert_eq!(judged(&mut identities, &[]), (vec![], 0));
        let others = ["rack-1/phone = rack-2", "rack-3/phone = rack-2"].map(str::to_owned).to_vec();
        assert_eq!(judged(&mut identities, &["rack-2"]), (others, 0));
        identities.set(&name("rack-3"), &id("phone"), None);
        assert_eq!(judged(&mut identities, &["rack-2"]).0, ["rack-1/phone = rack-2"]);
        identities.set(&name("rack-1"), &id("phone"), Some(&serial("C3")));
        assert_eq!(judged(&mut identities, &["rack-2"]).0, [""; 0], "it is another device now");
        assert!(!identities.matter());
    }

    #[test]
    fn of_two_live_leases_neither_is_ended_and_that_is_said_once_until_it_is_over() {
        let mut identities = seen();
        let third = vec!["rack-3/phone = rack-1".to_owned()];
        assert_eq!(judged(&mut identities, &["rack-1", "rack-2"]), (third.clone(), 1));
        assert_eq!(judged(&mut identities, &["rack-1", "rack-2"]), (third.clone(), 0), "once");
        let first = ["rack-1/phone = rack-2", "rack-3/phone = rack-2"].map(str::to_owned).to_vec();
        assert_eq!(judged(&mut identities, &["rack-2"]), (first, 0), "the first that ends leaves it to the other");
        assert_eq!(judged(&mut identities, &["rack-1", "rack-2"]), (third, 1), "it is so again");
    }

    #[test]
    fn a_whole_report_takes_the_place_of_what_a_worker_said_before() {
        let mut identities = seen();
        let all = [(id("tablet"), serial("A1"))];
        identities.set_all(&name("rack-1"), all.iter().map(|(resource, identity)| (resource, identity)));
        let others = ["rack-1/tablet = rack-2", "rack-3/phone = rack-2"];
        assert_eq!(judged(&mut identities, &["rack-2"]).0, others);
        for worker in ["rack-1", "rack-2", "rack-3"] {
            identities.set_all(&name(worker), std::iter::empty());
        }
        assert!(!identities.matter() && identities.of.is_empty() && identities.places.is_empty());
    }
}
