//! The gateway's calls: handed to the desk in their order, answered when the desk has answered.

use std::future::Future;
use std::time::Duration;

use ractor::RpcReplyPort;

use super::Uplink;
use super::claims::fitting;
use crate::clock::Clock;
use crate::host::message::{Asked, DeskMessage, Grant, ReleasedNow, Said};
use crate::limits::{CALL_BOUND, DISPATCH_BOUND};
use crate::link::dial::Streams;
use crate::link::{LinkError, serve};
use crate::model::{Authority, Refusal};
use crate::wire::calendar::CalendarAnswer;
use crate::wire::call::{Answer, Call, Granted};
use crate::wire::report::LeaseRow;

impl Uplink {
    pub(super) async fn serve_calls(&self, streams: Streams) -> Result<(), LinkError> {
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

fn port<T: ractor::Message>() -> (RpcReplyPort<Said<T>>, Answered<T>) {
    let (reply, answer) = ractor::concurrency::oneshot();
    (reply.into(), answer)
}
