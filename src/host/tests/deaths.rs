//! A resource's actor dies while something is being committed: what is answered is what is on disk.

use super::super::message::{Asked, DeskMessage};
use super::lab::{Lab, acquires, joins, ranked, reply, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, Code, DeviceState};

async fn lab() -> Lab {
    let lab = Lab::new(&[resource("a", "os=1", 1), resource("b", "os=2", 1)], Rules::default()).await;
    lab.lease(acquires("holder", "a")).await;
    lab
}

#[tokio::test(start_paused = true)]
async fn an_unattended_waiter_that_moved_stands_where_it_was_told_then_and_after_a_restart() {
    let lab = lab().await;
    lab.join(joins("first", "a")).await;
    lab.join(joins("second", "a")).await;
    let moving = lab.begin(ranked(joins("second", "a"), 5.0));
    lab.panic("a");
    let Ok(Asked::Pending(pending)) = said(moving).await else { panic!("it stands there") };
    assert_eq!(pending.position, 1);
    assert_eq!(lab.room("a").await, ["second", "first"]);
    let lab = lab.restart().await;
    assert_eq!(lab.room("a").await, ["second", "first"]);
}

#[tokio::test(start_paused = true)]
async fn an_unattended_waiter_that_had_just_joined_goes_on_holding_its_lease_id() {
    let lab = lab().await;
    let joining = lab.begin(Ask { lease_id: Some("mine".parse().unwrap()), ..joins("first", "a") });
    lab.panic("a");
    assert!(matches!(said(joining).await, Ok(Asked::Pending(_))));
    let other = Ask { lease_id: Some("mine".parse().unwrap()), ..acquires("other", "b") };
    assert_eq!(lab.ask(other).await, Err(Code::LeaseIdTaken));
}

#[tokio::test(start_paused = true)]
async fn a_drain_and_a_leave_that_are_on_disk_are_answered_as_done() {
    let lab = lab().await;
    lab.join(joins("first", "a")).await;
    let (requester, address) = ("first".parse().unwrap(), "a".parse().unwrap());
    let left = lab.send(|reply| DeskMessage::Leave { requester, address, reply });
    lab.panic("a");
    assert!(reply(left).await.result.unwrap());
    lab.drain("a", false).await.unwrap();
    let address = "a".parse().unwrap();
    let drained = lab.send(|reply| DeskMessage::Drain { address, drained: true, reply });
    lab.panic("a");
    assert_eq!(reply(drained).await.result.unwrap().0.state, DeviceState::Drained);
}

#[tokio::test(start_paused = true)]
async fn whoever_was_about_to_be_served_is_served_by_the_next_actor() {
    let lab = Lab::new(&[resource("a", "os=1", 1), resource("b", "os=1", 1)], Rules::default()).await;
    let held = [lab.lease(acquires("h-1", "a")).await, lab.lease(acquires("h-2", "b")).await];
    let (by_name, by_selector) = (lab.wait(waits("by-name", "a")).await, lab.wait(waits("by-selector", "os=1")).await);
    for held in &held {
        let released = lab.begin_release(held);
        lab.panic("a");
        lab.panic("b");
        said(released).await.unwrap();
    }
    assert_eq!(lab.end(&by_name).await.lease().resource_id.as_str(), "a");
    assert_eq!(lab.end(&by_selector).await.lease().resource_id.as_str(), "b");
}
