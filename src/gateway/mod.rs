//! A gateway: it owns no resources and fronts the workers.
//!
//! The [`Front`] holds the checks, the queue and the routing table; one [`Session`](session) for
//! each worker holds its link. The [`Registrar`] keeps which workers there are. That, whether an admin has stopped new
//! holds, which attempts it has given up, and what was waited for is on the gateway's disk; its table is a function of
//! what the workers report. Its [history](history::History) is there too.

mod absent;
mod admit;
pub mod calendar;
mod dispatch;
mod doubts;
pub mod elsewhere;
pub mod environment;
mod exec;
pub mod fleet;
mod follow;
mod former;
pub mod front;
pub mod give_up;
pub mod given_up;
pub mod history;
pub mod identities;
mod identity;
mod in_doubt;
mod leases;
pub mod message;
mod named;
pub mod placement;
mod pump;
mod read;
pub mod registrar;
pub mod rejections;
pub mod relayed;
pub mod reload;
mod reports;
mod resyncs;
pub mod returning;
pub mod roster;
pub mod run_file;
pub mod seen;
pub mod session;
pub mod skips;
pub mod table;
pub mod view;
pub mod waiting;

use std::sync::Arc;

use ractor::{Actor, ActorRef};
use tokio::task::{JoinHandle, JoinSet};

pub use self::dispatch::worker_unreachable;
use self::front::{Front, FrontArguments};
use self::message::FrontMessage;
use self::registrar::{Office, Registrar};
use self::rejections::Rejection;
use crate::link::listen::{Arriving, Greeted, Listener, NotGreeted};

/// Handshakes under way at once.
const GREETINGS_MAX: usize = 256;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    /// Through which everything goes.
    pub front: ActorRef<FrontMessage>,
    /// Resolves when the front is gone.
    pub front_task: JoinHandle<()>,
    /// Lets workers in until it is aborted.
    pub welcoming: JoinHandle<()>,
    /// Keeps the roster.
    pub registrar: Arc<Registrar>,
}

/// Starts a gateway whose workers come in by `listener`. `office` has the roster that `arguments` are of.
pub async fn start(
    arguments: FrontArguments,
    office: Office,
    listener: Arc<Listener>,
) -> Result<Gateway, ractor::SpawnErr> {
    let (front, front_task) = Actor::spawn(None, Front, arguments).await?;
    let registrar = Registrar::new(office, front.clone());
    let welcoming = tokio::spawn(welcome_peers(listener, Arc::clone(&registrar)));
    Ok(Gateway { front, front_task, welcoming, registrar })
}

/// Greets who knocks, many at a time, and hands each on.
async fn welcome_peers(listener: Arc<Listener>, registrar: Arc<Registrar>) {
    let mut greetings = JoinSet::new();
    while let Some(arriving) = listener.accept().await {
        while greetings.len() >= GREETINGS_MAX {
            greetings.join_next().await;
        }
        while greetings.try_join_next().is_some() {}
        greetings.spawn(greet(arriving, Arc::clone(&registrar)));
    }
}

async fn greet(arriving: Arriving, registrar: Arc<Registrar>) {
    let address = arriving.address();
    match arriving.greet().await {
        Ok(Greeted::Worker(guest)) => registrar.let_in(guest).await,
        Ok(Greeted::Joiner(joining)) => registrar.hear(joining).await,
        Err(NotGreeted { worker, error }) => {
            tracing::debug!(%address, why = error.why(), "a peer was not let in");
            if let Some(reason) = error.rejection() {
                registrar.reject(match worker {
                    Some(worker) => Rejection::of_worker(worker, address, reason),
                    None => Rejection::of_stranger(None, address, reason),
                });
            }
        }
    }
}
