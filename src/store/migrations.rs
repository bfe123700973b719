//! The schema, as numbered steps. A step that has been released never changes; a new shape is a new step.

use rusqlite::{Connection, TransactionBehavior};

const STEPS: [&str; 6] = [
    include_str!("migrations/0001_leases.sql"),
    include_str!("migrations/0002_chosen_lease_ids.sql"),
    include_str!("migrations/0003_waiting_rooms_and_events.sql"),
    include_str!("migrations/0004_bookings_and_holds.sql"),
    include_str!("migrations/0005_worker_drain.sql"),
    include_str!("migrations/0006_devices.sql"),
];

/// The schema version that this Berth writes; SQLite's `user_version`.
pub const SCHEMA_VERSION: i64 = STEPS.len() as i64;

/// The version of an open database; 0 for a new one.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Brings a database from its version to [`SCHEMA_VERSION`], all steps in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    carry_out(connection, &STEPS)
}

/// Carries out the steps that a database has not seen yet.
pub(super) fn carry_out(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = usize::try_from(version(&transaction)?).unwrap_or(0);
    for (index, step) in steps.iter().enumerate().skip(from) {
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", index as i64 + 1)?;
    }
    transaction.commit()
}

/// Lets the database take a lease beside an exclusive one: the other half of the fault of
/// [`fault-double-grant`](crate::admission::resource).
#[cfg(feature = "fault-double-grant")]
pub(super) fn without_the_last_guard(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "DROP INDEX IF EXISTS one_exclusive_lease; DROP TRIGGER IF EXISTS no_lease_beside_an_exclusive_one;",
    )
}
