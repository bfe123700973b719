//! Lease ids that requesters choose, where a worker says something else than it was asked, or two say the same (SPEC §9
//! Names, Rebuild).

use std::time::Duration;

use berth::model::{Caller, Code, Fence, Fingerprint, LeaseId, LeaseRecord, Mode, RenewAsk, RequestId, Target};
use berth::service::views::RequestState;
use berth::wire::report::LeaseRow;

use crate::lab::{Lab, eventually, granted, request};
use crate::liar::Liar;
use crate::refuser::{Refuser, Script, board};
use crate::said::Log;

const MINUTE: Duration = Duration::from_secs(60);

fn id(id: &str) -> LeaseId {
    id.parse().unwrap()
}

/// A lease that a worker reports as this gateway's, its id flagged as chosen.
pub fn reported(lease: &str, resource: &str, requester: &str) -> LeaseRow {
    let target = Target::Resource(resource.parse().unwrap());
    let record = LeaseRecord {
        id: id(lease),
        request_id: RequestId::generate(),
        resource_id: resource.parse().unwrap(),
        mode: Mode::Exclusive,
        holder: requester.parse().unwrap(),
        granted_at: jiff::Timestamp::UNIX_EPOCH,
        renewed_at: jiff::Timestamp::UNIX_EPOCH,
        ttl: 10 * MINUTE,
        fence: Fence(3),
        note: None,
        id_chosen_by_requester: true,
        idempotency_key: None,
        fingerprint: Fingerprint::of(&target, Mode::Exclusive, None),
        asked_ttl: None,
    };
    LeaseRow::new(&record, 10 * MINUTE)
}

/// A lab whose first worker answers as the script says.
async fn scripted(script: &Script) -> (Lab, Refuser) {
    let mut lab = Lab::start().await;
    lab.stop("rack-1").await;
    let refuser = Refuser::join(&lab, "rack-1", board("odd"), script).await;
    board_is_known(&lab).await;
    (lab, refuser)
}

async fn board_is_known(lab: &Lab) {
    eventually("its board is known", || async {
        let board = lab.gateway().resource(&Caller::admin(), &"odd-board".parse().unwrap()).await.ok()?;
        (board.reachable != Some(false)).then_some(())
    })
    .await;
}

