//! What is asked of the resource, at random.

use std::time::Duration;

use berth::admission::resource::Command;
use berth::model::{Authority, Caller, Door, Fence, LeaseId, Mode, Role};
use proptest::prelude::*;

use super::device::Crash;
use super::model::Model;
use crate::sample;

const LEASES: [&str; 5] = ["a", "b", "c", "d", "e"];
const HOLDERS: [&str; 4] = ["kim", "kim/job-1", "ruth", "gw:gateway:kim"];

/// What is done in one step.
#[derive(Debug, Clone)]
pub struct Step {
    /// How far both clocks go on first.
    pub after_ms: u64,
    /// How far the wall clock is set, forward or back, besides.
    pub wall_set_ms: i64,
    pub ask: Asked,
    pub crash: Crash,
}

#[derive(Debug, Clone)]
pub enum Asked {
    Acquire { shared: bool, lease: usize, holder: usize, ttl_ms: u64, door: Door },
    Renew { lease: usize, fence: Named, ttl_ms: Option<u64>, by: Authority },
    Release { lease: usize, fence: Named, by: Authority },
    Wake,
}

/// Which fence a caller names.
#[derive(Debug, Clone, Copy)]
pub enum Named {
    None,
    /// That of the latest grant of the resource, which may be another lease's.
    Latest,
    /// One of no grant.
    Other,
}

fn authorities() -> impl Strategy<Value = Authority> {
    let client = |name: &str, role| Authority::Client(Caller { principal: sample::text(name), role });
    prop_oneof![
        4 => Just(client("kim", Role::Agent)),
        1 => Just(client("ruth", Role::Agent)),
        1 => Just(client("kim", Role::Viewer)),
        2 => Just(Authority::Client(Caller::admin())),
        2 => Just(Authority::Gateway(sample::text("gateway"))),
        1 => Just(Authority::Gateway(sample::text("other"))),
    ]
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fence = || prop_oneof![2 => Just(Named::None), 2 => Just(Named::Latest), 1 => Just(Named::Other)];
    // Widths and pauses are of one size and often equal, so that deadlines are met exactly.
    let ttl = || 1u64..=20;
    let door = prop_oneof![Just(Door::Acquire), Just(Door::Request)];
    let asked = prop_oneof![
        4 => (any::<bool>(), 0..LEASES.len(), 0..HOLDERS.len(), ttl(), door)
            .prop_map(|(shared, lease, holder, ttl_ms, door)| Asked::Acquire { shared, lease, holder, ttl_ms, door }),
        3 => (0..LEASES.len(), fence(), prop::option::of(ttl()), authorities())
            .prop_map(|(lease, fence, ttl_ms, by)| Asked::Renew { lease, fence, ttl_ms, by }),
        2 => (0..LEASES.len(), fence(), authorities())
            .prop_map(|(lease, fence, by)| Asked::Release { lease, fence, by }),
        1 => Just(Asked::Wake),
    ];
    let crash = prop_oneof![8 => Just(Crash::Never), 1 => Just(Crash::BeforeCommit), 1 => Just(Crash::BeforeApply)];
    let wall = prop_oneof![6 => Just(0i64), 1 => -3_600_000i64..3_600_000];
    let step = (0u64..=12, wall, asked, crash).prop_map(|(after_ms, wall_set_ms, ask, crash)| Step {
        after_ms,
        wall_set_ms,
        ask,
        crash,
    });
    prop::collection::vec(step, 1..60)
}

/// The command, with what a caller can know.
pub fn command(step: &Asked, number: usize, model: &Model) -> Command {
    let lease = |index: usize| -> LeaseId { sample::text(LEASES[index]) };
    let fence = |named: Named| match named {
        Named::None => None,
        Named::Latest => Some(model.fence),
        Named::Other => Some(Fence(3)),
    };
    let ms = Duration::from_millis;
    match step.clone() {
        Asked::Acquire { shared, lease: first, holder, ttl_ms, door } => {
            // The ledger lets no two live leases have one id. There are more ids than seats.
            let free = |id: &LeaseId| model.leases.iter().all(|live| live.id != *id);
            let id = (0..LEASES.len()).map(|offset| lease((first + offset) % LEASES.len())).find(free).unwrap();
            let mut proposed = sample::lease(id.as_str(), "board", 0);
            proposed.request_id = sample::request(number);
            proposed.holder = sample::text(HOLDERS[holder]);
            proposed.mode = if shared { Mode::Shared } else { Mode::Exclusive };
            proposed.ttl = ms(ttl_ms);
            Command::Acquire { lease: Box::new(proposed), door }
        }
        Asked::Renew { lease: index, fence: named, ttl_ms, by } => {
            Command::Renew { lease: lease(index), fence: fence(named), ttl: ttl_ms.map(ms), authority: by }
        }
        Asked::Release { lease: index, fence: named, by } => {
            Command::Release { lease: lease(index), fence: fence(named), authority: by }
        }
        Asked::Wake => Command::Wake,
    }
}
