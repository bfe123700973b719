//! What the desk knows of the gateway: whether it is there, when it was last heard, and whether an operator of its has
//! taken the whole worker out (SPEC §9).
//!
//! - A lease that came through the gateway outlives its deadline for a while ([`Gateway`]). Those that are past it are
//!   looked at when the gateway is heard; the others cost nothing then.
//! - Whoever waits here and came through the gateway is passed over while that is away, and served when it is back.
//! - The worker's own drain stands beside those of its resources: neither moves the other.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;

use super::desk::{DeskState, Note};
use super::message::{OpId, Said};
use super::schedule::Schedule;
use crate::admission::resource::{Change, Gateway, Link, NodeNow, ResourceState};
use crate::clock::RunTime;
use crate::model::{Event, EventKind, NodeName, Refusal, ResourceId};

/// What the uplink has to say of its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkNow {
    /// There is none.
    Down,
    /// The gateway has said welcome, and does not know yet what this worker holds.
    Up,
    /// The gateway has taken a snapshot in.
    Acknowledged,
    /// Something has been received from the gateway, not before this.
    Heard(RunTime),
}

/// The gateway of this node, and the resources that wait for a word of it.
#[derive(Debug)]
pub(super) struct GatewayLink {
    node: Arc<NodeNow>,
    /// Each resource with leases of the gateway's, at the earliest of their deadlines after which it has not been heard.
    unheard: Schedule<ResourceId>,
    /// Those with a lease that has not ended though the gateway was heard after its deadline.
    overdue: BTreeSet<ResourceId>,
    /// Drains that are being written or wait for what was under way, in their order.
    drains: Vec<Draining>,
    /// What the worker is to be once everything is written.
    planned: bool,
}

/// A drain of the whole worker, or its end.
#[derive(Debug)]
struct Draining {
    drained: bool,
    /// Commands that were decided before it, and may grant something.
    under_way: HashSet<OpId>,
    written: bool,
    replies: Vec<RpcReplyPort<Said<bool>>>,
}

impl GatewayLink {
    /// At start: there is no link yet.
    pub(super) fn new(gateway: Option<NodeName>, grace: Duration, drained: bool) -> Self {
        let gateway = gateway.map(|name| Gateway { name, grace, link: Link::Away });
        Self {
            node: Arc::new(NodeNow { gateway, drained, undrained_at: None }),
            unheard: Schedule::default(),
            overdue: BTreeSet::new(),
            drains: Vec::new(),
            planned: drained,
        }
    }

    /// What is true of the whole worker.
    pub(super) fn node(&self) -> &NodeNow {
        &self.node
    }

    /// The same to be handed on.
    pub(super) fn shared(&self) -> Arc<NodeNow> {
        Arc::clone(&self.node)
    }

    /// Notes after which deadlines of a resource the gateway is to be heard.
    pub(super) fn expect(&mut self, resource: &ResourceId, state: &ResourceState) {
        let of_gateway = state.held.iter().filter(|held| self.node.gateway_of(&held.lease.holder).is_some());
        let heard = self.node.heard();
        let is_heard = |deadline: &RunTime| heard.is_some_and(|heard| *deadline <= heard);
        let deadlines: Vec<RunTime> = of_gateway.map(|held| held.deadline).collect();
        let unheard = deadlines.iter().filter(|deadline| !is_heard(deadline)).min().copied();
        self.unheard.set(resource, unheard);
        if deadlines.iter().any(is_heard) {
            self.overdue.insert(resource.clone());
        } else {
            self.overdue.remove(resource);
        }
    }

    /// Leases that came through the gateway outlive their deadlines so long from now on.
    pub(super) fn set_grace(&mut self, grace: Duration) {
        if let Some(gateway) = &mut Arc::make_mut(&mut self.node).gateway {
            gateway.grace = grace;
        }
    }

    /// A resource is there no more.
    pub(super) fn forget(&mut self, resource: &ResourceId) {
        self.unheard.set(resource, None);
        self.overdue.remove(resource);
    }

    /// Takes in what the uplink says. Answers with the resources whose leases may end at another time now, and whether the
    /// gateway has come or gone.
    fn take(&mut self, said: LinkNow, now: RunTime) -> (Vec<ResourceId>, bool) {
        let Some(gateway) = &mut Arc::make_mut(&mut self.node).gateway else { return (Vec::new(), false) };
        let before = gateway.link;
        gateway.link = match (said, before) {
            (LinkNow::Down | LinkNow::Up, _) => Link::Away,
            (LinkNow::Acknowledged, Link::Away) => Link::Acknowledged { at: now, heard: now },
            // When it came is told by what is heard.
            (LinkNow::Acknowledged, same @ Link::Acknowledged { .. }) => same,
            (LinkNow::Heard(since), Link::Acknowledged { at, heard }) => {
                Link::Acknowledged { at, heard: heard.max(since.min(now)) }
            }
            // Until it has taken a snapshot in, hearing it means nothing.
            (LinkNow::Heard(_), Link::Away) => Link::Away,
        };
        let turned = (gateway.link == Link::Away) != (before == Link::Away);
        let mut moved = if turned { std::mem::take(&mut self.overdue).into_iter().collect() } else { Vec::new() };
        if let Some(heard) = self.node.heard() {
            moved.extend(self.unheard.due(heard));
        }
        (moved, turned)
    }
}

