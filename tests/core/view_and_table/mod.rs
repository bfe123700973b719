//! I11: the routing table is a function of what the workers report and grant. Random lives of two workers, heard in
//! every order in which links can deliver them, end in the same table as one look at the truth.

mod front;
mod lab;
mod lives;
mod worker;

use proptest::prelude::*;
use proptest::test_runner::Config;

use self::front::Front;
use self::lab::Lab;
use self::worker::{RESOURCES, Who};

const WORKERS: [&str; 2] = ["rack-1", "rack-2"];

/// Something that happens at a worker, or something on its way that arrives.
#[derive(Debug, Clone)]
enum Step {
    Grant {
        resource: usize,
        shared: bool,
        name: Option<usize>,
        who: Who,
    },
    Renew {
        index: usize,
        ttl_ms: u64,
        called: bool,
    },
    End {
        index: usize,
        called: bool,
    },
    /// The link is lost; `anew`: because the worker was killed.
    Relink {
        anew: bool,
    },
    Resync,
    HearSnapshot,
    HearDelta,
    HearDeltaTwice,
    /// A delta that was heard before, once more.
    HearOldDelta(usize),
    HearAnswer(usize),
    /// The answer of a dispatch is lost, and the worker is asked what became of it.
    Settle,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let who = prop_oneof![
        4 => Just(Who::Sent),
        2 => Just(Who::Former),
        1 => any::<bool>().prop_map(Who::Stranger),
    ];
    let grant = (0..RESOURCES.len(), prop::bool::weighted(0.7), prop::option::of(0..2usize), who)
        .prop_map(|(resource, shared, name, who)| Step::Grant { resource, shared, name, who });
    let step = prop_oneof![
        6 => grant,
        3 => (any::<usize>(), 1u64..100_000, any::<bool>())
            .prop_map(|(index, ttl_ms, called)| Step::Renew { index, ttl_ms, called }),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(index, called)| Step::End { index, called }),
        1 => prop::bool::weighted(0.3).prop_map(|anew| Step::Relink { anew }),
        1 => Just(Step::Resync),
        3 => Just(Step::HearSnapshot),
        6 => Just(Step::HearDelta),
        1 => Just(Step::HearDeltaTwice),
        2 => any::<usize>().prop_map(Step::HearOldDelta),
        5 => any::<usize>().prop_map(Step::HearAnswer),
        2 => Just(Step::Settle),
    ];
    prop::collection::vec((0..WORKERS.len(), step), 1..120)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 512, ..Config::default() })]

    #[test]
    fn the_table_is_a_function_of_what_the_workers_say(steps in steps()) {
        let mut lab = Lab::new();
        for (number, (at, step)) in steps.into_iter().enumerate() {
            lab.step(number, at, step);
        }
        lab.settle_down();
        lab.assert_views();
        lab.assert_table();

        // A gateway that starts now comes to the same, whoever it hears first.
        for order in [[0, 1], [1, 0]] {
            let mut anew = Lab::of(Front::new(), lab.workers);
            anew.workers.iter_mut().for_each(|worker| worker.relink(false));
            for at in order {
                anew.hear_snapshot(at);
            }
            anew.assert_views();
            anew.assert_table();
            let names = |lab: &Lab| lab.expected().into_keys().collect::<Vec<_>>();
            prop_assert_eq!(anew.routes().into_keys().collect::<Vec<_>>(), names(&anew), "every name has a route");
            lab = anew;
        }
    }
}
