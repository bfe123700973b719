//! The last guard: each constraint by its name, what it stops, and that it stops nothing else.

use berth::admission::calendar::{BookingMove, HoldMove};
use berth::admission::resource::Change;
use berth::model::{Booking, BookingStatus, Code, Hold, Window};
use berth::store::CommitError;

use super::{
    booked, booking, booking_id, cancelled, confirmed, expired, held, hold, hold_released, of_booking, of_hold,
    rescheduled, settled_booking, window,
};
use crate::sample;
use crate::store::{Database, Open};

/// What is claimed in each of these tests, besides.
fn taken() -> Window {
    window(100, 200)
}

/// Every way to have an instant in common with [`taken`].
fn overlapping() -> [(&'static str, Window); 8] {
    [
        ("the exact slot", window(100, 200)),
        ("from the left", window(50, 101)),
        ("from the right", window(199, 250)),
        ("inside", window(120, 130)),
        ("around", window(50, 250)),
        ("the same start, shorter", window(100, 101)),
        ("the same start, longer", window(100, 300)),
        ("the same end", window(50, 200)),
    ]
}

/// The ways to have none.
fn beside() -> [Window; 4] {
    [window(90, 100), window(200, 201), window(10, 20), window(300, 400)]
}

/// The constraint that has refused something. Of each it is known which rule it repeats.
async fn refused(open: &Open, changes: Vec<Change>) -> String {
    let refused = open.calendar(changes).await;
    let code = refused.as_ref().err().and_then(CommitError::repeats);
    match refused {
        Err(CommitError::Constraint(why)) => {
            let expected = match why.as_str() {
                why if why.starts_with("no_hold") || why.contains(": hold.") => Code::HoldConflict,
                why if why.ends_with("a_hold") => Code::SlotHeld,
                _ => Code::BookingConflict,
            };
            assert_eq!(code, Some(expected), "{why}");
            why
        }
        other => panic!("expected a constraint, got {other:?}"),
    }
}

/// With [`taken`] claimed by a booking or by a hold, and claims of both kinds far away on both sides.
async fn furnished(database: &Database, by_booking: bool) -> Open {
    let open = database.open();
    let claim = if by_booking { booked(&booking(1, taken())) } else { held(&hold(1, taken())) };
    let far = [booked(&booking(2, window(1, 9))), held(&hold(3, window(500, 600)))];
    let farther = [held(&hold(4, window(0, 1))), booked(&booking(5, window(700, 800)))];
    open.calendar([claim].into_iter().chain(far).chain(farther).collect()).await.unwrap();
    open
}

#[tokio::test]
async fn a_new_booking_or_hold_over_any_part_of_a_claimed_window_is_refused_by_name() {
    for (by_booking, booking_refused, hold_refused) in [
        (true, "no_booking_over_another", "no_hold_over_a_booking"),
        (false, "no_booking_over_a_hold", "no_hold_over_another"),
    ] {
        let database = Database::new();
        let open = furnished(&database, by_booking).await;
        for (how, window) in overlapping() {
            assert_eq!(refused(&open, vec![booked(&booking(50, window))]).await, booking_refused, "{how}");
            assert_eq!(refused(&open, vec![held(&hold(50, window))]).await, hold_refused, "{how}");
        }
        for (number, window) in beside().into_iter().enumerate() {
            open.calendar(vec![booked(&booking(60 + number, window)), cancelled(&booking(60 + number, window))])
                .await
                .unwrap();
            open.calendar(vec![held(&hold(60 + number, window))]).await.unwrap();
        }
        open.close().await;
    }
}

#[tokio::test]
async fn a_booking_that_moves_into_a_claimed_window_is_refused_by_name_and_stays_where_it_was() {
    for (by_booking, expected) in [(true, "no_booking_moves_over_another"), (false, "no_booking_moves_over_a_hold")] {
        let database = Database::new();
        let open = furnished(&database, by_booking).await;
        // From both sides of it.
        let movers = [booking(10, window(20, 30)), booking(11, window(400, 410))];
        open.calendar(movers.iter().map(booked).collect()).await.unwrap();
        for mover in &movers {
            for (how, window) in overlapping() {
                assert_eq!(refused(&open, vec![rescheduled(mover, window)]).await, expected, "{how}");
            }
        }
        let stays = database.reopened(open).await;
        let found = &stays.loaded.resources[0].bookings;
        assert!(movers.iter().all(|mover| found.contains(mover)), "{found:?}");
        for window in beside() {
            stays.calendar(vec![rescheduled(&movers[0], window)]).await.unwrap();
        }
        stays.close().await;
    }
}

#[tokio::test]
async fn a_booking_may_move_within_and_around_its_own_window() {
    let database = Database::new();
    let open = furnished(&database, true).await;
    let mut stands = booking(1, taken());
    for (how, window) in overlapping() {
        let result = open.calendar(vec![rescheduled(&stands, window)]).await;
        assert_eq!(result, Ok(()), "{how}");
        stands = Booking { window, ..stands };
    }
}

#[tokio::test]
async fn windows_that_meet_end_to_start_are_all_taken() {
    let database = Database::new();
    let open = database.open();
    // From the middle outwards, so that each meets neighbours on either side.
    let mut places: Vec<u64> = (0..20).collect();
    places.sort_by_key(|place| place.abs_diff(10));
    for place in places {
        let (window, number) = (window(place * 10, place * 10 + 10), place as usize);
        let change = if place % 2 == 0 { booked(&booking(number, window)) } else { held(&hold(number, window)) };
        open.calendar(vec![change]).await.unwrap();
    }
    assert_eq!(open.invariants.check().await.unwrap(), []);
}

#[tokio::test]
async fn other_resources_have_calendars_of_their_own() {
    let database = Database::new();
    let open = furnished(&database, true).await;
    let elsewhere = Booking { resource_id: sample::text("pixel-8-a"), ..booking(50, taken()) };
    open.commit_at(0, Some("pixel-8-a"), vec![booked(&elsewhere)]).await.unwrap();
    let elsewhere = Hold { resource_id: sample::text("board-1"), ..hold(50, taken()) };
    open.commit_at(0, Some("board-1"), vec![held(&elsewhere)]).await.unwrap();
}

#[tokio::test]
async fn what_has_given_its_window_up_stops_nobody() {
    let (was_booked, was_held) = (booking(1, taken()), hold(1, taken()));
    let missed = settled_booking(&was_booked, BookingStatus::Missed, false);
    let missed = of_booking(&missed, BookingMove::Missed(berth::admission::calendar::Miss::NoShow));
    let fulfilled = settled_booking(&was_booked, BookingStatus::Fulfilled, true);
    let freed = Booking { claims: false, ..fulfilled.clone() };
    let ends: [(bool, Vec<Change>); 5] = [
        (true, vec![cancelled(&was_booked)]),
        (true, vec![missed]),
        (true, vec![of_booking(&fulfilled, BookingMove::Fulfilled), of_booking(&freed, BookingMove::Freed)]),
        (false, vec![hold_released(&was_held)]),
        (false, vec![expired(&was_held)]),
    ];
    for (by_booking, end) in ends {
        let database = Database::new();
        let open = furnished(&database, by_booking).await;
        open.calendar(end).await.unwrap();
        open.calendar(vec![booked(&booking(50, window(150, 160))), held(&hold(50, window(90, 150)))]).await.unwrap();
        open.close().await;
    }
    // A lease that goes on goes on claiming the window.
    let database = Database::new();
    let open = furnished(&database, true).await;
    open.calendar(vec![of_booking(&fulfilled, BookingMove::Fulfilled)]).await.unwrap();
    assert_eq!(refused(&open, vec![booked(&booking(50, taken()))]).await, "no_booking_over_another");
}

#[tokio::test]
async fn a_hold_becomes_a_booking_of_its_window_in_one_batch() {
    let database = Database::new();
    let open = furnished(&database, false).await;
    let [settles, books] = <[Change; 2]>::try_from(confirmed(&hold(1, taken()), 50)).unwrap();
    // The other way round the window would be claimed twice for an instant.
    assert_eq!(refused(&open, vec![books.clone(), settles.clone()]).await, "no_booking_over_a_hold");
    open.calendar(vec![settles, books]).await.unwrap();
    assert_eq!(refused(&open, vec![held(&hold(51, taken()))]).await, "no_hold_over_a_booking");
    let open = database.reopened(open).await;
    let rows = &open.loaded.resources[0];
    assert_eq!(rows.holds.iter().find(|(it, _)| it.id == hold(1, taken()).id).unwrap().0.booking, Some(booking_id(50)));
}

/// What no batch says: a window that another program moves, a settled one that it lets stand again, rows that do not
/// hang together.
#[tokio::test]
async fn not_even_another_program_can_claim_a_window_twice() {
    let database = Database::new();
    let open = furnished(&database, true).await;
    let (other, given_up, ends) = (hold(10, window(20, 30)), booking(11, window(150, 160)), hold(12, window(160, 170)));
    open.calendar(vec![held(&other)]).await.unwrap();
    let foreign = database.foreign();
    foreign.execute_batch("BEGIN; UPDATE booking SET status = 'cancelled', claims = 0, settled_at = 1").unwrap();
    let write = |sql: &str| foreign.execute(sql, []).map_err(|error| error.to_string());
    foreign.execute_batch("COMMIT").unwrap();
    open.calendar(vec![booked(&given_up), cancelled(&given_up), held(&ends), expired(&ends)]).await.unwrap();
    let stands_again = "UPDATE booking SET status = 'scheduled', claims = 1, settled_at = NULL WHERE ends_at = ";
    let at = |minutes: u64| sample::wall(minutes * super::MINUTE_MS).as_microsecond();
    write(&format!("{stands_again}{}", at(200))).unwrap();
    let again = write(&format!("{stands_again}{}", at(160))).unwrap_err();
    assert!(again.contains("no_booking_moves_over_another"), "{again}");
    let lives = format!("UPDATE hold SET status = 'active', settled_at = NULL WHERE ends_at = {}", at(170));
    let again = write(&lives).unwrap_err();
    assert!(again.contains("no_hold_moves_over_a_booking"), "{again}");
    let moves = |to: i64| format!("UPDATE hold SET starts_at = {to} WHERE ends_at = {}", at(30));
    let again = write(&moves(at(0))).unwrap_err();
    assert!(again.contains("no_hold_moves_over_another"), "{again}");
    write(&moves(at(25))).unwrap();

    for (wrong, why) in [
        ("UPDATE booking SET claims = 0 WHERE status = 'scheduled'", "CHECK"),
        ("UPDATE booking SET claims = 1 WHERE status = 'cancelled'", "CHECK"),
        ("UPDATE booking SET status = 'missed', settled_at = 1 WHERE status = 'scheduled'", "CHECK"),
        ("UPDATE booking SET status = 'booked'", "CHECK"),
        ("UPDATE booking SET settled_at = NULL WHERE status = 'cancelled'", "CHECK"),
        ("UPDATE booking SET ends_at = starts_at", "CHECK"),
        ("UPDATE booking SET resource_id = 'nowhere'", "FOREIGN KEY"),
        ("UPDATE booking SET starts_at = 'noon'", "INTEGER"),
        ("UPDATE hold SET status = 'confirmed', settled_at = 1 WHERE status = 'active'", "CHECK"),
        ("UPDATE hold SET booking_id = 'book_1' WHERE status = 'active'", "CHECK"),
        ("UPDATE hold SET token_hash = x'00'", "CHECK"),
        ("UPDATE hold SET token_hash = 'secret'", "BLOB"),
        ("UPDATE hold SET expires_at = NULL", "NOT NULL"),
        ("UPDATE hold SET ends_at = starts_at", "CHECK"),
    ] {
        let refused = write(wrong).unwrap_err();
        assert!(refused.contains(why), "{wrong}: {refused}");
    }
}

/// The indexes alone, with the triggers out of their way.
#[tokio::test]
async fn the_exact_slot_is_guarded_by_an_index_too() {
    let database = Database::new();
    let open = furnished(&database, true).await;
    open.calendar(vec![held(&hold(50, window(20, 30)))]).await.unwrap();
    drop_guards(&database, "trigger");
    let why = refused(&open, vec![booked(&booking(51, window(100, 110)))]).await;
    assert!(why.contains("booking.resource_id, booking.starts_at"), "{why}");
    let why = refused(&open, vec![held(&hold(52, window(20, 40)))]).await;
    assert!(why.contains("hold.resource_id, hold.starts_at"), "{why}");
    let moved = Booking { window: window(100, 120), ..booking(2, window(1, 9)) };
    let why = refused(&open, vec![of_booking(&moved, BookingMove::Rescheduled(window(1, 9)))]).await;
    assert!(why.contains("booking.starts_at"), "{why}");
    let reissued = of_hold(&hold(50, window(20, 30)), HoldMove::Reissued, super::EXPIRES_MS);
    open.calendar(vec![reissued]).await.unwrap();
}

/// Takes the guards of the calendar out of a file: its `trigger`s, or its `index`es.
pub(super) fn drop_guards(database: &Database, kind: &str) {
    let foreign = database.foreign();
    let mut select = foreign
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = ?1 AND tbl_name IN ('booking', 'hold', 'lease') \
             AND sql IS NOT NULL",
        )
        .unwrap();
    let names: Vec<String> = select.query_map([kind], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(!names.is_empty());
    drop(select);
    names.iter().for_each(|name| foreign.execute_batch(&format!("DROP {kind} {name}")).unwrap());
}

#[tokio::test]
async fn the_guards_look_one_claim_up_however_many_there_are() {
    let database = Database::new();
    furnished(&database, true).await.close().await;
    let foreign = database.foreign();
    let plan = |select: &str| -> String {
        let mut explained = foreign.prepare(&format!("EXPLAIN QUERY PLAN {select}")).unwrap();
        let lines = explained.query_map([], |row| row.get::<_, String>("detail")).unwrap();
        lines.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    };
    let mut triggers = foreign
        .prepare("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name IN ('booking', 'hold')")
        .unwrap();
    let triggers = triggers.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let mut looked = 0;
    for trigger in triggers.map(Result::unwrap) {
        let from = trigger.find("(SELECT").unwrap() + 1;
        let to = trigger.find("LIMIT 1").unwrap() + "LIMIT 1".len();
        let select = trigger[from..to]
            .replace("NEW.resource_id", "'bench-1'")
            .replace("NEW.ends_at", "7")
            .replace("OLD.id", "'book_1'");
        let plan = plan(&select);
        let index = if select.contains("FROM booking") { "one_booking_for_a_slot" } else { "one_hold_for_a_slot" };
        assert!(plan.contains(&format!("USING INDEX {index} (resource_id=? AND starts_at<?)")), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        looked += 1;
    }
    assert_eq!(looked, 8);
}
