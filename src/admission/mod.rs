//! The rules, pure: no I/O, no clock, no actor.
//!
//! [`Ledger`] holds the admission checks that a host and a gateway share. [`resource`] decides about one resource:
//! `decide(&state, command, now)` answers with changes and a reply, `apply(&mut state, change)` is the only
//! way the state moves. Loading at start is `apply` over what the database holds.

mod ledger;
mod requests;
pub mod resource;
mod rules;

pub(crate) use ledger::lease_id_taken;
pub use ledger::{Admitted, Ledger, Speaker};
pub use requests::{Dropped, Request, RequestState, Requests};
pub use rules::LeaseRules;
