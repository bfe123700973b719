//! A commit that is made to fail: no token leaves the process, and of the hold nothing is left but what a start finds
//! whole.
//!
//! Once the failure is one of which the node knows: the database itself refuses the row, or the event beside it. Then it
//! is a disk that takes what is written and does not flush it, so that whether the commit happened shows at the next open.

use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::{Connection, OptionalExtension};
use serde_json::{Value, json};

use super::{Held, held, hold, listed, same};
use crate::bookings::{
    HOUR, after, ahead, book, booked, claims, database, no_overlap, path, reader, shown, window, written,
};
use crate::http::{Call, Door};
use crate::lab::Lab;
use crate::patience::BOUND;
use crate::waiting::{HOST, agents, events, text};

/// Every word that a token begins with, in whatever was said.
#[track_caller]
fn no_token_in(said: &str) {
    let tokens = said.match_indices("bht_").filter(|(at, _)| {
        let digits = said[at + 4..].bytes().take_while(u8::is_ascii_hexdigit).count();
        digits > 0
    });
    assert_eq!(tokens.count(), 0, "a token is in {said}");
}

fn talkative() -> Lab {
    let mut lab = Lab::new(HOST);
    lab.set("BERTH_LOG", "trace");
    lab.start("host");
    lab.wait_ready("host");
    lab
}

/// A second writer of the node's database.
fn writer(lab: &Lab) -> Connection {
    let writer = Connection::open(database(lab)).expect("the database can be opened");
    writer.busy_timeout(BOUND).expect("it waits");
    writer
}

#[test]
fn when_the_commit_of_a_hold_fails_no_usable_token_escapes_and_the_slot_is_free() {
    for (what, refuse) in [
        ("the row", "CREATE TRIGGER refuse BEFORE INSERT ON hold BEGIN SELECT RAISE(ABORT, 'no'); END"),
        (
            "its event",
            "CREATE TRIGGER refuse BEFORE INSERT ON event WHEN NEW.event = 'hold.created' BEGIN SELECT RAISE(ABORT, 'no'); END",
        ),
        ("all of it", "CREATE TRIGGER refuse AFTER INSERT ON hold BEGIN SELECT RAISE(ROLLBACK, 'no'); END"),
    ] {
        let mut lab = talkative();
        let [ci, other] = agents(&lab, ["ci", "other"]);
        let admin = lab.door("host");
        let starts_at = ahead(7_200);
        let writer = writer(&lab);
        writer.execute_batch(refuse).expect("a trigger can be planted");
        let mut body = window(starts_at, HOUR);
        body["idempotencyKey"] = json!("k");
        for _ in 0..3 {
            let told = hold(&ci, "board", &body).refused("INTERNAL", 500);
            let keys: Vec<&String> = told.body.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["error"], "{what}: {}", told.body);
            no_token_in(&format!("{:?}", told.whole()));
        }
        no_token_in(&lab.said("host"));
        let nothing_of_it = |when: &str| {
            assert_eq!(listed(&admin, "board"), Vec::<Value>::new(), "{what}, {when}");
            assert_eq!(events(&admin, "hold.created"), Vec::<Value>::new(), "{what}, {when}");
            let rows: i64 = reader(&lab).query_row("SELECT count(*) FROM hold", [], |row| row.get(0)).unwrap();
            assert_eq!(rows, 0, "{what}, {when}");
        };
        nothing_of_it("while it fails");
        writer.execute_batch("DROP TRIGGER refuse").expect("it can be taken away");
        nothing_of_it("afterwards");
        // The slot is free for another, and the failed attempts count for nothing.
        let made = held(&other, "board", starts_at, HOUR);
        hold(&ci, "board", &body).refused("HOLD_CONFLICT", 409);
        made.release(&other).expect(200);
        let made = Held::told(&hold(&ci, "board", &body).expect(201));
        lab.kill_9("host");
        lab.start("host");
        lab.wait_ready("host");
        assert_eq!(no_overlap(&reader(&lab)).len(), 1);
        made.confirm(&ci).expect(200);
        no_token_in(&lab.said("host"));
    }
}

