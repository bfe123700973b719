//! The waiting room: those who wait for one resource, in their order (SPEC §3).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use jiff::Timestamp;

use super::Rank;
use super::rank::before;
use crate::clock::RunTime;
use crate::model::{Proposal, RequestId, Requester, ResourceId};

/// One entry of a waiting room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// What it gets when its turn comes.
    pub proposal: Proposal,
    /// Its place.
    pub rank: Rank,
    /// When it joined, wall time.
    pub joined_at: Timestamp,
    /// Who keeps it alive.
    pub attendance: Attendance,
    /// The request of an earlier run whose place it has taken over, with that one's ticket.
    pub returns: Option<RequestId>,
    /// True when it was read from disk, and so without the lease id that it may have chosen.
    pub restored: bool,
    /// The resource whose device could not be made ready for it: it is to have another.
    pub not_on: Option<ResourceId>,
}

/// How a waiter is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attendance {
    /// A lease request: the node grants it by itself, and looks after its timeout.
    Attended,
    /// Kept alive by asking again; it was last seen then.
    Unattended {
        /// On run time.
        last_seen: RunTime,
    },
}

impl Waiter {
    /// True for a lease request.
    pub fn is_attended(&self) -> bool {
        self.attendance == Attendance::Attended
    }

    /// When an unattended waiter was last seen.
    pub fn last_seen(&self) -> Option<RunTime> {
        match self.attendance {
            Attendance::Attended => None,
            Attendance::Unattended { last_seen } => Some(last_seen),
        }
    }
}

/// The waiters of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitingRoom {
    by_rank: BTreeMap<Rank, Waiter>,
    ranks: HashMap<RequestId, Rank>,
    /// At most one unattended entry of each requester: asking again is the same entry.
    unattended: HashMap<Requester, RequestId>,
    /// Unattended waiters by when they were last seen: those of this node.
    seen: BTreeSet<(RunTime, RequestId)>,
    /// The same of those who come through a gateway, and can ask again only while that is there.
    seen_through: BTreeSet<(RunTime, RequestId)>,
    through: usize,
    attended: usize,
}

impl WaitingRoom {
    /// Adds a waiter; one under the same request is replaced.
    pub fn join(&mut self, waiter: Waiter) {
        self.remove(&waiter.proposal.request);
        let request = waiter.proposal.request.clone();
        self.ranks.insert(request.clone(), waiter.rank);
        self.through += usize::from(comes_through(&waiter));
        match waiter.attendance {
            Attendance::Attended => self.attended += 1,
            Attendance::Unattended { last_seen } => {
                self.unattended.insert(waiter.proposal.holder.clone(), request.clone());
                self.seen_of(&waiter).insert((last_seen, request));
            }
        }
        let former = self.by_rank.insert(waiter.rank, waiter);
        assert!(former.is_none(), "no two waiters have the same place");
    }

    /// Takes a waiter out.
    pub fn remove(&mut self, request: &RequestId) -> Option<Waiter> {
        let rank = self.ranks.remove(request)?;
        let waiter = self.by_rank.remove(&rank).expect("every place has its waiter");
        self.through -= usize::from(comes_through(&waiter));
        match waiter.attendance {
            Attendance::Attended => self.attended -= 1,
            Attendance::Unattended { last_seen } => {
                self.unattended.remove(&waiter.proposal.holder);
                self.seen_of(&waiter).remove(&(last_seen, request.clone()));
            }
        }
        Some(waiter)
    }

    fn seen_of(&mut self, waiter: &Waiter) -> &mut BTreeSet<(RunTime, RequestId)> {
        if comes_through(waiter) { &mut self.seen_through } else { &mut self.seen }
    }

    /// An unattended waiter has asked again.
    pub fn see(&mut self, request: &RequestId, at: RunTime) {
        let Some(waiter) = self.ranks.get(request).and_then(|rank| self.by_rank.get_mut(rank)) else { return };
        let seen = if comes_through(waiter) { &mut self.seen_through } else { &mut self.seen };
        if let Attendance::Unattended { last_seen } = &mut waiter.attendance {
            seen.remove(&(*last_seen, request.clone()));
            *last_seen = at;
            seen.insert((at, request.clone()));
        }
    }

    /// The waiter of a request.
    pub fn get(&self, request: &RequestId) -> Option<&Waiter> {
        self.by_rank.get(self.ranks.get(request)?)
    }

    /// The unattended waiter of a requester.
    pub fn unattended_of(&self, holder: &Requester) -> Option<&Waiter> {
        self.get(self.unattended.get(holder)?)
    }

