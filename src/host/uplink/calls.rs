//! The gateway's calls: handed to the desk in their order, answered when the desk has answered.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;

use super::Uplink;
use super::claims::{fitting, of_gateway};
use crate::admission::cancel::was_cancelled;
use crate::admission::ticket::TicketKey;
use crate::clock::{Clock, RunTime};
use crate::host::message::{Asked, DeskMessage, Grant, PendingNow, ReleasedNow, ResourceNow, Said, WaiterNow};
use crate::limits::{CALL_BOUND, DISPATCH_BOUND, ELSEWHERE_MAX, WAITERS_PER_FRAME_MAX};
use crate::link::dial::Streams;
use crate::link::{LinkError, serve};
use crate::model::time::{remaining, whole_ms};
use crate::model::{Authority, Refusal, ResourceAddress};
use crate::wire::calendar::CalendarAnswer;
use crate::wire::call::{Answer, Call, Granted};
use crate::wire::report::{LeaseRow, ResourceReport};
use crate::wire::requests::Place;
use crate::wire::room::{RoomAnswer, RoomAsk, WaiterRow};

impl Uplink {
    pub(super) async fn serve_calls(&self, streams: Streams) -> Result<(), LinkError> {
        let (writer, reader) = streams.calls().await?;
        // Every later stream of the gateway's is a tool's.
        tokio::select! {
            ended = serve::serve(writer, reader, |call| self.begin(call)) => ended,
            broken = self.serve_execs(&streams) => broken.map(|never| match never {}),
        }
    }

    /// Hands a call to the desk at once, so that calls keep their order, and returns the way to its answer.
    fn begin(&self, call: Call) -> impl Future<Output = Option<(Answer, u64)>> + Send + 'static + use<> {
        let (clock, tickets) = (self.clock.clone(), Arc::clone(&self.tickets));
        let shown = Shown { begun: clock.now().run, clock, tickets };
        let begun = match self.message(call) {
            Ok((message, begun)) => self.desk.cast(message).ok().map(|()| begun),
            Err(refusal) => Some(Begun::Refused(refusal)),
        };
        async move { begun?.answer(&shown).await }
    }

    /// What the desk is told, and where its answer comes.
    ///
    /// # Errors
    /// What this gateway may not ask, or not like this.
    fn message(&self, call: Call) -> Result<(DeskMessage, Begun), Refusal> {
        let authority = |admin| Authority::Gateway { name: self.gateway.clone(), admin };
        Ok(match call {
            Call::Dispatch(dispatch) => {
                let (ask, origin) = self.checked(dispatch)?;
                let (reply, answer) = port();
                (DeskMessage::Request { ask: Box::new(ask), origin, reply }, Begun::Asked(answer))
            }
            Call::Settle { request, attempt } => {
                let ((reply, answer), gateway) = (port(), self.gateway.clone());
                (DeskMessage::Settle { request, attempt, gateway, reply }, Begun::Settled(answer))
            }
            Call::Cancel { request } => {
                let ((reply, answer), authority) = (port(), authority(false));
                (DeskMessage::Cancel { request, authority, reply }, Begun::Cancelled(answer))
            }
            Call::Look { request } => {
                let ((reply, answer), gateway) = (port(), self.gateway.clone());
                (DeskMessage::Look { request, gateway, reply }, Begun::Looked(answer))
            }
            Call::Renew { lease, fence, ttl_ms, allow_shorter, admin } => {
                let ttl = ttl_ms.map(|ms| self.bounded(ms)).transpose()?;
                let ((reply, answer), authority) = (port(), authority(admin));
                (DeskMessage::Renew { lease, fence, ttl, allow_shorter, authority, reply }, Begun::Renewed(answer))
            }
            Call::Release { lease, fence } => {
                let ((reply, answer), authority) = (port(), authority(false));
                (DeskMessage::Release { lease, fence, authority, reply }, Begun::Released(answer))
            }
            Call::Calendar(call) => {
                let call = fitting(&self.gateway, call)?;
                let (reply, answer) = port();
                (DeskMessage::Calendar(Box::new(call), reply), Begun::Calendar(answer))
            }
            Call::Room(ask) => self.room(ask)?,
            Call::Elsewhere { resources } if resources.len() > ELSEWHERE_MAX => {
                let why = format!("at most {ELSEWHERE_MAX} at a time");
                return Err(Refusal::bad_field("elsewhere.resources", why));
            }
            Call::Elsewhere { resources } => {
                let (reply, answer) = port();
                (DeskMessage::Elsewhere(resources, reply), Begun::Elsewhere(answer))
            }
            Call::DrainWorker { drained } => {
                let (reply, answer) = port();
                (DeskMessage::DrainWorker(drained, reply), Begun::WorkerDrained(answer))
            }
        })
    }

    fn room(&self, ask: RoomAsk) -> Result<(DeskMessage, Begun), Refusal> {
        let bare = |id| ResourceAddress { worker: None, id };
        Ok(match ask {
            RoomAsk::Waiters { resource, after } => {
                let (reply, answer) = port();
                let (after, most) = (usize::try_from(after).unwrap_or(usize::MAX), WAITERS_PER_FRAME_MAX);
                (DeskMessage::Waiters { resource, after, most, reply }, Begun::Waiters(answer))
            }
            RoomAsk::Leave { resource, requester } => {
                of_gateway(&self.gateway, &requester)?;
                let (reply, answer) = port();
                (DeskMessage::Leave { requester, address: bare(resource), reply }, Begun::Left(answer))
            }
            RoomAsk::Clear { resource } => {
                let (reply, answer) = port();
                (DeskMessage::Clear { address: bare(resource), reply }, Begun::Drained(answer))
            }
            RoomAsk::Drain { resource, drained } => {
                let (reply, answer) = port();
                (DeskMessage::Drain { address: bare(resource), drained, reply }, Begun::Drained(answer))
            }
        })
    }
}

