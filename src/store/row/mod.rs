//! Things as rows: one file for each table, with the statements that write it and the code that reads it back.

pub(super) mod booking;
pub(super) mod device;
pub(super) mod event;
pub(super) mod hold;
pub(super) mod lease;
pub(super) mod node;
pub(super) mod request;
pub(super) mod resource;
pub(super) mod waiter;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::FromSql;

use crate::model::{Mode, Window};

/// A row that does not read back, in words.
pub(super) type Unreadable = String;

/// A change of a row that is not there, or not as whoever asked believes, is refused: they are stale.
fn exactly_one(changed: usize) -> rusqlite::Result<()> {
    if changed == 1 { Ok(()) } else { Err(rusqlite::Error::StatementChangedRows(changed)) }
}

pub(super) fn column<T: FromSql>(row: &Row<'_>, name: &str) -> Result<T, Unreadable> {
    row.get(name).map_err(|error| format!("{name}: {error}"))
}

pub(super) fn parsed<T: TryFrom<String>>(row: &Row<'_>, name: &str) -> Result<T, Unreadable>
where
    T::Error: std::fmt::Display,
{
    T::try_from(column(row, name)?).map_err(|error| format!("{name}: {error}"))
}

pub(super) fn parsed_option<T: TryFrom<String>>(row: &Row<'_>, name: &str) -> Result<Option<T>, Unreadable>
where
    T::Error: std::fmt::Display,
{
    match column::<Option<String>>(row, name)? {
        Some(_) => parsed(row, name).map(Some),
        None => Ok(None),
    }
}

fn instant(row: &Row<'_>, name: &str) -> Result<Timestamp, Unreadable> {
    instant_of(column(row, name)?, name)
}

fn instant_option(row: &Row<'_>, name: &str) -> Result<Option<Timestamp>, Unreadable> {
    column::<Option<i64>>(row, name)?.map(|microseconds| instant_of(microseconds, name)).transpose()
}

fn instant_of(microseconds: i64, name: &str) -> Result<Timestamp, Unreadable> {
    Timestamp::from_microsecond(microseconds).map_err(|error| format!("{name}: {error}"))
}

/// The window between `starts_at` and `ends_at`.
fn window(row: &Row<'_>) -> Result<Window, Unreadable> {
    Window::try_from((column(row, "starts_at")?, column(row, "ends_at")?))
        .map_err(|error| format!("starts_at, ends_at: {error}"))
}

fn mode(row: &Row<'_>) -> Result<Mode, Unreadable> {
    match column::<String>(row, "mode")?.as_str() {
        "exclusive" => Ok(Mode::Exclusive),
        "shared" => Ok(Mode::Shared),
        other => Err(format!("mode: {other:?}")),
    }
}