    /// Everybody, first to last.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiter> {
        self.by_rank.values()
    }

    /// Everybody behind `after`, first to last.
    pub fn from(&self, after: Bound<Rank>) -> impl Iterator<Item = &Waiter> {
        self.by_rank.range((after, Bound::Unbounded)).map(|(_, waiter)| waiter)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.by_rank.len()
    }

    /// True when nobody waits.
    pub fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// True when somebody waits whom the node grants by itself.
    pub fn has_attended(&self) -> bool {
        self.attended > 0
    }

    /// True when somebody waits who has come through a gateway.
    pub fn has_fleet(&self) -> bool {
        self.through > 0
    }

    /// The 1-based place that `rank` has, or would have, over the whole queue.
    pub fn position(&self, rank: Rank) -> usize {
        1 + before(&self.by_rank, rank)
    }

    /// The unattended waiters that were last seen at least `ttl` ago. Those who come through a gateway could not ask again
    /// before `fleet_asks_since`, or with none cannot at all; then they keep their places.
    pub fn stale(
        &self,
        now: RunTime,
        ttl: Duration,
        fleet_asks_since: Option<RunTime>,
    ) -> impl Iterator<Item = &Waiter> {
        let fleet_ages = fleet_asks_since.is_some_and(|since| since + ttl <= now);
        let through = fleet_ages.then_some(&self.seen_through).into_iter().flatten();
        let of_age = move |(seen, _): &&(RunTime, RequestId)| *seen + ttl <= now;
        let stale = self.seen.iter().take_while(of_age).chain(through.take_while(of_age));
        stale.filter_map(|(_, request)| self.get(request))
    }

    /// When the next unattended waiter turns stale.
    pub fn next_stale(&self, ttl: Duration, fleet_asks_since: Option<RunTime>) -> Option<RunTime> {
        let own = self.seen.first().map(|(seen, _)| *seen + ttl);
        let through = self.seen_through.first().zip(fleet_asks_since).map(|((seen, _), since)| since.max(*seen) + ttl);
        own.into_iter().chain(through).min()
    }
}

fn comes_through(waiter: &Waiter) -> bool {
    waiter.proposal.holder.via.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::sample;
    use crate::model::Target;

    fn waiter(holder: &str, priority: f64, arrival: u64, seen_s: Option<u64>) -> Waiter {
        let waiter = sample::waiter(holder, Target::Resource("pixel".parse().unwrap()), priority, arrival);
        let seen = |seconds| Attendance::Unattended { last_seen: RunTime(Duration::from_secs(seconds)) };
        Waiter { attendance: seen_s.map_or(Attendance::Attended, seen), ..waiter }
    }

    #[test]
    fn positions_count_from_one_over_both_kinds() {
        let mut room = WaitingRoom::default();
        let waiters: Vec<Waiter> = (0..7)
            .map(|n| waiter(&format!("w{n}"), f64::from(n % 3), u64::from(n as u32), (n % 2 == 0).then_some(1)))
            .collect();
        waiters.iter().cloned().for_each(|waiter| room.join(waiter));
        let order: Vec<_> = room.iter().map(|waiter| waiter.rank).collect();
        assert!(order.is_sorted());
        for (index, rank) in order.iter().enumerate() {
            assert_eq!(room.position(*rank), index + 1);
        }
        let newcomer = waiter("late", 1.5, 99, None);
        assert_eq!(room.position(newcomer.rank), room.iter().filter(|other| other.rank < newcomer.rank).count() + 1);
    }

    #[test]
    fn whoever_is_seen_again_is_fresh_and_keeps_the_place() {
        let mut room = WaitingRoom::default();
        let (first, second) = (waiter("a", 0.0, 1, Some(0)), waiter("b", 0.0, 2, Some(5)));
        room.join(first.clone());
        room.join(second.clone());
        let ttl = Duration::from_secs(10);
        let at = |seconds| RunTime(Duration::from_secs(seconds));
        room.see(&first.proposal.request, at(9));
        assert_eq!(room.position(first.rank), 1);
        let stale: Vec<_> = room.stale(at(15), ttl, None).map(|waiter| waiter.proposal.holder.to_string()).collect();
        assert_eq!(stale, ["b"]);
        assert_eq!(room.next_stale(ttl, None), Some(at(15)));
        room.remove(&second.proposal.request);
        assert_eq!(room.next_stale(ttl, None), Some(at(19)));
        assert_eq!(room.unattended_of(&"b".parse().unwrap()), None);
    }
    #[test]
    fn whoever_comes_through_a_gateway_keeps_its_place_while_that_is_away_and_has_its_time_anew_after_that() {
        let mut room = WaitingRoom::default();
        room.join(waiter("gw:gateway:a", 0.0, 1, Some(0)));
        room.join(waiter("b", 0.0, 2, Some(0)));
        assert!(room.has_fleet());
        let ttl = Duration::from_secs(10);
        let at = |seconds| RunTime(Duration::from_secs(seconds));
        let stale = |now, since: Option<u64>| -> Vec<String> {
            room.stale(at(now), ttl, since.map(at)).map(|waiter| waiter.proposal.holder.to_string()).collect()
        };
        assert_eq!(stale(1_000, None), ["b"]);
        assert_eq!(stale(10, Some(0)), ["b", "gw:gateway:a"]);
        assert_eq!(stale(109, Some(100)), ["b"]);
        assert_eq!(stale(110, Some(100)), ["b", "gw:gateway:a"]);
        assert_eq!(room.next_stale(ttl, Some(at(100))), Some(at(10)));
        let own = room.unattended_of(&"b".parse().unwrap()).unwrap().proposal.request.clone();
        room.remove(&own);
        assert_eq!(room.next_stale(ttl, Some(at(100))), Some(at(110)));
        assert_eq!(room.next_stale(ttl, None), None);
        let through = room.unattended_of(&"gw:gateway:a".parse().unwrap()).unwrap().proposal.request.clone();
        room.remove(&through);
        assert!(!room.has_fleet());
        assert_eq!(room, WaitingRoom::default());
    }
}
