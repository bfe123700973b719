//! What got past the guards is found, at the start and by whoever looks, and is gone when it is repaired.

use berth::admission::resource::Change;
use berth::model::{LeaseRecord, Mode};
use berth::store::{VIOLATIONS_MAX, Violation};

use super::guards::drop_guards;
use super::{BENCH, booked, booking, booking_id, cancelled, held, hold, hold_id, hold_released, window};
use crate::sample;
use crate::store::{Database, Open, granted, released};

/// A file without any of the guards.
async fn unguarded(database: &Database) -> Open {
    database.open().close().await;
    drop_guards(database, "trigger");
    drop_guards(database, "index");
    database.open()
}

fn violation(text: String) -> Violation {
    Violation { resource: sample::text(BENCH), text }
}

#[tokio::test]
async fn a_planted_duplicate_is_found_by_name_and_is_gone_after_its_repair() {
    let (first, second) = (booking(1, window(100, 200)), booking(2, window(199, 300)));
    let (third, fourth) = (hold(3, window(100, 200)), hold(4, window(150, 160)));
    let overlap = |a: &dyn std::fmt::Display, b: &dyn std::fmt::Display| violation(format!("{a} overlaps {b}"));
    let named = |booking: usize| format!("booking {}", booking_id(booking));
    let held_by = |hold: usize| format!("hold {}", hold_id(hold));
    let cases: [(Vec<Change>, Violation, Change); 3] = [
        (vec![booked(&first), booked(&second)], overlap(&named(1), &named(2)), cancelled(&second)),
        (vec![booked(&first), held(&third)], overlap(&named(1), &held_by(3)), hold_released(&third)),
        (vec![held(&third), held(&fourth)], overlap(&held_by(3), &held_by(4)), hold_released(&third)),
    ];
    for (planted, expected, repair) in cases {
        let database = Database::new();
        let open = unguarded(&database).await;
        assert_eq!((open.loaded.violations.as_slice(), open.invariants.check().await.unwrap()), (&[][..], vec![]));
        open.calendar(planted).await.unwrap();
        assert_eq!(open.invariants.check().await.unwrap(), std::slice::from_ref(&expected));
        let open = database.reopened(open).await;
        assert_eq!(open.loaded.violations, [expected]);
        open.calendar(vec![repair]).await.unwrap();
        assert_eq!(open.invariants.check().await.unwrap(), []);
        assert_eq!(database.reopened(open).await.loaded.violations, []);
    }
}

#[tokio::test]
async fn what_only_meets_or_claims_nothing_is_no_duplicate() {
    let database = Database::new();
    let open = unguarded(&database).await;
    let given_up = booking(3, window(100, 300));
    let changes = vec![
        booked(&booking(1, window(100, 200))),
        held(&hold(2, window(200, 300))),
        booked(&given_up),
        cancelled(&given_up),
    ];
    open.calendar(changes).await.unwrap();
    assert_eq!(open.invariants.check().await.unwrap(), []);
}

#[tokio::test]
async fn an_overlap_is_found_also_where_others_lie_between() {
    let database = Database::new();
    let open = unguarded(&database).await;
    let around = booking(1, window(0, 1_000));
    open.calendar(vec![booked(&around), booked(&booking(2, window(10, 20))), booked(&booking(3, window(500, 510)))])
        .await
        .unwrap();
    open.calendar(vec![cancelled(&booking(2, window(10, 20)))]).await.unwrap();
    let expected = violation(format!("booking {} overlaps booking {}", booking_id(1), booking_id(3)));
    assert_eq!(open.invariants.check().await.unwrap(), [expected]);
}

#[tokio::test]
async fn an_exclusive_lease_beside_another_is_found() {
    let lease = |id: &str, fence, mode| LeaseRecord { mode, ..sample::lease(id, BENCH, fence) };
    let cases = [
        ((Mode::Exclusive, Mode::Exclusive), Some("exclusive lease a is active beside lease b")),
        ((Mode::Shared, Mode::Exclusive), Some("exclusive lease b is active beside lease a")),
        ((Mode::Shared, Mode::Shared), None),
    ];
    for ((first, second), expected) in cases {
        let database = Database::new();
        let open = unguarded(&database).await;
        let second = lease("b", 2, second);
        open.commit(vec![granted(&lease("a", 1, first)), granted(&second)]).await.unwrap();
        let expected: Vec<Violation> = expected.into_iter().map(|text| violation(text.to_owned())).collect();
        assert_eq!(open.invariants.check().await.unwrap(), expected);
        open.commit(vec![released(&second)]).await.unwrap();
        assert_eq!(open.invariants.check().await.unwrap(), []);
        open.close().await;
    }
}

#[tokio::test]
async fn a_look_brings_no_more_than_so_many() {
    let database = Database::new();
    let open = unguarded(&database).await;
    let many = (0..3 * VIOLATIONS_MAX).map(|number| booked(&booking(number, window(number as u64, 2_000))));
    open.calendar(many.collect()).await.unwrap();
    assert_eq!(open.invariants.check().await.unwrap().len(), VIOLATIONS_MAX);
    assert_eq!(database.reopened(open).await.loaded.violations.len(), VIOLATIONS_MAX);
}

#[tokio::test]
async fn a_look_sees_what_is_committed_and_holds_nobody_up() {
    let database = Database::new();
    let open = database.open();
    open.calendar(vec![booked(&booking(1, window(1, 2)))]).await.unwrap();
    let (looks, books) = tokio::join!(open.invariants.check(), open.calendar(vec![booked(&booking(2, window(2, 3)))]));
    assert_eq!((looks.unwrap(), books), (vec![], Ok(())));
}
