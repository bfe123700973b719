//! What a worker may answer to a dispatch, and what the gateway makes of it.

use std::time::Duration;

use berth::model::{Ask, Caller, Code, WaitPolicy};
use berth::service::views::{RequestState, RequestView};
use berth::wire::report::ResourceReport;

use crate::lab::{Lab, eventually, granted, request, request_now};
use crate::refuser::{Refuser, Script, board};

const MINUTE: Duration = Duration::from_secs(60);

/// A lab whose first worker says what the script has.
async fn lab_with(script: &Script) -> (Lab, Refuser) {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let refuser = Refuser::join(&lab, "rack-1", board("odd"), script).await;
    eventually("its board is known", || async {
        lab.gateway().resource(&Caller::admin(), &"odd-board".parse().unwrap()).await.ok()
    })
    .await;
    (lab, refuser)
}

async fn ask(lab: &Lab, ask: Ask) -> RequestView {
    lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.unwrap()
}

async fn now(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, Duration::ZERO).await.unwrap()
}

async fn attempts(script: &Script, count: usize) {
    eventually("it is asked", || async { (script.asked().len() >= count).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_room_is_asked_again_after_pauses_that_double_or_when_a_later_report_shows_room() {
    let script = Script::default();
    for _ in 0..4 {
        script.refuses(Code::NoCapacity);
    }
    script.refuses(Code::ResourceBooked);
    let (lab, refuser) = lab_with(&script).await;
    let begun = lab.clock.now().run;
    let waits = ask(&lab, request("job", "platform=odd", None)).await;
    assert_eq!(waits.state, RequestState::Waiting);
    for (count, after) in [(1, 0), (2, 5), (3, 15), (4, 35)] {
        attempts(&script, count).await;
        let took = lab.clock.now().run.left(begun);
        let expected = Duration::from_secs(after);
        assert!(took >= expected && took < expected + Duration::from_secs(1), "the {count}th after {took:?}");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    refuser.reports(ResourceReport { reserved: 1, ..board("odd") }).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(script.asked().len(), 4, "its only seat is kept");
    refuser.reports(board("odd")).await;
    attempts(&script, 5).await;
    assert!(lab.clock.now().run.left(begun) < Duration::from_secs(40));
    let attempts: Vec<u32> = script.asked().into_iter().map(|(_, attempt)| attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    assert_eq!(now(&lab, &waits).await.state, RequestState::Waiting);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_says_that_nothing_matches_is_left_out_until_its_resources_change() {
    let script = Script::default();
    script.refuses(Code::NoMatchingResource);
    script.refuses(Code::NoMatchingResource);
    let (lab, refuser) = lab_with(&script).await;
    let refused = lab.ask(request("job", "platform=odd", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::NoMatchingResource, "nobody else has a match");
    let two = "platform";
    lab.ask(request("holder-1", "platform=linux,slot=1", None)).await.unwrap();
    lab.ask(request("holder-2", "platform=linux,slot=2", None)).await.unwrap();
    let waits = ask(&lab, request("job", two, None)).await;
    assert_eq!(waits.state, RequestState::Waiting);
    tokio::time::sleep(MINUTE).await;
    refuser.reports(board("odd")).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(script.asked().len(), 2);
    refuser.reports(board("other")).await;
    attempts(&script, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_id_that_a_worker_knows_already_is_passed_on_and_no_other_worker_is_tried() {
    let script = Script::default();
    script.refuses(Code::LeaseIdTaken);
    let (lab, _refuser) = lab_with(&script).await;
    lab.ask(request("holder-1", "platform=linux,slot=1", None)).await.unwrap();
    lab.ask(request("holder-2", "platform=linux,slot=2", None)).await.unwrap();
    let refused = lab.ask(request("job", "platform", Some("mine"))).await.unwrap_err();
    assert_eq!((refused.code, script.asked().len()), (Code::LeaseIdTaken, 1));
}

#[tokio::test(start_paused = true)]
async fn any_other_refusal_is_the_end_and_one_that_is_not_to_wait_hears_of_no_room() {
    let script = Script::default();
    for code in [Code::Internal, Code::NoCapacity] {
        script.refuses(code);
    }
    let (lab, _refuser) = lab_with(&script).await;
    assert_eq!(lab.ask(request("job", "platform=odd", None)).await.unwrap_err().code, Code::Internal);
    assert_eq!(lab.ask(request_now("job", "platform=odd")).await.unwrap_err().code, Code::NoCapacity);
    assert_eq!(script.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_one_worker_refuses_another_may_grant() {
    let script = Script::default();
    script.refuses(Code::NoCapacity);
    let (lab, _refuser) = lab_with(&script).await;
    lab.ask(request("holder", "platform=linux,slot=1", None)).await.unwrap();
    let lease = granted(&lab.ask(request("job", "platform", None)).await.unwrap());
    assert_eq!((lease.resource_id.as_str(), script.asked().len()), ("board-2", 1));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_or_a_cancel_while_a_dispatch_is_out_settles_it_first() {
    let script = Script::default();
    let (lab, _refuser) = lab_with(&script).await;
    let timeout = WaitPolicy::Wait { timeout: Some(Duration::from_secs(20)) };
    let timed = ask(&lab, Ask { wait: timeout, ..request("timed", "platform=odd", None) }).await;
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert!(script.settled().is_empty());
    let failed = lab.gateway().lease_request(&Caller::admin(), &timed.id, MINUTE).await.unwrap();
    assert_eq!((failed.error.unwrap().code, script.settled().as_slice()), (Code::QueueTimeout, &[1][..]));
    let unwanted = ask(&lab, request("unwanted", "platform=odd", None)).await;
    attempts(&script, 2).await;
    lab.gateway().cancel(&Caller::admin(), &unwanted.id).await.unwrap();
    assert_eq!(now(&lab, &unwanted).await.state, RequestState::Cancelled);
    assert_eq!(script.settled().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_given_up_goes_back_to_the_queue_or_fails_and_the_next_gateway_still_knows_the_attempt() {
    let script = Script::default();
    let (mut lab, refuser) = lab_with(&script).await;
    let timeout = WaitPolicy::Wait { timeout: Some(Duration::from_secs(10)) };
    let patient = ask(&lab, request("patient", "platform", None)).await;
    assert_eq!(patient.state, RequestState::Granted, "rack-2 has more that match");
    let late = ask(&lab, Ask { wait: timeout, ..request("late", "platform=odd", None) }).await;
    attempts(&script, 1).await;
    drop(refuser);
    let failed = lab.gateway().lease_request(&Caller::admin(), &late.id, MINUTE).await.unwrap();
    assert_eq!(failed.error.unwrap().code, Code::WorkerUnreachable, "its bound has passed, and nobody knows");
    let kept = lab.file.state_dir.join("gateway/given-up.state");
    let row = || std::fs::read_to_string(&kept).unwrap();
    assert!(row().contains(late.id.as_str()), "{}", row());
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    assert!(row().contains(late.id.as_str()), "its worker has not reported yet");
    let _back = Refuser::join(&lab, "rack-1", board("odd"), &script).await;
    eventually("it is settled", || async { (script.settled() == [1]).then_some(()) }).await;
    eventually("it is forgotten", || async { (row() == "[]").then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_free_resource_by_name_is_not_to_be_had_before_one_that_waits_for_its_like() {
    let script = Script::default();
    let (lab, _refuser) = lab_with(&script).await;
    // Its answer never comes, so that the second waits for what is free.
    let out = ask(&lab, request("out", "platform=odd", None)).await;
    let waits = ask(&lab, request("waits", "platform=odd", None)).await;
    assert_eq!((out.state, waits.state), (RequestState::Waiting, RequestState::Waiting));
    let refused = lab.acquire("by-name", "odd-board", MINUTE).await.unwrap_err();
    assert_eq!(refused.code, Code::ResourceUnavailable);
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_while_the_worker_is_away_is_not_answered_yes_before_it_is_known() {
    let script = Script::default();
    let (lab, refuser) = lab_with(&script).await;
    let unwanted = ask(&lab, request("unwanted", "platform=odd", None)).await;
    attempts(&script, 1).await;
    drop(refuser);
    let told = lab.gateway().cancel(&Caller::admin(), &unwanted.id).await.unwrap_err();
    assert_eq!(told.code, Code::WorkerUnreachable);
    assert_eq!(now(&lab, &unwanted).await.state, RequestState::Waiting);
    let _back = Refuser::join(&lab, "rack-1", board("odd"), &script).await;
    eventually("it is settled", || async {
        (now(&lab, &unwanted).await.state == RequestState::Cancelled).then_some(())
    })
    .await;
    assert!(script.settled().contains(&1));
}
