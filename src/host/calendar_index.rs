//! Where every booking and hold of a node is, whose they are, and how long they have been over.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use crate::admission::calendar::{Calendar, CalendarChange};
use crate::clock::{Now, RunTime};
use crate::limits::{CALENDAR_ARCHIVE_KEPT, CALENDAR_ARCHIVE_MAX};
use crate::model::{
    Booking, BookingId, BookingStatus, Hold, HoldId, HoldStatus, IdempotencyKey, Requester, ResourceId, SeriesId,
};

/// Bookings and holds that one look at the archive gives up at most.
const FORGOTTEN_AT_ONCE_MAX: usize = 1_000;

/// An index over the calendars of all resources.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
pub(super) struct CalendarIndex {
    bookings: HashMap<BookingId, BookingPlace>,
    holds: HashMap<HoldId, HoldPlace>,
    /// The keys of active holds.
    keys: HashMap<(Requester, IdempotencyKey), HoldId>,
    /// The keys of holds that are asked for, each on one resource only, and how often.
    asked_keys: HashMap<(Requester, IdempotencyKey), (ResourceId, usize)>,
    owners: HashMap<Requester, Owned>,
    /// The bookings by when they are over, now or some day.
    over_bookings: BTreeSet<(Timestamp, BookingId)>,
    /// The holds that are over, by when.
    over_holds: BTreeSet<(Timestamp, HoldId)>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
struct BookingPlace {
    resource: ResourceId,
    over_at: Timestamp,
    /// Whose it is and what it counts as, while it is scheduled.
    counts: Option<(Requester, Group, Timestamp)>,
}

#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
struct HoldPlace {
    resource: ResourceId,
    over_at: Option<Timestamp>,
    deadline: RunTime,
    holder: Requester,
    key: Option<IdempotencyKey>,
}

/// What counts as one booking: itself, or its whole series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Group {
    One(BookingId),
    Series(SeriesId),
}

/// What one principal has, with its sub-requesters.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(PartialEq))]
struct Owned {
    /// When the last scheduled one of each group ends.
    last_end: BTreeSet<(Timestamp, Group)>,
    ends: HashMap<Group, BTreeSet<(Timestamp, BookingId)>>,
    active_holds: BTreeSet<(RunTime, HoldId)>,
    /// Asked for and not answered.
    asked: [usize; 2],
}

/// One that is asked for, as long as it is not answered.
#[derive(Debug)]
pub(super) struct Counted {
    /// For whom.
    pub(super) holder: Requester,
    /// What.
    pub(super) what: Countable,
    /// The key of a hold, and on which resource that stands for one from now on.
    pub(super) key: Option<(IdempotencyKey, ResourceId)>,
}

/// What a principal may have only so many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Countable {
    Booking,
    Hold,
}

impl CalendarIndex {
    /// The resource of a booking.
    pub(super) fn of_booking(&self, id: &BookingId) -> Option<&ResourceId> {
        self.bookings.get(id).map(|place| &place.resource)
    }

    /// The resource of a hold.
    pub(super) fn of_hold(&self, id: &HoldId) -> Option<&ResourceId> {
        self.holds.get(id).map(|place| &place.resource)
    }

    /// The active hold that was made under a key.
    pub(super) fn of_key(&self, holder: &Requester, key: &IdempotencyKey) -> Option<&HoldId> {
        self.keys.get(&(holder.clone(), key.clone()))
    }

    /// The resource of a hold that is asked for under a key.
    pub(super) fn of_asked_key(&self, holder: &Requester, key: &IdempotencyKey) -> Option<&ResourceId> {
        self.asked_keys.get(&(holder.clone(), key.clone())).map(|(resource, _)| resource)
    }

    /// How many a principal has, those included that it has asked for: scheduled bookings that are not over, a series
    /// counted as one, or active holds. What has run out does not count, whether that is written or not.
    pub(super) fn count(&self, owner: &Requester, what: Countable, now: Now) -> usize {
        let Some(owned) = self.owners.get(&owner.owner()) else { return 0 };
        let there = match what {
            Countable::Booking => owned.last_end.iter().rev().take_while(|(ends_at, _)| *ends_at > now.wall).count(),
            Countable::Hold => owned.active_holds.iter().rev().take_while(|(at, _)| *at > now.run).count(),
        };
        there + owned.asked[what as usize]
    }

