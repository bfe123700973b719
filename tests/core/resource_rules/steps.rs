//! What is asked of the resource, at random.

use std::time::Duration;

use berth::admission::resource::{Command, Link, NodeNow, Otherwise, Rejection, Rivals};
use berth::admission::{Attendance, Joined, Rank, Speaker, Waiter};
use berth::clock::{Now, RunTime};
use berth::model::{Authority, Caller, Fence, LeaseId, LeftOut, Mode, Priority, RequestId, Role, WaitPolicy};
use jiff::Timestamp;
use proptest::prelude::*;

use super::device::{Crash, Device, rank, unattended, waiter};
use crate::sample;

const HOLDERS: [&str; 6] = ["kim", "kim/job-1", "ruth", "gw:gateway:kim", "gw:gateway:ruth", "omar"];
const HOUR_MS: i64 = 3_600_000;

/// What is done in one step.
#[derive(Debug, Clone)]
pub struct Step {
    /// How far both clocks go on first.
    pub after_ms: u64,
    /// How far the wall clock is set, forward or back, besides.
    pub wall_set_ms: i64,
    pub rivals: [Option<i32>; 4],
    /// What the uplink has said before.
    pub link: Option<Linked>,
    /// The whole worker is taken out or brought back before.
    pub drained: Option<bool>,
    pub asked: Asked,
    pub crash: Crash,
}

/// How the link to the gateway is.
#[derive(Debug, Clone, Copy)]
pub enum Linked {
    Down,
    /// The gateway has taken a snapshot in so long ago.
    Acknowledged(u64),
    /// It has been heard so long ago.
    Heard(u64),
}

impl Linked {
    /// Takes it in, as the desk does.
    pub fn say(self, node: &mut NodeNow, now: Now) {
        let ago = |ms| RunTime(now.run.0 - Duration::from_millis(ms));
        let gateway = node.gateway.as_mut().expect("there is a gateway");
        gateway.link = match (self, gateway.link) {
            (Linked::Down, _) | (Linked::Heard(_), Link::Away) => Link::Away,
            (Linked::Acknowledged(ms), _) => Link::Acknowledged { at: ago(ms), heard: ago(ms) },
            (Linked::Heard(ms), Link::Acknowledged { at, heard }) => {
                Link::Acknowledged { at, heard: heard.max(ago(ms)) }
            }
        };
    }
}

#[derive(Debug, Clone)]
pub enum Asked {
    Ask(Box<Attempt>),
    Offer(Box<Attempt>),
    Withdraw { index: usize, why: Rejection },
    See { index: usize },
    Leave { holder: usize },
    Renew { lease: usize, fence: Named, ttl_ms: Option<u64>, by: Authority },
    Release { lease: usize, fence: Named, by: Authority },
    Drain(bool),
    Serve(Option<u64>),
    Wake,
    Rewrite,
}

#[derive(Debug, Clone)]
pub struct Attempt {
    holder: usize,
    shared: bool,
    priority: i32,
    ttl_ms: u64,
    /// Which of the holder's own lease ids it names.
    chosen: Option<usize>,
    note: Option<usize>,
    otherwise: Otherwise,
    left_out: LeftOut,
    by_gateway: bool,
    /// It comes back after a restart.
    returns: bool,
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
        4 => Just(Authority::Client(Caller::admin())),
        2 => any::<bool>().prop_map(|admin| Authority::Gateway { name: sample::text("gateway"), admin }),
        1 => any::<bool>().prop_map(|admin| Authority::Gateway { name: sample::text("other"), admin }),
    ]
}

