//! Which event a change leaves behind (SPEC §10). It is written in the change's own transaction, so none is lost and
//! none tells of what did not happen.

use serde_json::Value;

use super::Waiter;
use super::resource::{Change, Departure, EndReason, Rejection};
use crate::clock::Now;
use crate::model::time::{rfc3339, whole_ms};
use crate::model::{Code, DeviceState, Event, EventKind, LeaseRecord, Proposal, ResourceId};

/// The event of `change`, if it leaves one. `resource` is the one it happened on, if it did on one; `now` turns
/// an instant of run time into one that can be read.
pub fn event_of(change: &Change, resource: Option<&ResourceId>, now: Now) -> Option<Event> {
    let on_resource = |event: Event| match resource {
        Some(id) => event.with("resourceId", id.as_str()),
        None => event,
    };
    let event = match change {
        Change::Requested { proposal, wait, .. } => Event::new(EventKind::LeaseRequested)
            .about(&proposal.holder)
            .with("requestId", proposal.request.as_str())
            .with("requestSpec", proposal.spec())
            .with("waitPolicy", wait.shown()),
        Change::Queued { request, requester, position } => {
            let mut event = Event::new(EventKind::LeaseQueued)
                .with("requestId", request.as_str())
                .with("position", *position as u64);
            event.owner = Some(requester.clone());
            event
        }
        Change::Joined { waiter, position } if !waiter.is_attended() => {
            on_resource(of_waiter(EventKind::WaiterJoined, waiter)).with("position", *position as u64)
        }
        Change::Left { waiter, why, .. } if !waiter.is_attended() => match why {
            Departure::Admitted { reserved_until } => {
                let event = on_resource(of_waiter(EventKind::WaiterAdmitted, waiter));
                match reserved_until {
                    Some(until) => event.with("reservedUntil", rfc3339(now.wall_at(*until))),
                    None => event,
                }
            }
            Departure::Pruned => on_resource(of_waiter(EventKind::WaiterPruned, waiter)),
            Departure::Left | Departure::Replaced => on_resource(of_waiter(EventKind::WaiterLeft, waiter)),
            Departure::Granted | Departure::Rejected => return None,
        },
        Change::Granted { lease, .. } => of_lease(EventKind::LeaseGranted, lease)
            .with("requestId", lease.request_id.as_str())
            .with("fence", lease.fence.0),
        Change::Renewed { lease, expires_at, told: true, .. } => of_lease(EventKind::LeaseRenewed, lease)
            .with("ttlMs", whole_ms(lease.ttl))
            .with("expiresAt", rfc3339(*expires_at)),
        Change::Ended { lease, reason, .. } => {
            let kind = if *reason == EndReason::Expired { EventKind::LeaseExpired } else { EventKind::LeaseReleased };
            let event = of_lease(kind, lease).with("requestId", lease.request_id.as_str()).with("fence", lease.fence.0);
            if *reason == EndReason::Expired { event } else { event.with("reason", reason.as_str()) }
        }
        Change::Rejected { proposal, reason: Rejection::TakenBack, refusal, .. } => declined(proposal, refusal.code),
        Change::Rejected { proposal, reason, refusal, .. } => Event::new(EventKind::LeaseRejected)
            .about(&proposal.holder)
            .with("requestId", proposal.request.as_str())
            .with("requestSpec", proposal.spec())
            .with("reason", reason.as_str())
            .with("code", refusal.code.as_str()),
        Change::Declined { proposal, code } => declined(proposal, *code),
        // While the whole worker is out, a resource's own drain shows nothing.
        Change::Drained { drained, from, to, .. } if from != to => {
            on_resource(Event::new(EventKind::ResourceStateChanged))
                .with("from", from.as_str())
                .with("to", to.as_str())
                .with("reason", if *drained { "drain" } else { "undrain" })
        }
        Change::StateChanged { from, to, reason, output, .. } => {
            let event = on_resource(Event::new(EventKind::ResourceStateChanged))
                .with("from", from.as_str())
                .with("to", to.as_str())
                .with("reason", reason.as_str());
            match output {
                Some(output) => event.with("output", output.as_str()),
                None => event,
            }
        }
        // The state is as it was; whoever holds the lease reads it as its own.
        Change::Noticed { lease, holder, notice } => {
            let mut event = on_resource(Event::new(EventKind::ResourceStateChanged).of_lease(lease))
                .with("from", DeviceState::Leased.as_str())
                .with("to", DeviceState::Leased.as_str())
                .with("device", notice.event.as_str())
                .with("reason", notice.message.as_str());
            event.owner = Some(holder.clone());
            event
        }
        Change::Calendar(change) => return super::calendar::history::event_of(change, resource),
        Change::NodeHoldsPaused(Some(why)) => {
            Event::new(EventKind::HoldsPaused).with("reason", why.replace('\n', "; "))
        }
        Change::NodeHoldsPaused(None) => Event::new(EventKind::HoldsResumed),
        Change::Violated { detail } => {
            on_resource(Event::new(EventKind::InvariantViolated)).with("detail", detail.as_str())
        }
        Change::Joined { .. }
        | Change::Left { .. }
        | Change::Moved { .. }
        | Change::Seen { .. }
        | Change::Drained { .. }
        | Change::Device(_)
        | Change::NodeDrained(_)
        | Change::Renewed { .. }
        | Change::Reserved(_)
        | Change::Unreserved { .. } => return None,
    };
    Some(event)
}

/// What goes on at the gateway was not rejected here (SPEC §9 Dispatch).
fn declined(proposal: &Proposal, code: Code) -> Event {
    Event::new(EventKind::LeaseDeclined)
        .about(&proposal.holder)
        .with("requestId", proposal.request.as_str())
        .with("requestSpec", proposal.spec())
        .with("code", code.as_str())
}

fn of_lease(kind: EventKind, lease: &LeaseRecord) -> Event {
    Event::new(kind).about(&lease.holder).of_lease(&lease.id).with("resourceId", lease.resource_id.as_str())
}

fn of_waiter(kind: EventKind, waiter: &Waiter) -> Event {
    let proposal = &waiter.proposal;
    Event::new(kind)
        .about(&proposal.holder)
        .with("mode", proposal.mode.as_str())
        .with("priority", Value::from(f64::from(proposal.priority)))
}
