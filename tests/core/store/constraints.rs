//! The last guard: what the rules should have stopped is stopped by the schema, and stops nothing else.

use berth::admission::resource::Change;
use berth::model::{LeaseRecord, Mode};
use berth::store::CommitError;

use super::{Database, Open, answer, granted, leases, released, with_fence};
use crate::sample;

fn shared(id: &str, resource: &str, fence: u64) -> LeaseRecord {
    LeaseRecord { mode: Mode::Shared, ..sample::lease(id, resource, fence) }
}

/// `alone` is held by an exclusive lease, `seats` by a shared one, `free` by nobody after a grant of fence 9.
async fn furnished(database: &Database) -> Open {
    let open = database.open();
    let former = sample::lease("former", "free", 9);
    open.commit(vec![granted(&sample::lease("held", "alone", 5))]).await.unwrap();
    open.commit(vec![granted(&shared("seat", "seats", 5))]).await.unwrap();
    open.commit(vec![granted(&former), released(&former)]).await.unwrap();
    open
}

fn constraint(result: Result<(), CommitError>) -> String {
    match result {
        Err(CommitError::Constraint(why)) => why,
        other => panic!("expected a constraint, got {other:?}"),
    }
}

#[tokio::test]
async fn a_constraint_stops_its_own_batch_and_no_other_of_its_group() {
    let database = Database::new();
    let open = furnished(&database).await;
    let held = sample::lease("held", "alone", 5);
    let renewed = |lease: &LeaseRecord| Change::Renewed {
        lease: lease.clone(),
        deadline: sample::run(90_000),
        expires_at: sample::wall(90_000),
        told: true,
    };
    let stopped = [
        (granted(&sample::lease("second", "alone", 6)), "no_lease_beside_an_exclusive_one"),
        (granted(&shared("beside", "alone", 6)), "no_lease_beside_an_exclusive_one"),
        (granted(&sample::lease("over", "seats", 6)), "no_lease_beside_an_exclusive_one"),
        (granted(&sample::lease("stale", "free", 9)), "a_grant_raises_the_fence"),
        (granted(&sample::lease("staler", "free", 8)), "a_grant_raises_the_fence"),
        (granted(&sample::lease("held", "elsewhere", 1)), "lease.id"),
        (renewed(&with_fence(&held, 4)), "not as it was"),
        (released(&with_fence(&held, 6)), "not as it was"),
        (released(&sample::lease("nobody", "alone", 5)), "not as it was"),
    ];
    let before = database.groups();
    let mut answers = Vec::new();
    for (number, (change, name)) in stopped.iter().enumerate() {
        answers.push((open.queue(vec![change.clone()]), Some(*name)));
        let good = sample::lease(&format!("good-{number}"), &format!("board-{number}"), 1);
        answers.push((open.queue(vec![granted(&good)]), None));
    }
    for (number, (waiting, name)) in answers.into_iter().enumerate() {
        match (answer(waiting).await, name) {
            (result, Some(name)) => {
                let why = constraint(result);
                assert!(why.contains(name), "batch {number}: {why}");
            }
            (result, None) => assert_eq!(result, Ok(()), "batch {number}"),
        }
    }
    assert_eq!(database.groups() - before, 1, "they were all in one group");
    open.close().await;
    let loaded = database.open().loaded;
    let mut found = leases(&loaded);
    found.sort_unstable();
    let good: Vec<String> = (0..stopped.len()).map(|number| format!("good-{number}")).collect();
    let expected: Vec<&str> = good.iter().map(String::as_str).chain(["held", "seat"]).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_batch_is_written_whole_or_not_at_all() {
    let database = Database::new();
    let open = furnished(&database).await;
    let held = sample::lease("held", "alone", 5);
    // A hand-over whose grant is refused leaves the former lease where it was.
    let hand_over = vec![released(&held), granted(&sample::lease("next", "alone", 5))];
    assert!(constraint(open.commit(hand_over).await).contains("a_grant_raises_the_fence"));
    let hand_over = vec![released(&held), granted(&sample::lease("next", "alone", 6))];
    open.commit(hand_over).await.unwrap();
    open.close().await;
    assert_eq!(leases(&database.open().loaded), ["next", "seat"]);
}

#[tokio::test]
async fn shared_leases_stand_beside_each_other() {
    let database = Database::new();
    let open = furnished(&database).await;
    open.commit(vec![granted(&shared("second", "seats", 6))]).await.unwrap();
    open.commit(vec![released(&shared("seat", "seats", 5))]).await.unwrap();
    open.close().await;
    let loaded = database.open().loaded;
    let seats = loaded.resources.iter().find(|resource| resource.id.as_str() == "seats").unwrap();
    assert_eq!(seats.leases.len(), 1);
    assert_eq!(seats.idle_since, None, "one holder is left");
}

/// What no batch can say: a fence set back by hand, a resource forgotten with its fence, two exclusive leases made of
/// shared ones.
#[tokio::test]
async fn not_even_another_program_can_break_an_invariant_of_the_file() {
    let database = Database::new();
    let open = furnished(&database).await;
    open.commit(vec![granted(&shared("second", "seats", 6))]).await.unwrap();
    let foreign = database.foreign();
    let refused = |sql: &str| foreign.execute(sql, []).unwrap_err().to_string();
    assert!(refused("UPDATE resource SET fence = fence - 1 WHERE id = 'free'").contains("the_fence_never_falls"));
    assert!(refused("DELETE FROM resource WHERE id = 'free'").contains("a_resource_keeps_its_fence"));
    assert!(refused("UPDATE lease SET mode = 'exclusive'").contains("lease.resource_id"));
    assert!(refused("UPDATE lease SET ttl_ms = 0").contains("ttl_ms"));
    assert!(refused("UPDATE lease SET mode = 'both'").contains("mode"));
    assert!(refused("UPDATE lease SET fence = 'five'").contains("INTEGER"), "the tables are strict");
}
