//! Follows the adb servers that the resources of a node name, and tells what becomes of their devices.
//!
//! One task knows all resources and tells everything, so that what is told of one resource comes in its order; beside it is
//! a [`Follower`] for each server.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::DRIVER;
use super::assignment::Wish;
use super::follower::{Follower, Viewed};
use super::serial::Serial;
use super::server::Server;
use super::starting::AdbProgram;
use super::view::Bench;
use crate::driver::Sighting;
use crate::model::{AdbDevice, DeviceIdentity, ResourceId};

/// Views of servers that wait for the watcher; one more follower waits.
const VIEWS_QUEUED_MAX: usize = 16;

/// Watches devices until it is dropped. It is started within a tokio runtime.
#[derive(Debug)]
pub struct Watcher {
    wanted: watch::Sender<Wanted>,
    task: AbortOnDropHandle<()>,
}

/// What the node wants to know.
#[derive(Debug, Clone, Default)]
struct Wanted {
    devices: BTreeMap<ResourceId, AdbDevice>,
    /// The devices of resources that are leased.
    pinned: BTreeMap<ResourceId, Serial>,
    /// How often each resource was asked about anew.
    asked: BTreeMap<ResourceId, u64>,
}

impl Watcher {
    /// Starts to watch for nobody; [`Self::set`] says for whom. `on_sighting` is called from one task, with what has
    /// changed for a resource; it does not wait for anything. A resource hears nothing before its server has answered, or
    /// could not be reached.
    pub fn start(program: AdbProgram, on_sighting: impl FnMut(ResourceId, Sighting) + Send + 'static) -> Self {
        let (wanted, wants) = watch::channel(Wanted::default());
        let (views, viewed) = mpsc::channel(VIEWS_QUEUED_MAX);
        let servers = Servers { program, views, followers: 0, benches: BTreeMap::new() };
        let task = AbortOnDropHandle::new(tokio::spawn(watch(wants, viewed, servers, on_sighting)));
        Self { wanted, task }
    }

    /// Watches for these resources from now on, and for no others. What a resource that stays was told still holds.
    pub fn set(&self, devices: impl IntoIterator<Item = (ResourceId, AdbDevice)>) {
        let devices = devices.into_iter().collect();
        self.wanted.send_modify(|wanted| {
            wanted.devices = devices;
            let Wanted { devices, asked, .. } = wanted;
            asked.retain(|resource, _| devices.contains_key(resource));
        });
    }

    /// Watches for this resource, and tells what it sees as if nothing had been told of it before. Whoever has forgotten what
    /// it was told asks so.
    pub fn ask(&self, resource: &ResourceId, device: &AdbDevice) {
        self.wanted.send_modify(|wanted| {
            wanted.devices.insert(resource.clone(), device.clone());
            *wanted.asked.entry(resource.clone()).or_default() += 1;
        });
    }

    /// From now on the resource is this device and no other, plugged in or not: for as long as somebody has it leased as
    /// that device, and until the reset that follows is over. With none it is whatever it is configured to be. Said before
    /// [`Self::set`] it holds from the first look on. An identity of another driver is none.
    pub fn pin(&self, resource: &ResourceId, identity: Option<&DeviceIdentity>) {
        let serial = identity.filter(|identity| identity.driver == DRIVER);
        let serial = serial.and_then(|identity| identity.serial.parse::<Serial>().ok());
        self.wanted.send_if_modified(|wanted| {
            let before = match serial {
                Some(serial) => wanted.pinned.insert(resource.clone(), serial),
                None => wanted.pinned.remove(resource),
            };
            before.as_ref() != wanted.pinned.get(resource)
        });
    }

    /// Ends it. Nothing is told any more when this returns.
    pub async fn stop(self) {
        drop(self.wanted);
        self.task.abort();
        // It is cancelled, or it has ended because nobody wants anything any more.
        let _ = self.task.await;
    }
}