fn attempts() -> impl Strategy<Value = Box<Attempt>> {
    let wait = WaitPolicy::Wait { timeout: None };
    let otherwise = prop_oneof![
        5 => Just(Otherwise::Join),
        4 => Just(Otherwise::Wait(wait)),
        1 => Just(Otherwise::Refuse(WaitPolicy::Fail)),
        1 => Just(Otherwise::Refuse(WaitPolicy::NoWait)),
        1 => Just(Otherwise::Decline(wait)),
    ];
    let left_out = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.7))
        .prop_map(|(mode, ttl, priority)| LeftOut { mode, ttl, priority });
    let who = (0..HOLDERS.len(), any::<bool>(), prop_oneof![3 => Just(0), 1 => -2..=3], 1u64..=40);
    let chosen = prop::option::weighted(0.3, 0..2usize);
    let note = prop::option::weighted(0.2, 0..2usize);
    let rest = (chosen, note, otherwise, left_out, prop::bool::weighted(0.2), prop::bool::weighted(0.3));
    (who, rest).prop_map(|((holder, shared, priority, ttl_ms), rest)| {
        let (chosen, note, otherwise, left_out, by_gateway, returns) = rest;
        Box::new(Attempt { holder, shared, priority, ttl_ms, chosen, note, otherwise, left_out, by_gateway, returns })
    })
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fence = || prop_oneof![4 => Just(Named::None), 2 => Just(Named::Latest), 1 => Just(Named::Other)];
    let why = prop_oneof![Just(Rejection::Timeout), Just(Rejection::Abandoned), Just(Rejection::Cancelled)];
    // Widths and pauses are of one size and often equal, so that deadlines are met exactly.
    let asked = prop_oneof![
        12 => attempts().prop_map(Asked::Ask),
        2 => attempts().prop_map(Asked::Offer),
        2 => (any::<usize>(), why).prop_map(|(index, why)| Asked::Withdraw { index, why }),
        2 => any::<usize>().prop_map(|index| Asked::See { index }),
        1 => (0..HOLDERS.len()).prop_map(|holder| Asked::Leave { holder }),
        2 => (any::<usize>(), fence(), prop::option::of(1u64..=40), authorities())
            .prop_map(|(lease, fence, ttl_ms, by)| Asked::Renew { lease, fence, ttl_ms, by }),
        5 => (any::<usize>(), fence(), authorities())
            .prop_map(|(lease, fence, by)| Asked::Release { lease, fence, by }),
        1 => prop::bool::weighted(0.3).prop_map(Asked::Drain),
        2 => prop::option::of(0u64..12).prop_map(Asked::Serve),
        3 => Just(Asked::Wake),
        1 => Just(Asked::Rewrite),
    ];
    let crash = prop_oneof![
        30 => Just(Crash::Never),
        2 => Just(Crash::CommitFails),
        1 => Just(Crash::BeforeCommit),
        1 => Just(Crash::BeforeApply),
    ];
    let wall = prop_oneof![
        20 => Just(0i64),
        1 => Just(HOUR_MS),
        1 => Just(-HOUR_MS),
        1 => Just(365 * 24 * HOUR_MS),
    ];
    let rival = || prop::option::weighted(0.25, -2..=3);
    let no_rivals = Just([None; 4]);
    let rivals =
        prop_oneof![3 => no_rivals, 1 => (rival(), rival(), rival(), rival()).prop_map(|(a, b, c, d)| [a, b, c, d])];
    // Whoever is to get through has ten seconds for that.
    let linked = prop_oneof![
        1 => Just(Linked::Down),
        2 => prop_oneof![Just(0u64), 0u64..=40, 9_970u64..=10_030].prop_map(Linked::Acknowledged),
        4 => prop_oneof![2 => Just(0u64), 1 => 0u64..=20].prop_map(Linked::Heard),
    ];
    let node = (prop::option::weighted(0.4, linked), prop::option::weighted(0.04, prop::bool::weighted(0.3)));
    let step = (0u64..=8, wall, rivals, node, asked, crash).prop_map(
        |(after_ms, wall_set_ms, rivals, (link, drained), asked, crash)| Step {
            after_ms,
            wall_set_ms,
            rivals,
            link,
            drained,
            asked,
            crash,
        },
    );
    prop::collection::vec(step, 1..60)
}

/// A place that somebody lost by a restart.
pub type Lost = (RequestId, Joined, Timestamp);

/// Turns a step into what a caller can know and say.
pub struct Callers {
    /// Which life of the node it is.
    pub run: u64,
    pub lost: Vec<Lost>,
}

impl Callers {
    /// Those of the pool joined at some time before now.
    pub fn rivals(&self, step: &Step, number: usize, device: &Device, now: Now) -> Rivals {
        let place = |index: usize| {
            step.rivals[index].map(|priority| {
                let ago = Duration::from_millis(number as u64 * 7 % 30);
                let joined = Now { run: berth::clock::RunTime(now.run.0.saturating_sub(ago)), ..now };
                rank(priority, joined, self.run, 20_000 + number * 4 + index, device.rules.priority_aging)
            })
        };
        Rivals { exclusive: place(0), shared: place(1), pinned: place(2), returning: place(3) }
    }

