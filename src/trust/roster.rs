//! Which workers there are, by which keys they are known, and who is invited (SPEC §9).
//!
//! A worker is on the roster once the lab file names it or it has joined, until it is removed. The first key that a
//! configured worker shows is its key from then on; one that joins has the key that it joined with. A key that is revoked
//! is never accepted again, under any name. Pure: whoever changes a roster writes it to its [file](RosterFile) before
//! anybody hears of it.

mod file;
mod join;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::file::{RosterError, RosterFile};
pub use self::join::{NotJoined, WRONG_SECRETS_MAX};
use super::{INVITATION_KEPT, SecretHash, Sha256Print};
use crate::limits::WORKERS_MAX;
use crate::model::{Code, NodeName, Refusal};

/// Keys that one gateway keeps as revoked. They are never forgotten, so there is an end.
pub const REVOKED_KEYS_MAX: usize = 10_000;

/// The roster of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roster {
    workers: BTreeMap<NodeName, Member>,
    revoked: BTreeSet<Sha256Print>,
    invitations: BTreeMap<NodeName, Invited>,
}

/// A worker.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// By which it is known; none until the first link of one that the lab file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Sha256Print>,
    /// True when the whole worker is out.
    #[serde(default)]
    pub drained: bool,
}

/// A name that somebody may join under.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Invited {
    secret: SecretHash,
    expires_at: Timestamp,
    /// Wrong secrets so far.
    #[serde(default)]
    wrong: u8,
    /// The key that has shown the secret first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent_by: Option<Sha256Print>,
}

/// Why a worker is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stranger {
    /// It is not on the roster.
    Unknown,
    /// It is known by another key.
    AnotherKey,
    /// Its key is revoked.
    Revoked,
}

impl Stranger {
    /// One stable word.
    pub fn word(self) -> &'static str {
        match self {
            Stranger::Unknown => "unknown-worker",
            Stranger::AnotherKey => "another-key",
            Stranger::Revoked => "revoked-key",
        }
    }

    /// What the operator of the worker called `name` is told.
    pub fn advice(self, name: &NodeName) -> String {
        match self {
            Stranger::Unknown => format!(
                "worker {name} is not on the gateway's roster; invite it with `berth worker invite {name}`, or add it \
                 to the gateway's lab file and start the gateway anew"
            ),
            Stranger::AnotherKey => format!(
                "worker {name} is known by another key; if this machine is to take its place, run `berth worker remove \
                 {name} --revoke` on the gateway and join anew"
            ),
            Stranger::Revoked => format!(
                "the key of worker {name} is revoked; run `berth worker invite {name}` on the gateway and `berth join \
                 --new-key` here"
            ),
        }
    }
}

impl Roster {
    /// Every worker.
    pub fn workers(&self) -> impl Iterator<Item = (&NodeName, &Member)> {
        self.workers.iter()
    }

    /// One worker.
    pub fn get(&self, name: &NodeName) -> Option<&Member> {
        self.workers.get(name)
    }

    /// Takes in those that the lab file names.
    ///
    /// # Errors
    /// How many there would be, when that is more than a lab may have.
    pub fn configure<'n>(&mut self, names: impl Iterator<Item = &'n NodeName>) -> Result<(), usize> {
        for name in names {
            self.workers.entry(name.clone()).or_default();
        }
        if self.workers.len() > WORKERS_MAX { Err(self.workers.len()) } else { Ok(()) }
    }

    /// Judges a worker that knocks with `key`; the first key of a configured worker is its key from now on.
    ///
    /// # Errors
    /// Why it is not let in; then nothing has changed.
    pub fn admit(&mut self, name: &NodeName, key: Sha256Print) -> Result<(), Stranger> {
        if self.revoked.contains(&key) {
            return Err(Stranger::Revoked);
        }
        let member = self.workers.get_mut(name).ok_or(Stranger::Unknown)?;
        match member.key {
            Some(known) if known != key => Err(Stranger::AnotherKey),
            Some(_) => Ok(()),
            None => {
                member.key = Some(key);
                Ok(())
            }
        }
    }

    /// Lets somebody join as `name` with a secret, once, from `now` on for an hour. An earlier invitation for that
    /// name ends.
    ///
    /// # Errors
    /// `BAD_REQUEST` for a name that has a key; `QUEUE_FULL` when there are as many workers as there may be.
    pub fn invite(&mut self, name: &NodeName, secret: SecretHash, now: Timestamp) -> Result<Timestamp, Refusal> {
        if self.workers.get(name).is_some_and(|member| member.key.is_some()) {
            let message = format!(
                "worker {name} has a key already; `berth worker remove {name} --revoke` ends it, and then another \
                 machine can be invited under this name"
            );
            return Err(Refusal::bad_field("name", message));
        }
        self.invitations.retain(|invited, it| {
            let spent =
                it.spent_by.is_some() && self.workers.get(invited).is_some_and(|worker| worker.key == it.spent_by);
            spent || it.spent_by.is_none() && it.expires_at > now
        });
        self.invitations.remove(name);
        let to_come = self.invitations.keys().filter(|invited| !self.workers.contains_key(*invited)).count();
        let known = usize::from(self.workers.contains_key(name));
        if self.workers.len() - known + to_come >= WORKERS_MAX {
            let message = format!("a lab has at most {WORKERS_MAX} workers, invited ones included; remove one first");
            return Err(Refusal::new(Code::QueueFull, message).retry_after(Duration::from_secs(60)));
        }
        let expires_at = now.checked_add(INVITATION_KEPT).unwrap_or(Timestamp::MAX);
        self.invitations.insert(name.clone(), Invited { secret, expires_at, wrong: 0, spent_by: None });
        Ok(expires_at)
    }

    /// Takes a worker out, or brings it back. False when it was so already.
    ///
    /// # Errors
    /// `UNKNOWN_WORKER`.
    pub fn drain(&mut self, name: &NodeName, drained: bool) -> Result<bool, Refusal> {
        let member = self.workers.get_mut(name).ok_or_else(|| unknown_worker(name))?;
        let changed = member.drained != drained;
        member.drained = drained;
        Ok(changed)
    }

    /// Takes a worker off the roster; with `revoke` its key is never accepted again.
    ///
    /// # Errors
    /// `UNKNOWN_WORKER`; `QUEUE_FULL` when no more keys can be revoked.
    pub fn remove(&mut self, name: &NodeName, revoke: bool) -> Result<Member, Refusal> {
        let member = self.workers.get(name).ok_or_else(|| unknown_worker(name))?.clone();
        if revoke && let Some(key) = member.key {
            if self.revoked.len() >= REVOKED_KEYS_MAX && !self.revoked.contains(&key) {
                let message = format!(
                    "{REVOKED_KEYS_MAX} keys are revoked, and no more are kept; give the lab a new authority with \
                     `berth pki init`"
                );
                return Err(Refusal::new(Code::QueueFull, message));
            }
            self.revoked.insert(key);
        }
        self.workers.remove(name);
        self.invitations.remove(name);
        Ok(member)
    }
}

/// `UNKNOWN_WORKER`.
pub fn unknown_worker(name: &NodeName) -> Refusal {
    Refusal::new(Code::UnknownWorker, format!("no worker {name} is on the roster; `berth worker list` shows who is"))
        .with("worker", name.as_str())
}
