//! What of a waiting room outlives the node: unattended waiters with their places, and what is kept for those who have
//! been admitted.

use std::time::Duration;

use berth::admission::resource::{Change, Departure, Reservation};
use berth::admission::{Joined, Rank, Waiter};
use berth::model::{DeviceState, Mode, Priority, Proposal};
use berth::store::{CommitError, StoredResource, StoredWaiter};

use super::{Database, Open, bare, granted, leases, unattended, waiter};
use crate::sample;

/// The lease id that such a waiter claims.
const CLAIMED: &str = "claimed-7f3a";

/// An unattended waiter of a shared seat that says all it can.
fn wordy(number: usize, holder: &str) -> Waiter {
    let plain = unattended(waiter(number, holder, "bench"));
    let proposal = Proposal {
        mode: Mode::Shared,
        priority: Priority::try_from(-0.1).unwrap(),
        ttl: Duration::from_millis(90_001),
        lease: sample::text(CLAIMED),
        id_chosen_by_requester: true,
        note: Some(sample::text("tonight's run")),
        ..plain.proposal
    };
    Waiter { rank: Rank::new(proposal.priority, plain.rank.joined(), None), proposal, ..plain }
}

fn stored(waiter: &Waiter) -> StoredWaiter {
    StoredWaiter {
        holder: waiter.proposal.holder.clone(),
        mode: waiter.proposal.mode,
        priority: waiter.proposal.priority,
        joined: Joined { at_us: 0, ..waiter.rank.joined() },
        joined_at: waiter.joined_at,
        ttl: waiter.proposal.ttl,
        note: waiter.proposal.note.clone(),
    }
}

fn joined(waiter: &Waiter) -> Change {
    Change::Joined { waiter: waiter.clone(), position: 1 }
}

fn left(waiter: &Waiter, why: Departure) -> Change {
    Change::Left { waiter: Box::new(waiter.clone()), why, at: sample::wall(2_000) }
}

fn reservation(holder: &str, width_ms: u64) -> Reservation {
    let width = Duration::from_millis(width_ms);
    Reservation { holder: sample::text(holder), mode: Mode::Shared, width, until: sample::run(width_ms) }
}

/// What a start finds of the resource, after these changes of it.
async fn found(database: &Database, open: Open, changes: Vec<Change>) -> (Open, Vec<StoredResource>) {
    open.commit_at(0, Some("bench"), changes).await.unwrap();
    let open = database.reopened(open).await;
    let resources = open.loaded.resources.clone();
    (open, resources)
}

#[tokio::test]
async fn unattended_waiters_are_found_in_the_order_in_which_they_joined_on_a_resource_that_was_never_leased() {
    let database = Database::new();
    let (first, second, third) = (wordy(1, "ops"), wordy(2, "ci/job-17"), wordy(3, "gw:gateway:ci"));
    let changes = vec![joined(&second), joined(&third), joined(&first)];
    let (_, resources) = found(&database, database.open(), changes).await;
    let waiters = [&first, &second, &third].map(stored).to_vec();
    assert_eq!(resources, [StoredResource { waiters, ..bare("bench") }]);
}

#[tokio::test]
async fn a_waiter_of_an_earlier_run_comes_before_one_of_a_later_run_that_has_a_lower_number() {
    let database = Database::new();
    let earlier = wordy(9, "ops");
    let later = wordy(1, "ci");
    let joined_later = Joined { run: 8, ..later.rank.joined() };
    let later = Waiter { rank: Rank::new(later.proposal.priority, joined_later, None), ..later };
    let (_, resources) = found(&database, database.open(), vec![joined(&later), joined(&earlier)]).await;
    assert_eq!(resources[0].waiters, [stored(&earlier), stored(&later)]);
}

#[tokio::test]
async fn a_claimed_lease_id_does_not_outlive_the_node() {
    let database = Database::new();
    let open = database.open();
    open.commit_at(0, Some("bench"), vec![joined(&wordy(1, "ops"))]).await.unwrap();
    open.close().await;
    let files = std::fs::read_dir(database.folder.path()).unwrap();
    let files: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    let there = |text: &str| files.iter().any(|file| file.windows(text.len()).any(|part| part == text.as_bytes()));
    assert!(there("tonight's run"), "the waiter is in the file");
    assert!(!there(CLAIMED), "but not the id, not even in its event");
}

