//! The connections to the file: one that writes, one that only reads the event log, and one that only looks for what
//! must not be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::OpenError;

/// How long a connection waits for a lock that another holds on the database.
const BUSY_BOUND: Duration = Duration::from_secs(5);

/// Statements that a connection keeps prepared: more than the store has.
const STATEMENTS_MAX: usize = 64;

/// Opens the database and folds its log into it, so that what is read from here on is what the disk holds.
pub(super) fn connect(path: &Path) -> Result<Connection, OpenError> {
    let failed = |source| OpenError::Sqlite { path: path.into(), source };
    let open = || -> rusqlite::Result<(Connection, bool)> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_BOUND)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // A reader elsewhere keeps the log from being folded in; SQLite says so in a row, not by an error.
        let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))?;
        Ok((connection, busy != 0))
    };
    match open().map_err(failed)? {
        (connection, false) => Ok(connection),
        (_, true) => Err(OpenError::InUse { path: path.into() }),
    }
}

/// A reading connection, which the writer closes before it opens the database anew: only when every handle is closed
/// does SQLite read its log from the disk instead of believing what it remembers of it.
#[derive(Debug)]
pub(super) struct Reader {
    path: PathBuf,
    /// None until the next look.
    connection: Option<Connection>,
}

impl Reader {
    /// Opens a database that a writer has open too.
    pub(super) fn open(path: &Path) -> rusqlite::Result<Self> {
        let mut reader = Self { path: path.into(), connection: None };
        reader.connection()?;
        Ok(reader)
    }

    /// The connection, opened if it is closed.
    pub(super) fn connection(&mut self) -> rusqlite::Result<&Connection> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let connection = Connection::open_with_flags(&self.path, flags)?;
                connection.busy_timeout(BUSY_BOUND)?;
                connection.pragma_update(None, "query_only", true)?;
                connection
            }
        };
        Ok(self.connection.insert(connection))
    }

    /// Closes the connection.
    pub(super) fn close(&mut self) {
        self.connection = None;
    }
}
