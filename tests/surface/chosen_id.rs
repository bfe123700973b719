//! Lease ids that requesters choose: the document that asked for them, line by line. A test has the words of the line
//! that it stands for. What is the same at a gateway and at its workers is in [`crate::refusals`].

mod examples;
mod gateway;
mod restart;

use std::thread;

use serde_json::{Value, json};

use crate::http::Door;
use crate::waiting::{
    acquire, agents, cancel, event_about, events, hold, host, join, outcome, release, request, state, wait,
};

/// A requester's attempt at the one board, under its own id.
fn for_the_board(id: &str) -> Value {
    json!({ "resourceId": "board", "leaseId": id })
}

/// Everything that an agent has waiting.
fn waiting(door: &Door) -> Value {
    door.get("/v1/lease-requests").expect(200).body["requests"].take()
}

#[test]
fn a_second_request_for_an_id_held_by_a_waiting_request_fails_with_lease_id_taken() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    let lease = hold(&holder, "board");
    for target in [json!({ "resourceId": "board" }), json!({ "select": "platform=linux" })] {
        let mut body = target;
        body["leaseId"] = json!("ad-7f3a");
        let waiting = wait(&first, body.clone());
        body["noWait"] = json!(true);
        for told in [
            request(&second, for_the_board("ad-7f3a")),
            request(&second, json!({ "select": "platform=android", "leaseId": "ad-7f3a" })),
            request(&second, body),
            acquire(&second, "pixel-a", json!({ "leaseId": "ad-7f3a" })),
            join(&second, "board", json!({ "leaseId": "ad-7f3a" })),
        ] {
            let told = told.refused("LEASE_ID_TAKEN", 409);
            assert_eq!(told.message(), "lease ID ad-7f3a is already in use");
            assert_eq!(told.details(), &json!({ "leaseId": "ad-7f3a" }));
        }
        // Case matters, and the refusals hold nothing.
        let other = wait(&second, for_the_board("AD-7F3A"));
        cancel(&second, &other).expect(204);
        cancel(&first, &waiting).expect(204);
    }
    let waiting = wait(&second, for_the_board("ad-7f3a"));
    assert_eq!(release(&holder, &lease), "second", "the id is free with the end of the request that had it");
    assert_eq!(outcome(&second, &waiting)["lease"]["id"], "ad-7f3a");
}

#[test]
fn an_id_that_an_unattended_waiter_asks_for_is_held_while_it_waits_too() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    hold(&holder, "board");
    let ask = |id: &str| join(&first, "board", json!({ "leaseId": id }));
    ask("ad-7f3a").expect(202);
    request(&second, for_the_board("ad-7f3a")).refused("LEASE_ID_TAKEN", 409);
    ask("ad-7f3a").expect(202);
    ask("other").expect(202);
    acquire(&second, "pixel-a", json!({ "leaseId": "other" })).refused("LEASE_ID_TAKEN", 409);
    acquire(&second, "pixel-a", json!({ "leaseId": "ad-7f3a" })).expect(201);
    ask("ad-7f3a").refused("LEASE_ID_TAKEN", 409);
    ask("other").expect(202);
    first.delete("/v1/resources/board/waiting-room/me").expect(200);
    release(&second, "ad-7f3a");
    acquire(&second, "pixel-a", json!({ "leaseId": "other" })).expect(201);
}

#[test]
fn a_requester_that_already_holds_a_lease_gets_requester_already_leased_not_lease_id_taken() {
    let lab = host("");
    let [ci, other] = agents(&lab, ["ci", "other"]);
    acquire(&ci, "board", json!({ "leaseId": "mine" })).expect(201);
    acquire(&other, "pixel-b", json!({ "leaseId": "theirs" })).expect(201);
    // Even when it repeats its own lease id, or names one that is taken.
    for id in ["mine", "theirs", "new"] {
        for told in [
            request(&ci, for_the_board(id)),
            acquire(&ci, "pixel-a", json!({ "leaseId": id })),
            join(&ci, "board", json!({ "leaseId": id })),
        ] {
            let told = told.refused("REQUESTER_ALREADY_LEASED", 409);
            assert_eq!(told.details(), &json!({ "requesterId": "ci", "existingLeaseId": "mine" }));
        }
    }
    assert_eq!(event_about(&lab, "lease.rejected", "ci")["reason"], "already-leased");
}

