//! The gateway's routing table after a restart.

use berth::model::{Caller, Code};

use crate::lab::{Lab, eventually, granted, request, request_now};

#[tokio::test(start_paused = true)]
async fn a_gateway_that_starts_anew_routes_every_lease_again_under_its_name() {
    let mut lab = Lab::start().await;
    let chosen = granted(&lab.ask(request("job-1", "platform=android", Some("mine"))).await.unwrap());
    let generated = granted(&lab.lease("job-2", "platform=linux").await.unwrap());
    let before = lab.leases().await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    let names = |leases: &[berth::service::views::LeaseView]| -> Vec<_> {
        leases.iter().map(|lease| (lease.id.clone(), lease.fence, lease.holder_id.clone())).collect()
    };
    assert_eq!(names(&lab.leases().await), names(&before));
    for lease in [&chosen, &generated] {
        assert_eq!(lab.renew(&lease.id).await.unwrap().fence, lease.fence);
        lab.gateway().release(&Caller::admin(), &lease.id, None).await.unwrap();
    }
    assert!(lab.leases().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn until_a_worker_has_reported_its_leases_may_still_turn_up() {
    let mut lab = Lab::start().await;
    let lease = granted(&lab.lease("job-1", "platform=android").await.unwrap());
    lab.stop("gateway").await;
    let rack = lab.weather.opened(crate::lab::RACK_1);
    lab.weather.cut(rack);
    lab.restart("gateway").await;
    let unknown = lab.renew(&lease.id).await.unwrap_err();
    assert_eq!(unknown.code, Code::UnknownLease);
    assert_eq!(unknown.details.unwrap()["rebuilding"], true);
    assert!(unknown.retry_after.is_some());
    let readiness = lab.gateway().readiness().await;
    assert!(!readiness.ready);
    assert!(readiness.reasons[0].contains("rack-1"), "{readiness:?}");
    // The rebuild does not wait for ever for a worker that does not come.
    lab.ready().await;
    lab.weather.clear();
    eventually("the lease is routed again", || async { lab.renew(&lease.id).await.ok() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_during_the_rebuild_is_judged_by_what_the_workers_report() {
    let mut lab = Lab::start().await;
    let held = granted(&lab.lease("job-1", "platform=android").await.unwrap());
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    // At once, before any worker has dialled again.
    let (second, other) =
        tokio::join!(lab.lease("job-1", "platform=linux"), lab.ask(request_now("job-2", "platform=android")));
    let refused = second.unwrap_err();
    assert_eq!(refused.code, Code::RequesterAlreadyLeased, "its lease is known again by then");
    assert_eq!(refused.details.unwrap()["existingLeaseId"], held.id.as_str());
    assert_eq!(other.unwrap_err().code, Code::NoCapacity);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_waits_is_answered_by_the_late_report_of_the_lease_its_key_stands_for() {
    let mut lab = Lab::start().await;
    let keyed = || {
        let mut ask = request("job-1", "platform=android", None);
        ask.key = Some("the-key".parse().unwrap());
        ask
    };
    let first = granted(&lab.ask(keyed()).await.unwrap());
    lab.stop("gateway").await;
    let rack = lab.weather.opened(crate::lab::RACK_1);
    lab.weather.cut(rack);
    lab.restart("gateway").await;
    lab.ready().await;
    let retry = keyed();
    let id = retry.id.clone();
    let waiting = lab.gateway().request(&Caller::admin(), retry, std::time::Duration::from_secs(2)).await.unwrap();
    assert_eq!(waiting.state, berth::service::views::RequestState::Waiting);
    lab.weather.clear();
    let minute = std::time::Duration::from_secs(60);
    let settled = lab.gateway().lease_request(&Caller::admin(), &id, minute).await.unwrap();
    assert_eq!(granted(&settled).fence, first.fence);
    assert_eq!(lab.leases().await.len(), 1, "one key, one lease");
    assert_eq!(granted(&lab.ask(keyed()).await.unwrap()).fence, first.fence, "and so for the next retry");
}

#[tokio::test(start_paused = true)]
async fn a_lease_keeps_its_deadline_over_a_step_of_the_wall_clock_and_a_restart_of_its_worker() {
    const HOUR_MS: i64 = 3_600_000;
    for step in [HOUR_MS, -HOUR_MS] {
        let mut lab = Lab::start().await;
        let lease = lab.acquire("job-1", "pixel", std::time::Duration::from_secs(600)).await.unwrap();
        lab.clock.step_wall_ms(step);
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        lab.stop("rack-1").await;
        lab.restart("rack-1").await;
        let there = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
        assert_eq!(there.len(), 1, "a step of {step} ms ended it");
        assert_eq!(there[0].fence, lease.fence);
        let left = there[0].expires_in_ms;
        assert!((590_000..=596_000).contains(&left), "{left} ms are left after a step of {step} ms");
        eventually("it is renewed through the gateway", || async { lab.renew(&lease.id).await.ok() }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_going_down_takes_no_request_and_still_renews() {
    let mut lab = Lab::start().await;
    let lease = granted(&lab.lease("job-1", "platform=android").await.unwrap());
    lab.refuse_requests("gateway");
    assert_eq!(lab.lease("job-2", "platform=linux").await.unwrap_err().code, Code::Stopping);
    lab.renew(&lease.id).await.unwrap();
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    granted(&lab.lease("job-2", "platform=linux").await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_while_a_worker_was_down_prolongs_a_lease_once_at_most() {
    let mut lab = Lab::start().await;
    let width = std::time::Duration::from_secs(600);
    lab.acquire("job-1", "pixel", width).await.unwrap();
    lab.stop("rack-1").await;
    lab.clock.step_wall_ms(-3_600_000);
    for restart in 0..3 {
        lab.restart("rack-1").await;
        let worker = lab.worker("rack-1");
        let left = worker.leases(&Caller::admin()).await.unwrap()[0].expires_in_ms;
        assert!(left <= 600_000 - restart * 100_000, "{left} ms are left at restart {restart}");
        tokio::time::sleep(std::time::Duration::from_secs(100)).await;
        lab.stop("rack-1").await;
    }
}
