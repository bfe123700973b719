//! The numbers that the operator sets; one lab file sets them for every node.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::limits;
use crate::model::ExecRules;

/// Everything that a host goes by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// `[lease]`.
    pub lease: LeaseRules,
    /// `[waiting_room]`.
    pub waiting: WaitingRules,
    /// `[bookings]` and `[holds]`.
    pub calendar: CalendarRules,
    /// `[events]`.
    pub events: EventRules,
    /// `[limits]`.
    pub limits: LimitRules,
    /// `[exec]`.
    pub exec: ExecRules,
}

/// The rules of a node as they are now. The lab file may be read anew while it runs; whoever goes by them looks here each
/// time.
#[derive(Debug, Default)]
pub struct LiveRules(RwLock<Arc<Rules>>);

impl LiveRules {
    /// These, for a start.
    pub fn new(rules: Rules) -> Self {
        Self(RwLock::new(Arc::new(rules)))
    }

    /// As they are now.
    pub fn now(&self) -> Arc<Rules> {
        // Nobody who holds the lock can panic.
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on they are these.
    pub fn set(&self, rules: Arc<Rules>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }
}

/// `[lease]` of the lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRules {
    /// A lease's width when the caller names none.
    pub default_ttl: Duration,
    /// The widest lease a caller may ask for.
    pub max_ttl: Duration,
    /// The longest a lease may last, all its renewals together; none when it may go on for ever.
    pub max_total: Option<Duration>,
    /// Active leases and waiting entries of one requester.
    pub max_per_requester: usize,
    /// How long a settled request is remembered after its lease ended.
    pub request_retention: Duration,
    /// How long a lease that came through a gateway outlives its deadline at most while the gateway is away; zero for
    /// not at all.
    pub uplink_grace: Duration,
}

impl Default for LeaseRules {
    fn default() -> Self {
        Self {
            default_ttl: Duration::from_secs(15 * 60),
            max_ttl: Duration::from_secs(4 * 3600),
            max_total: None,
            max_per_requester: 1,
            request_retention: Duration::from_secs(10 * 60),
            uplink_grace: Duration::from_secs(60),
        }
    }
}

/// `[waiting_room]` of the lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingRules {
    /// A waiter that nobody has asked about for so long is given up. The variable `LEASE_WAITER_TTL_SECONDS` sets it
    /// too.
    pub waiter_ttl: Duration,
    /// How long a resource is reserved for an unattended waiter that has been admitted; zero for not at all.
    pub admission_grace: Duration,
    /// A waiter's rank grows by one in each such span; none when waiting does not raise it.
    pub priority_aging: Option<Duration>,
    /// After a restart, how long the resources that requests waited for go only to those who come back with their
    /// ticket.
    pub return_grace: Duration,
}

impl Default for WaitingRules {
    fn default() -> Self {
        Self {
            waiter_ttl: Duration::from_secs(300),
            admission_grace: Duration::ZERO,
            priority_aging: None,
            return_grace: Duration::from_secs(5),
        }
    }
}

/// `[bookings]` and `[holds]` of the lab file. What the bookings of a resource mean is with the resource
/// ([`BookingPolicy`](crate::model::BookingPolicy)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarRules {
    /// The longest window.
    pub max_duration: Duration,
    /// How far ahead a window may end.
    pub horizon: Duration,
    /// False when no holds are made.
    pub holds_enabled: bool,
    /// How long a hold lasts when the caller names nothing.
    pub hold_ttl: Duration,
    /// The longest a hold may last.
    pub hold_ttl_max: Duration,
    /// How often the node asks the database for what must not be.
    pub check_interval: Duration,
    /// Bookings of one resource that are not over.
    pub bookings_max: usize,
}

impl Default for CalendarRules {
    fn default() -> Self {
        Self {
            max_duration: Duration::from_secs(30 * 24 * 3600),
            horizon: Duration::from_secs(365 * 24 * 3600),
            holds_enabled: true,
            hold_ttl: Duration::from_secs(10 * 60),
            hold_ttl_max: Duration::from_secs(30 * 60),
            check_interval: Duration::from_secs(30),
            bookings_max: limits::BOOKINGS_MAX,
        }
    }
}

/// `[events]` of the lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRules {
    /// How long an event is kept.
    pub retention: Duration,
    /// How many events are kept.
    pub count_max: u64,
}

impl Default for EventRules {
    fn default() -> Self {
        Self { retention: Duration::from_secs(7 * 24 * 3600), count_max: 1_000_000 }
    }
}

/// `[limits]` of the lab file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitRules {
    /// Waiters of one node, of both kinds.
    pub waiters_max: usize,
    /// Scheduled bookings of one principal that are not over; a series counts as one.
    pub bookings_per_principal: usize,
    /// Active holds of one principal.
    pub holds_per_principal: usize,
}

impl Default for LimitRules {
    fn default() -> Self {
        Self {
            waiters_max: limits::WAITERS_MAX,
            bookings_per_principal: limits::BOOKINGS_PER_PRINCIPAL_MAX,
            holds_per_principal: limits::HOLDS_PER_PRINCIPAL_MAX,
        }
    }
}
