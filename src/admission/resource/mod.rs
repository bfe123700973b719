//! One resource: who holds it, who waits for it, and who is next.
//!
//! [`decide`] answers a command with changes and a reply and touches nothing; [`apply`] is the only way the state
//! moves. A decision settles first what time has done: leases past their deadline end, reservations lapse, unattended
//! waiters that were not seen are pruned, and what became free is handed over. Only then comes the command itself, and
//! after it again the hand-over. So no command sees a lease past its deadline or a free resource with somebody ahead.

mod ask;
mod booked;
mod change;
mod command;
mod device;
mod draft;
#[cfg(feature = "fault-double-grant")]
mod fault;
mod lease;
mod refuse;
mod serve;
mod uplink;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

pub use self::change::{Change, Departure, DeviceChange, EndReason, Place, Rejection, apply};
pub use self::command::{Command, Otherwise, Reply};
pub use self::device::{
    Claim, Claimant, Cooling, Device, HEALTH_DEBOUNCE, Health, OfLease, Quarantine, RETRIES_MAX, Reset, Retry, Task,
    Work, retry_after,
};
use self::draft::Draft;
pub use self::refuse::{not_yours, other_fence, unknown_lease, withdrawn, withdrawn_from};
pub use self::uplink::{GETTING_THROUGH, Gateway, Link, NodeNow};
pub use self::work::{Worked, unseen};
use super::calendar::{Calendar, Doors, Room};
use super::{CalendarRules, Rank, Waiter, WaitingRoom, WaitingRules};
use crate::clock::{Now, RunTime};
use crate::model::{
    BookingId, DeviceState, Driver, Fence, LeaseId, LeaseRecord, Mode, Notice, Proposal, RequestId, Requester,
    ResourceSpec, WaitingFor,
};

/// A lease and its deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The lease.
    pub lease: LeaseRecord,
    /// When it ends, on run time; where it came through a gateway, the uplink grace may come on top.
    pub deadline: RunTime,
    /// The latest that any renewal may reach (`lease.max_total`).
    pub last_end: Option<RunTime>,
}

impl Held {
    /// Moves its deadline. Where a booking needs more than `lease.max_total`, it gets that.
    fn renew(&mut self, lease: LeaseRecord, deadline: RunTime) {
        self.lease = lease;
        self.deadline = deadline;
        self.last_end = self.last_end.map(|last| last.max(deadline));
    }
}

/// A resource that is kept for an unattended waiter who was admitted (SPEC §3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// For whom.
    pub holder: Requester,
    /// Alone, or one of the shared seats.
    pub mode: Mode,
    /// How long; after a restart it is kept so long again.
    pub width: Duration,
    /// Until when, on run time.
    pub until: RunTime,
}

/// What is true of one resource. It moves only by [`apply`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceState {
    /// Its leases: none, one exclusive, or some shared.
    pub held: Vec<Held>,
    /// For whom it is kept.
    pub reserved: Vec<Reservation>,
    /// Who waits for it by its name.
    pub queue: WaitingRoom,
    /// True when an operator has taken it out; the whole worker may be out besides.
    pub drained: bool,
    /// The fence of the latest grant.
    pub fence: Fence,
    /// Since when nobody holds it; none before its first lease. The longest idle is granted first.
    pub idle_since: Option<Timestamp>,
    /// What is done to its device, and known of it.
    pub device: Device,
    /// What the holders have not been told yet.
    pub notices: BTreeMap<LeaseId, Vec<Notice>>,
    /// Since when it is free to be claimed, as far as this run and the resource itself know; none while it is held or
    /// drained, or its device is not ready.
    pub free_since: Option<Timestamp>,
    /// Who has which window of it.
    pub calendar: Calendar,
}

impl ResourceState {
    /// One who waits for it by its name, or for whom it is made ready.
    pub fn waiter(&self, request: &RequestId) -> Option<&Waiter> {
        self.queue.get(request).or_else(|| match &self.device.claim()?.claimant {
            Claimant::Waiter { waiter, .. } if waiter.proposal.request == *request => Some(&**waiter),
            _ => None,
        })
    }

