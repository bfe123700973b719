//! Who is served when something becomes free.

use std::time::Duration;

use super::lab::{End, Lab, acquires, holder, joins, resource, said, shared, waits, waits_for};
use crate::admission::Rules;
use crate::model::{Ask, Code, EventKind};

#[tokio::test(start_paused = true)]
async fn whoever_waits_by_selector_is_served_before_a_crowd_that_asks_for_the_freed_resource_by_name() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let held = lab.lease(acquires("holder", "a")).await;
    let first = lab.wait(waits("first", "os=1")).await;
    let released = lab.begin_release(&held);
    let crowd: Vec<_> = (0..20).map(|n| lab.begin(acquires(&format!("crowd-{n}"), "a"))).collect();
    let admitted = said(released).await.unwrap().admitted;
    assert_eq!(admitted.map(|holder| holder.to_string()).as_deref(), Some("first"));
    assert_eq!(holder(&lab.end(&first).await.lease()), "first");
    for late in crowd {
        assert_eq!(said(late).await.unwrap_err(), Code::ResourceUnavailable);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_hand_over_that_the_database_refuses_the_release_stands_and_the_next_is_served_later() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let held = lab.lease(acquires("holder", "a")).await;
    let (doomed, next) = (lab.wait(waits("doomed", "a")).await, lab.wait(waits("next", "a")).await);
    let fault = lab.forbid_leases("NEW.holder = 'doomed'");
    assert_eq!(lab.release(&held).await, Ok(None));
    assert_eq!(lab.end(&doomed).await, End::Refused(Code::Internal));
    assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    drop(fault);
    assert!(lab.events().await.contains(&EventKind::InvariantViolated));
    assert_eq!(lab.release(&held).await, Err(Code::UnknownLease));
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_the_database_refuses_fails_that_waiter_and_the_next_is_served_later() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let held = lab.lease(acquires("holder", "a")).await;
    let (doomed, next) = (lab.wait(waits("doomed", "os=1")).await, lab.wait(waits("next", "os=1")).await);
    let _fault = lab.forbid_leases("NEW.holder = 'doomed'");
    assert_eq!(lab.release(&held).await, Ok(None));
    assert_eq!(lab.end(&doomed).await, End::Refused(Code::Internal));
    assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    assert!(lab.events().await.contains(&EventKind::InvariantViolated));
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_cannot_be_written_is_made_again_and_not_in_a_hot_loop() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let held = lab.lease(acquires("holder", "a")).await;
    let first = lab.wait(waits("first", "os=1")).await;
    let fault = lab.lose_leases("true");
    assert_eq!(lab.release(&held).await, Ok(None));
    lab.pass(Duration::from_secs(30)).await;
    assert_eq!(lab.state(&first).await, None, "it goes on waiting");
    assert_eq!(lab.ask(acquires("late", "a")).await.unwrap_err(), Code::ResourceUnavailable, "it is not overtaken");
    drop(fault);
    assert_eq!(holder(&lab.end(&first).await.lease()), "first");
}

#[tokio::test(start_paused = true)]
async fn when_the_pinned_one_is_pinned_elsewhere_those_who_would_share_go_on() {
    let lab = Lab::new(&[resource("a", "os=1", 3), resource("b", "os=1", 3)], Rules::default()).await;
    let mut on_b = Vec::new();
    for n in 0..2 {
        lab.lease(shared(acquires(&format!("a-{n}"), "a"))).await;
        on_b.push(lab.lease(shared(acquires(&format!("b-{n}"), "b"))).await);
    }
    on_b.push(lab.lease(shared(acquires("b-2", "b"))).await);
    let alone = lab.wait(waits("alone", "os=1")).await;
    let sharing = lab.wait(shared(waits("sharing", "a"))).await;
    lab.settle().await;
    assert_eq!(lab.state(&sharing).await, None, "a has the fewest holders and is to become free");
    // Now b is the one with the fewest.
    lab.release(&on_b[0]).await.unwrap();
    lab.release(&on_b[1]).await.unwrap();
    assert_eq!(holder(&lab.end(&sharing).await.lease()), "sharing");
    assert_eq!(lab.state(&alone).await, None);
    lab.release(&on_b[2]).await.unwrap();
    assert_eq!(holder(&lab.end(&alone).await.lease()), "alone");
}

#[tokio::test(start_paused = true)]
async fn one_who_stands_in_line_behind_a_pinned_one_is_admitted_when_that_one_has_gone() {
    let lab = Lab::new(&[resource("a", "os=1", 2)], Rules::default()).await;
    let first = lab.lease(shared(acquires("first", "a"))).await;
    lab.lease(shared(acquires("second", "a"))).await;
    let alone = lab.wait(waits("alone", "os=1")).await;
    lab.join(shared(joins("stands", "a"))).await;
    assert_eq!(lab.release(&first).await, Ok(None));
    assert_eq!(lab.room("a").await, ["stands"]);
    lab.cancel(&alone).await.unwrap();
    lab.settle().await;
    assert_eq!(lab.room("a").await, [""; 0], "it has been admitted");
    lab.lease(shared(joins("stands", "a"))).await;
}

#[tokio::test(start_paused = true)]
async fn an_expiry_and_a_timeout_that_cannot_be_written_are_tried_again() {
    for target in ["a", "os=1"] {
        let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
        lab.lease(Ask { ttl: Duration::from_secs(10), ..acquires("holder", "a") }).await;
        let bounded = lab.wait(waits_for("bounded", target, Duration::from_secs(5))).await;
        let next = lab.wait(waits("next", target)).await;
        let fault = lab.lose("UPDATE", "request");
        lab.pass(Duration::from_secs(8)).await;
        assert_eq!(lab.cancel(&next).await, Err(Code::Internal));
        assert_eq!(lab.state(&bounded).await, None, "its end is not written yet");
        drop(fault);
        assert_eq!(lab.end(&bounded).await, End::Refused(Code::QueueTimeout));
        let fault = lab.lose("DELETE", "lease");
        lab.pass(Duration::from_secs(20)).await;
        assert_eq!(lab.state(&next).await, None, "the lease is not over yet");
        drop(fault);
        assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    }
}
