//! Peers that were not let in, told once a minute: at most one event for each of them and each reason in 60 s, with how
//! many there were. Pure.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::clock::RunTime;
use crate::model::{Event, EventKind, NodeName};

/// One event for all that came within this time.
const QUIET: Duration = Duration::from_secs(60);
/// Peers that are told apart; those beyond are counted together for each reason.
const PEERS_MAX: usize = 1_024;

/// A peer that was not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Which worker it is, or says it is, where that is known.
    pub worker: Option<NodeName>,
    /// True when a certificate of the lab says so.
    pub proven: bool,
    /// Where it came from.
    pub address: SocketAddr,
    /// Why, one stable word.
    pub reason: &'static str,
}

impl Rejection {
    /// A worker whose certificate holds.
    pub fn of_worker(worker: NodeName, address: SocketAddr, reason: &'static str) -> Self {
        Self { worker: Some(worker), proven: true, address, reason }
    }

    /// A machine that says which worker it wants to be, if it has come so far.
    pub fn of_stranger(worker: Option<NodeName>, address: SocketAddr, reason: &'static str) -> Self {
        Self { worker, proven: false, address, reason }
    }
}

/// What is told: the last of several, and how many they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The last.
    pub last: Rejection,
    /// How many since this was last told.
    pub count: u64,
}

impl Rejected {
    /// The event.
    pub fn event(&self) -> Event {
        let mut event = Event::new(EventKind::WorkerRejected);
        if let Some(worker) = &self.last.worker {
            event = event.with("worker", worker.as_str());
        }
        event.with("address", self.last.address.to_string()).with("reason", self.last.reason).with("count", self.count)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Worker(NodeName),
    Machine(IpAddr),
    Others,
}

#[derive(Debug)]
struct Seen {
    /// The next may be told then.
    until: RunTime,
    last: Rejection,
    untold: u64,
}

/// Who was sent away in the last minute.
#[derive(Debug, Default)]
pub struct Rejections {
    seen: HashMap<(Who, &'static str), Seen>,
}

impl Rejections {
    /// Takes note of one. What is to be told of it now, if it is the first in a minute.
    pub fn note(&mut self, rejection: Rejection, now: RunTime) -> Option<Rejected> {
        let who = match &rejection.worker {
            Some(worker) if rejection.proven => Who::Worker(worker.clone()),
            // What a stranger calls itself would tell it apart as often as it likes; its port too.
            _ => Who::Machine(rejection.address.ip()),
        };
        let known = self.seen.contains_key(&(who.clone(), rejection.reason));
        let who = if known || self.seen.len() < PEERS_MAX { who } else { Who::Others };
        let seen = self.seen.entry((who, rejection.reason));
        let seen = seen.or_insert_with(|| Seen { until: now, last: rejection.clone(), untold: 0 });
        seen.last = rejection;
        seen.untold += 1;
        told(seen, now)
    }

    /// What has not been told and can be now; forgets who has not come for a minute.
    pub fn due(&mut self, now: RunTime) -> Vec<Rejected> {
        self.seen.retain(|_, seen| seen.untold > 0 || now < seen.until);
        self.seen.values_mut().filter(|seen| seen.untold > 0).filter_map(|seen| told(seen, now)).collect()
    }
}

fn told(seen: &mut Seen, now: RunTime) -> Option<Rejected> {
    if now < seen.until {
        return None;
    }
    seen.until = now + QUIET;
    Some(Rejected { last: seen.last.clone(), count: std::mem::take(&mut seen.untold) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> RunTime {
        RunTime(Duration::from_secs(seconds))
    }

    fn worker(name: &str, port: u16, reason: &'static str) -> Rejection {
        Rejection::of_worker(name.parse().unwrap(), ([10, 0, 0, 1], port).into(), reason)
    }

    #[test]
    fn one_that_keeps_coming_is_told_at_once_and_then_once_a_minute_with_a_count() {
        let mut rejections = Rejections::default();
        let first = rejections.note(worker("rack-1", 1, "revoked-key"), at(0)).unwrap();
        assert_eq!(first.count, 1);
        for second in 1..60 {
            assert_eq!(rejections.note(worker("rack-1", 2, "revoked-key"), at(second)), None);
            assert_eq!(rejections.due(at(second)), []);
        }
        let [again] = &rejections.due(at(60))[..] else { panic!("one") };
        assert_eq!((again.count, again.last.address.port()), (59, 2));
        assert_eq!(rejections.due(at(119)), []);
        assert_eq!(rejections.note(worker("rack-1", 3, "revoked-key"), at(121)).unwrap().count, 1);
    }

    #[test]
    fn peers_and_reasons_are_told_apart_and_what_a_stranger_says_of_itself_is_not() {
        let mut rejections = Rejections::default();
        assert!(rejections.note(worker("rack-1", 1, "revoked-key"), at(0)).is_some());
        assert!(rejections.note(worker("rack-2", 1, "revoked-key"), at(0)).is_some());
        assert!(rejections.note(worker("rack-1", 1, "another-key"), at(0)).is_some());
        let stranger = |name: &str, port| {
            Rejection::of_stranger(Some(name.parse().unwrap()), ([10, 0, 0, 9], port).into(), "wrong-secret")
        };
        assert!(rejections.note(stranger("a", 1), at(0)).is_some());
        assert!(rejections.note(stranger("b", 2), at(0)).is_none());
    }

    #[test]
    fn however_many_come_the_table_is_bounded_and_forgets() {
        let mut rejections = Rejections::default();
        let from =
            |number: u32| Rejection::of_stranger(None, (std::net::Ipv4Addr::from(number), 1).into(), "no-certificate");
        let told = (0..10_000).filter_map(|number| rejections.note(from(number), at(0))).count();
        assert_eq!(told, PEERS_MAX + 1, "those beyond are told together");
        assert_eq!(rejections.seen.len(), PEERS_MAX + 1);
        let [rest] = &rejections.due(at(60))[..] else { panic!("one") };
        assert_eq!(rest.count, 10_000 - PEERS_MAX as u64 - 1);
        rejections.due(at(120));
        assert_eq!(rejections.seen.len(), 0);
    }

    #[test]
    fn the_event_names_what_is_known() {
        let event = Rejected { last: worker("rack-1", 7, "revoked-key"), count: 3 }.event();
        let payload = serde_json::Value::from(event.payload);
        let expected = serde_json::json!({
            "worker": "rack-1", "address": "10.0.0.1:7", "reason": "revoked-key", "count": 3
        });
        assert_eq!(payload, expected);
    }
}
