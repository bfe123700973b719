//! The invariants of the house, each asked of a whole run: what it finds is in words, nothing when all is well.

mod ended;
mod fences;
mod holders;
mod kept;
mod keys;
mod order;
mod orphans;
mod served;
mod table;

pub use self::served::BOUND as SERVED_BOUND;
use super::history::Run;
use super::model::linearizable;

/// One question, and what it is about.
pub type Check = (&'static str, fn(&Run) -> Vec<String>);

/// All of them.
pub const ALL: [Check; 11] = [
    ("I1 one holder at a time", holders::one_at_a_time),
    ("I2 fences grow", fences::grow),
    ("I3 no grant before the former lease ended", holders::one_after_the_other),
    ("I4 what was answered is kept", kept::what_was_answered),
    ("I5 no renew of an ended lease", ended::stays_ended),
    ("I6 one key, one outcome", keys::one_outcome),
    ("I7 order of those who wait", order::nobody_overtakes),
    ("I8 all are served", served::everybody),
    ("I11 the table is what the workers report", table::is_what_workers_report),
    ("I12 no orphans", orphans::end_soon),
    ("linearizable", linearizable),
];

/// Everything that is wrong with a run.
pub fn all(run: &Run) -> Vec<String> {
    ALL.iter().flat_map(|(name, check)| check(run).into_iter().map(move |found| format!("{name}: {found}"))).collect()
}
