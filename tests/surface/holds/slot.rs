//! The life of a hold: made, confirmed, given back, over. What the note on contested slots asks for stands here by name;
//! who wins at the same time is in `contested`.

use serde_json::{Value, json};

use super::{Held, held, hold, listed, same};
use crate::bookings::{
    HOUR, after, ahead, book, booked, claims, comes_to, no_overlap, path, reader, shown, soon, until, window, written,
};
use crate::patience::{BOUND, eventually};
use crate::waiting::{agents, events, host, principal, text, time};

#[test]
fn a_hold_claims_a_slot_and_its_token_turns_it_into_a_booking_of_its_holder() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    let mut body = window(starts_at, HOUR);
    (body["ttlMs"], body["requester"]) = (json!(60_000), json!("job-1"));
    let told = hold(&ci, "board", &body).expect(201);
    let made = Held::told(&told);
    let id = text(&made.hold["id"]);
    assert_eq!(told.header("location"), Some(format!("/v1/holds/{id}").as_str()));
    assert_eq!(told.header("cache-control"), Some("no-store"));
    let expected = json!({
        "id": id, "resourceId": "board", "holderId": "ci/job-1", "startsAt": written(starts_at),
        "endsAt": written(after(starts_at, HOUR)), "expiresAt": made.hold["expiresAt"], "status": "active",
    });
    assert_eq!(made.hold, expected);
    let left = time(&made.hold["expiresAt"]).duration_since(jiff::Timestamp::now()).as_millis();
    assert!((50_000..=60_000).contains(&left), "it ends in {left} ms");
    book(&other, "board", &window(starts_at, HOUR)).refused("SLOT_HELD", 409);

    // Whoever shows the token may: the booking is the holder's.
    let confirm = json!({ "token": made.token, "note": "paid" });
    let told = other.post(&format!("{}/confirm", made.path()), &confirm).expect(200).body;
    assert_eq!(told["booking"].get("holderId"), None, "whose is not for everybody");
    let booking = shown(&ci, &told["booking"]);
    assert_eq!((&booking["holderId"], &booking["note"]), (&json!("ci/job-1"), &json!("paid")));
    assert_eq!((&booking["startsAt"], &booking["endsAt"]), (&made.hold["startsAt"], &made.hold["endsAt"]));
    let after = made.shown(&ci);
    assert_eq!((&after["status"], &after["bookingId"]), (&json!("confirmed"), &booking["id"]));
    // Twice with the same token is as good as once, also from another.
    for door in [&ci, &other] {
        assert_eq!(made.confirm(door).expect(200).body["booking"]["id"], booking["id"]);
    }
    let told = made.release(&ci).refused("HOLD_EXPIRED", 410);
    assert_eq!(told.details()["bookingId"], booking["id"]);
    let admin = lab.door("host");
    for kind in ["hold.created", "hold.confirmed", "booking.created"] {
        assert_eq!(events(&admin, kind).len(), 1, "{kind}");
    }
    assert_eq!(no_overlap(&reader(&lab)).len(), 1);
    // The booking given up, the slot is free, and the token opens nothing.
    ci.delete(&path(&booking)).expect(200);
    assert_eq!(made.confirm(&ci).expect(200).body["booking"]["status"], "cancelled");
    held(&other, "board", starts_at, HOUR);
}

#[test]
fn a_hold_is_given_back_with_its_token_or_by_an_admin_and_the_slot_is_free() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let admin = lab.door("host");
    let starts_at = ahead(7_200);
    let first = held(&ci, "board", starts_at, HOUR);
    // Whoever shows the token may, and does not hear whose it was.
    let told = first.release(&other).expect(200).body;
    let mut released = first.hold.clone();
    released["status"] = json!("released");
    released.as_object_mut().unwrap().remove("holderId");
    same(&told["hold"], &released);
    assert_eq!(first.release(&ci).expect(200).body["hold"]["status"], "released");
    let told = first.confirm(&ci).refused("HOLD_EXPIRED", 410);
    assert!(told.message().contains("released"), "{}", told.body);
    let second = held(&other, "board", starts_at, HOUR);
    // Its own holder needs the token like everybody else.
    other.delete(&second.path()).refused("INSUFFICIENT_PERMISSIONS", 403);
    assert_eq!(admin.delete(&second.path()).expect(200).body["hold"]["status"], "released");
    let reasons: Vec<Value> =
        events(&admin, "hold.released").into_iter().map(|event| event["payload"]["reason"].clone()).collect();
    assert_eq!(reasons, [json!("explicit"), json!("admin")]);
    assert_eq!(claims(&reader(&lab)), []);
}