#[tokio::test]
async fn whoever_asks_again_is_one_waiter_as_of_the_latest_ask() {
    let database = Database::new();
    let before = wordy(1, "ops");
    let plain = unattended(waiter(2, "ops", "bench"));
    let after =
        Waiter { proposal: Proposal { mode: Mode::Shared, ..plain.proposal }, joined_at: before.joined_at, ..plain };
    let moved = Change::Moved { former: before.proposal.request.clone(), waiter: after.clone() };
    let seen = Change::Seen { request: after.proposal.request.clone(), at: sample::run(5) };
    let (open, resources) = found(&database, database.open(), vec![joined(&before), moved, seen]).await;
    assert_eq!(resources[0].waiters, [stored(&after)]);

    let anew = wordy(3, "ops");
    let changes = vec![left(&after, Departure::Replaced), joined(&anew)];
    let (_, resources) = found(&database, open, changes).await;
    assert_eq!(resources[0].waiters, [stored(&anew)]);
}

#[tokio::test]
async fn a_waiter_that_has_left_in_whatever_way_is_not_found_and_the_others_stay() {
    let database = Database::new();
    let whys = [
        Departure::Granted,
        Departure::Admitted { reserved_until: None },
        Departure::Pruned,
        Departure::Left,
        Departure::Replaced,
    ];
    let going: Vec<Waiter> = (0..whys.len()).map(|number| wordy(number, &format!("ci/job-{number}"))).collect();
    let staying = wordy(9, "ci/job-9");
    let elsewhere = unattended(waiter(10, "ci/job-0", "board"));
    let open = database.open();
    open.commit_at(0, Some("board"), vec![joined(&elsewhere)]).await.unwrap();
    let came = going.iter().chain([&staying]).map(joined);
    let went = going.iter().zip(whys).map(|(waiter, why)| left(waiter, why));
    let (_, resources) = found(&database, open, came.chain(went).collect()).await;
    assert_eq!(resources[0].waiters, [stored(&staying)]);
    assert_eq!(resources[1].waiters, [stored(&elsewhere)], "the same holder, at another resource");
}

#[tokio::test]
async fn an_attended_waiter_is_not_stored_as_one() {
    let database = Database::new();
    let attended = waiter(1, "ci", "bench");
    let changes = vec![joined(&attended), left(&attended, Departure::Rejected)];
    let (_, resources) = found(&database, database.open(), changes).await;
    assert_eq!(resources, []);
}

#[tokio::test]
async fn a_reservation_is_found_with_its_whole_width_until_it_is_given_up() {
    let database = Database::new();
    let changes = vec![
        Change::Reserved(reservation("ops", 10_000)),
        Change::Reserved(reservation("ci", 1)),
        Change::Reserved(reservation("ops", 20_000)),
    ];
    let (open, resources) = found(&database, database.open(), changes).await;
    let kept = |holder, ms| (sample::text(holder), Mode::Shared, Duration::from_millis(ms));
    let reserved = vec![kept("ci", 1), kept("ops", 20_000)];
    assert_eq!(resources, [StoredResource { reserved, ..bare("bench") }]);

    let changes = vec![Change::Unreserved { holder: sample::text("ci") }];
    let (_, resources) = found(&database, open, changes).await;
    assert_eq!(resources[0].reserved, [kept("ops", 20_000)]);
}

#[tokio::test]
async fn a_drain_outlives_the_node_and_the_leases_of_the_resource_and_so_does_its_end() {
    let database = Database::new();
    let drain =
        |drained| Change::Drained { drained, from: DeviceState::Leased, to: DeviceState::Drained, at: sample::wall(0) };
    let open = database.open();
    open.commit(vec![granted(&sample::lease("mine", "bench", 4))]).await.unwrap();
    let (open, resources) = found(&database, open, vec![drain(true)]).await;
    assert_eq!((resources[0].drained, resources[0].fence.0), (true, 4));
    assert_eq!(leases(&open.loaded), ["mine"]);
    let (_, resources) = found(&database, open, vec![drain(false)]).await;
    assert!(!resources[0].drained);
}

/// The guard against a bug of the desk.
#[tokio::test]
async fn a_batch_of_the_desk_itself_cannot_change_a_resource() {
    let database = Database::new();
    let open = database.open();
    let changes = [
        joined(&wordy(1, "ops")),
        Change::Reserved(reservation("ops", 1)),
        Change::Drained { drained: true, from: DeviceState::Available, to: DeviceState::Drained, at: sample::wall(0) },
    ];
    for change in changes {
        let stopped = open.commit_at(0, None, vec![change]).await;
        assert!(matches!(stopped, Err(CommitError::Constraint(_))), "{stopped:?}");
    }
    assert_eq!(database.reopened(open).await.loaded.resources, []);
}
