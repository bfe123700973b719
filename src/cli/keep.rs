//! `--keep`: stays with a lease, and releases it at the end (SPEC §4, §7).

use super::holding::Holding;
use super::interrupt::Interrupt;
use super::output::Output;

/// Holds the lease until a signal comes or it is lost.
pub(super) async fn hold(
    mut holding: Holding<'_>,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        _ = interrupt.came() => {}
        lost = holding.lost(output) => return Err(lost.into()),
    }
    output.talk(&holding.release().await?);
    Ok(())
}
