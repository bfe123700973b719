//! A node that runs, and its end.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use ractor::{ActorRef, RpcReplyPort};
use tokio::task::JoinHandle;

use super::Prepared;
use crate::admission::LiveRules;
use crate::client::discovery::{LiveNode, Registration, register};
use crate::config::Lab;
use crate::gateway::message::FrontMessage;
use crate::host::message::DeskMessage;
use crate::http::Server;
use crate::limits::STOP_BOUND;
use crate::link::dial::Dialer;
use crate::link::listen::Listener;
use crate::model::{NodeName, NodeRole};
use crate::service::Coordinator;
use crate::store::{OpenError, StoreEnd};

/// A node that runs in this process.
pub struct Running {
    /// Its name.
    pub name: NodeName,
    /// Its role.
    pub role: NodeRole,
    /// Where it answers HTTP over TCP.
    pub api: Option<SocketAddr>,
    /// Where it answers HTTP over a Unix socket.
    pub socket: PathBuf,
    /// What it answers.
    pub coordinator: Arc<dyn Coordinator>,
    /// How many resources its lab file gives it.
    pub resources: usize,
    /// The operator's numbers as they are now.
    pub(super) rules: Arc<LiveRules>,
    pub(super) server: Option<Server>,
    pub(super) link: Option<Link>,
    pub(super) core: Core,
    pub(super) store: Option<StoreEnd>,
    pub(super) ended: BoxFuture<'static, Ended>,
    pub(super) _registration: Option<Registration>,
    pub(super) _lock: File,
}

/// A node's end of the network between nodes.
pub(super) enum Link {
    Gateway { listener: Arc<Listener>, welcoming: JoinHandle<()> },
    Worker { dialer: Arc<Dialer>, uplink: JoinHandle<()> },
    Standalone,
}

/// The actor through which everything on a node goes.
#[derive(Clone)]
pub(super) enum Core {
    Desk(ActorRef<DeskMessage>),
    Front(ActorRef<FrontMessage>),
}

/// Why a node ended by itself. The process must end too, and start again from what is on disk.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Its desk or front is gone.
    #[error("the {0} of node {1} has died")]
    Core(&'static str, NodeName),
    /// Its store is gone, without having answered what was in flight.
    #[error("the store of node {node} has stopped")]
    Store {
        /// Which node.
        node: NodeName,
        /// Why, if it said.
        #[source]
        source: Option<Arc<OpenError>>,
    },
}

impl Running {
    /// Where its workers dial, if it is a gateway.
    pub fn link_address(&self) -> Option<SocketAddr> {
        match &self.link {
            Some(Link::Gateway { listener, .. }) => Some(listener.local_addr()),
            _ => None,
        }
    }

    /// Waits until the node ends by itself, which it does only after a fault.
    pub async fn ended(&mut self) -> Ended {
        (&mut self.ended).await
    }

    /// Takes no more requests: they are refused with `STOPPING`. Leases are renewed and released as before.
    pub fn refuse_requests(&self) {
        // One that is gone refuses everything.
        match &self.core {
            Core::Desk(desk) => drop(desk.cast(DeskMessage::Stop)),
            Core::Front(front) => drop(front.cast(FrontMessage::Stop)),
        }
    }

    /// Ends the node's doors for clients; the requests that run are finished, bounded.
    pub async fn close_doors(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().await;
        }
    }

    /// Ends everything else, from the outside in. When this returns the node's disk is still.
    pub async fn stop(mut self) {
        self.close_doors().await;
        match self.link.take() {
            Some(Link::Gateway { listener, welcoming }) => {
                welcoming.abort();
                // It holds the listener too, and the port is free when nobody does.
                let _ = welcoming.await;
                listener.close().await;
            }
            Some(Link::Worker { dialer, uplink }) => {
                uplink.abort();
                let _ = uplink.await;
                dialer.close().await;
            }
            Some(Link::Standalone) | None => {}
        }
        if let Core::Desk(desk) = &self.core {
            finish_jobs(desk, &self.name).await;
        }
        let core = match &self.core {
            Core::Desk(desk) => desk.get_cell(),
            Core::Front(front) => front.get_cell(),
        };
        // A drain serves what is in the mailbox; a stop would overtake it.
        if core.drain_and_wait(Some(STOP_BOUND)).await.is_err() {
            tracing::warn!(node = %self.name, "did not finish in time");
            core.kill();
        }
        // The lock is given back only when nothing writes any more.
        if let Some(store) = self.store.take()
            && tokio::time::timeout(STOP_BOUND, store.wait()).await.is_err()
        {
            tracing::warn!(node = %self.name, "the store did not finish in time");
            // It may still write: the lock stays with this process to its end.
            std::mem::forget(self._lock);
        }
    }
}

/// Lets the resets that run on devices end, bounded; then whatever still runs is killed. What is left undone is on disk, and
/// is begun anew at the next start.
async fn finish_jobs(desk: &ActorRef<DeskMessage>, node: &NodeName) {
    // A desk that is gone has nobody who waits for anything.
    let ask = |build: fn(RpcReplyPort<()>) -> DeskMessage| {
        let (reply, answer) = ractor::concurrency::oneshot();
        let asked = desk.cast(build(reply.into())).is_ok();
        async move { asked && tokio::time::timeout(STOP_BOUND, answer).await.is_ok() }
    };
    if !ask(DeskMessage::Idle).await {
        tracing::info!(%node, "a reset takes longer than the node waits; it is stopped, and begun anew at the next start");
    }
    if !ask(DeskMessage::StopJobs).await {
        tracing::warn!(%node, "what runs on the devices did not end in time");
    }
}

/// Tells the command line of this machine where the node is. A node whose user has no place for that runs all the same.
pub(super) fn registered(lab: &Lab, node: &Prepared, socket: &std::path::Path) -> Option<Registration> {
    let live = LiveNode {
        lab: lab.name.clone(),
        node: node.name.clone(),
        role: node.role,
        socket: socket.to_owned(),
        pid: std::process::id(),
    };
    register(&live)
        .inspect_err(
            |error| tracing::warn!(%error, node = %node.name, "the command line will not find this node by itself"),
        )
        .ok()
}

/// Resolves with the first of several ends.
pub(super) fn first<const N: usize>(ends: [BoxFuture<'static, Ended>; N]) -> BoxFuture<'static, Ended> {
    async move { futures_util::future::select_all(ends).await.0 }.boxed()
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}
