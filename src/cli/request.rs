//! `berth lease` by labels, by selector or by name: asks, waits for its turn, and says what came of it.
//!
//! A node that is restarted meanwhile forgets who waited. The command asks again unasked, under the same key and with
//! the ticket of its place in line.

use std::pin::pin;
use std::time::Duration;

use super::failure::Interrupted;
use super::holding::Holding;
use super::interrupt::Interrupt;
use super::keep;
use super::lease::{said, until};
use super::output::Output;
use super::patience::{Pace, Patience};
use crate::client::{Client, ClientError};
use crate::clock::{Clock, RunTime};
use crate::model::time::whole_ms;
use crate::model::{Code, IdempotencyKey, Refusal, RequestId, Timeout, WaitingFor};
use crate::service::answers::OneRequest;
use crate::service::ask::RequestBody;
use crate::service::views::{LeaseView, RequestState, RequestView};

/// Between two long polls, for a node that answers them at once.
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// Asks for a lease, prints it, and with `stay` holds it.
pub(super) async fn run(
    body: RequestBody,
    stay: bool,
    client: &Client,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
    pace: Pace,
) -> anyhow::Result<()> {
    let granted = granted(body, client, output, interrupt, pace).await?;
    let lease = &granted.lease;
    let printed = output.answer(&OneRequest { request: granted.request.clone() }, || said("leased", lease));
    if !stay {
        return printed;
    }
    match printed {
        Ok(()) => keep::hold(Holding::new(granted, client, pace), output, interrupt).await,
        Err(error) => {
            // Nobody hears which lease it is, so nobody would use it.
            let _ = tokio::time::timeout(pace.give_up, client.release(&lease.id, Some(lease.fence))).await;
            Err(error)
        }
    }
}

/// What a wish has come to.
pub(super) struct Granted {
    pub(super) request: RequestView,
    pub(super) lease: LeaseView,
    /// When the question of the last answer was sent; the lease's time counts from there.
    pub(super) sent: RunTime,
    /// As it was asked for.
    pub(super) allow_shorter: bool,
    /// It was not there at once, and people have been told so.
    pub(super) waited: bool,
}

/// Asks for a lease and waits until it is there.
///
/// # Errors
/// It was refused, or a signal came and what there was has been taken back, or nobody knows.
pub(super) async fn granted(
    body: RequestBody,
    client: &Client,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
    pace: Pace,
) -> anyhow::Result<Granted> {
    let mut attempt = Attempt::new(body, client, pace);
    let request = attempt.settled(output, interrupt).await?;
    let (sent, allow_shorter, waited) = (attempt.sent, attempt.body.allow_shorter, !attempt.told.is_empty());
    match (request.state, &request.lease, &request.error) {
        (RequestState::Granted, Some(lease), _) => {
            Ok(Granted { lease: LeaseView::clone(lease), request, sent, allow_shorter, waited })
        }
        (RequestState::Failed, _, Some(refusal)) => Err(Refusal::clone(refusal).into()),
        (RequestState::Cancelled, ..) => anyhow::bail!("lease request {} was cancelled", request.id),
        _ => anyhow::bail!("lease request {} is settled without a lease and without a reason", request.id),
    }
}

/// One command's wish for a lease, across as many lease requests as it takes.
struct Attempt<'a> {
    client: &'a Client,
    pace: Pace,
    patience: Patience,
    clock: Clock,
    body: RequestBody,
    /// The bound of the whole wait, and when it began.
    timeout: Option<(Duration, RunTime)>,
    /// The lease request that waits; none before the first answer, and after a restart of the node.
    open: Option<RequestId>,
    /// The node has been reached, so that something may have come of it.
    begun: bool,
    /// When the question of the last answer was sent; a lease's time counts from there.
    sent: RunTime,
    /// What people were told last.
    told: String,
}

impl<'a> Attempt<'a> {
    fn new(mut body: RequestBody, client: &'a Client, pace: Pace) -> Self {
        // With a key, to ask twice gets one lease.
        body.idempotency_key.get_or_insert_with(fresh_key);
        let clock = Clock::system();
        let now = clock.now().run;
        let timeout = body.timeout_ms.map(|timeout| (timeout.duration(), now));
        Self {
            client,
            pace,
            patience: Patience::new(pace),
            clock,
            body,
            timeout,
            open: None,
            begun: false,
            sent: now,
            told: String::new(),
        }
    }

    /// Waits until it is settled, or gives it up on Ctrl-C.
    async fn settled(&mut self, output: &mut Output<'_>, interrupt: &mut Interrupt) -> anyhow::Result<RequestView> {
        loop {
            let (asking, grace) = (self.open.is_none(), self.pace.give_up / 2);
            let (signal, last) = {
                let mut step = pin!(self.step(output));
                tokio::select! {
                    biased;
                    step = step.as_mut() => match step? {
                        Some(request) => return Ok(request),
                        None => continue,
                    },
                    // What is being asked for has no name yet; its answer says what there is to take back.
                    signal = interrupt.came() => match asking {
                        true => (signal, tokio::time::timeout(grace, step).await.ok()),
                        false => (signal, None),
                    },
                }
            };
            let settled = last.and_then(|step| step.ok()?);
            return Err(Interrupted { signal, outcome: self.give_up(settled).await }.into());
        }
    }

