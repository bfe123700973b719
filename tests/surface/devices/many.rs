//! A great many leases on one device, one after the other, with hooks around each: none is stuck, forgotten, or run out of
//! turn.
//!
//! `BERTH_DEVICE_LEASES` says how many (2 000 by default).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Line, log, resource, rig, run, script, shown, wait_state};
use crate::http::Door;
use crate::lab::Lab;
use crate::waiting::{acquire, outcome, principal, release, request, text};

/// So many ask for it at once.
const CLIENTS: usize = 4;
/// The least of a hook: it writes down that it has run. It says so once, as both its begin and its end.
const NOTE: &str = "#!/bin/sh\necho \"$1 $BERTH_RESOURCE $BERTH_LEASE $BERTH_FENCE $$ end\" >> log\n";

/// A board with the least of hooks.
fn noted() -> Lab {
    let hooks = resource("board", "prepare reset", "", "").replace("./hook.sh", "./note.sh");
    let lab = rig(&[hooks], "[events]\nmax_count = 1000000");
    script(&lab, "note.sh", NOTE);
    lab
}

/// Gets a lease, by one of the doors; its id and its fence.
fn lease(door: &Door, turn: usize) -> (String, u64) {
    let body = match turn % 3 {
        0 => json!({ "resourceId": "board" }),
        1 => json!({ "select": "platform=linux" }),
        _ => {
            // Whoever is not the first in line waits like the others.
            let told = acquire(door, "board", json!({}));
            if told.status == 201 {
                return named(&told.body["lease"]);
            }
            told.refused("RESOURCE_UNAVAILABLE", 409);
            json!({ "resourceId": "board" })
        }
    };
    let mut made = request(door, body).expect(201).body["request"].take();
    while made["state"] == "waiting" {
        made = outcome(door, &made);
    }
    assert_eq!(made["state"], "granted", "{made}");
    named(&made["lease"])
}

fn named(lease: &Value) -> (String, u64) {
    (text(&lease["id"]), lease["fence"].as_u64().expect("a number"))
}

/// All events of a kind, in their order.
fn all(door: &Door, kind: &str) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let mut page = door.get(&format!("/v1/events?limit=1000&after={after}&event={kind}")).expect(200).body;
        let events: Vec<Value> = page["events"].as_array_mut().unwrap().drain(..).collect();
        let Some(last) = events.last() else { return found };
        after = last["seq"].as_u64().unwrap();
        found.extend(events);
    }
}

#[test]
fn of_thousands_of_leases_one_after_the_other_each_is_prepared_and_reset_once_and_in_its_turn() {
    let leases: usize =
        std::env::var("BERTH_DEVICE_LEASES").map_or(2_000, |text| text.parse().expect("a whole number"));
    let lab = noted();
    let doors: Vec<Door> = (0..CLIENTS).map(|client| principal(&lab, &format!("client-{client}"), "agent")).collect();
    let (turns, had, began) = (AtomicUsize::new(0), Mutex::new(HashMap::new()), Instant::now());
    thread::scope(|scope| {
        for door in &doors {
            scope.spawn(|| {
                loop {
                    let turn = turns.fetch_add(1, Ordering::SeqCst);
                    if turn >= leases {
                        return;
                    }
                    let (id, fence) = lease(door, turn);
                    assert_eq!(had.lock().unwrap().insert(fence, id.clone()), None, "a fence comes once");
                    release(door, &id);
                }
            });
        }
    });
    wait_state(&lab, "board", "available");
    let took = began.elapsed();
    eprintln!("{leases} leases with two hooks each in {took:.1?}: {:.1?} each", took / leases as u32);
    let (admin, had) = (lab.door("host"), had.into_inner().unwrap());
    // What the node has told, what its clients were given, and what the hooks have written down are the same.
    let granted: Vec<(String, u64)> = all(&admin, "lease.granted")
        .iter()
        .map(|it| (text(&it["payload"]["leaseId"]), it["payload"]["fence"].as_u64().unwrap()))
        .collect();
    assert_eq!((granted.len(), had.len()), (leases, leases));
    assert!(granted.is_sorted_by_key(|(_, fence)| *fence), "the fence grows");
    assert!(granted.iter().all(|(id, fence)| had.get(fence) == Some(id)));
    let ran: Vec<(String, String, u64)> =
        log(&lab).into_iter().map(|Line { hook, lease, fence, .. }| (hook, lease, fence.parse().unwrap())).collect();
    let expected: Vec<(String, String, u64)> = granted
        .iter()
        .flat_map(|(id, fence)| ["prepare", "reset"].map(|hook| (hook.to_owned(), id.clone(), *fence)))
        .collect();
    let wrong = ran.iter().zip(&expected).find(|(ran, expected)| ran != expected);
    assert_eq!((wrong, ran.len()), (None, 2 * leases));
    let moved: BTreeSet<(String, String)> = all(&admin, "resource.state-changed")
        .iter()
        .map(|it| (text(&it["payload"]["from"]), text(&it["payload"]["to"])))
        .collect();
    let moves =
        [("available", "preparing"), ("leased", "resetting"), ("preparing", "leased"), ("resetting", "available")];
    let direct = ("resetting", "preparing");
    let allowed: BTreeSet<(String, String)> =
        moves.iter().chain([&direct]).map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    assert!(moved.is_subset(&allowed), "{moved:?}");
    // Nothing is left behind.
    let seen = shown(&admin, "board");
    assert_eq!((&seen["queueLength"], &seen["leases"], seen.get("failure")), (&json!(0), &json!([]), None));
    assert_eq!(admin.get("/v1/lease-requests").expect(200).body["requests"], json!([]));
    assert_eq!(all(&admin, "lease.released").len(), leases);
    assert_eq!(run(&lab, "board").len(), 2 * leases);
    assert!(fs::read_dir(lab.path(".")).unwrap().count() < 20, "hooks leave no files");
}
