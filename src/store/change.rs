//! What each change writes.

mod calendar;

use rusqlite::Connection;

use super::row::{device, lease, node, request, resource, waiter};
use crate::admission::resource::Change;
use crate::clock::Now;
use crate::model::ResourceId;

/// Writes one change on `resource`, or of the desk itself. Its event is not written here.
pub(super) fn write(
    connection: &Connection,
    change: &Change,
    resource: Option<&ResourceId>,
    now: Now,
) -> rusqlite::Result<()> {
    match change {
        Change::Requested { proposal, place, returns, .. } => {
            if let Some(former) = returns {
                request::spend_place(connection, former)?;
            }
            match place {
                Some(place) => request::open(connection, proposal, place, now.wall),
                None => Ok(()),
            }
        }
        Change::Joined { waiter, .. } | Change::Moved { waiter, .. } if !waiter.is_attended() => {
            waiter::write(connection, resource, waiter)
        }
        Change::Left { waiter, .. } if !waiter.is_attended() => {
            waiter::delete(connection, resource, &waiter.proposal.holder)
        }
        Change::Granted { lease, expires_at, .. } => {
            lease::insert(connection, lease, *expires_at)?;
            request::grant(connection, lease, *expires_at)
        }
        Change::Renewed { lease, expires_at, .. } => lease::update(connection, lease, *expires_at),
        Change::Ended { lease, reason, at } => {
            lease::delete(connection, lease, *at)?;
            request::end(connection, &lease.request_id, *reason, *at)
        }
        Change::Rejected { proposal, reason, refusal, waited: true, at } => {
            request::reject(connection, &proposal.request, *reason, refusal, *at)
        }
        Change::Reserved(reservation) => waiter::reserve(connection, resource, reservation),
        Change::Unreserved { holder } => waiter::unreserve(connection, resource, holder),
        Change::Drained { drained, .. } => resource::drain(connection, resource, *drained),
        Change::Device(change) => device::write(connection, resource, change),
        Change::Calendar(change) => calendar::write(connection, change, resource, now),
        Change::NodeHoldsPaused(why) => node::pause_holds(connection, why.as_deref()),
        Change::NodeDrained(drained) => node::drain(connection, *drained),
        // An attended waiter is its request's row, and what else is left of these is their event.
        Change::Joined { .. }
        | Change::Moved { .. }
        | Change::Left { .. }
        | Change::Queued { .. }
        | Change::Seen { .. }
        | Change::Rejected { .. }
        | Change::Declined { .. }
        | Change::StateChanged { .. }
        | Change::Noticed { .. }
        | Change::Violated { .. } => Ok(()),
    }
}
