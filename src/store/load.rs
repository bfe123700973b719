//! What the database holds, read at start and when a resource's actor has died.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::Connection;

use super::OpenError;
use super::row::{LEASE_COLUMNS, Unreadable, column, instant, parsed, read_lease};
use crate::model::{Fence, Fingerprint, IdempotencyKey, LeaseRecord, RequestId, Requester, ResourceId};

/// Everything a node needs to know to go on where it was.
#[derive(Debug)]
pub struct Loaded {
    /// Grows with every start of the node: at least one more than the last, and not behind the Unix time in ms.
    pub incarnation: u64,
    /// Resources that were ever leased.
    pub resources: Vec<StoredResource>,
    /// Settled requests, in the order in which their leases ended; those whose lease is active come last.
    pub requests: Vec<StoredRequest>,
}

/// One resource, as it stands on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResource {
    /// Which.
    pub id: ResourceId,
    /// The fence of its latest grant.
    pub fence: Fence,
    /// Since when nobody holds it.
    pub idle_since: Option<Timestamp>,
    /// Its active leases, each with its deadline as wall time.
    pub leases: Vec<(LeaseRecord, Timestamp)>,
}

/// A granted request that may still be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRequest {
    /// Which.
    pub id: RequestId,
    /// Who asked.
    pub requester: Requester,
    /// Under which key.
    pub key: Option<IdempotencyKey>,
    /// For what.
    pub fingerprint: Fingerprint,
    /// The lease as it was granted.
    pub lease: LeaseRecord,
    /// Its deadline as it was granted, wall time.
    pub expires_at: Timestamp,
    /// When the lease ended; none while it is active.
    pub ended_at: Option<Timestamp>,
}

/// Reads everything but the incarnation, which the caller has just raised.
pub(super) fn everything(connection: &Connection, path: &Path, incarnation: u64) -> Result<Loaded, OpenError> {
    let failed = |source| OpenError::Sqlite { path: path.into(), source };
    let unreadable = |table| move |why| OpenError::Row { path: path.into(), table, why };

    let mut resources = std::collections::BTreeMap::new();
    let mut statement = connection.prepare("SELECT id, fence, idle_since FROM resource").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let resource = read_resource(row).map_err(unreadable("resource"))?;
        resources.insert(resource.id.clone(), resource);
    }
    let mut statement = connection.prepare(&format!("SELECT {LEASE_COLUMNS} FROM lease")).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let (lease, expires_at) = read_lease(row).map_err(unreadable("lease"))?;
        if let Some(resource) = resources.get_mut(&lease.resource_id) {
            resource.leases.push((lease, expires_at));
        }
    }
    let mut statement = connection.prepare("SELECT * FROM request ORDER BY ended_at NULLS LAST, id").map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut requests = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        requests.push(read_request(row).map_err(unreadable("request"))?);
    }
    Ok(Loaded { incarnation, resources: resources.into_values().collect(), requests })
}

/// Reads one resource; one that was never leased has no row and comes back empty.
pub(super) fn resource(connection: &Connection, path: &Path, id: &ResourceId) -> Result<StoredResource, OpenError> {
    let failed = |source| OpenError::Sqlite { path: path.into(), source };
    let unreadable = |table| move |why| OpenError::Row { path: path.into(), table, why };
    let mut found = StoredResource { id: id.clone(), fence: Fence::default(), idle_since: None, leases: Vec::new() };

    let mut statement =
        connection.prepare_cached("SELECT id, fence, idle_since FROM resource WHERE id = ?1").map_err(failed)?;
    let mut rows = statement.query([id.as_str()]).map_err(failed)?;
    if let Some(row) = rows.next().map_err(failed)? {
        found = read_resource(row).map_err(unreadable("resource"))?;
    }
    let select = format!("SELECT {LEASE_COLUMNS} FROM lease WHERE resource_id = ?1 ORDER BY fence");
    let mut statement = connection.prepare_cached(&select).map_err(failed)?;
    let mut rows = statement.query([id.as_str()]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        found.leases.push(read_lease(row).map_err(unreadable("lease"))?);
    }
    Ok(found)
}

fn read_resource(row: &rusqlite::Row<'_>) -> Result<StoredResource, Unreadable> {
    Ok(StoredResource {
        id: parsed(column(row, "id")?)?,
        fence: Fence(column(row, "fence")?),
        idle_since: column::<Option<i64>>(row, "idle_since")?.map(instant).transpose()?,
        leases: Vec::new(),
    })
}

fn read_request(row: &rusqlite::Row<'_>) -> Result<StoredRequest, Unreadable> {
    let result: String = column(row, "result")?;
    Ok(StoredRequest {
        id: parsed(column(row, "id")?)?,
        requester: parsed(column(row, "requester")?)?,
        key: column::<Option<String>>(row, "idempotency_key")?.map(parsed).transpose()?,
        fingerprint: parsed(column(row, "fingerprint")?)?,
        lease: serde_json::from_str(&result).map_err(|error| format!("result: {error}"))?,
        expires_at: instant(column(row, "expires_at")?)?,
        ended_at: column::<Option<i64>>(row, "ended_at")?.map(instant).transpose()?,
    })
}
