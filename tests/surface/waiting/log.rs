//! The event log: in order, with the fields that the table says, filtered, and to each reader what it may see
//! (SPEC §10).

use std::collections::BTreeSet;
use std::io::Read;

use berth::model::EventKind;
use serde_json::{Value, json};

use super::{
    acquire, agents, cancel, event_about, host, join, joins_at, outcome, principal, release, request, text, time, wait,
};
use crate::bookings::{HOUR, ahead, booked, comes_to, path, soon, until, window};
use crate::holds::{held, hold};
use crate::http::{Call, Door};
use crate::lab::Lab;
use crate::sse::Stream;

/// A page of the log.
#[track_caller]
fn page(door: &Door, query: &str) -> Value {
    door.get(&format!("/v1/events?{query}")).expect(200).body
}

fn all(door: &Door) -> Vec<Value> {
    page(door, "limit=1000")["events"].as_array().unwrap().clone()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// Something of nearly everything that can happen on a host.
fn eventful() -> Lab {
    let mut lab = host(
        "[waiting_room]\nwaiter_ttl = \"3s\"\nadmission_grace = \"1m\"\n\
         [bookings]\nmode = \"enforced\"\nno_show_after = \"1s\"\n\
         [exec.allow]\nnothing = [\"true\"]",
    );
    let [holder, waiter, stander, silent] = agents(&lab, ["holder", "waiter", "stander", "silent"]);
    let admin = lab.door("host");
    calendar(&admin, &holder);
    acquire(&holder, "board", json!({ "leaseId": "mine", "note": "night run" })).expect(201);
    joins_at(1, &silent, "board");
    event_about(&lab, "waiter.pruned", "silent");
    let waiting = wait(&waiter, json!({ "resourceId": "board", "timeoutMs": 60_000, "priority": 1 }));
    joins_at(2, &stander, "board");
    holder.post("/v1/leases/mine/renew", &json!({ "ttlMs": 60_000 })).expect(200);
    let mut told = String::new();
    let tool = Call::json("/v1/leases/mine/exec", r#"{"tool": "nothing"}"#);
    holder.open(&tool).unwrap().read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 200 ") && told.contains(r#"{"exit":0}"#), "{told}");
    event_about(&lab, "lease.exec-ended", "holder");
    admin.post_text("/v1/resources/bench/drain", "").expect(200);
    release(&holder, "mine");
    let lease = text(&outcome(&waiter, &waiting)["lease"]["id"]);
    joins_at(1, &stander, "board");
    assert_eq!(release(&waiter, &lease), "stander");
    stander.delete("/v1/resources/board/waiting-room/me").expect(200);
    acquire(&stander, "board", json!({ "ttlMs": 100 })).expect(201);
    join(&silent, "board", json!({ "mode": "shared" }));
    silent.delete("/v1/resources/board/waiting-room/me").expect(200);
    event_about(&lab, "lease.expired", "stander");
    request(&silent, json!({ "select": "platform=ios" })).refused("NO_MATCHING_RESOURCE", 422);
    assert!(lab.terminate("host").success());
    lab.start("host");
    lab.wait_ready("host");
    lab
}

/// Something of all that can happen to bookings and holds.
fn calendar(admin: &Door, holder: &Door) {
    let starts_at = soon(1_000);
    let [had, missed] = ["pixel-a", "pixel-b"].map(|resource| booked(holder, resource, starts_at, HOUR));
    let moved = booked(holder, "board", ahead(86_400), HOUR);
    holder.patch(&path(&moved), &json!({ "durationMs": HOUR / 2 })).expect(200);
    holder.delete(&path(&moved)).expect(200);
    held(holder, "board", ahead(86_400), HOUR).confirm(holder).expect(200);
    held(holder, "bench", ahead(86_400), HOUR).release(holder).expect(200);
    let mut short = window(ahead(86_400), HOUR);
    short["ttlMs"] = json!(1);
    hold(holder, "bench", &short).expect(201);
    for pause in ["pause", "resume"] {
        for of in ["", "/resources/bench"] {
            admin.post_text(&format!("/v1{of}/holds/{pause}"), "").expect(200);
        }
    }
    until(starts_at);
    let lease = acquire(holder, "pixel-a", json!({})).expect(201).body["lease"].take();
    comes_to(holder, &had, "fulfilled");
    comes_to(holder, &missed, "missed");
    release(holder, &text(&lease["id"]));
}

#[test]
fn every_event_has_a_number_a_time_and_the_fields_that_the_table_says() {
    let lab = eventful();
    let events = all(&lab.door("host"));
    let mut seen = BTreeSet::new();
    let (mut last, mut ids) = (0, BTreeSet::new());
    for event in &events {
        let envelope: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(envelope, ["event", "id", "node", "payload", "seq", "timestamp"]);
        let seq = event["seq"].as_u64().unwrap();
        assert!(seq > last, "{seq} after {last}");
        last = seq;
        assert!(text(&event["id"]).starts_with("evt_") && ids.insert(text(&event["id"])), "{event}");
        time(&event["timestamp"]);
        assert_eq!(event["node"], "host");
        let kind: EventKind = text(&event["event"]).parse().unwrap();
        let payload = event["payload"].as_object().unwrap();
        for field in kind.fields() {
            let (name, optional) = field.strip_suffix('?').map_or((*field, false), |name| (name, true));
            let told = payload.get(name).is_some_and(|value| !value.is_null());
            assert!(told || optional, "{kind} lacks {name}: {event}");
        }
        let known = |name: &str| kind.fields().iter().any(|field| field.trim_end_matches('?') == name);
        assert!(payload.keys().all(|name| known(name)), "{kind} has too much: {event}");
        seen.insert(kind.as_str());
    }
    // What takes a gateway or a bug did not happen here.
    let never = |kind: &str| {
        let of_a_gateway = ["worker.", "request."].iter().any(|begin| kind.starts_with(begin));
        of_a_gateway || ["lease.declined", "invariant.violated"].contains(&kind)
    };
    let missing: Vec<&str> =
        EventKind::ALL.iter().map(|kind| kind.as_str()).filter(|kind| !seen.contains(kind) && !never(kind)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_log_tells_the_story_of_a_wait_in_its_order() {
    let lab = host("");
    let [holder, waiter, late] = agents(&lab, ["holder", "waiter", "late"]);
    let lease = acquire(&holder, "board", json!({ "ttlMs": 60_000 })).expect(201).body["lease"].take();
    let waiting = wait(&waiter, json!({ "select": "platform = linux", "timeoutMs": 60_000, "note": "night run" }));
    let late_waits = wait(&late, json!({ "resourceId": "board" }));
    cancel(&late, &late_waits).expect(204);
    release(&holder, &text(&lease["id"]));
    let events = all(&lab.door("host"));
    let story = [
        "node.started",
        "lease.requested",
        "lease.granted",
        "lease.requested",
        "lease.queued",
        "lease.requested",
        "lease.queued",
        "lease.rejected",
        "lease.released",
        "lease.granted",
    ];
    assert_eq!(kinds(&events), story);
    assert_eq!(events[1]["payload"]["waitPolicy"], json!({ "onConflict": "fail" }));
    assert_eq!(
        events[3]["payload"],
        json!({
            "requestId": waiting["id"],
            "requester": "waiter",
            "requestSpec": {
                "select": "platform=linux", "mode": "exclusive", "ttlMs": 900_000, "priority": 0.0, "note": "night run",
            },
            "waitPolicy": { "noWait": false, "timeoutMs": 60_000 },
        })
    );
    assert_eq!(events[4]["payload"], json!({ "requestId": waiting["id"], "position": 1 }));
    let released = json!({
        "leaseId": lease["id"], "resourceId": "board", "requester": "holder", "requestId": lease["requestId"],
        "fence": lease["fence"], "reason": "explicit",
    });
    assert_eq!(events[8]["payload"], released);
    let granted = outcome(&waiter, &waiting)["lease"].take();
    let told = json!({
        "leaseId": granted["id"], "resourceId": "board", "requester": "waiter", "requestId": waiting["id"],
        "fence": granted["fence"],
    });
    assert_eq!(events[9]["payload"], told);
}

#[test]
fn the_log_is_read_page_by_page_and_by_kind() {
    let lab = eventful();
    let door = lab.door("host");
    let events = all(&door);
    let (mut after, mut read) = (0, Vec::new());
    loop {
        let page = page(&door, &format!("after={after}&limit=3"));
        let found = page["events"].as_array().unwrap().clone();
        assert!(found.len() <= 3);
        after = page["lastSeq"].as_u64().unwrap();
        if found.is_empty() {
            break;
        }
        read.extend(found);
    }
    assert_eq!(read, events);
    assert_eq!(after, events.last().unwrap()["seq"].as_u64().unwrap());
    let granted = page(&door, "event=lease.granted")["events"].take();
    assert!(granted.as_array().unwrap().iter().all(|event| event["event"] == "lease.granted"), "{granted}");
    assert_eq!(
        granted.as_array().map(Vec::len),
        Some(kinds(&events).iter().filter(|kind| **kind == "lease.granted").count())
    );
    let beyond = page(&door, "after=9223372036854775807");
    assert_eq!(beyond, json!({ "events": [], "lastSeq": after }), "the last there is");
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("after=-1", "after"),
        ("after=1&after=2", "after"),
        ("event=lease.lost", "event"),
        ("kind=lease.granted", "kind"),
    ] {
        let told = door.get(&format!("/v1/events?{query}")).refused("BAD_REQUEST", 400);
        assert_eq!(told.details()["field"], field, "{query}");
    }
}

#[test]
fn an_agent_reads_its_own_events_and_a_viewer_all_but_those_of_waiting_rooms() {
    let lab = host("");
    let [holder, waiter, other] = agents(&lab, ["holder", "waiter", "other"]);
    let viewer = principal(&lab, "wall", "viewer");
    acquire(&holder, "board", json!({ "leaseId": "mine", "requester": "job-1" })).expect(201);
    joins_at(1, &waiter, "board");
    let waiting = wait(&other, json!({ "resourceId": "board" }));
    lab.door("host").post_text("/v1/resources/bench/drain", "").expect(200);
    release(&holder, "mine");
    assert_eq!(outcome(&other, &waiting)["state"], "granted");
    assert_eq!(kinds(&all(&holder)), ["lease.requested", "lease.granted", "lease.released"]);
    assert_eq!(kinds(&all(&waiter)), ["waiter.joined", "waiter.admitted"], "its own place is no secret to it");
    assert_eq!(kinds(&all(&other)), ["lease.requested", "lease.queued", "lease.granted"]);
    let everything = all(&lab.door("host"));
    let public: Vec<Value> =
        everything.iter().filter(|event| !text(&event["event"]).starts_with("waiter.")).cloned().collect();
    assert_eq!(public.len() + 2, everything.len());
    assert_eq!(all(&viewer), public);
    assert_eq!(page(&viewer, "event=waiter.joined")["events"], json!([]));
}

#[test]
fn a_stream_of_events_goes_on_after_the_last_one_that_its_client_has_seen() {
    let mut lab = host("");
    let [ci] = agents(&lab, ["ci"]);
    let lease = |id: &str| {
        acquire(&ci, "board", json!({ "leaseId": id })).expect(201);
        release(&ci, id);
    };
    lease("before");
    let mut stream = Stream::open(&ci, "/v1/events/stream");
    let begin = stream.start();
    lease("first");
    let story = ["lease.requested", "lease.granted", "lease.released"];
    let mut last = begin;
    for kind in &story[..2] {
        let told = stream.next().expect("it goes on");
        assert_eq!((told.event.as_str(), &told.data["event"]), (*kind, &json!(kind)));
        assert_eq!(told.id, told.data["seq"].as_u64());
        assert!(told.id > Some(last));
        last = told.id.unwrap();
    }
    drop(stream);
    lease("missed");
    lab.kill_9("host");
    lab.start("host");
    lab.wait_ready("host");
    let mut stream = Stream::resume(&ci, "/v1/events/stream", last);
    assert_eq!(stream.start(), last);
    let told: Vec<Value> = [story[2]].iter().chain(&story).map(|kind| stream.expect(kind)).collect();
    assert_eq!(told[2]["payload"]["leaseId"], "missed");
    lease("now");
    for kind in story {
        stream.expect(kind);
    }
    let mut released = Stream::open(&lab.door("host"), "/v1/events/stream?event=lease.released&after=0");
    assert_eq!(released.start(), 0);
    let ids = [(); 4].map(|()| text(&released.expect("lease.released")["payload"]["leaseId"]));
    assert_eq!(ids, ["before", "first", "missed", "now"]);
}
