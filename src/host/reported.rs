//! What is reported of a resource and of a gateway's requests, and when: each change in the order of what happened. A
//! resource comes before the rows of its waiting room, and those before how a request was settled.
//!
//! Of requests only those are reported that come through the gateway which is linked, and of the settled ones only those
//! that are on disk: nothing is remembered of a probe that was declined.

use ractor::RpcReplyPort;

use super::desk::DeskState;
use super::directory::Entry;
use super::message::FirstGrant;
use super::reporter::Subscription;
use super::settle::chosen;
use crate::admission::resource::{Change, Claim, Claimant, DeviceChange, Work};
use crate::admission::{Request, RequestState, Waiter};
use crate::clock::{Now, RunTime};
use crate::limits::SETTLED_ROWS_MAX;
use crate::model::time::{remaining, whole_ms};
use crate::model::{BookingMode, NodeName, RequestId, ResourceId};
use crate::wire::report::{Changed, DeviceReport, LeaseRow, NextWindow, ResourceReport};
use crate::wire::requests::{SettledOutcome, SettledRow, WaitingRow};

impl DeskState {
    /// Everything as it is now, for the link to `gateway`, and every change from now on.
    pub(super) fn subscribe(&mut self, gateway: NodeName, reply: RpcReplyPort<Subscription>) {
        let now = self.clock.now();
        let resources = self.directory.iter().map(|entry| report(entry, now)).collect();
        let rows = self.directory.iter().flat_map(|entry| {
            let of_gateway = |waiter: &&Waiter| waiter.proposal.holder.via.as_ref() == Some(&gateway);
            // One that its device is made ready for waits no less.
            let claimed = entry.state.device.claim().and_then(waits_by_claim);
            let waiters = entry.state.queue.iter().chain(claimed).filter(of_gateway);
            waiters.map(|waiter| waiting_row(&entry.spec.id, waiter))
        });
        let waiting = rows.collect();
        let settled = self.settled_rows(&gateway, now);
        // A subscriber that has gone hears nothing.
        let _ = reply.send(self.reporter.subscribe(gateway, resources, waiting, settled));
    }

    /// The settled requests of a gateway's that are remembered; the latest, if they are too many.
    fn settled_rows(&self, gateway: &NodeName, now: Now) -> Vec<SettledRow> {
        let of_gateway = |request: &Request<FirstGrant>| request.requester.via.as_ref() == Some(gateway);
        let known = self.requests.iter().filter(|(_, request)| of_gateway(request));
        let mut rows: Vec<SettledRow> = known.filter_map(|(id, request)| self.settled_row(id, request, now)).collect();
        if rows.len() > SETTLED_ROWS_MAX {
            rows.select_nth_unstable_by_key(SETTLED_ROWS_MAX, |row| row.ended_ms_ago);
            rows.truncate(SETTLED_ROWS_MAX);
        }
        rows
    }

    /// A request that is settled and remembered.
    fn settled_row(&self, id: &RequestId, request: &Request<FirstGrant>, now: Now) -> Option<SettledRow> {
        if !request.stored {
            return None;
        }
        let since = self.requests.settled_since(id);
        let mut fingerprint = request.fingerprint;
        let outcome = match &request.state {
            RequestState::Open => return None,
            RequestState::Granted(FirstGrant { lease, expires_at, labels, environment, .. }) => {
                fingerprint = Some(lease.fingerprint);
                let left = now.run_at(*expires_at, lease.ttl).left(now.run);
                SettledOutcome::Granted {
                    resource: lease.resource_id.clone(),
                    lease: LeaseRow::new(lease, left),
                    expires_at: *expires_at,
                    labels: labels.clone(),
                    environment: environment.clone(),
                }
            }
            RequestState::Failed(refusal) => SettledOutcome::Failed(refusal.clone()),
            RequestState::Cancelled => SettledOutcome::Cancelled,
        };
        Some(SettledRow {
            request: id.clone(),
            requester: request.requester.clone(),
            key: request.key.clone(),
            fingerprint: fingerprint?,
            created_at: request.created_at,
            ended_ms_ago: since.map(|since: RunTime| whole_ms(now.run.left(since))),
            outcome,
        })
    }

    /// A resource has changed.
    pub(super) fn report_resource(&mut self, resource: &ResourceId) {
        let Some(entry) = self.directory.get(resource) else { return };
        let now = self.clock.now();
        self.reporter.changed(|| Changed::Resource(report(entry, now)));
    }

