//! Different things that happen to one slot at the same moment: a confirmation beside a confirmation, a release or a
//! booking; a hold beside a booking and somebody who walks up; two bookings that are moved. After each round no two
//! claims overlap.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::clients::{Clients, Told, Turn};
use super::contested::{another, secret, technicians};
use super::{Held, held, rounds};
use crate::bookings::{HOUR, MINUTE, after, booked, claims, no_overlap, path, reader, shown, window, written};
use crate::http::Door;
use crate::lab::Lab;
use crate::waiting::{events, text};

/// Two customers or three, each with a process of its own.
struct Customers {
    lab: Lab,
    secrets: Vec<String>,
    clients: Clients,
}

impl Customers {
    fn new(count: usize, settings: &str) -> Self {
        let lab = technicians(settings);
        let secrets = (0..count).map(|customer| secret(&lab, &format!("customer-{customer}"))).collect();
        Self { lab, secrets, clients: Clients::start(count) }
    }

    fn door(&self, customer: usize) -> Door {
        Door::tcp(self.lab.port("host")).with_token(&self.secrets[customer])
    }

    /// Has each of them send its own: a method, a path, a body, and the token of a hold if any.
    #[track_caller]
    fn send<const N: usize>(&mut self, calls: [(&str, String, Value, Option<&str>); N]) -> [Told; N] {
        let port = self.lab.port("host");
        let turns: Vec<Turn<'_>> = calls
            .into_iter()
            .zip(&self.secrets)
            .map(|((method, path, body, hold_token), secret)| Turn { port, secret, method, path, body, hold_token })
            .collect();
        self.clients.send(&turns).try_into().expect("each was told something")
    }
}

#[test]
fn a_hold_that_two_clients_turn_into_a_booking_at_once_becomes_one_booking() {
    let mut two = Customers::new(2, "");
    let (database, holder) = (reader(&two.lab), two.door(0));
    for round in 0..rounds(60) {
        let (technician, starts_at) = another(round);
        let made = held(&holder, &technician, starts_at, HOUR);
        let confirm = ("POST", format!("{}/confirm", made.path()), json!({ "token": made.token }), None);
        let create = format!("/v1/resources/{technician}/bookings");
        // The same confirmation twice, or beside it a booking of the slot by its holder.
        let (first, kind) = match round % 2 {
            0 => (confirm.clone(), 200),
            _ => (("POST", create, window(starts_at, HOUR), None), 201),
        };
        let [one, other] = two.send([first, confirm]);
        let booking = if one.status == kind { one.body["booking"]["id"].clone() } else { Value::Null };
        if round % 2 == 0 || one.status == kind {
            assert_eq!((one.status, other.status), (kind, 200), "round {round}: {one:?} {other:?}");
            assert_eq!(booking, other.body["booking"]["id"], "round {round}");
        } else {
            // The confirmation came first, and the slot is booked.
            assert_eq!((one.code(), other.status), ("BOOKING_CONFLICT", 200), "round {round}: {one:?}");
            assert_eq!(one.body["error"]["details"]["bookingId"], other.body["booking"]["id"]);
        }
        assert_eq!(no_overlap(&database).len(), round + 1);
        assert_eq!(made.shown(&holder)["bookingId"], other.body["booking"]["id"]);
    }
    let admin = two.lab.door("host");
    assert_eq!(events(&admin, "booking.created").len(), events(&admin, "hold.confirmed").len());
}

#[test]
fn of_a_confirmation_and_a_release_at_once_exactly_one_happens() {
    let mut two = Customers::new(2, "");
    let (database, holder) = (reader(&two.lab), two.door(0));
    let mut booked = 0;
    for round in 0..rounds(40) {
        let (technician, starts_at) = another(round);
        let made = held(&holder, &technician, starts_at, HOUR);
        let [confirmed, released] = two.send([
            ("POST", format!("{}/confirm", made.path()), json!({ "token": made.token }), None),
            ("DELETE", made.path(), Value::Null, Some(&made.token)),
        ]);
        match made.shown(&holder)["status"].as_str() {
            Some("confirmed") => {
                booked += 1;
                assert_eq!((confirmed.status, released.code()), (200, "HOLD_EXPIRED"), "{released:?}");
            }
            Some("released") => assert_eq!((confirmed.code(), released.status), ("HOLD_EXPIRED", 200), "{confirmed:?}"),
            other => panic!("round {round}: {other:?}"),
        }
        assert_eq!(no_overlap(&database).len(), booked);
    }
}

