//! The HTTP door of a node (SPEC §12, §13): `/v1` over a Unix socket and, where configured, over TCP.
//!
//! On the Unix socket the peer's uid is the credential: the node's own, or root, is the admin. On TCP it is a bearer
//! token. Whoever shows a token is that token's principal, on either.
//!
//! What takes longer than one answer is a stream of server-sent events: the event log, one lease, one lease request. Each
//! counts as a request that is served and ends when the node stops.
//!
//! A tool at a device writes into its answer as it runs ([`exec`]), or is talked to over a WebSocket ([`exec_socket`]). That
//! too is a request that is served, on a connection that counts, and ends when the node stops.
//!
//! What every request passes, in this order: the log, the bound on requests at once, the net under panics, the
//! check of who calls and whether they may change anything, the check of query parameters, the route. Every "no" is
//! `{"error":{…}}`, made in one place from a [`Refusal`](crate::model::Refusal).

mod answer;
mod bind;
mod body;
mod bookings;
mod config;
mod door;
mod events;
pub mod exec;
pub mod exec_socket;
mod headers;
mod holds;
mod lease_events;
mod leases;
mod log;
mod node;
mod path;
mod query;
mod request_events;
mod requests;
mod resources;
mod router;
mod server;
mod stream;
mod tokens;
mod waiting_room;
mod workers;

use std::sync::Arc;

pub use bind::BindError;
pub use server::Server;

use crate::admission::LiveRules;
use crate::clock::Clock;
use crate::service::Coordinator;
use crate::service::reload::Reloads;
use crate::trust::Tokens;

/// What the door stands in front of.
#[derive(Clone)]
pub struct App {
    /// Who answers.
    pub coordinator: Arc<dyn Coordinator>,
    /// Who may come in.
    pub tokens: Arc<Tokens>,
    /// The bounds of what may be asked, as they are now.
    pub rules: Arc<LiveRules>,
    /// Reads the lab file again.
    pub reloads: Arc<dyn Reloads>,
    /// The time that tokens are made and revoked at.
    pub clock: Clock,
}

#[cfg(test)]
mod tests;