    /// Until when its device is in the way at the latest, as far as anybody can tell.
    pub fn device_until(&self, spec: &ResourceSpec) -> Option<RunTime> {
        self.device.until(spec)
    }

    /// What the resource is doing.
    pub fn device(&self, node: &NodeNow) -> DeviceState {
        self.device.state(self.drained || node.drained, !self.held.is_empty())
    }

    /// Notes since when it is free, if it is, and since when it is not.
    fn set_free(&mut self, at: Timestamp) {
        let is_free = !self.drained && self.held.is_empty() && self.device.is_ready();
        self.free_since = if is_free { self.free_since.or(Some(at)) } else { None };
    }

    /// The earliest instant at which time alone changes something.
    pub fn wake_at(&self, spec: &ResourceSpec, rules: &WaitingRules, node: &NodeNow, now: Now) -> Option<RunTime> {
        let ends = self.held.iter().map(|held| uplink::end_of(held, spec, &self.calendar, node, now));
        let lapses = self.reserved.iter().map(|reservation| reservation.until);
        let holds = self.calendar.next_deadline();
        let stale = self.queue.next_stale(rules.waiter_ttl, node.fleet_asks_since());
        ends.chain(lapses).chain(holds).chain(stale).chain(self.device.wake_at()).min()
    }

    /// The earliest instant of wall time at which a window of the calendar changes who may have it.
    pub fn next_edge(&self, spec: &ResourceSpec, node: &NodeNow, now: Timestamp) -> Option<Timestamp> {
        let free_since = node.free_since(self.free_since).filter(|_| self.device(node) == DeviceState::Available);
        self.calendar.next_edge(spec.bookings, free_since, now)
    }

    /// What the calendar leaves of it now.
    pub fn doors(&self, spec: &ResourceSpec, now: Timestamp) -> Doors {
        self.calendar.doors(spec.bookings, now)
    }

    /// True when a lease of `mode` could be granted to `holder` beside what is held and reserved for others.
    pub fn fits(&self, spec: &ResourceSpec, node: &NodeNow, mode: Mode, holder: Option<&Requester>) -> bool {
        fits(&self.held, &self.reserved, self.drained || node.drained || !self.device.is_ready(), spec, mode, holder)
    }

    /// Why somebody is not served, and until when at the latest, where that is known.
    pub fn waiting_for(
        &self,
        spec: &ResourceSpec,
        node: &NodeNow,
        proposal: &Proposal,
        now: Now,
    ) -> (WaitingFor, Option<RunTime>) {
        let mode = proposal.mode;
        let why = match self.device(node) {
            DeviceState::Drained => return (WaitingFor::Drained, None),
            DeviceState::Available | DeviceState::Leased => None,
            DeviceState::Preparing => Some(WaitingFor::Preparing),
            DeviceState::Resetting => Some(WaitingFor::Resetting),
            DeviceState::Cooling => Some(WaitingFor::Cooling),
            DeviceState::Quarantined => Some(WaitingFor::Quarantined),
            DeviceState::Absent => Some(WaitingFor::Absent),
        };
        if let Some(why) = why {
            let until = self.device.until(spec).filter(|_| why != WaitingFor::Absent);
            return (why, until.filter(|until| *until > now.run));
        }
        let doors = self.doors(spec, now.wall);
        if self.fits(spec, node, mode, Some(&proposal.holder)) && !doors.admit(&self.calendar, proposal, now.wall) {
            let room = doors.room_for(&self.calendar, &proposal.holder, proposal.by_admin);
            let until = match room {
                Room::Free => None,
                Room::Booked(until) => Some(until),
                Room::Until(start) => self.calendar.claim_at(start).map(|claim| claim.ends_at),
            };
            return (WaitingFor::Booked, until.map(|until| now.run_of(until)));
        }
        if self.held.is_empty() {
            return (WaitingFor::Reserved, self.reserved.iter().map(|reservation| reservation.until).max());
        }
        let beside_shared = mode == Mode::Shared && self.held.iter().all(|held| held.lease.mode == Mode::Shared);
        let lapses = self.reserved.iter().map(|reservation| reservation.until);
        let ends = self.held.iter().map(|held| held.deadline).chain(lapses);
        let end = if beside_shared { ends.min() } else { ends.max() };
        // One that is over its deadline ends when its gateway has been heard, which nobody knows beforehand.
        (WaitingFor::Leased, end.filter(|end| *end > now.run))
    }
}

