//! What a worker reports. The gateway's picture of a worker is a function of its latest snapshot and the deltas after it.
//!
//! Every change on the worker has a number, counted from 1 in each incarnation, without gaps.
//!
//! - **Snapshot**, on a unidirectional stream of its own: [`Part::Begin`] with the incarnation and the number `n` at
//!   which it is cut, chunks of at most 1 024 records, [`Part::End`] with the counts. It counts only when its end has
//!   come and the counts are right. It says nothing about changes after `n`.
//! - **Up** the control stream, after `Hello`, comes one [`Report`] after another:
//!   - [`Delta`], one change: the whole new report of a resource, or that it is there no more, or a request of this gateway's that has begun to wait
//!     here or is settled ([`requests`](super::requests)). That a dispatch was granted at once is told
//!     by the resource alone. The first after a snapshot cut at `n` is `n + 1`. A delta numbered at or below the snapshot's
//!     is ignored; a gap makes the gateway ask for a new snapshot.
//!   - [`Digest`], every 5 s: what the worker's state comes to ([`digest`](super::digest)). A gateway that comes to
//!     something else at the same number asks for a new snapshot; right after a snapshot again only after 30 s,
//!     doubling to 10 min.
//!   - [`EventsPage`], the worker's own events in their order ([`events`](super::events)).
//! - **Down** the control stream: [`Control::Taken`] when a snapshot has been taken in whole, [`Control::Resync`] to ask
//!   for a new one, [`Control::EventsTaken`] when events are on the gateway's disk.
//!
//! Times are Unix microseconds of the worker's wall clock. Deadlines travel as the time that is left when the record
//! is made, so that no clock is compared with another.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::events::EventsPage;
use super::frame::{FrameError, encode};
use super::requests::{SettledRow, WaitingRow};
use crate::limits::{REQUEST_ROWS_PER_FRAME_MAX, SNAPSHOT_CHUNK_RECORDS_MAX};
use crate::model::time::{micros, whole_ms};
use crate::model::{
    DeviceIdentity, DeviceState, Fence, Fingerprint, HookFailure, IdempotencyKey, Labels, LeaseId, LeaseRecord, Mode,
    Note, RequestId, Requester, ResourceId,
};

/// The layout of [`LeaseRow`] in a snapshot; a reader refuses a snapshot of another.
pub const LAYOUT: u8 = 1;

/// One frame of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    /// The first frame.
    Begin {
        /// Which life of the worker.
        incarnation: u64,
        /// The number of the last change it contains.
        number: u64,
    },
    /// Some resources with their leases.
    Chunk {
        /// How the lease rows are laid out: [`LAYOUT`].
        layout: u8,
        /// The resources.
        resources: Vec<ResourceReport>,
    },
    /// Some requests of this gateway's that wait here, or are settled and remembered.
    Requests {
        /// Those that wait.
        waiting: Vec<WaitingRow>,
        /// Those that are settled.
        settled: Vec<SettledRow>,
    },
    /// The last frame.
    End {
        /// How many resources the chunks held.
        resources: u64,
        /// How many requests that wait.
        waiting: u64,
        /// How many that are settled.
        settled: u64,
    },
}

/// What a worker says on the control stream after `Hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::large_enum_variant, reason = "read, handed on and dropped: few at a time, and most are the large one")]
pub enum Report {
    /// A change.
    Delta(Delta),
    /// What its state comes to.
    Digest(Digest),
    /// What happened there.
    Events(EventsPage),
}

/// One change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delta {
    /// Which life of the worker.
    pub incarnation: u64,
    /// Its number.
    pub number: u64,
    /// What has changed.
    pub change: Changed,
}

/// What a delta is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Changed {
    /// A resource is now like this.
    Resource(ResourceReport),
    /// A request of this gateway's waits here from now on, or waits with another lease id or key.
    Waiting(WaitingRow),
    /// A request of this gateway's is settled. It may have waited here, or not.
    Settled(SettledRow),
    /// A request of this gateway's waits here no more, and nothing is remembered of it: an unattended waiter that was
    /// admitted, has left, or did not ask again in time.
    Gone(RequestId),
    /// A resource is there no more: it is not in the worker's lab file, and nobody holds it.
    ResourceGone(ResourceId),
}

/// What the worker's state comes to at one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Digest {
    /// Which life of the worker.
    pub incarnation: u64,
    /// The number of the last change it contains.
    pub number: u64,
    /// As [`digest`](super::digest) says.
    pub digest: u64,
}

