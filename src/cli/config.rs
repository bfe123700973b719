//! `berth config reload`.

use super::connect::Connector;
use super::output::Output;
use crate::service::reload::{OneReload, ReloadView};

/// Names in one line; the JSON has all of them.
const NAMED_MAX: usize = 20;

/// Has every process of this machine that runs nodes read its lab file again, or the one that is named. One that cannot
/// does not keep the others from it.
pub(super) async fn reload(connector: &Connector, output: &mut Output<'_>) -> anyhow::Result<()> {
    let mut all = ReloadView::default();
    let mut failed = None;
    let clients = connector.processes().await?;
    let several = clients.len() > 1;
    for (name, client) in clients {
        match client.reload().await {
            Ok(ReloadView { added, changed, gone, rules, needs_restart }) => {
                all.added.extend(added);
                all.changed.extend(changed);
                all.gone.extend(gone);
                all.rules.extend(rules);
                all.needs_restart.extend(needs_restart);
            }
            Err(error) if several => {
                output.talk(&format!("{name}: {error}"));
                failed.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    for keys in [&mut all.rules, &mut all.needs_restart] {
        keys.sort();
        keys.dedup();
    }
    output.answer(&OneReload { reload: all.clone() }, || sheet(&all))?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn sheet(reload: &ReloadView) -> String {
    if reload.is_empty() {
        return "nothing has changed\n".to_owned();
    }
    let ReloadView { added, changed, gone, rules, needs_restart } = reload;
    let lines = [
        ("added", added),
        ("changed", changed),
        ("gone", gone),
        ("in force", rules),
        ("only after a restart", needs_restart),
    ];
    let said = lines.into_iter().filter(|(_, names)| !names.is_empty());
    said.map(|(what, names)| format!("{what}: {}\n", listed(names))).collect()
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
