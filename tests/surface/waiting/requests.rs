//! Lease requests that wait: granted by the node, timed out, cancelled, abandoned, or not ready to wait at all (SPEC §2).

use std::thread;

use serde_json::{Value, json};

use super::{
    acquire, agents, cancel, close, event_about, events, hold, holders, host, outcome, principal, release, request,
    state, text, wait,
};
use crate::http::Door;
use crate::patience::{BOUND, eventually};

#[test]
fn a_request_that_does_not_want_to_wait_gets_no_capacity_and_a_time_to_ask_again() {
    let lab = host("");
    let [holder, other, asker] = agents(&lab, ["holder", "other", "asker"]);
    let lease = acquire(&holder, "pixel-a", json!({ "ttlMs": 600_000 })).expect(201).body["lease"].take();
    hold(&other, "pixel-b");
    let by_name = json!({ "resourceId": "pixel-a", "noWait": true, "idempotencyKey": "k" });
    let by_selector = json!({ "select": "platform=android", "noWait": true, "idempotencyKey": "k" });
    for body in [by_name.clone(), by_selector] {
        let told = request(&asker, body).refused("NO_CAPACITY", 503);
        let again: u64 = told.header("retry-after").expect("a time").parse().expect("in seconds");
        assert!((1..=600).contains(&again), "{again}");
        assert!(told.message().contains("without noWait"), "{}", told.body);
    }
    let told = request(&asker, by_name.clone()).refused("NO_CAPACITY", 503);
    assert!(close(&told.details()["availableAt"], &lease["expiresAt"]), "{}", told.body);
    assert_eq!(asker.get("/v1/lease-requests").expect(200).body, json!({ "requests": [] }), "nothing waits");
    let told = event_about(&lab, "lease.rejected", "asker");
    assert_eq!((&told["reason"], &told["code"]), (&json!("no-wait"), &json!("NO_CAPACITY")));
    assert_eq!(event_about(&lab, "lease.requested", "asker")["waitPolicy"], json!({ "noWait": true }));
    // Its key was left free: the same key is a new try, for another target too.
    release(&holder, lease["id"].as_str().unwrap());
    assert_eq!(request(&asker, by_name).expect(201).body["request"]["state"], "granted");
}

#[test]
fn a_waiting_request_shows_its_place_what_it_waits_for_and_until_when() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    let lease = acquire(&holder, "board", json!({ "ttlMs": 600_000 })).expect(201).body["lease"].take();
    let made = request(&first, json!({ "resourceId": "board" })).expect(201);
    let seen = made.body["request"].clone();
    assert_eq!(made.header("location"), Some(format!("/v1/lease-requests/{}", text(&seen["id"])).as_str()));
    let fields = ["createdAt", "id", "position", "state", "ticket", "until", "waitingFor"];
    assert_eq!(seen.as_object().unwrap().keys().collect::<Vec<_>>(), fields);
    assert_eq!(
        (&seen["state"], &seen["position"], &seen["waitingFor"]),
        (&json!("waiting"), &json!(1), &json!("leased"))
    );
    assert!(close(&seen["until"], &lease["expiresAt"]), "{seen}");
    wait(&second, json!({ "resourceId": "board", "priority": 1 }));
    assert_eq!(state(&first, &seen)["position"], 2);
    let listed = |door: &Door| door.get("/v1/lease-requests").expect(200).body["requests"].take();
    let own = listed(&first);
    assert_eq!((own.as_array().map(Vec::len), &own[0]["id"]), (Some(1), &seen["id"]));
    assert_eq!(listed(&holder), json!([]), "others' requests are not for an agent");
    for all in [lab.door("host"), principal(&lab, "wall", "viewer")] {
        assert_eq!(listed(&all).as_array().map(Vec::len), Some(2));
    }
    assert_eq!(lab.door("host").get("/v1/resources/board").body["resource"]["queueLength"], 2);
    assert_eq!(lab.door("host").get("/v1/status").body["waiting"], 2);
}

