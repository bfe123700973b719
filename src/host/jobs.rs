//! What runs on the devices of this node: one job at a time on each (SPEC §7).
//!
//! What is to run is read from the state of a resource ([`ResourceState::task`](crate::admission::resource::ResourceState::task)),
//! whenever that has changed: it is started, and what runs and is not to run any more is stopped. The next begins when the
//! one before is gone. How a job ended is a command to the resource, which alone knows whether it still counts. So a
//! restart, an actor's death and a late answer need nothing of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::desk::{DeskState, OpKind};
use super::message::{DeskMessage, ResourceNow, Said};
use super::schedule::Schedule;
use crate::admission::resource::{Command, Reply, Task, Worked};
use crate::clock::RunTime;
use crate::driver::{Hands, Job, Outcome, Tenure, environment};
use crate::limits::CHECKS_AT_ONCE_MAX;
use crate::model::{HookKind, ResourceId};
use crate::wire::report::ResourceReport;

/// How long until the outcome of a job is said again that could not be written.
const AGAIN: Duration = Duration::from_secs(1);

/// The jobs of a node.
#[derive(Debug)]
pub(super) struct Jobs {
    hands: Arc<dyn Hands>,
    running: HashMap<ResourceId, Running>,
    /// When the next check of each device that has any begins.
    checks: Schedule<ResourceId>,
    /// When an outcome is said again.
    again: Schedule<ResourceId>,
    /// The resources that are being told that they are cleared, and how often: none is tried meanwhile.
    clearing: HashMap<ResourceId, usize>,
    /// Checks do not keep a reset waiting: of them only so many run at once.
    checks_at_once: Arc<Semaphore>,
    /// What is still allowed to run.
    stage: Stage,
    /// Who wants to know when nothing runs any more.
    idle: Vec<RpcReplyPort<()>>,
}

/// How far the end of the node has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Stage {
    /// Not at all.
    Open,
    /// Only resets run on.
    Finishing,
    /// Nothing runs any more.
    Over,
}

/// A job that runs, or whose outcome is on its way.
#[derive(Debug)]
struct Running {
    task: Task,
    stop: CancellationToken,
    began: RunTime,
    /// How it ended, until the resource has taken that in.
    ended: Option<Worked>,
    /// Operators who have cleared the device: the resource hears so when this is gone.
    clears: Vec<ClearReply>,
}

type ClearReply = RpcReplyPort<Said<(ResourceNow, ResourceReport)>>;

impl Jobs {
    pub(super) fn new(hands: Arc<dyn Hands>) -> Self {
        Self {
            hands,
            running: HashMap::new(),
            checks: Schedule::default(),
            again: Schedule::default(),
            clearing: HashMap::new(),
            checks_at_once: Arc::new(Semaphore::new(CHECKS_AT_ONCE_MAX)),
            stage: Stage::Open,
            idle: Vec::new(),
        }
    }

    /// The earliest instant at which something is to be done.
    pub(super) fn next(&self) -> Option<RunTime> {
        self.checks.next().into_iter().chain(self.again.next()).min()
    }

    fn may_run(&self, hook: HookKind) -> bool {
        match self.stage {
            Stage::Open => true,
            Stage::Finishing => hook == HookKind::Reset,
            Stage::Over => false,
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }
}

impl DeskState {
    /// Starts what is to run on the device of a resource, and stops what is not.
    pub(super) fn look_after(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get(resource) else { return };
        let known = |task: &Task| !entry.driver_of(task).is_unknown;
        let wanted = entry.state.task().filter(|task| self.jobs.may_run(task.hook) && known(task));
        if let Some(running) = self.jobs.running.get(resource) {
            let check = entry.state.check().filter(|_| wanted.is_none() && self.jobs.may_run(HookKind::Health));
            if running.ended.is_none() && ![wanted, check].contains(&Some(running.task.clone())) {
                running.stop.cancel();
            }
            return;
        }
        if let Some(task) = wanted {
            if task.tries.is_some() && self.jobs.clearing.contains_key(resource) {
                return;
            }
            // The tools of the last holder have been told to go; when they have, this comes again.
            if !self.execs.are_at(resource) {
                self.start_job(resource, task);
            }
        } else if entry.checks() && !self.jobs.checks.is_set(resource) {
            let next = self.clock.now().run + entry.spec.driver.health_interval;
            self.jobs.checks.set(resource, Some(next));
        }
    }

    /// Starts the checks whose time has come, and says again what could not be written.
    pub(super) fn check_devices(&mut self, now: RunTime) {
        for resource in self.jobs.checks.due(now) {
            let Some(entry) = self.directory.get(&resource) else { continue };
            if !entry.checks() || !self.jobs.may_run(HookKind::Health) {
                continue;
            }
            match entry.state.check() {
                Some(task) if !self.jobs.running.contains_key(&resource) => self.start_job(&resource, task),
                _ => self.look_after(&resource),
            }
        }
        for resource in self.jobs.again.due(now) {
            self.say_outcome(&resource);
        }
    }

