//! `berth resource` and `berth status`.

use super::args::ResourceCommand;
use super::output::Output;
use super::table;
use crate::client::Client;
use crate::service::answers::{OneResource, Resources};
use crate::service::views::{Connection, GatewayView, LeaseBrief, ResourceView, StatusView, WorkerView};

pub(super) async fn resources(
    command: ResourceCommand,
    client: &Client,
    output: &mut Output<'_>,
) -> anyhow::Result<()> {
    match command {
        ResourceCommand::List { select } => {
            let resources = client.resources(select.as_ref()).await?;
            if resources.is_empty() {
                output.talk("no resources");
            }
            let human = resource_list(&resources);
            output.answer(&Resources { resources }, || human)
        }
        ResourceCommand::Show { resource } => {
            let resource = client.resource(&resource).await?;
            let human = resource_sheet(&resource);
            output.answer(&OneResource { resource }, || human)
        }
        ResourceCommand::Drain { resource } => {
            let resource = client.drain(&resource).await?;
            if !resource.leases.is_empty() {
                output.talk(&format!("still leased: {}", leases(&resource)));
            }
            let human = format!("drained {}\n", resource.id);
            output.answer(&OneResource { resource }, || human)
        }
        ResourceCommand::Clear { resource } => {
            let resource = client.clear(&resource).await?;
            let human = format!("{} is {}\n", resource.id, resource.state.as_str());
            output.answer(&OneResource { resource }, || human)
        }
        ResourceCommand::Undrain { resource } => {
            let resource = client.undrain(&resource).await?;
            let human = format!("{} is {}\n", resource.id, resource.state.as_str());
            output.answer(&OneResource { resource }, || human)
        }
    }
}

pub(super) async fn status(client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let status = client.status().await?;
    output.answer(&status, || status_sheet(&status))
}

fn state(resource: &ResourceView) -> String {
    let word = resource.state.as_str();
    match resource.reachable {
        // What was last heard of a worker that is away.
        Some(false) => format!("{word}?"),
        _ => word.to_owned(),
    }
}

fn lease(lease: &LeaseBrief) -> String {
    match &lease.holder_id {
        Some(holder) => format!("{} ({holder})", lease.id),
        None => lease.id.to_string(),
    }
}

fn leases(resource: &ResourceView) -> String {
    resource.leases.iter().map(lease).collect::<Vec<_>>().join(", ")
}

fn worker(resource: &ResourceView) -> String {
    resource.worker.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// How many wait; nothing where nobody does.
fn queue(resource: &ResourceView) -> String {
    if resource.queue_length == 0 { String::new() } else { resource.queue_length.to_string() }
}

pub(super) fn resource_list(resources: &[ResourceView]) -> String {
    let rows = resources.iter().map(|it| {
        let reason = it.reason.clone().unwrap_or_default();
        [it.id.to_string(), worker(it), state(it), reason, queue(it), table::labels(&it.labels), leases(it)]
    });
    table::list(["RESOURCE", "WORKER", "STATE", "REASON", "QUEUE", "LABELS", "LEASES"], rows)
}

fn resource_sheet(resource: &ResourceView) -> String {
    let away = if resource.reachable == Some(false) { "no; this is what was last heard" } else { "" };
    table::sheet([
        ("resource", resource.id.to_string()),
        ("worker", worker(resource)),
        ("reachable", away.to_owned()),
        ("state", state(resource)),
        ("reason", resource.reason.clone().unwrap_or_default()),
        ("until", resource.until.map(|until| format!("about {until:.0}")).unwrap_or_default()),
        ("last failure", resource.failure.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("its output", resource.failure.as_ref().map(|it| it.output.trim_end().to_owned()).unwrap_or_default()),
        ("queue", queue(resource)),
        ("labels", table::labels(&resource.labels)),
        ("max shared", resource.max_shared.to_string()),
        ("fence", resource.fence.to_string()),
        ("leases", leases(resource)),
    ])
}

pub(super) fn worker_list(workers: &[WorkerView]) -> String {
    let rows = workers.iter().map(|worker| {
        let connection = match worker.connection {
            Connection::Connected => "connected",
            Connection::Disconnected => "disconnected",
            Connection::Incompatible => "incompatible",
        };
        [
            worker.name.to_string(),
            if worker.drained { format!("{connection}, drained") } else { connection.to_owned() },
            // Before its first report nothing is known of what a worker has.
            if worker.known { worker.resources.to_string() } else { "?".to_owned() },
            if worker.known { worker.leases.to_string() } else { "?".to_owned() },
            if worker.known { worker.queue_length.to_string() } else { "?".to_owned() },
            worker.last_seen_at.map(|at| format!("{at:.0}")).unwrap_or_default(),
            worker.version.clone().unwrap_or_default(),
            worker.protocol.clone().unwrap_or_default(),
        ]
    });
    table::list(["WORKER", "CONNECTION", "RESOURCES", "LEASES", "WAITING", "LAST SEEN", "VERSION", "PROTOCOL"], rows)
}

fn gateway_line(gateway: &GatewayView) -> String {
    let GatewayView { name, address, connection, since, reason } = gateway;
    let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{name} at {address}, {} since {since:.0}{why}", connection.as_str())
}

pub(super) fn status_sheet(status: &StatusView) -> String {
    let node = &status.node;
    let ready = if node.ready { "ready" } else { "not ready" };
    let counts = &status.resources;
    let mut resources = format!("{}: {} available, {} leased", counts.total, counts.available, counts.leased);
    if counts.drained > 0 {
        resources.push_str(&format!(", {} drained", counts.drained));
    }
    let mut text = table::sheet([
        ("node", format!("{} ({}), {ready}", node.name, node.role)),
        ("version", node.version.clone()),
        ("started", format!("{:.0}", node.started_at)),
        ("resources", resources),
        ("leases", status.leases.to_string()),
        ("waiting", status.waiting.to_string()),
        ("gateway", status.gateway.as_ref().map(gateway_line).unwrap_or_default()),
    ]);
    if let Some(workers) = status.workers.as_deref().filter(|workers| !workers.is_empty()) {
        text = text + "\n" + &worker_list(workers);
    }
    text
}
