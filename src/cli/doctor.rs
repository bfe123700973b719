//! `berth doctor`: has the node look for what must not be.

use super::output::Output;
use crate::client::Client;

/// The node has found something.
#[derive(Debug, thiserror::Error)]
#[error("{}", counted(*.0))]
pub(super) struct Unsound(usize);

/// Prints what is wrong, or `ok`.
pub(super) async fn run(client: &Client, output: &mut Output<'_>) -> anyhow::Result<()> {
    let found = client.doctor().await?;
    output.answer(&found, || match found.ok {
        true => "ok\n".to_owned(),
        false => found.violations.iter().map(|violation| format!("{violation}\n")).collect(),
    })?;
    if !found.ok {
        return Err(Unsound(found.violations.len()).into());
    }
    if found.holds_paused {
        output.talk("new holds are paused; `berth holds resume` has them made again");
    }
    Ok(())
}

fn counted(violations: usize) -> String {
    let found = match violations {
        1 => "one invariant is violated".to_owned(),
        many => format!("{many} invariants are violated"),
    };
    format!("{found}; see docs/runbook-holds.md for how to repair them and have new holds made again")
}
