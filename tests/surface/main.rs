//! Berth as its users meet it: the real program, in processes of its own, over HTTP and the command line.

#![expect(
    clippy::disallowed_methods,
    reason = "processes are watched from outside: real time is the only time there, and these threads may block"
)]

mod adb;
mod bookings;
mod chaos;
mod chosen_id;
mod config;
mod devices;
mod exec;
mod fleet_events;
mod fleet_rooms;
mod fleet_waits;
mod holds;
mod http;
mod interop;
mod joined;
mod joining;
mod lab;
mod lease_exec;
mod patience;
mod phones;
mod ports;
mod queue;
mod readme;
mod refusals;
mod reload;
mod restart;
mod runbook;
mod said;
mod sse;
mod waiting;
