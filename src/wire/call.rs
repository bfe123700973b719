//! Short calls from the gateway to a worker, on one stream.
//!
//! The gateway sends [`CallFrame`]s, the worker answers each with one [`AnswerFrame`] of the same `id`. Calls are
//! carried out in the order in which they were sent; answers may overtake each other. At most 1 024 calls are
//! unanswered at a time. Each answer carries the number of the delta with its effect, or of the last before it when it had
//! none, so the gateway knows which report already contains it.
//!
//! - [`Call::Dispatch`] asks for a lease. The worker deduplicates by `request` and `attempt` and by nothing else.
//!   Answer: `granted` or `refused`. By selector there is no waiting: what cannot be granted now is refused. By name the
//!   request may wait there ([`Wait`]): answer `waiting`. How such a wait ends comes as a report, never as a late answer.
//!   What a refusal's code makes the gateway do with a request by selector: `NO_CAPACITY`, `RESOURCE_BOOKED` and
//!   `QUEUE_FULL` put it back into the queue, and this worker is asked again when it reports room; so does the first
//!   `DEVICE_FAILED`, where there is another match;
//!   `NO_MATCHING_RESOURCE` rules the worker out until its resources change. By either: `STOPPING` counts as not sent, and any
//!   other code ends the request with it. By name a worker without room says `RESOURCE_UNAVAILABLE` at the door `acquire` and
//!   `NO_CAPACITY` at the door `request`, and `UNKNOWN_RESOURCE` for what it does not have.
//!   A dispatch of an attempt that was settled as refused, or of a request that holds a lease here under another attempt, is
//!   refused with `STOPPING`.
//! - [`Call::Settle`] asks what became of a dispatch whose answer was lost. The worker takes it in the order of its own
//!   work: a lease that the attempt got is answered as `settled` with the lease; else the attempt and those before it are
//!   refused from then on, should they still arrive, and the answer is `settled` with nil. One that waits is taken out of
//!   the waiting room.
//! - [`Call::Cancel`] takes a request that waits out of the waiting room. Answer: `cancelled` or `refused`.
//! - [`Call::Look`] asks where a request stands that waits, which keeps it alive. Answer: `waiting`, or `refused` with
//!   `UNKNOWN_LEASE_REQUEST` when it does not wait (any more).
//! - [`Call::Room`] asks for a waiting room, takes an unattended waiter out, drains a resource ([`room`](super::room)).
//!   Answer: `room` or `refused`.
//! - [`Call::DrainWorker`] takes the whole worker out, or brings it back; the worker stores it. Answer: `drained`.
//! - [`Call::Elsewhere`] names the resources whose device another worker has leased, all that there are. The worker holds
//!   these absent, in memory only, until it is told another list, until 60 s after the link was lost unless the next link says
//!   it again, or until it starts anew. A new link begins with nothing told. Answer: `elsewhere`.
//! - [`Call::Renew`], [`Call::Release`] name a lease by the worker's own id. Only leases that this gateway asked for
//!   can be named. Answers: `renewed`, `released`, `refused`.
//! - [`Call::Calendar`] asks for bookings and holds ([`calendar`](super::calendar)). Who asks is one of this gateway's own
//!   requesters; any other is refused. Answer: `calendar` or `refused`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::calendar::{CalendarAnswer, CalendarCall};
use super::report::{LeaseRow, is_zero};
use super::requests::Place;
use super::room::{RoomAnswer, RoomAsk};
use crate::model::{
    ChosenLeaseId, Door, Fence, Fingerprint, IdempotencyKey, LeaseId, LeftOut, Mode, NodeName, Note, Notice, Priority,
    Refusal, RequestId, Requester, ResourceId, Target, Ticket,
};

/// A call with its correlation id, which the gateway never uses twice on one link.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallFrame {
    /// Comes back with the answer.
    pub id: u64,
    /// What is asked.
    pub call: Call,
}

/// The part of a [`CallFrame`] that every version can read.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CallFrameId {
    /// Comes back with the answer.
    pub id: u64,
}

