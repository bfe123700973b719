//! The resource with its disk, as its actor keeps it, and the process that may die.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use berth::admission::resource::{
    Around, Change, Command, Decision, Departure, Fresh, Held, NodeNow, Otherwise, Reply, Reservation, ResourceState,
    Rivals, apply, decide,
};
use berth::admission::{Attendance, CalendarRules, Joined, Rank, Speaker, Waiter, WaitingRules};
use berth::clock::Now;
use berth::model::{
    Authority, BookingId, Caller, Fence, LeaseId, LeaseRecord, LeftOut, Mode, Priority, RequestId, ResourceSpec,
    WaitPolicy,
};
use jiff::Timestamp;

use crate::sample;

/// What happens to the process between the decision and the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Crash {
    Never,
    /// The transaction fails and the process lives on.
    CommitFails,
    BeforeCommit,
    BeforeApply,
}

/// What a resource keeps as long as its node runs.
pub struct Device {
    pub spec: ResourceSpec,
    pub rules: WaitingRules,
    pub calendar: CalendarRules,
    pub fresh: Fresh,
    pub unsettled: BTreeSet<BookingId>,
    pub max_total: Option<Duration>,
    pub rivals: Rivals,
    pub node: NodeNow,
    pub state: ResourceState,
    /// What was committed, in order.
    disk: Disk,
}

impl Device {
    pub fn new(max_shared: u32) -> Self {
        let max_shared = NonZeroU32::new(max_shared).unwrap();
        Self {
            spec: ResourceSpec { max_shared, ..ResourceSpec::bare(sample::text("board")) },
            rules: WaitingRules::default(),
            calendar: CalendarRules::default(),
            unsettled: BTreeSet::new(),
            fresh: Fresh { request: RequestId::generate(), lease: LeaseId::generate() },
            max_total: None,
            rivals: Rivals::default(),
            node: NodeNow::default(),
            state: ResourceState::default(),
            disk: Disk::default(),
        }
    }

    pub fn around(&self, now: Now) -> Around<'_> {
        let (spec, rules, max_total, rivals) = (&self.spec, &self.rules, self.max_total, self.rivals);
        let calendar = &self.calendar;
        let (fresh, unsettled) = (Some(&self.fresh), &self.unsettled);
        let node = &self.node;
        let driver = &spec.driver;
        Around { spec, driver, rules, max_total, calendar, holds_paused: false, fresh, unsettled, rivals, node, now }
    }

    pub fn decide(&self, command: Command, now: Now) -> Decision {
        decide(&self.state, &self.around(now), command)
    }

    /// Makes a decision true, as far as the process lives for it.
    pub fn carry_out(&mut self, changes: Vec<Change>, now: Now, crash: Crash) {
        if matches!(crash, Crash::Never | Crash::BeforeApply) {
            changes.iter().filter(|change| change.is_durable()).for_each(|change| self.disk.write(change));
        }
        match crash {
            Crash::Never => changes.into_iter().for_each(|change| apply(&mut self.state, change)),
            Crash::CommitFails => {}
            Crash::BeforeCommit | Crash::BeforeApply => self.state = self.disk.load(now, self.max_total),
        }
    }

    /// Does what is asked, with no mishap.
    pub fn take(&mut self, command: Command, now: Now) -> Decision {
        let decision = self.decide(command, now);
        self.carry_out(decision.changes.clone(), now, Crash::Never);
        decision
    }

    /// Lets somebody ask who is to wait, attended or not, if need be.
    pub fn ask(&mut self, waiter: Waiter, now: Now) -> Reply {
        self.take(ask(waiter), now).reply
    }

    /// Lets somebody ask who has to wait.
    pub fn wait(&mut self, waiter: Waiter, now: Now) {
        let reply = self.ask(waiter, now);
        assert!(matches!(reply, Reply::Waiting | Reply::Pending { .. }), "{reply:?}");
    }

    /// Lets somebody ask who is granted a lease at once.
    pub fn grant(&mut self, waiter: Waiter, now: Now) -> Held {
        match self.ask(waiter, now) {
            Reply::Granted(held) => held,
            other => panic!("{other:?}"),
        }
    }

    /// Who holds a lease, in the order of the grants.
    pub fn holders(&self) -> Vec<String> {
        self.state.held.iter().map(|held| held.lease.holder.to_string()).collect()
    }

    /// Who waits, first to last.
    pub fn waiters(&self) -> Vec<String> {
        self.state.queue.iter().map(|waiter| waiter.proposal.holder.to_string()).collect()
    }

    /// For whom it is kept.
    pub fn kept_for(&self) -> Vec<String> {
        self.state.reserved.iter().map(|kept| kept.holder.to_string()).collect()
    }
}

/// Asks for a lease by name, ready to wait.
pub fn ask(waiter: Waiter) -> Command {
    let otherwise = match waiter.attendance {
        Attendance::Attended => Otherwise::Wait(WaitPolicy::Wait { timeout: None }),
        Attendance::Unattended { .. } => Otherwise::Join,
    };
    let (left_out, speaker) = (LeftOut::default(), Speaker::Requester);
    Command::Ask { waiter: Box::new(waiter), otherwise, left_out, speaker }
}

/// Ends a lease on the word of the machine's operator.
pub fn release(held: &Held) -> Command {
    let authority = Authority::Client(Caller::admin());
    Command::Release { lease: held.lease.id.clone(), fence: None, authority }
}

