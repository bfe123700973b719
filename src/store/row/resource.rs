//! What is stored of a resource beside its leases, waiters and windows.

use rusqlite::{Connection, Row, params};

use super::{Unreadable, column, instant_option, parsed};
use crate::model::{Fence, ResourceId};
use crate::store::StoredResource;

/// What [`read`] reads.
pub(in crate::store) const COLUMNS: &str = "id, fence, idle_since, drained, holds_paused";

/// Reads a row of [`COLUMNS`], as a resource without leases, waiters and windows.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<StoredResource, Unreadable> {
    Ok(StoredResource {
        fence: Fence(column(row, "fence")?),
        idle_since: instant_option(row, "idle_since")?,
        drained: column(row, "drained")?,
        holds_paused: column(row, "holds_paused")?,
        ..StoredResource::empty(parsed(row, "id")?)
    })
}

/// Gives a resource that nothing is stored of yet its row. That a change of the desk itself names no resource is a bug,
/// which the primary key catches here.
pub(super) fn insert_if_absent(connection: &Connection, resource: Option<&ResourceId>) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO resource (id, fence) VALUES (?1, 0) ON CONFLICT DO NOTHING")?
        .execute([resource.map(ResourceId::as_str)])?;
    Ok(())
}

/// Takes a resource out, or brings it back.
pub(in crate::store) fn drain(
    connection: &Connection,
    resource: Option<&ResourceId>,
    drained: bool,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO resource (id, fence, drained) VALUES (?1, 0, ?2) \
             ON CONFLICT (id) DO UPDATE SET drained = excluded.drained",
        )?
        .execute(params![resource.map(ResourceId::as_str), drained])?;
    Ok(())
}

/// Stops new holds on a resource, or makes them again.
pub(in crate::store) fn pause_holds(
    connection: &Connection,
    resource: Option<&ResourceId>,
    paused: bool,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO resource (id, fence, holds_paused) VALUES (?1, 0, ?2) \
             ON CONFLICT (id) DO UPDATE SET holds_paused = excluded.holds_paused",
        )?
        .execute(params![resource.map(ResourceId::as_str), paused])?;
    Ok(())
}
