//! One way to make each thing that the tests of more than one module need.

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use berth::clock::{Now, RunTime};
use berth::model::{
    Ask, Door, Fence, Fingerprint, LeaseRecord, LeftOut, Mode, Priority, RequestId, Target, WaitPolicy,
};
use jiff::Timestamp;

/// A checked text that is right.
pub fn text<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// Both clocks `ms` after the tests' common beginning. Wall time begins in 2026.
pub fn at(ms: u64) -> Now {
    Now { wall: wall(ms), run: run(ms) }
}

/// Run time.
pub fn run(ms: u64) -> RunTime {
    RunTime(Duration::from_millis(ms))
}

/// Wall time.
pub fn wall(ms: u64) -> Timestamp {
    let begin: Timestamp = text("2026-01-01T00:00:00Z");
    begin.checked_add(Duration::from_millis(ms)).unwrap()
}

/// A request id that is the same whenever it is asked for by the same number.
pub fn request(number: usize) -> RequestId {
    text(&format!("req_00000000-0000-7000-8000-{number:012}"))
}

/// What a request by `requester` asks for a resource of that id.
pub fn ask(id: RequestId, requester: &str, resource: &str) -> Ask {
    Ask {
        id,
        door: Door::Acquire,
        requester: text(requester),
        target: Target::Resource(text(resource)),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(60),
        priority: Priority::default(),
        lease_id: None,
        wait: WaitPolicy::Fail,
        note: None,
        key: None,
        ticket: None,
        allow_shorter: false,
        by_admin: false,
        left_out: LeftOut::default(),
    }
}

/// An exclusive lease of a minute, granted at the beginning.
pub fn lease(id: &str, resource: &str, fence: u64) -> LeaseRecord {
    let target = Target::Resource(text(resource));
    LeaseRecord {
        id: text(id),
        request_id: RequestId::generate(),
        resource_id: text(resource),
        mode: Mode::Exclusive,
        holder: text("ci/job-17"),
        granted_at: wall(0),
        renewed_at: wall(0),
        ttl: Duration::from_secs(60),
        fence: Fence(fence),
        note: None,
        id_chosen_by_requester: true,
        idempotency_key: None,
        fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
        asked_ttl: None,
    }
}
