//! When each resource wants to be woken.

use std::collections::{BTreeSet, HashMap};

use crate::clock::RunTime;
use crate::model::ResourceId;

/// One instant for each resource at most.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    by_time: BTreeSet<(RunTime, ResourceId)>,
    of: HashMap<ResourceId, RunTime>,
}

impl Schedule {
    /// Sets, moves or clears a resource's instant.
    pub(super) fn set(&mut self, resource: &ResourceId, at: Option<RunTime>) {
        let former = match at {
            Some(at) => self.of.insert(resource.clone(), at),
            None => self.of.remove(resource),
        };
        if let Some(former) = former {
            self.by_time.remove(&(former, resource.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, resource.clone()));
        }
    }

    /// The earliest instant.
    pub(super) fn next(&self) -> Option<RunTime> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes out every resource whose instant has come.
    pub(super) fn due(&mut self, now: RunTime) -> Vec<ResourceId> {
        let mut due = Vec::new();
        while let Some((at, _)) = self.by_time.first()
            && *at <= now
        {
            let (_, resource) = self.by_time.pop_first().expect("the first is there");
            self.of.remove(&resource);
            due.push(resource);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
