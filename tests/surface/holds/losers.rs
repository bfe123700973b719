//! What a loser is told: nothing of the winner, whoever that is, by whatever it has won, and however it asked.

use serde_json::{Value, json};

use super::{Held, hold};
use crate::bookings::{HOUR, after, ahead, book, booked, path, window};
use crate::http::Answer;
use crate::waiting::{agents, host};

type Whole = (u16, Vec<(String, String)>, Value);

#[track_caller]
fn loses(told: Answer) -> Whole {
    let told = told.refused("HOLD_CONFLICT", 409);
    assert_eq!(told.body["error"].get("details"), None, "{}", told.body);
    told.whole()
}

#[test]
fn the_loser_gets_a_conflict_without_another_customer_s_details() {
    let lab = host("");
    let [ci, other, loser] = agents(&lab, ["ci", "other", "loser"]);
    let starts_at = ahead(86_400);
    let body = window(starts_at, HOUR);
    let with = |key: &str, value: Value| {
        let mut body = body.clone();
        body[key] = value;
        body
    };
    let mut answers: Vec<(String, Whole)> = Vec::new();
    let mut lose = |what: &str| answers.push((what.to_owned(), loses(hold(&loser, "board", &body))));
    // Different winners of the slot, and different ways to have won it.
    for (what, door, body) in [
        ("a hold", &ci, body.clone()),
        ("another's", &other, body.clone()),
        ("of a sub-requester", &ci, with("requester", json!("job-1"))),
        ("for a short time", &ci, with("ttlMs", json!(60_000))),
        ("under a key", &ci, with("idempotencyKey", json!("k"))),
        ("of a part", &ci, window(after(starts_at, 1), 1)),
        ("of more", &ci, window(after(starts_at, -HOUR), 3 * HOUR)),
        ("one's own", &loser, body.clone()),
    ] {
        let made = Held::told(&hold(door, "board", &body).expect(201));
        lose(what);
        made.release(door).expect(200);
    }
    for (what, door, body) in [
        ("a booking", &ci, body.clone()),
        ("with a note", &ci, with("note", json!("secret plans"))),
        ("another's booking", &other, with("requester", json!("job-2"))),
        ("one's own booking", &loser, body.clone()),
        ("bookings about it", &ci, window(after(starts_at, -HOUR), 2 * HOUR)),
    ] {
        let booking = book(door, "board", &body).expect(201).body["booking"].take();
        lose(what);
        door.delete(&path(&booking)).expect(200);
    }
    let confirmed = Held::told(&hold(&ci, "board", &body).expect(201));
    confirmed.confirm(&ci).expect(200);
    lose("a confirmed hold");
    for (what, whole) in &answers {
        assert_eq!(*whole, answers[0].1, "{what} shows");
    }
    // However the loser asks.
    for body in [with("ttlMs", json!(1_000)), with("requester", json!("job-9")), with("idempotencyKey", json!("k"))] {
        assert_eq!(loses(hold(&loser, "board", &body)), answers[0].1, "{body}");
    }
    let text = format!("{:?}", answers[0].1);
    for secret in ["ci", "other", "job", "secret", "hold_", "book_"] {
        let word = format!("\"{secret}");
        assert!(!text.contains(&word), "{secret} is in {text}");
    }
}

#[test]
fn a_loser_who_books_is_told_that_the_slot_is_held_and_nothing_of_whose() {
    let lab = host("");
    let [ci, other, loser] = agents(&lab, ["ci", "other", "loser"]);
    let starts_at = ahead(86_400);
    let mut answers = Vec::new();
    let own = booked(&loser, "board", after(starts_at, 4 * HOUR), HOUR);
    let move_there = json!({ "startsAt": crate::bookings::written(starts_at) });
    for (door, ms, ttl) in [(&ci, HOUR, 60_000), (&other, HOUR, 600_000), (&ci, 2 * HOUR, 60_000)] {
        let mut body = window(starts_at, ms);
        body["ttlMs"] = json!(ttl);
        let made = Held::told(&hold(door, "board", &body).expect(201));
        for told in [book(&loser, "board", &window(starts_at, HOUR)), loser.patch(&path(&own), &move_there)] {
            let told = told.refused("SLOT_HELD", 409);
            assert_eq!(told.body["error"].get("details"), None, "{}", told.body);
            answers.push(told.whole());
        }
        made.release(door).expect(200);
    }
    assert!(answers.iter().all(|whole| *whole == answers[0]), "{answers:?}");
}
