//! The gateway's routing table after a restart.

use berth::model::{Caller, Code};

use crate::lab::{Lab, eventually, granted, request};

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
        tokio::join!(lab.lease("job-1", "platform=linux"), lab.ask(request("job-2", "platform=android", None)));
    let refused = second.unwrap_err();
    assert_eq!(refused.code, Code::RequesterAlreadyLeased, "its lease is known again by then");
    assert_eq!(refused.details.unwrap()["existingLeaseId"], held.id.as_str());
    assert_eq!(other.unwrap_err().code, Code::NoCapacity);
}
