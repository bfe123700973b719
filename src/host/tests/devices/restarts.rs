//! What a restart, and the death of an actor, leave of what was done to a device.

use super::super::super::message::Asked;
use super::super::lab::{End, HOUR, Lab, acquires, holder, said, waits};
use super::{MINUTE, SECOND, device, lab_of, rules};
use crate::model::{Ask, Code, ResourceSpec};

#[tokio::test(start_paused = true)]
async fn a_claim_is_dropped_at_the_start_and_its_device_reset() {
    let lab = lab_of("a", "prepare reset").await;
    let request = lab.wait(waits("ci", "a")).await;
    let ticket = lab.ticket(&request).await;
    let behind = lab.wait(waits("behind", "a")).await;
    let prepare = lab.job("prepare a").await;
    let fence: u64 = prepare.variable("BERTH_FENCE").unwrap().parse().unwrap();
    drop(prepare);
    let lab = lab.restart().await;
    assert_eq!(lab.state(&request).await, Some(End::Refused(Code::NodeRestarted)));
    assert_eq!(lab.state(&behind).await, Some(End::Refused(Code::NodeRestarted)));
    assert_eq!(lab.device("a").await, "resetting");
    let again = lab.wait(Ask { ticket: Some(ticket), ..waits("ci", "a") }).await;
    lab.job("reset a").await.succeeds();
    let prepare = lab.job("prepare a").await;
    assert!(prepare.variable("BERTH_FENCE").unwrap().parse::<u64>().unwrap() > fence);
    prepare.succeeds();
    assert_eq!(holder(&lab.end(&again).await.lease()), "ci");
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_ran_is_run_again_before_anybody_is_served() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    lab.release(&lease).await.unwrap();
    lab.job("reset a").await;
    let lab = lab.restart().await;
    assert_eq!(lab.ask(acquires("ci", "a")).await, Err(Code::ResourceUnavailable));
    let next = lab.wait(waits("next", "os=1")).await;
    let reset = lab.job("reset a").await;
    assert_eq!(reset.variable("BERTH_LEASE"), Some(lease.id.as_str()));
    reset.succeeds();
    assert_eq!(holder(&lab.end(&next).await.lease()), "next");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_expired_while_the_node_was_down_is_followed_by_its_reset_and_its_delay() {
    let spec = ResourceSpec { lock_delay: MINUTE, ..device("a", "os=1", "reset") };
    let lab = Lab::new(&[spec], rules()).await;
    lab.lease(Ask { ttl: MINUTE, ..acquires("ci", "a") }).await;
    let stopped = lab.stop().await;
    tokio::time::sleep(HOUR).await;
    let lab = stopped.start().await;
    assert_eq!(lab.device("a").await, "resetting");
    lab.job("reset a").await.succeeds();
    lab.settle().await;
    assert_eq!(lab.device("a").await, "cooling");
    lab.pass(MINUTE + SECOND).await;
    assert_eq!(lab.device("a").await, "available");
}

#[tokio::test(start_paused = true)]
async fn quarantine_and_cooling_outlive_the_node() {
    let lab = lab_of("a", "reset").await;
    let lease = lab.lease(acquires("ci", "a")).await;
    lab.release(&lease).await.unwrap();
    for _ in 0..4 {
        lab.job("reset a").await.fails();
    }
    lab.settle().await;
    let lab = lab.restart().await;
    assert_eq!(lab.device("a").await, "quarantined");
    assert_eq!(lab.shown("a").await.failure.unwrap().why, "exited with 3");
    lab.pass(HOUR).await;
    lab.no_job().await;
    lab.clear("a").await.unwrap();
    assert_eq!(lab.device("a").await, "available");

    let spec = ResourceSpec { lock_delay: 10 * MINUTE, ..device("a", "os=1", "") };
    let lab = Lab::new(&[spec], rules()).await;
    lab.lease(Ask { ttl: MINUTE, ..acquires("ci", "a") }).await;
    lab.pass(3 * MINUTE).await;
    let lab = lab.restart().await;
    assert_eq!(lab.device("a").await, "cooling");
    lab.pass(7 * MINUTE).await;
    assert_eq!(lab.device("a").await, "cooling", "a minute of its delay is left");
    lab.pass(2 * MINUTE).await;
    assert_eq!(lab.device("a").await, "available");
}

#[tokio::test(start_paused = true)]
async fn an_actor_that_dies_changes_nothing_of_what_is_done_to_its_device() {
    let lab = lab_of("a", "prepare reset").await;
    let request = lab.wait(waits("ci", "a")).await;
    let prepare = lab.job("prepare a").await;
    lab.panic("a");
    lab.pass(SECOND).await;
    assert_eq!(lab.device("a").await, "preparing");
    prepare.succeeds();
    let lease = lab.end(&request).await.lease();
    lab.release(&lease).await.unwrap();
    let reset = lab.job("reset a").await;
    lab.panic("a");
    lab.pass(SECOND).await;
    reset.succeeds();
    lab.pass(SECOND).await;
    assert_eq!(lab.device("a").await, "available");
    lab.no_job().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_written_while_its_actor_dies_is_its_claimants() {
    for ask in [acquires("ci", "a"), waits("ci", "a"), waits("ci", "os=1")] {
        for written in [false, true] {
            let lab = lab_of("a", "prepare reset").await;
            let fault = (!written).then(|| lab.lose("INSERT", "device"));
            let other = lab.hold_commits();
            let id = ask.id.clone();
            let asked = lab.begin(ask.clone());
            lab.turn().await;
            lab.panic("a");
            lab.turn().await;
            drop(other);
            if written {
                lab.job("prepare a").await.succeeds();
                assert_eq!(holder(&lab.end(&id).await.lease()), "ci");
            } else {
                assert_eq!(lab.end(&id).await, End::Refused(Code::Internal));
                drop((asked, fault));
                lab.no_job().await;
                assert_eq!(lab.device("a").await, "available");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_and_whose_claim_is_written_while_the_actor_dies_has_it() {
    for target in ["a", "os=1"] {
        let lab = lab_of("a", "prepare").await;
        let asked = lab.begin(acquires("first", "a"));
        lab.job("prepare a").await.succeeds();
        let Ok(Asked::Granted(first)) = said(asked).await else { panic!("it was made ready") };
        let next = lab.wait(waits("next", target)).await;
        let other = lab.hold_commits();
        let released = lab.begin_release(&first.lease);
        lab.turn().await;
        lab.panic("a");
        lab.turn().await;
        drop(other);
        assert!(said(released).await.is_ok());
        lab.job("prepare a").await.succeeds();
        assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    }
}
