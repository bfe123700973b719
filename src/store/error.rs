//! What can go wrong with the database.

use std::path::PathBuf;

use crate::model::Code;

/// Why the database cannot be used; the node does not start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// SQLite refused.
    #[error("cannot use the database {path}: check that this user may write it, and that it is one")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// Another process reads it, so that its log cannot be folded in.
    #[error("another process has the database {path} open; close it there and start again")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A newer Berth has written it.
    #[error("the database {path} has schema version {found}; this berth knows up to {known}: start the newer one")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: i64,
        /// What this version knows.
        known: i64,
    },
    /// A row does not read back.
    #[error("the database {path} holds a row of `{table}` that cannot be read: {why}")]
    Row {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
        /// Which row, and what is wrong with it.
        why: String,
    },
    /// The writer is gone.
    #[error("the store has stopped")]
    Stopped,
}

/// Why a batch is not on disk, for certain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A constraint of the schema stopped it: a bug was caught by the last guard.
    #[error("the database refused it: {0}")]
    Constraint(String),
    /// The activation it came from has been closed.
    #[error("its resource has been started anew")]
    Closed,
    /// The disk is full, broken or locked.
    #[error("the disk refused it: {0}")]
    Disk(String),
    /// Too many batches wait.
    #[error("the store's queue is full")]
    Full,
}

impl CommitError {
    /// The code of the rule that the database has repeated, where it was one of the calendar's: whoever asked is
    /// answered as if the rule had stopped it (SPEC §6). That it came so far is a fault all the same.
    pub fn repeats(&self) -> Option<Code> {
        let CommitError::Constraint(why) = self else { return None };
        let by_name = [
            ("no_booking_over_another", Code::BookingConflict),
            ("no_booking_moves_over_another", Code::BookingConflict),
            ("booking.resource_id, booking.starts_at", Code::BookingConflict),
            ("no_booking_over_a_hold", Code::SlotHeld),
            ("no_booking_moves_over_a_hold", Code::SlotHeld),
            ("no_hold_over_another", Code::HoldConflict),
            ("no_hold_over_a_booking", Code::HoldConflict),
            ("no_hold_moves_over_another", Code::HoldConflict),
            ("no_hold_moves_over_a_booking", Code::HoldConflict),
            ("hold.resource_id, hold.starts_at", Code::HoldConflict),
        ];
        by_name.into_iter().find(|(name, _)| why.ends_with(name)).map(|(_, code)| code)
    }
}

/// Why the database could not be read beside its writer. Another try may go well.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// SQLite refused.
    #[error("the database cannot be read")]
    Sqlite(#[from] rusqlite::Error),
    /// A row does not read back: its number, and what is wrong with it.
    #[error("the database holds a row that cannot be read: {0}")]
    Row(String),
    /// The node is going down.
    #[error("the database is closed")]
    Stopped,
}
