//! One resource: what it grants, renews, releases and lets expire, against a small model, with crashes in between.

mod device;
mod model;
mod steps;

use std::time::Duration;

use berth::admission::resource::{Command, Held, Reply, decide};
use berth::clock::{Now, RunTime};
use berth::model::{Authority, Caller, Code, Door, Fence, Mode};
use proptest::prelude::*;
use proptest::test_runner::Config;

use self::device::{Crash, Device, fences_grow, leases_end_before_others_begin, seats_are_kept};
use self::model::{Expected, Lease, Model};
use self::steps::{command, steps};
use crate::sample;

fn assert_answer(reply: Reply, expected: Expected, model: &Model, now: Now) {
    match (reply, expected) {
        (Reply::Granted(held) | Reply::Renewed(held), Expected::Lease(lease)) => {
            assert_eq!((held.lease.id, held.lease.fence, held.deadline), (lease.id, lease.fence, lease.deadline));
            assert_eq!((held.lease.ttl, held.lease.renewed_at), (lease.ttl, now.wall));
        }
        (Reply::Released(lease), Expected::Released(id)) => assert_eq!(lease.id, id),
        (Reply::Refused(refusal), Expected::Refused(code)) => {
            assert_eq!(refusal.code, code);
            if matches!(code, Code::ResourceUnavailable | Code::NoCapacity) {
                let words = serde_json::to_string(&refusal).unwrap();
                let whose = model.leases.iter().find(|lease| words.contains(&lease.holder));
                assert_eq!(whose, None, "a refusal tells nothing of whose the leases are: {words}");
            }
        }
        (Reply::Nothing, Expected::Nothing) => {}
        (reply, expected) => panic!("answered {reply:?}, expected {expected:?}"),
    }
}

fn assert_state(device: &Device, model: &Model) {
    let held = |held: &Held| Lease {
        id: held.lease.id.clone(),
        holder: held.lease.holder.to_string(),
        shared: held.lease.mode == Mode::Shared,
        fence: held.lease.fence,
        ttl: held.lease.ttl,
        deadline: held.deadline,
    };
    assert_eq!(device.state.held.iter().map(held).collect::<Vec<_>>(), model.leases);
    assert_eq!(device.state.fence, model.fence);
    assert_eq!(device.state.idle_since.is_some(), model.leases.is_empty() && model.fence != Fence::default());
    assert_eq!(device.state.wake_at(), model.leases.iter().map(|lease| lease.deadline).min());
    assert_eq!(device.state, device.loaded(), "memory and disk are the same");
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 512, ..Config::default() })]

    #[test]
    fn a_resource_does_what_its_model_does_and_keeps_its_invariants(max_shared in 1u32..=4, steps in steps()) {
        let mut device = Device::new(max_shared);
        let mut model = Model::default();
        let (mut run_ms, mut wall_ms) = (0, 10_000_000_000u64);
        for (number, step) in steps.iter().enumerate() {
            run_ms += step.after_ms;
            wall_ms = wall_ms.saturating_add_signed(step.wall_set_ms) + step.after_ms;
            let now = Now { wall: sample::wall(wall_ms), run: sample::run(run_ms) };
            // What has expired but was not written yet is still in the device's memory and the model's.
            let command = command(&step.ask, number, &model);
            let before = model.clone();
            let expected = model.take(max_shared, &command, now);
            match device.carry_out(command, now, step.crash) {
                Some(reply) => assert_answer(reply, expected, &model, now),
                None if step.crash == Crash::BeforeCommit => model = before,
                None => {}
            }
            assert_state(&device, &model);
            seats_are_kept(&device);
            fences_grow(&device);
            leases_end_before_others_begin(&device);
        }
    }

    #[test]
    fn a_lease_lives_until_its_deadline_and_not_an_instant_longer(
        ttl_ns in 1u64..1_000_000_000_000,
        start_ns in 0u64..1_000_000_000_000,
    ) {
        let at = |ns: u64| Now { wall: sample::wall(0), run: RunTime(Duration::from_nanos(ns)) };
        let mut device = Device::new(1);
        let acquire = |id: &str| {
            let mut lease = sample::lease(id, "board", 0);
            lease.ttl = Duration::from_nanos(ttl_ns);
            Command::Acquire { lease: Box::new(lease), door: Door::Acquire }
        };
        let renew = || Command::Renew {
            lease: sample::text("first"),
            fence: None,
            ttl: None,
            authority: Authority::Client(Caller::admin()),
        };
        device.carry_out(acquire("first"), at(start_ns), Crash::Never);
        let deadline = start_ns + ttl_ns;
        let ask = |command, now| decide(&device.state, &device.spec, command, now);

        let before = at(deadline - 1);
        prop_assert!(matches!(ask(renew(), before).reply, Reply::Renewed(_)));
        prop_assert!(matches!(ask(acquire("next"), before).reply, Reply::Refused(_)));
        prop_assert!(ask(Command::Wake, before).changes.is_empty());

        let then = at(deadline);
        prop_assert!(
            matches!(ask(renew(), then).reply, Reply::Refused(refusal) if refusal.code == Code::UnknownLease)
        );
        prop_assert!(matches!(ask(acquire("next"), then).reply, Reply::Granted(_)));
        prop_assert_eq!(ask(Command::Wake, then).changes.len(), 1);
        prop_assert_eq!(ask(renew(), then).changes.len(), 1, "the end is written, whatever was asked");
    }
}

/// The time named by a refusal is the earliest at which asking again could succeed if nobody renews.
#[test]
fn a_refusal_says_when_to_ask_again() {
    let mut device = Device::new(2);
    let acquire = |id: &str, mode, ttl_s| {
        let mut lease = sample::lease(id, "board", 0);
        lease.mode = mode;
        lease.ttl = Duration::from_secs(ttl_s);
        Command::Acquire { lease: Box::new(lease), door: Door::Acquire }
    };
    device.carry_out(acquire("long", Mode::Shared, 90), sample::at(0), Crash::Never);
    device.carry_out(acquire("short", Mode::Shared, 30), sample::at(0), Crash::Never);
    let free = |mode| match decide(&device.state, &device.spec, acquire("next", mode, 1), sample::at(10_000)).reply {
        Reply::Refused(refusal) => refusal.details.unwrap()["availableAt"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(free(Mode::Shared), "2026-01-01T00:00:30.000000Z", "one seat is enough");
    assert_eq!(free(Mode::Exclusive), "2026-01-01T00:01:30.000000Z", "all must have gone");
}
