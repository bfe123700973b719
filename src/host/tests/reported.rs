//! What the link to a gateway is told by the desk, in its order.

use std::time::Duration;

use tokio::sync::mpsc;

use super::super::Subscription;
use super::super::message::{Asked, DeskMessage, Origin, Said};
use super::calls::{ENFORCED, MINUTE, booked, slot};
use super::lab::{Lab, acquires, joins, reply, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, Code, NodeName};
use crate::wire::report::{Changed, NextWindow, Report, ResourceReport};
use crate::wire::requests::SettledOutcome;

const CI: &str = "gw:gateway:ci";

fn gateway() -> NodeName {
    "gateway".parse().unwrap()
}

async fn subscribe(lab: &Lab) -> Subscription {
    reply(lab.send(|reply| DeskMessage::Subscribe(gateway(), reply))).await
}

async fn dispatched(lab: &Lab, ask: Ask) -> Result<Asked, Code> {
    let origin = Origin::Gateway { attempt: 1, fingerprint: ask.fingerprint(), not_on: None };
    said::<Asked>(lab.send(|reply| DeskMessage::Request { ask: Box::new(ask), origin, reply })).await
}

/// The changes so far.
fn told(reports: &mut mpsc::Receiver<Report>) -> Vec<Changed> {
    let mut changes = Vec::new();
    while let Ok(Report::Delta(delta)) = reports.try_recv() {
        changes.push(delta.change);
    }
    changes
}

fn windows(changes: Vec<Changed>) -> Vec<Option<NextWindow>> {
    let window = |change| match change {
        Changed::Resource(ResourceReport { next_window, .. }) => next_window,
        other => panic!("nobody has asked: {other:?}"),
    };
    changes.into_iter().map(window).collect()
}

#[tokio::test(start_paused = true)]
async fn the_window_that_is_on_or_comes_next_is_reported_where_windows_are_enforced() {
    let lab = Lab::new(&[booked("a", "os=1", ENFORCED), resource("b", "os=1", 1)], Rules::default()).await;
    let mut link = subscribe(&lab).await;
    let at = |starts_in: Duration, ends_in: Duration| {
        let (starts_in_ms, ends_in_ms) = (starts_in.as_millis() as u64, ends_in.as_millis() as u64);
        Some(NextWindow { holder: "booker".parse().unwrap(), starts_in_ms, ends_in_ms })
    };
    lab.book("booker", "a", slot(10, 15)).await.unwrap();
    assert_eq!(windows(told(&mut link.reports)), [at(10 * MINUTE, 15 * MINUTE)]);
    lab.book("booker", "b", slot(10, 15)).await.unwrap();
    assert!(told(&mut link.reports).is_empty(), "nobody is stopped by it");
    lab.pass(2 * MINUTE).await;
    let snapshot = subscribe(&lab).await.resources;
    assert_eq!(snapshot[0].next_window, at(8 * MINUTE, 13 * MINUTE));
    assert_eq!(snapshot[1].next_window, None);
    let mut link = subscribe(&lab).await;
    lab.pass(8 * MINUTE + Duration::from_secs(2)).await;
    let begun = windows(told(&mut link.reports)).pop().expect("its beginning is reported");
    assert!(begun.is_some_and(|window| window.starts_in_ms == 0 && window.ends_in_ms > 290_000));
    lab.pass(5 * MINUTE).await;
    assert_eq!(windows(told(&mut link.reports)).pop(), Some(None), "its end too");
}

#[tokio::test(start_paused = true)]
async fn a_gateways_rows_are_told_right_when_the_actor_of_their_resource_dies() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    let mut link = subscribe(&lab).await;
    let (unattended, attended) = (joins(CI, "a"), waits("gw:gateway:ops", "a"));
    let ids = [unattended.id.clone(), attended.id.clone()];
    dispatched(&lab, unattended).await.unwrap();
    dispatched(&lab, attended).await.unwrap();
    let rows = |changes: Vec<Changed>| {
        let named = |change| match change {
            Changed::Resource(_) | Changed::ResourceGone(_) => None,
            Changed::Waiting(row) => Some(("waits", row.request)),
            Changed::Gone(request) => Some(("gone", request)),
            Changed::Settled(row) => Some(("settled", row.request)),
        };
        changes.into_iter().filter_map(named).collect::<Vec<_>>()
    };
    assert_eq!(rows(told(&mut link.reports)), [("waits", ids[0].clone()), ("waits", ids[1].clone())]);
    lab.panic("a");
    lab.pass(Duration::from_secs(1)).await;
    assert!(rows(told(&mut link.reports)).is_empty(), "the desk knows them as they were");

    // A leave and a release are on disk, but their answers die with the actor.
    let (requester, address) = (CI.parse().unwrap(), "a".parse().unwrap());
    let left = lab.send(|reply| DeskMessage::Leave { requester, address, reply });
    lab.panic("a");
    assert!(said::<bool>(left).await.unwrap());
    assert_eq!(rows(told(&mut link.reports)), [("gone", ids[0].clone())]);
    let released = lab.begin_release(&held);
    lab.panic("a");
    reply(released).await.result.unwrap();
    lab.pass(Duration::from_secs(10)).await;
    assert_eq!(rows(told(&mut link.reports)), [("settled", ids[1].clone())]);
    let Subscription { waiting, settled, .. } = subscribe(&lab).await;
    assert!(waiting.is_empty());
    assert!(matches!(settled[0].outcome, SettledOutcome::Granted { .. }));
}

#[tokio::test(start_paused = true)]
async fn nothing_of_local_clients_and_of_other_gateways_is_told_but_their_leases() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    lab.lease(acquires("holder", "a")).await;
    let mut link = subscribe(&lab).await;
    let local = lab.wait(waits("local", "a")).await;
    dispatched(&lab, waits("gw:another:ci", "a")).await.unwrap();
    lab.cancel(&local).await.unwrap();
    let changes = told(&mut link.reports);
    assert!(changes.iter().all(|change| matches!(change, Changed::Resource(_))), "{changes:?}");
    let Subscription { waiting, settled, number, .. } = subscribe(&lab).await;
    assert!(waiting.is_empty() && settled.is_empty());
    assert_eq!(number, link.number + changes.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_room_is_told_in_pages() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    lab.lease(acquires("holder", "a")).await;
    for who in ["w-1", "w-2", "w-3"] {
        lab.join(joins(who, "a")).await;
    }
    let page = async |after| {
        let resource = "a".parse().unwrap();
        let asked = lab.send(|reply| DeskMessage::Waiters { resource, after, most: 2, reply });
        let Said { result, .. } = reply(asked).await;
        let (waiters, more) = result.unwrap();
        (waiters.into_iter().map(|waiter| waiter.holder.to_string()).collect::<Vec<_>>().join(" "), more)
    };
    assert_eq!(page(0).await, ("w-1 w-2".to_owned(), true));
    assert_eq!(page(1).await, ("w-2 w-3".to_owned(), false));
    assert_eq!(page(2).await, ("w-3".to_owned(), false));
    assert_eq!(page(usize::MAX).await, (String::new(), false));
}
