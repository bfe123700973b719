//! The rules of a device, on any sequence of asks, ends, hooks, checks, unpluggings and restarts: what must always hold.
//!
//! The process may die after any step: then everything is as the store would load it, but for what lives in memory alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use berth::admission::resource::{
    Around, Change, Claimant, Command, DeviceChange, Fresh, NodeNow, OfLease, Otherwise, Quarantine, RETRIES_MAX,
    Reply, ResourceState, Retry, Rivals, Task, Work, Worked, apply, decide, settled_at_start,
};
use berth::admission::{Attendance, CalendarRules, Joined, Rank, Speaker, Waiter, WaitingRules};
use berth::clock::Now;
use berth::model::{
    Authority, Caller, DeviceState, Driver, DriverKind, Fence, Fingerprint, Hook, HookFailure, HookKind, LeaseId,
    LeftOut, Mode, Priority, Proposal, RequestId, ResourceSpec, Target, WaitPolicy,
};
use proptest::prelude::*;

use crate::sample;

#[derive(Debug, Clone)]
enum Step {
    /// Somebody asks, and waits if need be.
    Ask {
        shared: bool,
        attended: bool,
    },
    /// The first holder releases.
    Release,
    /// The task that is to be run ends.
    Done {
        ok: bool,
    },
    /// A check ends; one of an earlier grant, if it is late.
    Check {
        ok: bool,
        late: bool,
    },
    /// Any task ends that is not to be run.
    Stray {
        hook: usize,
        ok: bool,
        fence: u64,
        tries: Option<u32>,
    },
    /// Whoever has the claim gives up.
    GiveUp,
    Sighted {
        there: bool,
    },
    Clear,
    Drain(bool),
    Pass {
        ms: u64,
    },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (any::<bool>(), any::<bool>()).prop_map(|(shared, attended)| Step::Ask { shared, attended }),
        3 => Just(Step::Release),
        6 => prop::bool::weighted(0.7).prop_map(|ok| Step::Done { ok }),
        2 => (any::<bool>(), prop::bool::weighted(0.3)).prop_map(|(ok, late)| Step::Check { ok, late }),
        1 => (0usize..3, any::<bool>(), 0u64..4, prop::option::of(0u32..4))
            .prop_map(|(hook, ok, fence, tries)| Step::Stray { hook, ok, fence, tries }),
        1 => Just(Step::GiveUp),
        1 => any::<bool>().prop_map(|there| Step::Sighted { there }),
        1 => Just(Step::Clear),
        1 => prop::bool::weighted(0.4).prop_map(Step::Drain),
        3 => (0u64..70_000).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

fn spec(hooks: u8, lock_delay: u64) -> ResourceSpec {
    let hook =
        |bit: u8| (hooks & bit != 0).then(|| Hook { argv: vec!["true".to_owned()], timeout: Duration::from_secs(60) });
    let driver = Driver {
        kind: DriverKind::Command,
        prepare: hook(1),
        reset: hook(2),
        health: hook(4),
        health_interval: Duration::from_secs(30),
        directory: None,
        ..Driver::default()
    };
    ResourceSpec {
        driver: Arc::new(driver),
        lock_delay: Duration::from_secs(lock_delay),
        max_shared: 2.try_into().unwrap(),
        ..ResourceSpec::bare(sample::text("board"))
    }
}

fn failure(hook: HookKind) -> HookFailure {
    HookFailure { hook, why: "exited with 3".to_owned(), output: String::new() }
}

/// One resource and what has been seen of it.
struct Bench {
    spec: ResourceSpec,
    rules: WaitingRules,
    calendar: CalendarRules,
    state: ResourceState,
    now: Now,
    asked: usize,
    /// Every fence that a lease or a claim has had.
    fences: BTreeSet<Fence>,
    /// True when the device is as a prepare and the last reset have left it: nobody has had it since.
    clean: bool,
    /// The fence of the last prepare that has succeeded.
    prepared: Option<Fence>,
    /// Tries in quarantine since it began.
    tries: u32,
}

impl Bench {
    fn new(spec: ResourceSpec) -> Self {
        let rules = WaitingRules { waiter_ttl: Duration::from_secs(1_000_000), ..WaitingRules::default() };
        Self {
            spec,
            rules,
            calendar: CalendarRules::default(),
            state: ResourceState::default(),
            now: sample::at(0),
            asked: 0,
            fences: BTreeSet::new(),
            clean: true,
            prepared: None,
            tries: 0,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&Around<'_>) -> T) -> T {
        let fresh = Fresh { request: sample::request(999_999), lease: LeaseId::generate() };
        let around = Around {
            spec: &self.spec,
            driver: &self.spec.driver,
            rules: &self.rules,
            max_total: None,
            calendar: &self.calendar,
            holds_paused: false,
            fresh: Some(&fresh),
            unsettled: &BTreeSet::new(),
            rivals: Rivals::default(),
            node: &NodeNow::default(),
            now: self.now,
        };
        f(&around)
    }

    fn take(&mut self, command: Command) -> Reply {
        let decision = self.with(|around| decide(&self.state, around, command));
        self.adopt(decision.changes);
        decision.reply
    }

    fn adopt(&mut self, changes: Vec<Change>) {
        let mut shown = self.state.device(&NodeNow::default());
        for change in changes {
            self.check(&change);
            if let Change::StateChanged { from, to, .. } | Change::Drained { from, to, .. } = &change {
                assert_eq!(*from, shown, "each move begins where the last has ended");
                shown = *to;
            }
            apply(&mut self.state, change);
        }
        assert_eq!(shown, self.state.device(&NodeNow::default()), "every move is told");
        self.check_state();
    }

    /// What a change may be, by what was seen before it.
    fn check(&mut self, change: &Change) {
        let driver = &self.spec.driver;
        match change {
            Change::Granted { lease, .. } => {
                assert!(self.state.device.absent.is_none(), "nobody gets what is not there");
                assert!(self.state.device.is_ready() && !self.state.drained || self.prepared == Some(lease.fence));
                if self.state.held.is_empty() {
                    if driver.prepare.is_some() {
                        assert_eq!(self.prepared, Some(lease.fence), "a lease comes of the prepare of its own fence");
                    } else {
                        assert!(self.fences.insert(lease.fence), "no fence comes again");
                        assert!(self.clean || driver.reset.is_none(), "nobody gets what the last one left");
                    }
                } else {
                    assert!(self.fences.insert(lease.fence));
                }
                assert!(self.fences.last() == Some(&lease.fence), "a fence grows with every grant");
                self.clean = false;
            }
            Change::Device(DeviceChange::Work { work: Work::Preparing(claim), .. }) => {
                assert!(self.fences.insert(claim.of.fence) && self.fences.last() == Some(&claim.of.fence));
                assert!(self.state.device.is_ready() && self.state.held.is_empty() && !self.state.drained);
                assert!(self.clean || driver.reset.is_none(), "nobody gets what the last one left");
                self.clean = false;
                self.prepared = None;
            }
            Change::Device(DeviceChange::Work { work: Work::Quarantined(it), .. }) => {
                if !matches!(self.state.device.work, Work::Quarantined(_)) {
                    self.tries = 0;
                }
                assert!(it.tries <= RETRIES_MAX && it.tries >= self.tries);
                assert_eq!(it.next == Retry::Never, it.tries == RETRIES_MAX);
                self.tries = it.tries;
            }
            _ => {}
        }
    }

    fn check_state(&self) {
        let state = &self.state;
        if !state.held.is_empty() {
            assert_eq!(state.device.work, Work::None, "nothing is done to a device that somebody holds");
        }
        if let Some(task) = state.task() {
            assert!(state.check().is_none(), "one thing at a time");
            assert!(state.of_task(&task).is_some() || task.hook == HookKind::Health);
        }
        let next = state.wake_at(&self.spec, &self.rules, &NodeNow::default(), self.now);
        let waits = match &state.device.work {
            Work::Quarantined(Quarantine { next: Retry::At(at), .. }) => Some(*at),
            _ => state.device.cooling.map(|cooling| cooling.until),
        };
        if let Some(at) = waits {
            assert!(next.is_some_and(|next| next <= at), "whatever ends by time alone is woken for");
        }
    }

    fn ask(&mut self, shared: bool, attended: bool) {
        self.asked += 1;
        let number = self.asked;
        let target = Target::Resource(sample::text("board"));
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let joined = Joined { run: 1, at_us: number as i64, arrival: number as u64 };
        let waiter = Waiter {
            proposal: Proposal {
                request: sample::request(number),
                holder: sample::text(&format!("ci/job-{number}")),
                fingerprint: Fingerprint::of(&target, mode, None),
                target,
                mode,
                priority: Priority::default(),
                ttl: Duration::from_secs(60),
                lease: sample::text(&format!("lease-{number}")),
                id_chosen_by_requester: true,
                note: None,
                key: None,
                allow_shorter: false,
                by_admin: false,
            },
            rank: Rank::new(Priority::default(), joined, None),
            joined_at: self.now.wall,
            attendance: Attendance::Attended,
            returns: None,
            restored: false,
            not_on: None,
        };
        let wait = WaitPolicy::Wait { timeout: None };
        let otherwise = if attended { Otherwise::Wait(wait) } else { Otherwise::Refuse(WaitPolicy::Fail) };
        let (waiter, left_out, speaker) = (Box::new(waiter), LeftOut::default(), Speaker::Requester);
        let reply = self.take(Command::Ask { waiter, otherwise, left_out, speaker });
        if let Reply::Granted(_) = reply {
            assert!(self.spec.driver.prepare.is_none() || self.state.held.len() > 1);
        }
    }

    fn ends(&mut self, task: Task, ok: bool) -> Reply {
        let hook = task.hook;
        let counts = self.state.task().as_ref() == Some(&task);
        if counts && ok {
            match hook {
                HookKind::Prepare => self.prepared = Some(task.fence),
                HookKind::Reset => self.clean = true,
                HookKind::Health => {}
            }
        }
        let took = Duration::from_secs(1);
        self.take(Command::Worked(Worked { task, outcome: if ok { Ok(()) } else { Err(failure(hook)) }, took }))
    }

    /// The process dies and starts again: what is on disk is there.
    fn restart(&mut self) {
        let device = &mut self.state.device;
        (device.absent, device.health, device.reset_took) = (None, Default::default(), None);
        match &mut device.work {
            Work::Preparing(claim) => claim.claimant = Claimant::Nobody,
            Work::Resetting(reset) => reset.since = self.now.run,
            Work::Quarantined(it) => it.next = Retry::after(it.tries, self.now.run),
            Work::None => {}
        }
        self.state.notices.clear();
        // Those who waited are told so and ask again.
        self.state.queue = Default::default();
        let changes = self.with(|around| settled_at_start(&self.state, around));
        self.adopt(changes);
        assert!(self.state.device.claim().is_none(), "no claim outlives its node");
    }

    /// True for what runs, or ran when the device was pulled out just now.
    fn is_to_be_done(&self, task: &Task) -> bool {
        let mut there = self.state.clone();
        there.device.absent = None;
        [there.task(), self.state.check()].contains(&Some(task.clone()))
    }

    fn step(&mut self, step: Step) {
        let admin = || Authority::Client(Caller::admin());
        match step {
            Step::Ask { shared, attended } => self.ask(shared, attended),
            Step::Release => {
                if let Some(held) = self.state.held.first() {
                    let lease = held.lease.id.clone();
                    self.take(Command::Release { lease, fence: None, authority: admin() });
                }
            }
            Step::Done { ok } => {
                if let Some(task) = self.state.task() {
                    self.ends(task, ok);
                }
            }
            Step::Check { ok, late } => {
                if let Some(mut task) = self.state.check().filter(|_| self.spec.driver.checks()) {
                    let before = self.state.clone();
                    if late {
                        task.fence = Fence(task.fence.0.wrapping_sub(1));
                    }
                    self.ends(task, ok);
                    if late {
                        assert_eq!(self.state.device, before.device, "a check of an earlier grant changes nothing");
                    }
                }
            }
            Step::Stray { hook, ok, fence, tries } => {
                let hook = [HookKind::Prepare, HookKind::Reset, HookKind::Health][hook];
                let task = Task { hook, fence: Fence(self.state.fence.0.saturating_sub(fence)), tries };
                // What time has done comes first, and is not its doing.
                self.take(Command::Wake);
                if !self.is_to_be_done(&task) {
                    let before = self.state.clone();
                    self.ends(task, ok);
                    assert_eq!(self.state, before, "what is not to be done changes nothing");
                }
            }
            Step::GiveUp => {
                let request: Option<RequestId> = self.state.device.claim().and_then(|claim| claim.request()).cloned();
                if let Some(request) = request {
                    let why = berth::admission::resource::Rejection::Cancelled;
                    assert_eq!(self.take(Command::Withdraw { request, why }), Reply::Left(true));
                }
            }
            Step::Sighted { there } => {
                let absent = (!there).then(|| "unplugged".into());
                self.take(Command::Sighted { absent, identity: None });
            }
            Step::Clear => {
                // The operator's word stands for a reset, also where that waits for what has gone.
                let device = &self.state.device;
                let waits_for_it = matches!(device.work, Work::Resetting(_)) && device.absent.is_some();
                self.clean |= waits_for_it || matches!(device.work, Work::Quarantined(_));
                self.take(Command::Clear);
                let device = &self.state.device;
                assert!(!matches!(device.work, Work::Quarantined(_)));
                assert!(device.absent.is_none() || !matches!(device.work, Work::Resetting(_)));
            }
            Step::Drain(drained) => drop(self.take(Command::Drain(drained))),
            Step::Pass { ms } => {
                let run = self.now.run.0.as_millis() as u64 + ms;
                self.now = sample::at(run);
                self.take(Command::Wake);
            }
            Step::Restart => self.restart(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: ProptestConfig::default().cases.max(512), ..ProptestConfig::default() })]

    #[test]
    fn a_device_is_granted_only_as_its_hooks_have_left_it(
        hooks in 0u8..8, lock_delay in prop_oneof![Just(0u64), 1u64..100], steps in steps(),
    ) {
        let mut bench = Bench::new(spec(hooks, lock_delay));
        for step in steps {
            bench.step(step);
        }
        // When everything goes well from now on, whoever asks gets it.
        bench.step(Step::Drain(false));
        bench.step(Step::Sighted { there: true });
        for _ in 0..150 {
            bench.step(Step::Clear);
            bench.step(Step::Done { ok: true });
            bench.step(Step::Check { ok: true, late: false });
            bench.step(Step::Pass { ms: 20_000 });
            bench.step(Step::Release);
        }
        prop_assert!(bench.state.queue.is_empty(), "nobody waits for ever: {:?}", bench.state);
        bench.step(Step::Check { ok: true, late: false });
        bench.step(Step::Check { ok: true, late: false });
        prop_assert_eq!(bench.state.device(&NodeNow::default()), DeviceState::Available);
    }
}

#[test]
fn a_claim_knows_its_lease() {
    let mut bench = Bench::new(spec(1, 0));
    bench.ask(false, true);
    let claim = bench.state.device.claim().unwrap().clone();
    let of = OfLease { lease: sample::text("lease-1"), holder: sample::text("ci/job-1"), fence: claim.of.fence };
    assert_eq!(claim.of, of);
    assert_eq!(bench.state.task(), Some(Task { hook: HookKind::Prepare, fence: of.fence, tries: None }));
    bench.step(Step::Done { ok: true });
    assert_eq!(bench.state.held[0].lease.fence, of.fence);
}
