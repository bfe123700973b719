//! What is done to the nodes of a run, and when: a plan that one seed makes.

use std::time::Duration;

use super::dice::Dice;
use super::history::At;

/// The longest that a node is stopped or a link is cut: longer than a lease, and than a link lives without a beat.
pub const LONGEST: Duration = Duration::from_secs(8);
/// A node that was killed is started again within this.
const DOWN: Duration = Duration::from_millis(1500);
/// A worker is left alone for so long between two faults: it is back by then, so none is away for longer than a gateway
/// waits for it. The gateway has less.
const REST: Duration = Duration::from_secs(10);
const GATEWAY_REST: Duration = Duration::from_secs(2);
/// So many at a time.
const AT_ONCE_MAX: usize = 2;

/// What is done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum What {
    /// SIGKILL, and a start.
    Kill,
    /// SIGSTOP, and SIGCONT.
    Stop,
    /// Nothing of the worker reaches the gateway.
    CutToGateway,
    /// Nothing of the gateway reaches the worker.
    CutToWorker,
    /// Neither.
    Cut,
}

impl What {
    pub const ALL: [What; 5] = [What::Kill, What::Stop, What::CutToGateway, What::CutToWorker, What::Cut];

    pub fn is_cut(self) -> bool {
        !matches!(self, What::Kill | What::Stop)
    }

    /// In one word, for the history.
    pub fn word(self) -> &'static str {
        match self {
            What::Kill => "killed",
            What::Stop => "stopped",
            What::CutToGateway | What::CutToWorker | What::Cut => "cut",
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub node: String,
    pub what: What,
    pub from: At,
    pub to: At,
}

/// The faults of a run that lasts so long, in their order; all are undone by then. The first node is the gateway.
pub fn plan(seed: u64, lasts: Duration, nodes: &[&str], cuts: bool) -> Vec<Planned> {
    let mut dice = Dice::new(seed, 0);
    let mut planned: Vec<Planned> = Vec::new();
    let mut at = dice.ms(500..1500);
    loop {
        // Links come second to processes, of which every node has one.
        let what = *dice.one(if cuts { &What::ALL[..] } else { &What::ALL[..2] });
        let node = if what.is_cut() { dice.one(&nodes[1..]) } else { dice.one(nodes) };
        let width = match what {
            What::Kill => dice.ms(0..DOWN.as_millis() as u64),
            // Some are over before anybody notices, some outlast everything.
            _ if dice.percent(40) => dice.ms(100..1500),
            _ => dice.ms(1500..LONGEST.as_millis() as u64),
        };
        let to = at + width;
        if to >= lasts {
            return planned;
        }
        let now = |other: &&Planned| other.to >= at;
        let rest = if *node == nodes[0] { GATEWAY_REST } else { REST };
        let rests = planned.iter().any(|other| other.node == **node && other.to + rest >= at);
        if !rests && planned.iter().filter(now).count() < AT_ONCE_MAX {
            planned.push(Planned { node: (*node).to_owned(), what, from: at, to });
        }
        at += dice.ms(200..2000);
    }
}

/// What is to be done next: the beginning of a fault, or its end.
pub fn edges(plan: &[Planned]) -> Vec<(At, &Planned, bool)> {
    let mut edges: Vec<_> =
        plan.iter().flat_map(|fault| [(fault.from, fault, true), (fault.to, fault, false)]).collect();
    edges.sort_by_key(|(at, _, _)| *at);
    edges
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NODES: [&str; 4] = ["gateway", "rack-1", "rack-2", "rack-3"];
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_makes_one_plan_in_which_everything_happens_and_is_undone() {
        for seed in 0..50 {
            let planned = plan(seed, MINUTE, &NODES, true);
            assert_eq!(planned, plan(seed, MINUTE, &NODES, true));
            assert_ne!(planned, plan(seed + 1, MINUTE, &NODES, true));
            assert!(planned.len() >= 10, "{planned:?}");
            assert!(planned.iter().all(|fault| fault.to < MINUTE && fault.to - fault.from <= LONGEST));
            assert!(planned.iter().all(|fault| !fault.what.is_cut() || fault.node != "gateway"));
            let without = plan(seed, MINUTE, &NODES, false);
            assert!(without.iter().all(|fault| !fault.what.is_cut()));
        }
        let all: BTreeSet<_> = (0..5).flat_map(|seed| plan(seed, MINUTE, &NODES, true)).map(|it| it.what).collect();
        assert_eq!(all.len(), What::ALL.len());
    }

    #[test]
    fn a_node_suffers_one_fault_at_a_time() {
        for seed in 0..50 {
            let planned = plan(seed, MINUTE, &NODES, true);
            let mut under: Vec<&str> = Vec::new();
            for (_, fault, begins) in edges(&planned) {
                if begins {
                    assert!(!under.contains(&fault.node.as_str()), "{planned:?}");
                    under.push(&fault.node);
                    assert!(under.len() <= AT_ONCE_MAX);
                } else {
                    under.retain(|node| *node != fault.node);
                }
            }
        }
    }
}
