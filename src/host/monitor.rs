//! The monitor: asks the database for what must not be, and stops new holds when it is there (SPEC §6).

use ractor::RpcReplyPort;

use super::desk::{DeskState, Note};
use super::message::{DeskMessage, Findings, Said};
use crate::admission::resource::Change;
use crate::clock::RunTime;
use crate::model::{Code, Event, EventKind, Refusal, ResourceId};
use crate::store::{Invariants, ReadError, Violation};
use crate::wire::calendar::CalendarAnswer;

/// What the database says of a pause that an admin has ordered.
const BY_ADMIN: &str = "admin";
/// Violations that are told of at once; the monitor looks again.
const TOLD_MAX: usize = 20;

/// Why new holds are not made on this node, and who waits to hear whether they may be.
#[derive(Debug)]
pub(super) struct Monitor {
    invariants: Invariants,
    /// Why no new holds are made; none while they are.
    paused: Option<String>,
    /// What the last look has found.
    found: Vec<Violation>,
    /// True while the database is being asked.
    asking: bool,
    next: RunTime,
    /// Those who asked for the findings, in this look and in the next.
    curious: [Vec<RpcReplyPort<Findings>>; 2],
    /// Resumes that wait for a look to find nothing.
    resumes: [Vec<Resume>; 2],
}

type Resume = (Option<ResourceId>, RpcReplyPort<Said<CalendarAnswer>>);

impl Monitor {
    /// At start, with the pause that is on disk and what the database was found to hold then.
    pub(super) fn new(invariants: Invariants, paused: Option<String>, found: Vec<Violation>) -> Self {
        Self {
            invariants,
            paused,
            found,
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
        self.paused.is_some()
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
        if let Some(why) = self.paused.as_ref().filter(|why| *why != BY_ADMIN && complaints.is_empty()) {
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
        paused: bool,
        reply: RpcReplyPort<Said<CalendarAnswer>>,
    ) {
        match (paused, resource) {
            (true, Some(resource)) => self.pause_resource(&resource, true, reply),
            (true, None) if self.monitor.is_paused() => self.say(reply, Ok(CalendarAnswer::Paused(true))),
            (true, None) => self.set_pause(Some(BY_ADMIN.to_owned()), Some(reply)),
            (false, resource) => {
                // What a look that is under way has seen is older than this.
                let late = usize::from(self.monitor.asking);
                self.monitor.resumes[late].push((resource, reply));
                self.ask_database();
            }
        }
    }

    /// Somebody wants to know what the database holds now.
    pub(super) fn check(&mut self, reply: RpcReplyPort<Findings>) {
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
        match found {
            Ok(found) => {
                let new: Vec<Violation> =
                    found.iter().filter(|it| !self.monitor.found.contains(it)).take(TOLD_MAX).cloned().collect();
                self.monitor.found = found;
                self.tell_violations(&new);
            }
            // What was known stays; the next look may go better.
            Err(error) => tracing::error!(%error, "the database could not be asked for what must not be"),
        }
        let findings = self.monitor.findings();
        for reply in std::mem::take(&mut self.monitor.curious[0]) {
            let _ = reply.send(findings.clone());
        }
        for (resource, reply) in std::mem::take(&mut self.monitor.resumes[0]) {
            match (self.monitor.found.first(), resource) {
                (Some(violation), _) => {
                    let message = format!("{}; repair that before holds are resumed", said(violation));
                    self.say(reply, Err(Refusal::new(Code::HoldsPaused, message)));
                }
                (None, Some(resource)) => self.pause_resource(&resource, false, reply),
                (None, None) if !self.monitor.is_paused() => self.say(reply, Ok(CalendarAnswer::Paused(false))),
                (None, None) => self.set_pause(None, Some(reply)),
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
            && self.monitor.paused.as_ref().is_none_or(|why| why == BY_ADMIN)
        {
            let why = said(first);
            // At once, whether it can be written down or not.
            self.monitor.paused = Some(why.clone());
            self.set_pause(Some(why), None);
        }
    }

    fn set_pause(&mut self, paused: Option<String>, reply: Option<RpcReplyPort<Said<CalendarAnswer>>>) {
        let change = Change::NodeHoldsPaused(paused.clone());
        self.note(vec![change], Note::HoldsPaused { paused, reply });
    }

    /// A pause, or its end, is on disk, or is not.
    pub(super) fn pause_written(
        &mut self,
        paused: Option<String>,
        reply: Option<RpcReplyPort<Said<CalendarAnswer>>>,
        written: Result<(), Refusal>,
    ) {
        let answer = written.map(|()| {
            // Whatever was found meanwhile is a reason of its own.
            let stays = paused.is_none() && !self.monitor.found.is_empty();
            if !stays {
                self.monitor.paused = paused.clone();
            }
            CalendarAnswer::Paused(self.monitor.is_paused())
        });
        if let Some(reply) = reply {
            self.say(reply, answer);
        }
    }
}

/// A violation in words.
fn said(violation: &Violation) -> String {
    format!("{}: {}", violation.resource, violation.text)
}
