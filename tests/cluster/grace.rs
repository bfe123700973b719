//! Leases that came through a gateway, while that is away (SPEC §9 Worker away).

use std::time::Duration;

use berth::model::{Caller, Code};
use berth::service::views::LeaseView;

use crate::lab::{Lab, RACK_1, acquire, active, eventually};

const SECOND: Duration = Duration::from_secs(1);
/// `lease.uplink_grace` when the lab file says nothing.
const GRACE: Duration = Duration::from_secs(60);

impl Lab {
    async fn on_rack_1(&self) -> Vec<LeaseView> {
        self.worker("rack-1").leases(&Caller::admin()).await.unwrap()
    }

    /// How long until rack-1 has no lease any more.
    async fn lasts(&self) -> Duration {
        let begun = self.clock.now().run;
        eventually("the lease ends", || async { self.on_rack_1().await.is_empty().then_some(()) }).await;
        self.clock.now().run.left(begun)
    }
}

#[tokio::test(start_paused = true)]
async fn with_its_gateway_there_a_lease_ends_within_a_second_of_its_deadline() {
    let lab = Lab::start().await;
    for ttl in [3, 20, 33] {
        lab.acquire("job-1", "pixel", ttl * SECOND).await.unwrap();
        let lasts = lab.lasts().await;
        assert!(lasts + SECOND / 10 >= ttl * SECOND && lasts <= (ttl + 1) * SECOND, "{lasts:?}, not {ttl} s");
        eventually("the end is reported", || async { lab.leases().await.is_empty().then_some(()) }).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_killed_and_back_within_the_grace_costs_no_lease() {
    let mut lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", 30 * SECOND).await.unwrap();
    tokio::time::sleep(25 * SECOND).await;
    lab.stop("gateway").await;
    tokio::time::sleep(40 * SECOND).await;
    assert_eq!(lab.on_rack_1().await[0].fence, lease.fence, "35 s past its deadline it is there");
    lab.restart("gateway").await;
    lab.ready().await;
    let back = lab.clock.now().run;
    let renewed = eventually("the lease is renewed", || async { lab.renew(&lease.id).await.ok() }).await;
    assert_eq!(renewed.fence, lease.fence);
    assert!(lab.clock.now().run.left(back) < 10 * SECOND);
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(lab.on_rack_1().await[0].fence, lease.fence);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_does_not_renew_when_its_gateway_is_back_has_ten_seconds() {
    let mut lab = Lab::start().await;
    lab.acquire("job-1", "pixel", 30 * SECOND).await.unwrap();
    lab.stop("gateway").await;
    tokio::time::sleep(45 * SECOND).await;
    let restarted = lab.clock.now().run;
    lab.restart("gateway").await;
    lab.ready().await;
    // Its worker has heard of the gateway at some time in between, and counts from then.
    let lasts = lab.lasts().await;
    assert!(lasts < 12 * SECOND, "{lasts:?}");
    let since = lab.clock.now().run.left(restarted);
    assert!(since >= 10 * SECOND, "{since:?}");
    eventually("the end is reported", || async { lab.leases().await.is_empty().then_some(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stays_away_longer_than_the_grace_costs_the_lease_then_and_local_ones_end_as_ever() {
    let lab = Lab::start().await;
    lab.acquire("job-1", "pixel", 30 * SECOND).await.unwrap();
    lab.weather.cut(lab.weather.opened(RACK_1));
    let rack_1 = lab.worker("rack-1");
    let refused = rack_1.acquire(&Caller::admin(), acquire("local", "pixel", 10 * SECOND)).await.unwrap_err();
    assert_eq!(refused.code, Code::ResourceUnavailable);
    let lasts = lab.lasts().await;
    let expected = 30 * SECOND + GRACE;
    assert!(lasts + SECOND / 10 >= expected && lasts <= expected + SECOND, "{lasts:?}");
    active(rack_1.acquire(&Caller::admin(), acquire("local", "pixel", 10 * SECOND)).await.unwrap());
    let lasts = lab.lasts().await;
    assert!(lasts + SECOND / 10 >= 10 * SECOND && lasts <= 11 * SECOND, "{lasts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_restarted_while_its_gateway_is_away_keeps_the_lease_until_that_is_back() {
    let mut lab = Lab::start().await;
    let lease = lab.acquire("job-1", "pixel", 30 * SECOND).await.unwrap();
    lab.stop("gateway").await;
    lab.stop("rack-1").await;
    tokio::time::sleep(50 * SECOND).await;
    lab.restart("rack-1").await;
    assert_eq!(lab.on_rack_1().await[0].fence, lease.fence, "20 s past its deadline");
    tokio::time::sleep(20 * SECOND).await;
    lab.restart("gateway").await;
    lab.ready().await;
    let renewed = eventually("the lease is renewed", || async { lab.renew(&lease.id).await.ok() }).await;
    assert_eq!(renewed.fence, lease.fence);
    // And once more, but too late.
    lab.stop("gateway").await;
    lab.stop("rack-1").await;
    tokio::time::sleep(30 * SECOND + GRACE + SECOND).await;
    lab.restart("rack-1").await;
    assert!(lab.on_rack_1().await.is_empty(), "it is over at the start");
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_a_lease_ends_at_its_deadline_wherever_the_gateway_is() {
    let lab = Lab::with(&[("BERTH_LEASE__UPLINK_GRACE", "0s")]).await;
    lab.acquire("job-1", "pixel", 30 * SECOND).await.unwrap();
    lab.weather.cut(lab.weather.opened(RACK_1));
    let lasts = lab.lasts().await;
    assert!(lasts + SECOND / 10 >= 30 * SECOND && lasts <= 31 * SECOND, "{lasts:?}");
}
