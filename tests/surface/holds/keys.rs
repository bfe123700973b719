//! The same hold again, under the caller's name for the attempt: what was lost on the way is asked for once more.

use serde_json::{Value, json};

use super::clients::{Clients, Turn};
use super::contested::{another, secret, technicians};
use super::{Held, hold, listed, rounds, same};
use crate::bookings::{HOUR, after, ahead, claims, no_overlap, path, reader, window, written};
use crate::http::{Call, Door};
use crate::waiting::{agents, events, host, principal, text};

fn under(key: &str, mut body: Value) -> Value {
    body["idempotencyKey"] = json!(key);
    body
}

#[test]
fn asking_again_under_the_key_answers_the_same_hold_with_a_new_token_and_the_old_one_is_dead() {
    let mut lab = host("[limits]\nholds_per_principal = 1");
    let [ci] = agents(&lab, ["ci"]);
    let body = under("k 1", window(ahead(7_200), HOUR));
    let first = Held::told(&hold(&ci, "board", &body).expect(201));
    // As a header, named by its end, and however long it is to last: the same attempt on the same slot.
    let mut again = json!({ "startsAt": first.hold["startsAt"], "endsAt": first.hold["endsAt"] });
    again["ttlMs"] = json!(60_000);
    let text = again.to_string();
    let call = Call::json("/v1/resources/board/holds", &text).header("Idempotency-Key", "k 1");
    let second = Held::told(&ci.send(&call).expect(201));
    same(&second.hold, &first.hold);
    assert_ne!(second.token, first.token);
    first.confirm(&ci).refused("INSUFFICIENT_PERMISSIONS", 403);
    first.release(&ci).refused("INSUFFICIENT_PERMISSIONS", 403);
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    first.confirm(&ci).refused("INSUFFICIENT_PERMISSIONS", 403);
    let third = Held::told(&hold(&ci, "board", &body).expect(201));
    assert_eq!(third.hold["id"], first.hold["id"]);
    second.confirm(&ci).refused("INSUFFICIENT_PERMISSIONS", 403);
    assert_eq!(listed(&ci, "board").len(), 1);
    assert_eq!(events(&lab.door("host"), "hold.created").len(), 1);
    third.confirm(&ci).expect(200);
    // The attempt is over; the key is free for another.
    let told = hold(&ci, "board", &under("k 1", window(after(ahead(7_200), 2 * HOUR), HOUR))).expect(201);
    assert_ne!(told.body["hold"]["id"], first.hold["id"]);
}

#[test]
fn a_key_stands_for_one_slot_of_one_holder() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    let first = Held::told(&hold(&ci, "board", &under("k", window(starts_at, HOUR))).expect(201));
    for (resource, body) in [
        ("board", window(after(starts_at, HOUR), HOUR)),
        ("board", window(starts_at, HOUR - 1)),
        ("bench", window(starts_at, HOUR)),
    ] {
        hold(&ci, resource, &under("k", body)).refused("IDEMPOTENCY_CONFLICT", 409);
    }
    // Another's key of the same name is another key, and the slot is taken.
    hold(&other, "board", &under("k", window(starts_at, HOUR))).refused("HOLD_CONFLICT", 409);
    let mut mine = under("k", window(starts_at, HOUR));
    mine["requester"] = json!("job-1");
    hold(&ci, "board", &mine).refused("HOLD_CONFLICT", 409);
    hold(&ci, "board", &window(starts_at, HOUR)).refused("HOLD_CONFLICT", 409);
    let both = Call::json("/v1/resources/board/holds", &mine.to_string()).header("Idempotency-Key", "other");
    assert_eq!(ci.send(&both).refused("BAD_REQUEST", 400).details()["field"], "idempotencyKey");
    // None of that has touched the hold.
    first.confirm(&ci).expect(200);
    assert_eq!(claims(&reader(&lab)).len(), 1);
}

