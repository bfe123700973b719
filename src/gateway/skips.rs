//! The workers that a lease request is not sent to for a while, because of what they answered (SPEC §9 Dispatch). Pure.
//!
//! - A worker that had no room is skipped until a report numbered past its answer shows a resource that fits and is
//!   free, or a pause has passed, which doubles from 5 s to 60 s.
//! - One that says that it has nothing that matches is left out until its resources change.
//! - One that granted under another id than was forwarded is skipped until it reconnects.
//! - One that is going down is skipped for as long as a pause; one that could not be asked, for a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::RunTime;
use crate::model::NodeName;

/// The pause after the first refusal, and the longest.
pub const PAUSE_FIRST: Duration = Duration::from_secs(5);
/// The longest pause.
pub const PAUSE_LONGEST: Duration = Duration::from_secs(60);

/// How long a worker is skipped that could not be asked.
pub const MOMENT: Duration = Duration::from_millis(250);

/// Why a worker is not asked just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It said so with this number, the last before its answer: it had no room.
    NoRoom(u64),
    /// It said so with this number: it has nothing that matches.
    NoMatch(u64),
    /// It granted under another id.
    WrongId,
    /// It is going down.
    Stopping,
    /// It could not be asked: its link has just gone, or is full.
    NotSent,
}

/// What one request skips.
#[derive(Debug, Clone, Default)]
pub struct Skips(BTreeMap<NodeName, Skip>);

#[derive(Debug, Clone, Copy)]
struct Skip {
    /// None once it is over; the count of refusals goes on.
    why: Option<Why>,
    /// When it is over by itself.
    until: Option<RunTime>,
    /// Refusals for lack of room, in a row.
    refusals: u32,
}

/// What a report says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct News {
    /// The number of the report.
    pub number: u64,
    /// True when it shows a resource that fits and is free.
    pub fits: bool,
    /// True when resources have come, gone, or got other labels.
    pub changed: bool,
}

impl Skips {
    /// True when nothing is or was skipped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A worker has answered in a way that it is not to be asked again at once.
    pub fn add(&mut self, worker: &NodeName, why: Why, now: RunTime) {
        let refusals = self.0.get(worker).map_or(0, |skip| skip.refusals);
        let pause = PAUSE_FIRST.saturating_mul(1 << refusals.min(6)).min(PAUSE_LONGEST);
        let (until, refusals) = match why {
            Why::NoRoom(_) | Why::Stopping => (Some(now + pause), refusals.saturating_add(1)),
            Why::NotSent => (Some(now + MOMENT), refusals),
            Why::NoMatch(_) | Why::WrongId => (None, refusals),
        };
        self.0.insert(worker.clone(), Skip { why: Some(why), until, refusals });
    }

    /// True when the worker is not to be asked now.
    pub fn has(&self, worker: &NodeName, now: RunTime) -> bool {
        self.why(worker, now).is_some()
    }

    /// True when the worker has said that it has nothing that matches.
    pub fn lacks_a_match(&self, worker: &NodeName) -> bool {
        matches!(self.0.get(worker), Some(Skip { why: Some(Why::NoMatch(_)), .. }))
    }

    /// A report of the worker has come. True when it may be asked again because of that.
    pub fn reported(&mut self, worker: &NodeName, news: News) -> bool {
        let Some(skip) = self.0.get_mut(worker) else { return false };
        let over = match skip.why {
            Some(Why::NoRoom(number)) => news.number > number && news.fits,
            Some(Why::NoMatch(number)) => news.number > number && news.changed,
            Some(Why::WrongId | Why::Stopping | Why::NotSent) | None => false,
        };
        if over {
            (skip.why, skip.until) = (None, None);
        }
        over
    }

    /// The worker is here anew: nothing that it said before counts.
    pub fn reconnected(&mut self, worker: &NodeName) -> bool {
        self.0.remove(worker).is_some()
    }

    /// When the next pause is over.
    pub fn next(&self, now: RunTime) -> Option<RunTime> {
        self.0.values().filter_map(|skip| skip.until).filter(|until| *until > now).min()
    }

    fn why(&self, worker: &NodeName, now: RunTime) -> Option<Why> {
        let skip = self.0.get(worker)?;
        skip.why.filter(|_| skip.until.is_none_or(|until| now < until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> RunTime {
        RunTime(Duration::from_secs(seconds))
    }

    fn rack() -> NodeName {
        "rack-1".parse().unwrap()
    }

    fn news(number: u64, fits: bool, changed: bool) -> News {
        News { number, fits, changed }
    }

    #[test]
    fn a_worker_without_room_is_asked_again_after_pauses_that_double_from_five_seconds_to_a_minute() {
        let (mut skips, mut now) = (Skips::default(), at(100));
        for pause in [5, 10, 20, 40, 60, 60] {
            assert!(!skips.has(&rack(), now));
            skips.add(&rack(), Why::NoRoom(7), now);
            assert_eq!(skips.next(now), Some(now + Duration::from_secs(pause)));
            now = now + (Duration::from_secs(pause) - Duration::from_millis(1));
            assert!(skips.has(&rack(), now), "{pause}");
            now = now + Duration::from_millis(1);
        }
        assert_eq!(skips.next(now), None);
    }

    #[test]
    fn a_report_past_the_answer_that_shows_room_ends_the_skip_and_an_older_one_or_one_without_does_not() {
        let mut skips = Skips::default();
        skips.add(&rack(), Why::NoRoom(7), at(0));
        assert!(!skips.reported(&rack(), news(7, true, true)), "the answer knew of it");
        assert!(!skips.reported(&rack(), news(8, false, true)));
        assert!(!skips.reported(&"rack-2".parse().unwrap(), news(8, true, true)));
        assert!(skips.has(&rack(), at(1)));
        assert!(skips.reported(&rack(), news(8, true, false)));
        assert!(!skips.has(&rack(), at(1)));
        skips.add(&rack(), Why::NoRoom(9), at(1));
        assert_eq!(skips.next(at(1)), Some(at(11)), "the second time it is asked later all the same");
    }

    #[test]
    fn a_worker_that_lacks_a_match_is_left_out_until_its_resources_change() {
        let mut skips = Skips::default();
        skips.add(&rack(), Why::NoMatch(7), at(0));
        assert!(skips.lacks_a_match(&rack()) && skips.has(&rack(), at(100_000)));
        assert!(!skips.reported(&rack(), news(9, true, false)));
        assert!(skips.reported(&rack(), news(9, false, true)));
        assert!(!skips.lacks_a_match(&rack()) && !skips.has(&rack(), at(1)));
    }

    #[test]
    fn a_worker_that_granted_under_another_id_is_skipped_until_it_reconnects() {
        let mut skips = Skips::default();
        skips.add(&rack(), Why::WrongId, at(0));
        assert!(!skips.reported(&rack(), news(9, true, true)));
        assert!(skips.has(&rack(), at(100_000)));
        assert!(skips.reconnected(&rack()));
        assert!(skips.is_empty() && !skips.has(&rack(), at(1)));
    }

    #[test]
    fn a_worker_that_goes_down_is_not_asked_again_for_every_resource_that_frees_there() {
        let mut skips = Skips::default();
        skips.add(&rack(), Why::Stopping, at(0));
        assert!(!skips.reported(&rack(), news(9, true, true)));
        assert!(skips.has(&rack(), at(4)) && !skips.has(&rack(), at(5)));
    }
}
