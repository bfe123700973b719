//! The worker's side of the link: dial, report, serve calls, and dial again when the link is lost.
//!
//! Only dials that failed or were refused make the pause before the next one longer: a link that is lost after its first
//! snapshot was taken starts again at 100 ms.

mod calls;
mod claims;
mod redial;

use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::mpsc;
use uuid::Uuid;

use self::redial::Redial;
use super::Subscription;
use super::message::DeskMessage;
use crate::clock::Clock;
use crate::link::dial::{Dialer, Streams, WorkerLink};
use crate::link::{DialError, LinkError, read, write};
use crate::model::NodeName;
use crate::wire::PROTOCOL;
use crate::wire::hello::Hello;
use crate::wire::report::{Control, Delta, Report, snapshot};

/// How long the desk has for an answer that it can give at once.
const DESK_BOUND: Duration = Duration::from_secs(10);

/// What an uplink is started with.
#[derive(Debug)]
pub struct Uplink {
    /// Dials the gateway.
    pub dialer: Arc<Dialer>,
    /// Where it is dialled.
    pub address: String,
    /// Its name; the only one that this worker takes calls from.
    pub gateway: NodeName,
    /// This node's desk.
    pub desk: ActorRef<DeskMessage>,
    /// Which life of the node this is.
    pub incarnation: u64,
    /// Where the time comes from.
    pub clock: Clock,
    /// The widest lease that this worker grants.
    pub max_ttl: Duration,
}

impl Uplink {
    /// Keeps the link up until the future is dropped.
    pub async fn run(&self, run: Uuid) {
        let mut redial = Redial::default();
        let mut told = false;
        loop {
            match self.dial(run).await {
                Ok(link) => {
                    tracing::info!(gateway = %self.gateway, address = %self.address, "linked to the gateway");
                    told = false;
                    let mut taken = false;
                    let ended = self.keep(link, &mut taken).await;
                    tracing::warn!(gateway = %self.gateway, "lost the gateway: {}", chain(&ended));
                    if taken {
                        redial = Redial::default();
                    }
                }
                Err(error) => {
                    if matches!(error, DialError::Incompatible { .. }) {
                        redial.slow();
                    }
                    // Said once for each time the gateway goes away, not for each dial.
                    if !told {
                        tracing::warn!(gateway = %self.gateway, address = %self.address, "no link: {}", chain(&error));
                        told = true;
                    } else {
                        tracing::debug!(gateway = %self.gateway, "no link: {}", chain(&error));
                    }
                }
            }
            let random = u32::from_be_bytes(Uuid::new_v4().into_bytes()[..4].try_into().expect("four bytes"));
            tokio::time::sleep(redial.pause(random)).await;
        }
    }

    async fn dial(&self, run: Uuid) -> Result<WorkerLink, DialError> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Hello { protocol: PROTOCOL, version, run, incarnation: self.incarnation };
        self.dialer.dial(&self.address, &hello).await
    }

    async fn subscribe(&self) -> Result<Subscription, LinkError> {
        let (reply, answer) = ractor::concurrency::oneshot();
        let _ = self.desk.cast(DeskMessage::Subscribe(reply.into()));
        match tokio::time::timeout(DESK_BOUND, answer).await {
            Ok(Ok(subscription)) => Ok(subscription),
            _ => Err(LinkError::Timeout),
        }
    }

    /// Reports and serves until the link is lost. `taken` is set once the gateway has taken a snapshot in.
    async fn keep(&self, link: WorkerLink, taken: &mut bool) -> LinkError {
        let streams = link.streams();
        let calls = self.serve_calls(streams.clone());
        let reports = self.report(link, streams.clone(), taken);
        let error = tokio::select! {
            closed = streams.closed() => closed.into(),
            ended = calls => ended.err().unwrap_or_else(ended_a_stream),
            ended = reports => ended.err().unwrap_or_else(ended_a_stream),
        };
        streams.close("the worker gives this link up");
        error
    }

    async fn report(&self, mut link: WorkerLink, streams: Streams, taken: &mut bool) -> Result<(), LinkError> {
        let mut deltas = self.send_snapshot(&streams).await?;
        loop {
            tokio::select! {
                said = read::<Control>(&mut link.control) => match said? {
                    Some(Control::Taken { number }) => {
                        tracing::debug!(number, "the gateway has taken a snapshot in");
                        *taken = true;
                    }
                    Some(Control::Resync) => deltas = self.send_snapshot(&streams).await?,
                    Some(Control::EventsTaken { seq }) => tracing::trace!(seq, "the gateway has events"),
                    None => return Ok(()),
                },
                delta = deltas.recv() => match delta {
                    Some(delta) => write(&mut link.reports, &Report::Delta(delta)).await?,
                    // We were too slow: the whole picture takes the place of what was missed.
                    None => deltas = self.send_snapshot(&streams).await?,
                },
            }
        }
    }

    async fn send_snapshot(&self, streams: &Streams) -> Result<mpsc::Receiver<Delta>, LinkError> {
        let Subscription { incarnation, number, resources, deltas } = self.subscribe().await?;
        streams.send_snapshot(snapshot(incarnation, number, &resources, &[], &[])?).await?;
        Ok(deltas)
    }
}

fn ended_a_stream() -> LinkError {
    LinkError::Protocol("the gateway ended a stream of the link".to_owned())
}

/// An error with what is behind it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}
