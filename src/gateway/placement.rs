//! Which worker a lease request by selector goes to (SPEC §9 Dispatch). Pure.

use std::collections::BTreeSet;

use crate::clock::RunTime;
use crate::model::{Code, Nearness, NodeName, Refusal, ResourceId, Selector};

use super::fleet::Failed;
use super::returning::Waited;
use super::view::{Seen, View, Wish};

/// One worker of the roster, as placement sees it.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a NodeName,
    /// True when it is connected, compatible, not drained, and has reported on this link.
    pub takes_requests: bool,
    /// What it has reported; none when it has not been heard since the gateway started.
    pub view: Option<&'a View>,
    /// Probes that it has not answered; each may take one of its free matches.
    pub outstanding: usize,
    /// True when it has as many calls unanswered as it may.
    pub busy: bool,
    /// True when a call that it has not answered is about this very request, whose end comes first.
    pub settling: bool,
    /// True when it is not to be asked for this request just now.
    pub skipped: bool,
    /// True when it has said that it has nothing that matches.
    pub excluded: bool,
}

/// What is free, but not for this request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kept<'a> {
    /// Resources that are shared, and that one who is ahead is to get alone.
    pub pinned: Option<&'a BTreeSet<(NodeName, ResourceId)>>,
    /// What those who waited at the restart wait for, by selector.
    pub returning: Option<&'a Waited>,
    /// The device that could not be made ready for it.
    pub failed: Option<&'a Failed>,
}

impl Kept<'_> {
    fn has_failed(&self, worker: &NodeName, id: &ResourceId) -> bool {
        self.failed.is_some_and(|failed| failed.is(worker, id))
    }

    fn keeps(&self, worker: &NodeName, id: &ResourceId, seen: &Seen) -> bool {
        self.pinned.is_some_and(|pinned| pinned.contains(&(worker.clone(), id.clone())))
            || self.returning.is_some_and(|returning| returning.covers(&seen.labels))
    }
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Placement {
    /// To this worker.
    To(NodeName),
    /// Nowhere until a worker has answered: what is free may be taken by what is out.
    Later,
    /// Nowhere now: what matches is leased, or not for this request. How many there are.
    Taken(usize),
    /// Nowhere now; what matches is at workers that are away, drained or not heard yet.
    Away,
    /// Nowhere: all workers are known, and none has a match.
    NoMatch(Refusal),
}

/// What placing a request has led to.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Where it goes.
    pub placement: Placement,
    /// True when something is free that another request with the same selector and mode might get.
    pub spare: bool,
    /// When the first window ends that is in the way.
    pub until: Option<RunTime>,
}

/// Places a request: workers that take requests, have a match, have one free; then the most free matches, then the
/// lowest name. A worker chooses by itself among what it has free, so one with a match that is kept for others is not
/// asked.
pub fn place<'a>(
    wish: &Wish<'_>,
    kept: Kept<'_>,
    now: RunTime,
    candidates: impl Iterator<Item = Candidate<'a>>,
) -> Place {
    let candidates: Vec<Candidate<'a>> = candidates.collect();
    let mut best: Option<(usize, &NodeName)> = None;
    let (mut later, mut spare, mut until) = (false, false, None::<RunTime>);
    for candidate in candidates.iter().filter(|candidate| candidate.takes_requests) {
        let Some(view) = candidate.view else { continue };
        let matching = view.free().filter(|(_, seen)| wish.selector.matches(&seen.labels));
        let matching = matching.filter(|(id, _)| !kept.has_failed(candidate.name, id));
        let (mut seats, mut free, mut is_kept) = (0_usize, 0_usize, false);
        for (id, seen) in matching.filter(|(_, seen)| seen.could_take(wish.mode)) {
            seats += 1;
            if seen.lets_in(wish, now) {
                free += 1;
            } else {
                let ends = seen.window.iter().map(|window| window.ends_at);
                until = ends.chain(until).min();
            }
            is_kept |= kept.keeps(candidate.name, id, seen);
        }
        if candidate.busy {
            later |= seats > 0 && !candidate.skipped;
            continue;
        }
        spare |= seats > candidate.outstanding;
        if free == 0 || is_kept || candidate.skipped {
            continue;
        }
        let sure = free.saturating_sub(candidate.outstanding);
        let better = |(most, name): (usize, &NodeName)| sure > most || sure == most && candidate.name < name;
        if sure == 0 || candidate.settling {
            later = true;
        } else if best.is_none_or(better) {
            best = Some((sure, candidate.name));
        }
    }
    let placement = match best {
        Some((_, name)) => Placement::To(name.clone()),
        None if later => Placement::Later,
        None => nowhere(wish.selector, kept, &candidates),
    };
    Place { placement, spare, until }
}

