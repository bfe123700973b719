//! The streams of one lease request and of one lease (SPEC §13).

use serde_json::{Value, json};

use super::{acquire, agents, cancel, close, event_about, hold, host, release, text, wait};
use crate::sse::Stream;

fn of_request(request: &Value) -> String {
    format!("/v1/lease-requests/{}/events", text(&request["id"]))
}

#[test]
fn the_stream_of_a_request_shows_its_place_then_its_lease_and_ends() {
    let lab = host("");
    let [holder, first, second] = agents(&lab, ["holder", "first", "second"]);
    let lease = hold(&holder, "board");
    let first_waits = wait(&first, json!({ "resourceId": "board", "leaseId": "a" }));
    let second_waits = wait(&second, json!({ "resourceId": "board", "leaseId": "b" }));
    let mut stream = Stream::open(&second, &of_request(&second_waits));
    let place = stream.expect("waiting");
    assert_eq!((&place["position"], &place["waitingFor"]), (&json!(2), &json!("leased")));
    assert!(place["until"].is_string() && place["ticket"].is_string(), "{place}");
    cancel(&first, &first_waits).expect(204);
    assert_eq!(stream.expect("waiting")["position"], 1);
    release(&holder, &lease);
    let granted = stream.expect("granted");
    assert_eq!(
        (&granted["id"], &granted["state"], &granted["lease"]["id"]),
        (&second_waits["id"], &json!("granted"), &json!("b"))
    );
    assert_eq!(stream.next(), None, "that was all");
    // Whoever comes late hears how it ended, and no more.
    let mut late = Stream::open(&second, &of_request(&second_waits));
    assert_eq!(late.expect("granted")["lease"]["id"], "b");
    assert_eq!(late.next(), None);
    let mut late = Stream::open(&first, &of_request(&first_waits));
    assert_eq!(late.expect("cancelled")["state"], "cancelled");
    assert_eq!(late.next(), None);
}

#[test]
fn the_stream_of_a_request_ends_with_its_failure_or_its_cancellation() {
    let lab = host("");
    let [holder, timed, unwanted] = agents(&lab, ["holder", "timed", "unwanted"]);
    hold(&holder, "board");
    let timed_waits = wait(&timed, json!({ "resourceId": "board", "timeoutMs": 1_000 }));
    let unwanted_waits = wait(&unwanted, json!({ "select": "platform=linux" }));
    let mut timed_stream = Stream::open(&timed, &of_request(&timed_waits));
    let mut unwanted_stream = Stream::open(&unwanted, &of_request(&unwanted_waits));
    timed_stream.expect("waiting");
    unwanted_stream.expect("waiting");
    cancel(&unwanted, &unwanted_waits).expect(204);
    assert_eq!(unwanted_stream.expect("cancelled")["id"], unwanted_waits["id"]);
    assert_eq!(unwanted_stream.next(), None);
    let failed = timed_stream.expect("failed");
    assert_eq!((&failed["state"], &failed["error"]["code"]), (&json!("failed"), &json!("QUEUE_TIMEOUT")));
    assert_eq!(timed_stream.next(), None);
}

#[test]
fn an_open_stream_is_asking_about_the_request() {
    let lab = host("[waiting_room]\nwaiter_ttl = \"1s\"");
    let [holder, silent, listener] = agents(&lab, ["holder", "silent", "listener"]);
    let lease = hold(&holder, "board");
    let listened = wait(&listener, json!({ "resourceId": "board" }));
    let mut stream = Stream::open(&listener, &of_request(&listened));
    stream.expect("waiting");
    // Twice as long as a request may be forgotten.
    for _ in 0..2 {
        let before = super::events(&lab.door("host"), "lease.rejected").len();
        wait(&silent, json!({ "resourceId": "board" }));
        crate::patience::eventually("the silent one is given up", crate::patience::BOUND, || {
            (super::events(&lab.door("host"), "lease.rejected").len() > before).then_some(())
        });
    }
    assert_eq!(release(&holder, &lease), "listener");
    stream.expect("granted");
}