/// What the gateway says on the control stream after `Welcome`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Control {
    /// The snapshot cut at this number has come whole.
    Taken {
        /// Its number.
        number: u64,
    },
    /// Send a new snapshot.
    Resync,
    /// The worker's events up to this number are on the gateway's disk; more may be sent.
    EventsTaken {
        /// The worker's number of the last.
        seq: u64,
    },
}

/// A resource with all its leases, whoever holds them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReport {
    /// Its id on the worker.
    pub id: ResourceId,
    /// What selectors see.
    pub labels: Labels,
    /// How many shared leases may coexist.
    pub max_shared: u32,
    /// The fence of its latest grant.
    pub fence: Fence,
    /// False when it is no longer in the worker's lab file and only waits for its leases to end.
    pub grantable: bool,
    /// True when an operator has taken it out: what is leased stays so, nothing new is granted.
    #[serde(default)]
    pub drained: bool,
    /// How many wait for it by its name.
    #[serde(default)]
    pub queue_length: u64,
    /// How many of its seats are kept for those who were admitted.
    #[serde(default)]
    pub reserved: u32,
    /// The window of an enforced booking or hold that is on or comes next.
    #[serde(default)]
    pub next_window: Option<NextWindow>,
    /// What keeps its device from being granted, beside its leases; none when it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceReport>,
    /// What a holder needs to reach the device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What tells the device from every other, where its driver can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<DeviceIdentity>,
    /// The hook that failed last, until one of its kind succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HookFailure>,
    /// How long its device was made ready for its latest lease, in ms: the worker had the request at least so long before
    /// that lease began. A gateway that has not got its answer yet reckons with it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prepared_ms: u64,
    /// Its active leases.
    pub leases: Vec<LeaseRow>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
pub(super) fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

/// Why a device is not granted, beside its leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceReport {
    /// What it would be without them.
    pub state: DeviceState,
    /// More about that, for people; at most 512 characters.
    #[serde(default)]
    pub reason: Option<String>,
    /// How long that lasts at the most, as far as anybody can tell, in ms from when the record is made.
    #[serde(default)]
    pub ends_in_ms: Option<u64>,
    /// The request that it is made ready for, where that came through this gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
}

/// A window in which only one may lease a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextWindow {
    /// Who.
    pub holder: Requester,
    /// When it begins, in ms from when the record is made; 0 when it has begun.
    pub starts_in_ms: u64,
    /// When it ends, in ms from when the record is made.
    pub ends_in_ms: u64,
}

/// A lease as an array of 13 or 14: id, request, mode, holder, granted at, renewed at, ttl in ms, ms left, fence, note or
/// nil, chosen by the requester, key or nil, fingerprint of the request, and, where a booking has cut the lease, the ms that
/// were asked for. Half the size of a map, and it decodes in half the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow(
    LeaseId,
    RequestId,
    Mode,
    Requester,
    #[serde(with = "micros")] Timestamp,
    #[serde(with = "micros")] Timestamp,
    u64,
    u64,
    Fence,
    Option<Note>,
    bool,
    Option<IdempotencyKey>,
    Fingerprint,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<u64>,
);

impl LeaseRow {
    /// The row of a lease that has `left` to run.
    pub fn new(lease: &LeaseRecord, left: Duration) -> Self {
        Self(
            lease.id.clone(),
            lease.request_id.clone(),
            lease.mode,
            lease.holder.clone(),
            lease.granted_at,
            lease.renewed_at,
            whole_ms(lease.ttl),
            whole_ms(left),
            lease.fence,
            lease.note.clone(),
            lease.id_chosen_by_requester,
            lease.idempotency_key.clone(),
            lease.fingerprint,
            lease.asked_ttl.map(whole_ms),
        )
    }

    /// What tells it from every other and from itself before a renewal: id, fence, renewed at, ttl in ms.
    pub(super) fn identity(&self) -> (&LeaseId, Fence, Timestamp, u64) {
        (&self.0, self.8, self.5, self.6)
    }

    /// Has so much less to run.
    pub(super) fn age(&mut self, by: Duration) {
        self.7 = self.7.saturating_sub(whole_ms(by));
    }

    /// The lease on `resource`, and how long it has to run. A row is a claim: the time left never exceeds the width.
    pub fn into_lease(self, resource: &ResourceId) -> (LeaseRecord, Duration) {
        let Self(
            id,
            request_id,
            mode,
            holder,
            granted_at,
            renewed_at,
            ttl,
            left,
            fence,
            note,
            chosen,
            key,
            fingerprint,
            asked_ttl,
        ) = self;
        let lease = LeaseRecord {
            id,
            request_id,
            resource_id: resource.clone(),
            mode,
            holder,
            granted_at,
            renewed_at,
            ttl: Duration::from_millis(ttl),
            fence,
            note,
            id_chosen_by_requester: chosen,
            idempotency_key: key,
            fingerprint,
            asked_ttl: asked_ttl.map(Duration::from_millis),
        };
        (lease, Duration::from_millis(left.min(ttl)))
    }
}

