//! How long a lease request may be asked about, against a model that looks at every request each time.

use std::collections::HashSet;
use std::time::Duration;

use berth::admission::{RequestState, Requests};
use berth::limits::SETTLED_KEYS_PER_REQUESTER_MAX;
use berth::model::{Code, Refusal, RequestId};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::sample;

const RETENTION_MS: u64 = 600_000;

/// What the model knows of one request.
#[derive(Debug, Clone)]
struct Known {
    id: RequestId,
    requester: &'static str,
    key: Option<String>,
    stands: Stands,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stands {
    Open,
    Granted,
    Failed,
    /// Its lease ended at this ms.
    Ended(u64),
}

#[derive(Debug, Clone)]
enum Step {
    Open {
        requester: usize,
        keyed: bool,
    },
    /// Picks one of the open ones, or one whose lease has ended: a worker still reports it.
    Grant(usize),
    Fail(usize),
    /// A request that failed comes again: a gateway's next attempt.
    Reopen(usize),
    /// The lease ended this long ago: it may be heard of late.
    End {
        index: usize,
        ago_ms: u64,
    },
    Prune {
        after_ms: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ago = prop_oneof![3 => Just(0u64), 1 => 0..=RETENTION_MS];
    let step = prop_oneof![
        8 => (0..2usize, prop::bool::weighted(0.9)).prop_map(|(requester, keyed)| Step::Open { requester, keyed }),
        7 => any::<usize>().prop_map(Step::Grant),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => any::<usize>().prop_map(Step::Reopen),
        6 => (any::<usize>(), ago).prop_map(|(index, ago_ms)| Step::End { index, ago_ms }),
        1 => prop_oneof![Just(0u64), Just(RETENTION_MS), 0..=RETENTION_MS].prop_map(|after_ms| Step::Prune { after_ms }),
    ];
    // Long enough that one requester settles more than may be kept.
    prop::collection::vec(step, 1..600)
}

fn pick(index: usize, known: &mut [Known], fits: impl Fn(Stands) -> bool) -> Option<&mut Known> {
    let fitting: Vec<_> = known.iter_mut().filter(|known| fits(known.stands)).collect();
    let count = fitting.len();
    fitting.into_iter().nth(index.checked_rem(count)?)
}

/// What is to be dropped at `now`: what has been kept long enough, and of the rest what one requester has too many of.
fn due(known: &[Known], ended: &[(u64, RequestId)], failed_at: &[(RequestId, u64)], now: u64) -> HashSet<RequestId> {
    let since = |known: &Known| match known.stands {
        Stands::Ended(at) => Some(at),
        Stands::Failed => failed_at.iter().find(|(id, _)| *id == known.id).map(|(_, at)| *at),
        Stands::Open | Stands::Granted => None,
    };
    let old = |known: &&Known| since(known).is_some_and(|since| since + RETENTION_MS <= now);
    let mut due: HashSet<RequestId> = known.iter().filter(old).map(|known| known.id.clone()).collect();
    for requester in ["ci", "ops"] {
        let kept = |(_, id): &&(u64, RequestId)| {
            known.iter().any(|known| known.id == *id && known.requester == requester && known.key.is_some())
        };
        let kept: Vec<_> = ended.iter().filter(kept).map(|(_, id)| id.clone()).collect();
        due.extend(kept.iter().take(kept.len().saturating_sub(SETTLED_KEYS_PER_REQUESTER_MAX)).cloned());
    }
    due
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 96, ..Config::default() })]

    #[test]
    fn a_request_is_kept_as_long_as_it_may_be_asked_about_and_no_longer(steps in steps()) {
        let mut book = Requests::<usize>::new(Duration::from_millis(RETENTION_MS));
        let mut known: Vec<Known> = Vec::new();
        // In the order in which their leases ended, then in that in which it was heard of.
        let mut ended: Vec<(u64, RequestId)> = Vec::new();
        let mut failed_at = Vec::new();
        let mut now = RETENTION_MS;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Open { requester, keyed } => {
                    let requester = ["ci", "ops"][requester];
                    let key = keyed.then(|| format!("k{number}"));
                    let id = sample::request(number);
                    book.open(id.clone(), sample::text(requester), key.as_deref().map(sample::text), sample::wall(now));
                    known.push(Known { id, requester, key, stands: Stands::Open });
                }
                Step::Grant(index) => {
                    let fits = |stands| matches!(stands, Stands::Open | Stands::Ended(_));
                    let Some(request) = pick(index, &mut known, fits) else { continue };
                    book.grant(&request.id, number);
                    request.stands = Stands::Granted;
                    ended.retain(|(_, id)| *id != request.id);
                }
                Step::Fail(index) => {
                    let Some(request) = pick(index, &mut known, |stands| stands == Stands::Open) else { continue };
                    book.fail(&request.id, Refusal::new(Code::NoCapacity, "held"), false, sample::run(now));
                    (request.stands, request.key) = (Stands::Failed, None);
                    failed_at.push((request.id.clone(), now));
                }
                Step::Reopen(index) => {
                    let Some(request) = pick(index, &mut known, |stands| stands == Stands::Failed) else { continue };
                    book.open(request.id.clone(), sample::text(request.requester), None, sample::wall(now));
                    request.stands = Stands::Open;
                    failed_at.retain(|(id, _)| *id != request.id);
                }
                Step::End { index, ago_ms } => {
                    let Some(request) = pick(index, &mut known, |stands| stands == Stands::Granted) else { continue };
                    let at = now.saturating_sub(ago_ms);
                    book.end(&request.id, sample::run(at));
                    request.stands = Stands::Ended(at);
                    ended.push((at, request.id.clone()));
                    ended.sort_by_key(|(at, _)| *at);
                }
                Step::Prune { after_ms } => {
                    now += after_ms;
                    let due = due(&known, &ended, &failed_at, now);
                    let dropped = book.prune(sample::run(now));
                    for dropped in &dropped {
                        let request = known.iter().find(|known| known.id == dropped.id).unwrap();
                        prop_assert_eq!(dropped.key.as_ref().map(|key| key.as_str()), request.key.as_deref());
                        prop_assert_eq!(dropped.requester.to_string(), request.requester);
                    }
                    let dropped: HashSet<RequestId> = dropped.into_iter().map(|dropped| dropped.id).collect();
                    prop_assert_eq!(&dropped, &due);
                    known.retain(|known| !due.contains(&known.id));
                    ended.retain(|(_, id)| !due.contains(id));
                }
            }
            for request in &known {
                let state = book.get(&request.id).map(|request| &request.state);
                let fits = match request.stands {
                    Stands::Open => matches!(state, Some(RequestState::Open)),
                    Stands::Granted | Stands::Ended(_) => matches!(state, Some(RequestState::Granted(_))),
                    Stands::Failed => matches!(state, Some(RequestState::Failed(_))),
                };
                prop_assert!(fits, "{request:?} is {state:?}");
            }
            let open = known.iter().filter(|known| known.stands == Stands::Open).count();
            prop_assert_eq!(book.open_ones().count(), open);
        }
    }
}

/// An end that is told twice is one end.
#[test]
fn a_request_whose_end_is_heard_of_twice_takes_one_place() {
    let mut book = Requests::<()>::new(Duration::from_millis(RETENTION_MS));
    let open = |book: &mut Requests<()>, number: usize| {
        let id = sample::request(number);
        book.open(id.clone(), sample::text("ci"), Some(sample::text(&format!("k{number}"))), sample::wall(0));
        book.grant(&id, ());
        id
    };
    for number in 0..SETTLED_KEYS_PER_REQUESTER_MAX {
        let id = open(&mut book, number);
        book.end(&id, sample::run(1));
        book.end(&id, sample::run(2));
    }
    assert!(book.prune(sample::run(3)).is_empty(), "as many as may be kept");
    let one = sample::run(1 + RETENTION_MS);
    assert_eq!(book.prune(one).len(), SETTLED_KEYS_PER_REQUESTER_MAX, "and the first end counts");
}
