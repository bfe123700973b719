//! What happened, for those who want to know later (SPEC §10).
//!
//! The names and the fields of each payload are one table, [`EventKind`]; the README shows the same table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::id::InvalidId;
use super::{LeaseId, Requester};

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $word:literal, [$($field:literal),*];)*) => {
        /// What kind of thing happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventKind {
            $($(#[$doc])* $name,)*
        }

        impl EventKind {
            /// Every kind there is.
            pub const ALL: &'static [EventKind] = &[$(EventKind::$name),*];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(EventKind::$name => $word,)* }
            }

            /// The fields that a payload may have; one that ends in `?` may be absent.
            pub fn fields(self) -> &'static [&'static str] {
                match self { $(EventKind::$name => &[$($field),*],)* }
            }
        }
    };
}

events! {
    /// A lease request passed the checks.
    LeaseRequested = "lease.requested", ["requestId", "requester", "requestSpec", "waitPolicy"];
    /// It waits.
    LeaseQueued = "lease.queued", ["requestId", "position"];
    /// It got a lease.
    LeaseGranted = "lease.granted", ["leaseId", "resourceId", "requester", "requestId", "fence"];
    /// A lease's deadline moved.
    LeaseRenewed = "lease.renewed", ["leaseId", "resourceId", "requester", "ttlMs", "expiresAt"];
    /// A lease was given back.
    LeaseReleased = "lease.released", ["leaseId", "resourceId", "requester", "requestId", "fence", "reason"];
    /// A lease's deadline passed.
    LeaseExpired = "lease.expired", ["leaseId", "resourceId", "requester", "requestId", "fence"];
    /// The holder of a lease runs a tool at its device; of the arguments only their number is told.
    LeaseExec = "lease.exec", ["leaseId", "resourceId", "requester", "fence", "tool", "args"];
    /// The tool has ended: by itself, or for the reason that the code says.
    LeaseExecEnded = "lease.exec-ended", ["leaseId", "resourceId", "requester", "fence", "tool", "exit?", "code?"];
    /// A lease request got nothing.
    LeaseRejected = "lease.rejected", ["requestId", "requester", "requestSpec", "reason", "code"];
    /// A request of the gateway was not taken here; it goes on there.
    LeaseDeclined = "lease.declined", ["requestId", "requester", "requestSpec", "code"];
    /// An unattended waiter joined a waiting room.
    WaiterJoined = "waiter.joined", ["resourceId", "requester", "mode", "priority", "position"];
    /// An unattended waiter is the next; it has no lease yet.
    WaiterAdmitted = "waiter.admitted", ["resourceId", "requester", "mode", "priority", "reservedUntil?"];
    /// An unattended waiter did not ask again in time.
    WaiterPruned = "waiter.pruned", ["resourceId", "requester", "mode", "priority"];
    /// An unattended waiter left by itself.
    WaiterLeft = "waiter.left", ["resourceId", "requester", "mode", "priority"];
    /// A window is booked.
    BookingCreated = "booking.created", ["bookingId", "resourceId", "requester", "startsAt", "endsAt", "seriesId?"];
    /// A booking has another window.
    BookingRescheduled = "booking.rescheduled", ["bookingId", "resourceId", "requester", "startsAt", "endsAt", "from"];
    /// A booking was given up.
    BookingCancelled = "booking.cancelled", ["bookingId", "resourceId", "requester", "startsAt", "endsAt", "reason"];
    /// The holder of a booking has its lease.
    BookingFulfilled = "booking.fulfilled", ["bookingId", "resourceId", "requester", "startsAt", "endsAt", "leaseId"];
    /// The holder of a booking did not come, or could not be served in its window.
    BookingMissed = "booking.missed", ["bookingId", "resourceId", "requester", "startsAt", "endsAt", "reason"];
    /// A slot is held.
    HoldCreated = "hold.created", ["holdId", "resourceId", "requester", "startsAt", "endsAt", "expiresAt"];
    /// A hold has become a booking.
    HoldConfirmed = "hold.confirmed", ["holdId", "resourceId", "requester", "startsAt", "endsAt", "bookingId"];
    /// A hold was given back.
    HoldReleased = "hold.released", ["holdId", "resourceId", "requester", "startsAt", "endsAt", "reason"];
    /// A hold's time has passed.
    HoldExpired = "hold.expired", ["holdId", "resourceId", "requester", "startsAt", "endsAt"];
    /// No new holds are made, on one resource or on all.
    HoldsPaused = "holds.paused", ["resourceId?", "reason"];
    /// Holds are made again.
    HoldsResumed = "holds.resumed", ["resourceId?"];
    /// A resource is something else now.
    ResourceStateChanged = "resource.state-changed",
        ["resourceId", "from", "to", "reason", "output?", "leaseId?", "device?"];
    /// The link of a worker is up.
    WorkerConnected = "worker.connected", ["worker", "version", "incarnation"];
    /// The link of a worker is down.
    WorkerDisconnected = "worker.disconnected", ["worker", "reason"];
    /// A peer was not let in; one event for all that came for the same reason within a minute.
    WorkerRejected = "worker.rejected", ["worker?", "address?", "reason", "count"];
    /// A worker is off the roster.
    WorkerRemoved = "worker.removed", ["worker", "revoked"];
    /// A worker was taken out: what is leased stays so, nothing new is granted.
    WorkerDrainStarted = "worker.drain-started", ["worker"];
    /// It is back.
    WorkerDrainEnded = "worker.drain-ended", ["worker"];
    /// A lease request went to a worker.
    RequestDispatched = "request.dispatched", ["requestId", "requester", "worker", "attempt"];
    /// A lease request of the fleet's got its lease.
    RequestGranted = "request.granted", ["requestId", "requester", "leaseId", "resourceId", "worker", "fence"];
    /// The database stopped something that the rules should have stopped: a bug.
    InvariantViolated = "invariant.violated", ["resourceId", "detail"];
    /// The node admits requests.
    NodeStarted = "node.started", ["version", "incarnation"];
    /// The node was told to stop.
    NodeStopping = "node.stopping", [];
}

