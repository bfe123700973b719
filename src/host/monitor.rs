//! The monitor: asks the database for what must not be, and stops new holds when it is there (SPEC §6).

use std::collections::BTreeSet;

use ractor::RpcReplyPort;

use super::desk::{DeskState, Note};
use super::message::{DeskMessage, Findings, OpId, Said};
use crate::admission::resource::Change;
use crate::clock::RunTime;
use crate::model::{Code, Event, EventKind, Refusal, ResourceId};
use crate::store::{Invariants, ReadError, Violation};
use crate::wire::calendar::CalendarAnswer;

/// A pause that an admin of this node has ordered.
const BY_ADMIN: &str = "admin";
/// One that the gateway has: it stands beside the node's own, and only the gateway ends it.
const BY_GATEWAY: &str = "gateway";
/// Violations that one look tells of; the next tells of more.
const TOLD_MAX: usize = 20;

/// Why new holds are not made on this node, and who waits to hear whether they may be.
#[derive(Debug)]
pub(super) struct Monitor {
    invariants: Invariants,
    /// Why no new holds are made; empty while they are. On disk each is a line.
    paused: Pauses,
    /// The same after what is being written.
    planned: Pauses,
    /// What the last look has found.
    found: Vec<Violation>,
    /// What of that has been told.
    told: Vec<Violation>,
    /// True when the last look has failed.
    blind: bool,
    /// True while the database is being asked.
    asking: bool,
    next: RunTime,
    /// Those who asked for the findings, in this look and in the next.
    curious: [Vec<RpcReplyPort<Result<Findings, Refusal>>>; 2],
    /// Resumes that wait for a look to find nothing.
    resumes: [Vec<Resume>; 2],
}

/// Resume what, on whose word, and who waits for that.
#[derive(Debug)]
struct Resume {
    resource: Option<ResourceId>,
    by_gateway: bool,
    reply: Paused,
}

/// Reasons for a pause.
type Pauses = BTreeSet<String>;
type Paused = RpcReplyPort<Said<CalendarAnswer>>;

impl Monitor {
    /// At start, with the pause that is on disk and what the database was found to hold then.
    pub(super) fn new(invariants: Invariants, paused: Option<&str>, found: Vec<Violation>) -> Self {
        let paused: Pauses = paused.into_iter().flat_map(str::lines).map(str::to_owned).collect();
        Self {
            invariants,
            planned: paused.clone(),
            paused,
            found,
            told: Vec::new(),
            blind: false,
            asking: false,
            next: RunTime::default(),
            curious: Default::default(),
            resumes: Default::default(),
        }
    }

    /// What the database held at start, to be taken in as a first look.
    pub(super) fn found_at_start(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.found)
    }

    /// True when no new holds are made on this node.
    pub(super) fn is_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// When the database is asked next.
    pub(super) fn next(&self) -> Option<RunTime> {
        (!self.asking).then_some(self.next)
    }

    fn findings(&self) -> Findings {
        let violations = self.found.iter().map(said).collect();
        Findings { violations, holds_paused: self.is_paused() }
    }

    /// What keeps the node from being called ready.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints: Vec<String> = self.found.iter().take(TOLD_MAX).map(said).collect();
        if self.blind {
            complaints.push("the database could not be asked for what must not be".to_owned());
        }
        let mut gone = self.paused.iter().filter(|why| is_fault(why));
        if let Some(why) = gone.next().filter(|_| complaints.is_empty()) {
            complaints.push(format!("{why}; it is gone, and new holds wait for `berth holds resume`"));
        }
        complaints
    }
}

impl DeskState {
    /// Stops new holds, or lets them be made again; the second only after a look that finds nothing.
    pub(super) fn pause_holds(
        &mut self,
        resource: Option<ResourceId>,
        by_gateway: bool,
        paused: bool,
        reply: RpcReplyPort<Said<CalendarAnswer>>,
    ) {
        match (paused, resource) {
            (true, Some(resource)) => self.pause_resource(&resource, true, reply),
            (true, None) => {
                let mut pauses = self.monitor.planned.clone();
                pauses.insert(if by_gateway { BY_GATEWAY } else { BY_ADMIN }.to_owned());
                self.set_pauses(pauses, Some(reply));
            }
            (false, resource) => {
                // What a look that is under way has seen is older than this.
                let late = usize::from(self.monitor.asking);
                self.monitor.resumes[late].push(Resume { resource, by_gateway, reply });
                self.ask_database();
            }
        }
    }

    /// Somebody wants to know what the database holds now.
    pub(super) fn check(&mut self, reply: RpcReplyPort<Result<Findings, Refusal>>) {
        let late = usize::from(self.monitor.asking);
        self.monitor.curious[late].push(reply);
        self.ask_database();
    }

    /// Asks the database if it is time.
    pub(super) fn check_if_due(&mut self, now: RunTime) {
        if now >= self.monitor.next {
            self.ask_database();
        }
    }

    fn ask_database(&mut self) {
        if std::mem::replace(&mut self.monitor.asking, true) {
            return;
        }
        let (invariants, myself) = (self.monitor.invariants.clone(), self.myself.clone());
        tokio::spawn(async move {
            let found = invariants.check().await;
            let _ = myself.cast(DeskMessage::Checked(found));
        });
    }