/// What the gateway asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Call {
    /// Lease something to a requester of the gateway's.
    Dispatch(Dispatch),
    /// What became of a dispatch?
    #[serde(rename_all = "camelCase")]
    Settle {
        /// The request.
        request: RequestId,
        /// The attempt whose answer was lost.
        attempt: u32,
    },
    /// Move a lease's deadline.
    #[serde(rename_all = "camelCase")]
    Renew {
        /// The worker's own name of it.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
        /// A new width, in ms.
        ttl_ms: Option<u64>,
        /// Rather a shorter renewal than none, where a booking is in the way.
        #[serde(default)]
        allow_shorter: bool,
        /// True when an admin of the gateway's asks, whom the bookings of others do not stop.
        #[serde(default)]
        admin: bool,
    },
    /// End a lease.
    Release {
        /// The worker's own name of it.
        lease: LeaseId,
        /// The grant that is meant.
        fence: Option<Fence>,
    },
    /// Something about bookings and holds.
    Calendar(CalendarCall),
    /// Take a request out that waits.
    Cancel {
        /// The request.
        request: RequestId,
    },
    /// Where does a request stand that waits?
    Look {
        /// The request.
        request: RequestId,
    },
    /// Something about a waiting room, or draining.
    Room(RoomAsk),
    /// Take the whole worker out, or bring it back.
    DrainWorker {
        /// Which of the two.
        drained: bool,
    },
    /// Of these resources another worker has leased the device; of no others.
    Elsewhere {
        /// With which worker that is; at most [`ELSEWHERE_MAX`](crate::limits::ELSEWHERE_MAX).
        resources: BTreeMap<ResourceId, NodeName>,
    },
}

/// A lease request, one attempt on one worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    /// The gateway's request.
    pub request: RequestId,
    /// Counts the dispatches of this request, over all workers, from 1.
    pub attempt: u32,
    /// Where the request came in at the gateway.
    pub door: Door,
    /// `gw:<gateway>:<requester>`; the worker refuses any other gateway's name than that of the link.
    pub requester: Requester,
    /// What it asks for; a resource without its worker's name.
    pub target: Target,
    /// Alone or shared.
    pub mode: Mode,
    /// The lease's width, in ms.
    pub ttl_ms: u64,
    /// The id that the requester chose for the lease.
    pub lease_id: Option<ChosenLeaseId>,
    /// Free text for the lease.
    pub note: Option<Note>,
    /// The requester's key; kept with the lease and reported, never compared.
    pub key: Option<IdempotencyKey>,
    /// What the key stands for at the gateway.
    pub fingerprint: Fingerprint,
    /// Rather a shorter lease than none, where a booking is in the way.
    #[serde(default)]
    pub allow_shorter: bool,
    /// True when an admin of the gateway's asks, whom the bookings of others do not stop.
    #[serde(default)]
    pub admin: bool,
    /// Its rank, should it wait there.
    #[serde(default)]
    pub priority: Priority,
    /// Whether it waits there.
    #[serde(default)]
    pub wait: Wait,
    /// A place in line from an earlier run of the worker.
    #[serde(default)]
    pub ticket: Option<Ticket>,
    /// What the caller left to the node; an unattended waiter that asks again keeps it as it was.
    #[serde(default)]
    pub left_out: LeftOut,
    /// The device of the worker's that could not be made ready for it before; it is not given that one again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_on: Option<ResourceId>,
}

/// Whether a dispatch waits at the worker. Only one by name may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Wait {
    /// It is granted or refused now.
    #[default]
    Never,
    /// It waits until the worker grants it its lease.
    #[serde(rename_all = "camelCase")]
    Attended {
        /// At most so long, in ms; none for as long as it takes.
        timeout_ms: Option<u64>,
    },
    /// It stands in the waiting room, asks again, and is admitted.
    Unattended,
}

