//! I11: the gateway's table is a function of the reports.

use std::collections::BTreeSet;

use crate::chaos::history::Run;

/// At a calm moment the gateway lists exactly the leases that its workers list, also after one more restart.
pub fn is_what_workers_report(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    for tables in &run.tables {
        let (gateway, workers): (BTreeSet<_>, BTreeSet<_>) =
            (tables.gateway.iter().collect(), tables.workers.iter().collect());
        if gateway.len() != tables.gateway.len() {
            found.push(format!("the gateway lists a lease twice: {:?}", tables.gateway));
        }
        let lost: Vec<_> = workers.difference(&gateway).collect();
        let made_up: Vec<_> = gateway.difference(&workers).collect();
        if !(lost.is_empty() && made_up.is_empty()) {
            found.push(format!("the gateway lacks {lost:?} and makes up {made_up:?}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::Tables;
    use crate::chaos::story::{is_caught, passes};

    #[test]
    fn a_lease_too_many_or_too_few_is_caught() {
        let run = |gateway: &[&str]| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let tables = vec![Tables { gateway: list(gateway), workers: list(&["a", "b"]) }];
            Run { tables, ..Run::default() }
        };
        passes(is_what_workers_report, &run(&["b", "a"]));
        is_caught(is_what_workers_report, &run(&["a"]), "lacks [\"b\"]");
        is_caught(is_what_workers_report, &run(&["a", "b", "c"]), "makes up [\"c\"]");
        is_caught(is_what_workers_report, &run(&["a", "b", "b"]), "twice");
    }
}
