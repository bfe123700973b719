//! What the link to its gateway means for the leases of a worker (SPEC §9 Worker away).
//!
//! A lease whose holder comes through the gateway cannot be renewed while the gateway is away. So past its deadline it
//! lives on for the *uplink grace*, unless the worker knows that the holder could have got through:
//!
//! - It ends once the gateway has been heard after the deadline, over a link whose snapshot it had taken in ten seconds
//!   before the deadline, or on which the lease has been granted or renewed since.
//! - Where the snapshot was taken in later than that, the holder has ten seconds from then on.
//! - Else it lives until the grace is over.
//!
//! It never lives into an enforced window of somebody else, nor longer than `lease.max_total` lets any lease. Until it ends it is a lease like any other.

use std::time::Duration;

use jiff::Timestamp;

use super::Held;
use crate::admission::calendar::Calendar;
use crate::clock::{Now, RunTime};
use crate::model::{BookingMode, NodeName, Requester, ResourceSpec, Window};

/// How long a holder has to get through once the gateway knows the lease again.
pub const GETTING_THROUGH: Duration = Duration::from_secs(10);

/// What is true of the whole worker when one of its resources decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeNow {
    /// The gateway that it goes by; none for a standalone worker.
    pub gateway: Option<Gateway>,
    /// True when an operator has taken the whole worker out: beside a resource's own drain, and like it.
    pub drained: bool,
    /// When it was brought back, if that was in this run.
    pub undrained_at: Option<Timestamp>,
}

/// The gateway of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Its name; the only one whose leases have a grace.
    pub name: NodeName,
    /// `lease.uplink_grace`.
    pub grace: Duration,
    /// The link to it.
    pub link: Link,
}

/// The link to the gateway, as far as the rules go by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// There is none, or the gateway has not taken a snapshot in over it.
    #[default]
    Away,
    /// The gateway knows what this worker holds.
    Acknowledged {
        /// Since when.
        at: RunTime,
        /// When something was last received from it; not before `at`.
        heard: RunTime,
    },
}

impl NodeNow {
    /// True for one who comes through a gateway that is not there: it is passed over.
    pub fn is_away(&self, holder: &Requester) -> bool {
        holder.via.is_some() && self.link_of(holder) == Link::Away
    }

    /// Since when those who come through a gateway have been able to ask again; none while they are not. Those of a
    /// gateway that this worker does not go by age like everybody.
    pub fn fleet_asks_since(&self) -> Option<RunTime> {
        match self.gateway.as_ref().map(|gateway| gateway.link) {
            None => Some(RunTime::default()),
            Some(Link::Away) => None,
            Some(Link::Acknowledged { at, .. }) => Some(at),
        }
    }

    /// Up to when the gateway has been heard; none while it is away.
    pub fn heard(&self) -> Option<RunTime> {
        match self.gateway.as_ref()?.link {
            Link::Away => None,
            Link::Acknowledged { heard, .. } => Some(heard),
        }
    }

    /// The gateway through which a lease came, if such a lease has a grace.
    pub fn gateway_of(&self, holder: &Requester) -> Option<&Gateway> {
        let via = holder.via.as_ref()?;
        self.gateway.as_ref().filter(|gateway| gateway.name == *via && !gateway.grace.is_zero())
    }

    fn link_of(&self, holder: &Requester) -> Link {
        let gateway = self.gateway.as_ref().filter(|gateway| holder.via.as_ref() == Some(&gateway.name));
        gateway.map_or(Link::Away, |gateway| gateway.link)
    }

    /// Since when a resource is free to be claimed, of which that is known as `free_since`.
    pub fn free_since(&self, free_since: Option<Timestamp>) -> Option<Timestamp> {
        let since = free_since.filter(|_| !self.drained)?;
        Some(self.undrained_at.map_or(since, |undrained| undrained.max(since)))
    }
}

