//! `--keep`: stays with a lease, renews it at a third of its width, and releases it at the end (SPEC §4, §7).
//!
//! A lease is **lost** when its node says that it is over, or when its deadline has passed by this machine's own clock
//! and no renew was answered. Whatever else goes wrong is tried again until then.

use std::time::Duration;

use super::failure::{Lost, cause};
use super::interrupt::Interrupt;
use super::lease::until;
use super::output::Output;
use super::patience::{Pace, is_rebuilding};
use crate::client::{Client, ClientError};
use crate::clock::{Clock, RunTime};
use crate::model::{Code, Refusal};
use crate::service::ask::RenewBody;
use crate::service::views::{LeaseView, left};

/// How long the release at the end may take.
const RELEASE_BOUND: Duration = Duration::from_secs(5);
/// One try to renew takes at least so long to fail, however near the deadline is.
const TRY_LEAST: Duration = Duration::from_secs(1);

/// Holds `lease`, whose time counts from `sent`, until a signal comes or it is lost. With `allow_shorter`, a renew
/// lasts up to the booking that is in its way.
pub(super) async fn hold(
    lease: LeaseView,
    sent: RunTime,
    allow_shorter: bool,
    client: &Client,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
    pace: Pace,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    // An answer under an old key shows the lease as it was granted; how long that is ago only the node knows.
    let stale = lease.expires_at <= clock.now().wall;
    let deadline = sent + left(&lease);
    let mut holding = Holding { client, clock, pace, lease, allow_shorter, deadline, troubled: None };
    let mut pause = if stale { Duration::ZERO } else { holding.third() };
    loop {
        let round = async {
            tokio::time::sleep(pause).await;
            holding.renew(output).await
        };
        pause = tokio::select! {
            biased;
            _ = interrupt.came() => break,
            next = round => next?,
        };
    }
    holding.release(output).await
}

struct Holding<'a> {
    client: &'a Client,
    clock: Clock,
    pace: Pace,
    lease: LeaseView,
    allow_shorter: bool,
    /// When the lease ends, if nothing renews it.
    deadline: RunTime,
    /// What people were told last about a renew that did not succeed.
    troubled: Option<String>,
}

impl Holding<'_> {
    fn third(&self) -> Duration {
        Duration::from_millis(self.lease.ttl_ms) / 3
    }

    /// Tries once, and says how long to wait until the next time.
    async fn renew(&mut self, output: &mut Output<'_>) -> Result<Duration, Lost> {
        let sent = self.clock.now().run;
        let body = RenewBody { ttl_ms: None, fence: Some(self.lease.fence), allow_shorter: self.allow_shorter };
        let renew = self.client.renew(&self.lease.id, &body);
        let (topic, why) = match tokio::time::timeout(self.deadline.left(sent).max(TRY_LEAST), renew).await {
            Ok(Ok(renewed)) => {
                self.deadline = sent + left(&renewed.lease);
                self.lease = renewed.lease;
                for notice in &renewed.notices {
                    output.talk(&format!("notice: {} {}", until(notice.at), notice.message));
                }
                if self.troubled.take().is_some() {
                    output.talk(&format!("lease {} is renewed again", self.lease.id));
                }
                return Ok(self.third());
            }
            Ok(Err(ClientError::Refused(refusal))) if is_over(&refusal) => {
                return Err(self.lost(refusal.message));
            }
            Ok(Err(error)) => (topic(&error), cause(&error)),
            Err(_) => (None, "no answer in time".to_owned()),
        };
        let left = self.deadline.left(self.clock.now().run);
        if left.is_zero() {
            return Err(self.lost(format!("its deadline has passed and no renew was answered ({why})")));
        }
        let trouble = topic.unwrap_or_else(|| why.clone());
        if self.troubled.as_ref() != Some(&trouble) {
            output.talk(&format!("lease {} is not renewed yet ({why}); trying again", self.lease.id));
            self.troubled = Some(trouble);
        }
        Ok(self.pace.pause.min(self.third() / 3).min(left))
    }

    fn lost(&self, why: String) -> Lost {
        Lost { lease: self.lease.id.clone(), why }
    }

    /// Ends the lease, within a bound.
    async fn release(&self, output: &mut Output<'_>) -> anyhow::Result<()> {
        let begun = self.clock.now().run;
        loop {
            let bound = (begun + RELEASE_BOUND).left(self.clock.now().run);
            let release = self.client.release(&self.lease.id, Some(self.lease.fence));
            let error = match tokio::time::timeout(bound, release).await {
                Ok(Ok(released)) => {
                    output.talk(&released.message);
                    return Ok(());
                }
                Ok(Err(ClientError::Refused(refusal))) if is_over(&refusal) => {
                    return Err(self.lost(refusal.message).into());
                }
                Ok(Err(error)) => anyhow::Error::from(error),
                Err(_) => anyhow::anyhow!("no answer in time"),
            };
            if self.clock.now().run >= begun + RELEASE_BOUND {
                let what = format!("lease {} could not be released and ends by itself", self.lease.id);
                return Err(error.context(what));
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
