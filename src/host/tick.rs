//! What time alone makes the desk do, and the one timer that wakes it for that.

use std::time::Duration;

use jiff::Timestamp;

use super::desk::{DeskState, OpKind};
use super::directory::{Entry, Life};
use super::message::DeskMessage;
use crate::admission::resource::Command;
use crate::clock::{Now, RunTime};
use crate::limits::STORE_GROUP_MAX;
use crate::model::ResourceId;

/// An idle resource's actor is retired after this long; the next command starts it anew.
pub(super) const RESIDENCY: Duration = Duration::from_secs(60);
/// The desk looks at the clock at least this often, because a timer does not count the time of a suspend.
const TICK_MAX: Duration = Duration::from_secs(1);

impl DeskState {
    pub(super) fn tick(&mut self) {
        let now = self.clock.now();
        // A tick that was on its way when the timer was moved must not leave a second one behind.
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        for resource in self.schedule.due(now.run) {
            self.send(&resource, OpKind::Wake, Command::Wake);
        }
        // Calendars are aligned: a whole lab may have one edge. The rest comes with the next tick, at once.
        for resource in self.edges.due_up_to(now.wall, STORE_GROUP_MAX) {
            let Some(entry) = self.directory.get_mut(&resource) else { continue };
            let since = std::mem::replace(&mut entry.edges_until, now.wall);
            self.send(&resource, OpKind::Edge { since }, Command::Edge);
        }
        self.check_if_due(now.run);
        for resource in self.retries.due(now.run) {
            self.serve(&resource);
        }
        self.end_elsewhere(now.run);
        self.check_devices(now.run);
        self.give_up_due(now.run);
        if self.returning.until().is_some_and(|until| until <= now.run) {
            self.stop_expecting();
        }
        self.rewrite_deadlines(now);
        if now.run >= self.retire_at {
            self.retire_at = now.run + RESIDENCY / 4;
            self.retire(now.run);
            self.forget_old_requests(now.run);
        }
        if now.run >= self.prune_at {
            // At most 10 000 go at once, so a busy node needs it often; where nothing is old it is one look.
            self.prune_at = now.run + TICK_MAX;
            self.forget_old_bookings();
            let events = &self.rules.events;
            let before = now.wall.checked_sub(events.retention).unwrap_or(Timestamp::MIN);
            self.store.prune_events(before, events.count_max);
        }
    }

    /// Writes deadlines anew that say something else on disk than this run knows.
    fn rewrite_deadlines(&mut self, now: Now) {
        if self.drift.was_set(now) {
            let deadlines =
                |entry: &&Entry| !entry.state.held.is_empty() || entry.state.calendar.next_deadline().is_some();
            let with_deadlines = self.directory.iter().filter(deadlines);
            self.drift.add(with_deadlines.map(|entry| entry.spec.id.clone()));
            // Windows follow the wall clock wherever it is set.
            let all: Vec<ResourceId> = self.directory.iter().map(|entry| entry.spec.id.clone()).collect();
            all.iter().for_each(|resource| self.set_edge(resource));
        }
        for resource in self.drift.next_group(now.run) {
            self.send(&resource, OpKind::Rewrite, Command::Rewrite);
        }
    }

    /// Sets when a resource is told next that a window has begun or ended. An edge that has passed while something else
    /// was under way is told of at once.
    pub(super) fn set_edge(&mut self, resource: &ResourceId) {
        let now = self.clock.now().wall;
        let Some(entry) = self.directory.get_mut(resource) else { return };
        // Where the clock was set back, edges come again.
        entry.edges_until = entry.edges_until.min(now);
        self.edges.set(resource, entry.state.next_edge(&entry.spec, self.link.node(), entry.edges_until));
    }

    pub(super) fn retire(&mut self, now: RunTime) {
        let before = RunTime(now.0.saturating_sub(RESIDENCY));
        for resource in self.directory.idle_since(before) {
            if let Some(Life::Active(actor)) = self.directory.set_life(&resource, Life::Idle) {
                actor.stop(None);
            }
        }
    }

    /// Arms the one timer for the earliest instant at which something is to be done.
    pub(super) fn arm_timer(&mut self) {
        let both = self.clock.now();
        let now = both.run;
        let (schedule, retries, attention) = (self.schedule.next(), self.retries.next(), self.attention.next());
        let edge = self.edges.next().map(|at| both.run_of(at));
        let instants = [
            schedule,
            edge,
            retries,
            attention,
            self.jobs.next(),
            self.elsewhere.next(),
            self.returning.until(),
            self.monitor.next(),
            Some(now + TICK_MAX),
        ];
        let soonest = instants.into_iter().flatten().min().unwrap_or(now);
        if self.timer.as_ref().is_some_and(|(at, _)| *at <= soonest) {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            timer.abort();
        }
        // A timer counts whole milliseconds; one more, so that it never fires just before its instant.
        let after = soonest.left(now) + Duration::from_millis(1);
        self.timer = Some((soonest, self.myself.send_after(after, || DeskMessage::Tick)));
    }
}
