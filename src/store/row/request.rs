//! Lease requests as rows: open, then granted, failed or cancelled.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::{Unreadable, column, exactly_one, instant, instant_option, parsed, parsed_option};
use crate::admission::resource::{EndReason, Place, Rejection};
use crate::model::{LeaseRecord, Proposal, Refusal, RequestId};
use crate::store::{StoredOutcome, StoredRequest};

/// Reads a whole row.
pub(in crate::store) fn read(row: &Row<'_>) -> Result<StoredRequest, Unreadable> {
    let id: String = column(row, "id")?;
    let read = || -> Result<StoredRequest, Unreadable> {
        let request = StoredRequest {
            id: parsed(row, "id")?,
            requester: parsed(row, "requester")?,
            key: parsed_option(row, "idempotency_key")?,
            fingerprint: parsed(row, "fingerprint")?,
            created_at: instant(row, "created_at")?,
            outcome: outcome(row)?,
            place: column::<Option<String>>(row, "place")?.map(|place| json("place", &place)).transpose()?,
        };
        if request.outcome == StoredOutcome::Open && request.place.is_none() {
            return Err("place: an open request has none".to_owned());
        }
        Ok(request)
    };
    read().map_err(|why| format!("{id}: {why}"))
}

fn outcome(row: &Row<'_>) -> Result<StoredOutcome, Unreadable> {
    match column::<String>(row, "state")?.as_str() {
        "open" => Ok(StoredOutcome::Open),
        "granted" => {
            let reason = column::<Option<String>>(row, "end_reason")?.as_deref().and_then(EndReason::parse);
            Ok(StoredOutcome::Granted {
                lease: json("result", &column::<String>(row, "result")?)?,
                expires_at: instant(row, "expires_at")?,
                ended: instant_option(row, "ended_at")?.map(|at| (at, reason)),
            })
        }
        state @ ("failed" | "cancelled") => Ok(StoredOutcome::Failed {
            refusal: json("refusal", &column::<String>(row, "refusal")?)?,
            cancelled: state == "cancelled",
            at: instant(row, "settled_at")?,
        }),
        other => Err(format!("state: {other:?}")),
    }
}

fn json<T: serde::de::DeserializeOwned>(name: &str, text: &str) -> Result<T, Unreadable> {
    serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))
}

/// Stores a request that begins to wait. A gateway's may come again, with its next attempt, when nothing is left of an
/// earlier one.
pub(in crate::store) fn open(
    connection: &Connection,
    proposal: &Proposal,
    place: &Place,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached(
            "INSERT INTO request (id, requester, idempotency_key, fingerprint, state, created_at, place) \
             VALUES (?1, ?2, ?3, ?4, 'open', ?5, ?6) \
             ON CONFLICT (id) DO UPDATE SET requester = excluded.requester, \
             idempotency_key = excluded.idempotency_key, fingerprint = excluded.fingerprint, state = 'open', \
             created_at = excluded.created_at, result = NULL, expires_at = NULL, refusal = NULL, \
             place = excluded.place, settled_at = NULL, ended_at = NULL, end_reason = NULL \
             WHERE request.ended_at IS NOT NULL",
        )?
        .execute(params![
            proposal.request.as_str(),
            proposal.holder.to_string(),
            proposal.key.as_ref().map(|key| key.as_str()),
            proposal.fingerprint.to_string(),
            at.as_microsecond(),
            serde_json::to_string(place).expect("a place is plain data"),
        ])?;
    exactly_one(changed)
}

/// The place in line of a request of an earlier run has been taken over: its ticket is spent. That the request has
/// been forgotten meanwhile does no harm.
pub(in crate::store) fn spend_place(connection: &Connection, former: &RequestId) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE request SET place = NULL WHERE id = ?1")?.execute([former.as_str()])?;
    Ok(())
}

/// Remembers the request of a lease. It has waited, or it is new; a gateway's may also come again, with its next
/// attempt, after the lease of an earlier one has ended.
pub(in crate::store) fn grant(
    connection: &Connection,
    lease: &LeaseRecord,
    expires_at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO request (id, requester, idempotency_key, fingerprint, state, created_at, result, expires_at, \
             settled_at) VALUES (?1, ?2, ?3, ?4, 'granted', ?5, ?6, ?7, ?5) \
             ON CONFLICT (id) DO UPDATE SET \
             created_at = CASE state WHEN 'open' THEN created_at ELSE excluded.created_at END, \
             idempotency_key = excluded.idempotency_key, fingerprint = excluded.fingerprint, state = 'granted', \
             result = excluded.result, expires_at = excluded.expires_at, refusal = NULL, place = NULL, \
             settled_at = excluded.settled_at, ended_at = NULL, end_reason = NULL",
        )?
        .execute(params![
            lease.request_id.as_str(),
            lease.holder.to_string(),
            lease.idempotency_key.as_ref().map(|key| key.as_str()),
            lease.fingerprint.to_string(),
            lease.granted_at.as_microsecond(),
            serde_json::to_string(lease).expect("a lease is plain data"),
            expires_at.as_microsecond(),
        ])?;
    Ok(())
}

/// The lease of a granted request has ended: its retention begins.
pub(in crate::store) fn end(
    connection: &Connection,
    request: &RequestId,
    reason: EndReason,
    at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE request SET ended_at = ?2, end_reason = ?3 WHERE id = ?1 AND state = 'granted'")?
        .execute(params![request.as_str(), at.as_microsecond(), reason.as_str()])?;
    Ok(())
}

/// An open request got nothing. Its place is kept only where it may be taken over in a later run, its key only where
/// that goes on standing for this outcome.
pub(in crate::store) fn reject(
    connection: &Connection,
    request: &RequestId,
    reason: Rejection,
    refusal: &Refusal,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let changed = connection
        .prepare_cached(
            "UPDATE request SET state = ?2, refusal = ?3, settled_at = ?4, ended_at = ?4, \
             idempotency_key = CASE WHEN ?5 THEN idempotency_key END, place = CASE WHEN ?6 THEN place END \
             WHERE id = ?1 AND state = 'open'",
        )?
        .execute(params![
            request.as_str(),
            if reason == Rejection::Cancelled { "cancelled" } else { "failed" },
            serde_json::to_string(refusal).expect("a refusal is plain data"),
            at.as_microsecond(),
            reason.is_remembered(),
            reason == Rejection::DaemonRestarted,
        ])?;
    exactly_one(changed)
}

/// Forgets a request whose retention is over; one that is open, or whose lease is active, stays.
pub(in crate::store) fn forget(connection: &Connection, request: &RequestId) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM request WHERE id = ?1 AND ended_at IS NOT NULL")?
        .execute([request.as_str()])?;
    Ok(())
}
