//! The life of a lease request on disk: open while it waits, then granted, failed or cancelled, and forgotten.

use berth::admission::Waiter;
use berth::admission::resource::{Change, EndReason, Place, Rejection};
use berth::model::{
    Code, Fence, IdempotencyKey, LeaseRecord, Proposal, Refusal, RequestId, Selector, Target, WaitPolicy,
};
use berth::store::{CommitError, StoredOutcome, StoredRequest};

use super::{Database, Open, granted, released, waiter};
use crate::sample;

/// Somebody who waits under a key.
fn keyed(number: usize) -> Waiter {
    let plain = waiter(number, "ci/job-17", "board");
    Waiter { proposal: Proposal { key: Some(key(number)), ..plain.proposal }, ..plain }
}

fn key(number: usize) -> IdempotencyKey {
    sample::text(&format!("k-{number}"))
}

fn requested(waiter: &Waiter) -> Change {
    Change::Requested {
        proposal: waiter.proposal.clone(),
        wait: WaitPolicy::Wait { timeout: None },
        place: Some(Place::of(waiter)),
        returns: waiter.returns.clone(),
    }
}

fn refusal(reason: Rejection) -> Refusal {
    Refusal::new(Code::QueueTimeout, reason.as_str()).with("requestId", "req").retry_after(super::BOUND)
}

/// A rejection five seconds after the beginning.
fn rejected(waiter: &Waiter, reason: Rejection) -> Change {
    let (proposal, at) = (waiter.proposal.clone(), sample::wall(5_000));
    Change::Rejected { proposal, reason, refusal: refusal(reason), waited: true, at }
}

fn lease_of(waiter: &Waiter, fence: u64) -> LeaseRecord {
    waiter.proposal.granted(&sample::text("board"), Fence(fence), sample::wall(3_000))
}

fn open_row(waiter: &Waiter) -> StoredRequest {
    StoredRequest {
        id: waiter.proposal.request.clone(),
        requester: waiter.proposal.holder.clone(),
        key: waiter.proposal.key.clone(),
        fingerprint: waiter.proposal.fingerprint,
        created_at: sample::wall(1_000),
        outcome: StoredOutcome::Open,
        place: Some(Place::of(waiter)),
    }
}

/// An open store in which these have begun to wait, a second after the beginning.
async fn waiting(database: &Database, waiters: &[&Waiter]) -> Open {
    let open = database.open();
    open.commit_at(1_000, None, waiters.iter().map(|waiter| requested(waiter)).collect()).await.unwrap();
    open
}

#[tokio::test]
async fn a_request_that_waits_is_found_open_with_its_place_and_what_it_was_asked_for() {
    let database = Database::new();
    let by_name = keyed(1);
    let selector: Selector = sample::text("platform=android,os>=14");
    let pool = waiter(2, "gw:gateway:ops", "board");
    let pool = Waiter { proposal: Proposal { target: Target::Select(selector), ..pool.proposal }, ..pool };
    let open = waiting(&database, &[&by_name, &pool]).await;
    let requests = database.reopened(open).await.loaded.requests;
    assert_eq!(requests, [open_row(&by_name), open_row(&pool)]);
}

#[tokio::test]
async fn a_request_that_does_not_wait_is_not_stored() {
    let database = Database::new();
    let open = database.open();
    let once = keyed(1);
    let passing =
        Change::Requested { proposal: once.proposal.clone(), wait: WaitPolicy::NoWait, place: None, returns: None };
    let refused = Change::Rejected {
        proposal: once.proposal.clone(),
        reason: Rejection::NoWait,
        refusal: refusal(Rejection::NoWait),
        waited: false,
        at: sample::wall(0),
    };
    open.commit_at(0, Some("board"), vec![passing, refused]).await.unwrap();
    assert_eq!(database.reopened(open).await.loaded.requests, []);
}

#[tokio::test]
async fn a_request_that_waited_and_is_granted_is_one_request_since_it_came_in() {
    let database = Database::new();
    let waits = keyed(1);
    let open = waiting(&database, &[&waits]).await;
    let lease = lease_of(&waits, 1);
    open.commit(vec![granted(&lease)]).await.unwrap();
    let open = database.reopened(open).await;
    let expires_at = sample::wall(60_000);
    let row = |ended| StoredRequest {
        outcome: StoredOutcome::Granted { lease: lease.clone(), expires_at, ended },
        place: None,
        ..open_row(&waits)
    };
    assert_eq!(open.loaded.requests, [row(None)]);

    let ended = Change::Ended { lease: lease.clone(), reason: EndReason::Expired, at: sample::wall(9_000) };
    open.commit(vec![ended]).await.unwrap();
    let open = database.reopened(open).await;
    assert_eq!(open.loaded.requests, [row(Some((sample::wall(9_000), Some(EndReason::Expired))))]);
}