#[test]
fn the_stream_of_a_lease_tells_of_renewals_and_how_it_was_lost() {
    let lab = host("");
    let [owner] = agents(&lab, ["owner"]);
    let admin = lab.door("host");
    for (id, ttl, reason) in [("given-back", 60_000, "explicit"), ("taken", 60_000, "admin"), ("short", 700, "expired")]
    {
        acquire(&owner, "board", json!({ "leaseId": id, "ttlMs": ttl })).expect(201);
        let path = format!("/v1/leases/{id}/events");
        let mut stream = Stream::open(&owner, &path);
        let begin = stream.start();
        let renewed = owner.post(&format!("/v1/leases/{id}/renew"), &json!({ "ttlMs": ttl + 1 })).expect(200).body;
        let told = stream.expect("renewed");
        assert_eq!((&told["leaseId"], &told["ttlMs"]), (&json!(id), &json!(ttl + 1)));
        assert!(close(&told["expiresAt"], &renewed["lease"]["expiresAt"]), "{told}");
        match reason {
            "explicit" => drop(release(&owner, id)),
            "admin" => drop(release(&admin, id)),
            _ => drop(event_about(&lab, "lease.expired", "owner")),
        }
        assert_eq!(stream.expect("lost"), json!({ "reason": reason }));
        assert_eq!(stream.next(), None, "that was all");
        // A holder that was cut off is told afterwards.
        let mut late = Stream::resume(&owner, &path, begin);
        late.start();
        late.expect("renewed");
        assert_eq!(late.expect("lost"), json!({ "reason": reason }));
        assert_eq!(late.next(), None);
        owner.get(&path).refused("UNKNOWN_LEASE", 404);
    }
}

#[test]
fn a_stream_is_for_whom_it_may_concern() {
    let lab = host("");
    let [owner, other] = agents(&lab, ["owner", "other"]);
    acquire(&owner, "board", json!({ "leaseId": "mine" })).expect(201);
    let waiting = wait(&other, json!({ "resourceId": "board" }));
    other.get("/v1/leases/mine/events").refused("INSUFFICIENT_PERMISSIONS", 403);
    owner.get(&of_request(&waiting)).refused("INSUFFICIENT_PERMISSIONS", 403);
    owner.get("/v1/leases/never-was/events").refused("UNKNOWN_LEASE", 404);
    let unknown = "/v1/lease-requests/req_0198f3a0-0000-7000-8000-000000000000/events";
    owner.get(unknown).refused("UNKNOWN_LEASE_REQUEST", 404);
    Stream::open(&lab.door("host"), "/v1/leases/mine/events").start();
}

#[test]
fn an_orderly_stop_ends_every_stream_and_so_does_the_end_of_its_token() {
    let mut lab = host("");
    let [holder, waiter, revoked] = agents(&lab, ["holder", "waiter", "revoked"]);
    acquire(&holder, "board", json!({ "leaseId": "mine" })).expect(201);
    let waiting = wait(&waiter, json!({ "resourceId": "board" }));
    let admin = lab.door("host");
    let mut of_revoked = Stream::open(&revoked, "/v1/events/stream");
    of_revoked.start();
    let tokens = admin.get("/v1/tokens").expect(200).body["tokens"].take();
    let token = tokens.as_array().unwrap().iter().find(|token| token["name"] == "revoked").unwrap();
    admin.delete(&format!("/v1/tokens/{}", text(&token["id"]))).expect(200);
    assert_eq!(of_revoked.next(), None);

    let mut streams = [
        Stream::open(&admin, "/v1/events/stream"),
        Stream::open(&holder, "/v1/leases/mine/events"),
        Stream::open(&waiter, &of_request(&waiting)),
    ];
    streams[2].expect("waiting");
    for stream in &mut streams[..2] {
        stream.start();
    }
    assert_eq!(lab.terminate("host").code(), Some(0));
    for mut stream in streams {
        // The log may still tell that the node stops; a wait that goes on has not ended.
        let rest: Vec<String> = std::iter::from_fn(|| stream.next()).map(|told| told.event).collect();
        assert!(rest.is_empty() || rest == ["node.stopping"], "{rest:?}");
    }
}
