//! The parts of Berth one by one: the rules against small models, the store against a real SQLite, the frames against
//! their bytes, and the plan of the house against the code.

mod booked_rules;
mod calendar_rules;
mod device_rules;
mod directions;
mod events_table;
mod fleet_queue;
mod frames;
mod hooks;
mod ledger_rules;
mod requests_rules;
mod resource_rules;
mod sample;
mod store;
mod view_and_table;
