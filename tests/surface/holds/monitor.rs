//! The monitor, by the runbook: what must not be is found, new holds pause, the rest goes on, and after the repair
//! somebody resumes.

use rusqlite::Connection;
use serde_json::{Value, json};

use super::{Held, held, hold};
use crate::bookings::{HOUR, after, ahead, book, booked, database, no_overlap, reader, window};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::{agents, events, host, principal, text};

const QUICK: &str = "[holds]\ncheck_interval = \"1s\"";
/// Ids that come before and behind all others.
const PLANTED: &str = "book_00000000-0000-4000-8000-00000000dead";
const PLANTED_LAST: &str = "book_ffffffff-ffff-4fff-bfff-ffffffffdead";

/// The database, opened beside the node as an operator would.
fn operator(lab: &Lab) -> Connection {
    let database = Connection::open(database(lab)).expect("the database can be opened");
    database.busy_timeout(BOUND).expect("it waits");
    database
}

/// Takes the guards of bookings and holds away; what makes them again.
fn unguarded(database: &Connection) -> Vec<String> {
    let select = "SELECT type, name, sql FROM sqlite_schema \
                  WHERE type IN ('trigger', 'index') AND tbl_name IN ('booking', 'hold') AND sql LIKE 'CREATE %' \
                  AND (type = 'trigger' OR sql LIKE 'CREATE UNIQUE %')";
    let mut statement = database.prepare(select).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let guards: Vec<(String, String, String)> = rows.map(|row| row.unwrap()).collect();
    assert_eq!(guards.len(), 10, "{guards:?}");
    for (kind, name, _) in &guards {
        database.execute_batch(&format!("DROP {kind} {name}")).expect("a guard can be dropped");
    }
    guards.into_iter().map(|(.., sql)| sql).collect()
}

/// Books a window a second time, behind everybody's back, so many microseconds later.
fn plant(database: &Connection, planted: &str, booking: &Value, later: i64) {
    let copy = "INSERT INTO booking (id, resource_id, holder, starts_at, ends_at, status, claims, created_at) \
                SELECT ?1, resource_id, 'planted', starts_at + ?3, ends_at + ?3, status, 1, created_at \
                FROM booking WHERE id = ?2";
    let values = (planted, text(&booking["id"]), later);
    assert_eq!(database.execute(copy, values).expect("the row can be planted"), 1);
}

