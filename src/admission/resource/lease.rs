//! The life of a lease: renew and release (SPEC §4).

use std::time::Duration;

use super::booked;
use super::draft::Draft;
use super::refuse::{not_yours, other_fence, resource_booked, unknown_lease};
use super::{Change, EndReason, Held, Reply};
use crate::model::time::whole;
use crate::model::{Authority, Fence, LeaseId, Refusal, Role};

/// Moves a deadline to now plus the width, but not past `lease.max_total`, nor into a window of somebody else.
pub(super) fn renew(
    draft: &mut Draft<'_>,
    id: &LeaseId,
    fence: Option<Fence>,
    ttl: Option<Duration>,
    allow_shorter: bool,
    authority: &Authority,
) -> Reply {
    let held = match named(draft, id, fence, authority, "renew") {
        Ok(held) => held,
        Err(refusal) => return Reply::Refused(refusal),
    };
    let now = draft.around.now;
    let mut lease = held.lease;
    let asked = ttl.unwrap_or(lease.ttl);
    let room = booked::room(draft, &lease.holder, authority.is_admin());
    let Some(fitted) = room.fitted(asked, allow_shorter, now.wall) else {
        return Reply::Refused(resource_booked(draft, room));
    };
    let wanted = now.run + fitted;
    let wanted = held.last_end.map_or(wanted, |last| last.min(wanted));
    // One that was there before somebody booked a part of its time is not shortened by asking for more.
    let deadline = if fitted < asked { wanted.max(held.deadline.min(now.run + asked)) } else { wanted };
    lease.asked_ttl = (fitted < asked).then_some(asked);
    lease.ttl = if fitted < asked { whole(deadline.left(now.run)) } else { asked };
    lease.renewed_at = now.wall;
    let held = Held { lease: lease.clone(), deadline, last_end: held.last_end };
    let notices = draft.state.notices.get(id).cloned().unwrap_or_default();
    draft.push(Change::Renewed { lease, deadline, expires_at: now.wall_at(deadline), told: true });
    Reply::Renewed(held, notices)
}

/// Ends a lease.
pub(super) fn release(draft: &mut Draft<'_>, id: &LeaseId, fence: Option<Fence>, authority: &Authority) -> Reply {
    match named(draft, id, fence, authority, "release") {
        Ok(Held { lease, .. }) => {
            let by_admin = match authority {
                Authority::Client(caller) => caller.role == Role::Admin && !caller.owns(&lease.holder),
                Authority::Gateway { .. } => false,
            };
            let reason = if by_admin { EndReason::Admin } else { EndReason::Explicit };
            draft.end(lease.clone(), reason);
            Reply::Released(lease, None)
        }
        Err(refusal) => Reply::Refused(refusal),
    }
}

/// Writes every deadline anew, because the wall clock has been set.
pub(super) fn rewrite(draft: &mut Draft<'_>) {
    let now = draft.around.now;
    for change in draft.calendar.rewritten(now) {
        draft.push(Change::Calendar(change));
    }
    for Held { lease, deadline, .. } in draft.held.clone() {
        draft.push(Change::Renewed { lease, deadline, expires_at: now.wall_at(deadline), told: false });
    }
}

/// The lease that a caller names, if it is there, theirs, and of the grant they mean.
fn named(
    draft: &Draft<'_>,
    id: &LeaseId,
    fence: Option<Fence>,
    authority: &Authority,
    verb: &str,
) -> Result<Held, Refusal> {
    let held = draft.held.iter().find(|held| held.lease.id == *id).ok_or_else(|| unknown_lease(id))?;
    if !authority.may_change(&held.lease.holder) {
        return Err(not_yours(id, verb));
    }
    if fence.is_some_and(|fence| fence != held.lease.fence) {
        return Err(other_fence(id));
    }
    Ok(held.clone())
}
