//! Nodes: from a lab file to running actors and open doors, and back.
//!
//! A node starts in the order of [`Prepared::of`] and [`start`]: its directory and its lock, its certificate, its
//! tokens; only then a port, its actors, its HTTP door. It stops in the opposite order.

mod command;
mod error;
mod gateway;
mod joining;
mod pki;
mod prepare;
mod reload;
mod running;
mod worker;

pub use command::Commands;
pub use error::StartError;
pub use prepare::Prepared;
pub use reload::Reloader;
pub use running::{Ended, Running};

use std::sync::Arc;

use futures_util::future::join_all;

use crate::clock::Clock;
use crate::config::Lab;
use crate::driver::{Guard, Hands};
use crate::link::Udp;
use crate::model::{NodeName, NodeRole};

/// What nodes get from their surroundings; tests bring their own.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Where the time comes from.
    pub clock: Clock,
    /// How UDP sockets are made.
    pub udp: Udp,
    /// Guards what they run; none for the program of this process.
    pub guard: Option<Guard>,
    /// Does what is to be done on devices; the drivers of the lab file when there is none.
    pub hands: Option<Arc<dyn Hands>>,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self { clock: Clock::system(), udp: Udp::default(), guard: None, hands: None }
    }
}

/// Starts the nodes of a lab in this process: all of them, or the one named. The gateway comes first, so that its
/// port is known to the workers.
///
/// # Errors
/// When something that the lab file says cannot be had; then nothing is left running.
pub async fn start(lab: &Lab, only: Option<&NodeName>, around: &Surroundings) -> Result<Vec<Running>, StartError> {
    start_reloadable(lab, only, around, &Arc::new(Reloader::without_file())).await
}

/// The same for nodes whose lab file can be read again while they run.
///
/// # Errors
/// As [`start`].
pub async fn start_reloadable(
    lab: &Lab,
    only: Option<&NodeName>,
    around: &Surroundings,
    reloader: &Arc<Reloader>,
) -> Result<Vec<Running>, StartError> {
    let _held = reloader.hold().await;
    let prepared = Prepared::of(lab, only, around.clock.now().wall)?;
    let mut running: Vec<Running> = Vec::new();
    for node in prepared {
        let started = match node.role {
            NodeRole::Gateway => gateway::start(lab, node, around, reloader).await,
            NodeRole::Worker => {
                let link = running.iter().find_map(Running::link_address);
                worker::start(lab, node, link, around, reloader).await
            }
        };
        match started {
            Ok(node) => {
                reloader.add(&node);
                running.push(node);
            }
            Err(error) => {
                stop(running).await;
                return Err(error);
            }
        }
    }
    Ok(running)
}

/// Stops nodes, bounded: first nothing new is taken on anywhere, then the doors for clients are closed while every node
/// still works, then the rest ends.
pub async fn stop(mut running: Vec<Running>) {
    running.iter().for_each(Running::refuse_requests);
    join_all(running.iter_mut().map(Running::close_doors)).await;
    join_all(running.into_iter().map(Running::stop)).await;
}
