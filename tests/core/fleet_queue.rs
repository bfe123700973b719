//! The queue of the fleet against a sorted list.

use std::time::Duration;

use berth::clock::{Now, RunTime};
use berth::gateway::fleet::{Fleet, Open, Stage};
use berth::gateway::skips::Why;
use berth::model::{Ask, Door, LeftOut, Mode, NodeName, RequestId, Selector, Target, WaitPolicy};
use proptest::prelude::*;

const SELECTORS: [&str; 3] = ["platform=android", "platform=linux", "os>=14"];

#[derive(Debug, Clone)]
enum Step {
    Add { selector: usize, shared: bool, priority: i8, no_wait: bool },
    Dispatch(usize, bool),
    Requeue(usize),
    Doubt(usize),
    Remove(usize),
    Pass(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..SELECTORS.len(), any::<bool>(), -2..2_i8, any::<bool>())
            .prop_map(|(selector, shared, priority, no_wait)| Step::Add { selector, shared, priority, no_wait }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(index, second)| Step::Dispatch(index, second)),
        2 => any::<usize>().prop_map(Step::Requeue),
        1 => any::<usize>().prop_map(Step::Doubt),
        1 => any::<usize>().prop_map(Step::Remove),
        2 => any::<u16>().prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 0..60)
}

/// What the list has of a request.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    id: RequestId,
    selector: usize,
    mode: Mode,
    /// Highest first, then the order of coming.
    rank: (f64, usize),
    no_wait: bool,
    out: Option<NodeName>,
    doubt: bool,
}

fn ask(selector: usize, mode: Mode, priority: i8, no_wait: bool) -> Ask {
    Ask {
        id: RequestId::generate(),
        door: Door::Request,
        requester: "ci".parse().unwrap(),
        target: Target::Select(SELECTORS[selector].parse().unwrap()),
        mode,
        ttl: Duration::from_secs(60),
        priority: f64::from(priority).try_into().unwrap(),
        lease_id: None,
        wait: if no_wait { WaitPolicy::NoWait } else { WaitPolicy::Wait { timeout: None } },
        note: None,
        key: None,
        ticket: None,
        allow_shorter: false,
        by_admin: false,
        left_out: LeftOut::default(),
    }
}

fn worker(second: bool) -> NodeName {
    if second { "rack-2" } else { "rack-1" }.parse().unwrap()
}

fn check(fleet: &Fleet, list: &[Entry]) {
    let mut waiting: Vec<&Entry> = list.iter().filter(|entry| entry.out.is_none()).collect();
    waiting.sort_by(|a, b| b.rank.0.total_cmp(&a.rank.0).then(a.rank.1.cmp(&b.rank.1)));
    assert_eq!((fleet.len(), fleet.waiting()), (list.len(), waiting.len()));
    for (index, text) in SELECTORS.iter().enumerate() {
        let key = text.parse::<Selector>().unwrap().canonical();
        let of_group: Vec<&&Entry> = waiting.iter().filter(|entry| entry.selector == index).collect();
        for (place, entry) in of_group.iter().enumerate() {
            assert_eq!(fleet.pool().position(&entry.id), Some(place + 1));
        }
        for mode in [Mode::Exclusive, Mode::Shared] {
            let (mut walked, mut after) = (Vec::new(), None);
            while let Some(waiter) = fleet.pool().next(&key, mode, after) {
                walked.push(waiter.proposal.request.clone());
                after = Some(waiter.rank);
            }
            let listed = of_group.iter().filter(|entry| entry.mode == mode).map(|entry| entry.id.clone());
            assert_eq!(walked, listed.collect::<Vec<_>>());
        }
    }
    for second in [false, true] {
        let out = list.iter().filter(|entry| entry.out == Some(worker(second))).count();
        assert_eq!(fleet.outstanding(&worker(second)), out);
    }
    let impatient = waiting.iter().filter(|entry| entry.no_wait).count();
    assert_eq!(fleet.impatient().len(), impatient);
    assert_eq!(fleet.doubtful().count(), list.iter().filter(|entry| entry.doubt).count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_queue_is_the_sorted_list_of_those_that_are_not_out(steps in steps()) {
        let mut fleet = Fleet::new(7, None);
        let mut list: Vec<Entry> = Vec::new();
        let mut now = Now { wall: "2026-01-01T00:00:00Z".parse().unwrap(), run: RunTime::default() };
        for (count, step) in steps.into_iter().enumerate() {
            let pick = |index: usize| (!list.is_empty()).then(|| index % list.len());
            match step {
                Step::Add { selector, shared, priority, no_wait } => {
                    let mode = if shared { Mode::Shared } else { Mode::Exclusive };
                    let ask = ask(selector, mode, priority, no_wait);
                    let rank = (f64::from(priority), count);
                    let id = ask.id.clone();
                    list.push(Entry { id, selector, mode, rank, no_wait, out: None, doubt: false });
                    fleet.add(ask, now, None);
                }
                Step::Dispatch(index, second) => {
                    if let Some(index) = pick(index).filter(|index| list[*index].out.is_none()) {
                        let before = fleet.get(&list[index].id).unwrap().attempts;
                        let attempt = fleet.dispatch(&list[index].id, worker(second), Default::default());
                        prop_assert_eq!(attempt, Some(before + 1), "the next attempt has the next number");
                        list[index].out = Some(worker(second));
                    }
                }
                Step::Requeue(index) => {
                    if let Some(index) = pick(index).filter(|index| list[*index].out.is_some()) {
                        fleet.requeue(&list[index].id);
                        (list[index].out, list[index].doubt) = (None, false);
                    }
                }
                Step::Doubt(index) => {
                    if let Some(index) = pick(index).filter(|index| list[*index].out.is_some()) {
                        fleet.doubt(&list[index].id, now.run);
                        list[index].doubt = true;
                    }
                }
                Step::Remove(index) => {
                    if let Some(index) = pick(index) {
                        fleet.remove(&list[index].id);
                        list.remove(index);
                    }
                }
                Step::Pass(ms) => now.run = now.run + Duration::from_millis(ms.into()),
            }
            check(&fleet, &list);
        }
    }
}

#[test]
fn only_those_that_skip_a_worker_are_told_of_its_reports() {
    let mut fleet = Fleet::new(7, None);
    let now = Now { wall: "2026-01-01T00:00:00Z".parse().unwrap(), run: RunTime::default() };
    let (first, second) = (ask(0, Mode::Exclusive, 0, false), ask(0, Mode::Exclusive, 0, false));
    for ask in [&first, &second] {
        fleet.add(ask.clone(), now, None);
    }
    fleet.skip(&first.id, &worker(false), Why::NoRoom(3), now.run);
    assert!(!fleet.reported(&worker(true), 9, true, |_| true));
    let asked = std::cell::RefCell::new(Vec::new());
    let fits = |open: &Open| {
        asked.borrow_mut().push(open.ask.id.clone());
        true
    };
    assert!(fleet.reported(&worker(false), 9, false, fits));
    assert_eq!(*asked.borrow(), std::slice::from_ref(&first.id));
    assert!(!fleet.get(&first.id).unwrap().skips.has(&worker(false), now.run));
    assert_eq!(fleet.get(&second.id).unwrap().stage, Stage::Waiting);
}