#[test]
fn a_requester_that_already_has_a_waiting_request_gets_requester_already_leased_with_that_request() {
    let lab = host("");
    let [holder, ci] = agents(&lab, ["holder", "ci"]);
    hold(&holder, "board");
    let waiting = wait(&ci, for_the_board("mine"));
    for id in ["mine", "new"] {
        for told in [
            request(&ci, for_the_board(id)),
            acquire(&ci, "pixel-a", json!({ "leaseId": id })),
            join(&ci, "board", json!({ "leaseId": id })),
        ] {
            let told = told.refused("REQUESTER_ALREADY_LEASED", 409);
            assert_eq!(told.details(), &json!({ "requesterId": "ci", "existingRequestId": waiting["id"] }));
        }
    }
    assert_eq!(state(&ci, &waiting)["state"], "waiting");
}

#[test]
fn a_lease_id_taken_refusal_emits_lease_rejected_with_reason_lease_id_taken() {
    let lab = host("");
    let [holder, waiter, asker] = agents(&lab, ["holder", "waiter", "asker"]);
    acquire(&holder, "board", json!({ "leaseId": "active" })).expect(201);
    wait(&waiter, for_the_board("waiting"));
    for (index, id) in ["active", "waiting"].into_iter().enumerate() {
        request(&asker, json!({ "resourceId": "pixel-a", "leaseId": id, "ttlMs": 60_000 }))
            .refused("LEASE_ID_TAKEN", 409);
        let told = events(&asker, "lease.rejected");
        assert_eq!(told.len(), index + 1, "one for each refusal");
        let payload = &told[index]["payload"];
        assert_eq!((&payload["reason"], &payload["code"]), (&json!("lease-id-taken"), &json!("LEASE_ID_TAKEN")));
        assert_eq!(payload["requester"], "asker");
        let spec = json!({ "resourceId": "pixel-a", "mode": "exclusive", "ttlMs": 60_000, "priority": 0.0 });
        assert_eq!(payload["requestSpec"], spec);
    }
    assert_eq!(events(&asker, "lease.requested"), Vec::<Value>::new(), "it never became a request");
    assert_eq!(waiting(&asker), json!([]));
}

#[test]
fn lease_requested_and_lease_rejected_request_spec_and_the_status_waiting_spec_carry_no_lease_id() {
    let lab = host("");
    let [holder, waiter, late] = agents(&lab, ["holder", "waiter", "late"]);
    acquire(&holder, "board", json!({ "leaseId": "chosen-holder" })).expect(201);
    let made = wait(&waiter, for_the_board("chosen-waiter"));
    request(&late, json!({ "resourceId": "board", "leaseId": "chosen-late", "noWait": true }))
        .refused("NO_CAPACITY", 503);
    request(&late, for_the_board("chosen-waiter")).refused("LEASE_ID_TAKEN", 409);
    request(&waiter, for_the_board("chosen-late")).refused("REQUESTER_ALREADY_LEASED", 409);
    let timed = wait(&late, json!({ "resourceId": "board", "leaseId": "chosen-late", "timeoutMs": 1 }));
    assert_eq!(outcome(&late, &timed)["error"]["code"], "QUEUE_TIMEOUT");
    let admin = lab.door("host");
    for shown in [state(&waiter, &made), waiting(&waiter), waiting(&admin), admin.get("/v1/status").expect(200).body] {
        assert!(!shown.to_string().contains("chosen-waiter") && !shown.to_string().contains("leaseId"), "{shown}");
    }
    cancel(&waiter, &made).expect(204);
    let (requested, rejected) = (events(&admin, "lease.requested"), events(&admin, "lease.rejected"));
    let reasons: Vec<&Value> = rejected.iter().map(|event| &event["payload"]["reason"]).collect();
    assert_eq!(reasons, ["no-wait", "lease-id-taken", "already-leased", "timeout", "cancelled"]);
    assert_eq!(requested.len(), 4);
    for event in requested.iter().chain(&rejected) {
        assert!(event["payload"]["requestSpec"].is_object(), "{event}");
        assert!(!event.to_string().contains("leaseId") && !event.to_string().contains("chosen-"), "{event}");
    }
}

