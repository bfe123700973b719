//! The words of every "no" of a resource.

use super::device::Work;
use super::draft::Draft;
use super::{Rejection, booked, fits};
use crate::admission::calendar::{CUT_LEAST, Room};
use crate::admission::{Speaker, WaitingRules};
use crate::clock::RunTime;
use crate::model::span::written;
use crate::model::time::{remaining, rfc3339, whole, whole_ms};
use crate::model::{Code, HookFailure, LeaseId, Mode, Proposal, Refusal, RequestId, ResourceId, WaitPolicy};

/// `UNKNOWN_LEASE` for `id`.
pub fn unknown_lease(id: &LeaseId) -> Refusal {
    Refusal::new(Code::UnknownLease, format!("no active lease {id}; `berth lease list` shows yours"))
        .with("leaseId", id.as_str())
}

/// `INSUFFICIENT_PERMISSIONS` for a lease of somebody else.
pub fn not_yours(id: &LeaseId, verb: &str) -> Refusal {
    Refusal::new(
        Code::InsufficientPermissions,
        format!("lease {id} is not yours; only its owner or an admin may {verb} it"),
    )
}

/// `UNKNOWN_LEASE` for a former grant of `id`.
pub fn other_fence(id: &LeaseId) -> Refusal {
    let message = format!("lease {id} is of a later grant than the fence you name; the lease you mean has ended");
    Refusal::new(Code::UnknownLease, message).with("leaseId", id.as_str())
}

/// The refusal of a resource that cannot be had now, with the time at which a lease may fit, and nothing about whose
/// the leases are.
pub(super) fn not_now(draft: &Draft<'_>, proposal: &Proposal, wait: WaitPolicy, speaker: Speaker) -> Refusal {
    let (now, id) = (draft.around.now, &draft.around.spec.id);
    if draft.fits(proposal.mode, &proposal.holder) && !booked::admits(draft, proposal) {
        let room = booked::room(draft, &proposal.holder, proposal.by_admin);
        return resource_booked(draft, room);
    }
    let (why, free) = obstacle(draft, proposal);
    let free = free.map(|free| now.wall_at(free));
    let code = if wait == WaitPolicy::Fail { Code::ResourceUnavailable } else { Code::NoCapacity };
    let until = free.map(|free| format!(" until {}", rfc3339(free))).unwrap_or_default();
    let what = match wait {
        // What a gateway's own clients can do is not this node's to say.
        _ if speaker == Speaker::Gateway => "ask again then, or ask for another",
        WaitPolicy::Fail => "wait with onConflict join-waiting-room, or ask for another",
        _ => "ask without noWait to wait, or for another",
    };
    let mut refusal = Refusal::new(code, format!("{id} is {why}{until}; {what}")).with("resourceId", id.as_str());
    if let Some(free) = free {
        refusal = refusal.with("availableAt", rfc3339(free));
    }
    match wait {
        WaitPolicy::Fail => refusal,
        _ => {
            let after = free.map_or(std::time::Duration::from_secs(5), |free| remaining(now.wall, free));
            refusal.retry_after(after)
        }
    }
}

/// `RESOURCE_BOOKED`, with how long a lease could be had, and nothing about whose the booking or the hold is.
pub(super) fn resource_booked(draft: &Draft<'_>, room: Room) -> Refusal {
    let (now, id) = (draft.around.now, &draft.around.spec.id);
    let left = whole(room.available_for(now.wall));
    let (message, again) = match room {
        Room::Booked(until) => {
            let until = rfc3339(until);
            (format!("{id} is booked until {until}; ask again then, or ask for another"), Some(until))
        }
        Room::Until(_) | Room::Free => {
            let least = left >= CUT_LEAST;
            let hint = if least { ", or allowShorter for what there is" } else { "" };
            let (left, ms) = (written(left), whole_ms(left));
            (format!("{id} is booked in {left}; ask for a lease of at most {ms} ms{hint}"), None)
        }
    };
    let refusal = Refusal::new(Code::ResourceBooked, message)
        .with("resourceId", id.as_str())
        .with("availableForMs", whole_ms(left));
    match again {
        Some(until) => refusal.with("availableAt", until),
        None => refusal,
    }
}

