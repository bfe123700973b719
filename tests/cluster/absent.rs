//! What a worker that is away for long holds (SPEC §9 Worker away): its names are free in the end, and held again when it
//! is back with a lease that its gateway could not know to have been renewed.

use std::time::Duration;

use berth::model::{Ask, Caller, Code, Fence, LeaseId, Refusal, RenewAsk};
use berth::service::views::LeaseView;

use crate::lab::{Lab, RACK_1, acquire, active, eventually, granted, request};

const MINUTE: Duration = Duration::from_secs(60);

fn mine() -> LeaseId {
    "mine".parse().unwrap()
}

/// A lab in which `job` has leased `pixel` as `mine`, for a minute. Its worker is cut off, and there somebody renews it.
async fn cut_off() -> (Lab, Fence) {
    let lab = Lab::start().await;
    let ask = Ask { lease_id: Some("mine".parse().unwrap()), ..acquire("job", "pixel", MINUTE) };
    let lease = active(lab.gateway().acquire(&Caller::admin(), ask).await.unwrap());
    assert_eq!(lease.id, mine());
    lab.weather.cut(lab.weather.opened(RACK_1));
    let ttl = RenewAsk { ttl: Some(3_600_000_u64.try_into().unwrap()), ..RenewAsk::default() };
    lab.worker("rack-1").renew(&Caller::admin(), &mine(), ttl).await.unwrap();
    // Its minute, the minute of `uplink_grace`, and the minute that clocks may differ by.
    tokio::time::sleep(Duration::from_secs(170)).await;
    assert_eq!(asks(&lab, "job", None).await.unwrap_err().code, Code::RequesterAlreadyLeased);
    assert_eq!(asks(&lab, "other", Some("mine")).await.unwrap_err().code, Code::LeaseIdTaken);
    tokio::time::sleep(Duration::from_secs(20)).await;
    (lab, lease.fence)
}

/// Asks for a board of the other worker's.
async fn asks(lab: &Lab, requester: &str, lease: Option<&str>) -> Result<LeaseView, Refusal> {
    lab.ask(request(requester, "platform=linux", lease)).await.map(|request| granted(&request))
}

async fn release(lab: &Lab, lease: &LeaseId) {
    lab.gateway().release(&Caller::admin(), lease, None).await.unwrap();
}

/// Lets the worker back, and waits until it has reported.
async fn back(lab: &Lab) {
    lab.weather.clear();
    let gateway = lab.gateway();
    eventually("the worker is back", || async {
        let pixel = gateway.resource(&Caller::admin(), &"pixel".parse().unwrap()).await.unwrap();
        (pixel.reachable == Some(true) && pixel.leases.len() == 1).then_some(())
    })
    .await;
    // A snapshot is taken in at once.
    tokio::time::sleep(Duration::from_secs(6)).await;
}

#[tokio::test(start_paused = true)]
async fn the_id_and_requester_of_a_lease_whose_worker_is_away_for_long_are_free_and_taken_again_when_it_is_back() {
    let (lab, fence) = cut_off().await;
    let free = asks(&lab, "job", None).await.unwrap();
    release(&lab, &free.id).await;
    assert_eq!(lab.renew(&mine()).await.unwrap_err().code, Code::WorkerUnreachable, "it stays routed");
    back(&lab).await;
    assert_eq!(lab.renew(&mine()).await.unwrap().fence, fence);
    let refused = asks(&lab, "job", None).await.unwrap_err();
    assert_eq!(refused.code, Code::RequesterAlreadyLeased);
    assert_eq!(refused.details.unwrap()["existingLeaseId"], "mine");
    assert_eq!(asks(&lab, "other", Some("mine")).await.unwrap_err().code, Code::LeaseIdTaken);
    release(&lab, &mine()).await;
    assert_eq!(asks(&lab, "job", Some("mine")).await.unwrap().id, mine(), "once it is over both are free");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_another_has_got_meanwhile_stays_that_one_s_when_the_worker_is_back() {
    let (lab, _) = cut_off().await;
    let second = asks(&lab, "other", Some("mine")).await.unwrap();
    assert_eq!(second.id, mine());
    back(&lab).await;
    let shown = lab.gateway().lease(&Caller::admin(), &mine()).await.unwrap();
    assert_eq!((shown.resource_id, shown.fence), (second.resource_id, second.fence), "the first entry stays routed");
    assert_eq!(asks(&lab, "other", None).await.unwrap_err().code, Code::RequesterAlreadyLeased);
    release(&lab, &mine()).await;
    let there = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert_eq!(there.len(), 1, "the other's release is none of its");
}

#[tokio::test(start_paused = true)]
async fn a_requester_that_has_another_lease_meanwhile_has_both_when_the_worker_is_back_and_each_counts() {
    for first_gone in [true, false] {
        let (lab, _) = cut_off().await;
        let second = asks(&lab, "job", None).await.unwrap();
        back(&lab).await;
        let mut ids: Vec<LeaseId> = lab.leases().await.into_iter().map(|lease| lease.id).collect();
        ids.sort();
        assert_eq!(ids, [mine(), second.id.clone()]);
        let (gone, left) = if first_gone { (mine(), second.id) } else { (second.id, mine()) };
        release(&lab, &gone).await;
        let refused = asks(&lab, "job", None).await.unwrap_err();
        assert_eq!(refused.code, Code::RequesterAlreadyLeased, "{left} is left");
        release(&lab, &left).await;
        asks(&lab, "job", None).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_has_reported_is_shown_for_a_day_after_it_has_gone_and_again_when_it_is_back() {
    let lab = Lab::start().await;
    let (gateway, pixel) = (lab.gateway(), "pixel".parse().unwrap());
    lab.weather.cut(lab.weather.opened(RACK_1));
    tokio::time::sleep(MINUTE).await;
    // In one leap: every link breaks, and the other worker's is there again at once.
    tokio::time::advance(Duration::from_secs(23 * 3600)).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(gateway.resource(&Caller::admin(), &pixel).await.unwrap().reachable, Some(false));
    tokio::time::advance(Duration::from_secs(2 * 3600)).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(gateway.resource(&Caller::admin(), &pixel).await.unwrap_err().code, Code::UnknownResource);
    assert!(asks(&lab, "other", None).await.is_ok(), "the other worker serves");
    lab.weather.clear();
    eventually("it is shown again", || async {
        let shown = gateway.resource(&Caller::admin(), &pixel).await.ok()?;
        (shown.reachable == Some(true)).then_some(())
    })
    .await;
}