    pub fn command(&mut self, asked: &Asked, number: usize, device: &Device, now: Now) -> Command {
        let fence = |named: &Named| match named {
            Named::None => None,
            Named::Latest => Some(device.state.fence),
            Named::Other => Some(Fence(3)),
        };
        let lease = |index: usize| -> LeaseId {
            let held = &device.state.held;
            let known = index.checked_rem(held.len() + 1).and_then(|index| held.get(index));
            known.map_or_else(|| sample::text("unknown"), |held| held.lease.id.clone())
        };
        let waiting = |index: usize| {
            let waiters: Vec<_> = device.state.queue.iter().collect();
            let known = index.checked_rem(waiters.len() + 1).and_then(|index| waiters.get(index));
            known.map_or_else(|| sample::request(90_000), |waiter| waiter.proposal.request.clone())
        };
        let ms = Duration::from_millis;
        match asked {
            Asked::Ask(attempt) => {
                let waiter = Box::new(self.waiter(attempt, number, device, now));
                let speaker = if attempt.by_gateway { Speaker::Gateway } else { Speaker::Requester };
                Command::Ask { waiter, otherwise: attempt.otherwise, left_out: attempt.left_out, speaker }
            }
            Asked::Offer(attempt) => {
                let attempt = Attempt { otherwise: Otherwise::Wait(WaitPolicy::NoWait), ..(**attempt).clone() };
                Command::Offer { waiter: Box::new(self.waiter(&attempt, number, device, now)), stored: true }
            }
            Asked::Withdraw { index, why } => Command::Withdraw { request: waiting(*index), why: *why },
            Asked::See { index } => Command::See { request: waiting(*index) },
            Asked::Leave { holder } => Command::Leave { holder: sample::text(HOLDERS[*holder]) },
            Asked::Renew { lease: index, fence: named, ttl_ms, by } => {
                let (lease, ttl, authority) = (lease(*index), ttl_ms.map(ms), by.clone());
                Command::Renew { lease, fence: fence(named), ttl, allow_shorter: false, authority }
            }
            Asked::Release { lease: index, fence: named, by } => {
                Command::Release { lease: lease(*index), fence: fence(named), authority: by.clone() }
            }
            Asked::Drain(drained) => Command::Drain(*drained),
            Asked::Serve(freed) => Command::Serve { freed: freed.map(ms) },
            Asked::Wake => Command::Wake,
            Asked::Rewrite => Command::Rewrite,
        }
    }

    fn waiter(&mut self, attempt: &Attempt, number: usize, device: &Device, now: Now) -> Waiter {
        let holder = HOLDERS[attempt.holder];
        let aging = device.rules.priority_aging;
        let attended = !matches!(attempt.otherwise, Otherwise::Join | Otherwise::Refuse(WaitPolicy::Fail));
        let mut it = waiter(number, holder, now);
        it.proposal.mode = if attempt.shared { Mode::Shared } else { Mode::Exclusive };
        it.proposal.priority = Priority::try_from(f64::from(attempt.priority)).unwrap();
        it.proposal.ttl = Duration::from_millis(attempt.ttl_ms);
        it.proposal.note = attempt.note.map(|note| sample::text(["bring the cable", "for the nightly"][note]));
        if let Some(id) = attempt.chosen {
            let id: LeaseId = sample::text(&format!("{}-{id}", holder.replace([':', '/'], "-")));
            // The ledger lets no two leases and entries have one id, but who asks again may name its own.
            let standing =
                |waiter: &Waiter| !attended && !waiter.is_attended() && waiter.proposal.holder == it.proposal.holder;
            let waits = device.state.queue.iter().any(|waiter| waiter.proposal.lease == id && !standing(waiter));
            if !waits && device.state.held.iter().all(|held| held.lease.id != id) {
                (it.proposal.lease, it.proposal.id_chosen_by_requester) = (id, true);
            }
        }
        it.rank = rank(attempt.priority, now, self.run, number, aging);
        if attempt.returns
            && let Some((request, joined, joined_at)) = self.lost.pop()
        {
            (it.returns, it.joined_at) = (Some(request), joined_at);
            it.rank = Rank::new(it.proposal.priority, joined, aging);
        }
        if attended { it } else { unattended(it, now) }
    }

    /// The node starts again: whoever waited, attended, has lost that place.
    pub fn restart(&mut self, device: &Device) {
        self.run += 1;
        let attended = device.state.queue.iter().filter(|waiter| waiter.attendance == Attendance::Attended);
        self.lost
            .extend(attended.map(|waiter| (waiter.proposal.request.clone(), waiter.rank.joined(), waiter.joined_at)));
    }
}
