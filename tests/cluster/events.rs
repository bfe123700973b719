//! The events of the fleet, read at the gateway (SPEC §9 Operators, §10).

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use berth::limits::{EVENT_PAYLOAD_BYTES_MAX, EVENTS_PER_PAGE_MAX};
use berth::model::{Caller, Code, EventKind, LeaseId, Mode, Refusal, RequestId, Role};
use berth::service::Coordinator;
use berth::service::ask::EventQuery;
use berth::service::views::{Connection, EventView, RequestState};
use berth::wire::report::Changed;
use berth::wire::requests::{SettledOutcome, SettledRow, WaitingRow};
use serde_json::{Value, json};

use crate::lab::{Lab, RACK_1, acquire, active, eventually, granted, request};
use crate::liar::{Liar, row};

const MINUTE: Duration = Duration::from_secs(60);

/// Every event in a node's log that this caller reads.
pub async fn log_of(node: &dyn Coordinator, caller: &Caller) -> Vec<EventView> {
    let mut all: Vec<EventView> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.seq);
        let query = EventQuery { after, limit: 1_000, event: None, lease: None };
        let page = node.events(caller, &query, Duration::ZERO).await.unwrap().events;
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

pub async fn log(lab: &Lab) -> Vec<EventView> {
    log_of(&*lab.gateway(), &Caller::admin()).await
}

/// Waits until the gateway's log has an event like this.
async fn told(lab: &Lab, what: &str, like: impl Fn(&EventView) -> bool) -> EventView {
    eventually(what, || async { log(lab).await.into_iter().find(&like) }).await
}

fn field<'e>(event: &'e EventView, name: &str) -> &'e str {
    event.payload.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn from(event: &EventView, worker: &str) -> bool {
    event.worker_id.as_ref().is_some_and(|id| id.as_str() == worker)
}

/// The gateway's own words about each request, in their order.
pub fn stories(log: &[EventView]) -> BTreeMap<String, Vec<&'static str>> {
    let mut stories: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for event in log.iter().filter(|event| event.worker_id.is_none() && event.payload.contains_key("requestId")) {
        stories.entry(field(event, "requestId").to_owned()).or_default().push(event.event.as_str());
    }
    stories
}

/// Each request that was told of begins once and ends once.
pub fn assert_every_story_ends_once(log: &[EventView]) {
    for (request, story) in stories(log) {
        let begins = story.iter().filter(|word| **word == "lease.requested").count();
        let ends = story.iter().filter(|word| matches!(**word, "request.granted" | "lease.rejected")).count();
        assert!(begins <= 1 && ends == 1, "{request}: {story:?}");
        assert!(matches!(story.last(), Some(&"request.granted" | &"lease.rejected")), "{request}: {story:?}");
    }
}

