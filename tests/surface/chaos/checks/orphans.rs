//! I12: a lease under an attempt that the gateway has given up does not outlive its worker's next snapshot by 10 s.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use crate::chaos::grants::grants;
use crate::chaos::history::{Answer, At, Call, Entry, Fact, Hold, Logged, Run};

/// From the moment at which nothing is between a worker and its gateway: the longest pause between two dials, the
/// snapshot, and the 10 s.
const BOUND: Duration = Duration::from_secs(20);

/// A lease of a gateway's requester that nobody was told of, though every try of the requester that could have led to
/// it was answered with something else, ends soon. What was asked of a former run of the gateway is no orphan.
pub fn end_soon(run: &Run) -> Vec<String> {
    let told: HashSet<Hold> = grants(&run.history).into_iter().map(|grant| grant.hold).collect();
    let ends: HashMap<&Hold, At> =
        run.log.iter().filter(|line| line.fact != Fact::Granted).map(|line| (&line.hold, line.at)).collect();
    let mut tries: HashMap<&str, BTreeMap<u64, Vec<&Entry>>> = HashMap::new();
    for entry in run.history.iter().filter(|entry| entry.door == "gateway") {
        if let Call::Ask(ask) | Call::Poll(ask) = &entry.call {
            tries.entry(&ask.requester).or_default().entry(entry.attempt).or_default().push(entry);
        }
    }
    let is_untold = |line: &&Logged| line.fact == Fact::Granted && !told.contains(&line.hold);
    let mut found = Vec::new();
    for line in run.log.iter().filter(is_untold) {
        let Some(requester) = line.requester.strip_prefix("gw:").and_then(|rest| rest.split_once(':')) else {
            continue;
        };
        let Some(given_up) = tries.get(requester.1).and_then(|tries| given_up(run, line, tries)) else { continue };
        let heard = whole_again(run, &line.worker, given_up.max(line.at));
        let end = ends.get(&line.hold).copied().unwrap_or(run.finished());
        if end > heard + BOUND {
            found.push(format!(
                "nobody was told of {:?} of {}, given up at {given_up:?}; its worker is whole at {heard:?}, it lives to {end:?}",
                line.hold, line.requester
            ));
        }
    }
    found
}

/// When the last of the tries that may have led to the grant was answered with a no, if all were.
fn given_up(run: &Run, grant: &Logged, tries: &BTreeMap<u64, Vec<&Entry>>) -> Option<At> {
    let mut last = None;
    for entries in tries.values().filter(|entries| entries[0].start < grant.at) {
        let begin = entries[0].start;
        let end = entries.iter().map(|entry| entry.end).max()?;
        match &entries.last()?.answer {
            // It became another lease.
            Answer::Leased(_) => {}
            Answer::Refused { code, .. } if code == "NODE_RESTARTED" || code == "INTERNAL" => return None,
            Answer::Refused { .. } => {}
            // Somebody went away without an answer.
            _ => return None,
        }
        let former_run = |fault: &&crate::chaos::history::Fault| fault.node == "gateway" && fault.what == "killed";
        if run.faults.iter().filter(former_run).any(|fault| fault.from < end && fault.to > begin) {
            return None;
        }
        last = last.max(Some(end));
    }
    last
}

/// The first moment from `at` on after which the worker and the gateway are left alone for [`BOUND`].
fn whole_again(run: &Run, worker: &str, at: At) -> At {
    let mut whole = at;
    let about = |node: &str| node == worker || node == "gateway";
    while let Some(fault) =
        run.faults.iter().find(|fault| about(&fault.node) && fault.to > whole && fault.from < whole + BOUND)
    {
        whole = fault.to;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::Wait;
    use crate::chaos::story::{ask, is_caught, lease, passes};

    /// A lease from 2 s to `end` under an ask that ends at 5 s with this answer.
    fn orphan(answer: Answer, end: u64) -> Run {
        Run::default()
            .call(1, 1000..5000, Call::Ask(ask(Wait::Attended)), answer)
            .through("gateway")
            .logs(Fact::Granted, 10, 2000, "gw:gateway:admin/c1")
            .logs(Fact::Expired, 10, end, "gw:gateway:admin/c1")
    }

    #[test]
    fn a_lease_that_outlives_its_given_up_attempt_is_caught() {
        let no = || Answer::refused("WORKER_UNREACHABLE");
        passes(end_soon, &orphan(no(), 25_000));
        is_caught(end_soon, &orphan(no(), 25_001), "nobody was told of");
        // The worker is cut off until 30 s.
        passes(end_soon, &orphan(no(), 50_000).fault("rack-1", 2000..30_000));
        is_caught(end_soon, &orphan(no(), 50_001).fault("rack-1", 2000..30_000), "whole at 30s");
    }

    #[test]
    fn a_lease_that_somebody_may_still_ask_for_is_no_orphan() {
        passes(end_soon, &orphan(Answer::Unknown, 60_000));
        passes(end_soon, &orphan(lease(10, 2000, 60_000), 60_000));
        let mut run = orphan(Answer::refused("WORKER_UNREACHABLE"), 60_000).fault("gateway", 4000..4500);
        run.faults[0].what = "killed";
        passes(end_soon, &run);
    }
}