/// An answer with its correlation id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AnswerFrame {
    /// The call's.
    pub id: u64,
    /// The number of the delta with the effect.
    pub number: u64,
    /// What came of it.
    pub answer: Answer,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// A lease was granted.
    Granted(Granted),
    /// A dispatch is settled: with this lease, or with none for good.
    Settled(Option<Granted>),
    /// The lease was renewed.
    Renewed(Granted),
    /// It waits.
    Waiting(Place),
    /// It waits no more.
    Cancelled,
    /// The lease is over.
    Released {
        /// The holder that was taken first from those who wait.
        admitted: Option<Requester>,
    },
    /// What came of a waiting room, or of draining.
    Room(RoomAnswer),
    /// Whether the whole worker is out.
    Drained(bool),
    /// What is leased elsewhere is held back.
    Elsewhere,
    /// What a calendar has answered, packed.
    Calendar(CalendarAnswer),
    /// No.
    Refused(Refusal),
}

impl Answer {
    /// Takes the time since the call was sent off what the answer's lease has left. The answer may have been on its way
    /// for all of it: nobody is promised more than the worker will keep.
    pub fn age(&mut self, by: Duration) {
        match self {
            Answer::Granted(granted) | Answer::Settled(Some(granted)) | Answer::Renewed(granted) => {
                granted.lease.age(by.saturating_sub(Duration::from_millis(granted.worked_ms)))
            }
            Answer::Room(RoomAnswer::Resource(report)) => report.leases.iter_mut().for_each(|lease| lease.age(by)),
            Answer::Settled(None)
            | Answer::Waiting(_)
            | Answer::Cancelled
            | Answer::Released { .. }
            | Answer::Room(_)
            | Answer::Drained(_)
            | Answer::Elsewhere
            | Answer::Calendar(_)
            | Answer::Refused(_) => {}
        }
    }
}

/// A lease and what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    /// The resource.
    pub resource: ResourceId,
    /// The lease.
    pub lease: LeaseRow,
    /// How long the worker had the call before it answered, in ms: a device may have been made ready meanwhile. What the
    /// lease has left counts from the answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub worked_ms: u64,
    /// What happened to the device since the lease was renewed last; with a renewal only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// What a holder needs to reach the device.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::LeaseRecord;

    /// How long a lease of 60 s has to run whose worker says so, and which is answered so long after it was asked for.
    fn left(left: Duration, worked: Duration, after: Duration) -> Duration {
        let resource: ResourceId = "board".parse().unwrap();
        let target = Target::Resource("board".parse().unwrap());
        let lease = LeaseRecord {
            id: "lse_1".parse().unwrap(),
            request_id: RequestId::generate(),
            resource_id: resource.clone(),
            mode: Mode::Exclusive,
            holder: "gw:gateway:ci".parse().unwrap(),
            granted_at: jiff::Timestamp::UNIX_EPOCH,
            renewed_at: jiff::Timestamp::UNIX_EPOCH,
            ttl: Duration::from_secs(60),
            fence: Fence(1),
            note: None,
            id_chosen_by_requester: false,
            idempotency_key: None,
            fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
            asked_ttl: None,
        };
        let worked_ms = u64::try_from(worked.as_millis()).unwrap_or(u64::MAX);
        let mut answer = Answer::Granted(Granted {
            resource: resource.clone(),
            lease: LeaseRow::new(&lease, left),
            worked_ms,
            notices: Vec::new(),
            environment: BTreeMap::new(),
        });
        answer.age(after);
        let Answer::Granted(granted) = answer else { unreachable!() };
        granted.lease.into_lease(&resource).1
    }

    #[test]
    fn a_lease_is_not_shorter_for_the_time_in_which_its_device_was_made_ready() {
        let s = Duration::from_secs;
        assert_eq!(left(s(60), s(0), s(2)), s(58), "the answer may have been on its way for all of it");
        assert_eq!(left(s(60), s(60), s(62)), s(58));
        assert_eq!(left(s(60), s(60), s(60)), s(60));
    }

    #[test]
    fn no_worker_makes_a_lease_last_longer_than_its_width_from_now() {
        let s = Duration::from_secs;
        assert_eq!(left(s(60), Duration::MAX, s(5)), s(60), "it says that it has worked for ever");
        assert_eq!(left(s(9_999), s(0), s(5)), s(60), "it says that more is left than there was");
        assert_eq!(left(s(60), s(0), Duration::MAX), s(0));
    }
}