async fn is_routed(lab: &Lab, lease: &str) -> bool {
    lab.gateway().lease(&Caller::admin(), &id(lease)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_worker_grant_whose_lease_id_differs_from_the_forwarded_lease_id_is_released_on_the_worker_never_enters_the_gateway_index_and_the_request_is_queued_again()
 {
    let log = Log::warnings();
    let script = Script::default();
    script.grants("other");
    let (lab, refuser) = scripted(&script).await;
    let asked = request("job", "platform=odd", Some("mine"));
    let waits = lab.gateway().request(&Caller::admin(), asked, Duration::from_secs(2)).await.unwrap();
    assert_eq!(waits.state, RequestState::Waiting);
    eventually("it is released on the worker", || async {
        (script.released() == [(id("other"), Some(Fence(7)))]).then_some(())
    })
    .await;
    for name in ["other", "mine", "rack-1.other"] {
        assert!(!is_routed(&lab, name).await, "{name}");
    }
    assert!(log.has(&["WARN", "granted under another id", "rack-1", "mine", "other"]), "the worker is named");
    // Neither time nor what it reports lets the worker be asked again, before it is there anew.
    refuser.reports(board("odd")).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(script.asked().len(), 1);
    let now = lab.gateway().lease_request(&Caller::admin(), &waits.id, Duration::ZERO).await.unwrap();
    assert_eq!((now.state, now.position), (RequestState::Waiting, Some(1)), "it is queued");
    drop(refuser);
    script.grants("mine");
    let _again = Refuser::join(&lab, "rack-1", board("odd"), &script).await;
    let end = lab.gateway().lease_request(&Caller::admin(), &waits.id, MINUTE).await.unwrap();
    assert_eq!(granted(&end).id, id("mine"));
    assert_eq!(script.asked().iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn after_a_wrong_id_another_worker_that_fits_gets_the_request() {
    let script = Script::default();
    script.grants("other");
    let (lab, _refuser) = scripted(&script).await;
    // One board each, so that the first name is asked first.
    lab.ask(request("holder", "platform=linux,slot=1", None)).await.unwrap();
    let lease = granted(&lab.ask(request("job", "platform", Some("mine"))).await.unwrap());
    assert_eq!((lease.id, lease.resource_id.as_str(), script.asked().len()), (id("mine"), "board-2", 1));
    eventually("the other is released", || async { (script.released().len() == 1).then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_for_a_bare_id_the_index_maps_to_another_worker_is_released_on_the_new_worker_and_answers_lease_id_taken_and_the_first_entry_stays_routed()
 {
    let log = Log::warnings();
    let script = Script::default();
    let (mut lab, _refuser) = scripted(&script).await;
    let asked = request("job", "platform=odd", Some("mine"));
    let out = lab.gateway().request(&Caller::admin(), asked, Duration::from_secs(2)).await.unwrap();
    eventually("it is out", || async { (script.asked().len() == 1).then_some(()) }).await;
    // Meanwhile another worker turns up with a lease of that name.
    lab.stop("rack-2").await;
    let row = reported("mine", "bench", "gw:gateway:admin/first");
    let _first = Liar::join(&lab, "rack-2", "bench", vec![row]).await;
    eventually("the first is routed", || async { is_routed(&lab, "mine").await.then_some(()) }).await;
    script.grants_now("mine");
    let end = lab.gateway().lease_request(&Caller::admin(), &out.id, MINUTE).await.unwrap();
    assert_eq!((end.state, end.error.map(|error| error.code)), (RequestState::Failed, Some(Code::LeaseIdTaken)));
    eventually("it is released on the new worker", || async {
        (script.released() == [(id("mine"), Some(Fence(7)))]).then_some(())
    })
    .await;
    let stays = lab.gateway().lease(&Caller::admin(), &id("mine")).await.unwrap();
    assert_eq!((stays.resource_id.as_str(), stays.fence), ("bench", Fence(3)));
    assert!(log.has(&["WARN", "rack-1", "rack-2", "mine"]), "both are named");
    // The end of the second has freed nothing of the first.
    let third = lab.ask(request("third", "platform=odd", Some("mine"))).await.unwrap_err();
    assert_eq!((third.code, script.asked().len()), (Code::LeaseIdTaken, 1));
    lab.ask(request("first", "platform=odd", None)).await.expect_err("its requester has its lease");
}

#[tokio::test(start_paused = true)]
async fn when_two_workers_report_the_same_caller_chosen_id_on_rebuild_the_first_stays_routed_a_warning_names_both_workers_and_renew_of_that_id_reaches_the_first_worker()
 {
    let log = Log::warnings();
    let mut lab = Lab::start().await;
    let lease = granted(&lab.ask(request("job-1", "platform=android", Some("mine"))).await.unwrap());
    lab.stop("rack-2").await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    eventually("the first is routed", || async { is_routed(&lab, "mine").await.then_some(()) }).await;
    let row = reported("mine", "bench", "gw:gateway:admin/job-2");
    let _second = Liar::join(&lab, "rack-2", "bench", vec![row]).await;
    lab.ready().await;
    assert!(log.has(&["WARN", "rack-1", "rack-2", "mine", "the first stays routed"]), "a warning names both");
    let ttl = RenewAsk { ttl: Some(900_000_u64.try_into().unwrap()), ..RenewAsk::default() };
    lab.gateway().renew(&Caller::admin(), &id("mine"), ttl).await.unwrap();
    let there = lab.worker("rack-1").lease(&Caller::admin(), &id("mine")).await.unwrap();
    assert_eq!((there.fence, there.ttl_ms), (lease.fence, 900_000), "it has reached the first");
    let shown = lab.gateway().lease(&Caller::admin(), &id("mine")).await.unwrap();
    assert_eq!(shown.resource_id.as_str(), "pixel");
    lab.gateway().release(&Caller::admin(), &id("mine"), None).await.unwrap();
    assert!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().is_empty(), "and so does a release");
}

#[tokio::test(start_paused = true)]
async fn a_rebuilt_lease_flagged_id_chosen_by_requester_whose_id_does_not_match_the_lease_id_pattern_is_prefixed_and_logged()
 {
    let log = Log::warnings();
    let mut lab = Lab::start().await;
    lab.stop("rack-2").await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    let row = reported("w1.myid", "bench", "gw:gateway:admin/job");
    let _liar = Liar::join(&lab, "rack-2", "bench", vec![row]).await;
    lab.ready().await;
    assert!(is_routed(&lab, "rack-2.w1.myid").await);
    assert!(!is_routed(&lab, "w1.myid").await);
    assert!(log.has(&["WARN", "rack-2", "w1.myid", "prefixed"]));
}
