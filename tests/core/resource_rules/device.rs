//! The resource with its disk, as its actor keeps it, and the invariants.

use std::num::NonZeroU32;

use berth::admission::resource::{Change, Command, Decision, EndReason, Reply, ResourceState, apply, decide};
use berth::clock::{Now, RunTime};
use berth::model::{Fence, LeaseId, Mode, ResourceSpec};

use crate::sample;

/// When the process dies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Crash {
    Never,
    BeforeCommit,
    BeforeApply,
}

/// A resource with its disk, as an actor keeps it.
pub struct Device {
    pub spec: ResourceSpec,
    pub state: ResourceState,
    /// What was committed, in order, with the run time at which it was decided.
    disk: Vec<(RunTime, Change)>,
}

impl Device {
    pub fn new(max_shared: u32) -> Self {
        let max_shared = NonZeroU32::new(max_shared).unwrap();
        let spec = ResourceSpec { id: sample::text("board"), labels: Default::default(), max_shared };
        Self { spec, state: ResourceState::default(), disk: Vec::new() }
    }

    /// The answer, if the process lived to give it.
    pub fn carry_out(&mut self, command: Command, now: Now, crash: Crash) -> Option<Reply> {
        let Decision { changes, reply } = decide(&self.state, &self.spec, command, now);
        if crash != Crash::BeforeCommit {
            self.disk.extend(changes.iter().cloned().map(|change| (now.run, change)));
        }
        if crash != Crash::Never {
            self.state = self.loaded();
            return None;
        }
        changes.into_iter().for_each(|change| apply(&mut self.state, change));
        Some(reply)
    }

    /// What a start finds.
    pub fn loaded(&self) -> ResourceState {
        let mut state = ResourceState::default();
        self.disk.iter().for_each(|(_, change)| apply(&mut state, change.clone()));
        state
    }
}

/// I1: never two exclusive leases, nor an exclusive beside a shared, nor more shared ones than there are seats.
pub fn seats_are_kept(device: &Device) {
    let held = &device.state.held;
    let alone = held.iter().all(|held| held.lease.mode == Mode::Shared) || held.len() == 1;
    assert!(alone && held.len() <= device.spec.max_shared.get() as usize, "I1: {held:?}");
}

/// I2: a fence never repeats and never falls.
pub fn fences_grow(device: &Device) {
    let grants = device.disk.iter().filter_map(|(_, change)| match change {
        Change::Granted { lease, .. } => Some(lease.fence),
        _ => None,
    });
    let fences: Vec<_> = grants.collect();
    assert!(fences.is_sorted_by(|former, later| former < later), "I2: {fences:?}");
    assert_eq!(device.state.fence, fences.last().copied().unwrap_or_default(), "I2: the state knows the latest");
}

/// I3 and I5, from what is on disk alone: a lease begins only beside leases that it may stand beside, ends by a
/// release or exactly when its time is over, and is renewed only before that.
pub fn leases_end_before_others_begin(device: &Device) {
    let mut live: Vec<(LeaseId, Fence, Mode, RunTime)> = Vec::new();
    for (at, change) in &device.disk {
        match change {
            Change::Granted { lease, deadline, .. } => {
                let beside = |(_, _, mode, _): &(LeaseId, Fence, Mode, RunTime)| {
                    *mode == Mode::Shared && lease.mode == Mode::Shared
                };
                assert!(live.iter().all(beside), "I3: {lease:?} was granted beside {live:?}");
                live.push((lease.id.clone(), lease.fence, lease.mode, *deadline));
            }
            Change::Renewed { lease, deadline, .. } => {
                let renewed = live.iter_mut().find(|(id, fence, ..)| *id == lease.id && *fence == lease.fence);
                let (.., until) = renewed.expect("I5: a lease that has ended was renewed");
                assert!(*until > *at, "I5: {lease:?} was renewed at {at:?}, past {until:?}");
                *until = *deadline;
            }
            Change::Ended { lease, reason, .. } => {
                let ended = live.iter().position(|(id, fence, ..)| *id == lease.id && *fence == lease.fence);
                let (.., until) = live.remove(ended.expect("a lease ends once"));
                match reason {
                    EndReason::Expired => assert!(until <= *at, "{lease:?} expired at {at:?}, before {until:?}"),
                    EndReason::Released => assert!(until > *at, "{lease:?} was released past its deadline"),
                }
            }
        }
    }
}