#[tokio::test]
async fn a_request_that_never_waited_came_in_when_it_was_granted() {
    let database = Database::new();
    let open = database.open();
    let lease = lease_of(&keyed(1), 1);
    open.commit(vec![granted(&lease)]).await.unwrap();
    assert_eq!(database.reopened(open).await.loaded.requests[0].created_at, sample::wall(3_000));
}

/// What is kept of it: its key where the key goes on standing for the outcome, its place where somebody may come back
/// for it.
#[tokio::test]
async fn a_request_that_got_nothing_is_found_with_why_and_with_what_is_still_good_for_something() {
    let cases = [
        (Rejection::Timeout, true, false),
        (Rejection::Cancelled, true, false),
        (Rejection::Abandoned, false, false),
        (Rejection::DaemonRestarted, false, true),
        (Rejection::WorkerFailed, false, false),
    ];
    let database = Database::new();
    let waiters: Vec<Waiter> = (0..cases.len()).map(keyed).collect();
    let open = waiting(&database, &waiters.iter().collect::<Vec<_>>()).await;
    for (waiter, (reason, ..)) in waiters.iter().zip(cases) {
        open.commit_at(5_000, None, vec![rejected(waiter, reason)]).await.unwrap();
    }
    let requests = database.reopened(open).await.loaded.requests;
    for ((found, waiter), (reason, keeps_key, keeps_place)) in requests.into_iter().zip(&waiters).zip(cases) {
        let was = open_row(waiter);
        let expected = StoredRequest {
            key: was.key.filter(|_| keeps_key),
            place: was.place.filter(|_| keeps_place),
            outcome: StoredOutcome::Failed {
                refusal: refusal(reason),
                cancelled: reason == Rejection::Cancelled,
                at: sample::wall(5_000),
            },
            ..was
        };
        assert_eq!(found, expected, "{reason:?}");
    }
}

#[tokio::test]
async fn only_a_request_that_waits_can_be_rejected() {
    let database = Database::new();
    let (settled, active, unknown) = (keyed(1), keyed(2), keyed(3));
    let open = waiting(&database, &[&settled, &active]).await;
    open.commit_at(5_000, None, vec![rejected(&settled, Rejection::Timeout)]).await.unwrap();
    open.commit(vec![granted(&lease_of(&active, 1))]).await.unwrap();
    for waiter in [&settled, &active, &unknown] {
        let stopped = open.commit_at(6_000, None, vec![rejected(waiter, Rejection::Cancelled)]).await;
        assert!(matches!(&stopped, Err(CommitError::Constraint(why)) if why.contains("not as it was")), "{stopped:?}");
    }
    let requests = database.reopened(open).await.loaded.requests;
    assert!(matches!(requests[0].outcome, StoredOutcome::Failed { cancelled: false, .. }));
    assert!(matches!(requests[1].outcome, StoredOutcome::Granted { .. }));
    assert_eq!(requests.len(), 2);
}

#[tokio::test]
async fn whoever_comes_back_with_a_ticket_spends_it_waiting_or_not() {
    let database = Database::new();
    let (first, second) = (keyed(1), keyed(2));
    let open = waiting(&database, &[&first, &second]).await;
    let restart = [&first, &second].map(|waiter| rejected(waiter, Rejection::DaemonRestarted));
    open.commit_at(5_000, None, restart.to_vec()).await.unwrap();

    let again = Waiter { returns: Some(first.proposal.request.clone()), ..keyed(3) };
    let at_once = Change::Requested {
        proposal: keyed(4).proposal,
        wait: WaitPolicy::Wait { timeout: None },
        place: None,
        returns: Some(second.proposal.request.clone()),
    };
    open.commit_at(6_000, None, vec![requested(&again), at_once]).await.unwrap();
    let requests = database.reopened(open).await.loaded.requests;
    let places: Vec<_> = requests.iter().map(|request| (&request.id, request.place.is_some())).collect();
    let request = |waiter: &Waiter| waiter.proposal.request.clone();
    assert_eq!(places, [(&request(&first), false), (&request(&second), false), (&request(&again), true)]);
}

