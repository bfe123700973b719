//! A node that is killed while slots are held, confirmed and given back: whatever was answered is there, and no two
//! claims overlap.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{Held, hold, rounds, same};
use crate::bookings::{HOUR, MINUTE, after, ahead, no_overlap, reader, until, window};
use crate::http::{Answer, Call, Door};
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};
use crate::waiting::{agents, events, host, principal, text, time};

const CUSTOMERS: usize = 3;
const KILLS: usize = 8;

/// What somebody was told last of a hold. Asked for something and not answered, it may be either.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    Active,
    Confirmed(String),
    Released,
    Asked,
}

/// What all of them were told.
#[derive(Default)]
struct Told {
    holds: Mutex<BTreeMap<String, (Held, Known)>>,
    /// The slot that is asked for next; two ask for each.
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Told {
    fn holds(&self) -> MutexGuard<'_, BTreeMap<String, (Held, Known)>> {
        self.holds.lock().unwrap()
    }

    fn know(&self, held: &Held, known: Known) {
        self.holds().insert(text(&held.hold["id"]), (held.clone(), known));
    }
}

/// Holds slots until it is stopped, and confirms or releases some of them. What is not answered is not asked again.
fn customer(door: &Door, told: &Told, from: Timestamp) {
    let send = |method: &str, path: &str, body: &Value, token: &str| -> Option<Answer> {
        let call = Call { method, ..Call::json(path, &body.to_string()) };
        let call = if token.is_empty() { call } else { call.header("Berth-Hold-Token", token) };
        let answer = door.try_send(&call).ok();
        if answer.is_none() {
            // The node is away; it is back in some moments.
            thread::sleep(Duration::from_millis(5));
        }
        answer.filter(|answer| answer.code() != "STOPPING")
    };
    while !told.stop.load(Ordering::SeqCst) {
        let slot = told.next.fetch_add(1, Ordering::SeqCst) / 2;
        let mut body = window(after(from, slot as i64 * 10_000), 10_000);
        body["ttlMs"] = json!(20 * MINUTE);
        let Some(answer) = send("POST", "/v1/resources/board/holds", &body, "") else { continue };
        if answer.status != 201 {
            answer.refused("HOLD_CONFLICT", 409);
            continue;
        }
        let held = Held::told(&answer);
        told.know(&held, Known::Active);
        match slot % 3 {
            0 => {
                told.know(&held, Known::Asked);
                let body = json!({ "token": held.token });
                let Some(answer) = send("POST", &format!("{}/confirm", held.path()), &body, "") else { continue };
                told.know(&held, Known::Confirmed(text(&answer.expect(200).body["booking"]["id"])));
            }
            1 => {
                told.know(&held, Known::Asked);
                let Some(answer) = send("DELETE", &held.path(), &json!({}), &held.token) else { continue };
                answer.expect(200);
                told.know(&held, Known::Released);
            }
            _ => {}
        }
    }
}

/// Everything that was answered before `answered` was taken is there, as it was answered.
#[track_caller]
fn bears_out(lab: &Lab, answered: &BTreeMap<String, (Held, Known)>) {
    let admin = lab.door("host");
    for (held, known) in answered.values() {
        let shown = held.shown(&admin);
        let status = match known {
            Known::Active => json!("active"),
            Known::Confirmed(booking) => {
                assert_eq!(shown["bookingId"], json!(booking), "{shown}");
                json!("confirmed")
            }
            Known::Released => json!("released"),
            Known::Asked => shown["status"].clone(),
        };
        assert_eq!(shown["status"], status, "{shown} was told to be {known:?}");
        for field in ["startsAt", "endsAt", "holderId", "resourceId"] {
            assert_eq!(shown[field], held.hold[field], "{shown}");
        }
        if *known == Known::Active {
            let off = time(&shown["expiresAt"]).duration_since(time(&held.hold["expiresAt"])).abs();
            assert!(off < SignedDuration::from_millis(250), "its end moved by {off}: {shown}");
        }
    }
    no_overlap(&reader(lab));
}

