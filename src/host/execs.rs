//! Who may run a tool at a device, and for how long: the desk's part of SPEC §7 exec. The work itself is done outside of
//! the actor ([`exec`](super::exec)), under a [`Permit`].
//!
//! A permit is of one grant: it ends with that lease, whichever end it takes, and with the node. That a tool is run is on
//! disk before it runs.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::desk::{DeskState, Note};
use super::message::Said;
use crate::admission::resource::other_fence;
use crate::limits::{EXECS_MAX, EXECS_PER_LEASE_MAX};
use crate::model::{Authority, Code, Event, EventKind, ExecAsk, LeaseId, LeaseRecord, Refusal, Requester, ToolName};

/// How soon a place may be free again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A tool that somebody wants to run.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecRequest {
    /// Under which lease.
    pub lease: LeaseId,
    /// Who asks, as this node knows its holders.
    pub requester: Requester,
    /// On whose word.
    pub authority: Authority,
    /// What is to be run.
    pub ask: ExecAsk,
}

/// A tool may run.
#[derive(Debug)]
pub struct Permit {
    /// The program and all its arguments.
    pub argv: Vec<String>,
    /// What it finds in its environment beside that of the node.
    pub environment: BTreeMap<String, String>,
    /// Where it runs; the node's own working directory when none is named.
    pub directory: Option<PathBuf>,
    /// After so long it is killed.
    pub timeout: Duration,
    /// Comes when the lease is over, or the node stops; the sender is gone when the desk is.
    pub over: oneshot::Receiver<Refusal>,
    pub(super) run: ExecRun,
    pub(super) _place: OwnedSemaphorePermit,
}

/// What the log is told of a tool that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecRun {
    lease: LeaseRecord,
    tool: ToolName,
}

/// How a tool has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecEnd {
    /// By itself, with this code.
    Exit(u8),
    /// It was ended, or has never begun.
    Failed(Code),
    /// Its caller has gone.
    Left,
}

/// The tools that run.
#[derive(Debug)]
pub(super) struct Execs {
    places: Arc<Semaphore>,
    by_lease: HashMap<LeaseId, Vec<Running>>,
}

#[derive(Debug)]
struct Running {
    authority: Authority,
    /// Closed when the tool has ended.
    over: oneshot::Sender<Refusal>,
}

impl Default for Execs {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(EXECS_MAX)), by_lease: HashMap::new() }
    }
}

impl Execs {
    /// A place for one more under this lease, and word of its end.
    fn enter(
        &mut self,
        lease: &LeaseId,
        authority: Authority,
    ) -> Result<(OwnedSemaphorePermit, oneshot::Receiver<Refusal>), Refusal> {
        let running = self.by_lease.entry(lease.clone()).or_default();
        running.retain(|running| !running.over.is_closed());
        if running.len() >= EXECS_PER_LEASE_MAX {
            let message = format!("{EXECS_PER_LEASE_MAX} tools run under lease {lease}; wait until one has ended");
            return Err(Refusal::new(Code::RateLimited, message).retry_after(RETRY_AFTER));
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            if running.is_empty() {
                self.by_lease.remove(lease);
            }
            let message = format!("{EXECS_MAX} tools run on this machine; ask again in a moment");
            return Err(Refusal::new(Code::QueueFull, message).retry_after(RETRY_AFTER));
        };
        let (over, heard) = oneshot::channel();
        running.push(Running { authority, over });
        Ok((place, heard))
    }

    fn of(&mut self, lease: &LeaseId) -> Vec<Running> {
        self.by_lease.remove(lease).unwrap_or_default()
    }
}

impl DeskState {
    /// Lets a tool run, if the lease is there, the requester's own, and of the grant that is meant. Nobody else is let in:
    /// what is done at a device is its holder's alone, and an admin who has to can release the lease.
    pub(super) fn exec(&mut self, request: ExecRequest, reply: RpcReplyPort<Said<Permit>>) {
        match self.permit(request) {
            Ok((permit, event)) => {
                let note = Note::Exec { permit: Box::new(permit), reply };
                self.write(Vec::new(), vec![event], note);
            }
            Err(refusal) => self.say(reply, Err(refusal)),
        }
    }

