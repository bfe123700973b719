//! I6: one idempotency key, one outcome.

use std::collections::HashMap;

use crate::chaos::history::{Answer, Call, Run};
use crate::chaos::nodes::GATEWAY;

/// Whatever is granted under one key of one requester is one lease, and once that was told, the key is never refused.
pub fn one_outcome(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut first = HashMap::new();
    let keyed = |entry: &_| match entry {
        Call::Ask(ask) | Call::Poll(ask) => ask.key.clone().map(|key| (ask.requester.clone(), key)),
        _ => None,
    };
    let mut history: Vec<_> = run.history.iter().filter_map(|entry| Some((keyed(&entry.call)?, entry))).collect();
    history.sort_by_key(|(_, entry)| entry.end);
    for (key, entry) in &history {
        if let Answer::Leased(lease) = &entry.answer {
            let (granted, _) = first.entry(key).or_insert((lease.hold.clone(), entry.end));
            if *granted != lease.hold {
                found.push(format!("{key:?} got {granted:?}, and {:?} at {:?}", lease.hold, entry.end));
            }
        }
    }
    for (key, entry) in &history {
        let Some((granted, at)) = first.get(key).filter(|(_, at)| *at < entry.start) else { continue };
        let refused = match &entry.answer {
            // A gateway that is not rebuilt yet takes the ask in and looks at its key later.
            Answer::Waiting { .. } | Answer::Standing => entry.door != GATEWAY,
            // That nobody could say is no outcome.
            Answer::Refused { code, rebuilding } => !rebuilding && !NO_OUTCOME.contains(&code.as_str()),
            _ => false,
        };
        if refused && matches!(entry.call, Call::Ask(_)) {
            found.push(format!("{key:?} got {granted:?} at {at:?}, and {:?} at {:?}", entry.answer, entry.end));
        }
    }
    found
}

/// What a node says that cannot look up the key now.
const NO_OUTCOME: [&str; 4] = ["STOPPING", "INTERNAL", "WORKER_UNREACHABLE", "RATE_LIMITED"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::{Ask, Wait};
    use crate::chaos::story::{ask, is_caught, lease, passes};

    fn keyed(run: Run, at: u64, answer: Answer) -> Run {
        let ask = Ask { key: Some("k".to_owned()), ..ask(Wait::No) };
        run.call(1, at..at + 10, Call::Ask(ask), answer)
    }

    #[test]
    fn a_key_that_got_two_leases_is_caught() {
        let run = keyed(keyed(Run::default(), 0, Answer::Unknown), 50, lease(10, 20, 1000));
        passes(one_outcome, &keyed(run.clone(), 2000, lease(10, 20, 1000)));
        is_caught(one_outcome, &keyed(run.clone(), 2000, lease(2000, 2000, 3000)), "and Hold");
        // Somebody else's key is another.
        passes(one_outcome, &run.takes(2, 2000, 2000..2010, 3000));
    }

    #[test]
    fn a_key_that_forgets_its_lease_is_caught() {
        let run = keyed(Run::default(), 50, lease(10, 20, 1000));
        is_caught(
            one_outcome,
            &keyed(run.clone(), 100, Answer::refused("RESOURCE_UNAVAILABLE")),
            "RESOURCE_UNAVAILABLE",
        );
        let waits = keyed(run.clone(), 100, Answer::Waiting { request: "req".to_owned() });
        is_caught(one_outcome, &waits, "Waiting");
        passes(one_outcome, &waits.through(GATEWAY));
        passes(one_outcome, &keyed(run.clone(), 100, Answer::refused("WORKER_UNREACHABLE")));
        // The refusal was on its way when the grant came.
        passes(one_outcome, &keyed(run, 45, Answer::refused("RESOURCE_UNAVAILABLE")));
    }
}