    /// A resource is there no more.
    pub(super) fn report_gone(&mut self, resource: &ResourceId) {
        self.reporter.changed(|| Changed::ResourceGone(resource.clone()));
    }

    /// A row of a waiting room is there, or is there no more.
    pub(super) fn report_row(&mut self, row: Row) {
        match row {
            Row::Waits(row) if row.requester.via.as_ref() == self.reporter.gateway() => {
                self.reporter.changed(|| Changed::Waiting(*row));
            }
            Row::Gone(request) if self.reporter.is_told_to_wait(&request) => {
                self.reporter.changed(|| Changed::Gone(request));
            }
            Row::Waits(_) | Row::Gone(_) => {}
        }
    }

    /// A request is settled, or is forgotten though it has waited.
    pub(super) fn report_end(&mut self, id: &RequestId) {
        let request = self.requests.get(id);
        let of_gateway = |request: &&Request<FirstGrant>| {
            request.requester.via.is_some() && request.requester.via.as_ref() == self.reporter.gateway()
        };
        let row = request.filter(of_gateway).and_then(|request| self.settled_row(id, request, self.clock.now()));
        match row {
            Some(row) => self.reporter.changed(|| Changed::Settled(row)),
            None => self.report_row(Row::Gone(id.clone())),
        }
    }
}

/// What has become of a row of a waiting room.
#[derive(Debug)]
pub(super) enum Row {
    /// It is there, like this.
    Waits(Box<WaitingRow>),
    /// It is there no more. Of an attended waiter that is told by how its request was settled.
    Gone(RequestId),
}

/// Adds what a change does to the rows of a waiting room. Local clients have none.
pub(super) fn add_rows(resource: &ResourceId, change: &Change, rows: &mut Vec<Row>) {
    let waits = |waiter: &Waiter| Row::Waits(Box::new(waiting_row(resource, waiter)));
    let of_gateway = |waiter: &Waiter| waiter.proposal.holder.via.is_some();
    match change {
        Change::Joined { waiter, .. } if of_gateway(waiter) => rows.push(waits(waiter)),
        Change::Device(DeviceChange::Work { work: Work::Preparing(claim), .. }) => {
            rows.extend(waits_by_claim(claim).filter(|waiter| of_gateway(waiter)).map(waits));
        }
        Change::Moved { former, waiter } if of_gateway(waiter) => {
            if *former != waiter.proposal.request {
                rows.push(Row::Gone(former.clone()));
            }
            rows.push(waits(waiter));
        }
        Change::Left { waiter, .. } if of_gateway(waiter) && !waiter.is_attended() => {
            rows.push(Row::Gone(waiter.proposal.request.clone()));
        }
        // The entry was its own latest ask, and that is told as settled.
        Change::Granted { lease, .. } => {
            rows.retain(|row| !matches!(row, Row::Gone(request) if *request == lease.request_id));
        }
        _ => {}
    }
}

/// The rows that were read from disk after a resource's actor had died, as far as they say something else than before.
pub(super) fn reopened_rows(before: &Entry, after: &crate::admission::resource::ResourceState) -> Vec<Row> {
    let resource = &before.spec.id;
    let of_gateway = |waiter: &&Waiter| waiter.proposal.holder.via.is_some();
    let now: Vec<WaitingRow> = after.queue.iter().filter(of_gateway).map(|it| waiting_row(resource, it)).collect();
    let gone = before.state.queue.iter().filter(of_gateway).filter(|waiter| {
        // How an attended one was settled is told by that.
        !waiter.is_attended() && after.queue.get(&waiter.proposal.request).is_none()
    });
    let mut rows: Vec<Row> = gone.map(|waiter| Row::Gone(waiter.proposal.request.clone())).collect();
    let is_known = |row: &WaitingRow| {
        before.state.queue.get(&row.request).is_some_and(|waiter| waiting_row(resource, waiter) == *row)
    };
    rows.extend(now.into_iter().filter(|row| !is_known(row)).map(|row| Row::Waits(Box::new(row))));
    rows
}

