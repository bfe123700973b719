//! Lease requests and what became of them, for as long as they may be asked about (SPEC §2 Retention).
//!
//! An open request is never dropped. A settled one is kept until its retention is over, counted from the end of its
//! lease if it got one; of those without a key only the latest 10 000, of those with a key the latest 64 of each
//! requester.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use super::resource::EndReason;
use crate::clock::RunTime;
use crate::limits::{SETTLED_KEYS_PER_REQUESTER_MAX, SETTLED_REQUESTS_MAX};
use crate::model::{Fingerprint, IdempotencyKey, Refusal, RequestId, Requester};

/// A lease request; `L` is what a grant looks like to whoever keeps the book.
#[derive(Debug, Clone)]
pub struct Request<L> {
    /// Who asked.
    pub requester: Requester,
    /// Under which key.
    pub key: Option<IdempotencyKey>,
    /// What the key stands for, where whoever keeps the book is to tell it again.
    pub fingerprint: Option<Fingerprint>,
    /// When it came in.
    pub created_at: Timestamp,
    /// Where it stands.
    pub state: RequestState<L>,
    /// When and why its lease ended, by the wall clock.
    pub ended: Option<(Timestamp, Option<EndReason>)>,
    /// True when its outcome is on disk.
    pub stored: bool,
    /// True when a row of it is on disk, be it of a former try.
    has_row: bool,
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
    /// Its owner did not want it any more.
    Cancelled,
}

/// The book of requests.
#[derive(Debug)]
pub struct Requests<L> {
    retention: Duration,
    known: HashMap<RequestId, Request<L>>,
    /// Requests whose retention runs.
    leaving: Queue,
    /// The same, by what bounds their number.
    crowds: HashMap<Crowd, Queue>,
    places: HashMap<RequestId, Place>,
    ends: u64,
}

/// Since when a retention runs, and how many had begun before it was heard of.
type Place = (RunTime, u64);

/// Requests in the order in which their retention began.
type Queue = BTreeMap<Place, RequestId>;

/// Those with a key of one requester, or all without.
type Crowd = Option<Requester>;

/// A request that the book has dropped; its key may come again as a new one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped<L> {
    /// Which.
    pub id: RequestId,
    /// Whose.
    pub requester: Requester,
    /// Its key.
    pub key: Option<IdempotencyKey>,
    /// True when it is on disk.
    pub stored: bool,
    /// The lease that it had got.
    pub lease: Option<L>,
}

impl<L> Requests<L> {
    /// An empty book.
    pub fn new(retention: Duration) -> Self {
        Self {
            retention,
            known: HashMap::new(),
            leaving: Queue::new(),
            crowds: HashMap::new(),
            places: HashMap::new(),
            ends: 0,
        }
    }

    /// Settled requests are remembered so long from now on.
    pub fn set_retention(&mut self, retention: Duration) {
        self.retention = retention;
    }

    /// Enters an open request; one that failed may come again.
    pub fn open(&mut self, id: RequestId, requester: Requester, key: Option<IdempotencyKey>, created_at: Timestamp) {
        self.stay(&id);
        let has_row = self.known.get(&id).is_some_and(|former| former.has_row);
        self.known.insert(
            id,
            Request {
                requester,
                key,
                fingerprint: None,
                created_at,
                state: RequestState::Open,
                ended: None,
                stored: false,
                has_row,
            },
        );
    }

    /// Says what the key of a request stands for.
    pub fn stands_for(&mut self, id: &RequestId, fingerprint: Fingerprint) {
        if let Some(request) = self.known.get_mut(id) {
            request.fingerprint = Some(fingerprint);
        }
    }

    /// The request is on disk too, and is to be forgotten there when it is dropped here.
    pub fn store(&mut self, id: &RequestId) {
        if let Some(request) = self.known.get_mut(id) {
            (request.stored, request.has_row) = (true, true);
        }
    }

    /// Forgets a request at once, as if it had never been asked.
    pub fn discard(&mut self, id: &RequestId) {
        self.stay(id);
        self.known.remove(id);
    }

    /// The request got `lease`. Its retention begins when that ends, anew if it was thought to have ended.
    pub fn grant(&mut self, id: &RequestId, lease: L) {
        self.stay(id);
        if let Some(request) = self.known.get_mut(id) {
            request.state = RequestState::Granted(lease);
            request.ended = None;
        }
    }

    /// The request got nothing. Unless its key is to stand for that, it is kept as one without.
    pub fn fail(&mut self, id: &RequestId, refusal: Refusal, keep_key: bool, now: RunTime) {
        self.close(id, RequestState::Failed(refusal), keep_key, now);
    }

    /// The request was cancelled; its key stands for that.
    pub fn cancel(&mut self, id: &RequestId, now: RunTime) {
        self.close(id, RequestState::Cancelled, true, now);
    }

    fn close(&mut self, id: &RequestId, state: RequestState<L>, keep_key: bool, now: RunTime) {
        if let Some(request) = self.known.get_mut(id) {
            request.state = state;
            if !keep_key {
                request.key = None;
            }
            self.leave(id, now);
        }
    }

