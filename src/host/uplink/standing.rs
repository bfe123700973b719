//! How a worker stands with its gateway, for whoever asks the worker (SPEC §9 Link).

use jiff::Timestamp;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::link::{Denial, DialError};
use crate::model::NodeName;

/// A worker's gateway, and how the worker stands with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The gateway's name.
    pub gateway: NodeName,
    /// Where it is dialled.
    pub address: String,
    /// How it is.
    pub connection: Linked,
    /// Since when it is so.
    pub since: Timestamp,
    /// Why there is no link; none while there is one, and before the first dial has ended.
    pub reason: Option<String>,
}

/// How a worker stands with its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// There is a link.
    Connected,
    /// There is none, and it is dialled.
    Disconnected,
    /// They have no protocol version in common.
    Incompatible,
    /// One of the two will not have the other.
    Refused,
}

/// Where an [`Uplink`](super::Uplink) says how it stands.
#[derive(Debug)]
pub struct Standings(watch::Sender<Standing>);

impl Standings {
    /// Before the first dial.
    pub fn new(gateway: NodeName, address: String, clock: &Clock) -> (Self, watch::Receiver<Standing>) {
        let since = clock.now().wall;
        let standing = Standing { gateway, address, connection: Linked::Disconnected, since, reason: None };
        let (sender, seen) = watch::channel(standing);
        (Self(sender), seen)
    }

    /// There is a link.
    pub(super) fn connected(&self, clock: &Clock) {
        self.set(Linked::Connected, None, clock);
    }

    /// The link is lost.
    pub(super) fn lost(&self, why: String, clock: &Clock) {
        self.set(Linked::Disconnected, Some(why), clock);
    }

    /// A dial has failed. Answers with true when that is something else than what is known: then it is worth a line.
    pub(super) fn failed(&self, error: &DialError, why: String, clock: &Clock) -> bool {
        let connection = match error {
            DialError::Incompatible { .. } => Linked::Incompatible,
            DialError::Refused(_) => Linked::Refused,
            error if Denial::of(error).is_some() => Linked::Refused,
            DialError::Resolve { .. } | DialError::Link(_) => Linked::Disconnected,
        };
        self.set(connection, Some(why), clock)
    }

    fn set(&self, connection: Linked, reason: Option<String>, clock: &Clock) -> bool {
        let now = clock.now().wall;
        self.0.send_if_modified(|standing| {
            let since = if standing.connection == connection { standing.since } else { now };
            let changed = standing.connection != connection || standing.reason != reason;
            (standing.connection, standing.reason, standing.since) = (connection, reason, since);
            changed
        })
    }
}