/// Waits until the node is called unready; its reasons.
fn unready(lab: &Lab) -> Vec<String> {
    let admin = lab.door("host");
    let told = eventually("the duplicate is found", BOUND, || {
        let told = admin.get("/v1/readyz");
        (told.status == 503).then_some(told)
    });
    assert_eq!(told.body["ready"], false);
    told.body["reasons"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn a_planted_duplicate_pauses_new_holds_within_an_interval_and_after_repair_and_resume_all_is_green() {
    let mut lab = host(QUICK);
    let [ci] = agents(&lab, ["ci"]);
    let admin = lab.door("host");
    let noon = ahead(86_400);
    let booking = booked(&ci, "board", noon, HOUR);
    let [to_confirm, to_release] = [2, 4].map(|hours| held(&ci, "board", after(noon, hours * HOUR), HOUR));
    admin.get("/v1/readyz").expect(200);
    assert_eq!(admin.get("/v1/doctor").expect(200).body["ok"], true);

    // 1. Detect.
    let database = operator(&lab);
    let guards = unguarded(&database);
    let planted = jiff::Timestamp::now();
    plant(&database, PLANTED, &booking, 1);
    let reasons = unready(&lab);
    let took = jiff::Timestamp::now().duration_since(planted);
    assert!(took.as_millis() < 3_000, "found after {took}");
    let names = |reason: &str| [&text(&booking["id"]), PLANTED].iter().all(|id| reason.contains(*id));
    assert!(reasons.iter().any(|reason| reason.contains("board") && names(reason)), "{reasons:?}");
    let violated = eventually("the log tells of it", BOUND, || {
        Some(events(&admin, "invariant.violated")).filter(|violated| !violated.is_empty())
    });
    assert_eq!((violated.len(), &violated[0]["payload"]["resourceId"]), (1, &json!("board")), "{violated:?}");
    assert!(!violated[0]["payload"].to_string().contains("\"ci"), "nothing about whose: {violated:?}");
    let doctor = admin.get("/v1/doctor").expect(200).body;
    assert_eq!((&doctor["ok"], &doctor["holdsPaused"]), (&json!(false), &json!(true)));
    assert!(names(&doctor["violations"].to_string()), "{doctor}");

    // 2. New holds are paused, on every resource; what is there goes on.
    let again = |hours: i64, resource: &str| hold(&ci, resource, &window(after(noon, hours * HOUR), HOUR));
    for resource in ["board", "bench"] {
        let told = again(6, resource).refused("HOLDS_PAUSED", 503);
        assert!(told.header("retry-after").is_some(), "when to ask again");
    }
    to_confirm.confirm(&ci).expect(200);
    to_release.release(&ci).expect(200);
    booked(&ci, "bench", noon, HOUR);
    let told = admin.post("/v1/holds/resume", &json!({})).refused("HOLDS_PAUSED", 503);
    assert!(names(told.message()) && told.message().contains("repair"), "{}", told.body);
    // It stays so over a kill, and is told once.
    drop(database);
    lab.kill_9("host");
    lab.start("host");
    lab.wait_listening("host");
    assert!(unready(&lab).iter().any(|reason| names(reason)));
    again(6, "board").refused("HOLDS_PAUSED", 503);

    // 3. Repair.
    let database = operator(&lab);
    assert_eq!(database.execute("DELETE FROM booking WHERE id = ?1", [PLANTED]).unwrap(), 1);
    for guard in &guards {
        database.execute_batch(guard).expect("the guard can be made again");
    }
    no_overlap(&reader(&lab));
    // That alone resumes nothing, but the reason says what is missing.
    eventually("it is found to be repaired", BOUND, || {
        let doctor = admin.get("/v1/doctor").expect(200).body;
        (doctor["ok"] == true && doctor["holdsPaused"] == true).then_some(())
    });
    let reasons = unready(&lab);
    assert!(reasons.iter().any(|reason| reason.contains("holds resume")), "{reasons:?}");
    again(6, "bench").refused("HOLDS_PAUSED", 503);

    // 4. Resume.
    assert_eq!(admin.post("/v1/holds/resume", &json!({})).expect(200).body, json!({ "paused": false }));
    admin.get("/v1/readyz").expect(200);
    let doctor = admin.get("/v1/doctor").expect(200).body;
    assert_eq!(doctor, json!({ "ok": true, "holdsPaused": false, "violations": [] }));
    Held::told(&again(6, "bench").expect(201)).confirm(&ci).expect(200);
    for kind in ["holds.paused", "holds.resumed"] {
        assert_eq!(events(&admin, kind).len(), 1, "{kind}");
    }
    no_overlap(&reader(&lab));
}

#[test]
fn a_duplicate_is_repaired_by_giving_one_of_the_two_up_after_a_restart_and_the_other_keeps_its_window() {
    // The same slot exactly, and a part of it.
    for (planted, later) in [(PLANTED, 0), (PLANTED_LAST, 0), (PLANTED, 1_000_000)] {
        let mut lab = host(QUICK);
        let [ci, other] = agents(&lab, ["ci", "other"]);
        let admin = lab.door("host");
        let noon = ahead(86_400);
        let booking = booked(&ci, "board", noon, HOUR);
        lab.kill_9("host");
        let database = operator(&lab);
        let guards = unguarded(&database);
        plant(&database, planted, &booking, later);
        drop(database);
        // A start that finds it says so before anything is asked.
        lab.start("host");
        lab.wait_listening("host");
        assert!(unready(&lab).iter().any(|reason| reason.contains(planted)));
        hold(&ci, "bench", &window(noon, HOUR)).refused("HOLDS_PAUSED", 503);
        let told = admin.delete(&format!("/v1/bookings/{planted}")).expect(200).body;
        assert_eq!(told["booking"]["status"], "cancelled");
        // The other one has its window as before.
        for ms in [HOUR, 1_000] {
            let told = book(&other, "board", &window(noon, ms)).refused("BOOKING_CONFLICT", 409);
            assert_eq!(told.details()["bookingId"], booking["id"], "{planted} {later}");
        }
        let database = operator(&lab);
        for guard in &guards {
            database.execute_batch(guard).expect("the guard can be made again");
        }
        assert_eq!(admin.post("/v1/holds/resume", &json!({})).expect(200).body, json!({ "paused": false }));
        admin.get("/v1/readyz").expect(200);
        hold(&ci, "bench", &window(noon, HOUR)).expect(201);
        assert_eq!(no_overlap(&reader(&lab)).len(), 2);
    }
}

#[test]
fn two_exclusive_leases_of_a_resource_are_found_too() {
    let lab = host(QUICK);
    let [ci] = agents(&lab, ["ci"]);
    let lease = text(&crate::waiting::acquire(&ci, "board", json!({})).expect(201).body["lease"]["id"]);
    let database = operator(&lab);
    let select = "SELECT name, type FROM sqlite_schema WHERE tbl_name = 'lease' AND sql IS NOT NULL \
                  AND (type = 'trigger' OR sql LIKE 'CREATE UNIQUE %')";
    let mut statement = database.prepare(select).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let guards: Vec<(String, String)> = rows.map(|row| row.unwrap()).collect();
    drop(statement);
    for (name, kind) in guards {
        database.execute_batch(&format!("DROP {kind} {name}")).unwrap();
    }
    database
        .execute_batch("CREATE TEMP TABLE twin AS SELECT * FROM lease; UPDATE twin SET id = 'twin', request_id = 'twin', fence = fence + 1")
        .unwrap();
    database.execute_batch("INSERT INTO lease SELECT * FROM twin").unwrap();
    let reasons = unready(&lab);
    assert!(reasons.iter().any(|reason| reason.contains(&lease) && reason.contains("twin")), "{reasons:?}");
    hold(&ci, "bench", &window(ahead(7_200), HOUR)).refused("HOLDS_PAUSED", 503);
    database.execute("DELETE FROM lease WHERE id = 'twin'", []).unwrap();
    let admin = lab.door("host");
    assert_eq!(admin.post("/v1/holds/resume", &json!({})).expect(200).body, json!({ "paused": false }));
    admin.get("/v1/readyz").expect(200);
    hold(&ci, "bench", &window(ahead(7_200), HOUR)).expect(201);
}

#[test]
fn an_admin_pauses_and_resumes_new_holds_everywhere_or_on_one_resource_and_a_restart_keeps_it() {
    let mut lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let viewer = principal(&lab, "wall", "viewer");
    let admin = lab.door("host");
    let slot = |hours: i64| window(ahead(7_200 + hours * 3_600), HOUR);
    let there = held(&ci, "board", ahead(86_400), HOUR);
    for path in ["/v1/holds/pause", "/v1/holds/resume", "/v1/resources/board/holds/pause"] {
        for door in [&ci, &viewer] {
            door.post(path, &json!({})).refused("INSUFFICIENT_PERMISSIONS", 403);
        }
    }
    admin.post("/v1/resources/none/holds/pause", &json!({})).refused("UNKNOWN_RESOURCE", 404);
    let pause = |path: &str, paused: bool| {
        let told = admin.post(path, &json!({})).expect(200).body;
        assert_eq!(told, json!({ "paused": paused }));
    };
    // One resource.
    pause("/v1/resources/board/holds/pause", true);
    pause("/v1/resources/board/holds/pause", true);
    hold(&ci, "board", &slot(0)).refused("HOLDS_PAUSED", 503);
    held(&ci, "bench", ahead(7_200), HOUR);
    admin.get("/v1/readyz").expect(200);
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    hold(&ci, "board", &slot(0)).refused("HOLDS_PAUSED", 503);
    there.confirm(&ci).expect(200);
    booked(&ci, "board", ahead(7_200), HOUR);
    pause("/v1/resources/board/holds/resume", false);
    hold(&ci, "board", &slot(2)).expect(201);
    // All.
    pause("/v1/holds/pause", true);
    for resource in ["board", "bench"] {
        hold(&ci, resource, &slot(4)).refused("HOLDS_PAUSED", 503);
    }
    // An operator's own pause is nothing that is wrong with the node.
    admin.get("/v1/readyz").expect(200);
    assert_eq!(admin.get("/v1/doctor").expect(200).body["holdsPaused"], true);
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    hold(&ci, "bench", &slot(4)).refused("HOLDS_PAUSED", 503);
    pause("/v1/holds/resume", false);
    hold(&ci, "bench", &slot(4)).expect(201);
    assert_eq!((events(&admin, "holds.paused").len(), events(&admin, "holds.resumed").len()), (2, 2));
}
