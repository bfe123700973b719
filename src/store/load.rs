//! What the database holds, read at start and when a resource's actor has died.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, Params, Row};

use super::row::{Unreadable, booking, device, hold, lease, node, request, resource, waiter};
use super::{Loaded, OpenError, ReadError, Reopened, StoredResource, invariant};
use crate::model::{RequestId, ResourceId};

/// Reads everything but the incarnation, which the caller has just raised.
pub(super) fn everything(connection: &Connection, path: &Path, incarnation: u64) -> Result<Loaded, OpenError> {
    let table = Reader { connection, path };
    let mut resources = BTreeMap::new();
    table.each("resource", &format!("SELECT {} FROM resource", resource::COLUMNS), [], |row| {
        let resource = resource::read(row)?;
        resources.insert(resource.id.clone(), resource);
        Ok(())
    })?;
    table.each("lease", &format!("SELECT {} FROM lease", lease::COLUMNS), [], |row| {
        let (lease, expires_at) = lease::read(row)?;
        of(&mut resources, &lease.resource_id)?.leases.push((lease, expires_at));
        Ok(())
    })?;
    table.each("waiter", "SELECT * FROM waiter ORDER BY run, arrival", [], |row| {
        let (resource, waiter) = waiter::read(row)?;
        of(&mut resources, &resource)?.waiters.push(waiter);
        Ok(())
    })?;
    table.each("reservation", "SELECT * FROM reservation", [], |row| {
        let (resource, reserved) = waiter::read_reservation(row)?;
        of(&mut resources, &resource)?.reserved.push(reserved);
        Ok(())
    })?;
    table.each("booking", "SELECT * FROM booking ORDER BY starts_at, id", [], |row| {
        let booking = booking::read(row)?;
        of(&mut resources, &booking.resource_id)?.bookings.push(booking);
        Ok(())
    })?;
    table.each("hold", "SELECT * FROM hold ORDER BY starts_at, id", [], |row| {
        let (hold, expires_at) = hold::read(row)?;
        of(&mut resources, &hold.resource_id)?.holds.push((hold, expires_at));
        Ok(())
    })?;
    table.each("device", "SELECT * FROM device", [], |row| {
        let (resource, device) = device::read(row)?;
        of(&mut resources, &resource)?.device = device;
        Ok(())
    })?;
    let mut requests = Vec::new();
    table.each("request", "SELECT * FROM request ORDER BY ended_at NULLS LAST, id", [], |row| {
        requests.push(request::read(row)?);
        Ok(())
    })?;
    let failed = |source| OpenError::Sqlite { path: path.into(), source };
    let holds_paused = node::holds_paused(connection).map_err(failed)?;
    let drained = node::drained(connection).map_err(failed)?;
    let violations = invariant::violations(connection).map_err(|error| match error {
        ReadError::Sqlite(source) => failed(source),
        other => OpenError::Row { path: path.into(), table: "resource", why: other.to_string() },
    })?;
    let resources = resources.into_values().collect();
    Ok(Loaded { incarnation, resources, requests, holds_paused, drained, violations })
}

/// Foreign keys see to it that whatever is of a resource finds it.
fn of<'r>(
    resources: &'r mut BTreeMap<ResourceId, StoredResource>,
    id: &ResourceId,
) -> Result<&'r mut StoredResource, Unreadable> {
    resources.get_mut(id).ok_or_else(|| format!("there is no resource {id}"))
}

/// Reads one resource, and one request. A resource of which nothing is stored has no row and comes back empty.
pub(super) fn resource(
    connection: &Connection,
    path: &Path,
    id: &ResourceId,
    request: Option<&RequestId>,
) -> Result<Reopened, OpenError> {
    let table = Reader { connection, path };
    let mut found = StoredResource::empty(id.clone());
    let select = format!("SELECT {} FROM resource WHERE id = ?1", resource::COLUMNS);
    table.each("resource", &select, [id.as_str()], |row| {
        found = resource::read(row)?;
        Ok(())
    })?;
    let select = format!("SELECT {} FROM lease WHERE resource_id = ?1 ORDER BY fence", lease::COLUMNS);
    table.each("lease", &select, [id.as_str()], |row| {
        found.leases.push(lease::read(row)?);
        Ok(())
    })?;
    let select = "SELECT * FROM waiter WHERE resource_id = ?1 ORDER BY run, arrival";
    table.each("waiter", select, [id.as_str()], |row| {
        found.waiters.push(waiter::read(row)?.1);
        Ok(())
    })?;
    table.each("reservation", "SELECT * FROM reservation WHERE resource_id = ?1", [id.as_str()], |row| {
        found.reserved.push(waiter::read_reservation(row)?.1);
        Ok(())
    })?;
    let select = "SELECT * FROM booking WHERE resource_id = ?1 ORDER BY starts_at, id";
    table.each("booking", select, [id.as_str()], |row| {
        found.bookings.push(booking::read(row)?);
        Ok(())
    })?;
    let select = "SELECT * FROM hold WHERE resource_id = ?1 ORDER BY starts_at, id";
    table.each("hold", select, [id.as_str()], |row| {
        found.holds.push(hold::read(row)?);
        Ok(())
    })?;
    table.each("device", "SELECT * FROM device WHERE resource_id = ?1", [id.as_str()], |row| {
        found.device = device::read(row)?.1;
        Ok(())
    })?;
    let mut stored = None;
    if let Some(request) = request {
        table.each("request", "SELECT * FROM request WHERE id = ?1", [request.as_str()], |row| {
            stored = Some(request::read(row)?);
            Ok(())
        })?;
    }
    Ok((found, stored))
}

/// Reads one resource, with one look where nothing is stored of it: whatever is of a resource needs its row.
pub(super) fn resource_if_stored(
    connection: &Connection,
    path: &Path,
    id: ResourceId,
) -> Result<StoredResource, OpenError> {
    let table = Reader { connection, path };
    let mut stored = false;
    table.each("resource", "SELECT 1 FROM resource WHERE id = ?1", [id.as_str()], |_| {
        stored = true;
        Ok(())
    })?;
    if stored { Ok(resource(connection, path, &id, None)?.0) } else { Ok(StoredResource::empty(id)) }
}

/// Reads rows and names the file and the table when one cannot be read.
struct Reader<'a> {
    connection: &'a Connection,
    path: &'a Path,
}

impl Reader<'_> {
    fn each(
        &self,
        table: &'static str,
        select: &str,
        params: impl Params,
        mut take: impl FnMut(&Row<'_>) -> Result<(), Unreadable>,
    ) -> Result<(), OpenError> {
        let failed = |source| OpenError::Sqlite { path: self.path.into(), source };
        let mut statement = self.connection.prepare_cached(select).map_err(failed)?;
        let mut rows = statement.query(params).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            take(row).map_err(|why| OpenError::Row { path: self.path.into(), table, why })?;
        }
        Ok(())
    }
}