/// Who waits by name while a device is made ready. (A gateway's probe by selector does not wait here.)
fn waits_by_claim(claim: &Claim) -> Option<&Waiter> {
    match &claim.claimant {
        Claimant::Waiter { waiter, stored: true } => Some(waiter),
        Claimant::Waiter { .. } | Claimant::Booking { .. } | Claimant::Nobody => None,
    }
}

fn waiting_row(resource: &ResourceId, waiter: &Waiter) -> WaitingRow {
    let proposal = &waiter.proposal;
    let attended = waiter.is_attended();
    WaitingRow {
        request: proposal.request.clone(),
        requester: proposal.holder.clone(),
        resource: resource.clone(),
        mode: proposal.mode,
        attended,
        lease_id: chosen(waiter),
        // The key of an unattended waiter stands for nothing: the same key is a new try (SPEC §2, check 2).
        key: proposal.key.clone().filter(|_| attended),
        fingerprint: proposal.fingerprint,
        joined_at: waiter.joined_at,
    }
}

/// True for what changes the report of a resource.
pub(super) fn is_reported(entry: &Entry, change: &Change) -> bool {
    match change {
        Change::Granted { .. }
        | Change::Renewed { .. }
        | Change::Ended { .. }
        | Change::Drained { .. }
        | Change::Joined { .. }
        | Change::Left { .. }
        | Change::StateChanged { .. }
        | Change::Reserved(_)
        | Change::Unreserved { .. } => true,
        Change::Calendar(_) => has_windows(entry),
        // Also where the state stays the same: of a leased device, or of one that is tried again, the reason is shown.
        Change::Device(change) => match change {
            DeviceChange::Work { .. }
            | DeviceChange::Cooling(_)
            | DeviceChange::Absent(_)
            | DeviceChange::Failure(_)
            | DeviceChange::Health(_) => true,
            DeviceChange::Identity(_) | DeviceChange::ResetTook(_) => false,
        },
        Change::Requested { .. }
        | Change::Queued { .. }
        | Change::Moved { .. }
        | Change::Seen { .. }
        | Change::Rejected { .. }
        | Change::Declined { .. }
        | Change::Noticed { .. }
        | Change::NodeHoldsPaused(_)
        | Change::NodeDrained(_)
        | Change::Violated { .. } => false,
    }
}

/// True for a resource whose windows are reported.
pub(super) fn has_windows(entry: &Entry) -> bool {
    entry.spec.bookings.mode == BookingMode::Enforced
}

/// What keeps a device from being granted, beside its leases and what is said of drains elsewhere.
fn device_report(entry: &Entry, now: Now) -> Option<DeviceReport> {
    let device = &entry.state.device;
    if device.is_ready() {
        return None;
    }
    let ends = entry.state.device_until(&entry.spec).filter(|until| *until > now.run);
    Some(DeviceReport {
        state: device.state_alone(),
        reason: device.reason().map(|reason| reason.chars().take(REASON_CHARS_MAX).collect()),
        ends_in_ms: ends.map(|until| whole_ms(until.left(now.run))),
        request: device.claim().filter(|claim| claim.of.holder.via.is_some()).and_then(Claim::request).cloned(),
    })
}

/// What is reported of a reason.
const REASON_CHARS_MAX: usize = 512;

/// A resource as it is now.
pub(super) fn report(entry: &Entry, now: Now) -> ResourceReport {
    let state = &entry.state;
    let ms_until = |at| whole_ms(remaining(now.wall, at));
    let next_window = state.calendar.next_window(entry.spec.bookings, now.wall).map(|(starts_at, claim)| NextWindow {
        holder: claim.holder.clone(),
        starts_in_ms: ms_until(starts_at),
        ends_in_ms: ms_until(claim.ends_at),
    });
    ResourceReport {
        id: entry.spec.id.clone(),
        labels: entry.spec.labels.clone(),
        max_shared: entry.spec.max_shared.get(),
        fence: state.fence,
        grantable: entry.grantable,
        drained: state.drained,
        queue_length: state.queue.len() as u64,
        reserved: u32::try_from(state.reserved.len()).unwrap_or(u32::MAX),
        next_window,
        device: device_report(entry, now),
        environment: entry.facts.environment.clone(),
        identity: entry.facts.identity.clone(),
        failure: state.device.failure.as_deref().cloned(),
        prepared_ms: whole_ms(entry.prepared),
        leases: state.held.iter().map(|held| LeaseRow::new(&held.lease, held.deadline.left(now.run))).collect(),
    }
}