#[test]
fn of_attempts_under_one_key_at_once_all_get_one_hold_and_one_token_works() {
    let lab = technicians("");
    let secret = secret(&lab, "customer");
    let door = Door::tcp(lab.port("host")).with_token(&secret);
    let mut clients = Clients::start(4);
    for round in 0..rounds(30) {
        let (technician, starts_at) = another(round);
        let turn = || Turn {
            port: lab.port("host"),
            secret: &secret,
            method: "POST",
            path: format!("/v1/resources/{technician}/holds"),
            body: under("k", window(starts_at, HOUR)),
            hold_token: None,
        };
        let told = clients.send(&[turn(), turn(), turn(), turn()]);
        let made: Vec<Held> = told
            .iter()
            .map(|told| {
                assert_eq!(told.status, 201, "round {round}: {told:?}");
                Held { hold: told.body["hold"].clone(), token: text(&told.body["token"]) }
            })
            .collect();
        assert!(made.iter().all(|it| it.hold["id"] == made[0].hold["id"]), "round {round}: {made:?}");
        no_overlap(&reader(&lab));
        // The last of them; which one that was shows only here.
        let opens = made.iter().filter(|it| it.release(&door).status == 200).count();
        assert_eq!(opens, 1, "round {round}");
    }
    assert_eq!(events(&lab.door("host"), "hold.created").len(), rounds(30));
}

#[test]
fn of_holds_that_are_asked_for_at_once_no_more_are_made_than_one_may_have() {
    let lab = host("[limits]\nholds_per_principal = 1\nbookings_per_principal = 1");
    let secret = secret(&lab, "customer");
    let door = Door::tcp(lab.port("host")).with_token(&secret);
    let mut clients = Clients::start(4);
    for round in 0..rounds(20) {
        let what = ["holds", "bookings"][round % 2];
        let turns = ["board", "board", "bench", "pixel-a"].iter().enumerate().map(|(client, resource)| Turn {
            port: lab.port("host"),
            secret: &secret,
            method: "POST",
            path: format!("/v1/resources/{resource}/{what}"),
            body: window(after(ahead(86_400), client as i64 * HOUR), HOUR),
            hold_token: None,
        });
        let told = clients.send(&turns.collect::<Vec<_>>());
        let (made, refused): (Vec<_>, Vec<_>) = told.iter().partition(|told| told.status == 201);
        assert_eq!(made.len(), 1, "round {round}: {told:?}");
        assert!(refused.iter().all(|told| (told.code(), told.status) == ("RATE_LIMITED", 429)), "{told:?}");
        assert_eq!(claims(&reader(&lab)).len(), 1, "round {round}");
        let gone = match what {
            "holds" => lab.door("host").delete(&format!("/v1/holds/{}", text(&made[0].body["hold"]["id"]))),
            _ => door.delete(&path(&made[0].body["booking"])),
        };
        gone.expect(200);
    }
}

#[test]
fn a_refused_attempt_leaves_its_key_free_and_so_does_one_that_is_over() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    let taken = Held::told(&hold(&other, "board", &window(starts_at, HOUR)).expect(201));
    hold(&ci, "board", &under("k", window(starts_at, HOUR))).refused("HOLD_CONFLICT", 409);
    taken.release(&other).expect(200);
    let first = Held::told(&hold(&ci, "board", &under("k", window(starts_at, HOUR))).expect(201));
    first.release(&ci).expect(200);
    let second = Held::told(&hold(&ci, "board", &under("k", window(starts_at, HOUR))).expect(201));
    assert_ne!(second.hold["id"], first.hold["id"]);
    // A pause stops what is new, not what was lost on the way.
    lab.door("host").post("/v1/holds/pause", &json!({})).expect(200);
    let again = Held::told(&hold(&ci, "board", &under("k", window(starts_at, HOUR))).expect(201));
    assert_eq!(again.hold["id"], second.hold["id"]);
    let viewer = principal(&lab, "wall", "viewer");
    hold(&viewer, "board", &json!({ "startsAt": written(starts_at), "durationMs": HOUR }))
        .refused("INSUFFICIENT_PERMISSIONS", 403);
}