    fn start_job(&mut self, resource: &ResourceId, task: Task) {
        let Some(entry) = self.directory.get(resource) else { return };
        let driver = Arc::clone(entry.driver_of(&task));
        let facts = Arc::clone(&entry.facts);
        let of = entry.state.of_task(&task);
        let tenure =
            of.as_ref().map(|of| Tenure { lease: Some(&of.lease), holder: Some(&of.holder), fence: Some(of.fence) });
        let environment = environment(resource, &entry.spec.labels, tenure.unwrap_or_default());
        let job = Job { resource: resource.clone(), hook: task.hook, driver, facts, environment };
        let stop = CancellationToken::new();
        let running = Running {
            task: task.clone(),
            stop: stop.clone(),
            began: self.clock.now().run,
            ended: None,
            clears: Vec::new(),
        };
        self.jobs.running.insert(resource.clone(), running);
        let (hands, desk, resource) = (Arc::clone(&self.jobs.hands), self.myself.clone(), resource.clone());
        let is_check = task.hook == HookKind::Health && task.tries.is_none();
        let checks_at_once = Arc::clone(&self.jobs.checks_at_once);
        tokio::spawn(async move {
            let permit = tokio::select! {
                biased;
                () = stop.cancelled(), if is_check => Err(Outcome::Stopped),
                permit = checks_at_once.acquire(), if is_check => Ok(permit.ok()),
                else => Ok(None),
            };
            let outcome = match permit {
                Ok(_permit) => hands.run(job, stop).await,
                Err(stopped) => stopped,
            };
            // A desk that is gone takes the whole node with it.
            let _ = desk.cast(DeskMessage::JobEnded(resource, task, outcome));
        });
    }

    /// A job has ended, or is gone because it was told to stop.
    pub(super) fn job_ended(&mut self, resource: &ResourceId, task: &Task, outcome: Outcome) {
        let now = self.clock.now().run;
        let Some(running) = self.jobs.running.get_mut(resource).filter(|running| running.task == *task) else { return };
        let outcome = match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(failure) => Err(failure),
            Outcome::Stopped => return self.job_is_over(resource),
        };
        running.ended = Some(Worked { task: task.clone(), outcome, took: now.left(running.began) });
        self.say_outcome(resource);
    }

    fn say_outcome(&mut self, resource: &ResourceId) {
        let Some(worked) = self.jobs.running.get(resource).and_then(|running| running.ended.clone()) else { return };
        if self.directory.get(resource).is_none() {
            // Its resource has gone meanwhile, and may come back.
            return self.job_is_over(resource);
        }
        self.send(resource, OpKind::Worked, Command::Worked(worked));
    }

    /// A resource has taken in how its job ended, or could not write that.
    pub(super) fn job_settled(&mut self, resource: &ResourceId, reply: &Reply) {
        if let Reply::Refused(refusal) = reply {
            tracing::warn!(%resource, %refusal, "how a hook ended was not written; it is tried again");
            self.jobs.again.set(resource, Some(self.clock.now().run + AGAIN));
        } else {
            self.job_is_over(resource);
        }
    }

    fn job_is_over(&mut self, resource: &ResourceId) {
        let over = self.jobs.running.remove(resource);
        for reply in over.into_iter().flat_map(|running| running.clears) {
            self.say_cleared(resource, reply);
        }
        self.look_after(resource);
        self.say_if_idle();
    }

    /// An operator clears a device. A try that runs on it is stopped first: whoever gets the device is alone with it.
    pub(super) fn clear(&mut self, resource: &ResourceId, reply: ClearReply) {
        match self.jobs.running.get_mut(resource).filter(|running| running.task.tries.is_some()) {
            Some(running) => {
                running.stop.cancel();
                running.clears.push(reply);
            }
            None => self.say_cleared(resource, reply),
        }
    }

    fn say_cleared(&mut self, resource: &ResourceId, reply: ClearReply) {
        if self.directory.get(resource).is_some() {
            *self.jobs.clearing.entry(resource.clone()).or_default() += 1;
            self.send(resource, OpKind::Clear { reply }, Command::Clear);
        }
    }

    /// A resource has been told that it is cleared.
    pub(super) fn clear_settled(&mut self, resource: &ResourceId) {
        if let Some(more) = self.jobs.clearing.get_mut(resource).filter(|often| **often > 1) {
            *more -= 1;
            return;
        }
        self.jobs.clearing.remove(resource);
        self.look_after(resource);
    }

    /// The node goes down: only resets run on, and nobody waits at the door for a prepare.
    pub(super) fn finish_resets(&mut self) {
        self.limit_jobs(Stage::Finishing);
        self.give_up_claims();
    }

    /// The node is down: what still runs is killed. Answers when it is gone.
    pub(super) fn stop_jobs(&mut self, reply: RpcReplyPort<()>) {
        self.limit_jobs(Stage::Over);
        self.when_idle(reply);
    }

    /// Answers when nothing runs.
    pub(super) fn when_idle(&mut self, reply: RpcReplyPort<()>) {
        self.jobs.idle.push(reply);
        self.say_if_idle();
    }

    /// A resource is not there any more.
    pub(super) fn forget_jobs(&mut self, resource: &ResourceId) {
        self.jobs.checks.set(resource, None);
        if let Some(running) = self.jobs.running.get(resource) {
            running.stop.cancel();
        }
    }

    fn limit_jobs(&mut self, stage: Stage) {
        self.jobs.stage = stage;
        let running: Vec<ResourceId> = self.jobs.running.keys().cloned().collect();
        running.iter().for_each(|resource| self.look_after(resource));
    }

    fn say_if_idle(&mut self) {
        if self.jobs.running.is_empty() {
            for reply in self.jobs.idle.drain(..) {
                let _ = reply.send(());
            }
        }
    }
}
