//! The invariants, asked of the database itself (SPEC §6): no slot is claimed twice, nobody leases beside an exclusive
//! lease.
//!
//! The constraints of the schema keep them. This looks at what the tables hold, so that what came in past the
//! constraints is found, also where an index or a trigger is missing or damaged.

use std::sync::Arc;

use rusqlite::{Connection, Row};
use tokio::sync::Mutex;

use super::connection::Reader;
use super::error::ReadError;
use super::row::{Unreadable, column, parsed};
use crate::model::ResourceId;

/// The most violations that one look brings.
pub const VIOLATIONS_MAX: usize = 100;

/// Two neighbours in the order of their windows of which the first reaches into the second. Where any two windows of a
/// resource overlap, some neighbours do. No index is used: a damaged one hides its rows.
const OVERLAPS: &str = "\
SELECT resource_id, what, id, next_what, next_id FROM (
    SELECT resource_id, what, id, ends_at,
           LEAD(what) OVER ordered AS next_what,
           LEAD(id) OVER ordered AS next_id,
           LEAD(starts_at) OVER ordered AS next_starts_at
    FROM (SELECT resource_id, 'booking' AS what, id, starts_at, ends_at FROM booking NOT INDEXED WHERE claims = 1
          UNION ALL
          SELECT resource_id, 'hold' AS what, id, starts_at, ends_at FROM hold NOT INDEXED WHERE status = 'active')
    WINDOW ordered AS (PARTITION BY resource_id ORDER BY starts_at, id)
)
WHERE next_starts_at < ends_at
LIMIT ?1";

/// Resources with an exclusive lease that is not the only one, and one of the others.
const CROWDED: &str = "\
SELECT resource_id, min(id) FILTER (WHERE mode = 'exclusive') AS id,
       coalesce(min(id) FILTER (WHERE mode <> 'exclusive'), max(id)) AS next_id
FROM lease NOT INDEXED
GROUP BY resource_id
HAVING count(*) > 1 AND sum(mode = 'exclusive') > 0
LIMIT ?1";

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// On which resource.
    pub resource: ResourceId,
    /// What, for people. It names bookings, holds and leases, and says nothing of whose they are.
    pub text: String,
}

/// A handle to look for violations with, beside the writer and whoever reads the event log.
#[derive(Debug, Clone)]
pub struct Invariants {
    /// One look at a time.
    reader: Arc<Mutex<Reader>>,
}

impl Invariants {
    pub(super) fn new(reader: Arc<Mutex<Reader>>) -> Self {
        Self { reader }
    }

    /// What must not be and is there nevertheless, as far as it is committed; at most [`VIOLATIONS_MAX`].
    pub async fn check(&self) -> Result<Vec<Violation>, ReadError> {
        let mut reader = self.reader.clone().lock_owned().await;
        let looking = tokio::task::spawn_blocking(move || violations(reader.connection()?));
        looking.await.map_err(|_| ReadError::Stopped)?
    }
}

/// Looks for violations on an open connection.
pub(super) fn violations(connection: &Connection) -> Result<Vec<Violation>, ReadError> {
    let mut found = Vec::new();
    each(connection, OVERLAPS, &mut found, |row| {
        let word = |name| column::<String>(row, name);
        Ok(format!("{} {} overlaps {} {}", word("what")?, word("id")?, word("next_what")?, word("next_id")?))
    })?;
    each(connection, CROWDED, &mut found, |row| {
        let id = |name| column::<String>(row, name);
        Ok(format!("exclusive lease {} is active beside lease {}", id("id")?, id("next_id")?))
    })?;
    found.truncate(VIOLATIONS_MAX);
    Ok(found)
}

fn each(
    connection: &Connection,
    select: &str,
    found: &mut Vec<Violation>,
    text: impl Fn(&Row<'_>) -> Result<String, Unreadable>,
) -> Result<(), ReadError> {
    let mut statement = connection.prepare_cached(select)?;
    let mut rows = statement.query([VIOLATIONS_MAX as i64])?;
    while let Some(row) = rows.next()? {
        let resource = parsed(row, "resource_id").map_err(ReadError::Row)?;
        found.push(Violation { resource, text: text(row).map_err(ReadError::Row)? });
    }
    Ok(())
}
