//! `berth lease` and its subcommands.

use std::time::Duration;

use jiff::Timestamp;

use super::interrupt::Interrupt;
use super::lease_args::{LeaseArgs, LeaseCommand, renew};
use super::output::Output;
use super::patience::Pace;
use super::{acquire, bookings, holds, request, span, table, waiting_room};
use crate::client::Client;
use crate::service::answers::{Leases, OneLease};
use crate::service::views::{LeaseView, left};

pub(super) async fn run(
    args: LeaseArgs,
    client: &Client,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
    pace: Pace,
) -> anyhow::Result<()> {
    let Some(command) = args.command else {
        return request::run(args.request.body()?, args.keep, client, output, interrupt, pace).await;
    };
    match command {
        LeaseCommand::Acquire(args) => acquire::run(args, client, output, interrupt, pace).await,
        LeaseCommand::WaitingRoom { resource } => waiting_room::show(&resource, client, output).await,
        LeaseCommand::Leave { resource } => waiting_room::leave(&resource, client, output).await,
        LeaseCommand::Cancel { request } => {
            client.cancel(&request).await?;
            let shape = serde_json::json!({ "requestId": request, "state": "cancelled" });
            output.answer(&shape, || format!("cancelled lease request {request}\n"))
        }
        LeaseCommand::Renew { lease, ttl, allow_shorter, fence } => {
            let renewed = client.renew(&lease, &renew(ttl, fence, allow_shorter)).await?;
            for notice in &renewed.notices {
                output.talk(&format!("notice: {} {}", until(notice.at), notice.message));
            }
            output.answer(&renewed, || said("renewed", &renewed.lease))
        }
        LeaseCommand::Release { lease, fence } => {
            let released = client.release(&lease, fence).await?;
            if let Some(next) = &released.admitted_waiter {
                output.talk(&format!("{} is next for {}", next, released.resource_id));
            }
            output.answer(&released, || format!("{}\n", released.message))
        }
        LeaseCommand::Exec(_) => unreachable!("a tool at a device is run where the exit code is its own"),
        LeaseCommand::Bookings { command } => bookings::run(command, client, output).await,
        LeaseCommand::Holds { command } => holds::run(command, client, output).await,
        LeaseCommand::List => {
            let leases = client.leases().await?;
            if leases.is_empty() {
                output.talk("no leases");
            }
            let human = listed(&leases);
            output.answer(&Leases { leases }, || human)
        }
        LeaseCommand::Show { lease } => {
            let lease = client.lease(&lease).await?;
            let human = shown(&lease);
            output.answer(&OneLease { lease }, || human)
        }
    }
}

pub(super) fn said(verb: &str, lease: &LeaseView) -> String {
    format!("{verb} {} {} until {}{}\n", lease.id, lease.resource_id, until(lease.expires_at), cut(lease))
}

/// That it is shorter than it was asked for, where it is.
fn cut(lease: &LeaseView) -> String {
    let asked = lease.asked_ttl_ms.map(|asked| span::short(Duration::from_millis(asked)));
    asked.map(|asked| format!(" (cut from {asked} to fit before a booking)")).unwrap_or_default()
}

/// In whole seconds, rounded down: nobody relies on a part of a second.
pub(super) fn until(at: Timestamp) -> String {
    format!("{at:.0}")
}

fn worker(lease: &LeaseView) -> String {
    lease.worker.as_ref().map(|worker| worker.id.to_string()).unwrap_or_default()
}

fn note(lease: &LeaseView) -> String {
    lease.note.as_ref().map(ToString::to_string).unwrap_or_default()
}

pub(super) fn listed(leases: &[LeaseView]) -> String {
    let rows = leases.iter().map(|lease| {
        [
            lease.id.to_string(),
            lease.resource_id.to_string(),
            worker(lease),
            lease.holder_id.to_string(),
            lease.mode.as_str().to_owned(),
            span::short(left(lease)),
            until(lease.expires_at),
            note(lease),
        ]
    });
    table::list(["LEASE", "RESOURCE", "WORKER", "HOLDER", "MODE", "LEFT", "UNTIL", "NOTE"], rows)
}

pub(super) fn shown(lease: &LeaseView) -> String {
    let environment = lease.environment.iter().map(|(name, value)| format!("{name}={value}"));
    table::sheet([
        ("lease", lease.id.to_string()),
        ("resource", lease.resource_id.to_string()),
        ("worker", worker(lease)),
        ("holder", lease.holder_id.to_string()),
        ("mode", lease.mode.as_str().to_owned()),
        ("granted", until(lease.granted_at)),
        ("renewed", until(lease.renewed_at)),
        ("until", format!("{} (in {})", until(lease.expires_at), span::short(left(lease)))),
        ("ttl", format!("{}{}", span::short(Duration::from_millis(lease.ttl_ms)), cut(lease))),
        ("fence", lease.fence.to_string()),
        ("labels", table::labels(&lease.labels)),
        ("environment", environment.collect::<Vec<_>>().join(" ")),
        ("note", note(lease)),
    ])
}