#[test]
fn while_one_holds_another_books_and_a_third_walks_up_one_of_them_has_the_slot() {
    let mut three = Customers::new(3, "[bookings]\nmode = \"enforced\"\n[lease]\nmax_per_requester = 256");
    let database = reader(&three.lab);
    let mut first = [0; 3];
    for round in 0..rounds(60) {
        let technician = format!("tech-{}", 1 + round % 20);
        // The lease that is asked for reaches into the window.
        let starts_at = after(Timestamp::now(), 30 * MINUTE);
        let [held, booked, walked] = three.send([
            ("POST", format!("/v1/resources/{technician}/holds"), window(starts_at, HOUR), None),
            ("POST", format!("/v1/resources/{technician}/bookings"), window(starts_at, HOUR), None),
            ("POST", format!("/v1/resources/{technician}/leases"), json!({ "ttlMs": HOUR }), None),
        ]);
        // The slot is one's of the two who want it.
        match (held.status, booked.status) {
            (201, 409) => assert_eq!(booked.code(), "SLOT_HELD", "round {round}"),
            (409, 201) => assert_eq!(held.code(), "HOLD_CONFLICT", "round {round}"),
            _ => panic!("round {round}: {held:?} {booked:?}"),
        }
        assert_eq!(no_overlap(&database).len(), 1, "round {round}");
        // Whoever walks up comes before both of them, and is not renewed into the window, or is stopped.
        let door = three.door(2);
        match walked.status {
            201 => {
                first[2] += 1;
                let lease = format!("/v1/leases/{}", text(&walked.body["lease"]["id"]));
                let told = door.post(&format!("{lease}/renew"), &json!({})).refused("RESOURCE_BOOKED", 409);
                assert!(told.details()["availableForMs"].as_i64() <= Some(30 * MINUTE), "{}", told.body);
                door.delete(&lease).expect(200);
            }
            _ => {
                assert_eq!((walked.code(), walked.status), ("RESOURCE_BOOKED", 409), "round {round}");
                let text = walked.body.to_string();
                assert!(!text.contains("customer") && !text.contains("hold_") && !text.contains("book_"), "{text}");
            }
        }
        let (winner, made) = if held.status == 201 { (0, &held) } else { (1, &booked) };
        first[winner] += 1;
        if winner == 0 {
            let made = Held { hold: made.body["hold"].clone(), token: text(&made.body["token"]) };
            made.release(&three.door(0)).expect(200);
        } else {
            three.door(1).delete(&path(&made.body["booking"])).expect(200);
        }
        assert_eq!(claims(&database), []);
    }
    println!("won by the hold, by the booking, and walked up before both: {first:?}");
    assert!(first[0] > 0 && first[1] > 0, "the same one was always first: {first:?}");
}

#[test]
fn bookings_that_are_moved_across_each_other_never_overlap_and_a_free_window_is_one_s() {
    let mut two = Customers::new(2, "");
    let database = reader(&two.lab);
    let (one, other) = (two.door(0), two.door(1));
    let mut both = 0;
    for round in 0..rounds(60) {
        let (technician, starts_at) = another(round);
        let slot = |slot: i64| written(after(starts_at, slot * HOUR));
        let (first, second) =
            (booked(&one, &technician, starts_at, HOUR), booked(&other, &technician, after(starts_at, HOUR), HOUR));
        // Into each other's window; both into the same free one; the second into what the first leaves.
        let (to_first, to_second) = [(1, 0), (2, 2), (2, 0)][round % 3];
        let [moved, told] = two.send([
            ("PATCH", path(&first), json!({ "startsAt": slot(to_first) }), None),
            ("PATCH", path(&second), json!({ "startsAt": slot(to_second) }), None),
        ]);
        let (at_first, at_second) = (shown(&one, &first), shown(&other, &second));
        for (told, at, to, was) in [(&moved, &at_first, to_first, 0), (&told, &at_second, to_second, 1)] {
            match told.status {
                200 => assert_eq!(at["startsAt"], json!(slot(to)), "round {round}"),
                _ => {
                    assert_eq!((told.code(), told.status), ("BOOKING_CONFLICT", 409), "round {round}");
                    assert_eq!(at["startsAt"], json!(slot(was)), "the old window stays");
                }
            }
        }
        let won = [moved.status, told.status].iter().filter(|status| **status == 200).count();
        match round % 3 {
            0 => assert_eq!(won, 0, "neither leaves before the other has: {moved:?} {told:?}"),
            1 => assert_eq!(won, 1, "{moved:?} {told:?}"),
            _ => {
                assert_eq!(moved.status, 200, "{moved:?}");
                both += usize::from(won == 2);
            }
        }
        assert_eq!(no_overlap(&database).len(), 2);
        for (door, booking) in [(&one, &first), (&other, &second)] {
            door.delete(&path(booking)).expect(200);
        }
    }
    println!("both moves of a chain were made {both} times");
}
