//! What one resource does, in the fewest words: lists that are looked through from the front each time.

use std::time::Duration;

use berth::admission::resource::{Around, Command, Gateway, Held, Link, Otherwise, Reservation};
use berth::admission::{Attendance, Rank, Waiter};
use berth::clock::{Now, RunTime};
use berth::model::{Authority, Code, Fence, LeaseId, LeftOut, Mode, Requester, Role, WaitPolicy};

use super::device::{held_at_start, kept_at_start, waiting_at_start};

/// What is true of the resource.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub leases: Vec<Held>,
    pub kept: Vec<Reservation>,
    /// In no order.
    pub queue: Vec<Waiter>,
    pub drained: bool,
    pub fence: Fence,
    /// There is more room than at the last hand-over.
    freed: bool,
    /// The first of the queue could not be served at the last hand-over.
    stuck: bool,
}

/// What the model expects to be told.
#[derive(Debug, PartialEq)]
pub enum Told {
    Granted(Held),
    Renewed(Held),
    Waiting,
    Pending(usize),
    Declined,
    Released(LeaseId, Option<Requester>),
    Left(bool),
    Refused(Code),
    Done,
}

/// The order, without rounding: higher priority first, which grows by one in each interval, then who joined first.
fn order(waiter: &Waiter, aging: Option<Duration>) -> (i128, u64, i64, u64) {
    let joined = waiter.rank.joined();
    let priority = f64::from(waiter.proposal.priority) as i128;
    let height = aging.map_or(priority, |every| priority * every.as_micros() as i128 - i128::from(joined.at_us));
    (-height, joined.run, joined.at_us, joined.arrival)
}

/// What somebody is who asks again.
pub fn merged(standing: &Waiter, asked: &Waiter, left_out: LeftOut, aging: Option<Duration>, now: Now) -> Waiter {
    let mut it = asked.clone();
    let was = &standing.proposal;
    it.proposal.mode = if left_out.mode { was.mode } else { it.proposal.mode };
    it.proposal.priority = if left_out.priority { was.priority } else { it.proposal.priority };
    it.proposal.ttl = if left_out.ttl { was.ttl } else { it.proposal.ttl };
    it.proposal.note = it.proposal.note.or(was.note.clone());
    if !it.proposal.id_chosen_by_requester {
        (it.proposal.lease, it.proposal.id_chosen_by_requester) = (was.lease.clone(), was.id_chosen_by_requester);
    }
    let mut joined = it.rank.joined();
    if is_one(standing, &it) {
        (joined, it.joined_at, it.returns) = (standing.rank.joined(), standing.joined_at, None);
    }
    it.rank = Rank::new(it.proposal.priority, joined, aging);
    it.attendance = Attendance::Unattended { last_seen: now.run };
    it
}

/// Another mode or lease id joins anew.
fn is_one(standing: &Waiter, asks: &Waiter) -> bool {
    standing.proposal.mode == asks.proposal.mode
        && (standing.proposal.lease == asks.proposal.lease || standing.restored)
}

/// The gateway that somebody comes through, if it is the worker's own.
fn gateway_of<'a>(around: &Around<'a>, holder: &Requester) -> Option<&'a Gateway> {
    let gateway = around.node.gateway.as_ref()?;
    holder.to_string().starts_with(&format!("gw:{}:", gateway.name)).then_some(gateway)
}

fn is_away(around: &Around<'_>, waiter: &Waiter) -> bool {
    let holder = &waiter.proposal.holder;
    holder.to_string().starts_with("gw:") && gateway_of(around, holder).is_none_or(|it| it.link == Link::Away)
}

/// Nobody asks again through a gateway that is away.
fn is_fresh(around: &Around<'_>, waiter: &Waiter, seen: RunTime) -> bool {
    let now = around.now.run;
    match gateway_of(around, &waiter.proposal.holder).map(|gateway| gateway.link) {
        Some(Link::Away) => true,
        Some(Link::Acknowledged { at, .. }) => seen.max(at) + around.rules.waiter_ttl > now,
        None => seen + around.rules.waiter_ttl > now,
    }
}

/// When a lease ends, as far as is known.
fn end(around: &Around<'_>, held: &Held) -> RunTime {
    let (deadline, ttl) = (held.deadline, held.lease.ttl);
    let Some(gateway) = gateway_of(around, &held.lease.holder) else { return deadline };
    let ten = Duration::from_secs(10);
    let end = match gateway.link {
        Link::Acknowledged { at, heard } if heard >= deadline => {
            let since = at + ttl < deadline || at + ten <= deadline;
            if since { deadline } else { (at + ten).min(deadline + gateway.grace) }
        }
        _ => deadline + gateway.grace,
    };
    held.last_end.map_or(end, |last| end.min(last).max(deadline))
}