/// Tells what changes, until nobody wants to know.
async fn watch(
    mut wants: watch::Receiver<Wanted>,
    mut viewed: mpsc::Receiver<Viewed>,
    mut servers: Servers,
    mut on_sighting: impl FnMut(ResourceId, Sighting),
) {
    let mut wanted = Wanted::default();
    loop {
        let news = tokio::select! {
            biased;
            changed = wants.changed() => {
                if changed.is_err() {
                    return;
                }
                let before = std::mem::replace(&mut wanted, wants.borrow_and_update().clone());
                servers.serve(&before, &wanted)
            }
            viewed = viewed.recv() => servers.viewed(viewed.expect("the servers hold a sender"), &wanted),
        };
        for (resource, sighting) in news {
            on_sighting(resource, sighting);
        }
    }
}

/// The servers that are followed, by their ports.
struct Servers {
    program: AdbProgram,
    views: mpsc::Sender<Viewed>,
    /// The number of the last follower.
    followers: u64,
    benches: BTreeMap<u16, Followed>,
}

struct Followed {
    follower: u64,
    bench: Bench,
    _task: AbortOnDropHandle<()>,
}

impl Servers {
    /// Follows the servers that are wanted, and no others.
    fn serve(&mut self, before: &Wanted, wanted: &Wanted) -> Vec<(ResourceId, Sighting)> {
        let ports = wanted.ports();
        self.benches.retain(|port, _| ports.contains_key(port));
        let mut news = Vec::new();
        for (port, wishes) in ports {
            if !self.benches.contains_key(&port) {
                let followed = self.follow(port);
                self.benches.insert(port, followed);
            }
            let bench = &mut self.benches.get_mut(&port).expect("it is followed").bench;
            for resource in wishes.keys() {
                if before.devices.get(resource).is_some_and(|device| device.port != port) {
                    news.push((resource.clone(), bench.take_over(resource)));
                }
                if before.asked.get(resource) != wanted.asked.get(resource) {
                    bench.forget(resource);
                }
            }
            news.extend(bench.look(&wishes));
        }
        news
    }

    fn follow(&mut self, port: u16) -> Followed {
        self.followers += 1;
        let number = self.followers;
        let (program, views) = (self.program.clone(), self.views.clone());
        let follower = Follower { server: Server { port }, program, number, views };
        Followed {
            follower: number,
            bench: Bench::new(port),
            _task: AbortOnDropHandle::new(tokio::spawn(follower.run())),
        }
    }

    /// Takes in what a follower sees.
    fn viewed(&mut self, viewed: Viewed, wanted: &Wanted) -> Vec<(ResourceId, Sighting)> {
        // One that was ended may have spoken before.
        let Some(followed) = self.benches.values_mut().find(|it| it.follower == viewed.follower) else {
            return Vec::new();
        };
        followed.bench.view = Some(viewed.view);
        let wishes = wanted.wishes(followed.bench.port);
        followed.bench.look(&wishes)
    }
}

impl Wanted {
    /// The wishes at each server.
    fn ports(&self) -> BTreeMap<u16, BTreeMap<ResourceId, Wish>> {
        let mut ports: BTreeMap<u16, BTreeMap<ResourceId, Wish>> = BTreeMap::new();
        for (resource, device) in &self.devices {
            ports.entry(device.port).or_default().insert(resource.clone(), self.wish(resource, device));
        }
        ports
    }

    /// The wishes at one server.
    fn wishes(&self, port: u16) -> BTreeMap<ResourceId, Wish> {
        let here = self.devices.iter().filter(|(_, device)| device.port == port);
        here.map(|(resource, device)| (resource.clone(), self.wish(resource, device))).collect()
    }

    fn wish(&self, resource: &ResourceId, device: &AdbDevice) -> Wish {
        Wish { which: device.which.clone(), pinned: self.pinned.get(resource).cloned() }
    }
}