#[test]
fn a_waiting_request_is_granted_by_the_node_when_the_holder_releases_and_the_long_poll_hears_it() {
    let lab = host("");
    let [holder, by_name, by_selector] = agents(&lab, ["holder", "by-name", "by-selector"]);
    for (waiter, target) in
        [(&by_name, json!({ "resourceId": "pixel-a" })), (&by_selector, json!({ "select": "os=15" }))]
    {
        let lease = hold(&holder, "pixel-a");
        let mut body = target;
        body["leaseId"] = json!("mine");
        let waiting = wait(waiter, body);
        let poll = {
            let (waiter, waiting) = (waiter.clone(), waiting.clone());
            thread::spawn(move || outcome(&waiter, &waiting))
        };
        let admitted = release(&holder, &lease);
        let granted = poll.join().expect("the poll is answered");
        assert_eq!((&granted["state"], &granted["id"]), (&json!("granted"), &waiting["id"]));
        assert_eq!(granted["lease"]["id"], "mine");
        assert_eq!(granted["lease"]["requestId"], waiting["id"]);
        assert_eq!(granted["lease"]["holderId"], admitted, "the answer to the release names it");
        for gone in ["position", "waitingFor", "until", "ticket"] {
            assert_eq!(granted.get(gone), None, "{gone}");
        }
        let told = event_about(&lab, "lease.granted", &text(&admitted));
        assert_eq!((&told["leaseId"], &told["requestId"]), (&json!("mine"), &waiting["id"]));
        assert_eq!(release(waiter, "mine"), Value::Null);
    }
}

#[test]
fn a_waiting_request_is_granted_when_the_holder_s_lease_expires() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    acquire(&holder, "board", json!({ "ttlMs": 500 })).expect(201);
    let waiting = wait(&waiter, json!({ "resourceId": "board" }));
    assert_eq!(outcome(&waiter, &waiting)["state"], "granted");
    assert_eq!(holders(&lab, "board"), ["waiter"]);
}

#[test]
fn a_wait_that_is_over_before_the_resource_is_free_is_a_queue_timeout_and_its_key_says_so_again() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    let lease = hold(&holder, "board");
    for (key, target) in [("a", json!({ "resourceId": "board" })), ("b", json!({ "select": "platform=linux" }))] {
        let mut body = target;
        body["timeoutMs"] = json!(1_000);
        body["idempotencyKey"] = json!(key);
        let waiting = wait(&waiter, body.clone());
        // Attaching with another bound does not extend the first.
        let longer = json!({ "timeoutMs": 3_600_000 });
        let attached = wait(&waiter, merged(&body, &longer));
        assert_eq!(attached["id"], waiting["id"]);
        let over = outcome(&waiter, &waiting);
        assert_eq!((&over["state"], &over["error"]["code"]), (&json!("failed"), &json!("QUEUE_TIMEOUT")), "{over}");
        let again = request(&waiter, body.clone()).refused("QUEUE_TIMEOUT", 504);
        assert_eq!(again.details()["requestId"], waiting["id"]);
        body["timeoutMs"] = json!(1_100);
        request(&waiter, body).refused("QUEUE_TIMEOUT", 504);
    }
    let rejected = events(&waiter, "lease.rejected");
    assert_eq!(rejected.len(), 2);
    assert!(rejected.iter().all(|event| event["payload"]["reason"] == "timeout"), "{rejected:?}");
    // The requester is free, and the key goes on standing for what happened when the resource is free too.
    release(&holder, &lease);
    let body = json!({ "resourceId": "board", "idempotencyKey": "a" });
    request(&waiter, body.clone()).refused("QUEUE_TIMEOUT", 504);
    acquire(&waiter, "board", json!({ "idempotencyKey": "a" })).refused("QUEUE_TIMEOUT", 504);
    hold(&waiter, "board");
}

#[test]
fn a_cancelled_request_is_over_at_once_and_its_key_shows_it_as_cancelled() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    let lease = hold(&holder, "board");
    for (key, target) in [("a", json!({ "resourceId": "board" })), ("b", json!({ "select": "platform=linux" }))] {
        let body = merged(&target, &json!({ "idempotencyKey": key, "leaseId": "mine" }));
        let waiting = wait(&waiter, body.clone());
        let told = cancel(&waiter, &waiting).expect(204);
        assert_eq!(told.body, Value::Null);
        let seen = state(&waiter, &waiting);
        assert_eq!((&seen["state"], seen.get("error"), seen.get("lease")), (&json!("cancelled"), None, None));
        cancel(&waiter, &waiting).expect(204);
        let again = request(&waiter, body).expect(200).body["request"].take();
        assert_eq!((&again["id"], &again["state"]), (&waiting["id"], &json!("cancelled")));
    }
    let told = event_about(&lab, "lease.rejected", "waiter");
    assert_eq!(told["reason"], "cancelled");
    assert_eq!(lab.door("host").get("/v1/status").body["waiting"], 0);
    assert_eq!(release(&holder, &lease), Value::Null, "nobody waits");
    acquire(&waiter, "board", json!({ "leaseId": "mine" })).expect(201);
}

