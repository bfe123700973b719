//! What a worker's state comes to, in 64 bits: the exclusive or of one number for each resource and for each request of
//! this gateway's that waits. So both sides keep it up to date with each change, and two pictures that differ by one
//! change differ in it.
//!
//! The number of a record is the first 8 bytes, big-endian, of the SHA-256 of its parts. Each part is preceded by its
//! length in bytes, 8 bytes, big-endian. Numbers are decimal text, truth is `true` or `false`, times are Unix microseconds.
//!
//! - **A resource**: `resource`, id, fence, grantable, drained, max shared, queue length, reserved; then, where its
//!   device is not ready, `device` and its state; then key and value of each label in the order of the keys; then of each lease in the order of their ids: id, fence, renewed at, ttl in ms.
//!   The time that is left and the next window pass by themselves and are not in it.
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