/// Why a request that finds nothing free finds nothing.
fn nowhere(selector: &Selector, kept: Kept<'_>, candidates: &[Candidate<'_>]) -> Placement {
    let mut nearness = Nearness::default();
    let (mut here, mut away) = (0, false);
    for candidate in candidates {
        let Some(view) = candidate.view else {
            away = true;
            continue;
        };
        let mut matching = 0;
        for (id, seen) in view.resources().iter().filter(|(_, seen)| seen.grantable) {
            if kept.has_failed(candidate.name, id) {
                continue;
            }
            if selector.matches(&seen.labels) {
                matching += 1;
            } else {
                nearness.add(selector, &seen.labels);
            }
        }
        match candidate {
            Candidate { excluded: true, .. } => {}
            Candidate { takes_requests: true, .. } => here += matching,
            _ => away |= matching > 0,
        }
    }
    if here > 0 {
        Placement::Taken(here)
    } else if away {
        Placement::Away
    } else {
        let near = nearness.describe(selector);
        Placement::NoMatch(Refusal::new(
            Code::NoMatchingResource,
            format!("no resource of the lab matches {selector}: {near}"),
        ))
    }
}

/// The resource that one who wants what matches alone is to get, when every match is shared just now: the one with the
/// fewest holders, then the lowest name.
pub fn pinned_to<'a>(
    selector: &Selector,
    views: impl Iterator<Item = (&'a NodeName, &'a View)>,
) -> Option<(NodeName, ResourceId)> {
    let mut best: Option<(usize, &NodeName, &ResourceId)> = None;
    for (name, view) in views {
        // What an operator has taken out is nobody's to wait for just now.
        let there = view.resources().iter().filter(|(_, seen)| seen.grantable && !seen.drained);
        for (id, seen) in there.filter(|(_, seen)| selector.matches(&seen.labels)) {
            if !seen.is_shared_now() {
                return None;
            }
            let this = (seen.held.len(), name, id);
            best = Some(best.map_or(this, |best| best.min(this)));
        }
    }
    best.map(|(_, name, id)| (name.clone(), id.clone()))
}

