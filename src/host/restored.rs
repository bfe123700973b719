//! A resource's state from its rows.

use std::sync::Arc;

use jiff::Timestamp;

use crate::admission::calendar::{Calendar, HeldSlot};
use crate::admission::resource::{
    Claim, Claimant, Cooling, Device, Held, Quarantine, Reservation, Reset, ResourceState, Retry, Work,
};
use crate::admission::{Attendance, Rank, Rules, Waiter, WaitingRoom};
use crate::clock::{Now, RunTime};
use crate::model::{
    Booking, Fingerprint, Hold, LeaseId, LeaseRecord, Proposal, RequestId, ResourceAddress, ResourceId, Target,
};
use crate::store::{StoredDevice, StoredResource, StoredWaiter, StoredWork};

/// What the rows of one resource say, on this run's time. Deadlines are wall time on disk, reservations go on for their
/// whole width, and an unattended waiter counts as seen now: it keeps its place, but not a lease id that it had chosen.
pub(super) fn restored(rows: StoredResource, rules: &Rules, now: Now) -> ResourceState {
    let reserved = |(holder, mode, width)| Reservation { holder, mode, width, until: now.run + width };
    let mut queue = WaitingRoom::default();
    for waiter in rows.waiters {
        queue.join(stored_waiter(waiter, &rows.id, rules, now));
    }
    let calendar = calendar(rows.bookings, rows.holds, rows.holds_paused, now);
    let held = rows.leases.into_iter().map(|(lease, expires_at)| held(lease, expires_at, &calendar, rules, now));
    let held: Vec<Held> = held.collect();
    let device = device(rows.device, now);
    let free_since = (!rows.drained && held.is_empty() && device.is_ready()).then_some(now.wall);
    ResourceState {
        held,
        reserved: rows.reserved.into_iter().map(reserved).collect(),
        queue,
        drained: rows.drained,
        fence: rows.fence,
        idle_since: rows.idle_since,
        free_since,
        calendar,
        device,
        notices: Default::default(),
    }
}

/// What was done to it goes on: a reset and a try begin anew, and a claim is nobody's.
fn device(stored: StoredDevice, now: Now) -> Device {
    let StoredDevice { work, claimed, cooling, failure, identity } = stored;
    let work = match work {
        StoredWork::None => Work::None,
        StoredWork::Preparing(of) => Work::Preparing(Box::new(Claim { of, claimant: Claimant::Nobody, at: now.wall })),
        StoredWork::Resetting(of) => Work::Resetting(Reset { of, since: now.run }),
        StoredWork::Quarantined { of, fault, why, tries } => {
            let next = Retry::after(tries, now.run);
            Work::Quarantined(Quarantine { of, fault, why: why.into(), tries, next })
        }
    };
    let cooling = cooling.map(|(ends_at, width)| Cooling { until: now.run_at(ends_at, width), width, ends_at });
    Device { work, cooling, failure: failure.map(Arc::new), fence: claimed, identity, ..Device::default() }
}

fn calendar(bookings: Vec<Booking>, holds: Vec<(Hold, Timestamp)>, holds_paused: bool, now: Now) -> Calendar {
    let mut calendar = Calendar::default();
    calendar.holds_paused = holds_paused;
    for booking in bookings {
        calendar.put_booking(Arc::new(booking));
    }
    for (hold, expires_at) in holds {
        let deadline = now.run_at(expires_at, hold.ttl);
        calendar.put_hold(HeldSlot { hold: Arc::new(hold), deadline, expires_at });
    }
    calendar
}

fn held(lease: LeaseRecord, expires_at: Timestamp, calendar: &Calendar, rules: &Rules, now: Now) -> Held {
    let longest = |longest| now.run_at(crate::model::time::later(lease.granted_at, longest), longest);
    // The holder of a booking has its lease until the end, whatever `lease.max_total` says.
    let ends = calendar.fulfilled_by(&lease.id).into_iter().map(|booking| now.run_of(booking.window.ends_at()));
    let last_end = rules.lease.max_total.map(longest).map(|last| ends.fold(last, RunTime::max));
    let deadline = now.run_at_or_before(expires_at, lease.ttl);
    Held { deadline: last_end.map_or(deadline, |last| last.min(deadline)), lease, last_end }
}

