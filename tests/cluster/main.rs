//! A gateway and its workers in one process: real QUIC on loopback, a paused clock, and a network that can be cut.
//!
//! Time stands still unless everything waits, so minutes pass in milliseconds and nothing depends on the machine's speed.

mod absent;
mod booked;
mod calendar;
mod chosen_id;
mod crowd;
mod devices;
mod digest;
mod events;
mod exec;
mod found;
mod grace;
mod hands;
mod identity;
mod joining;
mod lab;
mod leases;
mod liar;
mod link;
mod named;
mod named_at_worker;
mod partition;
mod passes;
mod pretender;
mod queue;
mod rebuild;
mod refusals;
mod refuser;
mod said;
mod scripted;
mod simulation;
mod strangers;
mod weather;