/// In the database each hold has its end and its event, whether anybody was told or not.
#[track_caller]
fn whole(lab: &Lab) {
    let database = reader(lab);
    let count = |select: &str| database.query_row(select, [], |row| row.get::<_, i64>(0)).unwrap();
    let created = "SELECT count(*) FROM event WHERE event = 'hold.created'";
    assert_eq!(count("SELECT count(*) FROM hold"), count(created), "each hold has its event, and each event its hold");
    assert_eq!(count("SELECT count(*) FROM hold WHERE expires_at <= created_at"), 0);
    let confirmed = "SELECT count(*) FROM hold JOIN booking ON booking.id = booking_id WHERE hold.status = 'confirmed'";
    assert_eq!(count("SELECT count(*) FROM booking"), count(confirmed), "each booking has its hold");
}

#[test]
fn whatever_was_answered_about_holds_is_there_after_a_kill_and_no_two_overlap() {
    let limits = "[limits]\nholds_per_principal = 10000\nbookings_per_principal = 10000\n[holds]\nmax_ttl = \"1h\"";
    let mut lab = host(limits);
    let doors: Vec<Door> = (0..CUSTOMERS).map(|it| principal(&lab, &format!("customer-{it}"), "agent")).collect();
    let (told, from) = (Told::default(), after(ahead(0), 48 * HOUR));
    // Moments that differ from run to run, and are said when one of them shows something.
    let mut dice = Timestamp::now().as_microsecond() as u64 | 1;
    println!("seed {dice}");
    thread::scope(|scope| {
        let customers: Vec<_> = doors.iter().map(|door| scope.spawn(|| customer(door, &told, from))).collect();
        let stop = StopAtEnd(&told);
        let mut kills = 0;
        while kills < rounds(KILLS) && customers.iter().all(|customer| !customer.is_finished()) {
            let before = told.holds().len();
            eventually("slots are held", BOUND, || (told.holds().len() > before + 5).then_some(()));
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            thread::sleep(Duration::from_micros((dice >> 33) % 60_000));
            lab.kill_9("host");
            // What anybody knows by now was answered before the kill.
            let answered = told.holds().clone();
            lab.start("host");
            lab.wait_ready("host");
            bears_out(&lab, &unchanged(answered, &told.holds()));
            kills += 1;
        }
        drop(stop);
        for customer in customers {
            customer.join().expect("a customer has failed");
        }
    });
    bears_out(&lab, &told.holds());
    whole(&lab);
    let admin = lab.door("host");
    assert_eq!(events(&admin, "invariant.violated"), Vec::<Value>::new());
    admin.get("/v1/readyz").expect(200);
    println!("{} holds were told of", told.holds().len());
}

#[test]
fn a_hold_that_ended_while_the_node_was_down_stops_nobody_from_its_first_moment_on() {
    let mut lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    let mut body = window(starts_at, HOUR);
    body["ttlMs"] = json!(600);
    let short = Held::told(&hold(&ci, "board", &body).expect(201));
    body["ttlMs"] = json!(60_000);
    let long = Held::told(&hold(&ci, "bench", &body).expect(201));
    lab.kill_9("host");
    until(time(&short.hold["expiresAt"]));
    lab.start("host");
    lab.wait_listening("host");
    // Until admission opens this waits; then the end of the hold is settled already.
    let made = hold(&other, "board", &body).expect(201);
    assert_eq!(made.body["hold"]["holderId"], "other");
    short.confirm(&ci).refused("HOLD_EXPIRED", 410);
    same(&long.shown(&ci), &long.hold);
    let expired = events(&lab.door("host"), "hold.expired");
    assert_eq!((expired.len(), &expired[0]["payload"]["holdId"]), (1, &short.hold["id"]));
    long.confirm(&ci).expect(200);
    no_overlap(&reader(&lab));
}

/// Of what was known then, what nobody has changed since.
fn unchanged(
    then: BTreeMap<String, (Held, Known)>,
    now: &BTreeMap<String, (Held, Known)>,
) -> BTreeMap<String, (Held, Known)> {
    then.into_iter().filter(|(id, (_, known))| now.get(id).is_some_and(|(_, now)| now == known)).collect()
}

/// Lets the customers end however the test does.
struct StopAtEnd<'a>(&'a Told);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}
