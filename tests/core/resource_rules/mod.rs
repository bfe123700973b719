//! One resource: what it grants, renews, releases and lets expire, and who is next, against a small model, with
//! crashes between decision, disk and memory.

mod asking;
pub mod device;
mod invariants;
mod leases;
mod life;
mod model;
mod steps;
mod waking;

use std::time::Duration;

use berth::admission::resource::{Change, Decision, Gateway, Link, Reply};
use berth::clock::Now;
use berth::model::Code;
use proptest::prelude::*;
use proptest::test_runner::Config;

use self::device::{Crash, Device};
use self::invariants::Happened;
use self::life::Life;
use self::model::{Model, Told};
use self::steps::{Callers, steps};
use crate::sample;

fn assert_told(reply: &Reply, expected: Told, model: &Model) {
    let told = match reply.clone() {
        Reply::Granted(held) => Told::Granted(held),
        Reply::Renewed(held, _) => Told::Renewed(held),
        Reply::Waiting => Told::Waiting,
        Reply::Pending { position, .. } => Told::Pending(position),
        Reply::Declined => Told::Declined,
        Reply::Released(lease, admitted) => Told::Released(lease.id, admitted),
        Reply::Left(left) => Told::Left(left),
        Reply::Refused(refusal) => {
            if matches!(refusal.code, Code::ResourceUnavailable | Code::NoCapacity) {
                let words = serde_json::to_string(&refusal).unwrap();
                let whose = model.leases.iter().find(|held| words.contains(&held.lease.holder.to_string()));
                assert_eq!(whose, None, "a refusal tells nothing of whose the leases are: {words}");
            }
            Told::Refused(refusal.code)
        }
        Reply::Served(_) | Reply::Done => Told::Done,
        Reply::Claimed { .. } | Reply::Prepared(_) | Reply::Unprepared { .. } => {
            unreachable!("devices are tested apart: {reply:?}")
        }
        Reply::Calendar(reply) => unreachable!("the rules of the calendar are tested apart: {reply:?}"),
    };
    assert_eq!(told, expected, "{model:?}");
}

fn assert_state(device: &Device, model: &Model) {
    let state = &device.state;
    assert_eq!(state.held, model.leases);
    assert_eq!(state.reserved, model.kept);
    assert_eq!(state.queue.iter().cloned().collect::<Vec<_>>(), model.in_order(device.rules.priority_aging));
    assert_eq!((state.drained, state.fence), (model.drained, model.fence));
    assert_eq!(state.idle_since.is_some(), model.leases.is_empty() && model.fence != Default::default());
}

/// When each lease ends by the wall clock, as it was last written.
fn note_deadlines(written: &mut Vec<(berth::model::LeaseId, jiff::Timestamp)>, changes: &[Change]) {
    for change in changes {
        if let Change::Granted { lease, expires_at, .. } | Change::Renewed { lease, expires_at, .. } = change {
            written.retain(|(id, _)| *id != lease.id);
            written.push((lease.id.clone(), *expires_at));
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: Config::default().cases.max(512), ..Config::default() })]

    #[test]
    fn a_resource_does_what_its_model_does_and_keeps_its_invariants(
        max_shared in 1u32..=3,
        grace_ms in prop_oneof![Just(0u64), Just(8)],
        aging in prop::option::of(Just(Duration::from_micros(4096))),
        max_total in prop::option::of(Just(Duration::from_millis(25))),
        uplink_grace_ms in prop::option::weighted(0.8, prop_oneof![Just(0u64), Just(12)]),
        steps in steps(),
    ) {
        let mut device = Device::new(max_shared);
        device.rules.admission_grace = Duration::from_millis(grace_ms);
        device.rules.waiter_ttl = Duration::from_millis(30);
        device.rules.priority_aging = aging;
        device.max_total = max_total;
        let mut model = Model::default();
        let uplink_grace = uplink_grace_ms.map(Duration::from_millis);
        device.node.gateway =
            uplink_grace.map(|grace| Gateway { name: sample::text("gateway"), grace, link: Link::Away });
        let mut life = Life::new(uplink_grace.unwrap_or_default());
        let mut callers = Callers { run: 1, lost: Vec::new() };
        let mut written = Vec::new();
        let (mut run_ms, mut wall_ms) = (100_000, 10_000_000_000u64);
        for (number, step) in steps.iter().enumerate() {
            run_ms += step.after_ms;
            wall_ms = wall_ms.saturating_add_signed(step.wall_set_ms) + step.after_ms;
            let now = Now { wall: sample::wall(wall_ms), run: sample::run(run_ms) };
            if let (Some(link), Some(_)) = (step.link, &device.node.gateway) {
                link.say(&mut device.node, now);
            }
            device.node.drained = step.drained.unwrap_or(device.node.drained);
            device.rivals = callers.rivals(step, number, &device, now);
            let command = callers.command(&step.asked, number, &device, now);

            let decision = device.decide(command.clone(), now);
            Happened::new(&device.state, &device.around(now), &command, &decision).check();
            let Decision { changes, reply, .. } = decision;
            if matches!(step.crash, Crash::Never | Crash::BeforeApply) {
                assert_told(&reply, model.take(&device.around(now), &command), &model);
                life.committed(&changes, now.run);
                note_deadlines(&mut written, &changes);
            }
            if matches!(step.crash, Crash::BeforeCommit | Crash::BeforeApply) {
                callers.restart(&device);
                if let Some(gateway) = &mut device.node.gateway {
                    gateway.link = Link::Away;
                }
            }
            device.carry_out(changes, now, step.crash);
            if matches!(step.crash, Crash::BeforeCommit | Crash::BeforeApply) {
                let on_disk = |id: &_| written.iter().find(|(known, _)| known == id).unwrap().1;
                model.restart(&device.around(now), on_disk);
                life.restarted(&device.state);
            }
            assert_state(&device, &model);
        }
    }
}