#[test]
fn a_retry_with_the_same_idempotency_key_and_the_same_lease_id_replays_the_first_answer() {
    let lab = host("");
    let [holder, ci] = agents(&lab, ["holder", "ci"]);
    let lease = hold(&holder, "board");
    let mut body = for_the_board("ad-7f3a");
    body["idempotencyKey"] = json!("k");
    let first = wait(&ci, body.clone());
    // While it waits, a retry is the same request; its terms are those of the first.
    body["ttlMs"] = json!(60_000);
    body["priority"] = json!(7);
    assert_eq!(wait(&ci, body.clone())["id"], first["id"]);
    assert_eq!(lab.door("host").get("/v1/status").body["waiting"], 1);
    release(&holder, &lease);
    let granted = outcome(&ci, &first)["lease"].take();
    assert_eq!((&granted["id"], &granted["ttlMs"]), (&json!("ad-7f3a"), &json!(900_000)));
    for _ in 0..2 {
        let again = request(&ci, body.clone()).expect(201).body["request"].take();
        assert_eq!((&again["id"], &again["state"]), (&first["id"], &json!("granted")));
        for field in ["id", "fence", "grantedAt", "expiresAt", "ttlMs"] {
            assert_eq!(again["lease"][field], granted[field], "{field}");
        }
        // The stored answer stays when the lease has ended, and makes no second one.
        let path = "/v1/leases/ad-7f3a";
        if ci.get(path).status == 200 {
            release(&ci, "ad-7f3a");
        }
        ci.get(path).refused("UNKNOWN_LEASE", 404);
    }
}

#[test]
fn retries_of_one_attempt_that_come_at_once_are_one_request() {
    let lab = host("");
    let [holder, ci] = agents(&lab, ["holder", "ci"]);
    let lease = hold(&holder, "board");
    let mut body = for_the_board("ad-7f3a");
    body["idempotencyKey"] = json!("k");
    let asks: Vec<_> = (0..4)
        .map(|_| {
            let (ci, body) = (ci.clone(), body.clone());
            thread::spawn(move || wait(&ci, body)["id"].take())
        })
        .collect();
    let ids: Vec<Value> = asks.into_iter().map(|ask| ask.join().expect("it is answered")).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(release(&holder, &lease), "ci");
    assert_eq!(lab.door("host").get("/v1/leases").body["leases"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_retry_with_the_same_idempotency_key_and_a_different_or_missing_lease_id_fails_with_idempotency_conflict() {
    conflicts(Some("ad-7f3a"), &[Some("other"), None]);
}

#[test]
fn a_retry_with_the_same_idempotency_key_that_adds_a_lease_id_the_first_call_did_not_have_fails_with_idempotency_conflict()
 {
    conflicts(None, &[Some("ad-7f3a")]);
}

/// A first attempt under this id, and retries of its key under those; while it waits, once it is granted, and after.
fn conflicts(first: Option<&str>, retries: &[Option<&str>]) {
    let lab = host("");
    let [holder, ci] = agents(&lab, ["holder", "ci"]);
    let lease = hold(&holder, "board");
    let body = |id: Option<&str>| {
        let mut body = json!({ "resourceId": "board", "idempotencyKey": "k" });
        if let Some(id) = id {
            body["leaseId"] = json!(id);
        }
        body
    };
    let refused = || {
        for retry in retries {
            let told = request(&ci, body(*retry)).refused("IDEMPOTENCY_CONFLICT", 409);
            assert!(told.message().contains("key"), "{}", told.body);
        }
    };
    let made = wait(&ci, body(first));
    refused();
    assert_eq!(state(&ci, &made)["state"], "waiting", "the first attempt is left alone");
    release(&holder, &lease);
    let granted = outcome(&ci, &made)["lease"]["id"].take();
    refused();
    release(&ci, granted.as_str().unwrap());
    refused();
    assert_eq!(events(&ci, "lease.rejected"), Vec::<Value>::new());
}

#[test]
fn the_cli_lease_id_flag_sends_lease_id_and_exits_13_on_lease_id_taken() {
    let lab = host("");
    let said = lab.berth(&["lease", "--platform", "linux", "--lease-id", "ad-7f3a", "--requester", "first"]).ok();
    assert!(said.starts_with("leased ad-7f3a board until "), "{said}");
    let [waiter] = agents(&lab, ["waiter"]);
    wait(&waiter, for_the_board("in-line"));
    // Held by a lease, and held by a request that waits; at both doors, and it never waits for the id.
    for id in ["ad-7f3a", "in-line"] {
        for command in [&["lease", "--platform", "android"][..], &["lease", "acquire", "pixel-a"]] {
            let said = lab.berth(&[command, &["--lease-id", id]].concat()).failed(13);
            let line = format!("error LEASE_ID_TAKEN: lease ID {id} is already in use");
            assert_eq!(said.lines().next(), Some(line.as_str()));
        }
    }
    lab.berth(&["lease", "renew", "ad-7f3a"]).ok();
    lab.berth(&["lease", "release", "ad-7f3a"]).ok();
}