impl EventKind {
    /// True when only an admin, and whoever it is about, may read it.
    pub fn is_private(self) -> bool {
        self.as_str().starts_with("waiter.") || self.as_str().starts_with("hold.")
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = InvalidId;

    fn from_str(word: &str) -> Result<Self, InvalidId> {
        let known = EventKind::ALL.iter().copied().find(|kind| kind.as_str() == word);
        known.ok_or_else(|| InvalidId::new("event", "one of the names in SPEC §10, such as lease.granted", word))
    }
}

impl Serialize for EventKind {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One event, before it has a place in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What kind of thing.
    pub kind: EventKind,
    /// Whom it is about; an agent reads only its own.
    pub owner: Option<Requester>,
    /// Which lease it is about.
    pub lease: Option<LeaseId>,
    /// The facts.
    pub payload: Map<String, Value>,
}

impl Event {
    /// An event without facts yet.
    pub fn new(kind: EventKind) -> Self {
        Self { kind, owner: None, lease: None, payload: Map::new() }
    }

    /// Says whom it is about, as the field `requester` too.
    pub fn about(mut self, requester: &Requester) -> Self {
        self.owner = Some(requester.clone());
        self.with("requester", requester.to_string())
    }

    /// Says which lease it is about, as the field `leaseId` too.
    pub fn of_lease(mut self, lease: &LeaseId) -> Self {
        self.lease = Some(lease.clone());
        self.with("leaseId", lease.as_str())
    }

    /// Adds a fact.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        let known = self.kind.fields().iter().any(|known| known.trim_end_matches('?') == field);
        debug_assert!(known, "{} has no field {field}", self.kind);
        self.payload.insert(field.to_owned(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back() {
        for &kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse::<EventKind>().unwrap(), kind);
        }
        assert!("lease.lost".parse::<EventKind>().is_err());
    }

    #[test]
    fn waiting_rooms_are_not_for_every_reader() {
        assert!(EventKind::WaiterJoined.is_private());
        assert!(!EventKind::LeaseGranted.is_private());
    }
}
