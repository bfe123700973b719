//! The worker's side of the link: dial, report, serve calls, and dial again when the link is lost.
//!
//! Only dials that failed or were refused make the pause before the next one longer: a link that is lost after its first
//! snapshot was taken starts again at 100 ms.
//!
//! The desk is told how the link is, because leases and waiters of the gateway go by that: up, acknowledged, and heard of.

mod calls;
mod claims;
mod execs;
mod redial;
mod standing;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use self::redial::Redial;
pub use self::standing::{Linked, Standing, Standings};
use super::Subscription;
use super::exec::ExecDoor;
use super::message::{DeskMessage, LinkNow, Said};
use super::relay::Relay;
use crate::admission::LiveRules;
use crate::admission::ticket::TicketKey;
use crate::clock::Clock;
use crate::link::dial::{Dialer, Streams, WorkerLink};
use crate::link::{Denial, DialError, LinkError, read, write};
use crate::model::NodeName;
use crate::store::EventLog;
use crate::wire::PROTOCOL;
use crate::wire::hello::Hello;
use crate::wire::report::{Control, Report, snapshot};

/// How often the gateway is told what everything comes to.
const DIGEST_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked whether the gateway has been heard. It gives a sign of life every 500 ms, so that a lease ends
/// within a second of its deadline.
const HEARD_EVERY: Duration = Duration::from_millis(200);
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
    /// What happens on this node.
    pub events: EventLog,
    /// Which life of the node this is.
    pub incarnation: u64,
    /// Where the time comes from.
    pub clock: Clock,
    /// The operator's numbers as they are now.
    pub rules: Arc<LiveRules>,
    /// Signs the places in line that are given out.
    pub tickets: Arc<TicketKey>,
    /// Where it says how it stands with the gateway.
    pub standings: Standings,
    /// Where tools are asked for.
    pub execs: ExecDoor,
}

impl Uplink {
    /// Keeps the link up until the future is dropped.
    pub async fn run(&self, run: Uuid) {
        let mut redial = Redial::default();
        loop {
            match self.dial(run).await {
                Ok(link) => {
                    tracing::info!(gateway = %self.gateway, address = %self.address, "linked to the gateway");
                    self.standings.connected(&self.clock);
                    let mut taken = false;
                    let ended = chain(&self.keep(link, &mut taken).await);
                    tracing::warn!(gateway = %self.gateway, "lost the gateway: {ended}");
                    self.standings.lost(ended, &self.clock);
                    if taken {
                        redial = Redial::default();
                    }
                }
                Err(error) => {
                    if matches!(error, DialError::Incompatible { .. }) {
                        redial.slow();
                    }
                    let why = Denial::of(&error).map_or_else(|| chain(&error), |denial| denial.to_string());
                    // Said once for each reason, not for each dial.
                    if self.standings.failed(&error, why.clone(), &self.clock) {
                        tracing::warn!(gateway = %self.gateway, address = %self.address, "no link: {why}");
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
        let _ = self.desk.cast(DeskMessage::Subscribe(self.gateway.clone(), reply.into()));
        match tokio::time::timeout(DESK_BOUND, answer).await {
            Ok(Ok(subscription)) => Ok(subscription),
            _ => Err(LinkError::Timeout),
        }
    }

    /// Reports and serves until the link is lost. `taken` is set once the gateway has taken a snapshot in.
    async fn keep(&self, link: WorkerLink, taken: &mut bool) -> LinkError {
        let streams = link.streams();
        self.tell(LinkNow::Up);
        let drained = link.drained;
        let work = async {
            self.obey(drained).await?;
            tokio::try_join!(self.serve_calls(streams.clone()), self.report(link, streams.clone(), taken)).map(drop)
        };
        let error = tokio::select! {
            closed = streams.closed() => closed.into(),
            ended = work => ended.err().unwrap_or_else(ended_a_stream),
            never = self.hear(&streams) => match never {},
        };
        streams.close("the worker gives this link up");
        self.tell(LinkNow::Down);
        error
    }

    /// Takes the whole worker out, or brings it back, as the gateway's welcome says; that is stored before anything else.
    async fn obey(&self, drained: bool) -> Result<(), LinkError> {
        let (reply, answer) = ractor::concurrency::oneshot();
        let _ = self.desk.cast(DeskMessage::DrainWorker(drained, reply.into()));
        match tokio::time::timeout(DESK_BOUND, answer).await {
            Ok(Ok(Said { result: Ok(_), .. })) => Ok(()),
            Ok(Ok(Said { result: Err(refusal), .. })) => {
                tracing::error!(gateway = %self.gateway, drained, %refusal, "the worker's drain is not as the gateway says");
                Err(LinkError::Protocol("the worker cannot store what the gateway's welcome says".to_owned()))
            }
            _ => Err(LinkError::Timeout),
        }
    }

    /// Tells the desk whenever something has been received, as long as the link lasts.
    async fn hear(&self, streams: &Streams) -> Infallible {
        // What is counted for the first time now has come after the count before.
        let (mut since, mut counted) = (self.clock.now().run, streams.received());
        loop {
            tokio::time::sleep(HEARD_EVERY).await;
            let (now, received) = (self.clock.now().run, streams.received());
            if received != counted {
                self.tell(LinkNow::Heard(since));
            }
            (since, counted) = (now, received);
        }
    }

    fn tell(&self, now: LinkNow) {
        // A desk that is gone takes the whole node with it.
        let _ = self.desk.cast(DeskMessage::Link(now));
    }

    async fn report(&self, mut link: WorkerLink, streams: Streams, taken: &mut bool) -> Result<(), LinkError> {
        let mut reports = self.send_snapshot(&streams).await?;
        let mut relay = Relay::start(self.events.clone(), link.events_after);
        let mut digests = tokio::time::interval(DIGEST_EVERY);
        digests.set_missed_tick_behavior(MissedTickBehavior::Delay);
        digests.reset();
        loop {
            tokio::select! {
                said = read::<Control>(&mut link.control) => match said? {
                    Some(Control::Taken { number }) => {
                        tracing::debug!(number, "the gateway has taken a snapshot in");
                        *taken = true;
                        self.tell(LinkNow::Acknowledged);
                    }
                    Some(Control::Resync) => reports = self.send_snapshot(&streams).await?,
                    Some(Control::EventsTaken { seq }) => relay.taken(seq),
                    None => return Ok(()),
                },
                report = reports.recv() => match report {
                    Some(report) => write(&mut link.reports, &report).await?,
                    // We were too slow: the whole picture takes the place of what was missed.
                    None => reports = self.send_snapshot(&streams).await?,
                },
                page = relay.page() => write(&mut link.reports, &Report::Events(page)).await?,
                // It comes back among the reports, behind the changes that are in it.
                _ = digests.tick() => drop(self.desk.cast(DeskMessage::Digest)),
            }
        }
    }

    async fn send_snapshot(&self, streams: &Streams) -> Result<mpsc::Receiver<Report>, LinkError> {
        let Subscription { incarnation, number, resources, waiting, settled, reports } = self.subscribe().await?;
        streams.send_snapshot(snapshot(incarnation, number, &resources, &waiting, &settled)?).await?;
        Ok(reports)
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