impl Model {
    pub fn take(&mut self, around: &Around<'_>, command: &Command) -> Told {
        let now = around.now;
        (self.freed, self.stuck) = (false, self.is_stuck(around));
        let users = self.leases.len() + self.kept.len();
        self.leases.retain(|lease| end(around, lease) > now.run);
        self.kept.retain(|kept| kept.until > now.run);
        self.freed |= self.leases.len() + self.kept.len() < users;
        self.queue.retain(|waiter| waiter.last_seen().is_none_or(|seen| is_fresh(around, waiter, seen)));
        if !matches!(command, Command::Wake | Command::Serve { .. }) {
            // The one that is offered has left the pool for it, and counts as one of the pool until it is its turn.
            let mut rivals = around.rivals;
            if let Command::Offer { waiter, .. } = command {
                let place = match waiter.proposal.mode {
                    Mode::Exclusive => &mut rivals.exclusive,
                    Mode::Shared => &mut rivals.shared,
                };
                *place = Some(place.map_or(waiter.rank, |other| other.min(waiter.rank)));
            }
            self.hand_over(&Around { rivals, ..*around }, Duration::ZERO);
        }
        let mut least_grace = Duration::ZERO;
        let mut told = match command {
            Command::Ask { waiter, otherwise, left_out, .. } => self.ask(around, waiter, *otherwise, *left_out),
            Command::Offer { waiter, .. } if self.may_take(around, waiter) => Told::Granted(self.grant(around, waiter)),
            Command::Offer { .. } => Told::Declined,
            Command::Withdraw { request, .. } => {
                let waits = |waiter: &Waiter| waiter.is_attended() && waiter.proposal.request == *request;
                Told::Left(self.queue.extract_if(.., |waiter| waits(waiter)).count() > 0)
            }
            Command::See { request } => {
                let seen = |waiter: &&mut Waiter| !waiter.is_attended() && waiter.proposal.request == *request;
                match self.queue.iter_mut().find(seen) {
                    Some(waiter) => {
                        waiter.attendance = Attendance::Unattended { last_seen: now.run };
                        let rank = waiter.rank;
                        let queue = self.in_order(around.rules.priority_aging);
                        Told::Pending(queue.iter().position(|other| other.rank == rank).unwrap() + 1)
                    }
                    None => Told::Left(false),
                }
            }
            Command::Leave { holder } => {
                let waits = |waiter: &Waiter| !waiter.is_attended() && waiter.proposal.holder == *holder;
                let left = self.queue.extract_if(.., |waiter| waits(waiter)).count();
                let given_up = self.kept.extract_if(.., |kept| kept.holder == *holder).count();
                self.freed |= given_up > 0;
                Told::Left(left + given_up > 0)
            }
            Command::Renew { lease, fence, ttl, authority, .. } => match self.named(lease, *fence, authority) {
                Err(code) => Told::Refused(code),
                Ok(index) => {
                    let held = &mut self.leases[index];
                    held.lease.ttl = ttl.unwrap_or(held.lease.ttl);
                    held.lease.renewed_at = now.wall;
                    held.deadline = now.run + held.lease.ttl;
                    held.deadline = held.last_end.map_or(held.deadline, |last| last.min(held.deadline));
                    Told::Renewed(held.clone())
                }
            },
            Command::Release { lease, fence, authority } => match self.named(lease, *fence, authority) {
                Err(code) => Told::Refused(code),
                Ok(index) => {
                    self.freed = true;
                    Told::Released(self.leases.remove(index).lease.id, None)
                }
            },
            Command::Drain(drained) => {
                self.freed |= self.drained && !drained;
                self.drained = *drained;
                Told::Done
            }
            Command::Serve { freed } => {
                self.freed |= freed.is_some();
                least_grace = freed.unwrap_or_default();
                Told::Done
            }
            Command::Dismiss => {
                self.queue.clear();
                self.kept.clear();
                Told::Done
            }
            Command::Wake | Command::Rewrite => Told::Done,
            Command::Calendar(_) | Command::Edge => unreachable!("the rules of the calendar are tested apart"),
            Command::Clear | Command::Worked(_) | Command::Sighted { .. } => unreachable!("devices are tested apart"),
        };
        let first = self.hand_over(around, least_grace);
        if let Told::Released(_, admitted) = &mut told {
            *admitted = first;
        }
        if let Told::Pending(position) = &mut told {
            let own = |other: &Waiter| match command {
                Command::Ask { waiter, .. } => !other.is_attended() && other.proposal.holder == waiter.proposal.holder,
                Command::See { request } => other.proposal.request == *request,
                _ => false,
            };
            let queue = self.in_order(around.rules.priority_aging);
            *position = queue.iter().position(own).map_or(*position, |ahead| ahead + 1);
        }
        told
    }

