//! What is done to devices, as rows. A resource has at most one; what it does not say is as if nothing had ever been done.

use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::resource::insert_if_absent;
use super::{Unreadable, column, instant_option, parsed, parsed_option};
use crate::admission::resource::{Cooling, DeviceChange, OfLease, Quarantine, Reset, Work};
use crate::model::time::whole_ms;
use crate::model::{Fence, HookKind, ResourceId};
use crate::store::{StoredDevice, StoredWork};

/// Reads a whole row: the resource, and its device.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<(ResourceId, StoredDevice), Unreadable> {
    let name: String = column(row, "resource_id")?;
    let read = || -> Result<_, Unreadable> {
        let of = match parsed_option(row, "of_lease")? {
            Some(lease) => {
                let (holder, fence) = (parsed(row, "of_holder")?, Fence(column(row, "of_fence")?));
                Some(OfLease { lease, holder, fence })
            }
            None => None,
        };
        let missing = || "of_lease: there is none".to_owned();
        let work = match column::<String>(row, "work")?.as_str() {
            "none" => StoredWork::None,
            "preparing" => StoredWork::Preparing(of.ok_or_else(missing)?),
            "resetting" => StoredWork::Resetting(of.ok_or_else(missing)?),
            "quarantined" => {
                let fault = match column::<String>(row, "fault")?.as_str() {
                    "reset" => HookKind::Reset,
                    "health" => HookKind::Health,
                    other => return Err(format!("fault: {other}")),
                };
                StoredWork::Quarantined { of, fault, why: column(row, "why")?, tries: column(row, "tries")? }
            }
            other => return Err(format!("work: {other}")),
        };
        let cooling = match instant_option(row, "cooling_until")? {
            Some(until) => Some((until, Duration::from_millis(column(row, "cooling_width_ms")?))),
            None => None,
        };
        let (failure, identity) = (json(row, "failure")?, json(row, "identity")?);
        let claimed = Fence(column(row, "claimed")?);
        Ok((parsed(row, "resource_id")?, StoredDevice { work, claimed, cooling, failure, identity }))
    };
    read().map_err(|why| format!("{name}: {why}"))
}

fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, name: &str) -> Result<Option<T>, Unreadable> {
    let text = column::<Option<String>>(row, name)?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))).transpose()
}

/// Writes what has changed of a device.
pub(in crate::store) fn write(
    connection: &Connection,
    resource: Option<&ResourceId>,
    change: &DeviceChange,
) -> rusqlite::Result<()> {
    match change {
        DeviceChange::Work { work, .. } => write_work(connection, resource, work),
        DeviceChange::Cooling(cooling) => write_cooling(connection, resource, *cooling),
        DeviceChange::Failure(failure) => write_json(
            connection,
            "INSERT INTO device (resource_id, work, failure) VALUES (?1, 'none', ?2) \
             ON CONFLICT (resource_id) DO UPDATE SET failure = excluded.failure",
            resource,
            failure.as_deref(),
        ),
        DeviceChange::Identity(identity) => write_json(
            connection,
            "INSERT INTO device (resource_id, work, identity) VALUES (?1, 'none', ?2) \
             ON CONFLICT (resource_id) DO UPDATE SET identity = excluded.identity",
            resource,
            identity.as_ref(),
        ),
        // These live in memory only.
        DeviceChange::Absent(_) | DeviceChange::Health(_) | DeviceChange::ResetTook(_) => Ok(()),
    }
}

fn write_json<T: serde::Serialize>(
    connection: &Connection,
    insert: &str,
    resource: Option<&ResourceId>,
    value: Option<&T>,
) -> rusqlite::Result<()> {
    let text = value.map(|value| serde_json::to_string(value).expect("it is plain data"));
    insert_if_absent(connection, resource)?;
    connection.prepare_cached(insert)?.execute(params![resource.map(ResourceId::as_str), text])?;
    Ok(())
}

fn write_work(connection: &Connection, resource: Option<&ResourceId>, work: &Work) -> rusqlite::Result<()> {
    let (word, of, quarantine) = match work {
        Work::None => ("none", None, None),
        Work::Preparing(claim) => ("preparing", Some(&claim.of), None),
        Work::Resetting(Reset { of, .. }) => ("resetting", Some(of), None),
        Work::Quarantined(quarantine) => ("quarantined", quarantine.of.as_ref(), Some(quarantine)),
    };
    let claimed = if let Work::Preparing(claim) = work { claim.of.fence.0 } else { 0 };
    insert_if_absent(connection, resource)?;
    connection
        .prepare_cached(
            "INSERT INTO device (resource_id, work, of_lease, of_holder, of_fence, fault, why, tries, claimed) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
             ON CONFLICT (resource_id) DO UPDATE SET work = excluded.work, of_lease = excluded.of_lease, \
             of_holder = excluded.of_holder, of_fence = excluded.of_fence, fault = excluded.fault, why = excluded.why, \
             tries = excluded.tries, claimed = max(claimed, excluded.claimed)",
        )?
        .execute(params![
            resource.map(ResourceId::as_str),
            word,
            of.map(|of| of.lease.as_str()),
            of.map(|of| of.holder.to_string()),
            of.map(|of| of.fence.0),
            quarantine.map(|quarantine: &Quarantine| quarantine.fault.as_str()),
            quarantine.map(|quarantine| &*quarantine.why),
            quarantine.map(|quarantine| quarantine.tries),
            claimed,
        ])?;
    Ok(())
}

fn write_cooling(
    connection: &Connection,
    resource: Option<&ResourceId>,
    cooling: Option<Cooling>,
) -> rusqlite::Result<()> {
    insert_if_absent(connection, resource)?;
    connection
        .prepare_cached(
            "INSERT INTO device (resource_id, work, cooling_until, cooling_width_ms) VALUES (?1, 'none', ?2, ?3) \
             ON CONFLICT (resource_id) DO UPDATE SET cooling_until = excluded.cooling_until, \
             cooling_width_ms = excluded.cooling_width_ms",
        )?
        .execute(params![
            resource.map(ResourceId::as_str),
            cooling.map(|cooling| cooling.ends_at.as_microsecond()),
            cooling.map(|cooling| whole_ms(cooling.width)),
        ])?;
    Ok(())
}
