//! The worker's side of the link: dial, report, serve calls, and dial again when the link is lost.
//!
//! The first redial comes after 100 ms, each further one after twice as long, up to 5 s, each with jitter in its upper
//! half. Only dials that failed or were refused count: a link that is lost after its first snapshot was taken starts
//! again at 100 ms.
//!
//! The desk is told how the link is, because leases and waiters of the gateway go by that: up, acknowledged, and heard of.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorRef, RpcReplyPort};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::Subscription;
use super::message::{Asked, DeskMessage, Grant, LinkNow, Origin, ReleasedNow, Said};
use super::relay::Relay;
use crate::clock::Clock;
use crate::limits::{BOOKINGS_PER_FRAME_MAX, CALL_BOUND, DISPATCH_BOUND};
use crate::link::dial::{Dialer, Streams, WorkerLink};
use crate::link::{DialError, LinkError, read, serve, write};
use crate::model::{Ask, Authority, Door, NodeName, Refusal, Requester, Target, Ttl, WaitPolicy};
use crate::store::EventLog;
use crate::wire::PROTOCOL;
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall};
use crate::wire::call::{Answer, Call, Dispatch, Granted, Wait};
use crate::wire::hello::Hello;
use crate::wire::report::{Control, Delta, LeaseRow, Report, snapshot};

/// The pause after the first failed dial, and the longest.
const REDIAL_FIRST: Duration = Duration::from_millis(100);
const REDIAL_LONGEST: Duration = Duration::from_secs(5);
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
    /// The widest lease that this worker grants.
    pub max_ttl: Duration,
}

/// Pauses between dials.
#[derive(Debug, Default)]
struct Redial {
    failures: u32,
}