/// The frames of a whole snapshot.
pub fn snapshot(
    incarnation: u64,
    number: u64,
    resources: &[ResourceReport],
    waiting: &[WaitingRow],
    settled: &[SettledRow],
) -> Result<Vec<bytes::Bytes>, FrameError> {
    let mut frames = vec![encode(&Part::Begin { incarnation, number })?];
    for chunk in chunks_of_records(resources) {
        add_chunk(&mut frames, chunk)?;
    }
    for chunk in waiting.chunks(REQUEST_ROWS_PER_FRAME_MAX) {
        frames.push(encode(&Part::Requests { waiting: chunk.to_vec(), settled: Vec::new() })?);
    }
    for chunk in settled.chunks(REQUEST_ROWS_PER_FRAME_MAX) {
        add_settled(&mut frames, chunk)?;
    }
    let count = |length: usize| length as u64;
    frames.push(encode(&Part::End {
        resources: count(resources.len()),
        waiting: count(waiting.len()),
        settled: count(settled.len()),
    })?);
    Ok(frames)
}

/// Slices of at most [`SNAPSHOT_CHUNK_RECORDS_MAX`] records, resources and leases counted alike.
fn chunks_of_records(mut resources: &[ResourceReport]) -> impl Iterator<Item = &[ResourceReport]> {
    std::iter::from_fn(move || {
        let mut records = 0;
        let fits = |resource: &&ResourceReport| {
            records += 1 + resource.leases.len();
            records <= SNAPSHOT_CHUNK_RECORDS_MAX
        };
        let count = resources.iter().take_while(fits).count().max(1).min(resources.len());
        let (chunk, rest) = resources.split_at(count);
        resources = rest;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Adds a chunk; one that is too long for a frame, because of long labels or notes, goes in two.
fn add_chunk(frames: &mut Vec<bytes::Bytes>, resources: &[ResourceReport]) -> Result<(), FrameError> {
    match encode(&Part::Chunk { layout: LAYOUT, resources: resources.to_vec() }) {
        Ok(frame) => frames.push(frame),
        Err(FrameError::TooLong(_)) if resources.len() > 1 => {
            let (front, back) = resources.split_at(resources.len() / 2);
            add_chunk(frames, front)?;
            add_chunk(frames, back)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The same for settled requests, because of the labels of their resources.
fn add_settled(frames: &mut Vec<bytes::Bytes>, settled: &[SettledRow]) -> Result<(), FrameError> {
    match encode(&Part::Requests { waiting: Vec::new(), settled: settled.to_vec() }) {
        Ok(frame) => frames.push(frame),
        Err(FrameError::TooLong(_)) if settled.len() > 1 => {
            let (front, back) = settled.split_at(settled.len() / 2);
            add_settled(frames, front)?;
            add_settled(frames, back)?;
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::decode;

    fn report(index: usize, label_bytes: usize) -> ResourceReport {
        ResourceReport {
            id: format!("board-{index}").parse().unwrap(),
            labels: (0..label_bytes / 100)
                .map(|key| (format!("k{key}").parse().unwrap(), "v".repeat(100).parse().unwrap()))
                .collect(),
            max_shared: 1,
            fence: Fence(index as u64),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            device: None,
            environment: BTreeMap::new(),
            identity: None,
            failure: None,
            prepared_ms: 0,
            leases: Vec::new(),
        }
    }

    fn read_back(frames: &[bytes::Bytes]) -> Vec<ResourceReport> {
        let parts = frames.iter().map(|frame| decode::<Part>(frame).unwrap());
        parts.flat_map(|part| if let Part::Chunk { resources, .. } = part { resources } else { Vec::new() }).collect()
    }

    #[test]
    fn a_snapshot_reads_back_whole_in_frames_that_are_not_too_long() {
        for (count, label_bytes) in [(0, 0), (1, 0), (3_000, 0), (700, 6_000)] {
            let resources: Vec<_> = (0..count).map(|index| report(index, label_bytes)).collect();
            let frames = snapshot(9, 4, &resources, &[], &[]).unwrap();
            assert_eq!(read_back(&frames), resources);
            assert_eq!(decode::<Part>(&frames[0]).unwrap(), Part::Begin { incarnation: 9, number: 4 });
            let end = decode::<Part>(frames.last().unwrap()).unwrap();
            assert_eq!(end, Part::End { resources: count as u64, waiting: 0, settled: 0 });
        }
    }
}
