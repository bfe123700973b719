//! Those who waited when the gateway ended (SPEC §2 Waiting ticket). A gateway has no requests on disk: the place in line
//! is in the ticket that each of them has, and counts once. For a while after the rebuild, what they waited for goes to
//! nobody else.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::admission::Joined;
use crate::admission::ticket::TicketKey;
use crate::clock::{Now, RunTime};
use crate::limits::{WAITED_SELECTORS_MAX, WAITERS_MAX};
use crate::model::{Ask, Fingerprint, Labels, RequestId, Selector};

/// What somebody waited for, by selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waited {
    /// By the canonical text.
    selectors: BTreeMap<String, Selector>,
    /// True when there were more selectors than are written down.
    anything: bool,
}

impl Waited {
    /// What those wait for who are in these groups.
    pub fn of<'a>(groups: impl Iterator<Item = (&'a str, &'a Selector)>) -> Self {
        let mut waited = Self::default();
        for (key, selector) in groups.take(WAITED_SELECTORS_MAX + 1) {
            waited.add(key, selector);
        }
        waited
    }

    /// What was waited for here or there.
    pub fn and(mut self, other: &Waited) -> Self {
        self.anything |= other.anything;
        for (key, selector) in &other.selectors {
            self.add(key, selector);
        }
        self
    }

    /// As it is written down: the selectors, and whether there were more.
    pub fn written(&self) -> (Vec<String>, bool) {
        (self.selectors.keys().cloned().collect(), self.anything)
    }

    /// What was written down. A selector that does not read back may have been any.
    pub fn read(selectors: &[String], anything: bool) -> Self {
        let mut waited = Self { selectors: BTreeMap::new(), anything };
        for text in selectors {
            match text.parse::<Selector>() {
                Ok(selector) => waited.add(&selector.canonical(), &selector),
                Err(_) => waited.anything = true,
            }
        }
        waited
    }

    /// True when nobody waited.
    pub fn is_nothing(&self) -> bool {
        self.selectors.is_empty() && !self.anything
    }

    /// True when somebody waited for a resource with these labels.
    pub fn covers(&self, labels: &Labels) -> bool {
        self.anything || self.selectors.values().any(|selector| selector.matches(labels))
    }

    fn add(&mut self, key: &str, selector: &Selector) {
        if self.selectors.len() < WAITED_SELECTORS_MAX {
            self.selectors.insert(key.to_owned(), selector.clone());
        } else if !self.selectors.contains_key(key) {
            self.anything = true;
        }
    }
}

/// A place in line that a ticket restores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Whose it was.
    pub request: RequestId,
    /// The place, on this run's time.
    pub joined: Joined,
    /// When that one joined, wall time.
    pub joined_at: Timestamp,
}

/// Places in line from earlier runs of the gateway.
#[derive(Debug)]
pub struct Returning {
    key: Arc<TicketKey>,
    run: u64,
    /// Places that have been taken over in this run.
    spent: HashSet<RequestId>,
    waited: Waited,
    grace: Duration,
    until: Option<RunTime>,
}

impl Returning {
    /// In the life `run`, after one that ended while `waited` was waited for.
    pub fn new(key: Arc<TicketKey>, run: u64, waited: Waited, grace: Duration) -> Self {
        Self { key, run, spent: HashSet::new(), waited, grace, until: None }
    }

    /// Which life of the gateway this is.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// The rebuild is over: from now on those who waited are expected for a while.
    pub fn begin(&mut self, now: RunTime) {
        self.until = Some(now + self.grace).filter(|_| !self.waited.is_nothing() && !self.grace.is_zero());
        if self.until.is_none() {
            self.waited = Waited::default();
        }
    }

    /// What is kept for those who may come back; none when nobody is expected.
    pub fn expected(&self) -> Option<&Waited> {
        self.until.map(|_| &self.waited)
    }

    /// What was waited for at the end of the last run, until it is expected no more.
    pub fn waited(&self) -> &Waited {
        &self.waited
    }

    /// True when the time of those who are expected has just passed.
    pub fn stop_if_due(&mut self, now: RunTime) -> bool {
        let due = self.until.is_some_and(|until| now >= until);
        if due {
            self.until = None;
            self.waited = Waited::default();
        }
        due
    }

    /// The place that the ticket of `ask` restores. `ended` says of a request that it is known, and so is not one that
    /// waited. A ticket that does not verify or does not fit is ignored.
    pub fn claim(&mut self, ask: &Ask, now: Now, ended: impl Fn(&RequestId) -> bool) -> Option<Restored> {
        let stub = self.key.read(ask.ticket.as_ref()?)?;
        let fits = stub.run < self.run
            && stub.requester == ask.requester
            && stub.target == Fingerprint::of(&ask.target, ask.mode, None)
            && self.spent.len() < WAITERS_MAX
            && !ended(&stub.request);
        if !fits || !self.spent.insert(stub.request.clone()) {
            return None;
        }
        let joined = stub.joined.on_this_run(stub.joined_at, now);
        Some(Restored { request: stub.request, joined, joined_at: stub.joined_at })
    }

    /// The claim has come to nothing: the ticket is as good as before.
    pub fn unclaim(&mut self, former: &RequestId) {
        self.spent.remove(former);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(key: &str, value: &str) -> Labels {
        [(key.parse().unwrap(), value.parse().unwrap())].into()
    }

    #[test]
    fn what_was_waited_for_reads_back_and_covers_what_its_selectors_match() {
        let linux: Selector = "platform=linux".parse().unwrap();
        let waited = Waited::of([(linux.canonical().as_str(), &linux)].into_iter());
        let (selectors, more) = waited.written();
        let back = Waited::read(&selectors, more);
        assert_eq!(back, waited);
        assert!(back.covers(&labels("platform", "linux")) && !back.covers(&labels("platform", "android")));
        assert!(Waited::read(&["=".to_owned()], false).covers(&labels("a", "b")), "who knows what it was");
        assert!(Waited::default().is_nothing());
    }

    #[test]
    fn more_selectors_than_are_written_down_are_any() {
        let selectors: Vec<Selector> =
            (0..=WAITED_SELECTORS_MAX).map(|index| format!("slot={index}").parse().unwrap()).collect();
        let keys: Vec<String> = selectors.iter().map(Selector::canonical).collect();
        let groups = || keys.iter().map(String::as_str).zip(&selectors);
        assert!(!Waited::of(groups().skip(1)).covers(&labels("a", "b")));
        assert!(Waited::of(groups()).covers(&labels("a", "b")));
    }

    #[test]
    fn nothing_is_kept_before_the_rebuild_has_ended_nor_after_the_grace() {
        let key = || Arc::new(TicketKey::new(&[1; 32]));
        let linux: Selector = "platform=linux".parse().unwrap();
        let waited = Waited::of([("platform=linux", &linux)].into_iter());
        let grace = Duration::from_secs(5);
        let mut returning = Returning::new(key(), 2, waited, grace);
        assert!(returning.expected().is_none());
        returning.begin(RunTime::default());
        assert!(returning.expected().is_some());
        assert!(!returning.stop_if_due(RunTime(Duration::from_millis(4_999))));
        assert!(returning.stop_if_due(RunTime(grace)) && returning.expected().is_none());
        let mut nobody = Returning::new(key(), 2, Waited::default(), grace);
        nobody.begin(RunTime::default());
        assert!(nobody.expected().is_none());
    }
}
