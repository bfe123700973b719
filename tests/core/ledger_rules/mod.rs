//! Who may ask for what: checks 2 to 4 of a lease request, in their order, against a model of a few lines.

mod model;
mod words;

use berth::admission::{Admitted, Ledger, Speaker};
use berth::model::{IdempotencyKey, LeaseId, Mode, Refusal, RequestId, Requester};
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::Value;

use self::model::{Model, Open, Outcome};
use crate::sample;

/// One thing that happens to the ledger. An index picks one of what there is, if there is any.
#[derive(Debug, Clone)]
enum Step {
    Ask {
        requester: usize,
        key: Option<usize>,
        resource: usize,
        shared: bool,
        lease: Option<usize>,
        probe: bool,
    },
    Grant(usize),
    Refuse(usize),
    End(usize),
    Forget(usize),
    /// A worker or the disk tells of a lease: of a request that is open here, or of one that is not known.
    Restore {
        requester: usize,
        key: Option<usize>,
        lease: usize,
        open: Option<usize>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let some = || prop::option::of(0..3usize);
    let step = prop_oneof![
        8 => (0..3usize, some(), 0..2usize, any::<bool>(), some(), prop::bool::weighted(0.2)).prop_map(
            |(requester, key, resource, shared, lease, probe)| Step::Ask {
                requester, key, resource, shared, lease, probe
            }
        ),
        3 => any::<usize>().prop_map(Step::Grant),
        2 => any::<usize>().prop_map(Step::Refuse),
        3 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::Forget),
        2 => (0..3usize, some(), 0..3usize, prop::option::of(any::<usize>()))
            .prop_map(|(requester, key, lease, open)| Step::Restore { requester, key, lease, open }),
    ];
    prop::collection::vec(step, 1..80)
}

fn requester(index: usize) -> Requester {
    sample::text(["ci", "ci/job-17", "ops"][index])
}

fn key(index: usize) -> IdempotencyKey {
    sample::text(["k0", "k1", "k2"][index])
}

fn chosen(index: usize) -> &'static str {
    ["mine", "Mine", "lse_1"][index]
}

fn outcome(answer: Result<Admitted, Refusal>) -> Outcome {
    match answer {
        Ok(Admitted::New) => Outcome::New,
        Ok(Admitted::Replay(first)) => Outcome::Replay(first),
        Ok(other) => panic!("{other:?}: nobody stands in a waiting room here"),
        Err(refusal) => Outcome::Refused(refusal.code, refusal.details.map(Value::Object)),
    }
}

/// The ledger beside its model.
struct Both {
    max: usize,
    ledger: Ledger,
    model: Model,
}

impl Both {
    fn new(max: usize) -> Self {
        Self { max, ledger: Ledger::new(max), model: Model::default() }
    }

    fn step(&mut self, number: usize, step: Step) {
        match step {
            Step::Ask { requester: who, key: under, resource, shared, lease, probe } => {
                let who = requester(who).to_string();
                let mut ask = sample::ask(sample::request(number), &who, ["board", "phone"][resource]);
                ask.key = under.map(key);
                ask.mode = if shared { Mode::Shared } else { Mode::Exclusive };
                ask.lease_id = lease.map(|index| sample::text(chosen(index)));
                let speaker = if probe { Speaker::Gateway } else { Speaker::Requester };
                let expected = self.model.check(self.max, &ask, speaker);
                assert_eq!(outcome(self.ledger.admit(&ask, speaker, None)), expected, "{ask:?}");
                // Refused or known already: nothing is reserved.
                if expected == Outcome::New {
                    self.model.enter(&ask, speaker);
                }
            }
            Step::Grant(index) => {
                let Some(open) = self.pick(index, |open| !open.granted) else { return };
                let lease = open.lease.unwrap_or_else(|| sample::text(&format!("lse_made-{number}")));
                self.ledger.grant(&open.id, &lease);
                let entry = self.model.open.iter_mut().find(|entry| entry.id == open.id).unwrap();
                (entry.granted, entry.lease) = (true, Some(lease));
            }
            Step::Refuse(index) => {
                let Some(open) = self.pick(index, |open| !open.granted) else { return };
                self.ledger.refuse(&open.id);
                self.model.open.retain(|entry| entry.id != open.id);
                self.model.keys.retain(|(.., first, _)| *first != open.id);
            }
            Step::End(index) => {
                let Some(open) = self.pick(index, |open| open.granted) else { return };
                self.ledger.end(&open.lease.unwrap());
                self.model.open.retain(|entry| entry.id != open.id);
            }
            Step::Forget(index) => {
                let keys = &self.model.keys;
                let ended = |id: &RequestId| self.model.open.iter().all(|open| open.id != *id);
                let ended: Vec<_> = keys.iter().filter(|(.., first, _)| ended(first)).cloned().collect();
                let Some(index) = index.checked_rem(ended.len()) else { return };
                let (who, key, first, _) = &ended[index];
                self.ledger.forget(who, key, first);
                self.model.keys.retain(|(.., id, _)| id != first);
            }
            Step::Restore { requester: who, key: under, lease, open } => {
                let known = open.and_then(|index| self.pick(index, |open| !open.granted));
                self.restore(sample::request(number), requester(who), under.map(key), chosen(lease), known);
            }
        }
    }

