//! `berth lease acquire`: asks for one resource once, or with `--poll` again and again until it is its turn.

use std::pin::pin;

use super::failure::Interrupted;
use super::interrupt::Interrupt;
use super::lease::said;
use super::lease_args::AcquireArgs;
use super::output::Output;
use super::patience::{Pace, Patience};
use super::request::fresh_key;
use crate::client::{Client, ClientError};
use crate::model::ResourceAddress;
use crate::service::answers::{Acquired, Pending};
use crate::service::ask::AcquireBody;

/// Asks, and prints the lease or the place in the waiting room.
pub(super) async fn run(
    args: AcquireArgs,
    client: &Client,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
    pace: Pace,
) -> anyhow::Result<()> {
    let (poll, resource) = (args.poll, args.resource.clone());
    let mut body = args.body();
    let acquired = if poll {
        // With a key, an ask whose answer is lost gets the same lease again.
        body.idempotency_key.get_or_insert_with(fresh_key);
        let patience = Patience::new(pace);
        let mut place = Place { client, resource, body, pace, patience, begun: false, told: None };
        place.taken(output, interrupt).await?
    } else {
        client.acquire(&resource, &body).await?
    };
    output.answer(&acquired, || match &acquired {
        Acquired::Active { lease } => said("leased", lease),
        Acquired::Pending(Pending { resource_id, waiting_position, .. }) => {
            format!("pending {resource_id} position {waiting_position}\n")
        }
    })
}

/// A place in a waiting room that is kept by asking.
struct Place<'a> {
    client: &'a Client,
    resource: ResourceAddress,
    body: AcquireBody,
    pace: Pace,
    patience: Patience,
    /// The node has been reached, so that something may have come of it.
    begun: bool,
    /// The position that people were told last.
    told: Option<usize>,
}

impl Place<'_> {
    /// Asks until the lease is there, or leaves on Ctrl-C.
    async fn taken(&mut self, output: &mut Output<'_>, interrupt: &mut Interrupt) -> anyhow::Result<Acquired> {
        let grace = self.pace.give_up / 2;
        loop {
            let (signal, last) = {
                let mut ask = pin!(self.ask(output));
                tokio::select! {
                    biased;
                    answer = ask.as_mut() => match answer? {
                        Some(acquired) => return Ok(acquired),
                        None => (None, None),
                    },
                    // An ask on its way may still get the lease.
                    signal = interrupt.came() => {
                        (Some(signal), tokio::time::timeout(grace, ask).await.ok())
                    }
                }
            };
            let signal = match signal {
                Some(signal) => Some(signal),
                None => tokio::time::timeout(self.pace.ask, interrupt.came()).await.ok(),
            };
            if let Some(signal) = signal {
                let got = last.and_then(|answer| answer.ok()?);
                return Err(Interrupted { signal, outcome: self.give_up(got).await }.into());
            }
        }
    }

    /// One ask; what came of it once that is the lease.
    async fn ask(&mut self, output: &mut Output<'_>) -> anyhow::Result<Option<Acquired>> {
        match self.client.acquire(&self.resource, &self.body).await {
            Ok(Acquired::Pending(pending)) => {
                self.begun = true;
                self.patience.heard();
                if self.told != Some(pending.waiting_position) {
                    self.told = Some(pending.waiting_position);
                    output.talk(&format!("waiting for {} at position {}", self.resource, pending.waiting_position));
                }
                self.body.ticket = pending.ticket.or(self.body.ticket.take());
                Ok(None)
            }
            Ok(active) => Ok(Some(active)),
            // A node that was never there, or that is going down, is not waited for.
            Err(error @ (ClientError::Refused(_) | ClientError::Unanswered { reached: false, .. })) if !self.begun => {
                Err(error.into())
            }
            Err(error) => {
                self.begun = true;
                self.patience.after(error).await?;
                Ok(None)
            }
        }
    }

    /// Gives back what there is, and says how that went.
    async fn give_up(&self, got: Option<Acquired>) -> String {
        let outcome = async {
            match got {
                Some(Acquired::Active { lease }) => match self.client.release(&lease.id, Some(lease.fence)).await {
                    Ok(released) => released.message,
                    Err(error) => format!("lease {} could not be released ({error})", lease.id),
                },
                _ => match self.client.leave(&self.resource).await {
                    Ok(_) => format!("left the waiting room of {}", self.resource),
                    Err(error) => {
                        format!("the waiting room of {} could not be left ({error}); the place lapses", self.resource)
                    }
                },
            }
        };
        let unknown = "nothing could be given back in time; the place in the waiting room lapses";
        tokio::time::timeout(self.pace.give_up, outcome).await.unwrap_or_else(|_| unknown.to_owned())
    }
}