    /// One question; the request once it is settled for good.
    async fn step(&mut self, output: &mut Output<'_>) -> anyhow::Result<Option<RequestView>> {
        self.sent = self.clock.now().run;
        let answer = match &self.open {
            None => self.client.request(&self.body).await,
            Some(id) => self.client.lease_request(id, self.pace.poll).await,
        };
        match answer {
            Ok(request) => {
                self.begun = true;
                self.patience.heard();
                if request.state != RequestState::Waiting {
                    let restarted = request.error.as_ref().is_some_and(|error| error.code == Code::NodeRestarted);
                    return if restarted { self.ask_again(output).await } else { Ok(Some(request)) };
                }
                self.tell(&request, output);
                self.body.ticket = request.ticket.or(self.body.ticket.take());
                if self.open.replace(request.id).is_some() {
                    tokio::time::sleep(POLL_PAUSE.min(self.pace.pause)).await;
                }
                Ok(None)
            }
            Err(error) => self.after(error, output).await,
        }
    }

    async fn after(&mut self, error: ClientError, output: &mut Output<'_>) -> anyhow::Result<Option<RequestView>> {
        let forgotten = |code| matches!(code, Code::UnknownLeaseRequest | Code::NodeRestarted);
        match &error {
            ClientError::Refused(refusal) if self.begun && forgotten(refusal.code) => {
                return self.ask_again(output).await;
            }
            // A node that was never there, or that is going down, is not waited for.
            ClientError::Refused(_) | ClientError::Unanswered { reached: false, .. } if !self.begun => {
                return Err(error.into());
            }
            _ => {}
        }
        self.begun = true;
        self.talk("no answer from the node; asking again", output);
        self.patience.after(error).await?;
        self.shorten();
        Ok(None)
    }

    /// The node has forgotten the request.
    async fn ask_again(&mut self, output: &mut Output<'_>) -> anyhow::Result<Option<RequestView>> {
        self.open = None;
        self.talk("the node was restarted; asking again", output);
        tokio::time::sleep(self.pace.pause).await;
        self.shorten();
        Ok(None)
    }

    /// The bound counts from the first time; a new request gets what is left of it.
    fn shorten(&mut self) {
        if let Some((bound, begun)) = self.timeout {
            let left = whole_ms((begun + bound).left(self.clock.now().run)).max(1);
            self.body.timeout_ms = Timeout::try_from(left).ok();
        }
    }

    /// Tells people where the request stands, when that has changed.
    fn tell(&mut self, request: &RequestView, output: &mut Output<'_>) {
        if self.open.as_ref() != Some(&request.id) {
            output.talk(&format!("lease request {} waits since {}", request.id, until(request.created_at)));
        }
        let position = request.position.map(|position| format!("position {position}"));
        let reason = request.waiting_for.map(|reason| match request.until {
            // How long a reset takes is told by how long the last one took.
            Some(at) if reason == WaitingFor::Resetting => format!("{} until about {}", reason.as_str(), until(at)),
            Some(at) => format!("{} until {}", reason.as_str(), until(at)),
            None => reason.as_str().to_owned(),
        });
        let line: Vec<String> = position.into_iter().chain(reason).collect();
        self.talk(&line.join(", "), output);
    }

    fn talk(&mut self, line: &str, output: &mut Output<'_>) {
        if self.told != line && !line.is_empty() {
            output.talk(line);
            line.clone_into(&mut self.told);
        }
    }

    /// Takes the wish back, and says how that went. `settled` is what came of it at the last moment.
    async fn give_up(&self, settled: Option<RequestView>) -> String {
        let outcome = async {
            match (settled, &self.open) {
                (Some(RequestView { lease: Some(lease), .. }), _) => self.release(&lease).await,
                (Some(_), _) => "nothing was granted".to_owned(),
                (None, Some(id)) => self.cancel(id).await,
                (None, None) => "nobody knows whether it was granted; see `berth lease list`".to_owned(),
            }
        };
        let unknown = "nothing could be taken back in time; see `berth lease list`";
        tokio::time::timeout(self.pace.give_up, outcome).await.unwrap_or_else(|_| unknown.to_owned())
    }

    async fn cancel(&self, id: &RequestId) -> String {
        match self.client.cancel(id).await {
            Ok(()) => format!("cancelled lease request {id}"),
            Err(ClientError::Refused(refusal)) if refusal.code == Code::RequestNotCancellable => {
                let granted = self.client.lease_request(id, Duration::ZERO).await.ok().and_then(|it| it.lease);
                match granted {
                    Some(lease) => self.release(&lease).await,
                    None => format!("lease request {id} was granted just then; see `berth lease list`"),
                }
            }
            Err(ClientError::Refused(refusal)) if refusal.code == Code::UnknownLeaseRequest => {
                format!("lease request {id} is over")
            }
            Err(error) => {
                format!("lease request {id} could not be cancelled ({error}); it ends when nobody asks about it")
            }
        }
    }

    async fn release(&self, lease: &LeaseView) -> String {
        match self.client.release(&lease.id, Some(lease.fence)).await {
            Ok(released) => released.message,
            Err(error) => format!("lease {} could not be released ({error})", lease.id),
        }
    }
}

/// A key that no other command has.
pub(super) fn fresh_key() -> IdempotencyKey {
    format!("cli-{}", uuid::Uuid::new_v4()).parse().expect("the text passes the pattern")
}
