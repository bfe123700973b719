//! The rules, pure: no I/O, no clock, no actor.
//!
//! [`Ledger`] holds the admission checks that a host and a gateway share. [`resource`] decides about one resource:
//! `decide(&state, command, now)` answers with changes and a reply, `apply(&mut state, change)` is the only
//! way the state moves. Loading at start is `apply` over what the database holds.

pub mod calendar;
pub mod cancel;
pub mod history;
mod ledger;
mod pool;
mod rank;
mod requests;
pub mod resource;
mod rules;
#[cfg(test)]
mod sample;
pub mod schedule;
pub mod ticket;
mod waiting_room;

pub(crate) use ledger::lease_id_taken;
pub use ledger::{Admitted, Ledger, Speaker};
pub use pool::Pool;
pub use rank::{Joined, Rank};
pub use requests::{Dropped, Request, RequestState, Requests};
pub use rules::{CalendarRules, EventRules, LeaseRules, LimitRules, LiveRules, Rules, WaitingRules};
pub use waiting_room::{Attendance, Waiter, WaitingRoom};
