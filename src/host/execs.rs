//! Who may run a tool at a device, and for how long: the desk's part of SPEC §7 exec. The work itself is done outside of
//! the actor ([`exec`](super::exec)), under a [`Permit`].
//!
//! A permit is of one grant: it ends with that lease, whichever end it takes, and with the node. That a tool is run is on
//! disk before it runs.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::desk::{DeskState, Note};
use super::message::{DeskMessage, Grant, Said};
use crate::admission::resource::other_fence;
use crate::driver::placeholder::fill;
use crate::driver::{Tenure, environment};
use crate::limits::{EXECS_MAX, EXECS_PER_LEASE_MAX};
use crate::model::{
    Authority, Code, Event, EventKind, ExecAsk, ExecRules, LeaseId, LeaseRecord, Refusal, Requester, ResourceId,
    ToolArgs, ToolName,
};

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
    /// Goes when nothing of the tool runs any more.
    pub(super) _presence: Presence,
}

/// A tool that may be at a device. Its end is told when this is dropped, whatever became of the tool.
#[derive(Debug)]
pub(super) struct Presence {
    resource: ResourceId,
    desk: ActorRef<DeskMessage>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A desk that is gone takes the whole node with it.
        let _ = self.desk.cast(DeskMessage::ToolGone(self.resource.clone()));
    }
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
    /// How many tools are at each device that has any.
    at_device: HashMap<ResourceId, usize>,
}

#[derive(Debug)]
struct Running {
    authority: Authority,
    /// Closed when the tool has ended.
    over: oneshot::Sender<Refusal>,
}

impl Default for Execs {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(EXECS_MAX)), by_lease: HashMap::new(), at_device: HashMap::new() }
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

    /// True while a tool is at the device, of whatever lease. Nothing else is done to it meanwhile.
    pub(super) fn are_at(&self, resource: &ResourceId) -> bool {
        self.at_device.contains_key(resource)
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
        let argv = argv(&self.rules.exec, &tool, &args, &own)?;
        let environment = whole_environment(own, &grant);
        let driver = self.directory.get(&grant.lease.resource_id).map(|entry| Arc::clone(&entry.spec.driver));
        let (place, over) = self.execs.enter(&id, authority)?;
        let resource = grant.lease.resource_id.clone();
        *self.execs.at_device.entry(resource.clone()).or_default() += 1;
        let presence = Presence { resource, desk: self.myself.clone() };
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
            _presence: presence,
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

    /// Nothing of a tool runs any more: what waits for that begins.
    pub(super) fn tool_gone(&mut self, resource: &ResourceId) {
        if let Some(count) = self.execs.at_device.get_mut(resource) {
            *count -= 1;
            if *count == 0 {
                self.execs.at_device.remove(resource);
            }
        }
        self.look_after(resource);
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
fn whole_environment(own: BTreeMap<String, String>, grant: &Grant) -> BTreeMap<String, String> {
    let LeaseRecord { id, resource_id, holder, fence, .. } = &grant.lease;
    let tenure = Tenure { lease: Some(id), holder: Some(holder), fence: Some(*fence) };
    own.into_iter().chain(environment(resource_id, &grant.labels, tenure)).collect()
}

/// The program and all its arguments: those of the lab file, filled in from the lease's environment, and those of the holder
/// as they are.
///
/// # Errors
/// `BAD_REQUEST` naming the field `tool`: it is not allowed, or needs what the lease's environment does not have.
fn argv(
    rules: &ExecRules,
    tool: &ToolName,
    args: &ToolArgs,
    environment: &BTreeMap<String, String>,
) -> Result<Vec<String>, Refusal> {
    let prefix = rules.allow.get(tool).ok_or_else(|| not_allowed(rules, tool))?;
    let mut argv = fill(prefix, environment).map_err(|why| {
        let see = format!("take another tool, or ask the operator to see to exec.allow.{tool} of the lab file");
        Refusal::bad_field("tool", format!("{tool} cannot be run at this device: {why}; {see}"))
    })?;
    argv.extend(args.as_slice().iter().cloned());
    Ok(argv)
}

fn not_allowed(rules: &ExecRules, tool: &ToolName) -> Refusal {
    let allowed: Vec<&str> = rules.allow.keys().map(ToolName::as_str).collect();
    let why = if allowed.is_empty() {
        "no tool is allowed on this machine; its operator names some under [exec.allow] of the lab file".to_owned()
    } else {
        format!("{tool} is not allowed on this machine; take one of {}", allowed.join(", "))
    };
    Refusal::bad_field("tool", why).with("allowed", allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str], tool: &str, environment: &[(&str, &str)]) -> Result<Vec<String>, Refusal> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let allow = if words.is_empty() { BTreeMap::new() } else { [("adb".parse().unwrap(), words)].into() };
        let own = environment.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let args = vec!["{env.A}".to_owned()].try_into().unwrap();
        argv(&ExecRules { allow, ..ExecRules::default() }, &tool.parse().unwrap(), &args, &own)
    }

    #[test]
    fn the_lease_s_environment_is_put_into_the_words_of_the_lab_file_and_never_into_the_holder_s() {
        let argv = of(&["adb", "-s", "{env.A}"], "adb", &[("A", "R5")]).unwrap();
        assert_eq!(argv, ["adb", "-s", "R5", "{env.A}"]);
    }

    #[test]
    fn a_tool_that_is_not_allowed_is_refused_with_those_that_are() {
        let unknown = of(&["adb"], "sh", &[]).unwrap_err();
        assert_eq!(unknown.code, Code::BadRequest);
        assert!(
            unknown.message.starts_with("tool: sh is not allowed") && unknown.message.ends_with("adb"),
            "{unknown}"
        );
        assert_eq!(unknown.details.unwrap()["allowed"], serde_json::json!(["adb"]));
        let nothing = of(&[], "adb", &[]).unwrap_err();
        assert!(nothing.message.contains("[exec.allow]"), "{nothing}");
        let lacking = of(&["adb", "{env.S}"], "adb", &[("A", "R5")]).unwrap_err();
        assert!(lacking.code == Code::BadRequest && lacking.message.contains("has no S"), "{lacking}");
    }

    #[test]
    fn a_place_is_free_again_when_its_tool_has_ended() {
        let (mut execs, lease) = (Execs::default(), "lse_1".parse().unwrap());
        let authority = || Authority::Client(crate::model::Caller::admin());
        let mut held: Vec<_> = (0..EXECS_PER_LEASE_MAX).map(|_| execs.enter(&lease, authority()).unwrap()).collect();
        assert_eq!(execs.enter(&lease, authority()).unwrap_err().code, Code::RateLimited);
        held.pop();
        held.push(execs.enter(&lease, authority()).unwrap());
        for number in EXECS_PER_LEASE_MAX..EXECS_MAX {
            held.push(execs.enter(&format!("lse_x{}", number / 16).parse().unwrap(), authority()).unwrap());
        }
        let full = execs.enter(&"lse_2".parse().unwrap(), authority()).unwrap_err();
        assert_eq!((full.code, full.retry_after), (Code::QueueFull, Some(1)));
        assert_eq!(execs.of(&lease).len(), EXECS_PER_LEASE_MAX);
        assert!(execs.of(&lease).is_empty());
    }
}