    /// One is asked for.
    pub(super) fn ask(&mut self, one: &Counted) {
        self.owners.entry(one.holder.owner()).or_default().asked[one.what as usize] += 1;
        if let Some((key, resource)) = &one.key {
            let key = (one.holder.clone(), key.clone());
            self.asked_keys.entry(key).or_insert_with(|| (resource.clone(), 0)).1 += 1;
        }
    }

    /// That is answered; what came of it has been [taken in](Self::take).
    pub(super) fn answered(&mut self, one: &Counted) {
        if let Some(owned) = self.owners.get_mut(&one.holder.owner()) {
            owned.asked[one.what as usize] -= 1;
        }
        self.tidy(&one.holder);
        if let Some((key, _)) = &one.key {
            let key = (one.holder.clone(), key.clone());
            if let Some((_, times)) = self.asked_keys.get_mut(&key) {
                *times -= 1;
                if *times == 0 {
                    self.asked_keys.remove(&key);
                }
            }
        }
    }

    /// Takes a change of a calendar in.
    pub(super) fn take(&mut self, change: &CalendarChange) {
        match change {
            CalendarChange::Booking { booking, .. } => self.put_booking(booking),
            CalendarChange::Hold { hold, deadline, .. } => self.put_hold(hold, *deadline),
            CalendarChange::Forgotten { bookings, holds } => {
                bookings.iter().for_each(|id| self.drop_booking(id));
                holds.iter().for_each(|id| self.drop_hold(id));
            }
            CalendarChange::HoldsPaused(_) => {}
        }
    }

    /// Takes a whole calendar in.
    pub(super) fn add(&mut self, calendar: &Calendar) {
        calendar.bookings().for_each(|booking| self.put_booking(booking));
        calendar.holds().for_each(|held| self.put_hold(&held.hold, held.deadline));
    }

    /// Takes a whole calendar out.
    pub(super) fn remove(&mut self, calendar: &Calendar) {
        calendar.bookings().for_each(|booking| self.drop_booking(&booking.id));
        calendar.holds().for_each(|held| self.drop_hold(&held.hold.id));
    }

    /// What has been over for too long, or is too much of its kind, by its resource; the oldest first.
    pub(super) fn to_forget(&self, now: Timestamp) -> HashMap<ResourceId, (Vec<BookingId>, Vec<HoldId>)> {
        let mut found: HashMap<ResourceId, (Vec<BookingId>, Vec<HoldId>)> = HashMap::new();
        for id in surplus(&self.over_bookings, now) {
            if let Some(resource) = self.of_booking(id) {
                found.entry(resource.clone()).or_default().0.push(id.clone());
            }
        }
        for id in surplus(&self.over_holds, now) {
            if let Some(resource) = self.of_hold(id) {
                found.entry(resource.clone()).or_default().1.push(id.clone());
            }
        }
        found
    }

    /// How many have been asked for and not answered.
    #[cfg(test)]
    pub(super) fn asked(&self) -> usize {
        self.owners.values().map(|owned| owned.asked.iter().sum::<usize>()).sum()
    }

    /// True when nothing is asked for and it says of these calendars what is in them.
    #[cfg(test)]
    pub(super) fn is_of(&self, calendars: &[Calendar]) -> bool {
        let mut anew = Self::default();
        calendars.iter().for_each(|calendar| anew.add(calendar));
        *self == anew
    }