#[test]
fn when_the_commit_of_a_confirmation_fails_the_hold_is_as_it_was() {
    let lab = talkative();
    let [ci] = agents(&lab, ["ci"]);
    let made = held(&ci, "board", ahead(7_200), HOUR);
    let writer = writer(&lab);
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON booking BEGIN SELECT RAISE(ABORT, 'no'); END";
    writer.execute_batch(refuse).expect("a trigger can be planted");
    made.confirm(&ci).refused("INTERNAL", 500);
    same(&made.shown(&ci), &made.hold);
    assert_eq!(claims(&reader(&lab)).len(), 1);
    assert_eq!(events(&lab.door("host"), "hold.confirmed"), Vec::<Value>::new());
    writer.execute_batch("DROP TRIGGER refuse").expect("it can be taken away");
    let booking = made.confirm(&ci).expect(200).body["booking"].take();
    assert_eq!(made.shown(&ci)["bookingId"], booking["id"]);
    no_token_in(&lab.said("host"));
}

#[test]
fn a_constraint_that_fires_answers_with_the_code_of_the_check_that_it_repeats_and_is_logged() {
    let lab = talkative();
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    // A row that the node does not know of: only the database stands before the slot.
    let (from, to) = (starts_at.as_microsecond(), starts_at.as_microsecond() + HOUR * 1_000);
    let plant = "INSERT INTO booking (id, resource_id, holder, starts_at, ends_at, status, claims, created_at) \
                 VALUES ('book_0198f3a0-0000-4000-8000-000000000001', 'board', 'local:planted', ?1, ?2, 'scheduled', 1, 0)";
    let writer = writer(&lab);
    // The resource has a row since something of it is kept.
    let own = booked(&other, "board", ahead(86_400), HOUR);
    let lost = hold(&ci, "board", &window(ahead(86_400), HOUR)).refused("HOLD_CONFLICT", 409);
    let known = writer.execute(plant, [from, to]);
    assert_eq!(known.expect("the row can be planted"), 1);
    // The same slot, and a part of it; asked for, and moved to.
    for part in [window(starts_at, HOUR), window(after(starts_at, 1_000), HOUR)] {
        let told = hold(&ci, "board", &part).refused("HOLD_CONFLICT", 409);
        no_token_in(&told.body.to_string());
        assert_eq!(told.whole(), lost.whole(), "the loser cannot tell which guard it was");
        for told in [book(&other, "board", &part), other.patch(&path(&own), &part)] {
            let told = told.refused("BOOKING_CONFLICT", 409);
            assert!(!told.body.to_string().contains("planted"), "{}", told.body);
        }
    }
    let plant = "INSERT INTO hold (id, resource_id, holder, starts_at, ends_at, status, ttl_ms, expires_at, token_hash, \
                 created_at) VALUES ('hold_0198f3a0-0000-4000-8000-000000000001', 'board', 'local:planted', ?1, ?2, \
                 'active', 1, 9000000000000000, zeroblob(32), 0)";
    writer.execute(plant, [to, to + HOUR * 1_000]).expect("the row can be planted");
    for part in [window(after(starts_at, HOUR), HOUR), window(after(starts_at, HOUR + 1_000), HOUR)] {
        assert_eq!(hold(&ci, "board", &part).refused("HOLD_CONFLICT", 409).whole(), lost.whole());
        book(&other, "board", &part).refused("SLOT_HELD", 409);
        other.patch(&path(&own), &part).refused("SLOT_HELD", 409);
    }
    assert_eq!(shown(&other, &own), own);
    assert_eq!(no_overlap(&reader(&lab)).len(), 3);
    let said = lab.said("host");
    for guard in ["no_hold_over_a_booking", "no_booking_over_another", "no_booking_moves_over_a_hold"] {
        assert!(said.contains(guard), "the log says nothing of {guard}");
    }
    no_token_in(&said);
}

