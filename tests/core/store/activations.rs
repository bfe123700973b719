//! A resource's actor that has died reaches the disk no more; the next one does.

use berth::model::Fence;
use berth::store::{CommitError, OpenError, StoredResource};
use tokio::sync::oneshot;

use super::{Database, Open, answer, granted, released, within_bound};
use crate::sample;

impl Open {
    fn queue_close(&self, resource: &str, activation: u64) -> oneshot::Receiver<Result<StoredResource, OpenError>> {
        let (done, rows) = oneshot::channel();
        self.store.close(sample::text(resource), activation, move |result| drop(done.send(result)));
        rows
    }
}

#[tokio::test]
async fn closing_an_activation_refuses_its_later_batches_and_not_those_of_the_next() {
    let database = Database::new();
    let open = database.open();
    let (first, second, third) = (1, 2, 3);
    let lease = sample::lease("mine", "board", 7);
    // All of this is one group: what was queued before the end counts, what comes after it does not.
    let earlier = open.queue_of(second, vec![granted(&lease)]);
    let rows = open.queue_close("board", second);
    let later = open.queue_of(second, vec![released(&lease)]);
    let older = open.queue_of(first, vec![released(&lease)]);
    let elsewhere = open.queue_of(first, vec![granted(&sample::lease("other", "phone", 1))]);
    assert_eq!(answer(earlier).await, Ok(()));
    assert_eq!(answer(later).await, Err(CommitError::Closed));
    assert_eq!(answer(older).await, Err(CommitError::Closed));
    assert_eq!(answer(elsewhere).await, Ok(()), "another resource goes on");
    let rows = within_bound(rows).await.unwrap().unwrap();
    assert_eq!(rows.fence, Fence(7));
    assert_eq!(rows.leases, [(lease.clone(), sample::wall(60_000))]);

    let still = open.queue_of(second, vec![released(&lease)]);
    assert_eq!(answer(still).await, Err(CommitError::Closed));
    let next = open.queue_of(third, vec![released(&lease)]);
    assert_eq!(answer(next).await, Ok(()));
}

#[tokio::test]
async fn a_resource_that_was_never_leased_comes_back_empty() {
    let database = Database::new();
    let open = database.open();
    let rows = within_bound(open.queue_close("board", 1)).await.unwrap().unwrap();
    assert_eq!(rows, StoredResource { id: sample::text("board"), fence: Fence(0), idle_since: None, leases: vec![] });
}
