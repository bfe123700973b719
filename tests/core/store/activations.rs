//! A resource's actor that has died reaches the disk no more; the next one does.

use std::time::Duration;

use berth::admission::resource::{Change, Reservation};
use berth::model::{DeviceState, Event, EventKind, Fence, Mode};
use berth::store::{CommitError, OpenError, StoredResource};
use tokio::sync::oneshot;

use super::{Database, Open, answer, bare, granted, released, unattended, waiter, within_bound};
use crate::sample;

impl Open {
    fn queue_close(&self, resource: &str, activation: u64) -> oneshot::Receiver<Result<StoredResource, OpenError>> {
        let (done, rows) = oneshot::channel();
        self.store.close(sample::text(resource), activation, None, move |result| {
            drop(done.send(result.map(|(rows, _)| rows)));
        });
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
async fn the_desks_own_batches_belong_to_no_activation_and_are_always_taken() {
    let database = Database::new();
    let open = database.open();
    let rows = open.queue_close("board", 9);
    let desk = open.queue_batch(None, 0, vec![], vec![Event::new(EventKind::NodeStopping)], sample::at(0));
    within_bound(rows).await.unwrap().unwrap();
    assert_eq!(answer(desk).await, Ok(()));
}

#[tokio::test]
async fn a_resource_is_read_back_with_those_who_wait_and_what_is_kept_for_them() {
    let database = Database::new();
    let open = database.open();
    let waits = unattended(waiter(1, "ci", "board"));
    let reservation = Reservation {
        holder: sample::text("ops"),
        mode: Mode::Shared,
        width: Duration::from_secs(10),
        until: sample::run(10_000),
    };
    let changes = vec![
        Change::Joined { waiter: waits.clone(), position: 1 },
        Change::Reserved(reservation),
        Change::Drained { drained: true, from: DeviceState::Available, to: DeviceState::Drained, at: sample::wall(0) },
    ];
    open.commit_at(0, Some("board"), changes).await.unwrap();
    let rows = within_bound(open.queue_close("board", 1)).await.unwrap().unwrap();
    assert!(rows.drained);
    assert_eq!(rows.reserved, [(sample::text("ops"), Mode::Shared, Duration::from_secs(10))]);
    assert_eq!(rows.waiters.iter().map(|waiter| &waiter.holder).collect::<Vec<_>>(), [&waits.proposal.holder]);
    assert_eq!(rows, database.reopened(open).await.loaded.resources[0]);
}

#[tokio::test]
async fn a_resource_of_which_nothing_is_stored_comes_back_empty() {
    let database = Database::new();
    let open = database.open();
    let rows = within_bound(open.queue_close("board", 1)).await.unwrap().unwrap();
    assert_eq!(rows, bare("board"));
}
