//! A fenced lease of one resource as a sequential object, and the search for an order of a run's calls that it allows
//! (Wing and Gong's, by `porcupine`).
//!
//! A lease may end late and never early: time alone may end it only at or after the latest deadline that its holder
//! was told. Answers that say too little to be wrong are left out: an ask or a renew without an answer may have been
//! carried out or not, and promises nobody anything. A release without an answer ends the promise at its beginning.

use std::collections::HashMap;
use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

use super::grants::{Grant, by_resource};
use super::history::{Answer, At, Call, Entry, Hold, Run, SLACK};

/// Leases of a resource that are searched together: what the search remembers grows with their square.
const TOGETHER_MAX: usize = 300;
/// A search that takes longer has lost its way.
const SEARCH_BOUND: Duration = Duration::from_secs(20);

/// One resource, as far as anybody was told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The fence of the latest grant that somebody was told of; 0 before the first.
    told: u64,
    /// The highest fence that was seen.
    fence: u64,
    /// True while the lease of that fence is not known to be over.
    live: bool,
    /// It does not end by time before this.
    until: At,
}

/// What happened to it. `at` is the latest moment at which it can have happened.
#[derive(Debug, Clone)]
pub enum Op {
    /// `before` is the fence of the grant before it that somebody was told of.
    Granted {
        before: u64,
        fence: u64,
        until: At,
        at: At,
    },
    Renewed {
        fence: u64,
        until: At,
    },
    Released {
        fence: u64,
    },
    /// Somebody has tried to release it, and nobody knows whether it was done.
    MayEnd {
        fence: u64,
        from: At,
    },
    /// It is known to be over.
    Gone {
        fence: u64,
        at: At,
    },
    /// Somebody looked. `told` is false for a fence whose holder never heard of it.
    Seen {
        fence: u64,
        told: bool,
        held: bool,
        at: At,
    },
}

#[derive(Debug, Clone)]
pub struct FencedLease;

impl Model for FencedLease {
    type State = State;
    type Op = Op;
    type Metadata = ();

    fn init() -> State {
        State::default()
    }

    fn step(state: &State, op: &Op) -> (bool, State) {
        let over_at = |at: At| !state.live || state.until <= at + SLACK;
        let mut next = state.clone();
        let accepted = match *op {
            Op::Granted { before, fence, until, at } => {
                next = State { told: fence, fence, live: true, until };
                state.told == before && fence > state.fence && over_at(at)
            }
            Op::Renewed { fence, until } => {
                next.until = state.until.max(until);
                state.live && state.fence == fence
            }
            Op::Released { fence } => {
                next.live = false;
                state.live && state.fence == fence
            }
            Op::MayEnd { fence, from } => {
                if state.fence == fence {
                    next.until = state.until.min(from);
                }
                true
            }
            Op::Gone { fence, at } => {
                if state.fence == fence {
                    next.live = false;
                }
                state.fence > fence || (state.fence == fence && over_at(at))
            }
            Op::Seen { fence, told: false, held, at } if fence > state.fence => {
                next = State { told: state.told, fence, live: held, until: At::ZERO };
                over_at(at)
            }
            Op::Seen { fence, held, at, .. } => {
                next.live = held;
                fence == state.fence && if held { state.live } else { over_at(at) }
            }
        };
        (accepted, next)
    }
}

/// Every resource's calls have an order that a fenced lease allows.
pub fn linearizable(run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut about: HashMap<&str, Vec<&Entry>> = HashMap::new();
    for entry in &run.history {
        let (Call::Renew(Hold { resource, .. }) | Call::Release(Hold { resource, .. }) | Call::Look { resource }) =
            &entry.call
        else {
            continue;
        };
        about.entry(resource).or_default().push(entry);
    }
    for grants in by_resource(&run.history) {
        let entries = about.get(grants[0].hold.resource.as_str()).map_or(&[][..], Vec::as_slice);
        let mut first = 0;
        while first < grants.len() {
            // The last lease of one part is the first of the next.
            let part = &grants[first..grants.len().min(first + TOGETHER_MAX + 1)];
            let after = grants.get(first + part.len()).map(|next| next.hold.fence);
            let operations = operations(entries, part, after);
            let (resource, fence) = (&part[0].hold.resource, part[0].hold.fence);
            match check_operations_timeout::<FencedLease>(&operations, SEARCH_BOUND) {
                CheckResult::Ok => {}
                CheckResult::Illegal => {
                    found.push(format!(
                        "the calls about {resource} from fence {fence} on have no order that is allowed"
                    ));
                }
                CheckResult::Unknown => {
                    found.push(format!("no order for {resource} from fence {fence} on within {SEARCH_BOUND:?}"));
                }
            }
            first += TOGETHER_MAX;
        }
    }
    found
}

