//! A gateway: it owns no resources and fronts the workers.
//!
//! The [`Front`] holds the checks, the queue and the routing table; one [`Session`](session) for
//! each worker holds its link. The gateway has no truth on disk but whether an admin has
//! stopped new holds, which attempts it has given up, and what was waited for: its table is a function of what the
//! workers report. Its [history](history::History) is there too.

mod absent;
mod admit;
pub mod calendar;
mod dispatch;
mod doubts;
pub mod elsewhere;
pub mod fleet;
mod follow;
mod former;
pub mod front;
pub mod give_up;
pub mod given_up;
pub mod history;
mod in_doubt;
mod leases;
pub mod message;
mod named;
pub mod placement;
mod pump;
mod read;
pub mod relayed;
mod reports;
mod resyncs;
pub mod returning;
pub mod run_file;
pub mod session;
pub mod skips;
pub mod table;
pub mod view;
pub mod waiting;

use std::sync::Arc;

use ractor::{Actor, ActorRef};
use tokio::task::{JoinHandle, JoinSet};

use self::front::{Front, FrontArguments};
use self::message::FrontMessage;
use self::session::SessionMessage;
use crate::link::listen::{Arriving, Listener};
use crate::wire::hello::Welcome;

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
}

/// Starts a gateway whose workers come in by `listener`.
pub async fn start(arguments: FrontArguments, listener: Arc<Listener>) -> Result<Gateway, ractor::SpawnErr> {
    let (front, front_task) = Actor::spawn(None, Front, arguments).await?;
    let welcoming = tokio::spawn(welcome_workers(listener, front.clone()));
    Ok(Gateway { front, front_task, welcoming })
}

/// Greets who knocks, many at a time, and hands each to its session.
async fn welcome_workers(listener: Arc<Listener>, front: ActorRef<FrontMessage>) {
    let mut greetings = JoinSet::new();
    while let Some(arriving) = listener.accept().await {
        while greetings.len() >= GREETINGS_MAX {
            greetings.join_next().await;
        }
        while greetings.try_join_next().is_some() {}
        greetings.spawn(greet(arriving, front.clone()));
    }
}

async fn greet(arriving: Arriving, front: ActorRef<FrontMessage>) {
    let guest = match arriving.greet().await {
        Ok(guest) => guest,
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "a peer was not let in");
            return;
        }
    };
    let name = guest.name.clone();
    let (reply, session) = ractor::concurrency::oneshot();
    let _ = front.cast(FrontMessage::SessionOf(name.clone(), reply.into()));
    match session.await {
        Ok(Some(session)) => drop(session.cast(SessionMessage::Knock(guest))),
        Ok(None) => {
            tracing::warn!(worker = %name, "refused a worker that is not on the roster");
            let why =
                format!("worker {name} is not in the gateway's lab file; add it there and start the gateway anew");
            let _ = guest.decline(Welcome::Refused { why }).await;
        }
        Err(_) => {}
    }
}
