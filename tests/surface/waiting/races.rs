//! What happens at the same time: exactly one of two ends, never two holders, and everybody's turn comes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::{
    acquire, agents, cancel, events, hold, holders, host, join, outcome, principal, release, request, state, text, wait,
};
use crate::http::Door;
use crate::patience::{BOUND, eventually};

#[test]
fn of_a_cancel_and_a_grant_at_the_same_time_exactly_one_happens() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    for round in 0..20 {
        let lease = hold(&holder, "board");
        let target =
            if round % 2 == 0 { json!({ "resourceId": "board" }) } else { json!({ "select": "platform=linux" }) };
        let waiting = wait(&waiter, target);
        let released = thread::spawn({
            let holder = holder.clone();
            move || release(&holder, &lease)
        });
        let told = cancel(&waiter, &waiting);
        let admitted = released.join().unwrap();
        let seen = state(&waiter, &waiting);
        if told.status == 204 {
            assert_eq!((&seen["state"], admitted), (&json!("cancelled"), Value::Null));
            assert_eq!(holders(&lab, "board"), Vec::<String>::new());
        } else {
            let told = told.refused("REQUEST_NOT_CANCELLABLE", 409);
            assert_eq!((&seen["state"], admitted), (&json!("granted"), json!("waiter")));
            assert_eq!(told.details()["leaseId"], seen["lease"]["id"]);
            release(&waiter, &text(&seen["lease"]["id"]));
        }
    }
}

#[test]
fn of_a_timeout_and_a_grant_at_the_same_time_exactly_one_happens() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    for round in 0..20 {
        let lease = acquire(&holder, "board", json!({ "ttlMs": 100 })).expect(201).body["lease"]["id"].take();
        let told = request(&waiter, json!({ "resourceId": "board", "timeoutMs": 80 + 2 * round, "leaseId": "mine" }));
        let code = match told.status {
            201 => outcome(&waiter, &told.body["request"])["error"]["code"].take(),
            _ => told.body["error"]["code"].clone(),
        };
        match code.as_str() {
            None => drop(release(&waiter, "mine")),
            code => assert_eq!(code, Some("QUEUE_TIMEOUT")),
        }
        eventually("the board is free", BOUND, || holders(&lab, "board").is_empty().then_some(()));
        holder.get(&format!("/v1/leases/{}", text(&lease))).refused("UNKNOWN_LEASE", 404);
    }
    let admin = lab.door("host");
    let ended = events(&admin, "lease.expired").len() + events(&admin, "lease.released").len();
    assert_eq!(events(&admin, "lease.granted").len(), ended);
    let settled = events(&admin, "lease.granted").len() + events(&admin, "lease.rejected").len();
    assert_eq!(events(&admin, "lease.requested").len(), settled, "every request ends in exactly one way");
}

#[test]
fn of_a_renewal_and_the_end_of_the_same_deadline_exactly_one_happens() {
    let lab = host("");
    let [holder] = agents(&lab, ["holder"]);
    for _ in 0..5 {
        acquire(&holder, "board", json!({ "leaseId": "mine", "ttlMs": 60 })).expect(201);
        let mut renewed = 0;
        let path = "/v1/leases/mine/renew";
        let told = eventually("the lease ends", BOUND, || {
            // Each renewal is for a shorter time, until one comes too late.
            let told = holder.post(path, &json!({ "ttlMs": 60 - renewed }));
            renewed = (renewed + 6).min(59);
            (told.status != 200).then_some(told)
        });
        assert_eq!(told.refused("UNKNOWN_LEASE", 404).details()["reason"], "expired");
        holder.post_text(path, "").refused("UNKNOWN_LEASE", 404);
    }
    assert_eq!(events(&lab.door("host"), "lease.expired").len(), 5);
}

/// Three ways to get the board in the end; the id of the lease.
fn get(door: &Door, way: usize) -> String {
    let made = match way % 3 {
        0 => wait_or_get(door, json!({ "resourceId": "board" })),
        1 => wait_or_get(door, json!({ "select": "platform=linux" })),
        _ => eventually("it has the board", BOUND, || {
            let told = join(door, "board", json!({}));
            (told.status == 201).then(|| told.body["lease"].clone())
        }),
    };
    text(&made["id"])
}

