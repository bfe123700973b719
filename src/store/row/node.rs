//! The one row about the node itself.

use rusqlite::Connection;

/// Why no new holds are made on the whole node; none when they are made.
pub(in crate::store) fn holds_paused(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection.query_row("SELECT holds_paused FROM node", [], |row| row.get(0))
}

/// Writes why no new holds are made, or that they are made again.
pub(in crate::store) fn pause_holds(connection: &Connection, why: Option<&str>) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE node SET holds_paused = ?1")?.execute([why])?;
    Ok(())
}

/// True when an operator has taken the whole worker out.
pub(in crate::store) fn drained(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT drained FROM node", [], |row| row.get(0))
}

/// Writes that the whole worker is out, or is back.
pub(in crate::store) fn drain(connection: &Connection, drained: bool) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE node SET drained = ?1")?.execute([drained])?;
    Ok(())
}