pub async fn disconnected(lab: &Lab, worker: usize) {
    let gateway = lab.gateway();
    eventually("the link is down", || async {
        let workers = gateway.workers(&Caller::admin()).await.unwrap();
        (workers[worker].connection == Connection::Disconnected).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_story_of_a_request_is_told_at_the_gateway_and_what_its_worker_did_is_relayed_in_the_gateways_names() {
    let lab = Lab::start().await;
    let chosen = granted(&lab.ask(request("job-1", "platform=android", Some("ad-7f3a"))).await.unwrap());
    let made = granted(&lab.ask(request("job-2", "platform=linux", None)).await.unwrap());
    for lease in [&chosen, &made] {
        lab.gateway().release(&Caller::admin(), &lease.id, None).await.unwrap();
    }
    for (lease, worker, requester) in [(&chosen, "rack-1", "admin/job-1"), (&made, "rack-2", "admin/job-2")] {
        let released = told(&lab, "the release", |event| {
            event.event == EventKind::LeaseReleased && field(event, "leaseId") == lease.id.as_str()
        })
        .await;
        assert!(from(&released, worker) && released.node.as_str() == "gateway", "{released:?}");
        assert_eq!(field(&released, "requester"), requester);
        let events = log(&lab).await;
        let own = stories(&events)[lease.request_id.as_str()].clone();
        assert_eq!(own, ["lease.requested", "request.dispatched", "request.granted"]);
        let of_lease: Vec<_> = events.iter().filter(|event| field(event, "leaseId") == lease.id.as_str()).collect();
        let relayed: Vec<_> =
            of_lease.iter().filter(|event| from(event, worker)).map(|event| event.event.as_str()).collect();
        assert_eq!(relayed, ["lease.granted", "lease.released"]);
        let end = of_lease.iter().find(|event| event.event == EventKind::RequestGranted).unwrap();
        assert_eq!((field(end, "worker"), field(end, "requester")), (worker, requester));
        assert_eq!(end.payload["fence"], lease.fence.0);
    }
    let all = log(&lab).await;
    assert!(!json!(all.iter().map(|event| &event.payload).collect::<Vec<_>>()).to_string().contains("gw:"));
    let requested = all.iter().find(|event| event.event == EventKind::LeaseRequested).unwrap();
    assert!(requested.payload["requestSpec"].get("leaseId").is_none(), "it is an option beside the request");
    assert_every_story_ends_once(&all);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_the_checks_are_told_without_a_beginning_and_a_replay_is_not_told_at_all() {
    let lab = Lab::start().await;
    let keyed = || {
        let mut ask = request("job-1", "platform=android", Some("mine"));
        ask.key = Some("the-key".parse().unwrap());
        ask
    };
    let first = granted(&lab.ask(keyed()).await.unwrap());
    granted(&lab.ask(keyed()).await.unwrap());
    lab.ask(request("job-1", "platform=linux", None)).await.unwrap_err();
    lab.ask(request("job-2", "platform=linux", Some("mine"))).await.unwrap_err();
    lab.ask(request("job-2", "platform=amiga", None)).await.unwrap_err();
    let refused = told(&lab, "the last refusal", |event| field(event, "reason") == "no-match").await;
    assert_eq!(field(&refused, "code"), "NO_MATCHING_RESOURCE");
    let events = log(&lab).await;
    let stories = stories(&events);
    assert_eq!(stories[first.request_id.as_str()], ["lease.requested", "request.dispatched", "request.granted"]);
    assert_eq!(stories.len(), 4, "the replay has no story: {stories:?}");
    let rejected = |reason: &str| events.iter().find(|event| field(event, "reason") == reason).unwrap();
    for (reason, code) in [("already-leased", "REQUESTER_ALREADY_LEASED"), ("lease-id-taken", "LEASE_ID_TAKEN")] {
        let event = rejected(reason);
        assert_eq!(field(event, "code"), code);
        assert_eq!(stories[field(event, "requestId")], ["lease.rejected"]);
        assert!(event.payload["requestSpec"].get("leaseId").is_none());
    }
    assert_eq!(stories[field(&refused, "requestId")], ["lease.requested", "lease.rejected"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_reads_its_own_and_nothing_of_a_workers_client_of_the_same_name() {
    let lab = Lab::start().await;
    let ci = Caller { principal: "ci".parse().unwrap(), role: Role::Agent };
    let own = |caller: &Caller, resource: &str| {
        let mut ask = acquire("x", resource, MINUTE);
        ask.requester = berth::model::Requester::local(caller.principal.clone(), None);
        ask
    };
    let fleet = active(lab.gateway().acquire(&ci, own(&ci, "pixel")).await.unwrap());
    let local = active(lab.worker("rack-2").acquire(&ci, own(&ci, "board-1")).await.unwrap());
    let local_name = LeaseId::through(&"rack-2".parse().unwrap(), &local.id);
    told(&lab, "the local lease", |event| field(event, "leaseId") == local_name.as_str()).await;
    told(&lab, "the fleet's", |event| from(event, "rack-1") && field(event, "leaseId") == fleet.id.as_str()).await;
    let seen = log_of(&*lab.gateway(), &ci).await;
    assert!(seen.iter().all(|event| field(event, "leaseId") != local_name.as_str()), "{seen:?}");
    let kinds: HashSet<_> = seen.iter().map(|event| event.event.as_str()).collect();
    let its_own = ["lease.requested", "request.dispatched", "request.granted", "lease.granted"];
    assert_eq!(kinds, HashSet::from(its_own));
    let viewer = Caller { principal: "eye".parse().unwrap(), role: Role::Viewer };
    assert!(log_of(&*lab.gateway(), &viewer).await.iter().any(|event| field(event, "leaseId") == local_name.as_str()));
}

#[tokio::test(start_paused = true)]
async fn what_happened_while_a_worker_was_apart_is_filled_in_once_and_in_its_order() {
    let lab = Lab::start().await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    disconnected(&lab, 0).await;
    let rack = lab.worker("rack-1");
    // More than a page.
    for _ in 0..EVENTS_PER_PAGE_MAX {
        let lease = active(rack.acquire(&Caller::admin(), acquire("local", "pixel", MINUTE)).await.unwrap());
        rack.release(&Caller::admin(), &lease.id, None).await.unwrap();
    }
    lab.weather.clear();
    let there = log_of(&*rack, &Caller::admin()).await;
    let last = there.last().unwrap().id.clone();
    told(&lab, "the last of them", |event| event.id == last).await;
    let here: Vec<_> = log(&lab).await.into_iter().filter(|event| from(event, "rack-1")).collect();
    let named = |events: &[EventView]| {
        events.iter().map(|event| (event.id.clone(), event.event, event.timestamp)).collect::<Vec<_>>()
    };
    assert_eq!(named(&here), named(&there), "each once, with its id and its time");
    let page = here.iter().find(|event| event.event == EventKind::LeaseGranted).unwrap();
    assert!(field(page, "leaseId").starts_with("rack-1.lse_"), "{page:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_lost_its_disk_gets_everything_again() {
    let mut lab = Lab::start().await;
    granted(&lab.ask(request("job-1", "platform=android", Some("mine"))).await.unwrap());
    told(&lab, "the grant", |event| event.event == EventKind::LeaseGranted).await;
    let before: HashSet<_> =
        log(&lab).await.into_iter().filter(|event| event.worker_id.is_some()).map(|event| event.id).collect();
    lab.stop("gateway").await;
    for end in ["", "-wal", "-shm"] {
        let file = lab.file.node_dir(&"gateway".parse().unwrap()).join(format!("events.db{end}"));
        if file.exists() {
            std::fs::remove_file(file).unwrap();
        }
    }
    lab.restart("gateway").await;
    lab.ready().await;
    eventually("all of it is there again", || async {
        let now: HashSet<_> = log(&lab).await.into_iter().map(|event| event.id).collect();
        before.is_subset(&now).then_some(())
    })
    .await;
    let granted = told(&lab, "the grant", |event| event.event == EventKind::LeaseGranted).await;
    assert_eq!(field(&granted, "leaseId"), "mine");
}

/// What becomes of a gateway's history on its disk: a kill takes back what was not written, all of it or what came last.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    Nothing,
    AllBefore,
}

#[tokio::test(start_paused = true)]
async fn a_request_of_which_a_killed_gateway_wrote_nothing_is_told_to_have_been_granted_by_the_next_or_the_one_after() {
    for kept in [Kept::Nothing, Kept::AllBefore] {
        let mut lab = Lab::start().await;
        let directory = lab.file.node_dir(&"gateway".parse().unwrap());
        let files = ["", "-wal", "-shm"].map(|end| directory.join(format!("events.db{end}")));
        lab.stop("gateway").await;
        let before = files.clone().map(|file| std::fs::read(file).ok());
        let take_back = || {
            for (file, content) in files.iter().zip(&before) {
                match content.as_ref().filter(|_| kept == Kept::AllBefore) {
                    Some(content) => std::fs::write(file, content).unwrap(),
                    None => drop(std::fs::remove_file(file)),
                }
            }
        };
        lab.restart("gateway").await;
        lab.ready().await;
        let over = granted(&lab.ask(request("job-1", "platform=android", Some("mine"))).await.unwrap());
        let held = granted(&lab.ask(request("job-2", "platform=linux", None)).await.unwrap());
        lab.stop("gateway").await;
        take_back();
        // This run finds both leases. What it tells of them is lost as well, and one is over by then.
        lab.restart("gateway").await;
        lab.ready().await;
        lab.gateway().release(&Caller::admin(), &over.id, None).await.unwrap();
        lab.stop("gateway").await;
        take_back();
        lab.restart("gateway").await;
        lab.ready().await;
        for lease in [&over, &held] {
            let own =
                |event: &EventView| event.worker_id.is_none() && field(event, "requestId") == lease.request_id.as_str();
            let end = told(&lab, &format!("its end, with {kept:?} of the history kept"), own).await;
            assert_eq!((end.event, field(&end, "leaseId")), (EventKind::RequestGranted, lease.id.as_str()));
            assert_eq!(end.payload["fence"], lease.fence.0);
        }
        lab.stop("gateway").await;
        lab.restart("gateway").await;
        lab.ready().await;
        tokio::time::sleep(MINUTE).await;
        assert_every_story_ends_once(&log(&lab).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_was_sent_again_because_its_acknowledgement_was_lost_is_stored_once() {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let page = |seqs: std::ops::Range<u64>| seqs.map(|seq| row(seq, "node.stopping", json!({}))).collect::<Vec<_>>();
    let (first, second) = (page(1..4), page(4..6));
    let mut worker = Liar::join(&lab, "rack-1", "pixel", vec![]).await;
    let known = worker.link.events_after;
    assert!(known.is_some(), "the gateway has those of the real one");
    worker.says(first.clone()).await.unwrap();
    // It is on its way or stored; nobody has heard that.
    drop(worker);
    let mut worker = Liar::join(&lab, "rack-1", "pixel", vec![]).await;
    worker.relays(first.clone()).await;
    worker.relays(second.clone()).await;
    drop(worker);
    let worker = Liar::join(&lab, "rack-1", "pixel", vec![]).await;
    assert_eq!(worker.link.events_after, Some(5));
    let sent: Vec<_> = first.into_iter().chain(second).map(|event| event.id).collect();
    let here: Vec<_> = log(&lab).await.into_iter().map(|event| event.id).filter(|id| sent.contains(id)).collect();
    assert_eq!(here, sent);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lies_is_not_believed() {
    let mut lab = Lab::start().await;
    let lease = granted(&lab.ask(request("job-1", "platform=linux", Some("mine"))).await.unwrap());
    lab.stop("rack-1").await;
    disconnected(&lab, 0).await;
    let before = log(&lab).await.last().unwrap().seq;
    let mut liar = Liar::join(&lab, "rack-1", "pixel", vec![]).await;
    let release = json!({
        "leaseId": "mine", "requester": "gw:gateway:admin/job-1", "requestId": lease.request_id.as_str(),
        "resourceId": "board-1", "fence": lease.fence.0, "reason": "explicit",
    });
    let fleet = json!({ "requestId": lease.request_id.as_str(), "requester": "gw:gateway:admin/job-1" });
    let events = vec![
        row(1, "worker.removed", json!({ "worker": "rack-2", "revoked": true })),
        row(2, "request.granted", fleet.clone()),
        row(3, "lease.rejected", fleet.clone()),
        row(4, "lease.requested", fleet),
        row(5, "lease.released", release),
        row(6, "invariant.violated", json!({ "detail": "x".repeat(2 * EVENT_PAYLOAD_BYTES_MAX) })),
        row(7, "lease.flattened", json!({})),
        row(8, "booking.cancelled", json!({ "bookingId": "rack-2.book_00000000-0000-0000-0000-000000000001" })),
    ];
    let huge = events[5].id.clone();
    liar.relays(events).await;
    let here: Vec<_> =
        log(&lab).await.into_iter().filter(|event| event.seq > before && from(event, "rack-1")).collect();
    let kinds: Vec<_> = here.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(kinds, ["lease.released", "invariant.violated"]);
    assert_eq!(field(&here[0], "leaseId"), "rack-1.mine", "it does not speak for another worker");
    assert_eq!((&here[1].id, json!(here[1].payload)), (&huge, json!({ "truncated": true })));
    let of_lease = EventQuery { after: 0, limit: 100, event: None, lease: Some(lease.id.clone()) };
    let of_lease = lab.gateway().events(&Caller::admin(), &of_lease, Duration::ZERO).await.unwrap().events;
    assert!(of_lease.iter().all(|event| event.event != EventKind::LeaseReleased), "{of_lease:?}");
    assert_every_story_ends_once(&log(&lab).await);

    // Whoever does not keep to the conversation is cut off.
    let again = || vec![row(20, "node.stopping", json!({})), row(20, "node.stopping", json!({}))];
    liar.says(again()).await.unwrap();
    assert_eq!(liar.acknowledged().await, None);
    let mut hasty = Liar::join(&lab, "rack-1", "pixel", vec![]).await;
    for seq in 30..60 {
        if hasty.says(vec![row(seq, "node.stopping", json!({}))]).await.is_err() {
            break;
        }
    }
    while hasty.acknowledged().await.is_some() {}
    let link = told(&lab, "why it was cut off", |event| {
        event.event == EventKind::WorkerDisconnected && field(event, "reason").contains("acknowledged")
    });
    link.await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_when_the_gateway_went_ends_as_daemon_restarted() {
    let mut lab = Lab::start().await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    disconnected(&lab, 0).await;
    let waiting = lab.lease("job-1", "platform=android").await.unwrap();
    assert_eq!(waiting.state, RequestState::Waiting);
    let queued = told(&lab, "that it waits", |event| event.event == EventKind::LeaseQueued).await;
    assert_eq!((field(&queued, "requestId"), &queued.payload["position"]), (waiting.id.as_str(), &json!(1)));
    lab.stop("gateway").await;
    lab.weather.clear();
    lab.restart("gateway").await;
    lab.ready().await;
    let end = told(&lab, "its end", |event| event.event == EventKind::LeaseRejected).await;
    assert_eq!((field(&end, "requestId"), field(&end, "reason")), (waiting.id.as_str(), "daemon-restarted"));
    assert_eq!(
        (field(&end, "requester"), &end.payload["requestSpec"]["select"]),
        ("admin/job-1", &json!("platform=android"))
    );
    // Neither the next run nor time tells it again.
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    tokio::time::sleep(MINUTE).await;
    let all = log(&lab).await;
    assert_every_story_ends_once(&all);
    let began = all.iter().filter(|event| event.event == EventKind::NodeStarted && event.worker_id.is_none());
    let runs: Vec<u64> = began.map(|event| event.payload["incarnation"].as_u64().unwrap()).collect();
    assert!(runs.len() == 3 && runs.is_sorted_by(|one, next| one < next), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_out_when_the_gateway_went_ends_as_its_worker_reports_however_late() {
    let mut lab = Lab::start().await;
    // The worker hears and grants; what it says is lost.
    let rack = lab.weather.opened(RACK_1);
    lab.weather.mute(rack);
    let out = lab.lease("job-1", "platform=android").await.unwrap();
    assert_eq!(out.state, RequestState::Waiting);
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    // The rebuild is over without that worker, but the grace is not.
    lab.ready().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!log(&lab).await.iter().any(|event| field(event, "reason") == "daemon-restarted"), "it may be granted");
    lab.weather.clear();
    let end = told(&lab, "its end", |event| event.event == EventKind::RequestGranted).await;
    assert_eq!((field(&end, "requestId"), field(&end, "worker")), (out.id.as_str(), "rack-1"));
    tokio::time::sleep(MINUTE).await;
    assert_every_story_ends_once(&log(&lab).await);
}

/// What a worker's book says of a request of the gateway's.
fn settled(id: &RequestId, requester: &str, outcome: SettledOutcome) -> SettledRow {
    SettledRow {
        request: id.clone(),
        requester: requester.parse().unwrap(),
        key: None,
        fingerprint: request("x", "platform=android", None).fingerprint(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        ended_ms_ago: Some(1_000),
        outcome,
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_former_run_end_as_their_worker_s_book_says_and_those_that_wait_there_have_no_end_yet() {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    disconnected(&lab, 0).await;
    let mut open = Vec::new();
    for job in ["job-1", "job-2", "job-3"] {
        open.push(lab.lease(job, "platform=android").await.unwrap().id);
    }
    let [late, waits, claimed] = open.try_into().unwrap();
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    let timeout = SettledOutcome::Failed(Refusal::new(Code::QueueTimeout, "it did not become free in time"));
    let book = [
        settled(&late, "gw:gateway:admin/job-1", timeout.clone()),
        // It does not know whose it is.
        settled(&claimed, "gw:gateway:admin/job-7", timeout),
    ];
    let row = WaitingRow {
        request: waits.clone(),
        requester: "gw:gateway:admin/job-2".parse().unwrap(),
        resource: "pixel".parse().unwrap(),
        mode: Mode::Exclusive,
        attended: true,
        lease_id: None,
        key: None,
        fingerprint: book[0].fingerprint,
        joined_at: jiff::Timestamp::UNIX_EPOCH,
    };
    let mut worker = Liar::join_with(&lab, "rack-1", "pixel", vec![], &[row], &book).await;
    lab.ready().await;
    tokio::time::sleep(MINUTE).await;
    let reasons = |log: Vec<EventView>, request: &RequestId| -> Vec<String> {
        let of = log.iter().filter(|event| field(event, "requestId") == request.as_str());
        of.filter(|event| event.event == EventKind::LeaseRejected).map(|event| field(event, "reason").into()).collect()
    };
    assert_eq!(reasons(log(&lab).await, &late), ["timeout"]);
    assert_eq!(reasons(log(&lab).await, &claimed), ["daemon-restarted"]);
    assert!(reasons(log(&lab).await, &waits).is_empty(), "it waits on");
    worker.changes(1, Changed::Settled(settled(&waits, "gw:gateway:admin/job-2", SettledOutcome::Cancelled))).await;
    told(&lab, "its end", |event| field(event, "reason") == "cancelled").await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(reasons(log(&lab).await, &waits), ["cancelled"]);
    assert_every_story_ends_once(&log(&lab).await);
}

#[tokio::test(start_paused = true)]
async fn links_and_pauses_are_told_and_followed_as_they_happen() {
    let lab = Lab::start().await;
    let after = log(&lab).await.last().unwrap().seq;
    let (gateway, admin) = (lab.gateway(), Caller::admin());
    let query = EventQuery { after, limit: 10, event: Some(EventKind::WorkerDisconnected), lease: None };
    let waiting = gateway.events(&admin, &query, MINUTE);
    let cut = async { lab.weather.cut(lab.weather.opened(RACK_1)) };
    let (page, ()) = tokio::join!(waiting, cut);
    let page = page.unwrap();
    assert_eq!(field(&page.events[0], "worker"), "rack-1");
    assert_eq!(page.last_seq, page.events[0].seq);
    lab.weather.clear();
    told(&lab, "it is back", |event| event.event == EventKind::WorkerConnected && event.seq > page.last_seq).await;
    for paused in [true, true, false, false] {
        let call = berth::wire::calendar::CalendarCall {
            asker: gateway.asker(&admin, None),
            ask: berth::wire::calendar::CalendarAsk::PauseHolds { resource: None, paused },
        };
        gateway.calendar(None, call).await.unwrap();
    }
    told(&lab, "holds are made again", |event| event.event == EventKind::HoldsResumed && event.worker_id.is_none())
        .await;
    let own = |kind| move |event: &&EventView| event.event == kind && event.worker_id.is_none();
    let all = log(&lab).await;
    assert_eq!(all.iter().filter(own(EventKind::HoldsPaused)).count(), 1, "told when it changes");
    assert_eq!(all.iter().filter(own(EventKind::HoldsResumed)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_its_disk_relays_its_new_log_from_the_beginning() {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    // The gateway knows of later events than the log that begins now will have for a long time.
    let mut former = Liar::join(&lab, "rack-1", "pixel", vec![]).await;
    former.relays(vec![row(1 << 60, "node.stopping", json!({}))]).await;
    drop(former);
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.restart("rack-1").await;
    let rack = lab.worker("rack-1");
    let there = log_of(&*rack, &Caller::admin()).await;
    let last = there.last().unwrap().id.clone();
    told(&lab, "the last of the new log", |event| event.id == last).await;
    let here: HashSet<_> = log(&lab).await.into_iter().map(|event| event.id).collect();
    assert!(there.iter().all(|event| here.contains(&event.id)));
    let lease = active(rack.acquire(&Caller::admin(), acquire("local", "pixel", MINUTE)).await.unwrap());
    let name = LeaseId::through(&"rack-1".parse().unwrap(), &lease.id);
    told(&lab, "what happens from then on", |event| field(event, "leaseId") == name.as_str()).await;
}