    /// The database has answered.
    pub(super) fn checked(&mut self, found: Result<Vec<Violation>, ReadError>) {
        self.monitor.asking = false;
        self.monitor.next = self.clock.now().run + self.rules.calendar.check_interval;
        let looked = match found {
            Ok(found) => {
                self.monitor.told.retain(|it| found.contains(it));
                let untold = found.iter().filter(|it| !self.monitor.told.contains(it));
                let new: Vec<Violation> = untold.take(TOLD_MAX).cloned().collect();
                self.monitor.told.extend(new.iter().cloned());
                self.monitor.found = found;
                self.tell_violations(&new);
                Ok(self.monitor.findings())
            }
            // What was known stays; the next look may go better. Nobody is told that all is well meanwhile.
            Err(error) => {
                tracing::error!(%error, "the database could not be asked for what must not be");
                Err(Refusal::internal("the database could not be asked for what must not be"))
            }
        };
        self.monitor.blind = looked.is_err();
        for reply in std::mem::take(&mut self.monitor.curious[0]) {
            let _ = reply.send(looked.clone());
        }
        for resume in std::mem::take(&mut self.monitor.resumes[0]) {
            match &looked {
                Ok(_) => self.resume(resume),
                Err(refusal) => self.say(resume.reply, Err(refusal.clone())),
            }
        }
        self.monitor.curious.swap(0, 1);
        self.monitor.resumes.swap(0, 1);
        if !(self.monitor.curious[0].is_empty() && self.monitor.resumes[0].is_empty()) {
            self.ask_database();
        }
    }

    /// Something must not be: it is told of, and no new hold is made from now on.
    pub(super) fn tell_violations(&mut self, new: &[Violation]) {
        for violation in new {
            tracing::error!(violation = said(violation), "the database holds what must not be");
            let event = Event::new(EventKind::InvariantViolated)
                .with("resourceId", violation.resource.as_str())
                .with("detail", violation.text.as_str());
            self.note_event(event);
        }
        if let Some(first) = new.first()
            && !self.monitor.planned.iter().any(|why| is_fault(why))
        {
            // At once, whether it can be written down or not.
            self.monitor.paused.insert(said(first));
            let mut pauses = self.monitor.planned.clone();
            pauses.insert(said(first));
            self.set_pauses(pauses, None);
        }
    }

    fn resume(&mut self, Resume { resource, by_gateway, reply }: Resume) {
        if let Some(violation) = self.monitor.found.first() {
            let message = format!("{}; repair that before holds are resumed", said(violation));
            return self.say(reply, Err(Refusal::new(Code::HoldsPaused, message)));
        }
        match resource {
            Some(resource) => self.pause_resource(&resource, false, reply),
            None => {
                let mut pauses = self.monitor.planned.clone();
                pauses.retain(|why| (why == BY_GATEWAY) != by_gateway);
                self.set_pauses(pauses, Some(reply));
            }
        }
    }

    fn set_pauses(&mut self, pauses: Pauses, reply: Option<RpcReplyPort<Said<CalendarAnswer>>>) {
        if pauses == self.monitor.planned && reply.is_some() {
            // It is so, or is being written already.
            match self.pauses_under_way().max_by_key(|(op, _)| *op) {
                Some((_, replies)) => return replies.extend(reply),
                None => return self.pauses_written(pauses, reply.into_iter().collect(), Ok(())),
            }
        }
        self.monitor.planned = pauses.clone();
        let lines: Vec<&str> = pauses.iter().map(String::as_str).collect();
        let change = Change::NodeHoldsPaused((!lines.is_empty()).then(|| lines.join("\n")));
        self.note(vec![change], Note::HoldsPaused { pauses, replies: reply.into_iter().collect() });
    }

    /// What is being written of pauses, and who waits for it.
    fn pauses_under_way(&mut self) -> impl Iterator<Item = (OpId, &mut Vec<Paused>)> {
        self.notes.iter_mut().filter_map(|(op, note)| match note {
            Note::HoldsPaused { replies, .. } => Some((*op, replies)),
            _ => None,
        })
    }

    /// The pauses are on disk, or are not.
    pub(super) fn pauses_written(&mut self, pauses: Pauses, replies: Vec<Paused>, written: Result<(), Refusal>) {
        let answer = match written {
            Ok(()) => {
                // What was found meanwhile is a reason of its own.
                let found = self.monitor.found.first().map(said);
                self.monitor.paused = pauses.into_iter().chain(found).collect();
                Ok(CalendarAnswer::Paused(self.monitor.is_paused()))
            }
            Err(refusal) => Err(refusal),
        };
        if self.pauses_under_way().next().is_none() {
            self.monitor.planned = self.monitor.paused.clone();
        }
        for reply in replies {
            self.say(reply, answer.clone());
        }
    }
}

/// True for a pause that the monitor has ordered.
fn is_fault(why: &str) -> bool {
    why != BY_ADMIN && why != BY_GATEWAY
}

/// A violation in words.
fn said(violation: &Violation) -> String {
    format!("{}: {}", violation.resource, violation.text)
}
