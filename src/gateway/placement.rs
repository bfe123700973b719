//! Which worker a lease request by selector goes to (SPEC §9 Dispatch). Pure.

use crate::model::{Code, Mode, Nearness, NodeName, Refusal, Selector};

use super::view::View;

/// One worker of the roster, as placement sees it.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a NodeName,
    /// True when it is connected, compatible and has reported on this link.
    pub takes_requests: bool,
    /// What it has reported; none when it has not been heard since the gateway started.
    pub view: Option<&'a View>,
    /// Probes that it has not answered; each may take one of its free matches.
    pub outstanding: usize,
    /// True when it has as many calls unanswered as it may, or one whose end this request has to wait for.
    pub busy: bool,
    /// True when it has refused this request.
    pub skipped: bool,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq)]
pub enum Placement {
    /// To this worker.
    To(NodeName),
    /// Nowhere until a worker has answered: what is free may be taken by what is out.
    Later,
    /// Nowhere now; a worker that is away could serve it.
    Away,
    /// Nowhere.
    Refused(Refusal),
}

/// Places a request: workers that take requests, have a match, have one free; then the most free matches, then the
/// lowest name.
pub fn place<'a>(selector: &Selector, mode: Mode, candidates: impl Iterator<Item = Candidate<'a>>) -> Placement {
    let mut best: Option<(usize, &NodeName)> = None;
    let mut matching = 0;
    let (mut away, mut later) = (false, false);
    let mut nearness = Nearness::default();
    for candidate in candidates {
        let Some(view) = candidate.view else {
            away = true;
            continue;
        };
        if candidate.busy && candidate.takes_requests && !candidate.skipped {
            later = true;
            continue;
        }
        let (mut matches, mut free) = (0, 0);
        for seen in view.resources().values().filter(|seen| seen.grantable) {
            if selector.matches(&seen.labels) {
                matches += 1;
                free += usize::from(seen.could_take(mode));
            } else {
                nearness.add(selector, &seen.labels);
            }
        }
        matching += matches;
        if !candidate.takes_requests {
            away |= matches > 0 && !candidate.skipped;
            continue;
        }
        if candidate.skipped || free == 0 {
            continue;
        }
        let sure = free.saturating_sub(candidate.outstanding);
        let better = |(most, name): (usize, &NodeName)| sure > most || sure == most && candidate.name < name;
        if sure == 0 {
            later = true;
        } else if best.is_none_or(better) {
            best = Some((sure, candidate.name));
        }
    }
    match best {
        Some((_, name)) => Placement::To(name.clone()),
        None if later => Placement::Later,
        None if away => Placement::Away,
        None if matching == 0 => {
            let near = nearness.describe(selector);
            Placement::Refused(Refusal::new(
                Code::NoMatchingResource,
                format!("no resource of the lab matches {selector}: {near}"),
            ))
        }
        None => Placement::Refused(no_capacity(format!("all {matching} that match {selector} are leased"))),
    }
}

/// `NO_CAPACITY`, with a hint when to ask again.
pub fn no_capacity(why: String) -> Refusal {
    Refusal::new(Code::NoCapacity, format!("{why}; ask again later")).retry_after(std::time::Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::RunTime;
    use crate::model::Fence;
    use crate::wire::report::ResourceReport;

    fn view(platforms: &[&str]) -> View {
        let report = |(index, platform): (usize, &&str)| ResourceReport {
            id: format!("r{index}").parse().unwrap(),
            labels: [("platform".parse().unwrap(), platform.parse().unwrap())].into(),
            max_shared: 1,
            fence: Fence(0),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            leases: vec![],
        };
        let mut view = View::default();
        let reports = platforms.iter().enumerate().map(report).collect();
        view.take_snapshot(0, reports, RunTime::default());
        view
    }

    fn placed(workers: &[(&str, bool, Option<&View>, usize, bool)]) -> Placement {
        let names: Vec<NodeName> = workers.iter().map(|(name, ..)| name.parse().unwrap()).collect();
        let candidates = workers.iter().zip(&names).map(|((_, takes, view, outstanding, skipped), name)| Candidate {
            name,
            takes_requests: *takes,
            view: *view,
            outstanding: *outstanding,
            busy: false,
            skipped: *skipped,
        });
        place(&"platform=android".parse().unwrap(), Mode::Exclusive, candidates)
    }

    fn to(name: &str) -> Placement {
        Placement::To(name.parse().unwrap())
    }

    fn code(placement: Placement) -> Code {
        let Placement::Refused(refusal) = placement else { panic!("{placement:?}") };
        refusal.code
    }

    #[test]
    fn the_worker_with_most_free_matches_is_chosen_then_the_lowest_name() {
        let (one, two, none) = (view(&["android"]), view(&["android", "android", "linux"]), view(&["linux"]));
        assert_eq!(placed(&[("a", true, Some(&one), 0, false), ("b", true, Some(&two), 0, false)]), to("b"));
        assert_eq!(placed(&[("b", true, Some(&one), 0, false), ("a", true, Some(&one), 0, false)]), to("a"));
        assert_eq!(placed(&[("a", true, Some(&one), 0, false), ("b", true, Some(&two), 2, false)]), to("a"));
        assert_eq!(placed(&[("a", true, Some(&one), 0, true), ("b", true, Some(&two), 0, false)]), to("b"));
        assert_eq!(code(placed(&[("a", true, Some(&none), 0, false)])), Code::NoMatchingResource);
        assert_eq!(code(placed(&[("a", true, Some(&one), 0, true)])), Code::NoCapacity);
    }

    #[test]
    fn what_is_free_but_may_be_taken_by_a_probe_that_is_out_is_waited_for() {
        let one = view(&["android"]);
        assert_eq!(placed(&[("a", true, Some(&one), 1, false)]), Placement::Later);
        assert_eq!(placed(&[("a", true, Some(&one), 1, false), ("b", false, None, 0, false)]), Placement::Later);
    }

    #[test]
    fn a_request_waits_for_a_worker_that_is_away_and_could_serve() {
        let (one, none) = (view(&["android"]), view(&["linux"]));
        assert_eq!(placed(&[("a", true, Some(&none), 0, false), ("b", false, None, 0, false)]), Placement::Away);
        assert_eq!(placed(&[("a", true, Some(&none), 0, false), ("b", false, Some(&one), 0, false)]), Placement::Away);
        let useless = placed(&[("a", true, Some(&one), 0, true), ("b", false, Some(&none), 0, false)]);
        assert_eq!(code(useless), Code::NoCapacity);
    }
}