/// What happened to one resource, from the grant of the first to what is known of the last, before the fence `after`.
fn operations(entries: &[&Entry], grants: &[Grant], after: Option<u64>) -> Vec<Operation<FencedLease>> {
    let (resource, lowest) = (&grants[0].hold.resource, grants[0].hold.fence);
    let is_here = |hold: &Hold| {
        hold.resource == *resource && hold.fence >= lowest && after.is_none_or(|after| hold.fence < after)
    };
    let told = |fence: u64| grants.binary_search_by_key(&fence, |grant| grant.hold.fence).is_ok();
    let operation = |client: u32, start: At, end: At, op: Op| Operation {
        client_id: Some(client),
        call_time: start.as_micros() as i64,
        return_time: end.as_micros() as i64,
        op,
        metadata: None,
    };
    let mut all = Vec::new();
    let mut before = 0;
    for grant in grants {
        let fence = grant.hold.fence;
        // Renewals are operations of their own.
        let op = Op::Granted { before, fence, until: grant.promised, at: grant.told };
        all.push(operation(grant.client, grant.asked, grant.told, op));
        before = fence;
    }
    for entry in entries {
        let (start, end) = (entry.start, entry.end);
        let op = match (&entry.call, &entry.answer) {
            (Call::Renew(hold), Answer::Leased(lease)) if is_here(hold) => {
                Op::Renewed { fence: hold.fence, until: lease.expires }
            }
            (Call::Release(hold), Answer::Released { .. }) if is_here(hold) => Op::Released { fence: hold.fence },
            (Call::Release(hold), answer) if is_here(hold) && answer.is_unsure() => {
                let op = Op::MayEnd { fence: hold.fence, from: start };
                all.push(operation(entry.client, start, start + Duration::from_micros(1), op));
                continue;
            }
            (Call::Renew(hold) | Call::Release(hold), answer) if is_here(hold) && answer.is_gone() => {
                Op::Gone { fence: hold.fence, at: end }
            }
            (Call::Look { resource: seen }, &Answer::Seen { fence, held }) => {
                if !is_here(&Hold { resource: seen.clone(), fence }) {
                    continue;
                }
                Op::Seen { fence, told: told(fence), held, at: end }
            }
            _ => continue,
        };
        all.push(operation(entry.client, start, end, op));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::story::{board, is_caught, ms, passes};
    use super::*;

    const NO_ORDER: &str = "have no order that is allowed";

    #[test]
    fn one_holder_after_the_other_is_an_order() {
        let run = Run::default()
            .takes(1, 10, 0..20, 1000)
            .renews(1, 10, 500..520, 1500)
            .refused(2, 600..610, "RESOURCE_UNAVAILABLE")
            .releases(1, 10, 900..950)
            .takes(2, 950, 900..960, 2000)
            // It ends by time, and late.
            .takes(3, 2500, 2500..2510, 3000);
        passes(linearizable, &run);
    }

    #[test]
    fn a_grant_before_the_deadline_of_the_former_has_no_order() {
        let run = Run::default().takes(1, 10, 0..20, 1000).takes(2, 500, 500..510, 2000);
        is_caught(linearizable, &run, NO_ORDER);
    }

    #[test]
    fn a_renewed_lease_lives_to_its_new_deadline() {
        let run =
            Run::default().takes(1, 10, 0..20, 1000).renews(1, 10, 900..910, 1900).takes(2, 1500, 1500..1510, 2000);
        is_caught(linearizable, &run, NO_ORDER);
    }

    #[test]
    fn a_release_without_an_answer_may_have_been_carried_out_or_not() {
        let unsure =
            Run::default().takes(1, 10, 0..20, 1000).call(1, 100..110, Call::Release(board(10)), Answer::Unknown);
        passes(linearizable, &unsure.clone().takes(2, 200, 200..210, 2000));
        passes(linearizable, &unsure.clone().releases(1, 10, 200..210).takes(2, 300, 250..310, 2000));
        passes(linearizable, &unsure.call(1, 200..210, Call::Release(board(10)), Answer::refused("UNKNOWN_LEASE")));
    }

    #[test]
    fn a_lease_that_is_said_to_be_gone_before_its_deadline_has_no_order() {
        let gone = |at: u64| {
            Run::default().takes(1, 10, 0..20, 1000).call(
                1,
                at..at + 10,
                Call::Renew(board(10)),
                Answer::refused("UNKNOWN_LEASE"),
            )
        };
        is_caught(linearizable, &gone(500), NO_ORDER);
        passes(linearizable, &gone(1000));
    }

    #[test]
    fn a_renew_after_a_release_has_no_order() {
        let run = Run::default().takes(1, 10, 0..20, 1000).releases(1, 10, 100..110).renews(1, 10, 200..210, 1200);
        is_caught(linearizable, &run, NO_ORDER);
    }

    #[test]
    fn what_is_seen_agrees_with_what_was_told() {
        let look = |run: Run, at: u64, fence: u64, held: bool| {
            run.call(9, at..at + 5, Call::Look { resource: "board".to_owned() }, Answer::Seen { fence, held })
        };
        let held = Run::default().takes(1, 10, 0..20, 1000);
        passes(linearizable, &look(held.clone(), 100, 10, true));
        passes(linearizable, &look(look(held.clone(), 1100, 10, true), 1200, 10, false));
        is_caught(linearizable, &look(held.clone(), 100, 10, false), NO_ORDER);
        is_caught(linearizable, &look(look(held.clone(), 1100, 10, false), 1200, 10, true), NO_ORDER);
        // Somebody else may hold it without having been told; then the fence has grown.
        passes(linearizable, &look(held.clone(), 1100, 1050, true).takes(2, 1200, 1200..1210, 3000));
        is_caught(linearizable, &look(held, 500, 450, true), NO_ORDER);
    }

    #[test]
    fn a_long_history_is_searched_in_parts_that_meet() {
        let mut run = Run::default();
        for round in 0..1000 {
            let at = round * 100;
            run = run.takes(1, at + 1, at..at + 10, at + 1000).releases(1, at + 1, at + 50..at + 60);
        }
        passes(linearizable, &run);
        let last = run.history.len() - 3;
        run.history[last].answer = Answer::Unknown;
        run.history[last].end += ms(1000);
        passes(linearizable, &run.clone());
        run.history.remove(last);
        is_caught(linearizable, &run, NO_ORDER);
    }
}