fn wait_or_get(door: &Door, body: Value) -> Value {
    let made = request(door, body).expect(201).body["request"].take();
    let made = if made["state"] == "waiting" { outcome(door, &made) } else { made };
    assert_eq!(made["state"], "granted", "{made}");
    made["lease"].clone()
}

#[test]
fn many_that_want_one_resource_in_every_way_hold_it_one_at_a_time_and_each_gets_its_turns() {
    const CALLERS: usize = 6;
    const TURNS: usize = 6;
    let lab = host("");
    let in_use = AtomicBool::new(false);
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let door = principal(&lab, &format!("caller-{caller}"), "agent");
            let in_use = &in_use;
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let lease = get(&door, caller + turn);
                    assert!(!in_use.swap(true, Ordering::SeqCst), "two hold it at the same time");
                    door.post_text(&format!("/v1/leases/{lease}/renew"), "").expect(200);
                    in_use.store(false, Ordering::SeqCst);
                    release(&door, &lease);
                }
            });
        }
    });
    let admin = lab.door("host");
    let (granted, released) = (events(&admin, "lease.granted"), events(&admin, "lease.released"));
    assert_eq!((granted.len(), released.len()), (CALLERS * TURNS, CALLERS * TURNS));
    let fences: Vec<u64> = granted.iter().map(|event| event["payload"]["fence"].as_u64().unwrap()).collect();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    // In the log too, each lease is over before the next begins.
    for ((granted, released), next) in granted.iter().zip(&released).zip(&granted[1..]) {
        assert_eq!(granted["payload"]["leaseId"], released["payload"]["leaseId"]);
        assert!(granted["seq"].as_u64() < released["seq"].as_u64() && released["seq"].as_u64() < next["seq"].as_u64());
    }
    let status = admin.get("/v1/status").expect(200).body;
    assert_eq!((&status["waiting"], &status["leases"]), (&json!(0), &json!(0)));
    assert_eq!(events(&admin, "invariant.violated"), Vec::<Value>::new());
}

#[test]
fn those_who_share_a_resource_and_those_who_want_it_alone_never_meet_and_all_get_their_turns() {
    let lab = host("[waiting_room]\nadmission_grace = \"5s\"");
    // Of those who hold it now, how many are alone (counted as 100) and how many share it.
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for caller in 0..6 {
            let door = principal(&lab, &format!("caller-{caller}"), "agent");
            let inside = &inside;
            scope.spawn(move || {
                for turn in 0..5 {
                    let (mode, weight) = if (caller + turn) % 3 == 0 { ("exclusive", 100) } else { ("shared", 1) };
                    let made = match (caller + 2 * turn) % 4 {
                        0 => wait_or_get(&door, json!({ "resourceId": "bench", "mode": mode })),
                        1 | 2 => wait_or_get(&door, json!({ "select": "platform=bench", "mode": mode })),
                        _ => eventually("it has its turn", BOUND, || {
                            let told = join(&door, "bench", json!({ "mode": mode }));
                            (told.status == 201).then(|| told.body["lease"].clone())
                        }),
                    };
                    let together = inside.fetch_add(weight, Ordering::SeqCst) + weight;
                    assert!(together == 100 || together <= 2, "{together} hold the bench");
                    inside.fetch_sub(weight, Ordering::SeqCst);
                    release(&door, &text(&made["id"]));
                }
            });
        }
    });
    let admin = lab.door("host");
    assert_eq!(events(&admin, "lease.granted").len(), 30);
    let status = admin.get("/v1/status").expect(200).body;
    assert_eq!((&status["waiting"], &status["leases"]), (&json!(0), &json!(0)));
    assert_eq!(admin.get("/v1/resources/bench").body["resource"]["state"], "available");
    assert_eq!(events(&admin, "invariant.violated"), Vec::<Value>::new());
}