impl DeskState {
    /// The uplink says how its link is.
    pub(super) fn link(&mut self, said: LinkNow) {
        let now = self.clock.now().run;
        let (moved, turned) = self.link.take(said, now);
        if said == LinkNow::Down {
            self.elsewhere_unheard(now);
        }
        for resource in moved {
            self.set_wake(&resource);
        }
        if turned {
            // Those who were passed over may be next; and where they stood in the way of others, these may be.
            let fleet = self.directory.iter().filter(|entry| entry.state.queue.has_fleet());
            let resources: Vec<ResourceId> = fleet.map(|entry| entry.spec.id.clone()).collect();
            for resource in resources {
                self.set_wake(&resource);
                self.serve(&resource);
            }
        }
    }

    /// Sets when time alone changes something on a resource.
    pub(super) fn set_wake(&mut self, resource: &ResourceId) {
        let now = self.clock.now();
        let Some(entry) = self.directory.get(resource) else { return };
        self.link.expect(resource, &entry.state);
        let next = entry.state.wake_at(&entry.spec, &self.rules.waiting, self.link.node(), now);
        self.schedule.set(resource, next);
    }

    /// Takes the whole worker out, or brings it back; answered once that is on disk, and once nothing that was decided
    /// before can grant any more.
    pub(super) fn drain_worker(&mut self, drained: bool, reply: RpcReplyPort<Said<bool>>) {
        if drained == self.link.planned {
            // It is so, or is being made so.
            match self.link.drains.last_mut() {
                Some(draining) => draining.replies.push(reply),
                None => self.say(reply, Ok(drained)),
            }
            return;
        }
        self.link.planned = drained;
        let mut under_way = HashSet::new();
        if drained {
            // At once: that it is not on disk yet does no harm, but a grant meanwhile would.
            Arc::make_mut(&mut self.link.node).drained = true;
            under_way.extend(self.directory.iter().filter_map(|entry| entry.out));
        }
        self.link.drains.push(Draining { drained, under_way, written: false, replies: vec![reply] });
        let kind = if drained { EventKind::WorkerDrainStarted } else { EventKind::WorkerDrainEnded };
        let event = Event::new(kind).with("worker", self.name.as_str());
        self.write(vec![Change::NodeDrained(drained)], vec![event], Note::NodeDrained);
    }

    /// The earliest drain that was being written is on disk, or is not.
    pub(super) fn drain_written(&mut self, written: Result<(), Refusal>) {
        let Some(index) = self.link.drains.iter().position(|draining| !draining.written) else { return };
        let drained = self.link.drains[index].drained;
        match written {
            Ok(()) => {
                self.link.drains[index].written = true;
                // A later one may be under way.
                self.drained_is(drained || self.link.planned);
                self.answer_drains();
            }
            Err(refusal) => {
                let failed = self.link.drains.remove(index);
                if self.link.drains.iter().all(|draining| draining.written) {
                    self.link.planned = !drained;
                }
                self.drained_is(self.link.planned || !drained);
                for reply in failed.replies {
                    self.say(reply, Err(refusal.clone()));
                }
            }
        }
    }

    /// A command has been carried out.
    pub(super) fn drain_goes_on(&mut self, op: OpId) {
        let mut ended = false;
        for draining in &mut self.link.drains {
            ended |= draining.under_way.remove(&op);
        }
        if ended {
            self.answer_drains();
        }
    }

    fn answer_drains(&mut self) {
        let is_done = |draining: &mut Draining| draining.written && draining.under_way.is_empty();
        let done: Vec<Draining> = self.link.drains.extract_if(.., is_done).collect();
        for Draining { drained, replies, .. } in done {
            for reply in replies {
                self.say(reply, Ok(drained));
            }
        }
    }

    /// The whole worker is out or is not. When it is back, that frees every resource, as its own undrain would.
    fn drained_is(&mut self, drained: bool) {
        let now = self.clock.now().wall;
        let was = self.link.node.drained;
        let node = Arc::make_mut(&mut self.link.node);
        node.drained = drained;
        if was && !drained {
            node.undrained_at = Some(now);
        }
        let all: Vec<ResourceId> = self.directory.iter().map(|entry| entry.spec.id.clone()).collect();
        for resource in &all {
            self.set_edge(resource);
        }
        if !was || drained {
            return;
        }
        let pool = !self.pool.is_empty();
        for resource in all {
            let Some(entry) = self.directory.get_mut(&resource) else { continue };
            let booked = entry.state.calendar.claim_at(now).is_some();
            if entry.state.drained || !(pool || booked || !entry.state.queue.is_empty()) {
                continue;
            }
            entry.admission_left |= booked || !entry.state.queue.is_empty();
            self.serve(&resource);
        }
    }
}
