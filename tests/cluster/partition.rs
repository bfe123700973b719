//! A network that is cut and healed.

use std::time::Duration;

use berth::model::{Caller, Code};
use berth::service::views::{Connection, RequestState};

use crate::lab::{GATEWAY, Lab, RACK_1, acquire, active, eventually, granted, request};

const MINUTE: Duration = Duration::from_secs(60);

async fn rack_1_is(lab: &Lab, connection: Connection) {
    let gateway = lab.gateway();
    eventually("the worker's link changes", || async {
        let workers = gateway.workers(&Caller::admin()).await.unwrap();
        (workers[0].connection == connection).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_a_partition_and_is_renewed_after_it() {
    let lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", MINUTE).await.unwrap();
    lab.weather.cut(lab.weather.opened(RACK_1));
    rack_1_is(&lab, Connection::Disconnected).await;
    let away = lab.renew(&lease.id).await.unwrap_err();
    assert_eq!(away.code, Code::WorkerUnreachable);
    assert_eq!(lab.leases().await.len(), 1, "the gateway never guesses that a lease is gone");
    let refused = lab.acquire("job-1", "board-1", MINUTE).await.unwrap_err();
    assert_eq!(refused.code, Code::RequesterAlreadyLeased);
    lab.weather.clear();
    let healed = lab.clock.now().run;
    eventually("the lease is renewed", || async { lab.renew(&lease.id).await.ok() }).await;
    let took = lab.clock.now().run.left(healed);
    assert!(took < Duration::from_secs(7), "it took {took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_renew_whose_answer_is_late_promises_no_more_than_its_worker_does() {
    let lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", MINUTE).await.unwrap();
    lab.weather.mute(lab.weather.opened(RACK_1));
    let heals = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        lab.weather.clear();
    };
    let (renewed, ()) = tokio::join!(lab.renew(&lease.id), heals);
    let told = renewed.unwrap().expires_at;
    let kept = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap()[0].expires_at;
    assert!(told <= kept, "{told} is later than {kept}");
}

#[tokio::test(start_paused = true)]
async fn an_expiry_during_a_partition_is_known_after_it() {
    let lab = Lab::start().await;
    lab.acquire("job-1", "pixel", Duration::from_secs(10)).await.unwrap();
    lab.weather.cut(lab.weather.opened(RACK_1));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(lab.leases().await.len(), 1, "nobody has told the gateway");
    lab.weather.clear();
    eventually("the end is reported", || async { lab.leases().await.is_empty().then_some(()) }).await;
    lab.acquire("job-1", "pixel", MINUTE).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_answer_is_lost_is_the_callers_once_the_worker_is_back() {
    let lab = Lab::start().await;
    // The worker hears and grants; what it says is lost.
    lab.weather.mute(lab.weather.opened(RACK_1));
    let waiting = lab.lease("job-1", "platform=android").await.unwrap();
    assert_eq!(waiting.state, RequestState::Waiting);
    let granted_there = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert_eq!(granted_there.len(), 1);
    rack_1_is(&lab, Connection::Disconnected).await;
    lab.weather.clear();
    let settled = lab.gateway().lease_request(&Caller::admin(), &waiting.id, MINUTE).await.unwrap();
    let lease = granted(&settled);
    assert_eq!(lease.fence, granted_there[0].fence, "it is that grant, and no second one");
    assert_eq!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().len(), 1);
    assert_eq!(lab.renew(&lease.id).await.unwrap().fence, lease.fence);
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_never_arrived_is_sent_again_once_the_worker_is_back() {
    let lab = Lab::start().await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    let waiting = lab.lease("job-1", "platform=android").await.unwrap();
    assert_eq!(waiting.state, RequestState::Waiting);
    assert!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().is_empty());
    rack_1_is(&lab, Connection::Disconnected).await;
    lab.weather.clear();
    let settled = lab.gateway().lease_request(&Caller::admin(), &waiting.id, MINUTE).await.unwrap();
    granted(&settled);
    assert_eq!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_nobody_waits_for_any_more_is_released_when_it_is_found() {
    let lab = Lab::start().await;
    lab.weather.mute(lab.weather.opened(RACK_1));
    let gateway = lab.gateway();
    let refused = gateway.acquire(&Caller::admin(), acquire("job-1", "pixel", MINUTE * 30)).await.unwrap_err();
    assert_eq!(refused.code, Code::WorkerUnreachable);
    assert_eq!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().len(), 1);
    // Longer than the grace for what is in doubt.
    tokio::time::sleep(MINUTE).await;
    let elsewhere = lab.acquire("job-1", "board-1", MINUTE * 30).await;
    assert!(elsewhere.is_ok(), "given up, so the requester is free: {elsewhere:?}");
    lab.weather.clear();
    eventually("the orphan is released", || async {
        lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().is_empty().then_some(())
    })
    .await;
    assert_eq!(lab.leases().await.len(), 1, "only the lease that somebody has");
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_worker_that_is_away_but_not_for_ever() {
    let lab = Lab::start().await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    rack_1_is(&lab, Connection::Disconnected).await;
    let begun = lab.clock.now().run;
    let refused = lab.ask(request("job-1", "platform=android", None)).await;
    assert_eq!(refused.unwrap_err().code, Code::NoCapacity);
    let took = lab.clock.now().run.left(begun);
    assert!(took >= Duration::from_secs(30) && took < Duration::from_secs(31), "the absence grace, not {took:?}");
    let waiting = lab.lease("job-1", "platform=android").await.unwrap();
    lab.weather.clear();
    granted(&lab.gateway().lease_request(&Caller::admin(), &waiting.id, MINUTE).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_cut_off_leaves_the_workers_serving_their_own_clients() {
    let lab = Lab::start().await;
    lab.weather.cut(lab.weather.opened(GATEWAY));
    rack_1_is(&lab, Connection::Disconnected).await;
    let local = lab.worker("rack-1").acquire(&Caller::admin(), acquire("local", "pixel", MINUTE)).await;
    let local = active(local.unwrap());
    lab.weather.clear();
    rack_1_is(&lab, Connection::Connected).await;
    eventually("the local lease is reported", || async { (lab.leases().await.len() == 1).then_some(()) }).await;
    let refused = lab.acquire("job-1", "pixel", MINUTE).await.unwrap_err();
    assert_eq!(refused.code, Code::ResourceUnavailable);
    assert_eq!(lab.renew(&local.id).await.unwrap_err().code, Code::UnknownLease, "it is not this gateway's");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ended_while_its_answer_was_lost_is_not_handed_out_afterwards() {
    // Else it would live on until its worker has heard the gateway again.
    let lab = Lab::with(&[("BERTH_LEASE__UPLINK_GRACE", "0s")]).await;
    lab.weather.mute(lab.weather.opened(RACK_1));
    let mut short = request("job-1", "platform=android", None);
    short.ttl = Duration::from_secs(10);
    let asked = tokio::spawn({
        let gateway = lab.gateway();
        async move { gateway.request(&Caller::admin(), short, MINUTE).await }
    });
    eventually("the worker grants it", || async {
        let there = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
        there.first().map(|lease| lease.fence)
    })
    .await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    lab.weather.clear();
    let lease = granted(&asked.await.unwrap().unwrap());
    assert!(lease.expires_in_ms > 0, "what it got is alive: {lease:?}");
    let there = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert_eq!(there.iter().map(|lease| lease.fence).collect::<Vec<_>>(), [lease.fence]);
    lab.renew(&lease.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_was_given_up_is_the_callers_after_all_if_it_still_waits() {
    let lab = Lab::start().await;
    lab.weather.mute(lab.weather.opened(RACK_1));
    let mut by_name = request("job-1", "platform", None);
    by_name.target = berth::model::Target::Resource("pixel".parse().unwrap());
    let waiting = lab.gateway().request(&Caller::admin(), by_name, Duration::from_secs(2)).await.unwrap();
    assert_eq!(waiting.state, RequestState::Waiting);
    // Five seconds until the link is given up, thirty in doubt; then it waits for the worker for thirty more.
    tokio::time::sleep(Duration::from_secs(45)).await;
    lab.weather.clear();
    let settled = lab.gateway().lease_request(&Caller::admin(), &waiting.id, MINUTE).await.unwrap();
    let lease = granted(&settled);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(lab.renew(&lease.id).await.unwrap().fence, lease.fence, "nobody has released it meanwhile");
    assert_eq!(lab.worker("rack-1").leases(&Caller::admin()).await.unwrap().len(), 1);
}