type Answered<T> = ractor::concurrency::OneshotReceiver<Said<T>>;

/// A call that the desk has, or that was refused before it came there.
enum Begun {
    Asked(Answered<Asked>),
    Settled(Answered<Option<Grant>>),
    Cancelled(Answered<()>),
    Looked(Answered<PendingNow>),
    Renewed(Answered<Grant>),
    Released(Answered<ReleasedNow>),
    Calendar(Answered<CalendarAnswer>),
    Waiters(Answered<(Vec<WaiterNow>, bool)>),
    Left(Answered<bool>),
    Drained(Answered<(ResourceNow, ResourceReport)>),
    WorkerDrained(Answered<bool>),
    Elsewhere(Answered<()>),
    Refused(Refusal),
}

impl Begun {
    async fn answer(self, shown: &Shown) -> Option<(Answer, u64)> {
        match self {
            Begun::Asked(answer) => said(answer, DISPATCH_BOUND, |asked| shown.asked(asked)).await,
            Begun::Settled(answer) => {
                said(answer, CALL_BOUND, |grant| Answer::Settled(grant.map(|it| shown.granted(it)))).await
            }
            Begun::Cancelled(answer) => said(answer, CALL_BOUND, |()| Answer::Cancelled).await,
            Begun::Looked(answer) => said(answer, CALL_BOUND, |place| Answer::Waiting(shown.place(place))).await,
            Begun::Renewed(answer) => said(answer, CALL_BOUND, |grant| Answer::Renewed(shown.granted(grant))).await,
            Begun::Released(answer) => {
                said(answer, CALL_BOUND, |ended| Answer::Released { admitted: ended.admitted }).await
            }
            Begun::Calendar(answer) => said(answer, CALL_BOUND, |answer| Answer::Calendar(answer.packed())).await,
            Begun::Waiters(answer) => {
                let page = |(waiters, more): (Vec<WaiterNow>, bool)| RoomAnswer::Waiters {
                    waiters: waiters.into_iter().map(waiter_row).collect(),
                    more,
                };
                said(answer, CALL_BOUND, |found| Answer::Room(page(found))).await
            }
            Begun::Left(answer) => said(answer, CALL_BOUND, |left| Answer::Room(RoomAnswer::Left(left))).await,
            Begun::Drained(answer) => {
                said(answer, CALL_BOUND, |(_, report)| Answer::Room(RoomAnswer::Resource(report))).await
            }
            Begun::WorkerDrained(answer) => said(answer, CALL_BOUND, Answer::Drained).await,
            Begun::Elsewhere(answer) => said(answer, CALL_BOUND, |()| Answer::Elsewhere).await,
            Begun::Refused(refusal) => Some((Answer::Refused(refusal), 0)),
        }
    }
}

/// What turns the desk's answers into the gateway's.
struct Shown {
    clock: Clock,
    tickets: Arc<TicketKey>,
    /// When the call came.
    begun: RunTime,
}

impl Shown {
    fn asked(&self, asked: Asked) -> Answer {
        match asked {
            Asked::Granted(grant) => Answer::Granted(self.granted(grant)),
            Asked::Pending(place) => Answer::Waiting(self.place(place)),
            Asked::Cancelled(id) => Answer::Refused(was_cancelled(&id)),
            Asked::Open(id) => {
                tracing::error!(%id, "an answer does not fit a dispatch");
                Answer::Refused(Refusal::internal("the worker's answer does not fit"))
            }
        }
    }

    fn granted(&self, grant: Grant) -> Granted {
        let now = self.clock.now().run;
        Granted {
            resource: grant.lease.resource_id.clone(),
            lease: LeaseRow::new(&grant.lease, grant.deadline.left(now)),
            worked_ms: whole_ms(now.left(self.begun)),
            notices: grant.notices,
            environment: grant.environment,
        }
    }

    fn place(&self, place: PendingNow) -> Place {
        let PendingNow { resource, mode, position, waiting_for, until, place } = place;
        Place {
            request: place.request.clone(),
            resource,
            mode,
            position: position as u64,
            waiting_for,
            until_ms: until.map(|until| whole_ms(remaining(self.clock.now().wall, until))),
            ticket: self.tickets.issue(&place),
        }
    }
}

fn waiter_row(waiter: WaiterNow) -> WaiterRow {
    let WaiterNow { holder, joined_at, last_seen, mode, priority } = waiter;
    WaiterRow { holder, joined_at, last_seen, mode, priority }
}

/// The desk's answer; none when it did not come, and so nobody knows.
async fn said<T>(answer: Answered<T>, bound: Duration, yes: impl FnOnce(T) -> Answer) -> Option<(Answer, u64)> {
    let said = tokio::time::timeout(bound, answer).await.ok()?.ok()?;
    Some((said.result.map_or_else(Answer::Refused, yes), said.number))
}

fn port<T: ractor::Message>() -> (RpcReplyPort<Said<T>>, Answered<T>) {
    let (reply, answer) = ractor::concurrency::oneshot();
    (reply.into(), answer)
}