    fn put_booking(&mut self, booking: &Booking) {
        self.drop_booking(&booking.id);
        let over_at = booking.over_at();
        let group = booking.series.clone().map_or_else(|| Group::One(booking.id.clone()), Group::Series);
        let counts = (booking.status == BookingStatus::Scheduled)
            .then(|| (booking.holder.owner(), group, booking.window.ends_at()));
        if let Some((owner, group, ends_at)) = &counts {
            let owned = self.owners.entry(owner.clone()).or_default();
            owned.change(group, |ends| {
                ends.insert((*ends_at, booking.id.clone()));
            });
        }
        self.over_bookings.insert((over_at, booking.id.clone()));
        let place = BookingPlace { resource: booking.resource_id.clone(), over_at, counts };
        self.bookings.insert(booking.id.clone(), place);
    }

    fn drop_booking(&mut self, id: &BookingId) {
        let Some(place) = self.bookings.remove(id) else { return };
        self.over_bookings.remove(&(place.over_at, id.clone()));
        if let Some((owner, group, ends_at)) = place.counts {
            if let Some(owned) = self.owners.get_mut(&owner) {
                owned.change(&group, |ends| {
                    ends.remove(&(ends_at, id.clone()));
                });
            }
            self.tidy(&owner);
        }
    }

    fn put_hold(&mut self, hold: &Hold, deadline: RunTime) {
        self.drop_hold(&hold.id);
        let active = hold.status == HoldStatus::Active;
        if active {
            let owned = self.owners.entry(hold.holder.owner()).or_default();
            owned.active_holds.insert((deadline, hold.id.clone()));
            if let Some(key) = &hold.key {
                self.keys.insert((hold.holder.clone(), key.clone()), hold.id.clone());
            }
        }
        if let Some(at) = hold.settled_at {
            self.over_holds.insert((at, hold.id.clone()));
        }
        let place = HoldPlace {
            resource: hold.resource_id.clone(),
            over_at: hold.settled_at,
            deadline,
            holder: hold.holder.clone(),
            key: hold.key.clone(),
        };
        self.holds.insert(hold.id.clone(), place);
    }

    fn drop_hold(&mut self, id: &HoldId) {
        let Some(place) = self.holds.remove(id) else { return };
        match place.over_at {
            Some(at) => drop(self.over_holds.remove(&(at, id.clone()))),
            None => {
                if let Some(owned) = self.owners.get_mut(&place.holder.owner()) {
                    owned.active_holds.remove(&(place.deadline, id.clone()));
                }
                if let Some(key) = place.key.map(|key| (place.holder.clone(), key))
                    && self.keys.get(&key) == Some(id)
                {
                    self.keys.remove(&key);
                }
                self.tidy(&place.holder);
            }
        }
    }

    fn tidy(&mut self, owner: &Requester) {
        let owner = owner.owner();
        if self.owners.get(&owner).is_some_and(Owned::is_empty) {
            self.owners.remove(&owner);
        }
    }
}

impl Owned {
    fn change(&mut self, group: &Group, by: impl FnOnce(&mut BTreeSet<(Timestamp, BookingId)>)) {
        let ends = self.ends.entry(group.clone()).or_default();
        if let Some((last, _)) = ends.last() {
            self.last_end.remove(&(*last, group.clone()));
        }
        by(ends);
        match ends.last() {
            Some((last, _)) => drop(self.last_end.insert((*last, group.clone()))),
            None => drop(self.ends.remove(group)),
        }
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.active_holds.is_empty() && self.asked == [0, 0]
    }
}

/// The oldest that are over and have been so for too long, or are more than there may be.
fn surplus<T>(by_end: &BTreeSet<(Timestamp, T)>, now: Timestamp) -> impl Iterator<Item = &T> {
    let old = now.checked_sub(CALENDAR_ARCHIVE_KEPT).unwrap_or(Timestamp::MIN);
    // How many are over is counted only where there can be too many.
    let over = || by_end.iter().take_while(|(at, _)| *at <= now).count();
    let too_many = if by_end.len() > CALENDAR_ARCHIVE_MAX { over().saturating_sub(CALENDAR_ARCHIVE_MAX) } else { 0 };
    let due = by_end.iter().enumerate().take_while(move |(index, (at, _))| *index < too_many || *at <= old);
    due.take(FORGOTTEN_AT_ONCE_MAX).map(|(_, (_, id))| id)
}
