//! `berth lease` and its subcommands.

use std::time::Duration;

use jiff::Timestamp;

use super::failure::Unsettled;
use super::lease_args::{LeaseArgs, LeaseCommand, renew};
use super::output::Output;
use super::{span, table};
use crate::client::{Client, ClientError};
use crate::model::Refusal;
use crate::service::answers::{Acquired, Leases, OneLease, OneRequest};
use crate::service::ask::RequestBody;
use crate::service::views::{LeaseView, RequestState, RequestView, left};

/// How long a request that waits is followed.
const FOLLOW_BOUND: Duration = Duration::from_secs(60);
/// One long poll.
const POLL_WAIT: Duration = Duration::from_secs(20);
/// Between two long polls, for a node that answers them at once.
const POLL_PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(args: LeaseArgs, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let Some(command) = args.command else {
        let body = args.request.body()?;
        return request(&body, client, FOLLOW_BOUND, output).await;
    };
    match command {
        LeaseCommand::Acquire { resource, duration, terms } => {
            let acquired = client.acquire(&resource, &terms.acquire(duration)).await?;
            let line = match &acquired {
                Acquired::Active { lease } => said("leased", lease),
                Acquired::Pending(pending) => {
                    format!("pending {} position {}\n", pending.resource_id, pending.waiting_position)
                }
            };
            output.answer(&acquired, || line)
        }
        LeaseCommand::Renew { lease, ttl, fence } => {
            let lease = client.renew(&lease, &renew(ttl, fence)).await?;
            let line = said("renewed", &lease);
            output.answer(&OneLease { lease }, || line)
        }
        LeaseCommand::Release { lease, fence } => {
            let released = client.release(&lease, fence).await?;
            output.answer(&released, || format!("{}\n", released.message))
        }
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

/// Asks for a lease and stays until the request is settled, at most for `bound` after its first answer.
pub(super) async fn request(
    body: &RequestBody,
    client: &Client,
    bound: Duration,
    output: &mut Output<'_>,
) -> anyhow::Result<()> {
    let mut request = client.request(body).await?;
    if request.state == RequestState::Waiting {
        output.talk(&format!("lease request {} is being placed …", request.id));
        let id = request.id.clone();
        let settled = tokio::time::timeout(bound, settle(client, request)).await;
        request = settled.map_err(|_| Unsettled { request: id })??;
    }
    match (request.state, request.lease.clone(), &request.error) {
        (RequestState::Granted, Some(lease), _) => output.answer(&OneRequest { request }, || said("leased", &lease)),
        (RequestState::Failed, _, Some(refusal)) => Err(Refusal::clone(refusal).into()),
        _ => Err(anyhow::anyhow!("lease request {} is settled without a lease and without a reason", request.id)),
    }
}

async fn settle(client: &Client, mut request: RequestView) -> Result<RequestView, ClientError> {
    loop {
        request = client.lease_request(&request.id, POLL_WAIT).await.map_err(ClientError::after_a_first_answer)?;
        if request.state != RequestState::Waiting {
            return Ok(request);
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
}

fn said(verb: &str, lease: &LeaseView) -> String {
    format!("{verb} {} {} until {}\n", lease.id, lease.resource_id, until(lease.expires_at))
}

/// In whole seconds, rounded down: nobody relies on a part of a second.
fn until(at: Timestamp) -> String {
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
        ("ttl", span::short(Duration::from_millis(lease.ttl_ms))),
        ("fence", lease.fence.to_string()),
        ("labels", table::labels(&lease.labels)),
        ("environment", environment.collect::<Vec<_>>().join(" ")),
        ("note", note(lease)),
    ])
}
