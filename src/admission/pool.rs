//! Those who wait by selector. Each waits once, here, not in every matching resource's queue; a resource that has room
//! looks at one head for each distinct selector, so waiters that match nothing cost nothing.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::rank::before;
use super::{Rank, Waiter};
use crate::model::{Labels, Mode, RequestId, Selector, Target};

/// Waiters by selector, each group in its order.
#[derive(Debug, Default)]
pub struct Pool {
    /// By the canonical text of the selector.
    groups: HashMap<String, Group>,
    places: HashMap<RequestId, (String, Mode, Rank)>,
}

#[derive(Debug)]
struct Group {
    selector: Selector,
    exclusive: BTreeMap<Rank, Waiter>,
    shared: BTreeMap<Rank, Waiter>,
}

impl Group {
    fn of(&self, mode: Mode) -> &BTreeMap<Rank, Waiter> {
        match mode {
            Mode::Exclusive => &self.exclusive,
            Mode::Shared => &self.shared,
        }
    }

    fn of_mut(&mut self, mode: Mode) -> &mut BTreeMap<Rank, Waiter> {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        }
    }
}

impl Pool {
    /// Adds a waiter.
    ///
    /// # Panics
    /// When it does not wait by selector.
    pub fn join(&mut self, waiter: Waiter) {
        let Target::Select(selector) = &waiter.proposal.target else {
            panic!("only those who ask by selector wait in the pool")
        };
        let key = selector.canonical();
        let group = self.groups.entry(key.clone()).or_insert_with(|| Group {
            selector: selector.clone(),
            exclusive: BTreeMap::new(),
            shared: BTreeMap::new(),
        });
        let mode = waiter.proposal.mode;
        self.places.insert(waiter.proposal.request.clone(), (key, mode, waiter.rank));
        group.of_mut(mode).insert(waiter.rank, waiter);
    }

    /// Takes a waiter out.
    pub fn remove(&mut self, request: &RequestId) -> Option<Waiter> {
        let (key, mode, rank) = self.places.remove(request)?;
        let group = self.groups.get_mut(&key)?;
        let waiter = group.of_mut(mode).remove(&rank);
        if group.exclusive.is_empty() && group.shared.is_empty() {
            self.groups.remove(&key);
        }
        waiter
    }

    /// The waiter of a request.
    pub fn get(&self, request: &RequestId) -> Option<&Waiter> {
        let (key, mode, rank) = self.places.get(request)?;
        self.groups.get(key)?.of(*mode).get(rank)
    }

    /// The first that wants `mode` of a resource with these labels and that passes: of each selector it looks at those
    /// before the first that does.
    pub fn first(&self, labels: &Labels, mode: Mode, passes: impl Fn(&Waiter) -> bool) -> Option<&Waiter> {
        let matching = self.groups.values().filter(|group| group.selector.matches(labels));
        let first = |group: &'_ Group| group.of(mode).iter().find(|(_, waiter)| passes(waiter)).map(|(rank, _)| *rank);
        let (rank, group) = matching.filter_map(|group| Some((first(group)?, group))).min_by_key(|(rank, _)| *rank)?;
        group.of(mode).get(&rank)
    }

    /// The first of each selector that wants `mode`.
    pub fn heads(&self, mode: Mode) -> impl Iterator<Item = (&Selector, &Waiter)> {
        let head = move |group: &'_ Group| group.of(mode).values().next().map(|head| head.rank);
        let groups = self.groups.values().filter(move |group| head(group).is_some());
        groups.filter_map(move |group| Some((&group.selector, group.of(mode).values().next()?)))
    }

    /// The selectors of those who wait, with the canonical text of each.
    pub fn groups(&self) -> impl Iterator<Item = (&str, &Selector)> {
        self.groups.iter().map(|(key, group)| (key.as_str(), &group.selector))
    }

    /// The first of a group, by its canonical text, that wants `mode` and comes after this place.
    pub fn next(&self, key: &str, mode: Mode, after: Option<Rank>) -> Option<&Waiter> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.groups.get(key)?.of(mode).range((from, Bound::Unbounded)).map(|(_, waiter)| waiter).next()
    }

    /// The 1-based place of a waiter among all of its selector.
    pub fn position(&self, request: &RequestId) -> Option<usize> {
        let (key, _, rank) = self.places.get(request)?;
        let group = self.groups.get(key)?;
        Some(1 + before(&group.exclusive, *rank) + before(&group.shared, *rank))
    }

    /// The 1-based place of everybody, among all of the same selector.
    pub fn positions(&self) -> impl Iterator<Item = (&RequestId, usize)> {
        self.groups.values().flat_map(|group| {
            let mut order: Vec<&Waiter> = group.exclusive.values().chain(group.shared.values()).collect();
            order.sort_by_key(|waiter| waiter.rank);
            order.into_iter().enumerate().map(|(index, waiter)| (&waiter.proposal.request, index + 1))
        })
    }

    /// The place that one with this rank and selector would have.
    pub fn position_of(&self, selector: &Selector, rank: Rank) -> usize {
        let group = self.groups.get(&selector.canonical());
        group.map_or(1, |group| 1 + before(&group.exclusive, rank) + before(&group.shared, rank))
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True when nobody waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::sample;

    fn waiter(select: &str, mode: Mode, priority: f64, arrival: u64) -> Waiter {
        let mut waiter = sample::waiter("ci", Target::Select(select.parse().unwrap()), priority, arrival);
        waiter.proposal.mode = mode;
        waiter
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_resource_finds_the_first_of_all_selectors_that_match_it() {
        let mut pool = Pool::default();
        let late = waiter("platform=android", Mode::Exclusive, 0.0, 3);
        let early = waiter("os>=14", Mode::Exclusive, 0.0, 2);
        let other = waiter("platform=linux", Mode::Exclusive, 9.0, 1);
        for waiter in [&late, &early, &other] {
            pool.join(waiter.clone());
        }
        let pixel = labels(&[("platform", "android"), ("os", "15")]);
        assert_eq!(pool.first(&pixel, Mode::Exclusive, |_| true), Some(&early));
        assert_eq!(pool.first(&pixel, Mode::Shared, |_| true), None);
        pool.remove(&early.proposal.request);
        assert_eq!(pool.first(&pixel, Mode::Exclusive, |_| true), Some(&late));
        pool.remove(&late.proposal.request);
        assert_eq!(pool.first(&pixel, Mode::Exclusive, |_| true), None);
        assert_eq!(pool.len(), 1);
    }

    #[test]
    fn two_ways_to_write_one_selector_are_one_group_with_one_order() {
        let mut pool = Pool::default();
        let first = waiter("a=1,b=2", Mode::Exclusive, 0.0, 1);
        let second = waiter("b = 2, a=1", Mode::Shared, 0.0, 2);
        pool.join(second.clone());
        pool.join(first.clone());
        assert_eq!(pool.position(&first.proposal.request), Some(1));
        assert_eq!(pool.position(&second.proposal.request), Some(2));
        assert_eq!(pool.heads(Mode::Exclusive).count(), 1);
    }
}