/// `NO_CAPACITY`, with a hint when to ask again.
pub fn no_capacity(why: String) -> Refusal {
    Refusal::new(Code::NoCapacity, format!("{why}; ask again later")).retry_after(std::time::Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{Fence, LeaseRecord, Mode, Requester};
    use crate::wire::report::{LeaseRow, NextWindow, ResourceReport};

    fn report(index: usize, platform: &str) -> ResourceReport {
        ResourceReport {
            id: format!("r{index}").parse().unwrap(),
            labels: [("platform".parse().unwrap(), platform.parse().unwrap())].into(),
            max_shared: 2,
            fence: Fence(0),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            device: None,
            environment: Default::default(),
            identity: None,
            failure: None,
            prepared_ms: 0,
            leases: vec![],
        }
    }

    fn seen(reports: Vec<ResourceReport>) -> View {
        let mut view = View::default();
        view.take_snapshot(0, reports, RunTime::default());
        view
    }

    fn view(platforms: &[&str]) -> View {
        seen(platforms.iter().enumerate().map(|(index, platform)| report(index, platform)).collect())
    }

    fn leased(mode: Mode, by: usize) -> View {
        let target = crate::model::Target::Resource("r0".parse().unwrap());
        let lease = |index: usize| LeaseRecord {
            id: format!("l{index}").parse().unwrap(),
            request_id: crate::model::RequestId::generate(),
            resource_id: "r0".parse().unwrap(),
            mode,
            holder: "ci".parse().unwrap(),
            granted_at: jiff::Timestamp::UNIX_EPOCH,
            renewed_at: jiff::Timestamp::UNIX_EPOCH,
            ttl: Duration::from_secs(60),
            fence: Fence(1),
            note: None,
            id_chosen_by_requester: false,
            idempotency_key: None,
            fingerprint: crate::model::Fingerprint::of(&target, mode, None),
            asked_ttl: None,
        };
        let leases = (0..by).map(|index| LeaseRow::new(&lease(index), Duration::from_secs(60))).collect();
        seen(vec![ResourceReport { leases, max_shared: 3, ..report(0, "android") }])
    }

    /// Name, takes requests, view, outstanding, skipped.
    type Worker<'a> = (&'a str, bool, Option<&'a View>, usize, bool);

    fn placed_with(mode: Mode, kept: Kept<'_>, workers: &[Worker<'_>]) -> Place {
        let names: Vec<NodeName> = workers.iter().map(|(name, ..)| name.parse().unwrap()).collect();
        let candidates = workers.iter().zip(&names).map(|((_, takes, view, outstanding, skipped), name)| Candidate {
            name,
            takes_requests: *takes,
            view: *view,
            outstanding: *outstanding,
            busy: false,
            settling: false,
            skipped: *skipped,
            excluded: false,
        });
        let (selector, requester): (Selector, Requester) =
            ("platform=android".parse().unwrap(), "gw:gateway:ci".parse().unwrap());
        place(&wish(&selector, &requester, mode), kept, RunTime::default(), candidates)
    }

    fn wish<'a>(selector: &'a Selector, requester: &'a Requester, mode: Mode) -> Wish<'a> {
        Wish { selector, mode, ttl: Duration::from_secs(60), requester, allow_shorter: false, by_admin: false }
    }

    fn placed(workers: &[Worker<'_>]) -> Placement {
        placed_with(Mode::Exclusive, Kept::default(), workers).placement
    }

    fn to(name: &str) -> Placement {
        Placement::To(name.parse().unwrap())
    }

    #[test]
    fn the_worker_with_most_free_matches_is_chosen_then_the_lowest_name() {
        let (one, two, none) = (view(&["android"]), view(&["android", "android", "linux"]), view(&["linux"]));
        assert_eq!(placed(&[("a", true, Some(&one), 0, false), ("b", true, Some(&two), 0, false)]), to("b"));
        assert_eq!(placed(&[("b", true, Some(&one), 0, false), ("a", true, Some(&one), 0, false)]), to("a"));
        assert_eq!(placed(&[("a", true, Some(&one), 0, false), ("b", true, Some(&two), 2, false)]), to("a"));
        assert_eq!(placed(&[("a", true, Some(&one), 0, true), ("b", true, Some(&two), 0, false)]), to("b"));
        assert!(matches!(placed(&[("a", true, Some(&none), 0, false)]), Placement::NoMatch(_)));
        assert_eq!(placed(&[("a", true, Some(&one), 0, true)]), Placement::Taken(1));
    }

    #[test]
    fn what_is_free_but_may_be_taken_by_a_probe_that_is_out_is_waited_for() {
        let one = view(&["android"]);
        let place = placed_with(Mode::Exclusive, Kept::default(), &[("a", true, Some(&one), 1, false)]);
        assert_eq!(place, Place { placement: Placement::Later, spare: false, until: None });
        assert_eq!(placed(&[("a", true, Some(&one), 1, false), ("b", false, None, 0, false)]), Placement::Later);
    }

    #[test]
    fn a_request_waits_for_a_worker_that_is_away_only_where_none_that_is_here_has_a_match() {
        let (one, none, held) = (view(&["android"]), view(&["linux"]), leased(Mode::Exclusive, 1));
        assert_eq!(placed(&[("a", true, Some(&none), 0, false), ("b", false, None, 0, false)]), Placement::Away);
        assert_eq!(placed(&[("a", true, Some(&none), 0, false), ("b", false, Some(&one), 0, false)]), Placement::Away);
        assert_eq!(
            placed(&[("a", true, Some(&held), 0, false), ("b", false, Some(&one), 0, false)]),
            Placement::Taken(1)
        );
        let useless = placed(&[("a", true, Some(&none), 0, true), ("b", false, Some(&none), 0, false)]);
        assert!(matches!(useless, Placement::NoMatch(_)), "{useless:?}");
    }

    #[test]
    fn a_seat_that_is_kept_or_a_window_that_is_in_the_way_is_no_room() {
        let kept = seen(vec![ResourceReport { reserved: 1, ..report(0, "android") }]);
        assert_eq!(placed(&[("a", true, Some(&kept), 0, false)]), Placement::Taken(1));
        let shared = placed_with(Mode::Shared, Kept::default(), &[("a", true, Some(&kept), 0, false)]);
        assert_eq!(shared.placement, to("a"), "one of its two seats is left");
        let booked = |holder: &str, starts_in_ms, ends_in_ms| {
            let holder = holder.parse().unwrap();
            seen(vec![ResourceReport {
                next_window: Some(NextWindow { holder, starts_in_ms, ends_in_ms }),
                device: None,
                environment: Default::default(),
                identity: None,
                failure: None,
                prepared_ms: 0,
                ..report(0, "android")
            }])
        };
        for (holder, starts, ends, fits) in [
            ("other", 59_999, 90_000, false),
            ("other", 60_000, 90_000, true),
            ("gw:gateway:ci", 0, 90_000, true),
            ("ci", 0, 90_000, false),
            ("other", 0, 0, true),
        ] {
            let booked = booked(holder, starts, ends);
            let place = placed_with(Mode::Exclusive, Kept::default(), &[("a", true, Some(&booked), 0, false)]);
            assert_eq!(place.placement == to("a"), fits, "{holder} {starts}");
            assert!(place.spare, "another may fit");
        }
    }

    #[test]
    fn an_admin_passes_every_window_and_whoever_takes_less_passes_one_that_has_not_begun() {
        let window = |starts_in_ms| NextWindow { holder: "other".parse().unwrap(), starts_in_ms, ends_in_ms: 90_000 };
        let (selector, requester): (Selector, Requester) = ("platform".parse().unwrap(), "ci".parse().unwrap());
        for (starts, admin, shorter, fits) in
            [(0, true, false, true), (1_000, false, true, true), (0, false, true, false), (1_000, false, false, false)]
        {
            let view = seen(vec![ResourceReport { next_window: Some(window(starts)), ..report(0, "android") }]);
            let wish = Wish { by_admin: admin, allow_shorter: shorter, ..wish(&selector, &requester, Mode::Exclusive) };
            let seen = view.resources().values().next().unwrap();
            assert_eq!(seen.fits(&wish, RunTime::default()), fits, "{starts} {admin} {shorter}");
        }
    }

    #[test]
    fn what_is_shared_everywhere_is_pinned_where_fewest_hold_it_and_nobody_later_slips_in() {
        let (few, many, free) = (leased(Mode::Shared, 1), leased(Mode::Shared, 2), view(&["android"]));
        let (a, b): (NodeName, NodeName) = ("a".parse().unwrap(), "b".parse().unwrap());
        let selector: Selector = "platform=android".parse().unwrap();
        let pin = pinned_to(&selector, [(&a, &many), (&b, &few)].into_iter()).unwrap();
        assert_eq!(pin, (b.clone(), "r0".parse().unwrap()));
        assert_eq!(pinned_to(&selector, [(&a, &many), (&b, &free)].into_iter()), None, "one is free");
        let pinned = BTreeSet::from([pin]);
        let kept = Kept { pinned: Some(&pinned), ..Kept::default() };
        let both = [("a", true, Some(&many), 0, false), ("b", true, Some(&few), 0, false)];
        assert_eq!(placed_with(Mode::Shared, kept, &both).placement, to("a"));
        assert_eq!(placed_with(Mode::Shared, kept, &both[1..]).placement, Placement::Taken(1));
    }
}
