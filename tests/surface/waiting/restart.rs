//! What a restart leaves of those who wait, and of what was settled (SPEC §8).

use std::thread;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    acquire, agents, cancel, close, event_about, events, hold, holders, host, join, joins_at, names, outcome, release,
    request, room, state, text, time, wait,
};
use crate::http::Call;
use crate::lab::Lab;
use crate::patience::{BOUND, eventually};

/// SIGKILL, and a start.
fn kill_and_start(lab: &mut Lab) {
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
}

/// An orderly stop, and a start.
fn stop_and_start(lab: &mut Lab) {
    assert_eq!(lab.terminate("host").code(), Some(0));
    lab.start("host");
    lab.wait_ready("host");
}

const RESTARTS: [fn(&mut Lab); 2] = [kill_and_start, stop_and_start];

#[test]
fn waiting_requests_fail_node_restarted_and_leave_their_requesters_and_keys_free() {
    for restart in RESTARTS {
        let mut lab = host("[waiting_room]\nreturn_grace = \"0s\"");
        let [holder, by_name, by_selector] = agents(&lab, ["holder", "by-name", "by-selector"]);
        let lease = hold(&holder, "board");
        let bodies = [
            json!({ "resourceId": "board", "idempotencyKey": "k" }),
            json!({ "select": "platform=linux", "idempotencyKey": "k" }),
        ];
        let waiting = [wait(&by_name, bodies[0].clone()), wait(&by_selector, bodies[1].clone())];
        restart(&mut lab);
        for ((door, name), (waiting, body)) in
            [(&by_name, "by-name"), (&by_selector, "by-selector")].into_iter().zip(waiting.iter().zip(&bodies))
        {
            let seen = state(door, waiting);
            assert_eq!(
                (&seen["state"], &seen["error"]["code"]),
                (&json!("failed"), &json!("NODE_RESTARTED")),
                "{seen}"
            );
            assert!(close(&seen["createdAt"], &waiting["createdAt"]), "{seen}");
            assert!(text(&seen["error"]["message"]).contains("ask again, with its ticket"), "{seen}");
            let told = event_about(&lab, "lease.rejected", name);
            assert_eq!((&told["reason"], &told["code"]), (&json!("daemon-restarted"), &json!("NODE_RESTARTED")));
            assert_eq!(told["requestId"], waiting["id"]);
            cancel(door, waiting).refused("REQUEST_NOT_CANCELLABLE", 409);
            let anew = wait(door, body.clone());
            assert_ne!(anew["id"], waiting["id"], "the key is a new try");
        }
        assert_eq!(events(&lab.door("host"), "lease.rejected").len(), 2);
        assert_eq!(release(&holder, &lease), "by-name");
    }
}

#[test]
fn unattended_waiters_keep_their_place_and_the_time_of_their_joining() {
    for restart in RESTARTS {
        let mut lab = host("");
        let [holder, first, second, urgent] = agents(&lab, ["holder", "first", "second", "urgent"]);
        let lease = hold(&holder, "board");
        joins_at(1, &first, "board");
        joins_at(2, &second, "board");
        join(&urgent, "board", json!({ "priority": 5 })).expect(202);
        let before = room(&lab, "board");
        restart(&mut lab);
        restart(&mut lab);
        let after = room(&lab, "board");
        assert_eq!(names(&lab, "board"), ["urgent", "first", "second"]);
        for index in 0..3 {
            for field in ["holderId", "joinedAt", "mode", "priority"] {
                assert_eq!(after["waiters"][index][field], before["waiters"][index][field], "{field}");
            }
            let seen = time(&after["waiters"][index]["lastSeen"]);
            assert!(seen > time(&before["waiters"][index]["lastSeen"]), "it counts as seen when admission opens");
        }
        // Whoever comes now is behind them, and an ask of theirs is still no second request.
        let [late] = agents(&lab, ["late"]);
        joins_at(4, &late, "board");
        joins_at(3, &second, "board");
        acquire(&first, "pixel-a", json!({})).refused("REQUESTER_ALREADY_LEASED", 409);
        assert_eq!(release(&holder, &lease), "urgent");
        join(&urgent, "board", json!({})).expect(201);
    }
}