    /// The lease of a granted request ended at `at`. Told again it changes nothing.
    pub fn end(&mut self, id: &RequestId, at: RunTime) {
        if matches!(self.known.get(id), Some(Request { state: RequestState::Granted(_), .. })) {
            self.leave(id, at);
        }
    }

    /// Says more about that end.
    pub fn say_end(&mut self, id: &RequestId, at: Timestamp, reason: Option<EndReason>) {
        if let Some(request) = self.known.get_mut(id) {
            request.ended = Some((at, reason));
        }
    }

    /// A request.
    pub fn get(&self, id: &RequestId) -> Option<&Request<L>> {
        self.known.get(id)
    }

    /// Since when the retention of a settled request runs; none while it is open or its lease is active.
    pub fn settled_since(&self, id: &RequestId) -> Option<RunTime> {
        self.places.get(id).map(|(since, _)| *since)
    }

    /// All requests, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&RequestId, &Request<L>)> {
        self.known.iter()
    }

    /// The open requests.
    pub fn open_ones(&self) -> impl Iterator<Item = (&RequestId, &Request<L>)> {
        self.known.iter().filter(|(_, request)| matches!(request.state, RequestState::Open))
    }

    /// Drops what has been kept long enough or is too much.
    pub fn prune(&mut self, now: RunTime) -> Vec<Dropped<L>> {
        let mut due = Vec::new();
        let old = |(since, _): &Place| *since + self.retention <= now;
        due.extend(self.leaving.iter().take_while(|(place, _)| old(place)).map(|(_, id)| id.clone()));
        for (crowd, queue) in &self.crowds {
            let most = if crowd.is_some() { SETTLED_KEYS_PER_REQUESTER_MAX } else { SETTLED_REQUESTS_MAX };
            due.extend(queue.values().take(queue.len().saturating_sub(most)).cloned());
        }
        due.iter().filter_map(|id| self.drop_request(id)).collect()
    }

    /// Its retention begins.
    fn leave(&mut self, id: &RequestId, since: RunTime) {
        let Some(request) = self.known.get(id).filter(|_| !self.places.contains_key(id)) else { return };
        self.ends += 1;
        let place = (since, self.ends);
        self.places.insert(id.clone(), place);
        self.leaving.insert(place, id.clone());
        self.crowds.entry(crowd(request)).or_default().insert(place, id.clone());
    }

    /// Its retention does not run any more.
    fn stay(&mut self, id: &RequestId) {
        let (Some(place), Some(request)) = (self.places.remove(id), self.known.get(id)) else { return };
        self.leaving.remove(&place);
        let crowd = crowd(request);
        if let Some(queue) = self.crowds.get_mut(&crowd) {
            queue.remove(&place);
            if queue.is_empty() {
                self.crowds.remove(&crowd);
            }
        }
    }

    fn drop_request(&mut self, id: &RequestId) -> Option<Dropped<L>> {
        self.stay(id);
        let request = self.known.remove(id)?;
        let Request { requester, key, has_row: stored, state, .. } = request;
        let lease = if let RequestState::Granted(lease) = state { Some(lease) } else { None };
        Some(Dropped { id: id.clone(), requester, key, stored, lease })
    }
}

fn crowd<L>(request: &Request<L>) -> Crowd {
    request.key.as_ref().map(|_| request.requester.clone())
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
        book.fail(&id, Refusal::internal("x"), false, at(1));
        book.open(id.clone(), "ci".parse().unwrap(), None, Timestamp::UNIX_EPOCH);
        assert!(book.prune(at(5_000)).is_empty());
        book.grant(&id, ());
        assert!(book.prune(at(9_000)).is_empty());
        book.end(&id, at(9_000));
        assert_eq!(book.prune(at(9_600)).len(), 1);
    }

    #[test]
    fn a_request_that_comes_again_is_forgotten_on_disk_too_though_its_new_try_is_not_there_yet() {
        let mut book = Requests::new(Duration::from_secs(600));
        let id = opened(&mut book, Some("k"));
        book.fail(&id, Refusal::internal("x"), false, at(1));
        book.store(&id);
        book.open(id.clone(), "ci".parse().unwrap(), None, Timestamp::UNIX_EPOCH);
        assert!(!book.get(&id).unwrap().stored, "nothing of its outcome is");
        book.fail(&id, Refusal::internal("x"), false, at(2));
        assert!(book.prune(at(602))[0].stored);
    }

    #[test]
    fn settled_requests_are_bounded_with_and_without_a_key() {
        let mut book = Requests::new(Duration::from_secs(600));
        let open = opened(&mut book, None);
        let first = opened(&mut book, None);
        book.fail(&first, Refusal::internal("x"), false, at(1));
        for _ in 0..SETTLED_REQUESTS_MAX {
            let id = opened(&mut book, None);
            book.fail(&id, Refusal::internal("x"), false, at(1));
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