impl Redial {
    /// The next pause. `random` is uniform over all 32-bit numbers.
    fn pause(&mut self, random: u32) -> Duration {
        let base = REDIAL_FIRST.saturating_mul(1 << self.failures.min(10)).min(REDIAL_LONGEST);
        self.failures = self.failures.saturating_add(1);
        base / 2 + (base / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// The longest pause from now on.
    fn slow(&mut self) {
        self.failures = self.failures.max(10);
    }
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

    /// Takes the whole worker out, or brings it back, as the gateway's welcome says.
    async fn obey(&self, drained: bool) -> Result<(), LinkError> {
        let (reply, answer) = port();
        let _ = self.desk.cast(DeskMessage::DrainWorker(drained, reply));
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
        let mut deltas = self.send_snapshot(&streams).await?;
        let mut relay = Relay::start(self.events.clone(), link.events_after);
        loop {
            tokio::select! {
                said = read::<Control>(&mut link.control) => match said? {
                    Some(Control::Taken { number }) => {
                        tracing::debug!(number, "the gateway has taken a snapshot in");
                        *taken = true;
                        self.tell(LinkNow::Acknowledged);
                    }
                    Some(Control::Resync) => deltas = self.send_snapshot(&streams).await?,
                    Some(Control::EventsTaken { seq }) => relay.taken(seq),
                    None => return Ok(()),
                },
                delta = deltas.recv() => match delta {
                    Some(delta) => write(&mut link.reports, &Report::Delta(delta)).await?,
                    // We were too slow: the whole picture takes the place of what was missed.
                    None => deltas = self.send_snapshot(&streams).await?,
                },
                page = relay.page() => write(&mut link.reports, &Report::Events(page)).await?,
            }
        }
    }

    async fn send_snapshot(&self, streams: &Streams) -> Result<mpsc::Receiver<Delta>, LinkError> {
        let Subscription { incarnation, number, resources, deltas } = self.subscribe().await?;
        streams.send_snapshot(snapshot(incarnation, number, &resources, &[], &[])?).await?;
        Ok(deltas)
    }

    async fn serve_calls(&self, streams: Streams) -> Result<(), LinkError> {
        let (writer, reader) = streams.calls().await?;
        serve::serve(writer, reader, |call| self.begin(call)).await
    }

    /// Hands a call to the desk at once, so that calls keep their order, and returns the way to its answer.
    fn begin(&self, call: Call) -> impl Future<Output = Option<(Answer, u64)>> + Send + 'static + use<> {
        let clock = self.clock.clone();
        let begun = self.hand_over(call);
        async move { begun?.answer(&clock).await }
    }

    fn hand_over(&self, call: Call) -> Option<Begun> {
        let authority = |admin| Authority::Gateway { name: self.gateway.clone(), admin };
        let (message, begun) = match call {
            Call::Dispatch(dispatch) => match self.checked(dispatch) {
                Ok((ask, origin)) => {
                    let (reply, answer) = port();
                    (DeskMessage::Request { ask: Box::new(ask), origin, reply }, Begun::Granted(answer))
                }
                Err(refusal) => return Some(Begun::Refused(refusal)),
            },
            Call::Settle { request, attempt } => {
                let (reply, answer) = port();
                (DeskMessage::Settle { request, attempt, reply }, Begun::Settled(answer))
            }
            Call::Renew { lease, fence, ttl_ms, allow_shorter, admin } => {
                let ttl = match ttl_ms.map(|ms| self.bounded(ms)).transpose() {
                    Ok(ttl) => ttl,
                    Err(refusal) => return Some(Begun::Refused(refusal)),
                };
                let (reply, answer) = port();
                let authority = authority(admin);
                (DeskMessage::Renew { lease, fence, ttl, allow_shorter, authority, reply }, Begun::Renewed(answer))
            }
            Call::Calendar(call) => match fitting(&self.gateway, call) {
                Ok(call) => {
                    let (reply, answer) = port();
                    (DeskMessage::Calendar(Box::new(call), reply), Begun::Calendar(answer))
                }
                Err(refusal) => return Some(Begun::Refused(refusal)),
            },
            Call::Cancel { .. } | Call::Look { .. } | Call::Room(_) | Call::DrainWorker { .. } => {
                return Some(Begun::Refused(Refusal::new(crate::model::Code::UnsupportedOnWorker, "not served here")));
            }
            Call::Release { lease, fence } => {
                let (reply, answer) = port();
                let authority = authority(false);
                (DeskMessage::Release { lease, fence, authority, reply }, Begun::Released(answer))
            }
        };
        self.desk.cast(message).ok()?;
        Some(begun)
    }

    /// What arrives is a claim: only this gateway's own requesters, and only what this worker's rules allow.
    fn checked(&self, dispatch: Dispatch) -> Result<(Ask, Origin), Refusal> {
        let Dispatch {
            request,
            attempt,
            door,
            requester,
            target,
            mode,
            ttl_ms,
            lease_id,
            note,
            key,
            fingerprint,
            allow_shorter,
            admin,
            priority,
            wait,
            ticket,
            left_out,
        } = dispatch;
        of_gateway(&self.gateway, &requester)?;
        if let Target::Resource(address) = &target
            && address.worker.is_some()
        {
            return Err(Refusal::bad_field("target", "a worker takes the bare id of a resource"));
        }
        let ttl = self.bounded(ttl_ms)?;
        let by_name = matches!(target, Target::Resource(_));
        let wait = match (wait, door) {
            (Wait::Never, Door::Acquire) => WaitPolicy::Fail,
            (Wait::Never, Door::Request) => WaitPolicy::NoWait,
            (Wait::Attended { timeout_ms }, _) if by_name => {
                WaitPolicy::Wait { timeout: timeout_ms.map(Duration::from_millis) }
            }
            (Wait::Unattended, _) if by_name => WaitPolicy::JoinWaitingRoom,
            _ => return Err(Refusal::bad_field("wait", "only a request by name waits at a worker")),
        };
        let id = request;
        let ask = Ask {
            id,
            door,
            requester,
            target,
            mode,
            ttl,
            priority,
            lease_id,
            wait,
            note,
            key,
            ticket,
            allow_shorter,
            by_admin: admin,
            left_out,
        };
        Ok((ask, Origin::Gateway { attempt, fingerprint }))
    }

    fn bounded(&self, ttl_ms: u64) -> Result<Duration, Refusal> {
        let ttl = Ttl::try_from(ttl_ms).map_err(|error| Refusal::bad_field("ttlMs", error))?.duration();
        if ttl > self.max_ttl {
            let most = self.max_ttl.as_millis();
            return Err(Refusal::bad_field("ttlMs", format!("at most {most} on this worker (lease.max_ttl)")));
        }
        Ok(ttl)
    }
}

/// Only this gateway's own requesters ask for calendars, and a page is no longer than what fits a frame.
fn fitting(gateway: &NodeName, mut call: CalendarCall) -> Result<CalendarCall, Refusal> {
    of_gateway(gateway, &call.asker.requester)?;
    if let CalendarAsk::Bookings { limit, .. } = &mut call.ask {
        *limit = (*limit).clamp(1, BOOKINGS_PER_FRAME_MAX);
    }
    Ok(call)
}

fn of_gateway(gateway: &NodeName, requester: &Requester) -> Result<(), Refusal> {
    if requester.via.as_ref() == Some(gateway) {
        return Ok(());
    }
    let own = requester.through(gateway);
    Err(Refusal::bad_field("requester", format!("this gateway speaks for {own} and the like only")))
}

type Answered<T> = ractor::concurrency::OneshotReceiver<Said<T>>;

/// A call that the desk has, or that was refused before it came there.
enum Begun {
    Granted(Answered<Asked>),
    Settled(Answered<Option<Grant>>),
    Renewed(Answered<Grant>),
    Released(Answered<ReleasedNow>),
    Calendar(Answered<CalendarAnswer>),
    Refused(Refusal),
}

impl Begun {
    async fn answer(self, clock: &Clock) -> Option<(Answer, u64)> {
        let row = |grant: Grant| Granted {
            resource: grant.lease.resource_id.clone(),
            lease: LeaseRow::new(&grant.lease, grant.deadline.left(clock.now().run)),
        };
        match self {
            Begun::Granted(answer) => {
                let granted = |asked| match asked {
                    Asked::Granted(grant) => Answer::Granted(row(grant)),
                    // A gateway asks without waiting, so there is nothing else to hear.
                    other => {
                        tracing::error!(?other, "an answer does not fit a dispatch");
                        Answer::Refused(Refusal::internal("the worker's answer does not fit"))
                    }
                };
                said(answer, DISPATCH_BOUND, granted).await
            }
            Begun::Settled(answer) => said(answer, CALL_BOUND, |grant| Answer::Settled(grant.map(row))).await,
            Begun::Renewed(answer) => said(answer, CALL_BOUND, |grant| Answer::Renewed(row(grant))).await,
            Begun::Released(answer) => {
                said(answer, CALL_BOUND, |ended| Answer::Released { admitted: ended.admitted }).await
            }
            Begun::Calendar(answer) => said(answer, CALL_BOUND, |answer| Answer::Calendar(answer.packed())).await,
            Begun::Refused(refusal) => Some((Answer::Refused(refusal), 0)),
        }
    }
}

/// The desk's answer; none when it did not come, and so nobody knows.
async fn said<T>(answer: Answered<T>, bound: Duration, yes: impl FnOnce(T) -> Answer) -> Option<(Answer, u64)> {
    let said = tokio::time::timeout(bound, answer).await.ok()?.ok()?;
    Some((said.result.map_or_else(Answer::Refused, yes), said.number))
}

fn ended_a_stream() -> LinkError {
    LinkError::Protocol("the gateway ended a stream of the link".to_owned())
}

fn port<T: ractor::Message>() -> (RpcReplyPort<Said<T>>, Answered<T>) {
    let (reply, answer) = ractor::concurrency::oneshot();
    (reply.into(), answer)
}

/// An error with what is behind it, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| format!("{line}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Asker, BookingFilter, Code, Role};

