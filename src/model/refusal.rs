//! The domain said no: one table of codes, statuses and exit codes (SPEC §11).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $http:literal, $exit:literal;)*) => {
        /// A stable name for why something was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $word,)* }
            }

            /// The HTTP status that carries it.
            pub fn http_status(self) -> u16 {
                match self { $(Code::$name => $http,)* }
            }

            /// The exit code of a command that was refused with it.
            pub fn exit_code(self) -> u8 {
                match self { $(Code::$name => $exit,)* }
            }
        }
    };
}

codes! {
    /// A field is missing, unknown, of the wrong type or out of bounds.
    BadRequest = "BAD_REQUEST", 400, 2;
    /// No credential, or one that is not valid.
    Unauthenticated = "UNAUTHENTICATED", 401, 3;
    /// The caller is known but may not do this.
    InsufficientPermissions = "INSUFFICIENT_PERMISSIONS", 403, 3;
    /// The named resource is held.
    ResourceUnavailable = "RESOURCE_UNAVAILABLE", 409, 11;
    /// A booking or a hold is in the way of the lease.
    ResourceBooked = "RESOURCE_BOOKED", 409, 11;
    /// The window crosses a booking.
    BookingConflict = "BOOKING_CONFLICT", 409, 13;
    /// The slot cannot be held.
    HoldConflict = "HOLD_CONFLICT", 409, 13;
    /// Somebody holds a slot that the window crosses.
    SlotHeld = "SLOT_HELD", 409, 13;
    /// The hold is over.
    HoldExpired = "HOLD_EXPIRED", 410, 12;
    /// No new holds are made just now.
    HoldsPaused = "HOLDS_PAUSED", 503, 1;
    /// The caller has as much as one may have.
    RateLimited = "RATE_LIMITED", 429, 11;
    /// The requester has as many leases and requests as it may.
    RequesterAlreadyLeased = "REQUESTER_ALREADY_LEASED", 409, 13;
    /// An active lease or an open request holds the lease id.
    LeaseIdTaken = "LEASE_ID_TAKEN", 409, 13;
    /// The key stands for another target, mode or lease id.
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", 409, 2;
    /// The request has got its lease; that is released, not cancelled.
    RequestNotCancellable = "REQUEST_NOT_CANCELLABLE", 409, 2;
    /// The worker is connected; only one that is away is removed.
    WorkerConnected = "WORKER_CONNECTED", 409, 2;
    /// The body is larger than 64 KiB.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", 413, 2;
    /// No resource of that id.
    UnknownResource = "UNKNOWN_RESOURCE", 404, 12;
    /// No active lease of that id.
    UnknownLease = "UNKNOWN_LEASE", 404, 12;
    /// No lease request of that id.
    UnknownLeaseRequest = "UNKNOWN_LEASE_REQUEST", 404, 12;
    /// No booking of that id.
    UnknownBooking = "UNKNOWN_BOOKING", 404, 12;
    /// No hold of that id.
    UnknownHold = "UNKNOWN_HOLD", 404, 12;
    /// No worker of that name.
    UnknownWorker = "UNKNOWN_WORKER", 404, 12;
    /// No token of that id.
    UnknownToken = "UNKNOWN_TOKEN", 404, 12;
    /// No known resource can ever satisfy the selector.
    NoMatchingResource = "NO_MATCHING_RESOURCE", 422, 12;
    /// Several workers have a resource of that id.
    AmbiguousResource = "AMBIGUOUS_RESOURCE", 422, 12;
    /// The device could not be made ready for the lease, or a tool could not be run on it.
    DeviceFailed = "DEVICE_FAILED", 502, 12;
    /// A tool ran longer than it may.
    ExecTimeout = "EXEC_TIMEOUT", 504, 10;
    /// What matches is held.
    NoCapacity = "NO_CAPACITY", 503, 11;
    /// The node is going down.
    Stopping = "STOPPING", 503, 1;
    /// The node was restarted while the request waited.
    NodeRestarted = "NODE_RESTARTED", 503, 1;
    /// The request waited as long as it said it would.
    QueueTimeout = "QUEUE_TIMEOUT", 504, 10;
    /// The worker that knows the answer is away.
    WorkerUnreachable = "WORKER_UNREACHABLE", 503, 1;
    /// A queue of the node is full.
    QueueFull = "QUEUE_FULL", 503, 11;
    /// This is answered by workers only.
    UnsupportedOnGateway = "UNSUPPORTED_ON_GATEWAY", 501, 2;
    /// This is answered by gateways only.
    UnsupportedOnWorker = "UNSUPPORTED_ON_WORKER", 501, 2;
    /// No such route.
    NotFound = "NOT_FOUND", 404, 2;
    /// The route does not take this method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, 2;
    /// The body is not JSON.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", 415, 2;
    /// A fault of Berth or of its disk; the log of the node has more.
    Internal = "INTERNAL", 500, 1;
}

impl Code {
    /// The code of that name; none for a name of a newer version.
    pub fn parse(word: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.as_str() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Code {
    /// A code of a newer version reads as `INTERNAL`: its message still says what happened.
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Code::parse(&String::deserialize(from)?).unwrap_or(Code::Internal))
    }
}

/// The answer "no": a stable code, what to do next, and facts for programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// For people; says what to do next.
    pub message: String,
    /// For programs; the keys are those of SPEC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
    /// When it may be worth to ask again, in seconds; the header `Retry-After`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "retryAfter")]
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// A refusal without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, retry_after: None }
    }

    /// A `BAD_REQUEST` that names the field.
    pub fn bad_field(field: &str, why: impl fmt::Display) -> Self {
        Self::new(Code::BadRequest, format!("{field}: {why}")).with("field", field)
    }

    /// A fault, shown as a short `INTERNAL`; its chain is in the log.
    pub fn internal(what: &str) -> Self {
        Self::new(Code::Internal, format!("{what}; the log of the node has more"))
    }

    /// Adds a fact for programs.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_with(Map::new).insert(key.to_owned(), value.into());
        self
    }

    /// Says when to ask again; never sooner than a second.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after.as_secs().max(1));
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back_and_has_a_failing_status_and_exit_code() {
        for &code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(code));
            assert!((400..600).contains(&code.http_status()), "{code}");
            assert!(code.exit_code() > 0, "{code}");
        }
    }

    #[test]
    fn a_code_of_a_newer_version_reads_as_internal() {
        let refusal: Refusal = serde_json::from_str(r#"{"code":"FROM_2030","message":"new"}"#).unwrap();
        assert_eq!(refusal.code, Code::Internal);
    }
}
