//! A lease from its grant to its end.

use std::time::Duration;

use berth::model::{Caller, Code};

use crate::lab::{Lab, granted, request, request_now};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_lease_goes_all_the_way_and_its_worker_knows_the_requester_through_the_gateway() {
    let lab = Lab::start().await;
    let lease = granted(&lab.lease("job-1", "platform=android").await.unwrap());
    assert_eq!(lease.resource_id.as_str(), "pixel");
    assert!(lease.id.as_str().starts_with("rack-1.lse_"), "{}", lease.id);
    assert_eq!(lease.holder_id.to_string(), "admin/job-1");
    let at_worker = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert_eq!(at_worker[0].holder_id.to_string(), "gw:gateway:admin/job-1");
    assert_eq!(at_worker[0].fence, lease.fence);
}

#[tokio::test(start_paused = true)]
async fn a_chosen_id_crosses_the_gateway_bare_and_is_held_until_the_lease_ends() {
    let lab = Lab::start().await;
    let ask = |requester| lab.ask(request(requester, "platform=linux", Some("ad-7f3a")));
    let lease = granted(&ask("job-1").await.unwrap());
    assert_eq!(lease.id.as_str(), "ad-7f3a");
    assert_eq!(ask("job-2").await.unwrap_err().code, Code::LeaseIdTaken);
    lab.gateway().release(&Caller::admin(), &lease.id, None).await.unwrap();
    assert_eq!(granted(&ask("job-2").await.unwrap()).id.as_str(), "ad-7f3a");
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_at_its_deadline_and_not_before() {
    let lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", MINUTE).await.unwrap();
    tokio::time::sleep(MINUTE - Duration::from_millis(100)).await;
    assert_eq!(lab.leases().await.len(), 1, "it has a tenth of a second left");
    let refused = lab.acquire("job-2", "pixel", MINUTE).await.unwrap_err();
    assert_eq!(refused.code, Code::ResourceUnavailable);
    // At most a second late (SPEC §4), and the report of it on its way.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert!(lab.leases().await.is_empty());
    assert_eq!(lab.renew(&lease.id).await.unwrap_err().code, Code::UnknownLease);
    let next = lab.acquire("job-2", "pixel", MINUTE).await.unwrap();
    assert!(next.fence > lease.fence);
}

#[tokio::test(start_paused = true)]
async fn a_renewed_lease_lives_on_past_its_first_deadline() {
    let lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", MINUTE).await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(MINUTE / 2).await;
        let renewed = lab.renew(&lease.id).await.unwrap();
        assert_eq!(renewed.fence, lease.fence);
        assert_eq!(renewed.expires_in_ms, 60_000);
    }
    assert_eq!(lab.leases().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_wall_clock_neither_ends_nor_prolongs_a_lease() {
    let lab = Lab::start().await;
    const HOUR_MS: i64 = 3_600_000;
    for step in [HOUR_MS, -2 * HOUR_MS, 365 * 24 * HOUR_MS] {
        let lease = lab.acquire("job-1", "pixel", MINUTE).await.unwrap();
        lab.clock.step_wall_ms(step);
        tokio::time::sleep(MINUTE / 2).await;
        assert_eq!(lab.leases().await.len(), 1, "half of it is left, whatever the wall clock says");
        tokio::time::sleep(MINUTE / 2 + Duration::from_millis(1_100)).await;
        assert!(lab.leases().await.is_empty(), "{} is over", lease.id);
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_that_ask_at_once_each_free_resource_goes_to_one() {
    let lab = Lab::start().await;
    let asks = (0..20).map(|job| {
        let gateway = lab.gateway();
        let ask = request_now(&format!("job-{job}"), "platform=linux");
        async move { gateway.request(&Caller::admin(), ask, MINUTE).await }
    });
    let results = futures_util::future::join_all(asks).await;
    let (won, lost): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 2, "there are two boards");
    assert!(lost.into_iter().all(|refused| refused.unwrap_err().code == Code::NoCapacity));
    let mut boards: Vec<_> = lab.leases().await.into_iter().map(|lease| lease.resource_id).collect();
    boards.dedup();
    assert_eq!(boards.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_free_resource_is_not_refused_because_probes_for_others_are_out() {
    let lab = Lab::start().await;
    // Both boards are asked for at once by selectors that overlap on one worker.
    let (any, second) = tokio::join!(
        lab.ask(request("job-1", "platform=linux", None)),
        lab.ask(request("job-2", "platform=linux,slot=2", None))
    );
    granted(&any.unwrap());
    granted(&second.unwrap());
}
