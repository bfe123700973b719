//! `berth worker`.

use std::net::IpAddr;

use super::args::WorkerCommand;
use super::fleet::worker_list;
use super::output::Output;
use crate::client::Client;
use crate::service::answers::Workers;
use crate::service::workers::OneWorker;
use crate::trust::Invitation;

pub(super) async fn run(command: WorkerCommand, client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    match command {
        WorkerCommand::List => {
            let workers = client.workers().await?;
            if workers.is_empty() {
                output.talk("no workers");
            }
            let human = worker_list(&workers);
            output.answer(&Workers { workers }, || human)
        }
        WorkerCommand::Invite { name } => {
            let made = client.invite(&name).await?;
            output.talk(&format!(
                "on the machine that is to be {name}, run `berth join` and paste this line; it is a secret, good for \
                 one machine until {:.0}",
                made.expires_at
            ));
            if let Some(address) = only_here(&made.invitation) {
                output.talk(&format!(
                    "note: {address} is reached from this machine only; for others set gateway.link and gateway.address"
                ));
            }
            output.answer(&made, || format!("{}\n", made.invitation))
        }
        WorkerCommand::Drain { name } => {
            let worker = client.drain_worker(&name, true).await?;
            if worker.leases > 0 {
                output.talk(&format!("still leased there: {}; nothing new is granted", worker.leases));
            }
            output.answer(&OneWorker { worker }, || format!("drained {name}\n"))
        }
        WorkerCommand::Undrain { name } => {
            let worker = client.drain_worker(&name, false).await?;
            output.answer(&OneWorker { worker }, || format!("{name} is back\n"))
        }
        WorkerCommand::Remove { name, revoke } => {
            let removed = client.remove_worker(&name, revoke).await?;
            output.answer(&removed, || format!("{}\n", removed.message))
        }
    }
}

/// The address of an invitation that no other machine can dial.
fn only_here(line: &str) -> Option<String> {
    let invitation: Invitation = line.parse().ok()?;
    let host = invitation.address.rsplit_once(':')?.0.trim_start_matches('[').trim_end_matches(']').to_owned();
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback.then_some(invitation.address)
}