/// What is in the way, and until when at the latest: for one that would share, until the first seat is left.
fn obstacle(draft: &Draft<'_>, proposal: &Proposal) -> (&'static str, Option<RunTime>) {
    if draft.is_drained() {
        return ("drained by an operator", None);
    }
    if draft.held.is_empty() && !draft.device.is_ready() {
        let until = draft.device.until(draft.around.spec).filter(|_| draft.device.work == Work::None);
        return (draft.device.state(false, false).as_str(), until.filter(|end| *end > draft.around.now.run));
    }
    if draft.fits(proposal.mode, &proposal.holder) {
        return ("promised to those who wait", None);
    }
    let held = draft.held.iter().map(|held| (held.lease.mode, held.deadline));
    let others = draft.reserved.iter().filter(|kept| kept.holder != proposal.holder);
    let taken: Vec<_> = held.chain(others.map(|kept| (kept.mode, kept.until))).collect();
    let beside = proposal.mode == Mode::Shared && taken.iter().all(|(mode, _)| *mode == Mode::Shared);
    let ends = taken.iter().map(|(_, end)| *end);
    let leased = !fits(&draft.held, &[], false, draft.around.spec, proposal.mode, None);
    let why = if leased { "leased" } else { "reserved for who is next" };
    let end = if beside { ends.min() } else { ends.max() };
    // One that is over its deadline ends when its gateway has been heard, which nobody knows beforehand.
    (why, end.filter(|end| *end > draft.around.now.run))
}

/// `DEVICE_FAILED` for a request whose device could not be made ready.
pub(super) fn device_failed(proposal: &Proposal, resource: &ResourceId, failure: &HookFailure) -> Refusal {
    let message = format!(
        "{resource} could not be made ready for the lease: its {failure}; ask again under a new key, or for another \
         (`berth resource show {resource}` has more)"
    );
    Refusal::new(Code::DeviceFailed, message)
        .with("requestId", proposal.request.as_str())
        .with("resourceId", resource.as_str())
}

/// How a request that waited ended without a lease.
pub fn withdrawn(proposal: &Proposal, why: Rejection, rules: &WaitingRules) -> Refusal {
    withdrawn_from(&proposal.request, &proposal.target.to_string(), why, rules)
}

/// The same for one of which only its name and what it waited for are known.
pub fn withdrawn_from(request: &RequestId, target: &str, why: Rejection, rules: &WaitingRules) -> Refusal {
    let refusal = match why {
        Rejection::Timeout => {
            let message = format!("{target} did not become free in time; ask again, or wait longer");
            Refusal::new(Code::QueueTimeout, message)
        }
        Rejection::Abandoned => {
            let ttl = written(rules.waiter_ttl);
            let message = format!("nobody asked about it for {ttl}, so it has given up its place; ask again");
            Refusal::new(Code::NoCapacity, message).with("reason", why.as_str())
        }
        Rejection::DaemonRestarted => {
            let message = "the node was restarted while it waited; ask again, with its ticket for the same place";
            Refusal::new(Code::NodeRestarted, message)
        }
        Rejection::TakenBack => Refusal::new(Code::Stopping, "the gateway has taken it back; it goes on waiting there"),
        Rejection::Cancelled => Refusal::new(Code::ResourceUnavailable, "it was cancelled; use a new key to ask again"),
        Rejection::NoMatch => {
            let message = format!("{target} is not in the lab file any more; ask for another");
            Refusal::new(Code::UnknownResource, message)
        }
        Rejection::DeviceFailed => {
            Refusal::new(Code::DeviceFailed, "the device could not be made ready for the lease; ask for another")
        }
        Rejection::NoWait | Rejection::AlreadyLeased | Rejection::LeaseIdTaken | Rejection::WorkerFailed => {
            Refusal::internal("the request could not be carried out")
        }
    };
    refusal.with("requestId", request.as_str())
}