fn fits(
    held: &[Held],
    reserved: &[Reservation],
    out: bool,
    spec: &ResourceSpec,
    mode: Mode,
    holder: Option<&Requester>,
) -> bool {
    let others = || reserved.iter().filter(|reservation| Some(&reservation.holder) != holder);
    !out && match mode {
        Mode::Exclusive => held.is_empty() && others().next().is_none(),
        Mode::Shared => {
            held.iter().all(|held| held.lease.mode == Mode::Shared)
                && others().all(|reservation| reservation.mode == Mode::Shared)
                && held.len() + others().count() < spec.max_shared.get() as usize
        }
    }
}

/// Who else could have the resource: the best places of those who do not wait here by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rivals {
    /// The first of the pool that wants it alone.
    pub exclusive: Option<Rank>,
    /// The first of the pool that would share it.
    pub shared: Option<Rank>,
    /// One of the pool that wants it alone and waits for just this one among its matches, all of which are shared.
    pub pinned: Option<Rank>,
    /// The first of those who waited for it when the node was restarted, and may still come back.
    pub returning: Option<Rank>,
}

impl Rivals {
    /// The same with one more of the pool.
    fn and(self, waiter: &Waiter) -> Self {
        let first = |other: Option<Rank>| Some(other.map_or(waiter.rank, |other| other.min(waiter.rank)));
        match waiter.proposal.mode {
            Mode::Exclusive => Self { exclusive: first(self.exclusive), ..self },
            Mode::Shared => Self { shared: first(self.shared), ..self },
        }
    }
}

/// Names that nothing has yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fresh {
    /// For a request.
    pub request: RequestId,
    /// For its lease.
    pub lease: LeaseId,
}

/// What a decision goes by, beside the state.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// The resource's settings. Whoever is next finds its driver.
    pub spec: &'a ResourceSpec,
    /// The driver of the lease that is on it, or was last: the lab file may have been read anew since it began.
    pub driver: &'a Driver,
    /// The operator's numbers for waiting.
    pub rules: &'a WaitingRules,
    /// `lease.max_total`.
    pub max_total: Option<Duration>,
    /// The operator's numbers for bookings and holds.
    pub calendar: &'a CalendarRules,
    /// True when no new holds are made on the whole node.
    pub holds_paused: bool,
    /// The names of a lease that the node grants by itself, to the holder of a booking.
    pub fresh: Option<&'a Fresh>,
    /// Bookings that the database has refused to settle; none with a whole database.
    pub unsettled: &'a BTreeSet<BookingId>,
    /// Who else could have it.
    pub rivals: Rivals,
    /// What is true of the whole worker.
    pub node: &'a NodeNow,
    /// When.
    pub now: Now,
}

/// What a command leads to.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// To be made durable, then applied, in this order.
    pub changes: Vec<Change>,
    /// To be told after that.
    pub reply: Reply,
    /// Where the changes of the command itself begin; before that is what time has done, and whom that served.
    pub command_from: usize,
    /// Where the first hand-over begins; an offer is one.
    pub handed_over_from: usize,
    /// True when an unattended waiter could have been admitted, but others are to be asked before.
    pub admission_left: bool,
}

