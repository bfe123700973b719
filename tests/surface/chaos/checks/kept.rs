//! I4: what was answered survives kill −9.

use std::collections::HashMap;

use crate::chaos::grants::grants;
use crate::chaos::history::{At, Call, Fact, Hold, Run, SLACK};

/// How a lease ended by its worker's log, and when.
type End = (Fact, At);

/// Every grant and every release that was answered is in the log of its worker, no lease is said to be gone before the
/// deadline that its holder knows, and none ends there before that.
pub fn what_was_answered(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut logged: HashMap<&Hold, (bool, Option<End>)> = HashMap::new();
    for line in &run.log {
        let (granted, end) = logged.entry(&line.hold).or_default();
        match line.fact {
            Fact::Granted => *granted = true,
            fact => *end = Some((fact, line.at)),
        }
    }
    let grants = grants(&run.history);
    for grant in &grants {
        let (granted, end) = logged.get(&grant.hold).copied().unwrap_or_default();
        if !granted {
            found.push(format!("{:?} of client {} is in no log", grant.hold, grant.client));
        }
        if let Some((fact, at)) = end
            && at + SLACK < grant.safe_until()
        {
            let until = grant.safe_until();
            found.push(format!("{:?} of client {} lives to {until:?}: {fact:?} at {at:?}", grant.hold, grant.client));
        }
    }
    let known: HashMap<&Hold, _> = grants.iter().map(|grant| (&grant.hold, grant)).collect();
    for entry in &run.history {
        let (Call::Renew(hold) | Call::Release(hold)) = &entry.call else { continue };
        if matches!(entry.answer, crate::chaos::history::Answer::Released { .. })
            && !matches!(logged.get(hold), Some((_, Some((Fact::Released, _)))))
        {
            found.push(format!("the release of {hold:?} at {:?} is in no log", entry.end));
        }
        let lives = known.get(hold).is_some_and(|grant| {
            // A call that is about to end it may be answered so by its own doing, when it is sent twice.
            let until = grant.given_back.filter(|back| *back < entry.start).map_or(grant.until, |_| At::ZERO);
            entry.end + SLACK < until
        });
        if entry.answer.is_gone() && lives {
            found.push(format!("client {} was told at {:?} that {hold:?} is gone", entry.client, entry.end));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::history::Answer;
    use crate::chaos::story::{board, is_caught, passes};

    fn held() -> Run {
        Run::default().takes(1, 10, 0..20, 1000).logs(Fact::Granted, 10, 1, "admin/c1")
    }

    #[test]
    fn an_answer_that_no_log_knows_is_caught() {
        passes(what_was_answered, &held());
        is_caught(
            what_was_answered,
            &held().takes(2, 1200, 1200..1220, 2000),
            "fence: 1200 } of client 2 is in no log",
        );
        let released = held().releases(1, 10, 500..510);
        passes(what_was_answered, &released.clone().logs(Fact::Released, 10, 505, "admin/c1"));
        is_caught(what_was_answered, &released, "the release of");
    }

    #[test]
    fn a_lease_that_ends_before_its_deadline_is_caught() {
        passes(what_was_answered, &held().logs(Fact::Expired, 10, 1000, "admin/c1"));
        passes(what_was_answered, &held().logs(Fact::Expired, 10, 9000, "admin/c1"));
        is_caught(what_was_answered, &held().logs(Fact::Expired, 10, 500, "admin/c1"), "Expired at 500ms");
    }

    #[test]
    fn a_lease_that_is_said_to_be_gone_before_its_deadline_is_caught() {
        let said = |at: u64, rebuilding: bool| {
            let answer = Answer::Refused { code: "UNKNOWN_LEASE".to_owned(), rebuilding };
            held().call(1, at..at + 10, Call::Renew(board(10)), answer)
        };
        passes(what_was_answered, &said(1000, false));
        passes(what_was_answered, &said(500, true));
        is_caught(what_was_answered, &said(500, false), "is gone");
    }

    #[test]
    fn a_second_release_may_find_that_the_first_was_carried_out() {
        let run = held().call(1, 100..110, Call::Release(board(10)), Answer::Unknown);
        let run = run.call(1, 200..210, Call::Release(board(10)), Answer::refused("UNKNOWN_LEASE"));
        passes(what_was_answered, &run);
    }
}
