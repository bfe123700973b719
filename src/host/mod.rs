//! A worker: it owns resources and the truth about them.
//!
//! The [`Desk`] takes everything in, one actor for each resource decides and commits, the
//! [`Uplink`](uplink) keeps the gateway up to date and carries its calls. Calls go down, casts go up.

mod admit;
mod asked;
mod attempts;
mod calendar;
mod calendar_index;
pub mod desk;
mod directory;
mod drift;
mod elsewhere;
pub mod exec;
pub mod execs;
mod gateway_link;
mod jobs;
mod listing;
pub mod message;
mod monitor;
mod offers;
mod op;
mod open;
mod prepared;
mod pump;
mod read;
mod relay;
mod reload;
mod reopen;
mod reported;
mod reporter;
mod resource;
pub mod restart;
mod restored;
mod returning;
mod settle;
mod sighted;
#[cfg(test)]
mod tests;
mod tick;
pub mod uplink;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use ractor::{Actor, ActorRef};
use tokio::task::JoinHandle;

use self::desk::{Desk, DeskArguments};
use self::message::DeskMessage;
use self::monitor::Monitor;
use self::restart::Restoring;
use crate::admission::resource::Change;
use crate::admission::schedule;
use crate::admission::ticket::TicketKey;
use crate::admission::{LiveRules, Rules};
use crate::clock::{Clock, Now};
use crate::driver::Hands;
use crate::limits::STORE_GROUP_MAX;
use crate::model::{Event, EventKind, NodeName, ResourceId, ResourceSpec};
use crate::store::{Batch, CommitError, EventLog, OpenError, Store, StoreEnd};

pub use read::unknown_resource;
pub use reporter::Subscription;

/// What a host is started with.
#[derive(Debug)]
pub struct HostArguments {
    /// The node.
    pub name: NodeName,
    /// Its database; made if it is not there.
    pub database: PathBuf,
    /// Its resources.
    pub resources: Vec<ResourceSpec>,
    /// The gateway that it goes by; none for a standalone worker.
    pub gateway: Option<NodeName>,
    /// The operator's numbers.
    pub rules: Rules,
    /// Signs its tickets; the same at every start.
    pub tickets: TicketKey,
    /// Does what is to be done on its devices.
    pub hands: Arc<dyn Hands>,
    /// Where the time comes from.
    pub clock: Clock,
}

/// Why a host does not start.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// What ended while the node was down, or that it starts, cannot be written.
    #[error("cannot write that the node starts, and what ended while it was down")]
    Expire(#[source] CommitError),
    /// The actor system refused.
    #[error("cannot start the desk")]
    Spawn(#[from] ractor::SpawnErr),
}

/// A running host.
#[derive(Debug)]
pub struct Host {
    /// Through which everything goes.
    pub desk: ActorRef<DeskMessage>,
    /// The operator's numbers as they are now.
    pub rules: Arc<LiveRules>,
    /// What happened on this node.
    pub events: EventLog,
    /// Signs the places in line that are given out.
    pub tickets: Arc<TicketKey>,
    /// Which life of the node this is.
    pub incarnation: u64,
    /// Resolves when the desk is gone.
    pub desk_task: JoinHandle<()>,
    /// Resolves when the store is gone.
    pub store_end: StoreEnd,
}

/// Opens the database, settles what ended meanwhile, and starts the desk. Blocks on the disk.
pub async fn start(arguments: HostArguments) -> Result<Host, HostError> {
    let HostArguments { name, database, resources, gateway, rules, tickets, hands, clock } = arguments;
    let now = clock.now();
    let (store, events, invariants, loaded, store_end) = Store::open(&database, now)?;
    let monitor = Monitor::new(invariants, loaded.holds_paused.as_deref(), loaded.violations.clone());
    let incarnation = loaded.incarnation;
    let mut restoring = Restoring::begin(resources, loaded, gateway, &rules, now);
    let ended = std::mem::take(&mut restoring.ended);
    for group in ended.chunks(STORE_GROUP_MAX) {
        let batches = group.iter().map(|(resource, changes)| (resource.clone(), changes.clone(), Vec::new()));
        let written = batches.map(|batch| commit_at_start(&store, batch, now));
        futures_util::future::try_join_all(written).await.map_err(HostError::Expire)?;
    }
    let started =
        Event::new(EventKind::NodeStarted).with("version", env!("CARGO_PKG_VERSION")).with("incarnation", incarnation);
    commit_at_start(&store, (None, Vec::new(), vec![started]), now).await.map_err(HostError::Expire)?;
    let tickets = Arc::new(tickets);
    let restarted = restoring.finish(&rules, Arc::clone(&tickets), now);
    let rules = Arc::new(LiveRules::new(rules));
    let live_rules = Arc::clone(&rules);
    let arguments = DeskArguments { name, store, clock, live_rules, restarted, monitor, hands };
    let (desk, desk_task) = Actor::spawn(None, Desk, arguments).await?;
    Ok(Host { desk, rules, events, tickets, incarnation, desk_task, store_end })
}

/// Queues a batch at once; the future is its outcome.
fn commit_at_start(
    store: &Store,
    (resource, changes, events): (Option<ResourceId>, Vec<Change>, Vec<Event>),
    now: Now,
) -> impl Future<Output = Result<(), CommitError>> + use<> {
    let (sender, outcome) = tokio::sync::oneshot::channel();
    store.commit(Batch {
        resource,
        activation: 0,
        changes,
        events,
        now,
        done: Box::new(move |result| drop(sender.send(result))),
    });
    async { outcome.await.unwrap_or_else(|_| Err(CommitError::Disk("the store has stopped".to_owned()))) }
}