#[test]
fn a_cancel_comes_too_late_once_the_request_is_granted_and_names_the_lease() {
    let lab = host("");
    let [holder, waiter] = agents(&lab, ["holder", "waiter"]);
    let lease = hold(&holder, "board");
    let waiting = wait(&waiter, json!({ "resourceId": "board", "leaseId": "mine" }));
    release(&holder, &lease);
    let told = cancel(&waiter, &waiting).refused("REQUEST_NOT_CANCELLABLE", 409);
    assert_eq!(told.details(), &json!({ "requestId": waiting["id"], "leaseId": "mine" }));
    assert!(told.message().contains("`berth lease release mine`"), "{}", told.body);
    waiter.post_text("/v1/leases/mine/renew", "").expect(200);
    let unknown = json!({ "id": "req_0198f3a0-0000-7000-8000-000000000000" });
    cancel(&waiter, &unknown).refused("UNKNOWN_LEASE_REQUEST", 404);
}

#[test]
fn a_request_is_read_and_cancelled_by_its_owner_or_an_admin_and_by_nobody_else() {
    let lab = host("");
    let [holder, waiter, other] = agents(&lab, ["holder", "waiter", "other"]);
    hold(&holder, "board");
    let waiting = wait(&waiter, json!({ "resourceId": "board", "requester": "job-1" }));
    let path = format!("/v1/lease-requests/{}", text(&waiting["id"]));
    for told in [
        cancel(&other, &waiting),
        other.get(&path),
        other.get(&format!("{path}?wait=15")),
        other.get(&format!("{path}/events")),
    ] {
        let told = told.refused("INSUFFICIENT_PERMISSIONS", 403);
        assert!(told.message().contains("only its owner or an admin"), "{}", told.body);
    }
    let viewer = principal(&lab, "wall", "viewer");
    assert_eq!(state(&viewer, &waiting)["state"], "waiting");
    cancel(&viewer, &waiting).refused("INSUFFICIENT_PERMISSIONS", 403);
    assert_eq!(state(&waiter, &waiting)["state"], "waiting");
    cancel(&lab.door("host"), &waiting).expect(204);
    assert_eq!(state(&waiter, &waiting)["state"], "cancelled");
}

#[test]
fn a_request_that_nobody_asks_about_is_abandoned_and_one_whose_long_poll_is_out_is_not() {
    let lab = host("[waiting_room]\nwaiter_ttl = \"1s\"");
    let [holder, silent, listener] = agents(&lab, ["holder", "silent", "listener"]);
    let lease = hold(&holder, "board");
    let forgotten = wait(&silent, json!({ "resourceId": "board", "idempotencyKey": "k" }));
    let listened = wait(&listener, json!({ "select": "platform=linux" }));
    let poll = {
        let path = format!("/v1/lease-requests/{}?wait=3", text(&listened["id"]));
        let listener = listener.clone();
        thread::spawn(move || listener.get(&path).expect(200).body["request"].take())
    };
    let told = event_about(&lab, "lease.rejected", "silent");
    assert_eq!(told["reason"], "abandoned");
    let over = state(&silent, &forgotten);
    assert_eq!((&over["state"], &over["error"]["details"]["reason"]), (&json!("failed"), &json!("abandoned")));
    // Its requester is free, and its key too: it is a new try.
    let anew = wait(&silent, json!({ "resourceId": "board", "idempotencyKey": "k" }));
    assert_ne!(anew["id"], forgotten["id"]);
    cancel(&silent, &anew).expect(204);
    let seen = poll.join().expect("the poll is answered");
    assert_eq!(seen["state"], "waiting", "it was listened to for three times as long: {seen}");
    assert_eq!(release(&holder, &lease), "listener");
}

#[test]
fn asking_under_the_same_key_is_asking_about_the_request() {
    let lab = host("[waiting_room]\nwaiter_ttl = \"2s\"");
    let [holder, silent, retrying] = agents(&lab, ["holder", "silent", "retrying"]);
    hold(&holder, "board");
    let body = json!({ "resourceId": "board", "idempotencyKey": "k" });
    wait(&silent, body.clone());
    let first = wait(&retrying, body.clone());
    eventually("the one that is silent is given up", BOUND, || {
        assert_eq!(wait(&retrying, body.clone())["id"], first["id"]);
        (events(&lab.door("host"), "lease.rejected").len() == 1).then_some(())
    });
    assert_eq!(event_about(&lab, "lease.rejected", "silent")["reason"], "abandoned");
    assert_eq!(wait(&retrying, body)["position"], 1);
}

/// `body` with the fields of `more`.
fn merged(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}