    /// The node dies and starts again: attended waiters are lost, the rest is as the disk says.
    pub fn restart(&mut self, around: &Around<'_>, on_disk: impl Fn(&LeaseId) -> jiff::Timestamp) {
        let now = around.now;
        for held in &mut self.leases {
            *held = held_at_start(&held.lease, on_disk(&held.lease.id), around.max_total, now);
        }
        self.kept.iter_mut().for_each(|kept| *kept = kept_at_start(kept, now));
        self.queue.retain(|waiter| !waiter.is_attended());
        self.queue.iter_mut().for_each(|waiter| *waiter = waiting_at_start(waiter, now));
    }

    pub fn in_order(&self, aging: Option<Duration>) -> Vec<Waiter> {
        let mut queue = self.queue.clone();
        queue.sort_by_key(|waiter| order(waiter, aging));
        queue
    }

    fn ask(&mut self, around: &Around<'_>, asked: &Waiter, otherwise: Otherwise, left_out: LeftOut) -> Told {
        let (now, aging) = (around.now, around.rules.priority_aging);
        let by_name = matches!(otherwise, Otherwise::Join | Otherwise::Refuse(WaitPolicy::Fail));
        let own = |waiter: &Waiter| !waiter.is_attended() && waiter.proposal.holder == asked.proposal.holder;
        let standing = self.queue.iter().position(own).filter(|_| by_name);
        let waiter =
            standing.map_or_else(|| asked.clone(), |index| merged(&self.queue[index], asked, left_out, aging, now));
        if self.may_take(around, &waiter) {
            standing.map(|index| self.queue.remove(index));
            return Told::Granted(self.grant(around, &waiter));
        }
        match otherwise {
            Otherwise::Decline(_) => Told::Declined,
            Otherwise::Refuse(wait) => {
                if let Some(index) = standing {
                    self.queue[index].attendance = waiter.attendance;
                }
                Told::Refused(if wait == WaitPolicy::Fail { Code::ResourceUnavailable } else { Code::NoCapacity })
            }
            Otherwise::Wait(_) => {
                self.queue.push(waiter);
                Told::Waiting
            }
            Otherwise::Join => {
                let rank = waiter.rank;
                match standing.map(|index| self.queue.remove(index)) {
                    Some(mut same)
                        if (same.rank, same.proposal.ttl, &same.proposal.note)
                            == (rank, waiter.proposal.ttl, &waiter.proposal.note)
                            && same.proposal.lease == waiter.proposal.lease
                            && is_one(&same, &waiter) =>
                    {
                        same.attendance = waiter.attendance;
                        self.queue.push(same);
                    }
                    _ => self.queue.push(waiter),
                }
                let ahead = self.in_order(aging).iter().position(|other| other.rank == rank).unwrap();
                Told::Pending(ahead + 1)
            }
        }
    }

    fn users(&self, holder: &Requester) -> Vec<Mode> {
        let kept = self.kept.iter().filter(|kept| kept.holder != *holder).map(|kept| kept.mode);
        self.leases.iter().map(|held| held.lease.mode).chain(kept).collect()
    }

    fn fits(&self, around: &Around<'_>, waiter: &Waiter) -> bool {
        let mut users = self.users(&waiter.proposal.holder);
        users.push(waiter.proposal.mode);
        let together = users.iter().all(|mode| *mode == Mode::Shared);
        let seats = if together { around.spec.max_shared.get() as usize } else { 1 };
        !self.drained && !around.node.drained && users.len() <= seats
    }

    fn is_kept_for(&self, waiter: &Waiter) -> bool {
        let enough = |mode: Mode| mode == Mode::Exclusive || waiter.proposal.mode == Mode::Shared;
        self.kept.iter().any(|kept| kept.holder == waiter.proposal.holder && enough(kept.mode))
    }

    /// True when the first of the queue cannot be served.
    fn is_stuck(&self, around: &Around<'_>) -> bool {
        let queue = self.in_order(around.rules.priority_aging);
        queue.iter().find(|waiter| !is_away(around, waiter)).is_some_and(|first| !self.fits(around, first))
    }

