//! Devices that are made ready, reset, checked and left alone around their leases, with hands that a test controls.

mod ends;
mod failing;
mod health;
mod leases;
mod restarts;

use std::sync::Arc;
use std::time::Duration;

use super::super::message::DeskMessage;
use super::lab::{Lab, resource};
use crate::admission::Rules;
use crate::driver::Sighting;
use crate::model::{Driver, DriverKind, Hook, ResourceSpec};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

fn hook() -> Option<Hook> {
    Some(Hook { argv: vec!["never-run".to_owned()], timeout: MINUTE })
}

/// A driver with the hooks that are named: `prepare reset health`.
pub(super) fn driver(hooks: &str) -> Arc<Driver> {
    let named = |name: &str| hook().filter(|_| hooks.contains(name));
    Arc::new(Driver {
        kind: DriverKind::Command,
        prepare: named("prepare"),
        reset: named("reset"),
        health: named("health"),
        health_interval: 30 * SECOND,
        directory: None,
        ..Driver::default()
    })
}

/// A resource with labels like `os=1`, and these hooks.
pub(super) fn device(id: &str, labels: &str, hooks: &str) -> ResourceSpec {
    ResourceSpec { driver: driver(hooks), ..resource(id, labels, 1) }
}

/// `a` and so on, all alike.
pub(super) async fn lab_of(ids: &str, hooks: &str) -> Lab {
    let specs: Vec<ResourceSpec> = ids.chars().map(|id| device(&id.to_string(), "os=1", hooks)).collect();
    Lab::new(&specs, rules()).await
}

/// Nobody gives up meanwhile.
pub(super) fn rules() -> Rules {
    let mut rules = Rules::default();
    rules.waiting.waiter_ttl = 4 * super::lab::HOUR;
    rules
}

impl Lab {
    /// The next job, which is this one: `prepare a`.
    pub(super) async fn job(&self, name: &str) -> super::hands::Begun {
        let begun = self.hands.next().await;
        assert_eq!(begun.name(), name);
        begun
    }

    /// A driver says how it sees a device.
    pub(super) async fn sees(&self, id: &str, sighting: Sighting) {
        self.host.desk.cast(DeskMessage::Sighted(id.parse().unwrap(), sighting)).unwrap();
        self.settle().await;
    }

    /// No job has begun.
    pub(super) async fn no_job(&self) {
        self.settle().await;
        let begun = self.hands.begun().await;
        assert!(begun.is_none(), "{begun:?}");
    }
}
