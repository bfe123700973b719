//! Reading the lab file again while its nodes run (SPEC §12): resources and numbers count at once, the rest is named.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use ractor::{ActorRef, Message, RpcReplyPort};
use tokio::sync::MutexGuard;

use super::Running;
use super::command::bad;
use super::running::Core;
use crate::admission::LiveRules;
use crate::config::{Differences, Effective, Lab, Source, Value, environment};
use crate::gateway::message::FrontMessage;
use crate::host::message::{DeskMessage, Reloaded};
use crate::model::{Code, NodeName, NodeRole, Refusal};
use crate::service::reload::{ReloadView, Reloads};

/// How long a node has to take another lab file up: a worker reads what is stored of its new resources.
const NODE_BOUND: Duration = Duration::from_secs(60);

/// Reads the lab file of this process again, one after the other.
pub struct Reloader {
    source: Option<Source>,
    /// What the nodes go by; the resources are known to them.
    in_force: tokio::sync::Mutex<Vec<Value>>,
    nodes: Mutex<Vec<Node>>,
}

/// A node of this process.
#[derive(Clone)]
struct Node {
    name: NodeName,
    role: NodeRole,
    core: Core,
    rules: Arc<LiveRules>,
}

impl Reloader {
    /// For nodes that are started from what was read there.
    pub fn of(source: Source, effective: &Effective) -> Self {
        let in_force = tokio::sync::Mutex::new(effective.values.clone());
        Self { source: Some(source), in_force, nodes: Mutex::default() }
    }

    /// For nodes that have no file.
    pub fn without_file() -> Self {
        Self { source: None, in_force: tokio::sync::Mutex::default(), nodes: Mutex::default() }
    }

    /// Nothing is reloaded while this is held, as while nodes start that are to know the same file.
    pub(super) async fn hold(&self) -> MutexGuard<'_, Vec<Value>> {
        self.in_force.lock().await
    }

    /// From now on this node is told, too.
    pub(super) fn add(&self, node: &Running) {
        let Running { name, role, core, rules, .. } = node;
        let node = Node { name: name.clone(), role: *role, core: core.clone(), rules: Arc::clone(rules) };
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).push(node);
    }

    async fn read_again(&self) -> Result<ReloadView, Refusal> {
        let mut in_force = self.in_force.lock().await;
        let Some(source) = self.source.clone() else {
            return Err(Refusal::new(
                Code::BadRequest,
                "this node was started without a lab file; there is none to read",
            ));
        };
        let read = tokio::task::spawn_blocking(move || Effective::load(source, environment())).await;
        let read = read.map_err(|_| Refusal::internal("the lab file could not be read"))?;
        let Effective { lab, values } = read.map_err(|error| {
            let Refusal { message, .. } = bad(&error);
            Refusal::new(Code::BadRequest, format!("{message}; nothing has changed"))
        })?;
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let there: Vec<_> = nodes.iter().map(|node| (node.name.clone(), node.role)).collect();
        let Differences { rules, needs_restart } = Differences::between(&in_force, &values, &there);
        let mut view = ReloadView { rules, needs_restart, ..ReloadView::default() };
        let told = join_all(nodes.iter().map(|node| node.take_up(&lab))).await;
        for (node, reloaded) in nodes.iter().zip(told) {
            let Reloaded { added, changed, gone } = reloaded?;
            let named = |ids: Vec<_>| ids.into_iter().map(move |id| format!("{}/{id}", node.name));
            view.added.extend(named(added));
            view.changed.extend(named(changed));
            view.gone.extend(named(gone));
        }
        *in_force = Differences::taken_up(std::mem::take(&mut *in_force), values);
        Ok(view)
    }
}

#[async_trait]
impl Reloads for Reloader {
    async fn reload(&self) -> Result<ReloadView, Refusal> {
        let read = self.read_again().await;
        match &read {
            Ok(view) => {
                let ReloadView { added, changed, gone, rules, needs_restart } = view;
                let (added, changed, gone) = (added.len(), changed.len(), gone.len());
                tracing::info!(added, changed, gone, ?rules, ?needs_restart, "the lab file was read again");
            }
            Err(refusal) => tracing::error!("the lab file is not taken up: {}", refusal.message),
        }
        read
    }
}

impl Node {
    /// Goes by what the file says now, as far as it is about this node.
    async fn take_up(&self, lab: &Lab) -> Result<Reloaded, Refusal> {
        let rules = Box::new(lab.rules.clone());
        match &self.core {
            Core::Desk(desk) => {
                // A worker that is not in the file any more goes on as it is: that counts after its restart.
                let Some(worker) = lab.workers.iter().find(|worker| worker.name == self.name) else {
                    return Ok(Reloaded::default());
                };
                let resources = worker.resources.clone();
                ask(&self.name, desk, |reply| DeskMessage::Reload { resources, rules, reply }).await?
            }
            Core::Front(front) => {
                ask(&self.name, front, |reply| FrontMessage::Reload(rules, reply)).await?;
                self.rules.set(Arc::new(lab.rules.clone()));
                Ok(Reloaded::default())
            }
        }
    }
}

/// Asks the core of a node, bounded.
async fn ask<M: Message, T: Message>(
    node: &NodeName,
    core: &ActorRef<M>,
    build: impl FnOnce(RpcReplyPort<T>) -> M,
) -> Result<T, Refusal> {
    let (reply, answer) = ractor::concurrency::oneshot();
    let unanswered =
        || Refusal::new(Code::Internal, format!("{node} has not taken the lab file up in time; ask again"));
    core.cast(build(reply.into())).map_err(|_| unanswered())?;
    tokio::time::timeout(NODE_BOUND, answer).await.ok().and_then(Result::ok).ok_or_else(unanswered)
}

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader").field("source", &self.source).finish_non_exhaustive()
    }
}
