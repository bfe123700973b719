//! Workers that come and go while the gateway runs, and those that an operator takes out. The front hears of a change once
//! it is on disk ([`Registrar`](super::registrar::Registrar)).

use std::collections::BTreeSet;
use std::time::Duration;

use ractor::{Actor, ActorRef, SpawnErr};

use super::calendar::pause::Told;
use super::fleet::Open;
use super::front::{FrontArguments, FrontState, Worker};
use super::identity::ToldElsewhere;
use super::message::FrontMessage;
use super::rejections::{Rejected, Rejection};
use super::resyncs::Resyncs;
use super::session::{LinkId, Session, SessionArguments, SessionMessage};
use crate::model::{Event, EventKind, NodeName, RequestId};
use crate::trust::Sha256Print;
use crate::trust::roster::Member;

/// Each session numbers its links from a multiple of this, so that two workers of one name never have a link of the same
/// number.
const LINKS_PER_SESSION: LinkId = 1 << 32;

/// A worker, and what is known of it before it comes.
#[derive(Debug, Clone)]
pub struct Enrolled {
    /// Its name.
    pub name: NodeName,
    /// By which it is known; none for one that has never come.
    pub key: Option<Sha256Print>,
    /// True when the whole worker is out.
    pub drained: bool,
}

impl Enrolled {
    /// A worker as it is on the roster.
    pub fn of((name, member): (&NodeName, &Member)) -> Self {
        Self { name: name.clone(), key: member.key, drained: member.drained }
    }
}

/// A worker of the roster with a session of its own, before its first link. `number` is used for no other session of
/// this gateway's.
pub(super) async fn enrol(
    front: &ActorRef<FrontMessage>,
    around: &FrontArguments,
    number: u64,
    worker: &Enrolled,
) -> Result<Worker, SpawnErr> {
    let arguments = SessionArguments {
        worker: worker.name.clone(),
        gateway: around.name.clone(),
        relays: around.history.relays(),
        front: front.clone(),
        clock: around.clock.clone(),
        key: worker.key,
        drained: worker.drained,
        links: number.saturating_mul(LINKS_PER_SESSION),
    };
    let (session, _) = Actor::spawn_linked(None, Session, arguments, front.get_cell()).await?;
    Ok(Worker {
        session,
        link: None,
        reported: false,
        view: None,
        incompatible: false,
        drained: worker.drained,
        drains_out: 0,
        hello: None,
        last_seen: None,
        calls_out: 0,
        told: Told::default(),
        told_elsewhere: ToldElsewhere::default(),
        warned: BTreeSet::new(),
        away_since: None,
        forgotten: false,
        resyncs: Resyncs::default(),
    })
}

impl FrontState {
    /// A worker has joined. One that is there already stays as it is.
    pub(super) async fn enrolled(&mut self, worker: &Enrolled) -> Result<(), SpawnErr> {
        if self.workers.contains_key(&worker.name) {
            return Ok(());
        }
        self.sessions += 1;
        let state = enrol(&self.myself, &self.around, self.sessions, worker).await?;
        self.workers.insert(worker.name.clone(), state);
        tracing::info!(worker = %worker.name, "a worker is on the roster");
        Ok(())
    }

    /// A worker is out, or back.
    pub(super) fn drained(&mut self, name: &NodeName, drained: bool) {
        let Some(worker) = self.workers.get_mut(name).filter(|worker| worker.drained != drained) else { return };
        worker.drained = drained;
        worker.drains_out += 1;
        let _ = worker.session.cast(SessionMessage::Drained(drained));
        let kind = if drained { EventKind::WorkerDrainStarted } else { EventKind::WorkerDrainEnded };
        self.emit(Event::new(kind).with("worker", name.as_str()));
        self.pump_due = true;
    }

    /// A worker knows whether it is out.
    pub(super) fn told_drained(&mut self, name: &NodeName) {
        if let Some(worker) = self.workers.get_mut(name) {
            worker.drains_out = worker.drains_out.saturating_sub(1);
            self.pump();
        }
    }

    /// A worker is off the roster: its link ends, its leases are routed no more, and what was out at it is given up.
    pub(super) fn removed(&mut self, name: &NodeName, revoked: bool) {
        let Some(worker) = self.workers.remove(name) else { return };
        let why = if revoked { "its key was revoked" } else { "it was removed from the roster" };
        // It answers what it was asked before, and ends.
        let _ = worker.session.cast(SessionMessage::Leave(why.to_owned()));
        let ended = self.table.forget(name);
        self.forget_leases(ended);
        self.orphans.forget_worker(name);
        self.note_identities(name);
        self.fleet.reconnected(name);
        for id in self.elsewhere.all_at(name) {
            self.lost_there(&id);
        }
        let out = |(id, open): (&RequestId, &Open)| match open.out_at() {
            Some((worker, attempt)) if worker == name => Some((id.clone(), attempt)),
            _ => None,
        };
        let out: Vec<_> = self.fleet.iter().filter_map(out).collect();
        for (id, attempt) in out {
            tracing::warn!(request = %id, worker = %name, attempt, "gave up an attempt at a worker that was removed");
            self.go_on_without_worker(&id, name);
        }
        self.emit(Event::new(EventKind::WorkerRemoved).with("worker", name.as_str()).with("revoked", revoked));
        self.end_rebuild_if_due();
        self.pump_due = true;
    }

    /// A peer was not let in.
    pub(super) fn rejected(&mut self, rejection: Rejection) {
        let now = self.around.clock.now().run;
        if let Some(rejected) = self.rejections.note(rejection, now) {
            self.tell_stranger(&rejected);
        }
    }

    /// Tells of those that have come again and again.
    pub(super) fn tell_rejections(&mut self) {
        let now = self.around.clock.now().run;
        for rejected in self.rejections.due(now) {
            self.tell_stranger(&rejected);
        }
    }

    fn tell_stranger(&self, rejected: &Rejected) {
        let Rejected { last: Rejection { worker, address, reason, .. }, count } = rejected;
        let worker = worker.as_ref().map(NodeName::as_str);
        tracing::warn!(worker, %address, reason, count, "a peer was not let in");
        self.emit(rejected.event());
    }
}

/// How long the front has to carry out what is on disk already.
pub(super) const FRONT_BOUND: Duration = Duration::from_secs(10);
