//! Many batches, one flush.

use berth::limits::{STORE_GROUP_MAX, STORE_QUEUE_MAX};
use berth::store::CommitError;

use super::{Database, answer, granted, leases, released};
use crate::sample;

#[tokio::test]
async fn a_thousand_callers_at_once_share_a_few_flushes() {
    let database = Database::new();
    let open = database.open();
    let before = database.groups();
    let lease = |number: usize| sample::lease(&format!("l{number}"), &format!("board-{number}"), 1);
    let answers: Vec<_> = (0..1_000).map(|number| open.queue(vec![granted(&lease(number))])).collect();
    for waiting in answers {
        answer(waiting).await.unwrap();
    }
    let groups = database.groups() - before;
    assert!((1..=10).contains(&groups), "{groups} groups for 1000 batches");
    open.close().await;
    assert_eq!(leases(&database.open().loaded).len(), 1_000);
}

#[tokio::test]
async fn a_group_has_an_end_so_that_the_first_caller_need_not_wait_for_the_last() {
    let database = Database::new();
    let open = database.open();
    let before = database.groups();
    let count = 2 * STORE_GROUP_MAX;
    let lease = |number: usize| sample::lease(&format!("l{number}"), &format!("board-{number}"), 1);
    let answers: Vec<_> = (0..count).map(|number| open.queue(vec![granted(&lease(number))])).collect();
    for waiting in answers {
        answer(waiting).await.unwrap();
    }
    assert!(database.groups() - before >= 2);
}

#[tokio::test]
async fn batches_of_one_resource_keep_their_order_within_a_group() {
    let database = Database::new();
    let open = database.open();
    let lease = |number: u64| sample::lease(&format!("l{number}"), "board", number);
    let answers: Vec<_> = (1..=50)
        .flat_map(|number| [open.queue(vec![granted(&lease(number))]), open.queue(vec![released(&lease(number))])])
        .collect();
    for waiting in answers {
        // Each grant finds the lease before it released; in any other order a constraint would fire. The release
        // names the fence, not the request, so it need not be the same record.
        answer(waiting).await.unwrap();
    }
}

#[tokio::test]
async fn a_batch_too_many_is_refused_at_once_and_those_before_it_are_committed() {
    let database = Database::new();
    let open = database.open();
    let lease = sample::lease("mine", "board", 1);
    let first = open.queue(vec![granted(&lease)]);
    // A release of a lease that is not there costs little: a constraint stops it.
    let gone = sample::lease("gone", "board", 1);
    let others: Vec<_> = (1..STORE_QUEUE_MAX).map(|_| open.queue(vec![released(&gone)])).collect();
    let mut too_many = open.queue(vec![released(&lease)]);
    assert_eq!(too_many.try_recv(), Ok(Err(CommitError::Full)));
    answer(first).await.unwrap();
    for waiting in others {
        assert!(matches!(answer(waiting).await, Err(CommitError::Constraint(_))));
    }
    open.close().await;
    assert_eq!(leases(&database.open().loaded), ["mine"]);
}