/// A library that a process can have preloaded, with which the next flushes of its disk fail.
fn failing_flush(folder: &Path) -> PathBuf {
    let library = folder.join("failing_flush.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/fixtures/failing_flush.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.expect("cc is there").success());
    library
}

/// What became of a hold whose commit met a disk on which so many flushes failed: "held", "refused" or "nothing told".
fn with_failing_flushes(library: &Path, failing: u64) -> &'static str {
    let mut lab = Lab::new(HOST);
    let switch = lab.path("failing");
    lab.set("BERTH_LOG", "trace");
    lab.set("BERTH_TEST_FLUSHES_TO_FAIL", switch.to_str().unwrap());
    lab.set("LD_PRELOAD", library.to_str().unwrap());
    lab.start("host");
    lab.wait_ready("host");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    let body = window(starts_at, HOUR).to_string();
    std::fs::write(&switch, failing.to_string()).unwrap();
    let told = ci.try_send(&Call::json("/v1/resources/board/holds", &body));
    std::fs::remove_file(&switch).unwrap();
    let outcome = match &told {
        Ok(told) if told.status == 201 => "held",
        Ok(told) => {
            assert_eq!((told.code(), told.status), ("INTERNAL", 500), "{}", told.body);
            no_token_in(&told.body.to_string());
            "refused"
        }
        Err(_) => "nothing told",
    };
    // A node that does not know what its disk has ends without an answer, and starts again from it.
    match outcome {
        "nothing told" => assert!(!lab.wait_end("host").success(), "it says that something was wrong"),
        _ => lab.kill_9("host"),
    }
    no_token_in(&lab.said("host"));
    lab.start("host");
    lab.wait_ready("host");
    found_whole(&lab, &ci, &other, told.ok().filter(|_| outcome == "held"), outcome);
    outcome
}

/// The hold that was told is there; of one that was refused there is nothing; another is there whole, or not at all.
fn found_whole(lab: &Lab, ci: &Door, other: &Door, told: Option<crate::http::Answer>, outcome: &str) {
    let admin = lab.door("host");
    let found = listed(&admin, "board");
    let created = events(&admin, "hold.created");
    assert_eq!(found.len(), created.len(), "{outcome}: a hold and its event share their fate");
    let row: Option<(i64, Vec<u8>)> = reader(lab)
        .query_row("SELECT expires_at, token_hash FROM hold", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .unwrap();
    let body = window(found.first().map_or(ahead(7_200), |hold| text(&hold["startsAt"]).parse().unwrap()), HOUR);
    match (outcome, found.as_slice()) {
        ("held", [hold]) => {
            let told = Held::told(&told.expect("it was told"));
            assert_eq!(told.hold["id"], hold["id"]);
            told.confirm(ci).expect(200);
        }
        ("refused", []) | ("nothing told", []) => {
            assert_eq!(row, None);
            super::hold(other, "board", &body).expect(201);
        }
        ("nothing told", [hold]) => {
            // It has its expiry, and nobody its token: it stops others until then, and an admin can end it.
            let (expires_at, hash) = row.expect("it is there");
            assert_eq!(hash.len(), 32);
            let at = jiff::Timestamp::from_microsecond(expires_at).unwrap();
            assert!(at > jiff::Timestamp::now(), "{}", written(at));
            super::hold(other, "board", &body).refused("HOLD_CONFLICT", 409);
            admin.delete(&format!("/v1/holds/{}", text(&hold["id"]))).expect(200);
            super::hold(other, "board", &body).expect(201);
        }
        (_, found) => panic!("{outcome}, and {found:?} is there"),
    }
    no_overlap(&reader(lab));
    no_token_in(&lab.said("host"));
}

#[test]
fn a_disk_that_does_not_flush_lets_no_token_escape_for_a_hold_that_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let library = failing_flush(folder.path());
    let seen: Vec<&str> = [0, 1, 2, 3, 4, 1_000_000].map(|failing| with_failing_flushes(&library, failing)).into();
    println!("{seen:?}");
    assert_eq!(seen[0], "held", "a whole disk");
    assert!(seen[1..].contains(&"refused") || seen[1..].contains(&"nothing told"), "{seen:?}");
    assert_ne!(seen[5], "held", "nothing is told that no disk has");
}