    /// A lease is told of: that of a request that is open here, or of one that is not known.
    fn restore(
        &mut self,
        id: RequestId,
        who: Requester,
        under: Option<IdempotencyKey>,
        lease: &str,
        known: Option<Open>,
    ) {
        let print = sample::lease("x", "board", 1).fingerprint;
        let keys = &self.model.keys;
        let (id, who, key) = match known {
            Some(open) => {
                let own = keys.iter().find(|(.., first, _)| *first == open.id);
                (open.id, open.requester, own.map(|(_, key, _, print)| (key.clone(), *print)))
            }
            None => {
                let new = |key: &IdempotencyKey| keys.iter().all(|(holder, other, ..)| (holder, other) != (&who, key));
                let key = under.filter(new).map(|key| (key, print));
                (id, who, key)
            }
        };
        self.ledger.restore(&id, &who, &sample::text(lease), key.clone());
        self.model.restore(id, who, sample::text(lease), key);
    }

    fn pick(&self, index: usize, fits: impl Fn(&Open) -> bool) -> Option<Open> {
        let fitting: Vec<_> = self.model.open.iter().filter(|open| fits(open)).collect();
        Some(fitting[index.checked_rem(fitting.len())?].clone())
    }

    fn assert_alike(&self) {
        assert_eq!(self.ledger.len(), self.model.open.len());
        assert_eq!(self.ledger.is_empty(), self.model.open.is_empty());
        for index in 0..3 {
            let lease: LeaseId = sample::text(chosen(index));
            let holder = self.model.open.iter().find(|open| open.lease.as_ref() == Some(&lease));
            assert_eq!(self.ledger.holder_of(&lease), holder.map(|open| &open.id));
        }
    }

    fn end_all(&mut self) {
        for open in self.model.open.drain(..) {
            if open.granted { self.ledger.end(&open.lease.unwrap()) } else { self.ledger.refuse(&open.id) }
        }
    }
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, cases: 512, ..Config::default() })]

    /// The order of the checks, I6 (one key, one outcome) and I13 (reservations end with their request).
    #[test]
    fn the_ledger_does_what_its_model_does(max in 1usize..=3, steps in steps()) {
        let mut both = Both::new(max);
        for (number, step) in steps.into_iter().enumerate() {
            both.step(number, step);
            both.assert_alike();
        }
        both.end_all();
        prop_assert!(both.ledger.is_empty());
        for who in 0..3 {
            let mut ask = sample::ask(RequestId::generate(), &requester(who).to_string(), "board");
            ask.lease_id = Some(sample::text(chosen(who)));
            let admitted = both.ledger.admit(&ask, Speaker::Requester, None);
            prop_assert_eq!(outcome(admitted), Outcome::New, "{} and {} are free again", requester(who), chosen(who));
        }
    }
}
