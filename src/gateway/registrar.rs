//! Keeps the roster: judges who knocks, lets machines join, and carries out what operators say of workers.
//!
//! One change at a time. Each is written to disk before anybody hears of it, the front included, and is finished also when
//! nobody waits for it any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::message::FrontMessage;
use super::rejections::Rejection;
use super::roster::{Enrolled, FRONT_BOUND};
use super::session::SessionMessage;
use crate::clock::Clock;
use crate::link::join::Joining;
use crate::link::listen::Guest;
use crate::model::{Code, LabName, NodeName, Refusal};
use crate::trust::{Authority, Invitation, InvitationSecret, Roster, RosterFile, SecretHash, Sha256Print};
use crate::wire::hello::Welcome;
use crate::wire::join::JoinAnswer;

/// What a registrar is started with.
pub struct Office {
    /// The lab.
    pub lab: LabName,
    /// This gateway.
    pub gateway: NodeName,
    /// What workers dial.
    pub address: String,
    /// The fingerprint of the lab's CA.
    pub authority: Sha256Print,
    /// The CA's key; none where the gateway has only the CA's certificate.
    pub issuer: Option<Authority>,
    /// The workers that the lab file names.
    pub configured: BTreeSet<NodeName>,
    /// The roster as it is on disk.
    pub roster: Roster,
    /// Where it is kept.
    pub file: RosterFile,
    /// Where the time comes from.
    pub clock: Clock,
}

/// A worker that is off the roster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// True when it had a key, which is never accepted again.
    pub revoked: bool,
    /// True when the lab file names it, so that it is on the roster again at the next start.
    pub configured: bool,
}

/// The keeper of a running gateway's roster.
pub struct Registrar {
    office: Office,
    /// The roster as it is on disk.
    roster: Arc<Mutex<Roster>>,
    front: ActorRef<FrontMessage>,
}

impl std::fmt::Debug for Registrar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registrar").field("gateway", &self.office.gateway).finish_non_exhaustive()
    }
}

impl Registrar {
    /// The registrar of the gateway whose front this is.
    pub fn new(mut office: Office, front: ActorRef<FrontMessage>) -> Arc<Self> {
        let roster = Arc::new(Mutex::new(std::mem::take(&mut office.roster)));
        Arc::new(Self { office, roster, front })
    }

    /// Tells those who want to know that somebody was not let in.
    pub fn reject(&self, rejection: Rejection) {
        // A front that is gone takes the whole node with it.
        let _ = self.front.cast(FrontMessage::Rejected(rejection));
    }

    /// Hands a worker that has said hello to its session, if it is who it should be.
    pub async fn let_in(self: &Arc<Self>, guest: Guest) {
        let (name, key) = (guest.name.clone(), guest.key);
        let judged = {
            let name = name.clone();
            self.change(move |roster| roster.admit(&name, key)).await
        };
        match judged {
            Ok(Ok(())) => {
                let (reply, session) = ractor::concurrency::oneshot();
                let _ = self.front.cast(FrontMessage::SessionOf(name, reply.into()));
                // One that was removed in this moment is not there, and its guest is shown out.
                if let Ok(Some(session)) = session.await {
                    let _ = session.cast(SessionMessage::Knock(guest));
                }
            }
            Ok(Err(stranger)) => {
                let (why, reason) = (stranger.advice(&name), stranger.word());
                tracing::debug!(worker = %name, address = %guest.address, reason, "refused a worker");
                self.reject(Rejection::of_worker(name, guest.address, reason));
                let _ = guest.decline(Welcome::Refused { why }).await;
            }
            Err(refusal) => drop(guest.decline(Welcome::Refused { why: refusal.message }).await),
        }
    }

    /// Judges a machine that wants to join, and answers it.
    pub async fn hear(self: &Arc<Self>, joining: Joining) {
        let worker = joining.ask.worker.clone();
        let answer = match self.joined(&joining).await {
            Ok(answer) => {
                tracing::info!(%worker, address = %joining.address, "a machine has joined");
                answer
            }
            Err((reason, why)) => {
                tracing::debug!(%worker, address = %joining.address, reason, "a machine has not joined");
                self.reject(Rejection::of_stranger(Some(worker), joining.address, reason));
                JoinAnswer::Refused { reason: reason.to_owned(), why }
            }
        };
        if let Err(error) = joining.answer(answer).await {
            tracing::info!(%error, "a machine has left before its answer; it may ask again");
        }
    }

    async fn joined(self: &Arc<Self>, joining: &Joining) -> Result<JoinAnswer, (&'static str, String)> {
        let fault = |refusal: Refusal| ("internal", refusal.message);
        let name = joining.ask.worker.clone();
        let issuer = self.issuer().map_err(fault)?;
        // One without the shape of a secret is a wrong one, and counts as such.
        let (hash, key, now) =
            (SecretHash::of(&joining.ask.secret), joining.key.fingerprint(), self.office.clock.now().wall);
        let judged = {
            let (name, front) = (name.clone(), self.front.clone());
            self.change_and(
                move |roster| roster.join(&name, hash, key, now).map(|()| name),
                move |joined, roster| {
                    let enrolled = joined.as_ref().ok().and_then(|name| Some((name, roster.get(name)?)));
                    if let Some(enrolled) = enrolled.map(Enrolled::of) {
                        let _ = front.cast(FrontMessage::Enrolled(enrolled));
                    }
                },
            )
            .await
        };
        judged.map_err(fault)?.map_err(|not| (not.word(), not.advice(&name)))?;
        let certified = issuer.certify_worker(&name, &joining.key, now);
        let (certificate, authority) = certified.map_err(|error| {
            tracing::error!(%error, "a machine that has joined cannot be given its certificate");
            fault(Refusal::internal("the gateway cannot make a certificate; join again when it can"))
        })?;
        Ok(JoinAnswer::Joined { certificate, authority })
    }

