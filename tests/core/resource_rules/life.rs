//! What is true of a resource over all its lives, from what was committed alone.

use std::collections::HashSet;
use std::time::Duration;

use berth::admission::resource::{Change, EndReason, ResourceState};
use berth::clock::RunTime;
use berth::model::{Fence, LeaseId, Mode, RequestId};

/// All that was committed so far, as far as the invariants need it.
#[derive(Default)]
pub struct Life {
    fence: Fence,
    live: Vec<Live>,
    settled: HashSet<RequestId>,
    /// What a lease has that came through the gateway.
    uplink_grace: Duration,
}

struct Live {
    id: LeaseId,
    fence: Fence,
    mode: Mode,
    until: RunTime,
    /// How long it may go on after that.
    grace: Duration,
}

impl Live {
    /// When it has ended for certain.
    fn latest(&self) -> RunTime {
        self.until + self.grace
    }
}

impl Life {
    /// The first, with `lease.uplink_grace`.
    pub fn new(uplink_grace: Duration) -> Self {
        Self { uplink_grace, ..Self::default() }
    }

    /// Takes in what was committed at `at`.
    pub fn committed(&mut self, changes: &[Change], at: RunTime) {
        for change in changes {
            self.a_fence_never_repeats_or_falls(change);
            self.leases_end_before_others_begin(change, at);
            self.a_request_ends_once(change);
        }
    }

    /// The node has started again, and goes by what its disk says.
    pub fn restarted(&mut self, state: &ResourceState) {
        let held: HashSet<_> = state.held.iter().map(|held| (&held.lease.id, held.lease.fence)).collect();
        assert_eq!(held, self.live.iter().map(|live| (&live.id, live.fence)).collect(), "no lease is lost or made");
        for live in &mut self.live {
            live.until = state.held.iter().find(|held| held.lease.id == live.id).unwrap().deadline;
        }
    }

    /// I2.
    fn a_fence_never_repeats_or_falls(&mut self, change: &Change) {
        if let Change::Granted { lease, .. } = change {
            assert!(lease.fence > self.fence, "I2: {lease:?} after {}", self.fence);
            self.fence = lease.fence;
        }
    }

    /// I3 and I5: a lease begins only beside leases that it may stand beside, ends by a release or once its time is
    /// over, and is renewed only before that.
    fn leases_end_before_others_begin(&mut self, change: &Change, at: RunTime) {
        let live = &mut self.live;
        let index = |live: &[Live], id: &LeaseId, fence| live.iter().position(|it| it.id == *id && it.fence == fence);
        match change {
            Change::Granted { lease, deadline, .. } => {
                let beside = |other: &Live| other.mode == Mode::Shared && lease.mode == Mode::Shared;
                assert!(live.iter().all(|other| beside(other) && other.latest() > at), "I3: {lease:?} was granted");
                assert!(*deadline > at, "a lease has some time");
                let (id, fence, mode) = (lease.id.clone(), lease.fence, lease.mode);
                let fleet = lease.holder.to_string().starts_with("gw:gateway:");
                let grace = if fleet { self.uplink_grace } else { Duration::ZERO };
                live.push(Live { id, fence, mode, until: *deadline, grace });
            }
            Change::Renewed { lease, deadline, told, .. } => {
                let index = index(live, &lease.id, lease.fence).expect("I5: a lease that has ended was renewed");
                assert!(live[index].latest() > at, "I5: {lease:?} was renewed at {at:?}, past {:?}", live[index].until);
                assert!(*told || live[index].until == *deadline, "rewriting moves nothing");
                assert!(!told || *deadline > at, "a renewed lease has some time");
                live[index].until = *deadline;
            }
            Change::Ended { lease, reason, .. } => {
                let over = live.remove(index(live, &lease.id, lease.fence).expect("a lease ends once"));
                if *reason == EndReason::Expired {
                    assert!(over.until <= at, "{lease:?} ended at {at:?}, too early");
                } else {
                    assert!(over.latest() > at, "{lease:?} was there at {at:?}");
                }
            }
            _ => {}
        }
    }

    /// A request is granted or rejected once.
    fn a_request_ends_once(&mut self, change: &Change) {
        let request = match change {
            Change::Granted { lease, .. } => &lease.request_id,
            Change::Rejected { proposal, .. } => &proposal.request,
            _ => return,
        };
        assert!(self.settled.insert(request.clone()), "{request} ended twice");
    }
}
