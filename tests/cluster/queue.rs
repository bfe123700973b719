//! Requests by selector that wait at the gateway: their order, what they are told, and how they end.

use std::sync::Arc;
use std::time::Duration;

use berth::model::{Ask, Caller, Code, LeaseId, Mode, Priority, WaitPolicy, WaitingFor};
use berth::service::Coordinator;
use berth::service::views::{Connection, RequestState, RequestView};

use crate::lab::{Lab, RACK_1, eventually, granted, request, request_now};

const MINUTE: Duration = Duration::from_secs(60);

/// Asks, and is told that it waits.
async fn wait(lab: &Lab, ask: Ask) -> RequestView {
    let waits = lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.unwrap();
    assert_eq!(waits.state, RequestState::Waiting, "{waits:?}");
    waits
}

async fn now(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, Duration::ZERO).await.unwrap()
}

async fn release(lab: &Lab, lease: &LeaseId) {
    lab.gateway().release(&Caller::admin(), lease, None).await.unwrap();
}

/// Leases both boards of rack-2.
async fn take_boards(lab: &Lab) -> [LeaseId; 2] {
    let mut leases = Vec::new();
    for slot in ["1", "2"] {
        let select = format!("platform=linux,slot={slot}");
        let mut ask = request(&format!("holder-{slot}"), &select, None);
        ask.ttl = Duration::from_secs(3_600);
        leases.push(granted(&lab.ask(ask).await.unwrap()).id);
    }
    leases.try_into().unwrap()
}

async fn settled(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, MINUTE).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_their_order_over_all_workers() {
    let lab = Lab::start().await;
    let boards = take_boards(&lab).await;
    let pixel = granted(&lab.lease("holder-3", "platform=android").await.unwrap());
    let begun = lab.clock.now().run;
    let first = wait(&lab, request("first", "platform", None)).await;
    let linux = wait(&lab, request("linux", "platform=linux", None)).await;
    let urgent =
        wait(&lab, Ask { priority: Priority::try_from(5.0).unwrap(), ..request("urgent", "platform", None) }).await;
    assert!(lab.clock.now().run.left(begun) < Duration::from_secs(1), "it is known at once that they wait");
    assert_eq!((urgent.position, now(&lab, &first).await.position), (Some(1), Some(2)), "of the same selector");
    assert_eq!((linux.position, linux.waiting_for), (Some(1), Some(WaitingFor::Leased)));
    assert!(linux.until.is_some() && linux.ticket.is_some());
    release(&lab, &pixel.id).await;
    assert_eq!(granted(&settled(&lab, &urgent).await).resource_id.as_str(), "pixel");
    release(&lab, &boards[0]).await;
    assert_eq!(granted(&settled(&lab, &first).await).resource_id.as_str(), "board-1", "it came before the other");
    assert_eq!(now(&lab, &linux).await.state, RequestState::Waiting);
    release(&lab, &boards[1]).await;
    granted(&settled(&lab, &linux).await);
}

