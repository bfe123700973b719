//! Holding a lease: it is renewed at a third of its width, and given back at the end (SPEC §4, §7).
//!
//! A lease is **lost** when its node says that it is over, or when its deadline has passed by this machine's own clock
//! and no renew was answered. Whatever else goes wrong is tried again until then.

use std::time::Duration;

use tokio::sync::watch;

use super::failure::{Lost, cause};
use super::lease::until;
use super::output::Output;
use super::patience::{Pace, is_rebuilding};
use super::request::Granted;
use crate::client::{Client, ClientError};
use crate::clock::{Clock, RunTime};
use crate::model::{Code, Refusal};
use crate::service::ask::RenewBody;
use crate::service::views::{LeaseView, left};

/// How long the release at the end may take.
const RELEASE_BOUND: Duration = Duration::from_secs(5);
/// One try to renew takes at least so long to fail, however near the deadline is.
const TRY_LEAST: Duration = Duration::from_secs(1);

/// A lease that its holder means to keep.
pub(super) struct Holding<'a> {
    client: &'a Client,
    clock: Clock,
    pace: Pace,
    lease: LeaseView,
    /// A renew lasts up to the booking that is in its way.
    allow_shorter: bool,
    /// When the lease ends, if nothing renews it.
    deadline: watch::Sender<RunTime>,
    /// When the next renew is tried.
    due: RunTime,
    /// What people were told last about a renew that did not succeed.
    troubled: Option<String>,
}

/// Why a lease was not given back.
#[derive(Debug)]
pub(super) enum Unreleased {
    /// It was over before.
    Lost(Lost),
    /// Nobody knows; it ends by itself.
    Unknown(anyhow::Error),
}

impl From<Unreleased> for anyhow::Error {
    fn from(unreleased: Unreleased) -> Self {
        match unreleased {
            Unreleased::Lost(lost) => lost.into(),
            Unreleased::Unknown(error) => error,
        }
    }
}

impl<'a> Holding<'a> {
    /// Takes care of what was granted; its time counts from when it was asked for.
    pub(super) fn new(granted: Granted, client: &'a Client, pace: Pace) -> Self {
        let clock = Clock::system();
        let now = clock.now();
        let Granted { lease, sent, allow_shorter, .. } = granted;
        // An answer under an old key shows the lease as it was granted; how long that is ago only the node knows.
        let stale = lease.expires_at <= now.wall;
        let deadline = watch::Sender::new(sent + left(&lease));
        let mut holding = Self { client, clock, pace, lease, allow_shorter, deadline, due: now.run, troubled: None };
        if !stale {
            holding.due = now.run + holding.third();
        }
        holding
    }

    /// The lease, as the node showed it last.
    pub(super) fn lease(&self) -> &LeaseView {
        &self.lease
    }

    /// When the lease ends if nothing renews it, from now on.
    pub(super) fn deadline(&self) -> watch::Receiver<RunTime> {
        self.deadline.subscribe()
    }

    /// Renews the lease until it is lost. May be dropped and asked again.
    pub(super) async fn lost(&mut self, output: &mut Output<'_>) -> Lost {
        loop {
            tokio::time::sleep(self.due.left(self.clock.now().run)).await;
            if let Err(lost) = self.renew(output).await {
                return lost;
            }
        }
    }

    /// Hears from the node that the lease is still held.
    ///
    /// # Errors
    /// It is lost.
    pub(super) async fn confirmed(&mut self, output: &mut Output<'_>) -> Result<(), Lost> {
        while !self.renew(output).await? {
            tokio::time::sleep(self.due.left(self.clock.now().run)).await;
        }
        Ok(())
    }

    fn third(&self) -> Duration {
        Duration::from_millis(self.lease.ttl_ms) / 3
    }