fn stored_waiter(row: StoredWaiter, resource: &ResourceId, rules: &Rules, now: Now) -> Waiter {
    let target = Target::Resource(ResourceAddress { worker: None, id: resource.clone() });
    let joined = row.joined.on_this_run(row.joined_at, now);
    Waiter {
        rank: Rank::new(row.priority, joined, rules.waiting.priority_aging),
        proposal: Proposal {
            request: RequestId::generate(),
            holder: row.holder,
            fingerprint: Fingerprint::of(&target, row.mode, None),
            target,
            mode: row.mode,
            priority: row.priority,
            ttl: row.ttl,
            lease: LeaseId::generate(),
            id_chosen_by_requester: false,
            note: row.note,
            key: None,
            allow_shorter: false,
            by_admin: false,
        },
        joined_at: row.joined_at,
        attendance: Attendance::Unattended { last_seen: now.run },
        returns: None,
        restored: true,
        not_on: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::RunTime;
    use crate::model::{BookingId, BookingStatus, HoldId, HoldStatus, TokenHash, Window};

    #[test]
    fn a_calendar_comes_back_with_its_windows_claimed_and_its_deadlines_on_this_run() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let now = Now { wall: "2026-01-01T00:00:00Z".parse().unwrap(), run: RunTime(minutes(5)) };
        let wall = |count| now.wall.checked_add(minutes(count)).unwrap();
        let booking = |status, from, to| Booking {
            id: BookingId::generate(),
            resource_id: "bench-1".parse().unwrap(),
            holder: "ci".parse().unwrap(),
            window: Window::new(wall(from), wall(to)).unwrap(),
            status,
            claims: status == BookingStatus::Scheduled,
            note: None,
            lease_id: None,
            series: None,
            created_at: now.wall,
            settled_at: None,
        };
        let hold = |status, from, to| Hold {
            id: HoldId::generate(),
            resource_id: "bench-1".parse().unwrap(),
            holder: "ci".parse().unwrap(),
            window: Window::new(wall(from), wall(to)).unwrap(),
            status,
            ttl: minutes(10),
            key: Some("k-1".parse().unwrap()),
            token: TokenHash::of("secret"),
            booking: None,
            created_at: now.wall,
            settled_at: None,
        };
        let bookings = vec![booking(BookingStatus::Scheduled, 10, 20), booking(BookingStatus::Cancelled, 10, 30)];
        let holds = vec![
            (hold(HoldStatus::Released, 10, 20), wall(9)),
            (hold(HoldStatus::Active, 20, 30), wall(4)),
            // As if the wall clock had been set back meanwhile: it lasts no longer than it was made for.
            (hold(HoldStatus::Active, 30, 40), wall(500)),
        ];
        let ids: Vec<HoldId> = holds.iter().map(|(hold, _)| hold.id.clone()).collect();
        let back = calendar(bookings, holds, true, now);
        assert!(back.holds_paused);
        assert_eq!((back.bookings().count(), back.holds().count()), (2, 3));
        let claims = back.claims_over(Window::new(wall(0), wall(99)).unwrap()).map(|(starts_at, _)| *starts_at);
        assert_eq!(claims.collect::<Vec<_>>(), [wall(10), wall(20), wall(30)]);
        let deadline = |id: &HoldId| back.hold(id).unwrap().deadline;
        assert_eq!(deadline(&ids[1]), now.run + minutes(4));
        assert_eq!(deadline(&ids[2]), now.run + minutes(10));
        assert_eq!(back.next_deadline(), Some(now.run + minutes(4)), "of those that are active");
    }
}
