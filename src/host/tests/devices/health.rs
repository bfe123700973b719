//! Checks that come again and again.

use super::super::lab::{Lab, acquires, said, waits};
use super::{SECOND, lab_of};
use crate::model::{LeaseRecord, NoticeKind};

/// The next check comes within its interval, and not much before.
async fn check(lab: &Lab) -> super::super::hands::Begun {
    lab.no_job().await;
    lab.pass(31 * SECOND).await;
    lab.job("health a").await
}

async fn notices(lab: &Lab, lease: &LeaseRecord) -> Vec<NoticeKind> {
    let grant = said(lab.begin_renew(lease)).await.unwrap();
    grant.notices.iter().map(|notice| notice.event).collect()
}

#[tokio::test(start_paused = true)]
async fn a_free_device_whose_check_fails_twice_in_a_row_is_quarantined_until_a_check_passes() {
    let lab = lab_of("a", "health").await;
    check(&lab).await.fails();
    check(&lab).await.succeeds();
    check(&lab).await.fails();
    lab.settle().await;
    assert_eq!(lab.device("a").await, "available", "once is not enough");
    check(&lab).await.fails();
    lab.settle().await;
    assert_eq!(lab.device("a").await, "quarantined");
    let next = lab.wait(waits("next", "a")).await;
    lab.pass(31 * SECOND).await;
    lab.job("health a").await.fails();
    lab.pass(61 * SECOND).await;
    lab.job("health a").await.succeeds();
    assert!(lab.end(&next).await.into_lease().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_told_that_its_device_fails_and_keeps_its_lease() {
    let lab = lab_of("a", "health").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    check(&lab).await.fails();
    assert_eq!(notices(&lab, &lease).await, []);
    check(&lab).await.fails();
    lab.settle().await;
    assert_eq!(notices(&lab, &lease).await, [NoticeKind::DeviceUnhealthy]);
    assert_eq!(notices(&lab, &lease).await, [], "it is told once");
    check(&lab).await.succeeds();
    check(&lab).await.fails();
    check(&lab).await.succeeds();
    check(&lab).await.succeeds();
    lab.settle().await;
    assert_eq!(notices(&lab, &lease).await, [NoticeKind::DeviceRecovered]);
    assert_eq!(lab.device("a").await, "leased");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_was_ill_at_the_release_is_looked_at_before_it_is_granted_again() {
    for hooks in ["health", "reset health"] {
        let lab = lab_of("a", hooks).await;
        let lease = lab.lease(acquires("ci", "a")).await;
        check(&lab).await.fails();
        check(&lab).await.fails();
        let next = lab.wait(waits("next", "a")).await;
        lab.release(&lease).await.unwrap();
        if hooks.contains("reset") {
            lab.job("reset a").await.succeeds();
        }
        let look = lab.job("health a").await;
        assert_eq!(lab.state(&next).await, None);
        look.succeeds();
        assert!(lab.end(&next).await.into_lease().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_of_an_earlier_grant_changes_nothing_however_late_it_ends() {
    let lab = lab_of("a", "health").await;
    let lease = lab.lease(acquires("one", "a")).await;
    check(&lab).await.fails();
    let late = check(&lab).await;
    lab.release(&lease).await.unwrap();
    let lease = lab.lease(acquires("two", "a")).await;
    assert!(late.stop.is_cancelled(), "it is told to go");
    late.fails();
    lab.settle().await;
    assert_eq!(notices(&lab, &lease).await, [], "it was of another");
    assert_eq!(lab.device("a").await, "leased");
}

#[tokio::test(start_paused = true)]
async fn a_check_stands_in_nobodys_way() {
    let lab = lab_of("a", "prepare health").await;
    let running = check(&lab).await;
    let request = lab.wait(waits("ci", "a")).await;
    running.stops().await;
    lab.job("prepare a").await.succeeds();
    assert!(lab.end(&request).await.into_lease().is_some());
}