#[test]
fn a_hold_ends_at_its_time_by_itself_and_never_stops_anybody_after_that() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let starts_at = ahead(7_200);
    let mut body = window(starts_at, HOUR);
    for round in 0..4 {
        body["ttlMs"] = json!(150 + 20 * round);
        let made = Held::told(&hold(&ci, "board", &body).expect(201));
        let ends_at = time(&made.hold["expiresAt"]);
        // From the first moment on: whether its end has been written down by then or not.
        until(ends_at);
        let next = book(&other, "board", &window(starts_at, HOUR));
        let next = if next.code() == "SLOT_HELD" {
            // Both clocks are read by the node, and the wall clock may be a little ahead of boot time.
            until(after(ends_at, 20));
            book(&other, "board", &window(starts_at, HOUR))
        } else {
            next
        };
        other.delete(&path(&next.expect(201).body["booking"])).expect(200);
        let told = made.confirm(&ci).refused("HOLD_EXPIRED", 410);
        assert_eq!(told.details()["holdId"], made.hold["id"]);
        assert_eq!(made.shown(&ci)["status"], "expired");
        assert_eq!(made.release(&ci).expect(200).body["hold"]["status"], "expired", "it is gone, as was wanted");
    }
    // Without anybody's asking as well.
    let made = Held::told(&hold(&ci, "board", &body).expect(201));
    let over = eventually("the hold is over", BOUND, || {
        let expired = events(&lab.door("host"), "hold.expired");
        expired.into_iter().find(|event| event["payload"]["holdId"] == made.hold["id"])
    });
    let late = time(&over["timestamp"]).duration_since(time(&made.hold["expiresAt"])).as_millis();
    assert!((-20..1_000).contains(&late), "written {late} ms after its time");
}

#[test]
fn a_booking_of_one_s_own_held_slot_confirms_the_hold() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = ahead(7_200);
    let made = held(&ci, "board", starts_at, HOUR);
    // Of a part of it, or of more, it is not the same slot.
    for (from, ms) in [(0, HOUR - 1), (1, HOUR - 1), (0, HOUR + 1)] {
        book(&ci, "board", &window(after(starts_at, from), ms)).refused("SLOT_HELD", 409);
    }
    let booking = booked(&ci, "board", starts_at, HOUR);
    let confirmed = made.shown(&ci);
    assert_eq!((&confirmed["status"], &confirmed["bookingId"]), (&json!("confirmed"), &booking["id"]));
    assert_eq!(made.confirm(&ci).expect(200).body["booking"]["id"], booking["id"]);
    no_overlap(&reader(&lab));
}

#[test]
fn a_hold_lasts_as_long_as_is_asked_up_to_a_bound() {
    let lab = host("[holds]\ndefault_ttl = \"2m\"\nmax_ttl = \"5m\"");
    let [ci] = agents(&lab, ["ci"]);
    let ends_in = |body: Value, resource: &str| {
        let made = Held::told(&hold(&ci, resource, &body).expect(201));
        time(&made.hold["expiresAt"]).duration_since(jiff::Timestamp::now()).as_millis()
    };
    let mut body = window(ahead(7_200), HOUR);
    assert!((110_000..=120_000).contains(&ends_in(body.clone(), "board")));
    body["ttlMs"] = json!(300_000);
    assert!((290_000..=300_000).contains(&ends_in(body.clone(), "bench")));
    body["ttlMs"] = json!(300_001);
    let told = hold(&ci, "pixel-a", &body).refused("BAD_REQUEST", 400);
    assert_eq!(told.details()["field"], "ttlMs");
    assert!(told.message().contains("holds.max_ttl"), "{}", told.body);
    assert_eq!(listed(&ci, "pixel-a"), Vec::<Value>::new());
}

#[test]
fn a_slot_that_has_begun_can_be_confirmed_and_one_that_is_over_cannot() {
    let lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let starts_at = soon(800);
    let (short, long) = (held(&ci, "board", starts_at, 300), held(&ci, "bench", starts_at, HOUR));
    until(after(starts_at, 350));
    let told = short.confirm(&ci).refused("BAD_REQUEST", 400);
    assert!(told.message().contains("is over"), "{}", told.body);
    let booking = long.confirm(&ci).expect(200).body["booking"].take();
    comes_to(&ci, &booking, "scheduled");
}

#[test]
fn a_hold_is_read_by_its_holder_and_an_admin_only() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    let (viewer, admin) = (principal(&lab, "wall", "viewer"), lab.door("host"));
    let starts_at = ahead(7_200);
    let made = held(&ci, "board", starts_at, HOUR);
    let others = held(&other, "board", after(starts_at, HOUR), HOUR);
    for door in [&ci, &admin] {
        same(&made.shown(door), &made.hold);
    }
    for (door, holds) in [(&ci, vec![&made]), (&admin, vec![&others, &made])] {
        let listed = listed(door, "board");
        assert_eq!(listed.len(), holds.len());
        listed.iter().zip(holds).for_each(|(shown, held)| same(shown, &held.hold));
    }
    for door in [&other, &viewer] {
        door.get(&made.path()).refused("INSUFFICIENT_PERMISSIONS", 403);
    }
    viewer.get("/v1/resources/board/holds").refused("INSUFFICIENT_PERMISSIONS", 403);
    hold(&viewer, "bench", &window(starts_at, HOUR)).refused("INSUFFICIENT_PERMISSIONS", 403);
    // Not even with the token does a viewer change anything.
    made.confirm(&viewer).refused("INSUFFICIENT_PERMISSIONS", 403);
    made.release(&viewer).refused("INSUFFICIENT_PERMISSIONS", 403);
    assert_eq!(made.shown(&ci)["status"], "active");
    // In the log they are for admins, and one's own.
    for (door, count) in [(&admin, 2), (&ci, 1), (&other, 1), (&viewer, 0)] {
        assert_eq!(events(door, "hold.created").len(), count);
    }
}
