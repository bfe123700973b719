//! Devices that cannot be made ready.

use super::super::super::message::{Asked, DeskMessage};
use super::super::lab::{End, acquires, holder, joins, said, waits, waits_for};
use super::{MINUTE, SECOND, lab_of};
use crate::model::{Ask, Authority, Code, EventKind, WaitPolicy};

#[tokio::test(start_paused = true)]
async fn a_request_whose_device_fails_goes_to_another_once() {
    for wait in [WaitPolicy::Wait { timeout: None }, WaitPolicy::NoWait] {
        let lab = lab_of("abc", "prepare reset").await;
        let ask = Ask { wait, ..waits("ci", "os=1") };
        let id = ask.id.clone();
        let asked = lab.begin(ask);
        lab.job("prepare a").await.fails();
        // The first is brought back while the second is made ready.
        let (one, two) = (lab.hands.next().await, lab.hands.next().await);
        let (reset, prepare) = if one.name() == "reset a" { (one, two) } else { (two, one) };
        assert_eq!((reset.name(), prepare.name()), ("reset a".to_owned(), "prepare b".to_owned()));
        reset.succeeds();
        prepare.fails();
        assert_eq!(lab.end(&id).await, End::Refused(Code::DeviceFailed));
        if wait == WaitPolicy::NoWait {
            assert_eq!(said(asked).await, Err(Code::DeviceFailed));
        }
        lab.job("reset b").await.succeeds();
        lab.no_job().await;
        let rejected = lab.events().await.iter().filter(|kind| **kind == EventKind::LeaseRejected).count();
        assert_eq!(rejected, 1);
        // What has failed lately is the last that is tried again.
        let next = lab.wait(waits("next", "os=1")).await;
        lab.job("prepare c").await.succeeds();
        assert!(matches!(lab.end(&next).await, End::Lease(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_other_device_with_its_place_and_gets_it() {
    let lab = lab_of("ab", "prepare").await;
    let held = lab.begin(acquires("holder", "b"));
    lab.job("prepare b").await.succeeds();
    let Ok(Asked::Granted(held)) = said(held).await else { panic!("it is free") };
    let first = lab.wait(waits("first", "os=1")).await;
    let second = lab.wait(waits("second", "os=1")).await;
    lab.job("prepare a").await.fails();
    // The one behind gets the device that has failed the first; the first waits for the other.
    lab.job("prepare a").await.succeeds();
    assert_eq!(holder(&lab.end(&second).await.lease()), "second");
    assert_eq!(lab.state(&first).await, None);
    lab.release(&held.lease).await.unwrap();
    lab.job("prepare b").await.succeeds();
    assert_eq!(holder(&lab.end(&first).await.lease()), "first");
}

#[tokio::test(start_paused = true)]
async fn one_by_name_fails_at_once_and_its_key_stands_for_that() {
    for ask in [waits("ci", "a"), acquires("ci", "a"), joins("ci", "a"), waits("ci", "os=1")] {
        let lab = lab_of("a", "prepare").await;
        let keyed =
            |ask: &Ask| Ask { id: crate::model::RequestId::generate(), key: Some("k".parse().unwrap()), ..ask.clone() };
        let first = keyed(&ask);
        let id = first.id.clone();
        let asked = lab.begin(first);
        lab.job("prepare a").await.fails();
        assert_eq!(lab.end(&id).await, End::Refused(Code::DeviceFailed));
        drop(asked);
        assert_eq!(lab.ask(keyed(&ask)).await, Err(Code::DeviceFailed), "{ask:?}");
        assert_eq!(lab.device("a").await, "available");
        let next = lab.begin(acquires("ci", "a"));
        lab.job("prepare a").await.succeeds();
        assert!(matches!(said(next).await, Ok(Asked::Granted(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_given_up_while_its_device_is_made_ready_leaves_it_to_the_reset() {
    for by_timeout in [false, true] {
        for target in ["a", "os=1"] {
            let lab = lab_of("a", "prepare reset").await;
            let request = lab.wait(waits_for("ci", target, MINUTE)).await;
            let next = lab.wait(waits("next", target)).await;
            let prepare = lab.job("prepare a").await;
            if by_timeout {
                lab.pass(MINUTE + SECOND).await;
                assert_eq!(lab.state(&request).await, Some(End::Refused(Code::QueueTimeout)));
            } else {
                lab.cancel(&request).await.unwrap();
            }
            lab.no_job().await;
            // Only when nothing of it runs any more does the next job begin.
            prepare.stops().await;
            lab.job("reset a").await.succeeds();
            lab.job("prepare a").await.succeeds();
            assert_eq!(holder(&lab.end(&next).await.lease()), "next");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_takes_its_attempt_back_stops_the_prepare() {
    let lab = lab_of("ab", "prepare reset").await;
    lab.link_up();
    let ask = Ask { wait: WaitPolicy::NoWait, ..waits("gw:gateway:ci", "os=1") };
    let request = ask.id.clone();
    let dispatched = lab.begin_dispatch(ask.clone(), 1);
    let prepare = lab.job("prepare a").await;
    let gateway = super::super::lab::GATEWAY.parse().unwrap();
    let of = request.clone();
    let settled = lab.send(|reply| DeskMessage::Settle { request: of, attempt: 1, gateway, reply });
    prepare.stops().await;
    assert_eq!(said(settled).await.map(|grant| grant.is_some()), Ok(false));
    assert_eq!(said(dispatched).await, Err(Code::Stopping));
    lab.job("reset a").await.succeeds();
    // The same attempt comes too late; its next is a new try.
    assert_eq!(lab.dispatch(ask.clone()).await, Err(Code::Stopping));
    let again = lab.begin_dispatch(ask, 2);
    lab.job("prepare b").await.fails();
    assert_eq!(said(again).await, Err(Code::DeviceFailed), "it goes to another from its gateway, not here");
    lab.job("reset b").await.succeeds();
    lab.no_job().await;
    assert!(!lab.events().await.contains(&EventKind::LeaseRejected));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_was_spent_on_a_claim_does_not_come_again() {
    let lab = lab_of("a", "prepare").await;
    let mut last = None;
    for number in 0..20 {
        let ask = acquires("ci", "a");
        let id = ask.id.clone();
        let asked = lab.begin(ask);
        let prepare = lab.job("prepare a").await;
        let fence: u64 = prepare.variable("BERTH_FENCE").unwrap().parse().unwrap();
        assert!(Some(fence) > last, "{last:?} {fence}");
        last = Some(fence);
        // The clock stands still all the while.
        if number % 3 == 0 {
            prepare.succeeds();
            let Ok(Asked::Granted(grant)) = said(asked).await else { panic!("it was made ready") };
            let (lease, authority) = (grant.lease.id, Authority::Client(crate::model::Caller::admin()));
            said(lab.send(|reply| DeskMessage::Release { lease, fence: None, authority, reply })).await.unwrap();
        } else {
            prepare.fails();
            assert_eq!(lab.end(&id).await, End::Refused(Code::DeviceFailed));
        }
    }
}
