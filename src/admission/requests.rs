//! Lease requests and what became of them, for as long as they may be asked about (SPEC §2 Retention).
//!
//! An open request is never dropped. A settled one is kept until its retention is over, counted from the end of its
//! lease if it got one; of those without a key only the latest 10 000, of those with a key the latest 64 of each
//! requester.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::RunTime;
use crate::limits::{SETTLED_KEYS_PER_REQUESTER_MAX, SETTLED_REQUESTS_MAX};
use crate::model::{IdempotencyKey, Refusal, RequestId, Requester};

/// A lease request; `L` is what a grant looks like to whoever keeps the book.
#[derive(Debug, Clone)]
pub struct Request<L> {
    /// Who asked.
    pub requester: Requester,
    /// Under which key.
    pub key: Option<IdempotencyKey>,
    /// When it came in.
    pub created_at: Timestamp,
    /// Where it stands.
    pub state: RequestState<L>,
}

/// Where a request stands.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestState<L> {
    /// Not settled.
    Open,
    /// It got this lease, as it was at the grant.
    Granted(L),
    /// It got none.
    Failed(Refusal),
}

/// The book of requests.
#[derive(Debug)]
pub struct Requests<L> {
    retention: Duration,
    known: HashMap<RequestId, Request<L>>,
    /// Requests whose retention runs, in the order in which it began.
    leaving: VecDeque<(RunTime, RequestId)>,
    without_key: VecDeque<RequestId>,
    with_key: HashMap<Requester, VecDeque<RequestId>>,
}

/// A request that the book has dropped; its key may come again as a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub id: RequestId,
    /// Whose.
    pub requester: Requester,
    /// Its key.
    pub key: Option<IdempotencyKey>,
    /// True when it had got a lease.
    pub granted: bool,
}

impl<L> Requests<L> {
    /// An empty book.
    pub fn new(retention: Duration) -> Self {
        Self {
            retention,
            known: HashMap::new(),
            leaving: VecDeque::new(),
            without_key: VecDeque::new(),
            with_key: HashMap::new(),
        }
    }

    /// Enters an open request.
    ///
    /// One that is known already, because it failed or its lease ended, begins anew.
    pub fn open(&mut self, id: RequestId, requester: Requester, key: Option<IdempotencyKey>, created_at: Timestamp) {
        if self.known.contains_key(&id) {
            self.leaving.retain(|(_, other)| *other != id);
            self.forget_crowd(&id);
        }
        self.known.insert(id, Request { requester, key, created_at, state: RequestState::Open });
    }

    /// The request got `lease`. Its retention begins when that ends.
    pub fn grant(&mut self, id: &RequestId, lease: L) {
        if let Some(request) = self.known.get_mut(id) {
            request.state = RequestState::Granted(lease);
        }
    }

    /// The request got nothing. Its key is free, so it is kept as one without.
    pub fn fail(&mut self, id: &RequestId, refusal: Refusal, now: RunTime) {
        if let Some(request) = self.known.get_mut(id) {
            request.state = RequestState::Failed(refusal);
            request.key = None;
            self.leave(id, now);
        }
    }

    /// The lease of a granted request ended at `at`.
    pub fn end(&mut self, id: &RequestId, at: RunTime) {
        if matches!(self.known.get(id), Some(Request { state: RequestState::Granted(_), .. })) {
            self.leave(id, at);
        }
    }

    /// A request.
    pub fn get(&self, id: &RequestId) -> Option<&Request<L>> {
        self.known.get(id)
    }

    /// The open requests.
    pub fn open_ones(&self) -> impl Iterator<Item = (&RequestId, &Request<L>)> {
        self.known.iter().filter(|(_, request)| matches!(request.state, RequestState::Open))
    }