/// Decides a command.
pub fn decide(state: &ResourceState, around: &Around<'_>, command: Command) -> Decision {
    let mut draft = Draft::new(state, around);
    draft.settle_time();
    let settled = draft.changes.len();
    if let Command::Offer { waiter, .. } = &command {
        // It has left the pool for this, and nobody behind it goes before it meanwhile.
        draft.rivals = around.rivals.and(waiter);
    }
    // What time has ended is handed over at once, so that the command finds nobody ahead. A command that does nothing
    // but hand over does it once: by its own grace, and apart from what has ended.
    let only_hands_over = matches!(command, Command::Wake | Command::Edge | Command::Serve { .. });
    let before = if only_hands_over { serve::Served::default() } else { hand_over(&mut draft, None) };
    draft.rivals = around.rivals;
    let command_from = draft.changes.len();
    let mut least_grace = None;
    let is_offer = matches!(command, Command::Offer { .. });
    let mut reply = match command {
        Command::Ask { waiter, otherwise, left_out, speaker } => {
            ask::ask(&mut draft, *waiter, otherwise, left_out, speaker)
        }
        Command::Offer { waiter, stored } => ask::offer(&mut draft, &waiter, stored),
        Command::Withdraw { request, why } => ask::withdraw(&mut draft, &request, why),
        Command::Leave { holder } => ask::leave(&mut draft, &holder),
        Command::Dismiss => ask::dismiss(&mut draft),
        Command::See { request } => ask::see(&mut draft, &request),
        Command::Renew { lease, fence, ttl, allow_shorter, authority } => {
            lease::renew(&mut draft, &lease, fence, ttl, allow_shorter, &authority)
        }
        Command::Release { lease, fence, authority } => lease::release(&mut draft, &lease, fence, &authority),
        Command::Drain(drained) => {
            draft.drain(drained);
            Reply::Done
        }
        Command::Clear => work::clear(&mut draft),
        Command::Worked(ended) => work::worked(&mut draft, ended),
        Command::Sighted { absent, identity } => work::sighted(&mut draft, absent, identity),
        Command::Serve { freed } => {
            draft.freed |= freed.is_some();
            least_grace = freed;
            Reply::Served(None)
        }
        Command::Calendar(command) => booked::calendar(&mut draft, command),
        Command::Wake => Reply::Done,
        Command::Edge => {
            // Where windows stop nobody, none of them has let anybody in.
            draft.freed |= booked::stops_others(around.spec.bookings);
            Reply::Done
        }
        Command::Rewrite => {
            lease::rewrite(&mut draft);
            Reply::Done
        }
    };
    let handed_over_from = match (command_from > settled, is_offer) {
        (true, _) => settled,
        (false, true) => command_from,
        (false, false) => draft.changes.len(),
    };
    let after = hand_over(&mut draft, least_grace);
    if let Reply::Released(_, first) | Reply::Served(first) = &mut reply {
        *first = after.first;
    }
    if let Reply::Pending { request, position } = &mut reply
        && let Some(waiter) = draft.waiter(request)
    {
        // Whoever stood ahead may have been served meanwhile.
        *position = draft.position(waiter.rank);
    }
    if let Reply::Calendar(told) = reply {
        reply = Reply::Calendar(told.brought_up_to(&draft.calendar));
    }
    let admission_left = before.admission_left || after.admission_left;
    Decision { changes: draft.changes, reply, command_from, handed_over_from, admission_left }
}

/// True when [`Command::Offer`] would grant to `waiter` now.
pub fn could_take(state: &ResourceState, around: &Around<'_>, waiter: &Waiter) -> bool {
    ask::can_take(&Draft::new(state, around), waiter)
}

/// Hands over what is free: to the holder of a booking that has begun, then to those who wait.
fn hand_over(draft: &mut Draft<'_>, least_grace: Option<Duration>) -> serve::Served {
    let booker = booked::settle(draft);
    let served = serve::serve(draft, least_grace);
    serve::Served { first: booker.or(served.first), ..served }
}

/// What time has done while the node was down: leases and holds that have expired, and bookings that have begun or are
/// over. Nobody who waits is served before the node admits.
pub fn settled_at_start(state: &ResourceState, around: &Around<'_>) -> Vec<Change> {
    let mut draft = Draft::new(state, around);
    draft.expire();
    work::settle_time(&mut draft);
    loop {
        let before = draft.changes.len();
        booked::settle(&mut draft);
        if draft.changes.len() == before {
            return draft.changes;
        }
    }
}