impl Gateway {
    /// When a lease with that deadline and width ends, by what is known now; not before its deadline.
    ///
    /// A lease is taken to have been granted or renewed at its deadline less its width. Where `lease.max_total` or a
    /// booking has cut it, that is earlier than it was, so that it lives longer and never shorter.
    pub fn end(&self, deadline: RunTime, ttl: Duration) -> RunTime {
        let latest = deadline + self.grace;
        match self.link {
            Link::Acknowledged { at, heard } if heard >= deadline => {
                let known = at + GETTING_THROUGH;
                let got_through = known <= deadline || at + ttl < deadline;
                if got_through { deadline } else { known.min(latest) }
            }
            Link::Acknowledged { .. } | Link::Away => latest,
        }
    }
}

/// When a lease ends, by what is known now.
pub(super) fn end_of(held: &Held, spec: &ResourceSpec, calendar: &Calendar, node: &NodeNow, now: Now) -> RunTime {
    let deadline = held.deadline;
    let holder = &held.lease.holder;
    let end = node.gateway_of(holder).map_or(deadline, |gateway| gateway.end(deadline, held.lease.ttl));
    let end = held.last_end.map_or(end, |last| end.min(last.max(deadline)));
    if end <= deadline || spec.bookings.mode != BookingMode::Enforced {
        return end;
    }
    let Some(overtime) = Window::new(now.wall_at(deadline), now.wall_at(end)) else { return end };
    let foreign = calendar.claims_over(overtime).find(|(_, claim)| claim.holder != *holder);
    foreign.map_or(end, |(starts_at, _)| end.min(deadline.max(now.run_of(*starts_at))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> RunTime {
        RunTime(Duration::from_secs(seconds))
    }

    fn gateway(grace: u64, link: Link) -> Gateway {
        Gateway { name: "gateway".parse().unwrap(), grace: Duration::from_secs(grace), link }
    }

    fn end(grace: u64, link: Link, deadline: u64, ttl: u64) -> u64 {
        gateway(grace, link).end(at(deadline), Duration::from_secs(ttl)).0.as_secs()
    }

    #[test]
    fn a_lease_ends_once_its_gateway_is_heard_after_the_deadline_and_else_when_the_grace_is_over() {
        let known = |since, heard| Link::Acknowledged { at: at(since), heard: at(heard) };
        assert_eq!(end(60, known(10, 99), 100, 90), 160, "not heard since");
        assert_eq!(end(60, known(10, 100), 100, 90), 100);
        assert_eq!(end(60, Link::Away, 100, 90), 160);
        assert_eq!(end(60, known(95, 100), 100, 90), 105, "it has ten seconds to get through");
        assert_eq!(end(60, known(130, 131), 100, 90), 140);
        assert_eq!(end(60, known(155, 156), 100, 90), 160, "and never more than the grace");
        assert_eq!(end(60, known(95, 100), 100, 4), 100, "it was granted over this link");
        assert_eq!(end(60, known(95, 100), 100, 5), 105, "and this one was not");
        assert_eq!(end(0, Link::Away, 100, 90), 100);
    }

    fn links() -> impl Strategy<Value = Link> {
        prop_oneof![
            Just(Link::Away),
            (0u64..300, 0u64..100)
                .prop_map(|(since, later)| Link::Acknowledged { at: at(since), heard: at(since + later) }),
        ]
    }

    proptest! {
        #[test]
        fn an_end_is_neither_before_the_deadline_nor_after_the_grace_and_hearing_more_never_puts_it_off(
            grace in 0u64..120, link in links(), deadline in 0u64..300, ttl in 1u64..300, more in 0u64..100,
        ) {
            let it = end(grace, link, deadline, ttl);
            prop_assert!((deadline..=deadline + grace).contains(&it));
            if let Link::Acknowledged { at, heard } = link {
                let later = Link::Acknowledged { at, heard: heard + Duration::from_secs(more) };
                prop_assert!(end(grace, later, deadline, ttl) <= it);
                prop_assert!(it == deadline + grace || heard.0.as_secs() >= deadline, "it was heard after the deadline");
            } else {
                prop_assert_eq!(it, deadline + grace);
            }
        }
    }
}
