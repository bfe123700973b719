//! I5: a renew never revives an ended lease.

use std::collections::HashMap;

use crate::chaos::grants::{by_resource, grants};
use crate::chaos::history::{Answer, At, Call, Fact, Hold, Run, SLACK};

/// No renew is answered with yes when the lease was known to be over before it was asked for: by an answer about the
/// lease itself, by the grant of a higher fence, or by the worker's log.
pub fn stays_ended(run: &Run) -> Vec<String> {
    let mut over: HashMap<Hold, (At, &str)> = HashMap::new();
    let mut ended = |hold: Hold, at: At, how| {
        let first = over.entry(hold).or_insert((at, how));
        if at < first.0 {
            *first = (at, how);
        }
    };
    for grant in grants(&run.history) {
        if let Some(at) = grant.over {
            ended(grant.hold, at, "its end was answered");
        }
    }
    for resource in by_resource(&run.history) {
        for (former, next) in resource.iter().zip(&resource[1..]) {
            ended(former.hold.clone(), next.told, "another was granted the resource");
        }
    }
    for line in run.log.iter().filter(|line| line.fact != Fact::Granted) {
        ended(line.hold.clone(), line.at + SLACK, "its worker has logged its end");
    }
    let revived = |hold: &Hold, start: At| over.get(hold).filter(|(at, _)| *at < start).copied();
    let renewed = run.history.iter().filter_map(|entry| match (&entry.call, &entry.answer) {
        (Call::Renew(hold), Answer::Leased(_)) => Some((entry, hold, revived(hold, entry.start)?)),
        _ => None,
    });
    renewed
        .map(|(entry, hold, (at, how))| {
            format!("{hold:?} was renewed for client {} at {:?}; at {at:?} {how}", entry.client, entry.start)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::story::{board, is_caught, passes};

    #[test]
    fn a_renew_of_a_released_lease_is_caught() {
        let run = Run::default().takes(1, 10, 0..20, 1000);
        // They raced.
        passes(stays_ended, &run.clone().renews(1, 10, 100..300, 1300).releases(1, 10, 150..200));
        is_caught(stays_ended, &run.releases(1, 10, 100..110).renews(1, 10, 200..210, 1200), "its end was answered");
    }

    #[test]
    fn a_renew_of_a_lease_that_was_said_to_be_gone_is_caught() {
        let gone = Answer::refused("UNKNOWN_LEASE");
        let run = Run::default().takes(1, 10, 0..20, 100).call(1, 150..160, Call::Renew(board(10)), gone);
        passes(stays_ended, &run);
        is_caught(stays_ended, &run.renews(1, 10, 200..210, 300), "its end was answered");
    }

    #[test]
    fn a_renew_after_another_s_grant_or_a_logged_end_is_caught() {
        let run = Run::default().takes(1, 10, 0..20, 100);
        let after = run.clone().takes(2, 200, 200..220, 900).renews(1, 10, 300..310, 1000);
        is_caught(stays_ended, &after, "another was granted");
        let logged = run.logs(Fact::Expired, 10, 150, "admin/c1").renews(1, 10, 600..610, 900);
        is_caught(stays_ended, &logged, "has logged its end");
    }
}