    /// Makes an invitation: the line, and until when it may be used.
    ///
    /// # Errors
    /// `BAD_REQUEST` for a name that has a key or is the gateway's, and where the gateway cannot certify anybody;
    /// `QUEUE_FULL`.
    pub async fn invite(self: &Arc<Self>, name: &NodeName) -> Result<(Invitation, jiff::Timestamp), Refusal> {
        self.issuer()?;
        if *name == self.office.gateway {
            return Err(Refusal::bad_field("name", format!("{name} is the gateway; a worker needs a name of its own")));
        }
        let (secret, now) = (InvitationSecret::generate()?, self.office.clock.now().wall);
        let (hash, worker) = (secret.hash(), name.clone());
        let expires_at = self.change(move |roster| roster.invite(&worker, hash, now)).await??;
        let invitation = Invitation {
            lab: self.office.lab.clone(),
            worker: name.clone(),
            gateway: self.office.gateway.clone(),
            address: self.office.address.clone(),
            authority: self.office.authority,
            secret,
        };
        Ok((invitation, expires_at))
    }

    /// Takes a whole worker out, or brings it back.
    ///
    /// # Errors
    /// `UNKNOWN_WORKER`.
    pub async fn drain(self: &Arc<Self>, name: &NodeName, drained: bool) -> Result<(), Refusal> {
        let (worker, front) = (name.clone(), self.front.clone());
        let told = self.change_and(
            move |roster| roster.drain(&worker, drained).map(|_| worker),
            move |changed, _| {
                if let Ok(worker) = changed {
                    let _ = front.cast(FrontMessage::Drained { worker: worker.clone(), drained });
                }
            },
        );
        told.await?.map(|_| ())
    }

    /// Takes a worker off the roster; with `revoke` also one that is connected, and its key for good.
    ///
    /// # Errors
    /// `UNKNOWN_WORKER`; `WORKER_CONNECTED` without `revoke`; `QUEUE_FULL`.
    pub async fn remove(self: &Arc<Self>, name: &NodeName, revoke: bool) -> Result<Removed, Refusal> {
        let connected = self.ask(|reply| FrontMessage::IsLinked(name.clone(), reply)).await?;
        if connected && !revoke {
            let message = format!(
                "worker {name} is connected; stop it first, or use --revoke, which ends its link at once and its key \
                 for good"
            );
            return Err(Refusal::new(Code::WorkerConnected, message).with("worker", name.as_str()));
        }
        let (worker, front) = (name.clone(), self.front.clone());
        let told = self.change_and(
            move |roster| roster.remove(&worker, revoke).map(|member| (worker, member)),
            move |removed, _| {
                if let Ok((worker, _)) = removed {
                    let _ = front.cast(FrontMessage::Removed { worker: worker.clone(), revoked: revoke });
                }
            },
        );
        let (_, member) = told.await??;
        // Whatever is asked after this finds the worker gone.
        self.ask(|reply| FrontMessage::IsLinked(name.clone(), reply)).await?;
        let configured = self.office.configured.contains(name);
        Ok(Removed { revoked: revoke && member.key.is_some(), configured })
    }

    fn issuer(&self) -> Result<&Authority, Refusal> {
        self.office.issuer.as_ref().ok_or_else(|| {
            let message = "this gateway has no CA key, so it cannot certify anybody; make the worker's files with \
                           `berth pki issue worker NAME` where the CA key is and add the worker to the lab file, or \
                           set pki.ca_key for the gateway";
            Refusal::new(Code::BadRequest, message)
        })
    }

    async fn ask<T: ractor::Message>(&self, build: impl FnOnce(RpcReplyPort<T>) -> FrontMessage) -> Result<T, Refusal> {
        let (reply, answer) = ractor::concurrency::oneshot();
        let _ = self.front.cast(build(reply.into()));
        let answer = tokio::time::timeout(FRONT_BOUND, answer).await.ok().and_then(Result::ok);
        answer.ok_or_else(|| Refusal::internal("no answer came in time; look with `berth worker list`"))
    }

    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Roster) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        self.change_and(change, |_, _| ()).await
    }

    /// Changes the roster, makes that durable, then has it told, before the next change begins.
    async fn change_and<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Roster) -> T + Send + 'static,
        tell: impl FnOnce(&T, &Roster) + Send + 'static,
    ) -> Result<T, Refusal> {
        let (roster, file) = (Arc::clone(&self.roster), self.office.file.clone());
        let failed = || Refusal::internal("the gateway cannot store it, and nothing was done");
        let changed = tokio::spawn(async move {
            let mut roster = roster.lock_owned().await;
            let mut next = roster.clone();
            let outcome = change(&mut next);
            if next != *roster {
                let written = spawn_blocking(move || file.write(&next).map(|()| next)).await;
                *roster = written.map_err(|_| failed())?.map_err(|error| {
                    tracing::error!(%error, source = std::error::Error::source(&error), "the roster is not written");
                    failed()
                })?;
            }
            tell(&outcome, &roster);
            Ok(outcome)
        });
        changed.await.unwrap_or_else(|_| Err(failed()))
    }
}
