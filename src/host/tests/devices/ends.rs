//! Resets that fail, quarantine, and the delay after an end that nobody said.

use std::time::Duration;

use super::super::lab::{Lab, acquires, holder, waits};
use super::{MINUTE, SECOND, device, lab_of, rules};
use crate::driver::Sighting;
use crate::model::{Ask, DeviceFacts, ResourceSpec};

#[tokio::test(start_paused = true)]
async fn a_failed_reset_is_tried_three_times_ever_later_and_then_an_operator_has_to_say_something() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    let next = lab.wait(waits("next", "a")).await;
    lab.release(&lease).await.unwrap();
    lab.job("reset a").await.fails();
    for after in [30, 60, 120] {
        lab.settle().await;
        assert_eq!(lab.device("a").await, "quarantined");
        let shown = lab.shown("a").await;
        assert_eq!(shown.failure.unwrap().output, "no such device\n");
        lab.pass(Duration::from_secs(after) - SECOND).await;
        lab.no_job().await;
        lab.pass(2 * SECOND).await;
        assert_eq!(lab.device("a").await, "quarantined", "until it has succeeded");
        lab.job("reset a").await.fails();
    }
    lab.pass(60 * MINUTE).await;
    lab.no_job().await;
    assert_eq!((lab.device("a").await, lab.state(&next).await), ("quarantined", None));
    lab.clear("a").await.unwrap();
    assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    assert_eq!(lab.shown("a").await.failure, None);
}

#[tokio::test(start_paused = true)]
async fn a_try_that_succeeds_ends_the_quarantine() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    let next = lab.wait(waits("next", "os=1")).await;
    lab.release(&lease).await.unwrap();
    lab.job("reset a").await.fails();
    lab.job("reset a").await.fails();
    lab.job("reset a").await.succeeds();
    assert_eq!(holder(&lab.end(&next).await.lease()), "next");
}

#[tokio::test(start_paused = true)]
async fn a_cleared_device_is_free_once_the_try_that_runs_is_gone_and_one_that_is_not_in_quarantine_stays_as_it_is() {
    let lab = lab_of("a", "reset").await;
    lab.clear("a").await.unwrap();
    assert_eq!(lab.device("a").await, "available");
    let lease = lab.lease(acquires("ci", "a")).await;
    lab.release(&lease).await.unwrap();
    let reset = lab.job("reset a").await;
    lab.clear("a").await.unwrap();
    assert_eq!(lab.device("a").await, "resetting");
    reset.fails();
    let again = lab.job("reset a").await;
    let next = lab.wait(waits("next", "a")).await;
    let cleared = async {
        lab.clear("a").await.unwrap();
        assert_eq!(lab.device("a").await, "leased");
    };
    let stopped = async {
        again.stop.cancelled().await;
        lab.settle().await;
        assert_eq!((lab.device("a").await, lab.state(&next).await), ("quarantined", None), "the reset is still at it");
        again.stops().await;
    };
    tokio::join!(cleared, stopped);
    assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    lab.no_job().await;
}

#[tokio::test(start_paused = true)]
async fn a_try_that_fails_while_its_device_is_cleared_puts_it_back_into_no_quarantine() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    lab.release(&lease).await.unwrap();
    lab.job("reset a").await.fails();
    let again = lab.job("reset a").await;
    let stopped = async {
        again.stop.cancelled().await;
        again.fails();
    };
    let (first, second, ()) = tokio::join!(lab.clear("a"), lab.clear("a"), stopped);
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(lab.device("a").await, "available");
    lab.pass(10 * MINUTE).await;
    lab.no_job().await;
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_is_due_on_a_device_that_never_comes_back_ends_with_an_operator() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    lab.sees("a", Sighting::Absent("unplugged".to_owned())).await;
    lab.release(&lease).await.unwrap();
    lab.no_job().await;
    assert_eq!(lab.device("a").await, "absent");
    lab.clear("a").await.unwrap();
    assert_eq!(lab.device("a").await, "absent");
    lab.sees("a", Sighting::Present(DeviceFacts::default())).await;
    lab.no_job().await;
    assert_eq!(lab.device("a").await, "available");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_released_leaves_its_resource_alone_for_the_lock_delay() {
    for hooks in ["", "reset"] {
        let spec = ResourceSpec { lock_delay: MINUTE, ..device("a", "os=1", hooks) };
        let lab = Lab::new(&[spec], rules()).await;
        let lease = lab.lease(acquires("clean", "a")).await;
        let clean = lab.wait(waits("second", "a")).await;
        lab.release(&lease).await.unwrap();
        if hooks == "reset" {
            lab.job("reset a").await.succeeds();
        }
        let second = lab.end(&clean).await.lease();
        lab.release(&second).await.unwrap();
        if hooks == "reset" {
            lab.job("reset a").await.succeeds();
        }
        lab.settle().await;
        lab.lease(Ask { ttl: MINUTE, ..acquires("unclean", "a") }).await;
        let next = lab.wait(waits("next", "os=1")).await;
        lab.pass(MINUTE + SECOND).await;
        if hooks == "reset" {
            assert_eq!(lab.device("a").await, "resetting");
            lab.job("reset a").await.succeeds();
            lab.settle().await;
        }
        assert_eq!(lab.device("a").await, "cooling");
        assert!(lab.shown("a").await.until.is_some());
        lab.pass(57 * SECOND).await;
        assert_eq!(lab.state(&next).await, None, "it counts from the end of the lease");
        lab.pass(3 * SECOND).await;
        assert!(lab.state(&next).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_could_not_be_written_is_said_again_and_the_hook_runs_once() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    lab.release(&lease).await.unwrap();
    let reset = lab.job("reset a").await;
    let fault = lab.lose("UPDATE", "device");
    reset.succeeds();
    lab.pass(5 * SECOND).await;
    assert_eq!(lab.device("a").await, "resetting");
    lab.no_job().await;
    drop(fault);
    lab.pass(2 * SECOND).await;
    assert_eq!(lab.device("a").await, "available");
    lab.no_job().await;
}
