//! When each of many is to be looked at again.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use crate::clock::RunTime;

/// One instant for each name at most, on run time or on another.
#[derive(Debug)]
pub struct Schedule<N, T = RunTime> {
    by_time: BTreeSet<(T, N)>,
    of: HashMap<N, T>,
}

impl<N, T> Default for Schedule<N, T> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), of: HashMap::new() }
    }
}

impl<N: Clone + Ord + Hash, T: Copy + Ord> Schedule<N, T> {
    /// True when `name` has an instant.
    pub fn is_set(&self, name: &N) -> bool {
        self.of.contains_key(name)
    }

    /// Sets, moves or clears the instant of `name`.
    pub fn set(&mut self, name: &N, at: Option<T>) {
        let former = match at {
            Some(at) => self.of.insert(name.clone(), at),
            None => self.of.remove(name),
        };
        if let Some(former) = former {
            self.by_time.remove(&(former, name.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, name.clone()));
        }
    }

    /// The earliest instant.
    pub fn next(&self) -> Option<T> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out every name whose instant has come.
    pub fn due(&mut self, now: T) -> Vec<N> {
        self.due_up_to(now, usize::MAX)
    }

    /// The same, but at most so many; the rest stays due.
    pub fn due_up_to(&mut self, now: T, most: usize) -> Vec<N> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some((at, _)) = self.by_time.first()
            && *at <= now
        {
            let (_, name) = self.by_time.pop_first().expect("the first is there");
            self.of.remove(&name);
            due.push(name);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::ResourceId;

    #[test]
    fn a_moved_instant_leaves_nothing_behind() {
        let mut schedule = Schedule::default();
        let (a, b): (ResourceId, ResourceId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let at = |seconds| RunTime(Duration::from_secs(seconds));
        schedule.set(&a, Some(at(5)));
        schedule.set(&b, Some(at(3)));
        schedule.set(&a, Some(at(9)));
        assert_eq!(schedule.next(), Some(at(3)));
        assert_eq!(schedule.due(at(8)), std::slice::from_ref(&b));
        assert_eq!(schedule.due(at(9)), std::slice::from_ref(&a));
        schedule.set(&a, Some(at(9)));
        schedule.set(&a, None);
        assert_eq!(schedule.next(), None);
    }
}