    /// Drops what has been kept long enough or is too much.
    pub fn prune(&mut self, now: RunTime) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        while let Some((since, _)) = self.leaving.front()
            && *since + self.retention <= now
        {
            let (_, id) = self.leaving.pop_front().expect("the front is there");
            dropped.extend(self.drop_request(&id));
        }
        while self.without_key.len() > SETTLED_REQUESTS_MAX {
            let id = self.without_key.pop_front().expect("more than none");
            dropped.extend(self.drop_request(&id));
        }
        let crowded = |(requester, kept): (&Requester, &VecDeque<_>)| {
            (kept.len() > SETTLED_KEYS_PER_REQUESTER_MAX).then(|| requester.clone())
        };
        for requester in self.with_key.iter().filter_map(crowded).collect::<Vec<_>>() {
            while let Some(kept) = self.with_key.get_mut(&requester)
                && kept.len() > SETTLED_KEYS_PER_REQUESTER_MAX
            {
                let id = kept.pop_front().expect("more than none");
                dropped.extend(self.drop_request(&id));
            }
        }
        dropped
    }

    fn leave(&mut self, id: &RequestId, since: RunTime) {
        let Some(request) = self.known.get(id) else { return };
        match &request.key {
            Some(_) => self.with_key.entry(request.requester.clone()).or_default().push_back(id.clone()),
            None => self.without_key.push_back(id.clone()),
        }
        self.leaving.push_back((since, id.clone()));
    }

    fn drop_request(&mut self, id: &RequestId) -> Option<Dropped> {
        self.forget_crowd(id);
        let request = self.known.remove(id)?;
        let granted = matches!(request.state, RequestState::Granted(_));
        Some(Dropped { id: id.clone(), requester: request.requester, key: request.key, granted })
    }

    /// Takes a request out of the crowd that is counted against a maximum.
    fn forget_crowd(&mut self, id: &RequestId) {
        let Some(request) = self.known.get(id) else { return };
        match &request.key {
            None => remove_from(&mut self.without_key, id),
            Some(_) => {
                if let Some(kept) = self.with_key.get_mut(&request.requester) {
                    remove_from(kept, id);
                    if kept.is_empty() {
                        self.with_key.remove(&request.requester);
                    }
                }
            }
        }
    }
}

/// Removes `id`; it is nearly always the first.
fn remove_from(crowd: &mut VecDeque<RequestId>, id: &RequestId) {
    if crowd.front() == Some(id) {
        crowd.pop_front();
    } else {
        crowd.retain(|other| other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> RunTime {
        RunTime(Duration::from_secs(seconds))
    }

    fn opened(book: &mut Requests<()>, key: Option<&str>) -> RequestId {
        let id = RequestId::generate();
        book.open(id.clone(), "ci".parse().unwrap(), key.map(|key| key.parse().unwrap()), Timestamp::UNIX_EPOCH);
        id
    }

    #[test]
    fn a_granted_request_is_kept_until_its_retention_after_the_lease_ended() {
        let mut book = Requests::new(Duration::from_secs(600));
        let id = opened(&mut book, Some("k"));
        book.grant(&id, ());
        assert!(book.prune(at(10_000)).is_empty(), "the lease is active");
        book.end(&id, at(10_000));
        assert!(book.prune(at(10_599)).is_empty());
        let dropped = book.prune(at(10_600));
        assert_eq!(dropped.len(), 1);
        assert_eq!(dropped[0].key, Some("k".parse().unwrap()));
        assert!(book.get(&id).is_none());
    }

    #[test]
    fn a_request_that_failed_and_is_tried_again_is_not_dropped_while_it_is_open_or_granted() {
        let mut book = Requests::new(Duration::from_secs(600));
        let id = opened(&mut book, Some("k"));
        book.fail(&id, Refusal::internal("x"), at(1));
        book.open(id.clone(), "ci".parse().unwrap(), None, Timestamp::UNIX_EPOCH);
        assert!(book.prune(at(5_000)).is_empty());
        book.grant(&id, ());
        assert!(book.prune(at(9_000)).is_empty());
        book.end(&id, at(9_000));
        assert_eq!(book.prune(at(9_600)).len(), 1);
    }

    #[test]
    fn settled_requests_are_bounded_with_and_without_a_key() {
        let mut book = Requests::new(Duration::from_secs(600));
        let open = opened(&mut book, None);
        let first = opened(&mut book, None);
        book.fail(&first, Refusal::internal("x"), at(1));
        for _ in 0..SETTLED_REQUESTS_MAX {
            let id = opened(&mut book, None);
            book.fail(&id, Refusal::internal("x"), at(1));
        }
        assert_eq!(book.prune(at(1)).iter().map(|dropped| &dropped.id).collect::<Vec<_>>(), [&first]);
        let keyed: Vec<_> = (0..=SETTLED_KEYS_PER_REQUESTER_MAX)
            .map(|index| {
                let id = opened(&mut book, Some(&format!("k{index}")));
                book.grant(&id, ());
                book.end(&id, at(2));
                id
            })
            .collect();
        assert_eq!(book.prune(at(2)).iter().map(|dropped| &dropped.id).collect::<Vec<_>>(), [&keyed[0]]);
        assert!(book.get(&open).is_some(), "an open request is never dropped");
    }
}