#[test]
fn settled_requests_are_answered_under_their_key_after_a_kill() {
    let mut lab = host("");
    let [granted, over, timed, cancelled, refused] = agents(&lab, ["granted", "over", "timed", "cancelled", "refused"]);
    let keyed = |resource: &str| json!({ "resourceId": resource, "idempotencyKey": "k" });
    let first = request(&granted, keyed("board")).expect(201).body["request"].take();
    let gone = request(&over, keyed("pixel-a")).expect(201).body["request"].take();
    release(&over, &text(&gone["lease"]["id"]));
    let mut body = keyed("board");
    body["timeoutMs"] = json!(1);
    let timeout = request(&timed, body.clone());
    if timeout.status == 201 {
        assert_eq!(outcome(&timed, &timeout.body["request"])["error"]["code"], "QUEUE_TIMEOUT");
    }
    let by_selector = json!({ "select": "platform=linux", "idempotencyKey": "k" });
    let unwanted = wait(&cancelled, by_selector.clone());
    cancel(&cancelled, &unwanted).expect(204);
    acquire(&refused, "board", json!({ "idempotencyKey": "k" })).refused("RESOURCE_UNAVAILABLE", 409);
    kill_and_start(&mut lab);

    for (door, first, resource) in [(&granted, &first, "board"), (&over, &gone, "pixel-a")] {
        let again = request(door, keyed(resource)).expect(201).body["request"].take();
        assert_eq!((&again["id"], &again["state"]), (&first["id"], &json!("granted")));
        for field in ["id", "fence", "grantedAt", "ttlMs", "idChosenByRequester"] {
            assert_eq!(again["lease"][field], first["lease"][field], "{field}");
        }
    }
    assert_eq!(holders(&lab, "pixel-a"), Vec::<String>::new(), "what has ended is not granted again");
    request(&timed, body).refused("QUEUE_TIMEOUT", 504);
    let again = request(&cancelled, by_selector).expect(200).body["request"].take();
    assert_eq!((&again["id"], &again["state"]), (&unwanted["id"], &json!("cancelled")));
    request(&over, keyed("board")).refused("IDEMPOTENCY_CONFLICT", 409);
    // A refusal left its key free.
    let body = json!({ "idempotencyKey": "k" });
    acquire(&refused, "pixel-b", body).expect(201);
}

#[test]
fn a_lease_that_expired_while_the_node_was_down_is_over_at_the_start_and_the_next_waiter_has_time_to_notice() {
    let mut lab = host("");
    let [holder, waiter, third] = agents(&lab, ["holder", "waiter", "third"]);
    let lease =
        acquire(&holder, "board", json!({ "ttlMs": 1_000, "leaseId": "short" })).expect(201).body["lease"].take();
    joins_at(1, &waiter, "board");
    lab.kill_9("host");
    let ends = time(&lease["expiresAt"]);
    eventually("its time is up", BOUND, || (Timestamp::now() > ends).then_some(()));
    lab.start("host");
    lab.wait_ready("host");
    let expired = event_about(&lab, "lease.expired", "holder");
    assert_eq!((&expired["leaseId"], &expired["fence"]), (&json!("short"), &lease["fence"]));
    let admitted = event_about(&lab, "waiter.admitted", "waiter");
    assert!(admitted["reservedUntil"].is_string(), "without a grace in the lab file, this one has one: {admitted}");
    acquire(&third, "board", json!({})).refused("RESOURCE_UNAVAILABLE", 409);
    let told = holder.post_text("/v1/leases/short/renew", "").refused("UNKNOWN_LEASE", 404);
    assert_eq!(told.details()["reason"], "expired");
    let next = join(&waiter, "board", json!({})).expect(201).body["lease"].take();
    assert!(next["fence"].as_u64() > lease["fence"].as_u64(), "{next}");
    // The order in the log: the end, the start, and only then who is next.
    let log = lab.door("host").get("/v1/events?limit=1000").expect(200).body["events"].take();
    let of = |kind: &str| log.as_array().unwrap().iter().rposition(|event| event["event"] == kind).unwrap();
    assert!(of("lease.expired") < of("waiter.admitted"), "{log}");
}

#[test]
fn an_answered_release_and_an_answered_join_are_not_lost_by_a_kill() {
    let mut lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    let lease = hold(&holder, "board");
    joins_at(1, &waiter, "board");
    kill_and_start(&mut lab);
    assert_eq!(release(&holder, &lease), "waiter");
    kill_and_start(&mut lab);
    assert_eq!((names(&lab, "board"), holders(&lab, "board")), (vec![], vec![]));
    assert_eq!(lab.door("host").get("/v1/leases").body["leases"], json!([]));
    let told = holder.delete(&format!("/v1/leases/{lease}")).refused("UNKNOWN_LEASE", 404);
    assert_eq!(told.details()["reason"], "explicit");
    join(&waiter, "board", json!({})).expect(201);
}

#[test]
fn an_orderly_stop_answers_long_polls_with_what_is() {
    let mut lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    hold(&holder, "board");
    let waiting = wait(&waiter, json!({ "resourceId": "board" }));
    let path = format!("/v1/lease-requests/{}?wait=60", text(&waiting["id"]));
    let later = time(&room(&lab, "board")["waiters"][0]["lastSeen"]) + jiff::SignedDuration::from_millis(50);
    eventually("some time has passed since it was asked about", BOUND, || (Timestamp::now() > later).then_some(()));
    let poll = thread::spawn(move || waiter.try_send(&Call { method: "GET", path: &path, ..Call::default() }));
    eventually("the poll is out", BOUND, || {
        (time(&room(&lab, "board")["waiters"][0]["lastSeen"]) >= later).then_some(())
    });
    assert_eq!(lab.terminate("host").code(), Some(0));
    let told = poll.join().unwrap().expect("it is answered before the node goes").expect(200);
    assert_eq!(told.body["request"]["state"], Value::from("waiting"));
}