    #[test]
    fn a_gateway_asks_for_calendars_in_the_name_of_its_own_requesters_only() {
        let call = |requester: &str, limit| CalendarCall {
            asker: Asker { requester: requester.parse().unwrap(), role: Role::Admin },
            ask: CalendarAsk::Bookings { resource: None, filter: BookingFilter::default(), limit },
        };
        let gateway: NodeName = "gateway".parse().unwrap();
        for other in ["admin", "ci/job-1", "gw:gateway-2:admin"] {
            assert_eq!(fitting(&gateway, call(other, 1)).unwrap_err().code, Code::BadRequest, "{other}");
        }
        for (asked, given) in [(0, 1), (7, 7), (usize::MAX, BOOKINGS_PER_FRAME_MAX)] {
            let fits = fitting(&gateway, call("gw:gateway:ci", asked)).unwrap();
            assert!(matches!(fits.ask, CalendarAsk::Bookings { limit, .. } if limit == given), "{fits:?}");
        }
    }

    #[test]
    fn redials_double_up_to_five_seconds_with_jitter_in_the_upper_half() {
        let mut redial = Redial::default();
        for expected in [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let expected = Duration::from_millis(expected);
            let least = Redial { failures: redial.failures }.pause(0);
            assert_eq!(least, expected / 2);
            assert_eq!(redial.pause(u32::MAX), expected);
        }
    }
}
