//! Waiters for tests.

use std::time::Duration;

use super::{Attendance, Joined, Rank, Waiter};
use crate::model::{Ask, Door, LeftOut, Mode, Priority, RequestId, Target, WaitPolicy};

/// An attended waiter that wants something alone for a minute, and joined as number `arrival`.
pub(super) fn waiter(holder: &str, target: Target, priority: f64, arrival: u64) -> Waiter {
    let ask = Ask {
        id: RequestId::generate(),
        door: Door::Request,
        requester: holder.parse().unwrap(),
        target,
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(60),
        priority: Priority::try_from(priority).unwrap(),
        lease_id: None,
        wait: WaitPolicy::Wait { timeout: None },
        note: None,
        key: None,
        ticket: None,
        allow_shorter: false,
        by_admin: false,
        left_out: LeftOut::default(),
    };
    Waiter {
        rank: Rank::new(ask.priority, Joined { run: 1, at_us: 0, arrival }, None),
        proposal: ask.proposal(ask.fingerprint()),
        joined_at: jiff::Timestamp::UNIX_EPOCH,
        attendance: Attendance::Attended,
        returns: None,
        restored: false,
        not_on: None,
    }
}