    fn permit(&mut self, request: ExecRequest) -> Result<(Permit, Event), Refusal> {
        let ExecRequest { lease: id, requester, authority, ask: ExecAsk { tool, args, fence } } = request;
        if self.stopping {
            return Err(stopping());
        }
        let Some(grant) = self.find_lease(&id) else { return Err(self.no_such_lease(&id, &authority)) };
        if grant.lease.holder.owner() != requester.owner() {
            return Err(not_its_owner(&id));
        }
        if fence.is_some_and(|fence| fence != grant.lease.fence) {
            return Err(other_fence(&id));
        }
        let own = grant.environment.clone();
        let argv = self.rules.exec.argv(&tool, &args, &own)?;
        let environment = environment(own, &grant.lease);
        let driver = self.directory.get(&grant.lease.resource_id).map(|entry| Arc::clone(&entry.spec.driver));
        let (place, over) = self.execs.enter(&id, authority)?;
        let run = ExecRun { lease: grant.lease, tool };
        let event = run.event(EventKind::LeaseExec).with("args", args.as_slice().len());
        let permit = Permit {
            argv,
            environment,
            directory: driver.and_then(|driver| driver.directory.clone()),
            timeout: self.rules.exec.timeout,
            over,
            run,
            _place: place,
        };
        Ok((permit, event))
    }

    /// It is on disk that a tool runs, or could not be written. The lease may have ended meanwhile, or the caller gone.
    pub(super) fn exec_noted(
        &mut self,
        mut permit: Permit,
        reply: RpcReplyPort<Said<Permit>>,
        written: Result<(), Refusal>,
    ) {
        if let Err(refusal) = written {
            return self.say(reply, Err(refusal));
        }
        if let Ok(refusal) = permit.over.try_recv() {
            self.exec_ended(&permit.run, &ExecEnd::Failed(refusal.code));
            return self.say(reply, Err(refusal));
        }
        if reply.is_closed() {
            return self.exec_ended(&permit.run, &ExecEnd::Left);
        }
        self.say(reply, Ok(permit));
    }

    /// A tool has ended.
    pub(super) fn exec_ended(&mut self, run: &ExecRun, end: &ExecEnd) {
        let event = run.event(EventKind::LeaseExecEnded);
        self.note_event(match end {
            ExecEnd::Exit(code) => event.with("exit", *code),
            ExecEnd::Failed(code) => event.with("code", code.as_str()),
            ExecEnd::Left => event,
        });
    }

    /// A lease is over, and nothing is done at its device any more on the word of its holder.
    pub(super) fn end_execs(&mut self, lease: &LeaseId) {
        for Running { authority, over } in self.execs.of(lease) {
            // One that has ended by itself needs no word.
            let _ = over.send(self.no_such_lease(lease, &authority));
        }
    }

    /// The node stops: no tool outlives it.
    pub(super) fn stop_execs(&mut self) {
        for running in std::mem::take(&mut self.execs.by_lease).into_values().flatten() {
            let _ = running.over.send(stopping());
        }
    }
}

impl ExecRun {
    fn event(&self, kind: EventKind) -> Event {
        let LeaseRecord { id, resource_id, holder, fence, .. } = &self.lease;
        Event::new(kind)
            .about(holder)
            .of_lease(id)
            .with("resourceId", resource_id.as_str())
            .with("fence", fence.0)
            .with("tool", self.tool.as_str())
    }
}

/// `STOPPING`.
pub(super) fn stopping() -> Refusal {
    Refusal::new(Code::Stopping, "this node is going down, and runs no tools; ask again when it is back")
}

/// `INSUFFICIENT_PERMISSIONS`.
pub fn not_its_owner(lease: &LeaseId) -> Refusal {
    let message =
        format!("lease {lease} is not yours; only its owner may run tools at its device, and no admin either");
    Refusal::new(Code::InsufficientPermissions, message)
}

/// What a holder needs to reach its device, with what every program finds that Berth runs for a lease (SPEC §7).
fn environment(own: BTreeMap<String, String>, lease: &LeaseRecord) -> BTreeMap<String, String> {
    let berth = [
        ("BERTH_RESOURCE", lease.resource_id.to_string()),
        ("BERTH_LEASE", lease.id.to_string()),
        ("BERTH_HOLDER", lease.holder.to_string()),
        ("BERTH_FENCE", lease.fence.to_string()),
    ];
    let berth = berth.into_iter().map(|(name, value)| (name.to_owned(), value));
    own.into_iter().chain(berth).collect()
}
