//! Those who wait through a gateway that is killed, by a resource's name and by selector: they come back unasked, in their
//! order, and each is served once (SPEC §2 Waiting ticket, §9 Named resources).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http::Door;
use crate::lab::{FLEET, Lab};
use crate::patience::{BOUND, eventually};
use crate::waiting::{acquire, release, state, text};

/// A lease that lasts longer than the test.
fn long(door: &Door, resource: &str, requester: &str) -> String {
    let body = json!({ "requester": requester, "ttlMs": 3_600_000 });
    text(&acquire(door, resource, body).expect(201).body["lease"]["id"])
}

/// The command line in the background, until it says that it waits.
fn waits(lab: &mut Lab, name: &str, arguments: &[&str]) {
    let mut command = lab.command();
    command.arg("lease").args(arguments);
    lab.run(name, command);
    eventually("it says that it waits", BOUND, || lab.said(name).contains("position").then_some(()));
}

/// Who waits for a resource by its name.
fn room(door: &Door, resource: &str) -> Vec<String> {
    let room = door.get(&format!("/v1/resources/{resource}/waiting-room")).expect(200).body;
    room["waiters"].as_array().unwrap().iter().map(|waiter| text(&waiter["holderId"])).collect()
}

/// Where each waiting request stands, by its requester.
fn places(door: &Door) -> BTreeMap<String, u64> {
    let listed = door.get("/v1/lease-requests").expect(200).body;
    let stories = stories(door);
    let waiting = listed["requests"].as_array().unwrap().iter().filter(|request| request["state"] == "waiting");
    let place = |request: &Value| {
        let (requester, _) = stories.get(request["id"].as_str()?)?;
        Some((requester.clone(), state(door, request)["position"].as_u64()?))
    };
    waiting.filter_map(place).collect()
}

/// The lease of whoever holds a resource.
fn lease_on(door: &Door, resource: &str) -> String {
    let leases = door.get("/v1/leases").expect(200).body;
    let of = leases["leases"].as_array().unwrap().iter().find(|lease| lease["resourceId"] == resource);
    text(&of.unwrap_or_else(|| panic!("nobody holds {resource}: {leases}"))["id"])
}

/// The gateway's own words about each request, with whose it is.
fn stories(door: &Door) -> BTreeMap<String, (String, Vec<String>)> {
    let page = door.get("/v1/events?limit=1000").expect(200).body;
    let mut stories: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    for event in page["events"].as_array().unwrap().iter().filter(|event| event.get("workerId").is_none()) {
        let Value::String(request) = &event["payload"]["requestId"] else { continue };
        let story = stories.entry(request.clone()).or_default();
        if let Value::String(requester) = &event["payload"]["requester"] {
            story.0.clone_from(requester);
        }
        story.1.push(text(&event["event"]));
    }
    stories
}

fn count(story: &[String], words: &[&str]) -> usize {
    story.iter().filter(|word| words.contains(&word.as_str())).count()
}

#[test]
fn all_who_wait_when_the_gateway_is_killed_come_back_unasked_and_are_served_once_in_their_order() {
    let mut lab = Lab::apart(FLEET, &["gateway", "rack-1", "rack-2"]);
    let door = lab.door("gateway");
    let (phone, bench) = (long(&door, "pixel-a", "holder-1"), long(&door, "bench", "holder-2"));
    waits(&mut lab, "first", &["--resource", "rack-1/pixel-a", "--requester", "first"]);
    waits(&mut lab, "second", &["--resource", "pixel-a", "--requester", "second"]);
    waits(&mut lab, "chooser", &["--select", "platform=linux", "--requester", "chooser"]);
    waits(&mut lab, "poller", &["acquire", "pixel-a", "--on-conflict", "join-waiting-room", "--poll"]);
    let before = ["admin/first", "admin/second", "admin"];
    assert_eq!(room(&door, "pixel-a"), before);
    let wanted: BTreeMap<String, u64> =
        [("admin/first", 1), ("admin/second", 2), ("admin/chooser", 1)].map(|(name, at)| (name.to_owned(), at)).into();
    assert_eq!(places(&door), wanted);
    eventually("it is on disk that somebody waits", BOUND, || {
        let marked = std::fs::read_to_string(lab.state("gateway").join("run.state")).ok()?;
        marked.contains("platform=linux").then_some(())
    });
    let asked = |door: &Door| stories(door).values().filter(|story| count(&story.1, &["lease.requested"]) == 1).count();
    eventually("their beginnings are told", BOUND, || (asked(&door) == 5).then_some(()));

    lab.kill_9("gateway");
    lab.start("gateway");
    lab.wait_ready("gateway");
    for name in ["first", "second", "chooser"] {
        eventually("it has noticed", BOUND, || lab.said(name).contains("asking again").then_some(()));
    }
    eventually("all are back", BOUND, || (places(&door) == wanted).then_some(()));
    assert_eq!(room(&door, "pixel-a"), before, "in their order");

    assert_eq!(release(&door, &phone), "admin/first");
    assert_eq!(lab.wait_end("first").code(), Some(0), "{}", lab.said("first"));
    assert_eq!(room(&door, "pixel-a"), before[1..]);
    assert_eq!(release(&door, &lease_on(&door, "pixel-a")), "admin/second");
    assert_eq!(lab.wait_end("second").code(), Some(0), "{}", lab.said("second"));
    assert_eq!(release(&door, &lease_on(&door, "pixel-a")), "admin");
    assert_eq!(lab.wait_end("poller").code(), Some(0), "{}", lab.said("poller"));
    assert_eq!(places(&door).into_keys().collect::<Vec<_>>(), ["admin/chooser"]);
    release(&door, &bench);
    assert_eq!(lab.wait_end("chooser").code(), Some(0), "{}", lab.said("chooser"));
    assert_eq!(lease_on(&door, "bench").split_once('.').map(|(worker, _)| worker), Some("rack-2"));

    let ends = ["request.granted", "lease.rejected"];
    let told = eventually("each has an end", BOUND, || {
        let told = stories(&door);
        told.values().all(|story| count(&story.1, &ends) > 0).then_some(told)
    });
    for (request, (requester, story)) in &told {
        assert!(
            count(story, &ends) == 1 && count(story, &["lease.requested"]) == 1,
            "{request} of {requester}: {story:?}"
        );
        assert!(ends.contains(&story.last().unwrap().as_str()), "{request} of {requester}: {story:?}");
    }
    for requester in ["admin/first", "admin/second", "admin/chooser", "admin"] {
        let own = told.values().filter(|story| story.0 == requester);
        assert_eq!(own.map(|story| count(&story.1, &ends[..1])).sum::<usize>(), 1, "{requester}: {told:?}");
    }
}
