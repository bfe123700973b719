//! Callers that only retry, as the client library does, and a node that is killed under them: nobody holds what another
//! holds, nothing is left behind, and everybody gets what it came for.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{events, host, principal, text};
use crate::http::{Answer, Call, Door};
use crate::patience::{BOUND, eventually, poll};

const CALLERS: usize = 5;
const TURNS: usize = 4;

/// Sends until there is an answer.
pub fn send(door: &Door, call: &Call<'_>) -> Answer {
    let told = poll(2 * BOUND, || door.try_send(call).ok());
    told.unwrap_or_else(|| panic!("{} {} is never answered", call.method, call.path))
}

/// Gets a lease: asks under a key, and after a restart asks again with the ticket.
pub fn get(door: &Door, key: &str, by_name: bool) -> Value {
    let mut body = json!({ "idempotencyKey": key });
    match by_name {
        true => body["resourceId"] = json!("board"),
        false => body["select"] = json!("platform=linux"),
    }
    loop {
        let told = send(door, &Call::json("/v1/lease-requests", &body.to_string())).expect(201);
        let mut request = told.body["request"].clone();
        let path = format!("/v1/lease-requests/{}?wait=5", text(&request["id"]));
        while request["state"] == "waiting" {
            body["ticket"] = request["ticket"].clone();
            let Ok(told) = door.try_send(&Call { method: "GET", path: &path, ..Call::default() }) else { break };
            request = told.expect(200).body["request"].take();
        }
        match request["state"].as_str() {
            Some("granted") => return request["lease"].clone(),
            Some("waiting") => {}
            _ => assert_eq!(request["error"]["code"], "NODE_RESTARTED", "{request}"),
        }
    }
}

#[test]
fn callers_that_retry_get_their_leases_one_at_a_time_from_a_node_that_is_killed_again_and_again() {
    let mut lab = host("[waiting_room]\nreturn_grace = \"1s\"");
    let doors: Vec<Door> = (0..CALLERS).map(|caller| principal(&lab, &format!("caller-{caller}"), "agent")).collect();
    let (in_use, done, fences) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for (caller, door) in doors.iter().enumerate() {
            let (in_use, done, fences) = (&in_use, &done, &fences);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let lease = get(door, &format!("turn-{turn}"), (caller + turn) % 2 == 0);
                    assert!(!in_use.swap(true, Ordering::SeqCst), "two hold it at the same time");
                    fences.lock().unwrap().push(lease["fence"].as_u64().unwrap());
                    let path = format!("/v1/leases/{}", text(&lease["id"]));
                    send(door, &Call::json(&format!("{path}/renew"), "{}")).expect(200);
                    // Long enough for a kill to come in between now and then.
                    thread::sleep(Duration::from_millis(50));
                    send(door, &Call::json(&format!("{path}/renew"), "{}")).expect(200);
                    in_use.store(false, Ordering::SeqCst);
                    let told = send(door, &Call { method: "DELETE", path: &path, ..Call::default() });
                    // The answer to the first try may have been lost.
                    if told.status != 200 {
                        assert_eq!(told.refused("UNKNOWN_LEASE", 404).details()["reason"], "explicit");
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for kill in 1..=3 {
            eventually("some turns are over", 2 * BOUND, || {
                (done.load(Ordering::SeqCst) >= kill * CALLERS * TURNS / 5).then_some(())
            });
            lab.kill_9("host");
            lab.start("host");
            lab.wait_ready("host");
        }
    });
    let fences = fences.into_inner().unwrap();
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(fences.len(), CALLERS * TURNS);
    let admin = lab.door("host");
    let count = |kind: &str| events(&admin, kind).len();
    assert_eq!((count("lease.granted"), count("lease.released")), (CALLERS * TURNS, CALLERS * TURNS));
    assert_eq!(count("lease.requested"), count("lease.granted") + count("lease.rejected"));
    let status = admin.get("/v1/status").expect(200).body;
    assert_eq!((&status["waiting"], &status["leases"]), (&json!(0), &json!(0)));
    assert_eq!(events(&admin, "invariant.violated"), Vec::<Value>::new());
}
