//! Clients that want one slot at the same moment: one active hold wins, whatever the others are.

use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::clients::{Clients, Told, Turn};
use super::{listed, rounds};
use crate::bookings::{HOUR, after, ahead, no_overlap, reader, window, written};
use crate::lab::Lab;
use crate::waiting::{events, text};

/// Technicians with a calendar each.
pub const TECHNICIANS: usize = 20;

/// A host of technicians; everybody may hold as much as there is.
pub fn technicians(settings: &str) -> Lab {
    let lab = format!(
        "[lab]\nname = \"test\"\n[[worker]]\nname = \"host\"\napi = \"127.0.0.1:<host>\"\n[[worker.resource]]\n\
         id = \"tech-{{n}}\"\ncount = {TECHNICIANS}\n[limits]\nholds_per_principal = 10000\n\
         bookings_per_principal = 10000\n{settings}"
    );
    Lab::apart(&lab, &["host"])
}

/// The secret of a new agent.
#[track_caller]
pub fn secret(lab: &Lab, name: &str) -> String {
    let made = lab.door("host").post("/v1/tokens", &json!({ "name": name, "role": "agent" })).expect(201);
    text(&made.body["secret"])
}

/// A technician and a slot of their calendar, another one in each round.
pub fn another(round: usize) -> (String, Timestamp) {
    let starts_at = after(ahead(0), HOUR * (24 + 4 * (round / TECHNICIANS) as i64));
    (format!("tech-{}", 1 + round % TECHNICIANS), starts_at)
}

/// Has clients hold overlapping slots again and again; one of them wins each time.
fn contest(clients: usize, count: usize) {
    let lab = technicians("");
    let secrets: Vec<String> = (0..clients).map(|client| secret(&lab, &format!("customer-{client}"))).collect();
    let mut clients = Clients::start(clients);
    let (database, admin, port) = (reader(&lab), lab.door("host"), lab.port("host"));
    let mut winners = vec![0; secrets.len()];
    let (begun, count) = (Instant::now(), rounds(count));
    for round in 0..count {
        let (technician, starts_at) = another(round);
        // The same slot, or slots that have only a part in common.
        let shift = |client: usize| if round % 2 == 0 { 0 } else { client as i64 * 1_000 };
        let turns = secrets.iter().enumerate().map(|(client, secret)| Turn {
            port,
            secret,
            method: "POST",
            path: format!("/v1/resources/{technician}/holds"),
            body: window(after(starts_at, shift(client)), HOUR),
            hold_token: None,
        });
        let told = clients.send(&turns.collect::<Vec<_>>());
        let (won, lost): (Vec<_>, Vec<_>) = told.iter().enumerate().partition(|(_, told)| told.status == 201);
        assert_eq!(won.len(), 1, "round {round}: {told:?}");
        for (_, told) in &lost {
            let same = (told.code(), told.status, &told.body) == ("HOLD_CONFLICT", 409, &lost[0].1.body);
            assert!(same, "round {round}: {told:?}");
        }
        let (winner, told) = won[0];
        winners[winner] += 1;
        // I9, and one live hold: by the database itself, and by what the node says.
        let slot = no_overlap(&database).into_iter().filter(|(resource, from, to, _)| {
            let (start, end) = (starts_at.as_microsecond(), after(starts_at, 2 * HOUR).as_microsecond());
            *resource == technician && *from < end && *to > start
        });
        let id = text(&told.body["hold"]["id"]);
        assert_eq!(slot.map(|(.., id)| id).collect::<Vec<_>>(), [id.as_str()], "round {round}");
        let active = |hold: &&Value| {
            let from = written(starts_at);
            hold["status"] == "active" && text(&hold["startsAt"]) >= from
        };
        let shown = listed(&admin, &technician);
        assert_eq!(shown.iter().filter(active).map(|hold| text(&hold["id"])).collect::<Vec<_>>(), [id]);
        go_on(&admin, round, told);
    }
    println!("{count} rounds of {} clients took {:?}; won: {winners:?}", secrets.len(), begun.elapsed());
    assert!(winners.iter().filter(|won| **won > 0).count() > 1, "the same one was always first: {winners:?}");
    assert_eq!(events(&admin, "invariant.violated"), Vec::<Value>::new());
    admin.get("/v1/readyz").expect(200);
}

/// A hold stays, becomes a booking, or is given back, so that the next round meets all of it.
fn go_on(door: &crate::http::Door, round: usize, won: &Told) {
    let made = super::Held { hold: won.body["hold"].clone(), token: text(&won.body["token"]) };
    match round % 3 {
        0 => drop(made.confirm(door).expect(200)),
        1 => drop(made.release(door).expect(200)),
        _ => {}
    }
}

#[test]
fn one_active_hold_wins_for_a_slot_when_two_clients_start_at_a_barrier() {
    contest(2, 1_000);
}

#[test]
fn one_active_hold_wins_for_a_slot_when_sixty_four_clients_start_at_a_barrier() {
    contest(64, 12);
}