#[tokio::test]
async fn a_ticket_of_a_request_that_has_been_forgotten_spends_nothing() {
    let database = Database::new();
    let again = Waiter { returns: Some(sample::request(9)), ..keyed(1) };
    let open = waiting(&database, &[&again]).await;
    assert_eq!(database.reopened(open).await.loaded.requests, [open_row(&again)]);
}

/// A gateway's next attempt, after the one before it came to nothing.
#[tokio::test]
async fn a_request_that_comes_again_is_one_request_with_its_later_outcome() {
    let database = Database::new();
    let (failed, over) = (keyed(1), keyed(2));
    let open = waiting(&database, &[&failed, &over]).await;
    open.commit_at(5_000, None, vec![rejected(&failed, Rejection::Abandoned)]).await.unwrap();
    let lease = lease_of(&over, 1);
    open.commit(vec![granted(&lease), released(&lease)]).await.unwrap();

    open.commit_at(8_000, None, vec![requested(&failed), requested(&over)]).await.unwrap();
    let open = database.reopened(open).await;
    let later = |waiter: &Waiter| StoredRequest { created_at: sample::wall(8_000), ..open_row(waiter) };
    assert_eq!(open.loaded.requests, [later(&failed), later(&over)]);

    let second = lease_of(&failed, 2);
    open.commit(vec![granted(&second)]).await.unwrap();
    let requests = database.reopened(open).await.loaded.requests;
    assert_eq!((&requests[0].key, requests[0].created_at), (&Some(key(1)), sample::wall(8_000)));
}

#[tokio::test]
async fn a_request_that_waits_or_whose_lease_is_active_cannot_begin_to_wait_again() {
    let database = Database::new();
    let (waits, holds) = (keyed(1), keyed(2));
    let open = waiting(&database, &[&waits, &holds]).await;
    open.commit(vec![granted(&lease_of(&holds, 1))]).await.unwrap();
    for waiter in [&waits, &holds] {
        let stopped = open.commit_at(6_000, None, vec![requested(waiter)]).await;
        assert!(matches!(stopped, Err(CommitError::Constraint(_))), "{stopped:?}");
    }
}

#[tokio::test]
async fn a_settled_request_is_forgotten_on_disk_but_never_one_that_waits_or_whose_lease_is_active() {
    let database = Database::new();
    let waiters @ [over, failed, cancelled, active, _waits] = &[1, 2, 3, 4, 5].map(keyed);
    let open = waiting(&database, &waiters.each_ref()).await;
    open.commit(vec![granted(&lease_of(over, 1)), released(&lease_of(over, 1))]).await.unwrap();
    open.commit_at(5_000, None, vec![rejected(failed, Rejection::Timeout)]).await.unwrap();
    open.commit_at(5_000, None, vec![rejected(cancelled, Rejection::Cancelled)]).await.unwrap();
    open.commit(vec![granted(&lease_of(active, 2))]).await.unwrap();
    let all: Vec<RequestId> = waiters.iter().map(|waiter| waiter.proposal.request.clone()).collect();
    open.store.forget(all.clone());
    let requests = database.reopened(open).await.loaded.requests;
    assert_eq!(requests.iter().map(|request| &request.id).collect::<Vec<_>>(), [&all[3], &all[4]]);
}

/// A gateway's next attempt, after the lease of the one before was released as nobody's.
#[tokio::test]
async fn a_request_that_is_granted_again_after_its_lease_ended_is_one_request_with_the_later_lease() {
    let database = Database::new();
    let open = database.open();
    let first = sample::lease("first", "board", 1);
    let second = LeaseRecord { request_id: first.request_id.clone(), ..sample::lease("second", "board", 2) };
    open.commit(vec![granted(&first), released(&first)]).await.unwrap();
    open.commit(vec![granted(&second)]).await.unwrap();
    let requests = database.reopened(open).await.loaded.requests;
    let outcome = StoredOutcome::Granted { lease: second, expires_at: sample::wall(60_000), ended: None };
    assert_eq!(requests.into_iter().map(|request| request.outcome).collect::<Vec<_>>(), [outcome]);
}