#[tokio::test(start_paused = true)]
async fn one_who_is_not_to_wait_hears_at_once_that_nothing_is_free_or_nothing_matches() {
    let lab = Lab::start().await;
    take_boards(&lab).await;
    let begun = lab.clock.now().run;
    let refused = lab.ask(request_now("hasty", "platform=linux")).await.unwrap_err();
    assert_eq!(refused.code, Code::NoCapacity);
    assert!(refused.retry_after.is_some());
    for ask in [request_now("hasty", "platform=ios"), request("patient", "platform=ios", None)] {
        let refused = lab.ask(ask).await.unwrap_err();
        assert_eq!(refused.code, Code::NoMatchingResource);
        assert!(refused.message.contains("platform"), "{}", refused.message);
    }
    assert!(lab.clock.now().run.left(begun) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_timeout_counts_from_the_first_wait_and_the_key_stands_for_it() {
    let lab = Lab::start().await;
    take_boards(&lab).await;
    let timed = |requester: &str| Ask {
        wait: WaitPolicy::Wait { timeout: Some(Duration::from_secs(20)) },
        key: Some("k-1".parse().unwrap()),
        ..request(requester, "platform=linux", None)
    };
    let begun = lab.clock.now().run;
    let waits = wait(&lab, timed("patient")).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    let again = wait(&lab, timed("patient")).await;
    assert_eq!(again.id, waits.id, "the key attaches to the one that waits");
    let failed = settled(&lab, &waits).await;
    let error = failed.error.unwrap();
    assert_eq!(error.code, Code::QueueTimeout);
    let took = lab.clock.now().run.left(begun);
    assert!(took >= Duration::from_secs(20) && took < Duration::from_secs(21), "{took:?}");
    let replay = lab.gateway().request(&Caller::admin(), timed("patient"), MINUTE).await;
    assert_eq!(replay.unwrap_err().code, Code::QueueTimeout);
    wait(&lab, request("patient", "platform=linux", None)).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_asks_about_is_given_up_and_one_that_is_watched_is_not() {
    let lab = Lab::with(&[("BERTH_WAITING_ROOM__WAITER_TTL", "30s")]).await;
    let [board, _] = take_boards(&lab).await;
    let left = wait(&lab, request("left", "platform=linux", None)).await;
    let watched = wait(&lab, request("watched", "platform=linux", None)).await;
    let watcher = tokio::spawn({
        let (gateway, id) = (lab.gateway(), watched.id.clone());
        async move { gateway.lease_request(&Caller::admin(), &id, MINUTE * 10).await }
    });
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(now(&lab, &left).await.state, RequestState::Waiting, "and that counts as asking");
    tokio::time::sleep(Duration::from_secs(31)).await;
    let failed = now(&lab, &left).await.error.unwrap();
    assert_eq!((failed.code, failed.details.unwrap()["reason"].clone()), (Code::NoCapacity, "abandoned".into()));
    release(&lab, &board).await;
    granted(&watcher.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_one_frees_its_requester_its_id_and_its_place() {
    let lab = Lab::start().await;
    let [board, _] = take_boards(&lab).await;
    let first = wait(&lab, request("first", "platform=linux", Some("mine"))).await;
    let second = wait(&lab, request("second", "platform=linux", None)).await;
    assert_eq!(second.position, Some(2));
    let taken = lab.ask(request("third", "platform=android", Some("mine"))).await.unwrap_err();
    assert_eq!(taken.code, Code::LeaseIdTaken);
    lab.gateway().cancel(&Caller::admin(), &first.id).await.unwrap();
    assert_eq!(now(&lab, &first).await.state, RequestState::Cancelled);
    assert_eq!(now(&lab, &second).await.position, Some(1));
    assert_eq!(
        granted(&lab.ask(request("first", "platform=android", Some("mine"))).await.unwrap()).id.as_str(),
        "mine"
    );
    release(&lab, &board).await;
    granted(&settled(&lab, &second).await);
    let late = lab.gateway().cancel(&Caller::admin(), &second.id).await.unwrap_err();
    assert_eq!(late.code, Code::RequestNotCancellable);
}

#[tokio::test(start_paused = true)]
async fn no_more_wait_than_may() {
    let lab = Lab::with(&[("BERTH_LIMITS__WAITERS", "2")]).await;
    take_boards(&lab).await;
    for requester in ["a", "b"] {
        wait(&lab, request(requester, "platform=linux", None)).await;
    }
    let refused = lab.ask(request("c", "platform=linux", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::QueueFull);
    assert_eq!(lab.ask(request_now("c", "platform=linux")).await.unwrap_err().code, Code::NoCapacity);
    granted(&lab.ask(request("c", "platform=android", None)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn one_waits_the_absence_grace_where_only_a_worker_that_is_away_could_serve_and_longer_where_one_is_here() {
    let lab = Lab::start().await;
    take_boards(&lab).await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    eventually("the worker is seen to be away", || async {
        let workers = lab.gateway().workers(&Caller::admin()).await.unwrap();
        (workers[0].connection == Connection::Disconnected).then_some(())
    })
    .await;
    assert_eq!(lab.ask(request_now("hasty", "platform=android")).await.unwrap_err().code, Code::NoCapacity);
    let begun = lab.clock.now().run;
    let (either, away) = (
        wait(&lab, request("either", "platform", None)).await,
        wait(&lab, request("away", "platform=android", None)).await,
    );
    let failed = settled(&lab, &away).await;
    assert_eq!(failed.error.unwrap().code, Code::NoCapacity);
    let took = lab.clock.now().run.left(begun);
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(31), "{took:?}");
    tokio::time::sleep(MINUTE).await;
    assert_eq!(now(&lab, &either).await.state, RequestState::Waiting, "a board is leased, and will be free");
    lab.weather.clear();
    assert_eq!(granted(&settled(&lab, &either).await).resource_id.as_str(), "pixel");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_lost_while_one_waits_for_what_it_has_is_waited_for_from_then_on() {
    let lab = Lab::start().await;
    let mut long = request("holder", "platform=android", None);
    long.ttl = Duration::from_secs(3_600);
    granted(&lab.ask(long).await.unwrap());
    let waits = wait(&lab, request("patient", "platform=android", None)).await;
    tokio::time::sleep(MINUTE * 2).await;
    assert_eq!(now(&lab, &waits).await.state, RequestState::Waiting, "what is leased is waited for");
    lab.weather.cut(lab.weather.opened(RACK_1));
    let begun = lab.clock.now().run;
    let failed = settled(&lab, &waits).await;
    assert_eq!(failed.error.unwrap().code, Code::NoCapacity);
    let took = lab.clock.now().run.left(begun);
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_an_operator_has_taken_out_is_waited_for_and_served_when_it_is_back() {
    let lab = Lab::start().await;
    let (rack, pixel) = (lab.worker("rack-1"), "pixel".parse().unwrap());
    rack.drain(&Caller::admin(), &pixel, true).await.unwrap();
    eventually("the gateway knows", || async {
        let seen = lab.gateway().resource(&Caller::admin(), &pixel).await.unwrap();
        (seen.state == berth::model::DeviceState::Drained).then_some(())
    })
    .await;
    let waits = wait(&lab, request("patient", "platform=android", None)).await;
    assert_eq!((waits.waiting_for, waits.until), (Some(WaitingFor::Drained), None));
    tokio::time::sleep(MINUTE).await;
    rack.drain(&Caller::admin(), &pixel, false).await.unwrap();
    granted(&settled(&lab, &waits).await);
}

#[tokio::test(start_paused = true)]
async fn fifty_that_wait_are_each_served_once_and_in_their_order() {
    let lab = Lab::start().await;
    let [board, other] = take_boards(&lab).await;
    let mut waiting = Vec::new();
    for job in 0..50 {
        waiting.push(wait(&lab, request(&format!("job-{job}"), "platform=linux", None)).await);
    }
    let listed = lab.gateway().lease_requests(&Caller::admin()).await.unwrap();
    assert_eq!(listed.len(), 50);
    assert!(listed.iter().all(|request| request.ticket.is_some() && request.waiting_for.is_some()));
    release(&lab, &other).await;
    let mut free = vec![board];
    for (index, request) in waiting.iter().enumerate() {
        if index > 0 {
            release(&lab, &free.remove(0)).await;
        }
        free.push(granted(&settled(&lab, request).await).id);
        if let Some(later) = waiting.get(index + 2) {
            assert_eq!(now(&lab, later).await.state, RequestState::Waiting, "after {index}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_starts_anew_gives_every_ticket_its_place_back_whoever_asks_first() {
    let mut lab = Lab::start().await;
    let [board, _] = take_boards(&lab).await;
    let mut waiting = Vec::new();
    for job in 0..20 {
        waiting.push(wait(&lab, request(&format!("job-{job}"), "platform=linux", None)).await);
    }
    // So long until it is on disk that somebody waits.
    tokio::time::sleep(Duration::from_secs(2)).await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    let newcomer = wait(&lab, request("newcomer", "platform=linux", None)).await;
    let mut back = Vec::new();
    for (job, former) in waiting.iter().enumerate().rev() {
        let ticket = former.ticket.clone();
        back.push(wait(&lab, Ask { ticket, ..request(&format!("job-{job}"), "platform=linux", None) }).await);
    }
    back.reverse();
    for (index, request) in back.iter().enumerate() {
        assert_eq!(now(&lab, request).await.position, Some(index + 1));
    }
    assert_eq!(now(&lab, &newcomer).await.position, Some(21));
    let mut free = board;
    for request in &back {
        release(&lab, &free).await;
        free = granted(&settled(&lab, request).await).id;
    }
    // A ticket counts once.
    release(&lab, &free).await;
    free = granted(&settled(&lab, &newcomer).await).id;
    let holder = wait(&lab, request("next", "platform=linux", None)).await;
    let ticket = waiting[19].ticket.clone();
    let spent = wait(&lab, Ask { ticket, ..request("job-19", "platform=linux", None) }).await;
    assert_eq!(spent.position, Some(2));
    release(&lab, &free).await;
    granted(&settled(&lab, &holder).await);
}

#[tokio::test(start_paused = true)]
async fn for_a_while_after_a_restart_what_was_waited_for_goes_only_to_those_who_come_back() {
    let mut lab = Lab::start().await;
    let boards = take_boards(&lab).await;
    let former = wait(&lab, request("former", "platform=linux", None)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    lab.stop("gateway").await;
    let rack: Arc<dyn Coordinator> = lab.worker("rack-2");
    for lease in rack.leases(&Caller::admin()).await.unwrap() {
        rack.release(&Caller::admin(), &lease.id, None).await.unwrap();
    }
    assert_eq!(boards.len(), 2);
    lab.restart("gateway").await;
    lab.ready().await;
    let begun = lab.clock.now().run;
    granted(&lab.ask(request("other", "platform=android", None)).await.unwrap());
    let by_name = lab.acquire("by-name", "board-1", MINUTE).await.unwrap_err();
    assert_eq!(by_name.code, Code::ResourceUnavailable);
    let newcomer = wait(&lab, request("newcomer", "platform=linux", None)).await;
    assert_eq!(newcomer.waiting_for, Some(WaitingFor::Reserved));
    assert_eq!(lab.ask(request_now("hasty", "platform=linux")).await.unwrap_err().code, Code::NoCapacity);
    let ticket = former.ticket.clone();
    let back = Ask { ticket, ..request("former", "platform=linux", None) };
    granted(&lab.ask(back).await.unwrap());
    assert!(lab.clock.now().run.left(begun) < Duration::from_secs(1));
    assert_eq!(now(&lab, &newcomer).await.state, RequestState::Waiting);
    granted(&settled(&lab, &newcomer).await);
    let took = lab.clock.now().run.left(begun);
    assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn one_who_would_have_a_shared_board_alone_is_not_overtaken_for_ever_by_those_who_share() {
    let lab = Lab::with(&[]).await;
    let mode = Mode::Shared;
    let shared = granted(&lab.ask(Ask { mode, ..request("one", "platform=android", None) }).await.unwrap());
    let alone = wait(&lab, request("alone", "platform=android", None)).await;
    let late = wait(&lab, Ask { mode, ..request("late", "platform=android", None) }).await;
    assert_eq!(late.position, Some(2));
    release(&lab, &shared.id).await;
    let lease = granted(&settled(&lab, &alone).await);
    assert_eq!(now(&lab, &late).await.state, RequestState::Waiting);
    release(&lab, &lease.id).await;
    granted(&settled(&lab, &late).await);
}