/// Who was admitted, in order.
pub fn admitted(changes: &[Change]) -> Vec<String> {
    let admitted = changes.iter().filter_map(|change| match change {
        Change::Left { waiter, why: Departure::Admitted { .. }, .. } => Some(waiter.proposal.holder.to_string()),
        _ => None,
    });
    admitted.collect()
}

/// The rows of one resource.
#[derive(Default)]
struct Disk {
    leases: Vec<(LeaseRecord, Timestamp)>,
    reserved: Vec<Reservation>,
    waiters: Vec<Waiter>,
    drained: bool,
    fence: Fence,
    idle_since: Option<Timestamp>,
}

impl Disk {
    fn write(&mut self, change: &Change) {
        match change {
            Change::Granted { lease, expires_at, .. } => {
                self.leases.push((lease.clone(), *expires_at));
                (self.fence, self.idle_since) = (lease.fence, None);
            }
            Change::Renewed { lease, expires_at, .. } => {
                let row = self.leases.iter_mut().find(|(row, _)| row.id == lease.id).expect("a lease to renew");
                *row = (lease.clone(), *expires_at);
            }
            Change::Ended { lease, at, .. } => {
                self.leases.retain(|(row, _)| row.id != lease.id);
                self.idle_since = self.leases.is_empty().then_some(*at);
            }
            Change::Joined { waiter, .. } if !waiter.is_attended() => self.waiters.push(waiter.clone()),
            Change::Moved { former, waiter } => {
                let row = self.waiters.iter_mut().find(|row| row.proposal.request == *former);
                *row.expect("a waiter to move") = waiter.clone();
            }
            Change::Left { waiter, .. } => {
                self.waiters.retain(|row| row.proposal.request != waiter.proposal.request);
            }
            Change::Reserved(reservation) => {
                self.reserved.retain(|row| row.holder != reservation.holder);
                self.reserved.push(reservation.clone());
            }
            Change::Unreserved { holder } => self.reserved.retain(|row| row.holder != *holder),
            Change::Drained { drained, .. } => self.drained = *drained,
            _ => {}
        }
    }

    /// What a start makes of it: attended waiters are lost, the others are as good as just seen and have no claim to
    /// a lease id.
    fn load(&self, now: Now, max_total: Option<Duration>) -> ResourceState {
        let mut state = ResourceState::default();
        for (lease, expires_at) in &self.leases {
            let Held { lease, deadline, last_end } = held_at_start(lease, *expires_at, max_total, now);
            apply(&mut state, Change::Granted { lease, deadline, last_end, expires_at: *expires_at });
        }
        for reservation in &self.reserved {
            apply(&mut state, Change::Reserved(kept_at_start(reservation, now)));
        }
        for waiter in &self.waiters {
            apply(&mut state, Change::Joined { waiter: waiting_at_start(waiter, now), position: 1 });
        }
        ResourceState { drained: self.drained, fence: self.fence, idle_since: self.idle_since, ..state }
    }
}

pub fn held_at_start(lease: &LeaseRecord, expires_at: Timestamp, max_total: Option<Duration>, now: Now) -> Held {
    let deadline = now.run_at_or_before(expires_at, lease.ttl);
    let last_end = max_total.map(|longest| {
        let last = lease.granted_at.checked_add(longest).unwrap();
        now.run_at(last, longest).max(deadline)
    });
    Held { lease: lease.clone(), deadline, last_end }
}

pub fn kept_at_start(reservation: &Reservation, now: Now) -> Reservation {
    Reservation { until: now.run + reservation.width, ..reservation.clone() }
}

pub fn waiting_at_start(waiter: &Waiter, now: Now) -> Waiter {
    let mut proposal = waiter.proposal.clone();
    if proposal.id_chosen_by_requester {
        proposal.id_chosen_by_requester = false;
        proposal.lease = sample::text(&format!("lse_{}", proposal.request));
    }
    Waiter { proposal, restored: true, attendance: Attendance::Unattended { last_seen: now.run }, ..waiter.clone() }
}

/// The rank of one who joined as number `arrival`.
pub fn rank(priority: i32, now: Now, run: u64, arrival: usize, aging: Option<Duration>) -> Rank {
    let joined = Joined { run, at_us: Joined::micros(now.run), arrival: arrival as u64 };
    Rank::new(Priority::try_from(f64::from(priority)).unwrap(), joined, aging)
}

/// An exclusive waiter for ten minutes, without a lease id of its own choice, that joins now as number `number` of
/// the first run.
pub fn waiter(number: usize, holder: &str, now: Now) -> Waiter {
    let ask = sample::ask(sample::request(number), holder, "board");
    let mut proposal = ask.proposal(ask.fingerprint());
    proposal.lease = sample::text(&format!("lse_{number}"));
    proposal.ttl = Duration::from_secs(600);
    Waiter {
        rank: rank(0, now, 1, number, None),
        proposal,
        joined_at: now.wall,
        attendance: Attendance::Attended,
        returns: None,
        restored: false,
        not_on: None,
    }
}

/// The same, as one that has to ask again.
pub fn unattended(waiter: Waiter, now: Now) -> Waiter {
    Waiter { attendance: Attendance::Unattended { last_seen: now.run }, ..waiter }
}

/// The same with a priority.
pub fn ranked(mut waiter: Waiter, priority: i32) -> Waiter {
    waiter.proposal.priority = Priority::try_from(f64::from(priority)).unwrap();
    waiter.rank = Rank::new(waiter.proposal.priority, waiter.rank.joined(), None);
    waiter
}

/// The same, ready to share.
pub fn sharing(mut waiter: Waiter) -> Waiter {
    waiter.proposal.mode = Mode::Shared;
    waiter
}
