//! `berth wait --ready`: for scripts that have just started a node.

use std::time::Duration;

use super::args::WaitArgs;
use super::connect::Connector;
use super::output::Output;
use super::{failure, span};
use crate::client::ClientError;
use crate::client::discovery::DiscoveryError;
use crate::service::views::Readiness;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// One look.
const LOOK_BOUND: Duration = Duration::from_secs(5);

/// The time was up before the node was ready.
#[derive(Debug, thiserror::Error)]
#[error("not ready within {within}: {why}")]
pub(super) struct NotReady {
    within: String,
    why: String,
}

/// Looks again and again until the node is ready. A node that is not there may be starting, so that is no failure;
/// several nodes, or a bad URL, will not change and are.
pub(super) async fn ready(args: &WaitArgs, connector: &Connector, output: &mut Output<'_>) -> anyhow::Result<()> {
    let mut why = "no answer".to_owned();
    let looking = async {
        loop {
            match look(connector).await {
                Ok(readiness) if readiness.ready => return Ok(readiness),
                Ok(readiness) => why = readiness.reasons.join("; "),
                Err(error) if may_change(&error) => why = format!("{error}"),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(args.timeout, looking).await {
        Ok(readiness) => output.answer(&readiness?, || "ready\n".to_owned()),
        Err(_) => Err(NotReady { within: span::short(args.timeout), why }.into()),
    }
}

async fn look(connector: &Connector) -> anyhow::Result<Readiness> {
    Ok(connector.client().await?.bounded(LOOK_BOUND).ready().await?)
}

fn may_change(error: &anyhow::Error) -> bool {
    let absent = matches!(error.downcast_ref(), Some(DiscoveryError::NoneLive | DiscoveryError::NotLive { .. }));
    let silent = matches!(error.downcast_ref(), Some(ClientError::Unanswered { .. }));
    absent || silent || failure::refusal(error).is_some_and(|refusal| refusal.code.http_status() == 503)
}