    /// Tries once; true when it is renewed. Sets when to try the next time.
    async fn renew(&mut self, output: &mut Output<'_>) -> Result<bool, Lost> {
        let sent = self.clock.now().run;
        let body = RenewBody { ttl_ms: None, fence: Some(self.lease.fence), allow_shorter: self.allow_shorter };
        let renew = self.client.renew(&self.lease.id, &body);
        let bound = self.deadline.borrow().left(sent).max(TRY_LEAST);
        let (topic, why) = match tokio::time::timeout(bound, renew).await {
            Ok(Ok(renewed)) => {
                self.deadline.send_replace(sent + left(&renewed.lease));
                self.lease = renewed.lease;
                self.due = self.clock.now().run + self.third();
                for notice in &renewed.notices {
                    output.talk(&format!("notice: {} {}", until(notice.at), notice.message));
                }
                if self.troubled.take().is_some() {
                    output.talk(&format!("lease {} is renewed again", self.lease.id));
                }
                return Ok(true);
            }
            Ok(Err(ClientError::Refused(refusal))) if is_over(&refusal) => {
                return Err(self.lost_by(refusal.message));
            }
            Ok(Err(error)) => (topic(&error), cause(&error)),
            Err(_) => (None, "no answer in time".to_owned()),
        };
        let now = self.clock.now().run;
        let left = self.deadline.borrow().left(now);
        if left.is_zero() {
            return Err(self.lost_by(format!("its deadline has passed and no renew was answered ({why})")));
        }
        let trouble = topic.unwrap_or_else(|| why.clone());
        if self.troubled.as_ref() != Some(&trouble) {
            output.talk(&format!("lease {} is not renewed yet ({why}); trying again", self.lease.id));
            self.troubled = Some(trouble);
        }
        self.due = now + self.pace.pause.min(self.third() / 3).min(left);
        Ok(false)
    }

    fn lost_by(&self, why: String) -> Lost {
        Lost { lease: self.lease.id.clone(), why }
    }

    /// Ends the lease, within a bound; what the node says of it.
    ///
    /// # Errors
    /// It was over before, or nobody knows.
    pub(super) async fn release(&self) -> Result<String, Unreleased> {
        let begun = self.clock.now().run;
        let mut asked = false;
        loop {
            let bound = (begun + RELEASE_BOUND).left(self.clock.now().run);
            let release = self.client.release(&self.lease.id, Some(self.lease.fence));
            let error = match tokio::time::timeout(bound, release).await {
                Ok(Ok(released)) => return Ok(released.message),
                Ok(Err(ClientError::Refused(refusal))) if is_over(&refusal) => {
                    // A release whose answer was lost on the way has ended it.
                    return match asked && may_be_by_its_holder(&refusal) {
                        true => Ok(format!("Lease {} released", self.lease.id)),
                        false => Err(Unreleased::Lost(self.lost_by(refusal.message))),
                    };
                }
                Ok(Err(error)) => {
                    asked |= matches!(error, ClientError::Unanswered { reached: true, .. });
                    anyhow::Error::from(error)
                }
                Err(_) => anyhow::anyhow!("no answer in time"),
            };
            if self.clock.now().run >= begun + RELEASE_BOUND {
                let what = format!("lease {} could not be released and ends by itself", self.lease.id);
                return Err(Unreleased::Unknown(error.context(what)));
            }
            tokio::time::sleep(self.pace.pause.min(bound)).await;
        }
    }
}

/// What a trouble is known by: one whose words say how long something lasts is the same when it is asked again.
fn topic(error: &ClientError) -> Option<String> {
    match error {
        ClientError::Refused(refusal) => Some(refusal.code.to_string()),
        _ => None,
    }
}

fn is_over(refusal: &Refusal) -> bool {
    refusal.code == Code::UnknownLease && !is_rebuilding(refusal)
}

/// False when the node knows that somebody else, or time, has ended it.
fn may_be_by_its_holder(refusal: &Refusal) -> bool {
    let reason = refusal.details.as_ref().and_then(|details| details.get("reason"));
    reason.is_none_or(|reason| reason == "explicit")
}
