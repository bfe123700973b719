//! What a worker's state comes to, in 64 bits: the exclusive or of one number for each resource and for each request of
//! this gateway's that waits. So both sides keep it up to date with each change, and two pictures that differ by one
//! change differ in it.
//!
//! The number of a record is the first 8 bytes, big-endian, of the SHA-256 of its parts. Each part is preceded by its
//! length in bytes, 8 bytes, big-endian. Numbers are decimal text, truth is `true` or `false`, times are Unix microseconds.
//!
//! - **A resource**: `resource`, id, fence, grantable, drained, max shared, queue length, reserved; then, where its
//!   device is not ready, `device` and its state; then key and value of each label in the order of the keys; then of each lease in the order of their ids: id, fence, renewed at, ttl in ms.
//!   What passes by itself is not in it: the time that is left, the next window, until when a device is not ready. Nor is
//!   what only explains the rest: the reason, the request that a device is made ready for and how long that took, its
//!   environment and identity.
//! - **A waiting request**: `waiting`, request, requester, resource.

use sha2::{Digest as _, Sha256};

use super::report::ResourceReport;
use super::requests::WaitingRow;

/// The number of a resource.
pub fn of_resource(report: &ResourceReport) -> u64 {
    let mut digest = Parts::new("resource");
    digest.add(report.id.as_str());
    digest.add(&report.fence.0.to_string());
    digest.add(if report.grantable { "true" } else { "false" });
    digest.add(if report.drained { "true" } else { "false" });
    digest.add(&report.max_shared.to_string());
    digest.add(&report.queue_length.to_string());
    digest.add(&report.reserved.to_string());
    if let Some(device) = &report.device {
        digest.add("device");
        digest.add(device.state.as_str());
    }
    for (key, value) in &report.labels {
        digest.add(key.as_str());
        digest.add(value.as_str());
    }
    let mut leases: Vec<_> = report.leases.iter().map(super::report::LeaseRow::identity).collect();
    leases.sort();
    for (id, fence, renewed_at, ttl_ms) in leases {
        digest.add(id.as_str());
        digest.add(&fence.0.to_string());
        digest.add(&renewed_at.as_microsecond().to_string());
        digest.add(&ttl_ms.to_string());
    }
    digest.finish()
}

/// The number of a request that waits.
pub fn of_waiting(row: &WaitingRow) -> u64 {
    let mut digest = Parts::new("waiting");
    digest.add(row.request.as_str());
    digest.add(&row.requester.to_string());
    digest.add(row.resource.as_str());
    digest.finish()
}

struct Parts(Sha256);

impl Parts {
    fn new(kind: &str) -> Self {
        let mut parts = Self(Sha256::new());
        parts.add(kind);
        parts
    }

    fn add(&mut self, part: &str) {
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    fn finish(self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0.finalize()[..8]);
        u64::from_be_bytes(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceState, Fence, RequestId};
    use crate::wire::report::DeviceReport;

    fn report(device: Option<DeviceReport>) -> ResourceReport {
        ResourceReport {
            id: "board".parse().unwrap(),
            labels: [("os".parse().unwrap(), "15".parse().unwrap())].into(),
            max_shared: 1,
            fence: Fence(7),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            device,
            environment: Default::default(),
            identity: None,
            failure: None,
            prepared_ms: 0,
            leases: Vec::new(),
        }
    }

    fn device(state: DeviceState) -> DeviceReport {
        DeviceReport { state, reason: None, ends_in_ms: None, request: None }
    }

    #[test]
    fn what_keeps_a_device_from_being_granted_is_in_the_digest_and_what_explains_it_is_not() {
        let states = [DeviceState::Preparing, DeviceState::Resetting, DeviceState::Quarantined, DeviceState::Absent];
        let mut all: Vec<u64> = states.iter().map(|state| of_resource(&report(Some(device(*state))))).collect();
        all.push(of_resource(&report(None)));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), states.len() + 1, "each state is another");
        let bare = of_resource(&report(Some(device(DeviceState::Preparing))));
        let explained = DeviceReport {
            reason: Some("made ready".to_owned()),
            ends_in_ms: Some(7),
            request: Some(RequestId::generate()),
            ..device(DeviceState::Preparing)
        };
        assert_eq!(of_resource(&report(Some(explained))), bare);
    }
}