    fn may_take(&self, around: &Around<'_>, waiter: &Waiter) -> bool {
        let aging = around.rules.priority_aging;
        let mut ahead = self.in_order(aging);
        ahead.retain(|other| order(other, aging) < order(waiter, aging) && !is_away(around, other));
        let own = |other: &Waiter| !other.is_attended() && other.proposal.holder == waiter.proposal.holder;
        let free = ahead.iter().all(|other| {
            let fits = self.fits(around, other);
            !(fits && other.is_attended() || !fits && other.proposal.mode == Mode::Exclusive && !own(other))
        });
        let mine = !self.is_outranked(around, waiter) && !self.has_to_return(around, waiter);
        self.fits(around, waiter) && (self.is_kept_for(waiter) || free && mine)
    }

    /// One of the pool, or one who has yet to return, goes first.
    fn is_outranked(&self, around: &Around<'_>, waiter: &Waiter) -> bool {
        let rivals = &around.rivals;
        let ahead = |rank: Option<Rank>| rank.is_some_and(|rank| rank < waiter.rank);
        let free = self.leases.is_empty() && self.kept.is_empty();
        let shares = waiter.proposal.mode == Mode::Shared;
        let outranked = ahead(rivals.returning)
            || ahead(rivals.exclusive) && free
            || ahead(rivals.shared) && (free || shares)
            || ahead(rivals.pinned) && shares;
        outranked && !self.is_kept_for(waiter)
    }

    fn has_to_return(&self, around: &Around<'_>, waiter: &Waiter) -> bool {
        around.rivals.returning.is_some() && waiter.returns.is_none() && !self.is_kept_for(waiter)
    }

    fn grant(&mut self, around: &Around<'_>, waiter: &Waiter) -> Held {
        let now = around.now;
        let proposal = &waiter.proposal;
        self.fence = Fence((now.wall.as_millisecond() as u64).max(self.fence.0 + 1));
        let last_end = around.max_total.map(|longest| now.run + longest);
        let deadline = (now.run + proposal.ttl).min(last_end.unwrap_or(now.run + proposal.ttl));
        let lease = proposal.granted(&around.spec.id, self.fence, now.wall);
        self.queue.retain(|other| other.proposal.request != proposal.request);
        self.kept.retain(|kept| kept.holder != proposal.holder);
        self.leases.push(Held { lease, deadline, last_end });
        self.leases.last().unwrap().clone()
    }

    /// Serves the queue from its front. The first one that is taken is named.
    fn hand_over(&mut self, around: &Around<'_>, least_grace: Duration) -> Option<Requester> {
        let now = around.now;
        let mut may_admit = self.freed || self.stuck && !self.is_stuck(around);
        let mut first = None;
        for waiter in self.in_order(around.rules.priority_aging) {
            let holder = &waiter.proposal.holder;
            if is_away(around, &waiter) {
                continue;
            }
            let mut front = self.in_order(around.rules.priority_aging);
            front.retain(|other| other.rank <= waiter.rank && !is_away(around, other));
            if front.iter().any(|other| !self.fits(around, other)) {
                break;
            }
            if self.has_to_return(around, &waiter) {
                continue;
            }
            if self.is_outranked(around, &waiter) {
                break;
            }
            if waiter.is_attended() {
                first.get_or_insert(holder.clone());
                self.grant(around, &waiter);
            } else if may_admit {
                may_admit = false;
                first.get_or_insert(holder.clone());
                self.queue.retain(|other| other.rank != waiter.rank);
                let width = around.rules.admission_grace.max(least_grace);
                if !width.is_zero() {
                    let (holder, mode, until) = (holder.clone(), waiter.proposal.mode, now.run + width);
                    self.kept.retain(|kept| kept.holder != holder);
                    self.kept.push(Reservation { holder, mode, width, until });
                }
            }
        }
        (self.freed, self.stuck) = (false, self.is_stuck(around));
        first
    }

    fn named(&self, id: &LeaseId, fence: Option<Fence>, by: &Authority) -> Result<usize, Code> {
        let index = self.leases.iter().position(|held| held.lease.id == *id).ok_or(Code::UnknownLease)?;
        let lease = &self.leases[index].lease;
        let mine = match by {
            Authority::Client(caller) => match caller.role {
                Role::Viewer => false,
                Role::Agent => lease.holder.to_string().split('/').next() == Some(caller.principal.as_str()),
                Role::Admin => true,
            },
            Authority::Gateway { name, .. } => lease.holder.to_string().starts_with(&format!("gw:{name}:")),
        };
        match (mine, fence.is_none_or(|fence| fence == lease.fence)) {
            (false, _) => Err(Code::InsufficientPermissions),
            (true, false) => Err(Code::UnknownLease),
            (true, true) => Ok(index),
        }
    }
}
