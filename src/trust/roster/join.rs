//! How an invitation is spent.

use jiff::Timestamp;

use super::super::{SecretHash, Sha256Print};
use super::Roster;
use crate::model::NodeName;

/// As many wrong secrets end an invitation (SPEC §9).
pub const WRONG_SECRETS_MAX: u8 = 5;

/// Why a machine has not joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotJoined {
    /// Nobody is invited under that name.
    NotInvited,
    /// The secret is another.
    WrongSecret,
    /// Too many wrong secrets were shown.
    Ended,
    /// Its hour has passed.
    Expired,
    /// Another key has shown the secret first.
    Spent,
    /// The machine's key is revoked.
    Revoked,
    /// The name has got another key in another way.
    NameHasKey,
}

impl NotJoined {
    /// One stable word.
    pub fn word(self) -> &'static str {
        match self {
            NotJoined::NotInvited => "unknown-invitation",
            NotJoined::WrongSecret => "wrong-secret",
            NotJoined::Ended => "invitation-ended",
            NotJoined::Expired => "invitation-expired",
            NotJoined::Spent => "invitation-spent",
            NotJoined::Revoked => "revoked-key",
            NotJoined::NameHasKey => "another-key",
        }
    }

    /// What the operator of the machine is told.
    pub fn advice(self, name: &NodeName) -> String {
        let anew = format!("make another with `berth worker invite {name}` on the gateway");
        match self {
            NotJoined::NotInvited => {
                format!("this gateway has no invitation for {name}, or a later one took its place; {anew}")
            }
            NotJoined::WrongSecret => format!(
                "this is not the secret of the invitation for {name}; copy the whole line. The invitation ends after \
                 {WRONG_SECRETS_MAX} wrong ones"
            ),
            NotJoined::Ended => {
                format!("the invitation for {name} has ended, after {WRONG_SECRETS_MAX} wrong secrets; {anew}")
            }
            NotJoined::Expired => format!("the invitation for {name} has expired; {anew}"),
            NotJoined::Spent => format!(
                "the invitation for {name} was used by another machine. If that was none of yours, run `berth worker \
                 remove {name} --revoke` on the gateway at once; then {anew}"
            ),
            NotJoined::Revoked => {
                "the key of this machine is revoked; run `berth join --new-key` with the same invitation".to_owned()
            }
            NotJoined::NameHasKey => format!(
                "worker {name} has another key by now; run `berth worker remove {name} --revoke` on the gateway, then \
                 {anew}"
            ),
        }
    }
}

impl Roster {
    /// A machine that has proved to have `key` shows a secret to join as `name`. The first right key spends the
    /// invitation and is the worker's from then on; the same key is answered alike however often it asks, so an answer
    /// that got lost costs nothing.
    ///
    /// # Errors
    /// Why not. The roster may have changed all the same: a wrong secret is counted.
    pub fn join(
        &mut self,
        name: &NodeName,
        secret: SecretHash,
        key: Sha256Print,
        now: Timestamp,
    ) -> Result<(), NotJoined> {
        let invited = self.invitations.get_mut(name).ok_or(NotJoined::NotInvited)?;
        if invited.spent_by.is_none() && invited.wrong >= WRONG_SECRETS_MAX {
            return Err(NotJoined::Ended);
        }
        if invited.secret != secret {
            // One that is spent is of no use to anybody else, and its own machine may still need it.
            if invited.spent_by.is_none() {
                invited.wrong += 1;
            }
            return Err(NotJoined::WrongSecret);
        }
        if self.revoked.contains(&key) {
            return Err(NotJoined::Revoked);
        }
        let member = self.workers.get(name).and_then(|member| member.key);
        match invited.spent_by {
            Some(first) if first != key => return Err(NotJoined::Spent),
            Some(_) if member == Some(key) => return Ok(()),
            Some(_) => return Err(NotJoined::NameHasKey),
            None => {}
        }
        if now >= invited.expires_at {
            return Err(NotJoined::Expired);
        }
        if member.is_some_and(|member| member != key) {
            return Err(NotJoined::NameHasKey);
        }
        invited.spent_by = Some(key);
        self.workers.entry(name.clone()).or_default().key = Some(key);
        Ok(())
    }
}
